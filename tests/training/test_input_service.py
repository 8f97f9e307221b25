"""Hosts in other processes read the batches of this one."""

import json
import os
import signal
import socket

import scripts

from bert.data import records
from bert.training import inputs

SPEC = {
  "input_ids": records.sequence_feature(8),
  "input_mask": records.sequence_feature(8),
  "weights": records.Feature((2,), "float32"),
}
ROWS = [
  {
    "input_ids": [n + 1] * (1 + n % 8) + [0] * (7 - n % 8),
    "input_mask": [1] * (1 + n % 8) + [0] * (7 - n % 8),
    "weights": [n / 2, 1.0],
  }
  for n in range(11)
]
PARAMS = {"batch_size": 4, "pad_to_max_length": True}

# A host with two devices in place of a TPU. Like a TPU on another machine, it
# cannot reach the address that TensorFlow gives to this process.
HOST = """
import sys
import tensorflow as tf

devices = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
tf.distribute.Server({"worker": [sys.argv[1]]}, config=devices).join()
"""
PROGRAM = """
import json, sys
sys.path[:0] = [{tests!r} + folder for folder in ("", "/training", "/..")]
import tensorflow as tf
import test_input_service as test
from bert.training import devices, inputs

address, unused = sys.argv[1:]
hosts = tf.train.ClusterSpec({{
    "worker": [address], "localhost": ["240.0.0.1:" + unused]}})

class Tpu(tf.distribute.MirroredStrategy):
  def __init__(self, resolver):
    job = "/job:worker/replica:0/task:0/device:CPU:"
    super().__init__([job + "0", job + "1"])
    self.cluster_resolver_of_tpu = resolver

  @property
  def cluster_resolver(self):
    return self.cluster_resolver_of_tpu

tf.distribute.cluster_resolver.TPUClusterResolver = (
    lambda name, zone, project: tf.distribute.cluster_resolver.
    SimpleClusterResolver(hosts, name))
tf.tpu.experimental.initialize_tpu_system = lambda resolver: None
tf.distribute.TPUStrategy = Tpu
strategy = devices.make_strategy("tpu", devices.Tpu("grpc://" + address))

def read(is_training, count, **params):
  rows = inputs.Rows(test.ROWS, test.SPEC)
  input_fn = inputs.input_fn_from_rows(rows, is_training)
  dataset = input_fn({{**test.PARAMS, **params}})
  dataset = devices.distribute(strategy, dataset, 4)
  for spec in tf.nest.flatten(dataset.element_spec, expand_composites=True):
    assert spec.shape.is_fully_defined() and spec.shape[0] == 2
  is_endless = dataset.cardinality == tf.data.INFINITE_CARDINALITY
  assert is_endless == is_training
  batches = iter(dataset)

  @tf.function(autograph=False)
  def run():
    return devices.merge(
        strategy, strategy.run(lambda x: x, (next(batches),)))

  found = []
  for _ in range(count):
    found.append({{n: x.numpy().tolist() for n, x in run().items()}})
  if is_training:
    return found, batches
  try:
    run()
  except tf.errors.OutOfRangeError:
    return found

training, _ = read(True, 5, seed=3, first_step=2)
evaluation = read(False, 3)
print(json.dumps([training, evaluation]))
"""


def _expected(is_training, count, **params):
  """The batches as one process reads them."""
  input_fn = inputs.input_fn_from_rows(inputs.Rows(ROWS, SPEC), is_training)
  batches = input_fn({**PARAMS, **params}).take(count)
  return [
    {name: value.tolist() for name, value in batch.items()}
    for batch in batches.as_numpy_iterator()
  ]


def _free_ports(count):
  servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
  ports = [server.getsockname()[1] for server in servers]
  for server in servers:
    server.close()
  return ports


def test_another_process_reads_the_same_batches(tmp_path):
  port, unused = _free_ports(2)
  (tmp_path / "host.py").write_text(HOST)
  path = tmp_path / "program.py"
  path.write_text(PROGRAM.format(tests=str(scripts.ROOT / "tests")))
  host = scripts.Fork(tmp_path / "host.py", f"127.0.0.1:{port}")
  try:
    output, _ = scripts.fork(path, f"127.0.0.1:{port}", str(unused))
  finally:
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
  training, evaluation = json.loads(output.splitlines()[-1])
  assert training == _expected(True, 5, seed=3, first_step=2)
  assert evaluation == _expected(False, 3)
