"""The Estimator: every row once, whatever is interrupted, on any devices."""

import json
import logging
import subprocess
import sys

import numpy as np
import pytest
import scripts
import tensorflow as tf

import checkpoints
import estimator
import glue
import run_classifier
import variables

ROWS = 11


def _features(golden):
  """Rows of different lengths and labels from the golden inputs."""
  inputs = golden.inputs
  return [
    glue.InputFeatures(
      inputs["input_ids"][i % 4],
      inputs["input_mask"][i % 4],
      inputs["segment_ids"][i % 4],
      i % 3,
    )
    for i in range(ROWS)
  ]


def _estimator(golden, folder, steps=6, **config):
  model_fn = run_classifier.model_fn_builder(
    golden.config,
    3,
    golden.checkpoint,
    learning_rate=1e-3,
    num_train_steps=steps,
    num_warmup_steps=2,
    use_tpu=False,
    use_one_hot_embeddings=False,
  )
  run_config = estimator.RunConfig(str(folder), **config)
  return estimator.Estimator(model_fn, run_config)


def _input_fn(golden, is_training):
  return glue.input_fn_builder(_features(golden), 32, is_training, False)


def _weights(model):
  return {
    name: tf.convert_to_tensor(value).numpy()
    for name, value in model.weights.items()
  }


def test_training_in_parts_is_training_at_once(golden, tmp_path):
  whole = _estimator(golden, tmp_path / "whole")
  whole.train(_input_fn(golden, True), 4, 6)
  for stop in (1, 4, 6):
    part = _estimator(golden, tmp_path / "parts")
    part.train(_input_fn(golden, True), 4, stop)
    assert part.global_step == stop
  expected, actual = _weights(whole), _weights(part)
  assert expected.keys() == actual.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(value, actual[name], err_msg=name)


def test_seeds_differ(golden, tmp_path):
  weights = []
  for seed in (1, 2):
    model = _estimator(golden, tmp_path / str(seed), seed=seed)
    model.train(_input_fn(golden, True), 4, 1)
    weights.append(_weights(model)["output_weights"])
  assert np.abs(weights[0] - weights[1]).max() > 1e-3


def _forward(golden):
  """Probabilities of the rows one by one, without the Estimator."""
  store = golden.store()
  with store:
    rows = _features(golden)
    # One call for each distinct row; the rows repeat.
    probabilities = []
    for row in rows[:4]:
      ids, mask, types = (
        tf.constant([values])
        for values in (row.input_ids, row.input_mask, row.segment_ids)
      )
      probabilities.append(
        run_classifier.create_model(
          golden.config, False, ids, mask, types, tf.constant([0]), 3, False
        )[3][0]
      )
  return np.array([probabilities[i % 4] for i in range(ROWS)])


@pytest.mark.parametrize("batch_size", [1, 4, 11, 16])
@pytest.mark.parametrize("pad", [False, True])
def test_each_row_counts_once_in_order(golden, tmp_path, batch_size, pad):
  model = _estimator(golden, tmp_path, pad_to_max_length=pad)
  input_fn = _input_fn(golden, False)
  expected = _forward(golden)
  rows = list(model.predict(input_fn, batch_size))
  probabilities = np.array([row["probabilities"] for row in rows])
  np.testing.assert_allclose(probabilities, expected, atol=1e-5)
  metrics = model.evaluate(input_fn, batch_size)
  labels = np.arange(ROWS) % 3
  accuracy = np.mean(expected.argmax(axis=1) == labels)
  loss = -np.log(expected[np.arange(ROWS), labels]).mean()
  assert metrics["eval_accuracy"] == pytest.approx(accuracy)
  assert metrics["eval_loss"] == pytest.approx(loss, rel=1e-4)
  assert metrics["loss"] == pytest.approx(loss, rel=1e-4)
  assert metrics["global_step"] == 0


def test_padding_examples_count_nowhere(golden, tmp_path):
  padding = glue.convert_single_example(
    0, glue.PaddingInputExample(), ["0"], 32, None
  )
  rows = _features(golden)
  input_fn = glue.input_fn_builder(
    [rows[0], padding, *rows[1:], padding], 32, False, False
  )
  model = _estimator(golden, tmp_path)
  probabilities = [r["probabilities"] for r in model.predict(input_fn, 4)]
  np.testing.assert_allclose(probabilities, _forward(golden), atol=1e-5)
  with_padding = model.evaluate(input_fn, 4)
  without = model.evaluate(_input_fn(golden, False), 4)
  assert with_padding["eval_accuracy"] == without["eval_accuracy"]
  assert with_padding["loss"] == pytest.approx(without["loss"], rel=1e-5)


def test_rows_left_out_at_the_end_hold_nothing_back(golden, tmp_path):
  input_fn = glue.input_fn_builder(
    _features(golden), 32, False, drop_remainder=True
  )
  rows = list(_estimator(golden, tmp_path).predict(input_fn, 4))
  assert len(rows) == 8
  forward = _forward(golden)
  for row in rows:
    distance = np.abs(forward - row["probabilities"]).max(axis=1)
    assert distance.min() < 1e-5


