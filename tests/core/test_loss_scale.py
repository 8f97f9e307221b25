"""The scale of the loss, and steps whose gradients float16 cannot hold."""

import numpy as np
import pytest
import scripts
import tensorflow as tf
import toy_model

import optimization
from bert import loss_scale, variables
from bert.models import checkpoints
from bert.training import estimator


def minimize(x, loss_scaling=True, **changes):
  """An update of a weight; the gradient is x. Returns what is logged."""
  weight = variables.get_variable("weight", [2])
  update = optimization.Optimization(
    0.1, 100, 0, loss_scaling=loss_scaling, **changes
  )
  return optimization.minimize(tf.reduce_sum(weight * x), update)[1]


def make_step(store, **kwargs):
  @tf.function(autograph=False)
  def step(x):
    with store:
      return minimize(x, **kwargs)

  return lambda x: {n: float(v) for n, v in step(tf.constant(x)).items()}


def values(store):
  return {name: variable.numpy().tolist() for name, variable in store.items()}


def test_an_infinite_gradient_skips_the_step():
  store = variables.VariableStore()
  step = make_step(store)
  logged = step([3.0, 4.0])
  assert logged["gradient norm"] == pytest.approx(5)
  assert (logged["loss scale"], logged["skipped steps"]) == (2**15, 0)
  before = values(store)
  assert before["weight"][0] < 0
  for count, bad in enumerate([[np.inf, 0.0], [0.0, np.nan], [3e38, 3e38]], 1):
    logged = step(bad)
    assert np.isnan(logged["gradient norm"])
    scale, skipped = logged["loss scale"], logged["skipped steps"]
    assert (scale, skipped) == (2**15 / 2**count, count)
    after = values(store)
    for name in ("weight", "weight/adam_m", "weight/adam_v"):
      assert after[name] == before[name]
    assert after["global_step"] == 1 + count
    assert after["good_steps"] == 0
  assert step([3.0, 4.0])["skipped steps"] == 3
  assert values(store)["weight"] != before["weight"]


def test_skipped_steps_correct_no_bias():
  """With corrected moments, the first direction is the sign of the gradient."""
  zeros = np.zeros(2, np.float32)
  store = variables.VariableStore(initial_values={"weight": zeros})
  step = make_step(
    store, adam_bias_correction=True, lr_schedule="constant", weight_decay=0.0
  )
  for _ in range(3):
    step([np.inf, 0.0])
  for count in (1, 2):
    step([0.3, -0.4])
    expected = [-0.1 * count, 0.1 * count]
    np.testing.assert_allclose(store["weight"], expected, rtol=1e-4)


def test_a_scale_leaves_no_trace_in_the_weights():
  """It is a power of two."""
  found = []
  for loss_scaling in (False, True):
    store = variables.VariableStore()
    step = make_step(store, loss_scaling=loss_scaling)
    for gradient in ([0.3, -0.4], [30.0, 50.0], [1e-4, 0.0]):
      step(gradient)
    found.append(values(store))
  plain, scaled = found
  assert plain.items() <= scaled.items()
  assert sorted(filter(checkpoints.is_training_state, scaled)) == [
    "global_step",
    "good_steps",
    "loss_scale",
    "skipped_steps",
    "weight/adam_m",
    "weight/adam_v",
  ]


def test_good_steps_double_the_scale():
  store = variables.VariableStore()
  step = make_step(store)
  step([1.0, 1.0])
  for start, expected in ((2.0**15, 2.0**16), (2.0**24, 2.0**24)):
    store["loss_scale"].assign(start)
    store["good_steps"].assign(loss_scale.GOOD_STEPS - 2)
    scales = [step([1.0, 1.0])["loss scale"] for _ in range(3)]
    assert scales == [start, expected, expected]
    assert store["good_steps"].numpy() == 1


def _model_fn(features, labels, mode, params):
  """Batch number 1 has an infinite gradient, see toy_model.TRAIN."""
  del labels, params
  number = features["value"][:2]
  logged = minimize(tf.where(number == 1, np.inf, 1.0))
  return estimator.EstimatorSpec(mode, loss=tf.constant(1.0), logged=logged)


def test_a_continued_training_keeps_the_scale(tmp_path, caplog):
  for stop in (2, 4):
    config = estimator.RunConfig(str(tmp_path), log_steps=2)
    with caplog.at_level("INFO", "absl"):
      estimator.Estimator(_model_fn, config).train(toy_model.TRAIN, 2, stop)
    saved = checkpoints.Checkpoint(str(tmp_path / f"model.ckpt-{stop}"))
    assert saved["loss_scale"] == 2**14
    assert saved["skipped_steps"] == 1
    assert saved["global_step"] == stop
  assert saved["good_steps"] == 2
  # The line's norm is that of the other step: sqrt(2).
  lines = [line for line in caplog.messages if line.startswith("step 2/2")]
  assert "gradient norm 1.41, loss scale 1.64e+04, skipped steps 1" in lines[0]


DEVICES = """
import sys
sys.path[:0] = [{tests!r}, {tests!r} + "/core"]
import tensorflow as tf
import test_loss_scale as test
from bert import variables

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
store = variables.VariableStore()

def step(bad):
  with store:
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    breaks = tf.logical_and(bad, replica == 1)
    test.minimize(tf.where(breaks, [1.0, float("inf")], 1.0))

@tf.function(autograph=False)
def run(bad):
  strategy.run(step, [bad])

with strategy.scope():
  for bad in (False, True):
    run(tf.constant(bad))
    for name in ("weight", "loss_scale", "skipped_steps"):
      parts = strategy.experimental_local_results(store[name])
      print(name, [part.numpy().tolist() for part in parts])
"""


def test_all_devices_skip_the_same_steps(tmp_path):
  script = tmp_path / "devices.py"
  script.write_text(DEVICES.format(tests=str(scripts.ROOT / "tests")))
  lines = scripts.fork(script)[0].splitlines()
  weights, others = lines[::3], [*lines[1:3], *lines[4:]]
  assert weights[0] == weights[1]
  assert others == [
    "loss_scale [32768.0, 32768.0]",
    "skipped_steps [0, 0]",
    "loss_scale [16384.0, 16384.0]",
    "skipped_steps [1, 1]",
  ]
