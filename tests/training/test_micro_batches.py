"""A batch in micro-batches has the loss and gradients of the whole batch."""

import numpy as np
import pytest
import tensorflow as tf
import two_devices

import optimization
from bert import variables
from bert.contract.batch_means import weighted_mean
from bert.training import micro_batches

ROWS, WORDS = 8, 5


def make_features():
  rng = np.random.default_rng(0)
  words = rng.integers(0, 4, [ROWS, WORDS])
  # Word i of row n counts as long as i <= n: micro-batches weigh differently.
  weights = np.arange(WORDS) <= np.arange(ROWS)[:, np.newaxis]
  return {
    "words": tf.constant(words, tf.int32),
    "weights": tf.constant(weights, tf.float32),
    "labels": tf.constant(rng.normal(size=ROWS), tf.float32),
  }


def forward(features):
  """A loss by weight and one by row, of a table that is only gathered from."""
  table = variables.get_variable("table", [4, 3], tf.ones_initializer())
  kernel = variables.get_variable("kernel", [3, 1], tf.ones_initializer())
  variables.get_variable("unused", [2])
  words = tf.gather(table, features["words"])
  scores = tf.reshape(
    tf.matmul(tf.reshape(words, [-1, 3]), kernel), [-1, WORDS]
  )
  by_word = weighted_mean(tf.square(scores - 1.0), features["weights"])
  sums = tf.reduce_sum(scores, axis=1)
  by_row = tf.reduce_mean(tf.square(sums - features["labels"]))
  share = weighted_mean(tf.cast(scores > 0, tf.float32), features["weights"])
  draw = tf.random.stateless_uniform([], variables.dropout_seed("site"))
  return by_word + by_row, {"share": share, "draw": draw}


def update_in(count, compiles=False):
  return optimization.Optimization(
    1e-2, 10, 0, gradient_accumulation_steps=count, compiles_gradients=compiles
  )


def compute(count, features, compiles=False):
  return micro_batches.compute_gradients(
    forward, features, update_in(count, compiles)
  )


@pytest.mark.parametrize("count", [2, 8])
def test_sums_are_those_of_the_batch(count):
  store = variables.VariableStore()

  @tf.function(autograph=False)
  def both(features):
    with store:
      whole, parts = (compute(n, features) for n in (1, count))
      draws = []
      for index in range(count):
        with variables.micro_batch(index):
          seed = variables.dropout_seed("site")
        draws.append(tf.random.stateless_uniform([], seed))
    return [
      (loss, logged, grads.dense, grads.row_norms)
      for loss, logged, grads in (whole, parts)
    ], tf.reduce_mean(draws)

  (whole, parts), draw = both(make_features())
  (loss, logged, dense, norms) = parts
  np.testing.assert_allclose(loss, whole[0], rtol=1e-6)
  np.testing.assert_allclose(logged["share"], whole[1]["share"], rtol=1e-6)
  assert len(dense) == 2
  for found, expected in zip(dense, whole[2], strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
  # The rows of words that several micro-batches have in common are not summed.
  assert norms.keys() == {"table"}
  np.testing.assert_allclose(norms["table"], whole[3]["table"], rtol=1e-6)
  assert float(norms["table"]) < 0.5 * np.linalg.norm(dense[0])
  # Each micro-batch drops other units.
  np.testing.assert_allclose(logged["draw"], draw, rtol=1e-6)


def test_devices_and_micro_batches_are_as_one(tmp_path):
  cases = (1, 1), (2, 2, False), (2, 2, True)
  two_devices.check_equal(tmp_path, "test_micro_batches", *cases)