def test_only_the_newest_checkpoints_stay(golden, tmp_path):
  model = _estimator(
    golden, tmp_path, save_checkpoints_steps=1, keep_checkpoint_max=2
  )
  model.train(_input_fn(golden, True), 4, 5)
  kept = checkpoints.training_checkpoints(str(tmp_path))
  assert [path.rsplit("-")[-1] for path in kept] == ["4", "5"]
  assert tf.train.latest_checkpoint(str(tmp_path)) == kept[-1]


def test_nothing_to_evaluate_is_an_error(golden, tmp_path):
  input_fn = glue.input_fn_builder([], 32, False, False)
  with pytest.raises(ValueError, match="no row"):
    _estimator(golden, tmp_path).evaluate(input_fn, 4)


def test_a_model_fn_that_does_not_count_is_an_error(golden, tmp_path):
  def model_fn(features, labels, mode, params):
    del features, labels, params
    return estimator.EstimatorSpec(mode, loss=tf.constant(1.0))

  model = estimator.Estimator(model_fn, estimator.RunConfig(str(tmp_path)))
  with pytest.raises(RuntimeError, match="create_optimizer"):
    model.train(_input_fn(golden, True), 4, 2)


def test_weights_of_an_untouched_model_are_none(golden, tmp_path):
  assert _estimator(golden, tmp_path).weights == {}


def test_a_loss_that_is_no_number_stops_training(golden, tmp_path):
  def model_fn(features, labels, mode, params):
    del features, labels, params
    step = variables.global_step()
    with tf.control_dependencies([step.assign_add(1)]):
      loss = tf.constant(float("nan"))
    return estimator.EstimatorSpec(mode, loss=loss)

  model = estimator.Estimator(
    model_fn, estimator.RunConfig(str(tmp_path), log_steps=2)
  )
  with pytest.raises(ValueError, match="--learning_rate"):
    model.train(_input_fn(golden, True), 4, 4)
  assert not checkpoints.training_checkpoints(str(tmp_path))


def test_log_lines(golden, tmp_path, caplog):
  with caplog.at_level(logging.INFO, "absl"):
    _estimator(golden, tmp_path, log_steps=3).train(
      _input_fn(golden, True), 4, 6
    )
    _estimator(golden, tmp_path).train(_input_fn(golden, True), 4, 6)
  text = caplog.text
  assert "step 3/6: loss " in text
  assert "step 6/6: loss " in text
  # The last update has the rate of step 5: 1e-3 * (1 - 5/6).
  assert "learning rate 0.000167" in text
  assert "Nothing left to train: 6 of 6" in text


MIRRORED = """
import json, sys
sys.path[:0] = [{root!r}, {tests!r}]
import pathlib, tempfile
import numpy as np
import tensorflow as tf
import checkpoints, estimator, golden_model, glue, modeling, optimization
import run_classifier, variables

golden = golden_model.GoldenModel(pathlib.Path({goldens!r}))
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

def model_fn(features, labels, mode, params):
  checkpoints.initialize_from(golden.checkpoint, {{}})
  model = modeling.BertModel(
      golden.config, True, features["input_ids"], features["input_mask"],
      features["segment_ids"], use_one_hot_embeddings={one_hot})
  logits = model.get_pooled_output()[:, :3]
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=features["label_ids"], logits=logits)
  if mode == "train":
    loss = tf.reduce_mean(losses)
    op = optimization.create_optimizer(loss, 1e-3, 6, 2, False)
    return estimator.EstimatorSpec(mode, loss=loss, train_op=op)
  return estimator.EstimatorSpec(
      mode, loss=estimator.mean_over_real_rows(losses, features),
      eval_metrics=(lambda losses: {{"mean": float(losses.mean())}},
                    {{"losses": losses}}))

rows = [glue.InputFeatures(
    golden.inputs["input_ids"][i % 4], golden.inputs["input_mask"][i % 4],
    golden.inputs["segment_ids"][i % 4], i % 3) for i in range(9)]
results = []
for devices in (["CPU:0"], ["CPU:0", "CPU:1"]):
  strategy = tf.distribute.MirroredStrategy(devices)
  model = estimator.Estimator(model_fn, estimator.RunConfig(
      tempfile.mkdtemp(), strategy=strategy))
  model.train(glue.input_fn_builder(rows, 32, True, True), 4, 6)
  metrics = model.evaluate(glue.input_fn_builder(rows, 32, False, False), 4)
  results.append([metrics["mean"], metrics["loss"], metrics["global_step"]])
print(json.dumps(results))
"""


@pytest.mark.parametrize("one_hot", [False, True])
def test_two_devices_train_as_one(goldens, one_hot):
  code = MIRRORED.format(
    root=str(scripts.ROOT),
    tests=str(scripts.ROOT / "tests"),
    goldens=str(goldens),
    one_hot=one_hot,
  )
  output = subprocess.run(
    [sys.executable, "-c", code], check=True, capture_output=True, text=True
  ).stdout
  one, two = json.loads(output.splitlines()[-1])
  np.testing.assert_allclose(one, two, rtol=1e-4)
  assert one[0] == pytest.approx(one[1], rel=1e-5)
