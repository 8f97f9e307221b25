"""The Estimator: every row once, whatever is interrupted, on any devices."""

import itertools
import json
import logging

import numpy as np
import pytest
import tensorflow as tf
import toy_model

import optimization
from bert import variables
from bert.engine import programs
from bert.errors import UserError
from bert.models import checkpoints
from bert.training import estimator, summaries


def _weights(model):
  return {
    name: tf.convert_to_tensor(value).numpy()
    for name, value in model.weights.items()
  }


def test_rows_left_out_at_the_end_hold_nothing_back(tmp_path):
  def input_fn(params):
    del params
    # Rows 1 and 5 are left out, row 3 is padding, and row 7 fills its batch.
    features = {
      "row_index": [[9, 0], [4, 8], [2, 6], [3, 10], [7, 7]],
      "is_real_example": [[1, 1], [1, 1], [1, 1], [0, 1], [1, 0]],
      "value": [[29.0, 20.0], [24.0, 28.0], [22.0, 26.0], [0, 30.0], [27.0, 0]],
    }
    return tf.data.Dataset.from_tensor_slices(features)

  model, _ = toy_model.toy(tmp_path)
  rows = [row["sum"] for row in model.predict(input_fn, 2)]
  assert rows == [20, 22, 24, 26, 27, 28, 29, 30]


def test_rows_come_before_the_input_ends(tmp_path):
  def input_fn(params):
    del params

    def batch(place):
      rows = tf.cast(2 * place + [0, 1], tf.int32)
      ones = tf.ones([2], tf.int32)
      value = tf.cast(rows, tf.float32)
      return {"value": value, "is_real_example": ones, "row_index": rows}

    return tf.data.Dataset.range(2**30).map(batch)

  model, _ = toy_model.toy(tmp_path)
  rows = itertools.islice(model.predict(input_fn, 2), 7)
  assert [row["sum"] for row in rows] == list(range(7))


@pytest.mark.parametrize("use", ["predict", "evaluate"])
def test_random_weights_are_an_error_until_they_are_trained(tmp_path, use):
  config = estimator.RunConfig(str(tmp_path))
  params = {"target": 6, "initial_values": {}}
  model = estimator.Estimator(toy_model.model_fn, config, params)
  rows = toy_model.input_fn_of([1, 2, 3])

  def compute():
    if use == "evaluate":
      return model.evaluate(rows, 2)["eval_score"]
    return [row["sum"] for row in model.predict(rows, 2)]

  for _ in range(2):
    with pytest.raises(UserError, match=f"{tmp_path} has no checkpoint, and"):
      compute()
  model.train(toy_model.TRAIN, 2, 2)
  # The weight is 1 + 2, which a model that continues from it has, too.
  expected = -3 if use == "evaluate" else [4, 5, 6]
  assert compute() == expected
  model = estimator.Estimator(toy_model.model_fn, config, params)
  assert compute() == expected


def test_a_model_fn_that_does_not_count_is_an_error(tmp_path):
  def model_fn(features, labels, mode, params):
    del features, labels, params
    return estimator.EstimatorSpec(mode, loss=tf.constant(1.0))

  model = estimator.Estimator(model_fn, estimator.RunConfig(str(tmp_path)))
  with pytest.raises(RuntimeError, match="create_optimizer"):
    model.train(toy_model.TRAIN, 4, 2)


def test_a_loss_that_is_no_number_stops_training(tmp_path):
  def input_fn(params):
    def spoil(batch):
      is_spoilt = batch["value"] == 4
      values = tf.where(is_spoilt, [4.0, np.inf], batch["value"])
      return {**batch, "value": values}

    return toy_model.TRAIN(params).map(spoil)

  model, _ = toy_model.toy(tmp_path, log_steps=8, save_checkpoints_steps=3)
  with pytest.raises(UserError) as error:
    model.train(input_fn, 2, 9)
  path = tmp_path / "failed_batch.json"
  # The batch with number 4, from 0, is that of step 5.
  assert "loss is inf at step 5" in str(error.value)
  assert f"{path}; lower --learning_rate" in str(error.value)
  assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
    "step": 5,
    "loss": "inf",
    "step size": 5,
    "rows": [
      {"value": 4, "is_real_example": 1, "row_index": 0},
      {"value": "inf", "is_real_example": 1, "row_index": 1},
    ],
  }
  # The weights before it are kept, and none after it.
  saved = checkpoints.training_checkpoints(str(tmp_path))
  assert [path.rsplit("-")[-1] for path in saved] == ["3"]


