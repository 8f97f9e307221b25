"""Several devices, or several hosts, train and evaluate as one device."""

import json
import socket
import types
from unittest import mock

import numpy as np
import pytest
import scripts
import tensorflow as tf

from bert.engine import devices
from bert.errors import UserError
from bert.models import checkpoints
from bert.training import summaries

# The features of pre-training.
NAMES = (
  "input_ids",
  "input_mask",
  "segment_ids",
  "masked_lm_positions",
  "masked_lm_ids",
  "masked_lm_weights",
  "next_sentence_labels",
)
HOSTS = devices.Cluster((("worker 0", "a:1"), ("worker 1", "b:1")), 1)


def test_a_batch_is_divided_evenly():
  devices.check_batch_size("--eval_batch_size", 12, 4)
  with pytest.raises(UserError, match=r"^--eval_batch_size=9 cannot .* 4 dev"):
    devices.check_batch_size("--eval_batch_size", 9, 4)
  devices.check_batch_size("--train_batch_size", 12, 2, 3)
  wrong = "4 devices and --gradient_accumulation_steps=3; pass a multiple of 12"
  with pytest.raises(UserError, match=wrong):
    devices.check_batch_size("--train_batch_size", 16, 4, 3)


def test_what_auto_stands_for():
  assert devices.choose("auto", False, None) == "auto"
  assert devices.choose("auto", False, HOSTS) == "multi_worker"
  assert devices.choose("auto", True, HOSTS) == "tpu"
  alone = devices.Cluster(HOSTS.tasks[:1], 0)
  assert devices.choose("auto", False, alone) == "auto"
  for kind in ("multi_worker", "tpu"):
    assert devices.choose(kind, False, HOSTS) == kind
  for kind in ("one_device", "mirrored"):
    assert devices.choose(kind, False, alone) == kind
    with pytest.raises(UserError, match=rf"={kind}: .* names 2 hosts; pass"):
      devices.choose(kind, False, HOSTS)
  with pytest.raises(UserError, match=r"=multi_worker: .* no hosts; set it"):
    devices.choose("multi_worker", False, None)


def test_mirrored_says_that_there_is_one_device(monkeypatch, caplog):
  devices_of = {"CPU": tf.config.list_logical_devices("CPU")[:1]}
  monkeypatch.setattr(
    tf.config, "list_logical_devices", lambda kind: devices_of.get(kind, [])
  )
  caplog.set_level("WARNING", "absl")
  assert devices.make_strategy("mirrored").num_replicas_in_sync == 1
  assert "--distribution_strategy=mirrored finds one device" in caplog.text


def test_one_device_needs_no_strategy():
  assert devices.make_strategy("one_device") is None
  assert not tf.config.list_physical_devices("GPU")
  assert devices.make_strategy("auto") is None
  assert devices.exchange(None, 7) == [7]
  assert devices.exchange(tf.distribute.get_strategy(), 7) == [7]


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize(
  ("rows", "count", "index", "expected"),
  [
    (4, 2, 0, [0, 1]),
    (4, 2, 1, [2, 3]),
    (3, 2, 1, [2]),
    (1, 2, 1, []),
    (5, 4, 3, []),
  ],
)
def test_a_replicas_share(monkeypatch, rows, count, index, expected, is_static):
  context = types.SimpleNamespace(
    num_replicas_in_sync=count, replica_id_in_sync_group=tf.constant(index)
  )
  monkeypatch.setattr(tf.distribute, "get_replica_context", lambda: context)
  size = rows if is_static else None
  share = tf.function(
    devices.share,
    input_signature=[{"x": tf.TensorSpec([size, None], tf.int32)}],
    autograph=False,
  ).get_concrete_function()
  if is_static and rows % count == 0:
    assert share.structured_outputs["x"].shape[0] == rows // count
  found = share({"x": tf.repeat(tf.range(rows)[:, tf.newaxis], 3, axis=1)})["x"]
  assert found.shape == (len(expected), 3)
  assert found[:, 0].numpy().tolist() == expected


def test_a_machine_without_a_tpu():
  with pytest.raises(UserError, match=r"^this machine has no TPU \("):
    devices.make_strategy("tpu")


def test_errors_of_one_host_are_its_own():
  with pytest.raises(tf.errors.InternalError), devices.hosts_end_together(None):
    raise tf.errors.InternalError(None, None, "x")


