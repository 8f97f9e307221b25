"""The soft losses of a pre-training, against NumPy and SciPy."""

import pickle

import numpy as np
import pytest
import scipy.special
import task_folders
import tensorflow as tf

import modeling
from bert import variables
from bert.data import records
from bert.errors import UserError
from bert.models import checkpoints
from bert.tasks.pretraining import (
  task as pretraining,
  teacher as pretraining_teacher,
)
from bert.tasks.pretraining.teacher import PretrainingTeacher

POSITIONS = [[1, 3], [2, 5]]


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory, golden, goldens):
  """The golden model with two layers, as a release has it."""
  folder = tmp_path_factory.mktemp("teacher")
  return task_folders.write(folder, "", golden, goldens)


def _features(golden):
  return {n: tf.constant(golden.inputs[n][:2]) for n in records.SEQUENCES}


def _outputs(logits):
  """Those of the head that a teacher reads."""
  positions = tf.constant(POSITIONS)
  return {"masked_lm_positions": positions, "masked_lm_logits": logits}


def _student(golden, **changes):
  """The config and the BertModel of a student, its logits at the positions,
  and its hidden states."""
  config = modeling.BertConfig.from_dict(golden.config.to_dict() | changes)
  weights = checkpoints.Checkpoint(golden.checkpoint)
  values = {name: weights[name] for name in weights.shapes}
  with variables.VariableStore(initial_values=values):
    features = _features(golden)
    bert = modeling.BertModel(
      config, False, *(features[name] for name in records.SEQUENCES)
    )
    masked = bert.sequence_output_at(tf.constant(POSITIONS))
    logits = pretraining.masked_lm_logits(
      config, modeling.reshape_to_matrix(masked), bert.get_embedding_table()
    )
    layers = bert.get_all_encoder_layers()
    hidden = [layers[i].numpy() for i in range(config.num_hidden_layers)]
  return config, bert, logits.numpy(), hidden


def test_the_losses_of_a_smaller_student(golden, teacher_dir):
  _, _, wanted, theirs = _student(golden)
  config, bert, logits, own = _student(golden, num_hidden_layers=1)
  teacher = PretrainingTeacher(teacher_dir, config, None, [(0, 1)], 0.5, 2.0)
  features = _features(golden)
  # As for the process in which a dry run measures memory.
  teacher = pickle.loads(pickle.dumps(teacher))
  found = teacher.soft_loss(None, bert, _outputs(logits), features)
  p, q = (scipy.special.softmax(x / 2, -1) for x in (wanted, logits))
  expected = 4 * scipy.special.rel_entr(p, q).sum(-1).reshape(2, 2)
  mask = features["input_mask"].numpy()
  x, y = own[0], theirs[1]
  cosines = (x * y).sum(-1)
  cosines /= np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
  distance = 1 - (cosines * mask).sum(1) / mask.sum(1)
  assert (distance > 1e-3).all()
  np.testing.assert_allclose(
    found, expected + distance[:, np.newaxis], rtol=1e-3, atol=1e-4
  )


def test_the_teacher_itself_has_nothing_to_learn(golden, teacher_dir):
  config, bert, logits, _ = _student(golden)
  teacher = PretrainingTeacher(teacher_dir, config, None, [(0, 0), (1, 1)])
  found = teacher.soft_loss(None, bert, _outputs(logits), _features(golden))
  np.testing.assert_allclose(found, np.zeros([2, 2]), atol=1e-4)


def test_hidden_states_of_another_width():
  """Jiao et al. (2020), equation 8, over the positions that are no padding."""
  draw = np.random.default_rng(3).normal
  x, w, y = (
    draw(size=shape).astype(np.float32)
    for shape in ([2, 5, 4], [4, 6], [2, 5, 6])
  )
  mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
  with variables.VariableStore(initial_values={"distillation/projection": w}):
    found = pretraining_teacher.hidden_distance(
      *map(tf.constant, (x, y)), tf.constant(mask)
    )
  expected = [((x[i] @ w - y[i])[: mask[i].sum()] ** 2).mean() for i in (0, 1)]
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_projection_of_hidden_states_is_learned():
  """Of states that a matrix makes of the student's, nothing is left."""
  draw = np.random.default_rng(3).normal
  matrix = draw(size=[4, 6])
  states = [draw(size=[8, 5, 4]) for _ in range(2)]
  mask, losses = tf.ones([8, 5], tf.int32), []
  with variables.VariableStore() as store:
    for _ in range(100):
      with tf.GradientTape() as tape:
        loss = sum(  # Two pairs of layers, one matrix.
          tf.reduce_mean(
            pretraining_teacher.hidden_distance(
              tf.constant(x, tf.float32),
              tf.constant(x @ matrix, tf.float32),
              mask,
            )
          )
          for x in states
        )
      (found,) = store.trainable()
      found.assign_sub(tape.gradient(loss, found))
      losses.append(float(loss))
  assert losses[0] > 1 > losses[-1] * 1e4
  np.testing.assert_allclose(found, matrix, atol=1e-2)