def test_a_gradient_that_is_no_number_stops_training(tmp_path):
  def model_fn(features, labels, mode, params):
    del labels, params
    ones = tf.compat.v1.ones_initializer()
    weight = variables.get_variable("weight", [], ones)
    # In batch number 2, from 0, this is 0, and its derivative 0 / 0.
    distance = tf.abs(features["value"] - 2)
    loss = tf.reduce_mean(tf.sqrt(distance * tf.square(weight)))
    update = optimization.Optimization(0.1, 9, 0, lr_schedule="constant")
    train_op, logged = optimization.minimize(loss, update)
    return estimator.EstimatorSpec(mode, loss, train_op, logged)

  config = estimator.RunConfig(str(tmp_path), save_checkpoints_steps=1)
  model = estimator.Estimator(model_fn, config)
  with pytest.raises(UserError) as error:
    model.train(toy_model.TRAIN, 2, 9)
  path = tmp_path / "failed_batch.json"
  assert "gradient norm is nan at step 3 with learning rate 0.1" in str(
    error.value
  )
  failure = json.loads(path.read_text())
  assert (failure["loss"], failure["gradient norm"]) == (0, "nan")
  assert [row["value"] for row in failure["rows"]] == [2, 2]
  newest = checkpoints.latest_valid(str(tmp_path))
  assert newest.step == 2
  assert np.isfinite(newest["weight"])


def test_curves_are_of_the_log_lines(tmp_path, caplog):
  model, _ = toy_model.toy(tmp_path, log_steps=2, save_checkpoints_steps=3)
  with caplog.at_level(logging.INFO, "absl"):
    model.train(toy_model.TRAIN, 4, 7)
  assert "step 6/7: loss 4.5000" in caplog.text
  # Batch number i, from 0, has loss i; update number i, from 1, adds i.
  curves = summaries.read_scalars(tmp_path)
  assert curves.keys() == {"loss", "step_size", "examples/s"}
  assert curves["loss"] == [(2, 0.5), (3, 1.5), (4, 2.5), (6, 4.5), (7, 5.5)]
  # A line has the mean of two updates, also if the last line is one behind.
  sizes = [(2, 1.5), (3, 2.5), (4, 3.5), (6, 5.5), (7, 6.5)]
  assert curves["step_size"] == sizes
  assert all(rate > 0 for _, rate in curves["examples/s"])
  resumed, _ = toy_model.toy(tmp_path, log_steps=4)
  resumed.train(toy_model.TRAIN, 4, 8)
  resumed.summaries.write(8, {"dev/eval_accuracy": 0.5})
  curves = summaries.read_scalars(tmp_path)
  assert curves["loss"][-2:] == [(7, 5.5), (8, 7)]
  assert curves["dev/eval_accuracy"] == [(8, 0.5)]
  assert "dev/global_step" not in curves


def _train(folder, max_steps, eval_steps, stop_at=None, **config):
  """Trains with evaluations; returns the model, their steps, the traces."""
  model, traces = toy_model.toy(folder, noise=0.1, **config)
  dev = toy_model.input_fn_of([1, 2, 3])
  steps = []

  def evaluate(step):
    saved = checkpoints.training_checkpoints(str(folder))
    assert saved[-1].endswith(f"model.ckpt-{step}")
    results = model.evaluate(dev, 2)
    assert results["eval_sum"] == 6
    assert results["global_step"] == step
    steps.append(step)
    return f"enough at {step}" if step == stop_at else None

  model.train(toy_model.TRAIN, 2, max_steps, evaluate, eval_steps)
  return model, steps, traces


