"""How much memory a training step takes, from its graph and by measurement."""

from __future__ import annotations

import pathlib
import re
import resource
import subprocess

import quiet_start  # noqa: F401  Before TensorFlow.
import tensorflow as tf

# Operations whose output is their input in another shape, or no copy at all.
_ALIASES = (
  "ExpandDims",
  "Identity",
  "IdentityN",
  "PreventGradient",
  "Reshape",
  "Squeeze",
  "StopGradient",
)

# Operations whose outputs exist anyway, or are a few numbers.
_NOT_KEPT = ("Const", "Pack", "Placeholder", "ReadVariableOp", "Shape")

# The prefix of the operations that `tf.gradients` adds.
_BACKWARD = "gradients"


def activation_bytes(graph: tf.Graph) -> int:
  """The bytes that a forward pass keeps for its backward pass.

  Args:
    graph: a graph with `tf.gradients`, in which all shapes are static.
  """
  kept = {}
  for operation in graph.get_operations():
    if operation.name.startswith(_BACKWARD):
      for tensor in map(_source, operation.inputs):
        op = tensor.op
        if not op.name.startswith(_BACKWARD) and op.type not in _NOT_KEPT:
          kept[tensor.name] = tensor
  return sum(
    (tensor.shape.num_elements() or 0) * tensor.dtype.size
    for tensor in kept.values()
  )


def _source(tensor):
  """The tensor that holds the values of this one."""
  while tensor.op.type in _ALIASES:
    index = tensor.value_index if tensor.op.type == "IdentityN" else 0
    tensor = tensor.op.inputs[index]
  return tensor


def peak_bytes() -> int:
  """The most memory that this process has had, on a GPU if there is one."""
  if tf.config.list_logical_devices("GPU"):
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def used_bytes() -> int:
  """The memory that this process has now, on a GPU if there is one."""
  if tf.config.list_logical_devices("GPU"):
    return tf.config.experimental.get_memory_info("GPU:0")["current"]
  status = pathlib.Path("/proc/self/status")
  if not status.exists():
    return peak_bytes()
  return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1])


def available_bytes() -> int | None:
  """The memory that this process may take in addition; None if unknown."""
  if tf.config.list_logical_devices("GPU"):
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader"]
    try:
      found = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
      return None
    # MiB of each GPU; all of them take an equal part of a batch.
    return min(int(line.split()[0]) for line in found.stdout.splitlines()) << 20
  meminfo = pathlib.Path("/proc/meminfo")
  if not meminfo.exists():
    return None
  found = re.search(r"MemAvailable:\s+(\d+)", meminfo.read_text())
  limits = [1024 * int(found[1])]
  group = pathlib.Path("/sys/fs/cgroup")  # Of a container.
  try:
    limit, current = (
      int((group / f"memory.{name}").read_text()) for name in ("max", "current")
    )
    limits.append(limit - current)
  except (OSError, ValueError):  # There is no limit.
    pass
  return min(limits)
