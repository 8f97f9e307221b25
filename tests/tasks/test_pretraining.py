"""Pre-training's losses, against the original's numbers and arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

import modeling
import run_pretraining
from bert import variables
from bert.data import instances, records
from bert.engine import inputs, record_files
from bert.models import checkpoints
from bert.tasks.pretraining import task as pretraining
from bert.training import estimator

NAMES = (
  "input_ids",
  "input_mask",
  "segment_ids",
  "masked_lm_positions",
  "masked_lm_ids",
  "masked_lm_weights",
  "next_sentence_labels",
)
ROWS, P = 4, 5


def _features(golden, dtype=tf.int32):
  """The golden batch as the input functions give it."""
  features = {name: tf.constant(golden.inputs[name]) for name in NAMES}
  return {
    name: value if value.dtype == tf.float32 else tf.cast(value, dtype)
    for name, value in features.items()
  }


def _model_fn(golden):
  return run_pretraining.model_fn_builder(
    golden.config,
    golden.checkpoint,
    learning_rate=1e-3,
    num_train_steps=12,
    num_warmup_steps=4,
    use_tpu=False,
    use_one_hot_embeddings=False,
  )


def _heads(golden, features, precision="float32"):
  """Outputs of both heads, by their names in the goldens."""
  model = modeling.BertModel(
    golden.config,
    False,
    features["input_ids"],
    features["input_mask"],
    features["segment_ids"],
    precision=precision,
  )
  masked = pretraining.get_masked_lm_output(
    golden.config,
    model.get_sequence_output(),
    model.get_embedding_table(),
    features["masked_lm_positions"],
    features["masked_lm_ids"],
    features["masked_lm_weights"],
  )
  following = pretraining.get_next_sentence_output(
    golden.config, model.get_pooled_output(), features["next_sentence_labels"]
  )
  names = [
    f"{task}_{name}"
    for task in ("masked_lm", "next_sentence")
    for name in ("loss", "example_loss", "log_probs")
  ]
  return dict(zip(names, [*masked, *following], strict=True))


def _eagerly(golden):
  with golden.store():
    return _heads(golden, _features(golden))


def _in_a_function(golden):
  store = golden.store()

  @tf.function(autograph=False)
  def heads(features):
    with store:
      return _heads(golden, features)

  return heads(_features(golden, tf.int64))


def _in_a_session(golden):
  v1 = tf.compat.v1
  with tf.Graph().as_default(), v1.Session() as session:
    outputs = _heads(golden, _features(golden))
    tvars = v1.trainable_variables()
    assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
      tvars, golden.checkpoint
    )
    assert assignment_map.keys() == {variables.name_of(v) for v in tvars}
    v1.train.init_from_checkpoint(golden.checkpoint, assignment_map)
    session.run(v1.global_variables_initializer())
    return session.run(outputs)


@pytest.mark.parametrize("run", [_eagerly, _in_a_function, _in_a_session])
def test_outputs_are_the_originals(golden, run):
  outputs = run(golden)
  for name, value in outputs.items():
    key = f"forward/{name}"
    if key in golden.arrays:
      np.testing.assert_allclose(value, golden.arrays[key], 1e-5, 1e-5)
  log_probs = np.array(outputs["masked_lm_log_probs"])
  assert log_probs.shape == (ROWS * P, golden.config.vocab_size)
  np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, rtol=1e-5)
  labels = golden.inputs["masked_lm_ids"].ravel()
  np.testing.assert_allclose(
    -log_probs[np.arange(ROWS * P), labels],
    golden.arrays["forward/masked_lm_example_loss"],
    rtol=1e-5,
  )
  labels = golden.inputs["next_sentence_labels"].ravel()
  np.testing.assert_allclose(
    -golden.arrays["forward/next_sentence_log_probs"][range(ROWS), labels],
    outputs["next_sentence_example_loss"],
    rtol=1e-5,
  )


def test_unused_positions_need_no_label(golden):
  features = _features(golden)
  is_used = features["masked_lm_weights"] > 0
  features["masked_lm_ids"] = tf.where(is_used, features["masked_lm_ids"], -1)
  with golden.store():
    outputs = _heads(golden, features)
  losses = golden.arrays["forward/masked_lm_example_loss"].reshape([ROWS, P])
  np.testing.assert_allclose(
    tf.reshape(outputs["masked_lm_example_loss"], [ROWS, P]),
    np.where(is_used, losses, 0),
    rtol=1e-5,
  )
  expected = golden.arrays["forward/masked_lm_loss"]
  np.testing.assert_allclose(outputs["masked_lm_loss"], expected, rtol=1e-5)


def test_twelve_updates_are_the_originals(golden):
  store, model_fn = variables.VariableStore(), _model_fn(golden)

  @tf.function(autograph=False)
  def step():
    with store:
      spec = model_fn(_features(golden), None, "train", {})
      return {"loss": spec.loss, **spec.logged}

  logged = [step() for _ in range(12)]
  losses = [outputs["loss"] for outputs in logged]
  np.testing.assert_allclose(losses, golden.arrays["pretraining/losses"], 1e-4)
  prefix = "pretraining/final/"
  finals = [n for n in golden.arrays.files if n.startswith(prefix)]
  assert len(finals) == 12
  for name in finals:
    value = store[name.removeprefix(prefix)]
    np.testing.assert_allclose(value, golden.arrays[name], 1e-3, 1e-5)
  assert store["global_step"].numpy() == 12
  assert "bert/pooler/dense/bias/adam_m" in store
  # Fifteen masked words and four pairs.
  for name, count in (("masked LM", 15), ("next sentence", ROWS)):
    right = [outputs[f"{name} accuracy"] * count for outputs in logged]
    np.testing.assert_allclose(right, np.round(right), atol=1e-4)
  assert {"learning rate", "gradient norm"} <= logged[0].keys()


def test_variables_are_the_released_ones(golden):
  with golden.store() as store:
    _heads(golden, _features(golden))
  made = {name: v.shape.as_list() for name, v in store.items()}
  shapes = {
    **modeling.variable_shapes(golden.config),
    **pretraining.variable_shapes(golden.config),
  }
  assert made == shapes
  assert checkpoints.Checkpoint(golden.checkpoint).shapes == shapes


def test_no_weight_is_no_loss():
  config = modeling.BertConfig(4, 2, 1, 1, 2)
  zeros = tf.zeros([2, 3], tf.int32)
  with variables.VariableStore():
    loss, _, _ = pretraining.get_masked_lm_output(
      config, tf.ones([2, 5, 2]), tf.ones([4, 2]), zeros, zeros, zeros
    )
  assert loss.numpy() == 0


def _record_files(golden, folder, spec):
  """The golden batch as a file of records."""
  rows = [
    {name: golden.inputs[name][row] for name in spec} for row in range(ROWS)
  ]
  path = str(folder / "rows.tfrecord")
  records.write_records(path, rows, spec)
  return record_files.RecordFiles([path], spec, golden.config.vocab_size)


@pytest.mark.parametrize(("batch_size", "has_next"), [(3, True), (8, False)])
def test_evaluation_is_over_real_rows(golden, tmp_path, batch_size, has_next):
  spec = instances.feature_spec(32, P, has_next)
  files = _record_files(golden, tmp_path, spec)
  model = estimator.Estimator(
    _model_fn(golden), estimator.RunConfig(str(tmp_path / "run"))
  )
  input_fn = inputs.input_fn_from_rows(files, False)
  results = model.evaluate(input_fn, batch_size)
  losses = golden.arrays["forward/masked_lm_example_loss"].reshape([ROWS, P])
  weights = golden.inputs["masked_lm_weights"]
  labels = golden.inputs["next_sentence_labels"].ravel()
  log_probs = golden.arrays["forward/next_sentence_log_probs"]
  next_losses = -log_probs[range(ROWS), labels] * has_next
  of_batches = []
  for start in range(0, ROWS, batch_size):
    rows = slice(start, start + batch_size)
    masked = (losses * weights)[rows].sum() / weights[rows].sum()
    loss = masked + next_losses[rows].mean()
    of_batches += [loss] * len(labels[rows])
  expected = {
    "masked_lm_loss": (losses * weights).sum() / weights.sum(),
    "loss": np.mean(of_batches),
    "global_step": 0,
  }
  if has_next:
    expected["next_sentence_loss"] = next_losses.mean()
    right = log_probs.argmax(axis=1) == labels
    expected["next_sentence_accuracy"] = right.mean()
  accuracy = results.pop("masked_lm_accuracy")
  assert results == pytest.approx(expected, rel=1e-5)
  assert accuracy * 15 == pytest.approx(round(accuracy * 15))
  with golden.store():
    outputs = _heads(golden, _features(golden))
  best = np.argmax(outputs["masked_lm_log_probs"], axis=1).reshape([ROWS, P])
  right = (best == golden.inputs["masked_lm_ids"]) * weights
  assert accuracy == pytest.approx(right.sum() / 15)
  found = [row["masked_lm_accuracy"] for row in model.predict(input_fn, 3)]
  np.testing.assert_array_equal(found * weights, right)
  is_head = [name.startswith("cls/seq_relationship") for name in model.weights]
  assert any(is_head) == has_next


def test_a_checkpoint_without_heads_gives_the_rest(golden, tmp_path):
  whole = checkpoints.Checkpoint(golden.checkpoint)
  prefix = str(tmp_path / "bert.ckpt")
  encoder = {name: whole[name] for name in whole.shapes if name[:4] == "bert"}
  checkpoints.write_checkpoint(prefix, encoder)
  model_fn = run_pretraining.model_fn_builder(
    golden.config, prefix, 1e-3, 10, 1, False, False
  )
  with variables.VariableStore() as store:
    features = {**_features(golden), "is_real_example": tf.ones([ROWS])}
    model_fn(features, None, estimator.ModeKeys.EVAL, {})
  for name, variable in store.items():
    if name in encoder:
      np.testing.assert_array_equal(variable, encoder[name])
  kernel = store["cls/predictions/transform/dense/kernel"].numpy()
  # Normal, redrawn beyond two deviations: 0.88 of the deviation is left.
  assert kernel.std() == pytest.approx(
    0.88 * golden.config.initializer_range, rel=0.1
  )
  assert not store["cls/predictions/output_bias"].numpy().any()