@pytest.mark.parametrize(
  ("eval_steps", "expected"), [(0, [7]), (3, [3, 6, 7]), (7, [7]), (9, [7])]
)
def test_evaluations_come_in_between(tmp_path, eval_steps, expected):
  model, steps, traces = _train(tmp_path / "a", 7, eval_steps)
  assert steps == expected
  # Each mode is traced once, however often it is run.
  assert sorted(traces) == ["eval", "train"]
  # They leave no mark on training.
  alone, _ = toy_model.toy(tmp_path / "b", noise=0.1)
  alone.train(toy_model.TRAIN, 2, 7)
  assert _weights(model) == _weights(alone)


def test_evaluation_can_stop_training(tmp_path, caplog):
  with caplog.at_level(logging.INFO, "absl"):
    model, steps, _ = _train(tmp_path, 9, 2, stop_at=4)
    assert model.global_step == 4
    assert steps == [2, 4]
    assert "Stopped at step 4 of 9: enough at 4\n" in caplog.text
    # Whoever asked for it is asked again.
    model, steps, _ = _train(tmp_path, 9, 2, stop_at=4)
    assert (model.global_step, steps) == (4, [4])
    assert "Already stopped at step 4 of 9: enough at 4" in caplog.text
  model, steps, _ = _train(tmp_path, 9, 2)
  assert (model.global_step, steps) == (9, [4, 6, 8, 9])
  model, steps, _ = _train(tmp_path, 9, 2)
  assert (model.global_step, steps) == (9, [9])


def test_what_precedes_updates(tmp_path):
  """It is not called by a run that only finds that all updates are made."""
  seen = []

  def train(max_steps, evaluate=None):
    model, _ = toy_model.toy(tmp_path)

    def before():
      seen.append((max_steps, model.global_step))

    model.train(toy_model.TRAIN, 2, max_steps, evaluate, 2, before)

  for max_steps in (2, 2, 5, 5):
    train(max_steps)
  train(9, lambda step: "enough" if step == 6 else None)
  train(9, lambda step: "enough" if step == 6 else None)
  assert seen == [(2, 0), (5, 2), (9, 5)]


def test_loops_end_where_something_is_due(tmp_path):
  """Evaluations after 6 and 12, lines after 5 and 10, a checkpoint after 7."""
  found = []
  for most in (1, 3, 50):
    config = {"log_steps": 5, "save_checkpoints_steps": 7}
    model, steps, traces = _train(
      tmp_path / str(most), 13, 6, iterations_per_loop=most, **config
    )
    assert traces.count("train") == 1
    curves = summaries.read_scalars(tmp_path / str(most))
    del curves["examples/s"]
    found.append((steps, curves, _weights(model)))
  assert found[1:] == found[:1] * 2


def _time_loops(monkeypatch, seconds_per_step):
  """Gives loops these times, the first one a minute more; lists their sizes."""
  clock, loops = [0.0], []
  loop = programs.Programs.loop

  def compile_timed(compiled, dataset):
    run = loop(compiled, dataset)

    def timed(count):
      clock[0] += count * seconds_per_step + (0 if loops else 60)
      loops.append(count)
      return run(count)

    return timed

  monkeypatch.setattr(programs.Programs, "loop", compile_timed)
  monkeypatch.setattr(estimator.time, "perf_counter", lambda: clock[0])
  return loops