def test_a_tpu_that_stops(monkeypatch):
  class Tpu:
    """Stands for a TPUStrategy."""

  monkeypatch.setattr(tf.distribute, "TPUStrategy", Tpu)
  errors = tf.errors
  for kind in (
    errors.AbortedError,
    errors.CancelledError,
    errors.InternalError,
    errors.UnavailableError,
  ):
    with (
      pytest.raises(devices.LostWorkerError) as error,
      devices.hosts_end_together(Tpu()),
    ):
      raise kind(None, None, "Socket closed\nAdditional information:")
    assert "TPU has stopped (Socket closed); run the same" in str(error.value)
    assert error.value.status == 75
  several = "2 root error(s) found.\n  (0) UNAVAILABLE: Socket closed\n  (1) x"
  with (
    pytest.raises(devices.LostWorkerError, match=r"stopped \(\(0\) UNAV"),
    devices.hosts_end_together(Tpu()),
  ):
    raise errors.UnavailableError(None, None, several)
  # Such as a folder in the place of a file.
  for kind in (errors.FailedPreconditionError, errors.InvalidArgumentError):
    with pytest.raises(kind), devices.hosts_end_together(Tpu()):
      raise kind(None, None, "x")


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_host_may_leave_when_all_have_ended(monkeypatch, fails_at):
  calls = []

  def exchange(strategy, number):
    calls.append(number)
    if len(calls) == fails_at:
      message = "Socket closed while calling /job:worker/replica:0/task:0"
      raise tf.errors.UnavailableError(None, None, message)

  monkeypatch.setattr(devices, "exchange", exchange)
  strategy = mock.Mock(spec=tf.distribute.MultiWorkerMirroredStrategy)
  resolver = types.SimpleNamespace(task_type="worker", task_id=1)
  strategy.cluster_resolver = resolver
  if fails_at == 1:
    with (
      pytest.raises(devices.LostWorkerError, match="worker 0 of TF_CONFIG"),
      devices.hosts_end_together(strategy),
    ):
      pass
  else:
    with devices.hosts_end_together(strategy):
      pass
  assert len(calls) == fails_at


# Evaluates a model without dropout on the first three rows of a batch, and
# trains it, as the original has. Trains a second one in two parts, and uses it
# for 11 rows, 4 at a time.
SCRIPT = """
import json, os, pathlib, sys
sys.path.insert(0, {tests!r})
import tensorflow as tf
import golden_model, toy_model
from optimization import Optimization
from bert.data import files, records
from bert.engine import devices, inputs
from bert.tasks.pretraining import task as pretraining
from bert.training import estimator
from bert.training.model_fn import build_model_fn

kind, config, out = sys.argv[1:]
if kind == "multi_worker":
  os.environ["TF_CONFIG"] = config
else:
  cpu = tf.config.list_physical_devices("CPU")[0]
  tf.config.set_logical_device_configuration(
      cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = devices.make_strategy(kind, devices.read_cluster(config), 60)
golden = golden_model.GoldenModel(pathlib.Path({goldens!r}))
features = {{name: tf.constant(golden.inputs[name]) for name in {names}}}
features["is_real_example"] = tf.ones([4], tf.int32)
features["row_index"] = tf.range(4)
dataset = tf.data.Dataset.from_tensors(features)

def train(micro_batches, steps):
  model_fn = build_model_fn(
      pretraining.PretrainingTask(golden.config, {{}}, True), golden.config,
      golden.checkpoint, Optimization(
          1e-3, 12, 4, gradient_accumulation_steps=micro_batches))
  config = estimator.RunConfig(out, log_steps=1, strategy=strategy)
  model = estimator.Estimator(model_fn, config)
  three = {{**features, "is_real_example": tf.constant([1, 1, 1, 0])}}
  found = model.evaluate(lambda _: tf.data.Dataset.from_tensors(three), 4)
  model.train(lambda _: dataset.repeat(), 4, steps)
  return found["loss"]

with devices.hosts_end_together(strategy):
  loss = train(2 if kind == "mirrored" else 1, 4)
  def evaluate(step):
    found = toy.evaluate(toy_model.input_fn_of([*range(11)]), 4)
    results.append([found[name] for name in ("eval_sum", "loss", "eval_score")])

  results = []
  for steps in (3, 6):  # The second one continues the first.
    toy, _ = toy_model.toy(
        out + "/toy", strategy=strategy, iterations_per_loop=2)
    toy.train(toy_model.TRAIN, 4, steps, evaluate, 3)
  rows = toy.predict(toy_model.input_fn_of([*range(11)]), 4)
  sums = [float(row["sum"]) for row in rows]
  spec = {{"value": records.Feature((), "float32"),
          "input_mask": records.sequence_feature(1)}}
  rows = [{{"value": n, "input_mask": [1]}} for n in range(11)]
  rows = inputs.EachRow(inputs.Rows(rows, spec), 11)
  found = list(toy.predict_rows(rows, 4, "eval", {{}}))
  of_rows = [float(row["value"]) for row in found]
  of_rows.append(float(sum(row["batch_loss"] for row in found)))
  index = json.loads(config)["task"]["index"] if config else 0
  numbers = devices.exchange(strategy, 5 + index)
  if kind == "mirrored":
    toy.use(out + "/toy/model.ckpt-3")
    evaluate(3)
    # Stands for the strategy of a local TPU, which divides batches.
    tf.distribute.TPUStrategy = type(strategy)
    toy, _ = toy_model.toy(out + "/toy", strategy=strategy)
    evaluate(6)
print(json.dumps(
    [loss, sums, of_rows, numbers, results, files.writes(out)]))
"""


