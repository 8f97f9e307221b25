"""Batches for hosts that run no Python: those of a TPU on other machines.

Batches come from Python functions, which run in this process only. A tf.data
service in this process runs them, and the hosts read the finished batches.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import tensorflow as tf


@functools.cache
def _start(host):
  """The address of a service that other machines reach at `host`."""
  service = tf.data.experimental.service
  host = f"[{host}]" if ":" in host else host
  dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
  address = f"{host}:{dispatcher.target.rpartition(':')[2]}"
  # A single worker keeps the order of the batches.
  worker = service.WorkerServer(
    service.WorkerConfig(address, worker_address=f"{host}:%port%", port=0)
  )
  for server in (dispatcher, worker):
    # It ends with the process. When Python deletes a server, it waits for the
    # functions that the server runs, which wait for Python.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
  return f"grpc://{address}"


def serve(dataset: tf.data.Dataset, host: str) -> Callable[[], tf.data.Dataset]:
  """A function that returns the same dataset, read over the network.

  A host calls it; each gets all elements, in their order.

  Args:
    dataset: the dataset.
    host: name or address at which other machines reach this one.
  """
  service = tf.data.experimental.service
  address = _start(host)
  dataset_id = service.register_dataset(address, dataset)

  def read():
    found = service.from_dataset_id(
      service.ShardingPolicy.OFF, address, dataset_id, dataset.element_spec
    )
    found.source = dataset  # Its Python functions are deleted with it.
    return found

  return read