@pytest.mark.parametrize(
  ("seconds", "expected"),
  [
    # The time of the first loop, with compilation, allows one step.
    (0.1, [1, 1, 8]),
    (3.0, [1, 1, 3, 3, 2]),
    (20.0, [1] * 10),
  ],
)
def test_a_loop_takes_ten_seconds_at_most(
  tmp_path, monkeypatch, seconds, expected
):
  loops = _time_loops(monkeypatch, seconds)
  model, traces = toy_model.toy(tmp_path, noise=0.1, iterations_per_loop=1000)
  model.train(toy_model.TRAIN, 2, 10)
  assert loops == expected
  assert traces == ["train"]
  alone, _ = toy_model.toy(tmp_path / "alone", noise=0.1)
  alone.train(toy_model.TRAIN, 2, 10)
  assert _weights(model) == _weights(alone)


def test_hosts_continue_from_one_step(tmp_path, monkeypatch):
  monkeypatch.setattr(
    estimator.devices, "exchange", lambda strategy, number: [number, 7]
  )
  with pytest.raises(UserError) as error:
    toy_model.toy(tmp_path)
  assert str(error.value).startswith(f"{tmp_path} has checkpoints of diff")
  assert "[0, 7]; pass a folder" in str(error.value)


def test_hosts_make_loops_of_one_length(tmp_path, monkeypatch):
  loops = _time_loops(monkeypatch, 0.1)

  def exchange(strategy, number):
    return [number, min(number, 4)]  # The other host is slower.

  monkeypatch.setattr(estimator.devices, "exchange", exchange)
  model, _ = toy_model.toy(tmp_path, iterations_per_loop=1000)
  model.train(toy_model.TRAIN, 2, 10)
  assert loops == [1, 1, 4, 4]


def test_curves_in_a_remote_folder_are_written_at_checkpoints(monkeypatch):
  folder, log, found = "ram://curves", summaries.Progress.log, []

  def written():
    return [step for step, _ in summaries.read_scalars(folder).get("loss", ())]

  def watch(progress):
    log(progress)
    found.append(written())

  monkeypatch.setattr(summaries.Progress, "log", watch)
  model, _ = toy_model.toy(folder, log_steps=1, save_checkpoints_steps=3)
  model.train(toy_model.TRAIN, 2, 5)
  # A line comes before the checkpoint of its step.
  assert found == [[], [], [], [1, 2, 3], [1, 2, 3]]
  assert written() == [1, 2, 3, 4, 5]


def test_curves_in_a_remote_folder_tell_of_failures():
  folder = "ram://failed"

  def input_fn(params):
    return toy_model.TRAIN(params).map(
      lambda x: {**x, "value": x["value"] / (2 - x["value"])}
    )

  model, _ = toy_model.toy(folder, log_steps=1)
  with pytest.raises(UserError, match="the loss is inf at step 3"):
    model.train(input_fn, 2, 9)
  assert summaries.read_scalars(folder)["loss"] == [(1, 0), (2, 1)]


def test_compiled_steps_compute_the_same(tmp_path):
  found = []
  for use_xla in (False, True):
    model, _ = toy_model.toy(tmp_path / str(use_xla), use_xla=use_xla)
    model.train(toy_model.TRAIN, 2, 3)
    results = model.evaluate(toy_model.input_fn_of([1, 2, 3]), 2)
    found.append([float(_weights(model)["weight"]), *results.values()])
  np.testing.assert_allclose(*found, rtol=1e-6)


def test_steps_of_one_shape_are_compiled_on_a_gpu(monkeypatch):
  strategy, mode = tf.distribute.get_strategy(), estimator.ModeKeys.TRAIN
  compiled = programs.Programs(None, {}, None, strategy, use_xla=None)
  for names in ([], ["GPU:0"]):
    monkeypatch.setattr(tf.config, "list_logical_devices", {"GPU": names}.get)
    for size in (3, None):
      spec = {"input_ids": tf.TensorSpec([2, size], tf.int32)}
      assert compiled.uses_xla(mode, spec) is bool(names and size)


