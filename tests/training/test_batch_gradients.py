"""A loss over a batch is the same in groups, in parts, and on two devices."""

import numpy as np
import pytest
import tensorflow as tf
import two_devices

import optimization
from bert import layers, variables
from bert.data import records
from bert.training import batch_gradients

ROWS, TEXTS, LENGTH, WORDS, SIZE = 16, 3, 7, 11, 5


def make_features(seed=0):
  """Texts of all lengths; one in six rows lacks the last."""
  rng = np.random.default_rng(seed)
  sizes = rng.integers(1, LENGTH + 1, [ROWS, TEXTS])
  sizes[::6, -1] = 0
  mask = np.arange(LENGTH) < sizes[..., np.newaxis]
  ids = rng.integers(1, WORDS, [ROWS, TEXTS, LENGTH]) * mask
  values = (ids, mask, np.zeros_like(ids))
  features = {
    name: tf.constant(value, tf.int32)
    for name, value in zip(records.SEQUENCES, values, strict=True)
  }
  return features | {"weights": tf.constant(rng.random(ROWS), tf.float32)}


def encode(features, dropout=0.0):
  """The mean of what a text's words are in a table, times a kernel."""
  table = variables.get_variable("table", [WORDS, SIZE], _initial)
  kernel = variables.get_variable("kernel", [SIZE, SIZE], _initial)
  words = tf.gather(table, features["input_ids"])
  mask = tf.cast(features["input_mask"], tf.float32)[..., tf.newaxis]
  words = layers.dropout(words, dropout)
  found = tf.reduce_sum(words * mask, axis=1)
  return tf.tanh(tf.matmul(found, kernel)) / (1.0 + tf.reduce_sum(mask, 1))


def _initial(shape, dtype):
  count = int(np.prod(shape))
  return tf.constant(np.sin(np.arange(count)).reshape(shape), dtype)


def batch_loss(vectors, features):
  """Every text is compared with the texts of all rows."""
  flat = tf.reshape(vectors, [-1, vectors.shape[-1]])
  products = tf.matmul(vectors[:, 0], flat, transpose_b=True)
  losses = tf.reduce_logsumexp(5.0 * products, axis=1) * features["weights"]
  return tf.reduce_mean(losses)


def update_in(count):
  return optimization.Optimization(
    1e-2, 10, 0, gradient_accumulation_steps=count
  )


def compute(count, features, cuts_groups=True, dropout=0.0):
  return batch_gradients.compute_gradients(
    lambda group: encode(group, dropout),
    batch_loss,
    features,
    update_in(count),
    cuts_groups,
  )


def whole(features, parts=1, dropout=0.0):
  """The same by TensorFlow alone, with the dropout of parts."""
  vectors = []
  for index in range(parts):
    with variables.micro_batch(index), variables.variable_scope(""):
      rows = ROWS // parts
      group = {
        name: tf.reshape(
          features[name][index * rows : (index + 1) * rows], [-1, LENGTH]
        )
        for name in records.SEQUENCES
      }
      vectors.append(encode(group, dropout))
  vectors = tf.reshape(tf.concat(vectors, axis=0), [ROWS, TEXTS, SIZE])
  loss = batch_loss(vectors, features)
  return loss, optimization.compute_gradients(loss, update_in(1))


def compare(found_of, expected_of, is_static):
  store = variables.VariableStore()
  features = make_features()
  length = LENGTH if is_static else None
  signature = {
    name: tf.TensorSpec([ROWS, None, length] if x.shape.rank == 3 else [ROWS])
    for name, x in features.items()
  }
  for name in records.SEQUENCES:
    signature[name] = tf.TensorSpec(signature[name].shape, tf.int32)

  @tf.function(autograph=False, input_signature=[signature])
  def both(features):
    with store:
      pairs = (found_of(features), expected_of(features))
      return [(x, g.dense, g.row_norms) for x, g in pairs]

  (loss, dense, norms), expected = both(features)
  np.testing.assert_allclose(loss, expected[0], rtol=1e-6)
  assert len(dense) == 2
  for gradient, wanted in zip(dense, expected[1], strict=True):
    np.testing.assert_allclose(gradient, wanted, rtol=0, atol=1e-6)
  assert norms.keys() == expected[2].keys() == {"table"}
  np.testing.assert_allclose(norms["table"], expected[2]["table"], rtol=1e-5)


@pytest.mark.parametrize(
  ("count", "cuts"),
  [(1, "by length"), (2, "whole"), (2, "static"), (8, "by length")],
)
def test_gradients_are_those_of_the_batch(count, cuts):
  """Negatives are all rows, not only those of a micro-batch."""
  compare(
    lambda features: compute(count, features, cuts == "by length"),
    whole,
    is_static=cuts == "static",
  )


def test_both_passes_drop_the_same_units():
  compare(
    lambda features: compute(4, features, False, dropout=0.5),
    lambda features: whole(features, 4, dropout=0.5),
    is_static=False,
  )


def test_devices_share_their_negatives(tmp_path):
  cases = (1, 1), (2, 2)
  two_devices.check_equal(tmp_path, "test_batch_gradients", *cases)
