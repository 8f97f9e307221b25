"""An update on one device and on two, in a process with two CPUs."""

import json

import numpy as np
import scripts

# `module` is in tests/training, and has `make_features`, `compute`, `update_in`
# and the number of ROWS. A case is a number of devices, and what `compute`
# takes: a number of micro-batches, and more.
SCRIPT = """
import json, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/training"]
import numpy as np
import tensorflow as tf
import optimization
from bert import variables
import {module} as test

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
features = test.make_features()
for devices, count, *more in {cases}:
  names = [f"CPU:{{i}}" for i in range(devices)]
  strategy = tf.distribute.MirroredStrategy(names)
  store, share = variables.VariableStore(), test.ROWS // devices

  def step():
    with store:
      replica = tf.distribute.get_replica_context()
      start = replica.replica_id_in_sync_group * share
      mine = {{n: x[start:start + share] for n, x in features.items()}}
      loss, *logged, grads = test.compute(count, mine, *more)
      _, norms = optimization.minimize(grads, test.update_in(count))
    logged = [scalars.get("share", loss) for scalars in logged] or [loss]
    return [loss, *logged, norms["gradient norm"]]

  @tf.function(autograph=False)
  def run():
    results = strategy.run(step)
    return [strategy.reduce("MEAN", x, axis=None) for x in results]

  with strategy.scope():
    first, second = run(), run()
  weights = [store[name].numpy().ravel() for name in ("table", "kernel")]
  print(json.dumps(np.concatenate([first, second, *weights]).tolist()))
"""


def check_equal(folder, module, *cases):
  """Two updates and what they log are in all cases those of the first."""
  script = folder / "devices.py"
  tests = str(scripts.ROOT / "tests")
  script.write_text(SCRIPT.format(tests=tests, module=module, cases=cases))
  first, *others = map(json.loads, scripts.fork(script)[0].splitlines())
  assert len(others) == len(cases) - 1
  for other in others:
    np.testing.assert_allclose(other, first, rtol=1e-5, atol=1e-6)