def test_input_that_ends_is_evaluated_once(tmp_path):
  def input_fn(params):
    return toy_model.TRAIN(params).take(5 - params["first_step"])

  for eval_steps, expected in ((0, [5]), (2, [2, 4, 5]), (5, [5])):
    for most in (1, 4):
      folder = tmp_path / f"{eval_steps}-{most}"
      model, _ = toy_model.toy(folder, iterations_per_loop=most)
      steps = []
      model.train(input_fn, 2, 9, steps.append, eval_steps)
      assert steps == expected
      assert model.global_step == 5
      # The mean of the last updates, whose losses are 0 to 4.
      _, loss = summaries.read_scalars(folder)["loss"][-1]
      assert loss == {0: 2, 2: 3.5, 5: 2}[eval_steps]


def test_rows_of_an_evaluation(tmp_path):
  model, _ = toy_model.toy(tmp_path)
  values = [5.0, 1.0, 4.0, 2.0, 3.0]
  dev = toy_model.input_fn_of(values)
  rows = list(model.predict(dev, 2, estimator.ModeKeys.EVAL))
  assert [row["value"] for row in rows] == values
  assert all(row.keys() == {"value", "weight", "batch_loss"} for row in rows)
  # A batch's loss is its mean: 5 and 1, 4 and 2, 3 alone.
  assert [row["batch_loss"] for row in rows] == [3, 3, 3, 3, 3]
  assert model.evaluate(dev, 2) == {
    "eval_score": -6,
    "eval_sum": 15,
    "loss": 3,
    "global_step": 0,
  }


def _ragged(is_evaluated, has_loss=True):
  """A model whose outputs are as long as a batch, and its input.

  Row i is i ones, and batches have 2 rows.
  """

  def model_fn(features, labels, mode, params):
    del labels, params
    ones = features["ones"]
    metrics = None
    if is_evaluated:
      metrics = (
        (lambda ones: {"shape": ones.shape, "sum": ones.sum()}),
        {"ones": ones},
      )
    return estimator.EstimatorSpec(
      mode,
      loss=tf.cast(tf.shape(ones)[1], tf.float32) if has_loss else None,
      eval_metrics=metrics,
      predictions={"doubled": 2 * ones},
    )

  def input_fn(params):
    del params
    dataset = tf.data.Dataset.range(1, 6).map(
      lambda n: {
        "ones": tf.ones([n], tf.int32),
        "row_index": tf.cast(n - 1, tf.int32),
        "is_real_example": tf.cast(n < 5, tf.int32),
      }
    )
    return dataset.padded_batch(2)

  return model_fn, input_fn


def test_rows_whose_length_varies_from_batch_to_batch(tmp_path):
  model_fn, input_fn = _ragged(is_evaluated=True)
  model = estimator.Estimator(model_fn, estimator.RunConfig(str(tmp_path)))
  rows = [row["doubled"].tolist() for row in model.predict(input_fn, 2)]
  assert rows == [[2, 0], [2, 2], [2, 2, 2, 0], [2, 2, 2, 2]]
  # The loss is a batch's length: 2, 2, 4, 4.
  results = {"shape": (4, 4), "sum": 10, "loss": 3, "global_step": 0}
  assert model.evaluate(input_fn, 2) == results


def test_metrics_and_a_loss_are_optional(tmp_path):
  def evaluate(**kwargs):
    model_fn, input_fn = _ragged(**kwargs)
    model = estimator.Estimator(model_fn, estimator.RunConfig(str(tmp_path)))
    rows = list(model.predict(input_fn, 2, estimator.ModeKeys.EVAL))
    assert rows[2]["doubled"].tolist() == [2, 2, 2, 0]
    return rows, model.evaluate(input_fn, 2)

  rows, results = evaluate(is_evaluated=False)
  assert [row["batch_loss"] for row in rows] == [2, 2, 4, 4]
  assert results == {"loss": 3, "global_step": 0}
  rows, results = evaluate(is_evaluated=True, has_loss=False)
  assert rows[0].keys() == {"ones", "doubled"}
  assert results == {"shape": (4, 4), "sum": 10, "global_step": 0}