def _projections(golden, config, layer):
  """Queries, keys and values by NumPy, [B, N, S, D], of the golden layers."""
  weights = checkpoints.Checkpoint(golden.checkpoint)
  _, _, _, hidden = _student(golden)
  x = golden.arrays["forward/embedding_output"][:2]
  x = x if layer == 0 else hidden[layer - 1]
  found = []
  for part in ("query", "key", "value"):
    name = f"bert/encoder/layer_{layer}/attention/self/{part}"
    y = x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
    shape = [*y.shape[:2], config.num_attention_heads, -1]
    found.append(np.reshape(y, shape).transpose(0, 2, 1, 3))
  return found


def _scores(x, y):
  return x @ y.transpose(0, 1, 3, 2) / np.sqrt(x.shape[-1])


def _distance_of(golden, teacher_dir, target):
  """The loss of a student of one layer, beyond that of its probabilities."""
  config, bert, logits, _ = _student(golden, num_hidden_layers=1)
  features = _features(golden)
  losses = [
    PretrainingTeacher(teacher_dir, config, None, layers, targets=[target])
    .soft_loss(None, bert, _outputs(logits), features)
    .numpy()
    for layers in ([(0, 1)], [])
  ]
  distance = losses[0] - losses[1]
  np.testing.assert_allclose(distance[:, 0], distance[:, 1], atol=1e-4)
  return distance[:, 0], features["input_mask"].numpy()


def test_the_scores_of_attention(golden, teacher_dir):
  """Jiao et al. (2020), equation 7, over the positions that are no padding."""
  found, mask = _distance_of(golden, teacher_dir, "attention")
  own, theirs = (
    _scores(*_projections(golden, golden.config, layer)[:2]) for layer in (0, 1)
  )
  for row, used in enumerate(mask.sum(1)):
    squares = (own[row] - theirs[row])[:, :used, :used] ** 2
    assert found[row] == pytest.approx(squares.mean(), rel=1e-3, abs=1e-4)


def test_relations_of_attention_and_values(golden, teacher_dir):
  """Wang et al. (2020), equations 5 to 8, over the positions that are used."""
  found, mask = _distance_of(golden, teacher_dir, "relations")
  own, theirs = (_projections(golden, golden.config, n) for n in (0, 1))
  for row, used in enumerate(mask.sum(1)):
    expected = 0.0
    for first, second in ((0, 1), (2, 2)):
      q, p = (
        scipy.special.softmax(
          _scores(part[first], part[second])[row, :, :used, :used], -1
        )
        for part in (own, theirs)
      )
      expected += scipy.special.rel_entr(p, q).sum(-1).mean()
    assert found[row] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_relations_of_other_widths(golden):
  """Those of a matrix of orthonormal rows times x are those of x."""
  rng = np.random.default_rng(3)
  x = rng.normal(size=[3, 2, 4, 5, 8]).astype(np.float32)
  wider = np.sqrt(2) ** 0.5 * x @ np.linalg.qr(rng.normal(size=[16, 16]))[0][:8]
  mask = tf.constant([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
  found = pretraining_teacher.relation_distance(
    list(x), [tf.constant(y, tf.float32) for y in wider], mask
  )
  np.testing.assert_allclose(found, [0, 0], atol=1e-5)


def test_pairs_of_layers():
  parse = pretraining_teacher.parse_layers
  assert parse(["0:1", "1:3", "5"]) == [(0, 1), (1, 3), (5, 5)]
  with pytest.raises(UserError, match="--distill_layers=0:a is not a list of"):
    parse(["0:a"])


@pytest.mark.parametrize(
  ("changes", "layers", "message"),
  [
    ({"vocab_size": 900}, [], "another vocabulary than the student"),
    ({}, [(0, 2)], "the teacher 0 to 1"),
    (
      {"num_attention_heads": 2, "targets": ["attention"]},
      [(0, 0)],
      "has 4 heads, and the student 2; pass relations",
    ),
    (
      {"hidden_size": 30, "num_attention_heads": 2, "targets": ["relations"]},
      [(0, 0)],
      "the size 30 of the student is not a multiple of the 4 heads",
    ),
    ({"targets": ["values"]}, [(0, 0)], "=values is not one of 'hidden', 'a"),
  ],
)
def test_a_teacher_that_does_not_fit(
  golden, teacher_dir, changes, layers, message
):
  targets = changes.pop("targets", ["hidden"])
  config = modeling.BertConfig.from_dict(golden.config.to_dict() | changes)
  with pytest.raises(UserError, match=message):
    PretrainingTeacher(teacher_dir, config, None, layers, targets=targets)