# After six updates, the weight of the second model is 1 + 2 + 3 + 4 + 5 + 6.
SUMS = [row + 21 for row in range(11)]
# The values of the rows, and the sum of their losses.
OF_ROWS = [*range(11), 55]
# The sum and the mean of the rows, and how far the weight is from 6: after 3
# updates, again when the training continues, and after six.
RESULTS = [[55, 5, 0], [55, 5, 0], [55, 5, -15]]


@pytest.fixture(scope="module")
def script(goldens, tmp_path_factory):
  """The path of SCRIPT."""
  path = tmp_path_factory.mktemp("script") / "train.py"
  tests = str(scripts.ROOT / "tests")
  path.write_text(SCRIPT.format(tests=tests, goldens=str(goldens), names=NAMES))
  return path


def _loss_of_three(golden):
  """The original's loss of three rows, of which the second device has one."""
  losses = golden.arrays["forward/masked_lm_example_loss"].reshape([4, -1])[:3]
  weights = golden.inputs["masked_lm_weights"][:3]
  labels = golden.inputs["next_sentence_labels"].ravel()[:3]
  log_probs = golden.arrays["forward/next_sentence_log_probs"]
  masked = (losses * weights).sum() / weights.sum()
  return masked - log_probs[range(3), labels].mean()


def _check_losses(folder, golden):
  """The losses of four steps, each written once, are the original's."""
  losses = summaries.read_scalars(folder)["loss"]
  assert [step for step, _ in losses] == [1, 2, 3, 4]
  expected = golden.arrays["pretraining/losses"][:4]
  np.testing.assert_allclose([x for _, x in losses], expected, rtol=1e-5)


def test_two_devices_with_two_micro_batches_train_as_one(
  golden, script, tmp_path
):
  # The first device gets ten masked words, the second five. A row at a time.
  output, _ = scripts.fork(script, "mirrored", "", tmp_path)
  loss, *found = json.loads(output.splitlines()[-1])
  assert loss == pytest.approx(_loss_of_three(golden), rel=1e-5)
  _check_losses(tmp_path, golden)
  assert found == [SUMS, OF_ROWS, [5], [*RESULTS, *RESULTS[1:]], True]


def test_two_hosts_train_as_one_device(golden, script, tmp_path):
  with (
    socket.create_server(("127.0.0.1", 0)) as first,
    socket.create_server(("127.0.0.1", 0)) as second,
  ):
    hosts = [f"127.0.0.1:{s.getsockname()[1]}" for s in (first, second)]
  running = []
  for index in range(2):
    task = {"type": "worker", "index": index}
    config = json.dumps({"cluster": {"worker": hosts}, "task": task})
    running.append(scripts.Fork(script, "multi_worker", config, tmp_path))
  for index, process in enumerate(running):
    status, output, log = process.wait()
    assert status == 0, log
    loss, *found = json.loads(output.splitlines()[-1])
    assert loss == pytest.approx(_loss_of_three(golden), rel=1e-5)
    assert found == [SUMS, OF_ROWS, [5, 6], RESULTS, index == 0]
  _check_losses(tmp_path, golden)
  # Only the chief has written.
  assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1
  (saved,) = checkpoints.training_checkpoints(str(tmp_path))
  assert saved.endswith("model.ckpt-4")