@pytest.mark.parametrize("as_list", [False, True])
def test_an_input_and_metrics_in_the_style_of_the_original(tmp_path, as_list):
  """Rows are not numbered, and metrics are weighted by `is_real_example`."""

  def metric_fn(value, is_real_example):
    return {"sum": np.sum(value * is_real_example), "rows": len(value)}

  def model_fn(features, labels, mode, params):
    del labels, params
    tensors = {name: features[name] for name in ("value", "is_real_example")}
    tensors = list(tensors.values()) if as_list else tensors
    return estimator.EstimatorSpec(
      mode,
      predictions={"doubled": 2 * features["value"]},
      eval_metrics=(metric_fn, tensors),
    )

  def input_fn(params, pad=0):
    features = {"value": [1.0, 2.0, 4.0, 8.0, 16.0]}
    if pad:
      features["is_real_example"] = [1] * (5 - pad) + [0] * pad
    dataset = tf.data.Dataset.from_tensor_slices(features)
    return dataset.batch(params["batch_size"])

  model = estimator.Estimator(model_fn, str(tmp_path))
  rows = [row["doubled"] for row in model.predict(input_fn, 2)]
  assert rows == [2, 4, 8, 16, 32]
  results = {"sum": 31, "rows": 5, "global_step": 0}
  assert model.evaluate(input_fn, 2) == results
  results = {"sum": 7, "rows": 3, "global_step": 0}
  assert model.evaluate(lambda params: input_fn(params, pad=2), 2) == results
  pairs = tf.data.Dataset.from_tensor_slices(([1.0], [1])).batch(1)
  with pytest.raises(TypeError, match="put labels among them"):
    next(model.predict(lambda params: pairs, 1))
  with pytest.raises(TypeError, match="put labels among them"):
    model.train(lambda params: pairs, 1, 2)


def test_predictions_have_names():
  with pytest.raises(TypeError, match="a dict of tensors by name"):
    estimator.EstimatorSpec("infer", predictions=tf.zeros([2]))


def test_a_model_that_is_not_trained_is_named(tmp_path, caplog):
  """One with the values of an initial checkpoint for only some variables."""
  prefix = str(tmp_path / "model.ckpt")
  checkpoints.write_checkpoint(prefix, {"encoder": np.ones(2, np.float32)})

  def model_fn(features, labels, mode, params):
    del labels, params
    shapes = {"encoder": [2], "head": [2]}
    checkpoints.initialize_from(prefix, shapes, optional=["head"])
    ones = tf.compat.v1.ones_initializer()
    encoder, head = (variables.get_variable(n, [2], ones) for n in shapes)
    x = features["value"] * tf.reduce_sum(encoder * head)
    return estimator.EstimatorSpec(mode, predictions={"x": x})

  config = estimator.RunConfig(str(tmp_path / "out"))
  model = estimator.Estimator(model_fn, config)
  with caplog.at_level(logging.WARNING, "absl"):
    list(model.predict(toy_model.input_fn_of([1.0]), 1))
  assert "not trained: 'head' is random" in caplog.text


def test_the_step_of_an_initial_checkpoint(tmp_path):
  """It is reported until training starts, which counts from 0."""
  prefix = str(tmp_path / "model.ckpt-7")
  checkpoints.write_checkpoint(
    prefix, {"weight": np.float32(20), "global_step": np.int64(7)}
  )

  def model_fn(features, labels, mode, params):
    checkpoints.initialize_from(prefix, {})
    return toy_model.model_fn(features, labels, mode, params)

  config = estimator.RunConfig(str(tmp_path / "run"))
  model = estimator.Estimator(model_fn, config, {"target": 6})
  results = model.evaluate(toy_model.input_fn_of([1, 2]), 2)
  assert (results["eval_score"], results["global_step"]) == (-14, 7)
  assert model.global_step == 7
  model.train(toy_model.TRAIN, 4, 2)
  assert model.global_step == 2


def test_the_users_errors_pass_through_the_input(tmp_path):
  def input_fn(params):
    del params

    def batches():
      raise UserError("x.tf_record changed; copy it again")
      yield

    dataset = tf.data.Dataset.from_generator(
      batches, output_signature=tf.TensorSpec([2])
    )
    return dataset.map(
      lambda value: {
        "value": value,
        "is_real_example": tf.ones([2], tf.int32),
        "row_index": tf.range(2),
      }
    )

  model, _ = toy_model.toy(tmp_path)
  for use in (
    lambda: list(model.predict(input_fn, 2)),
    lambda: model.train(input_fn, 2, 3),
  ):
    with pytest.raises(
      UserError, match=r"^x.tf_record changed; copy it again$"
    ):
      use()


@pytest.mark.parametrize("before", ["nothing", "predict", "train"])
def test_use_of_a_checkpoint(tmp_path, before):
  prefix = str(tmp_path / "best_model.ckpt")
  checkpoints.write_checkpoint(
    prefix, {"weight": np.float32(20), "global_step": np.int64(9)}
  )
  model, traces = toy_model.toy(tmp_path / "run")
  rows = toy_model.input_fn_of([1, 2, 3])
  if before == "predict":
    assert [row["sum"] for row in model.predict(rows, 2)] == [1, 2, 3]
  elif before == "train":
    model.train(toy_model.TRAIN, 2, 3)
  model.use(prefix)
  assert model.global_step == 9
  assert _weights(model) == {"weight": 20}
  assert [row["sum"] for row in model.predict(rows, 2)] == [21, 22, 23]
  results = model.evaluate(rows, 2)
  assert results["eval_score"] == -14
  assert results["global_step"] == 9
  assert traces.count("infer") == 1


def test_use_of_a_checkpoint_that_does_not_fit(tmp_path):
  wrong = {"weight": np.zeros(2, np.float32), "global_step": np.int64(9)}
  for name, tensors in (("wrong", wrong), ("other", {"v": np.float32(1)})):
    checkpoints.write_checkpoint(str(tmp_path / name), tensors)
  model, _ = toy_model.toy(tmp_path / "run")
  model.train(toy_model.TRAIN, 2, 2)
  for name, message in (
    ("wrong", "weight has shape"),
    ("other", "lacks weight"),
    ("none", "no checkpoint"),
  ):
    with pytest.raises(ValueError, match=message):
      model.use(str(tmp_path / name))
  assert _weights(model) == {"weight": 3}
  assert model.global_step == 2


@pytest.mark.parametrize("call", ["predict", "train"])
@pytest.mark.parametrize("name", ["model.ckpt-9", "other"])
def test_the_first_checkpoint_has_all_weights(tmp_path, name, call):
  """The one to continue from, or to use before anything was computed."""
  other = {"v": np.float32(1), "global_step": np.int64(9)}
  checkpoints.write_checkpoint(str(tmp_path / name), other)
  model, _ = toy_model.toy(tmp_path)
  if name == "other":
    model.use(str(tmp_path / name))
  calls = {
    "predict": lambda: next(model.predict(toy_model.input_fn_of([1, 2]), 2)),
    "train": lambda: model.train(toy_model.TRAIN, 2, 12),
  }
  with pytest.raises(UserError, match=rf"{name} lacks weight"):
    calls[call]()
  assert not (tmp_path / "model.ckpt-12.index").exists()


def test_a_training_goes_on_with_a_teacher_of_another_width(
  tmp_path, monkeypatch
):
  """Its projection of hidden states is not in the checkpoint."""
  toy_model.toy(tmp_path)[0].train(toy_model.TRAIN, 2, 2)
  model_fn = toy_model.model_fn

  def taught(features, labels, mode, params):
    variables.get_variable("distillation/projection", [1])
    return model_fn(features, labels, mode, params)

  monkeypatch.setattr(toy_model, "model_fn", taught)
  model, _ = toy_model.toy(tmp_path)
  model.train(toy_model.TRAIN, 2, 3)
  assert _weights(model) == {"weight": 1 + 2 + 3}
