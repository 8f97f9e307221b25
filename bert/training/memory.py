"""The memory that this process uses, and that is available to it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import tensorflow as tf

# The folder of Linux's control groups, version 2.
_CONTROL_GROUPS = pathlib.Path("/sys/fs/cgroup")


def _of_device(name):
  """TensorFlow's number of bytes on a GPU; 0 on a TPU, None on a CPU."""
  if tf.config.list_logical_devices("GPU"):
    return tf.config.experimental.get_memory_info("GPU:0")[name]
  return 0 if tf.config.list_logical_devices("TPU") else None


def reset_peak() -> None:
  """Resets `peak_bytes` to the current memory, if the system supports it."""
  if tf.config.list_logical_devices("GPU"):
    tf.config.experimental.reset_memory_stats("GPU:0")
    return
  with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
  """The peak memory in bytes of this process or its GPU; 0 if unknown."""
  size = _of_device("peak")
  if size is None:
    size = _status_bytes("VmHWM")
  if size is not None:
    return size
  try:
    import resource
  except ImportError:  # Windows has none.
    return 0
  unit = 1 if sys.platform == "darwin" else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def used_bytes() -> int:
  """The current memory in bytes of this process or its GPU; 0 if unknown."""
  size = _of_device("current")
  return (_status_bytes("VmRSS") or peak_bytes()) if size is None else size


def _status_bytes(name):
  """An entry, in bytes, of this process's status in Linux, or None."""
  match = re.search(rf"{name}:\s+(\d+)", _read("/proc/self/status"))
  return match and 1024 * int(match[1])


def available_bytes() -> int | None:
  """The bytes that this process can still allocate; None if unknown."""
  used = _of_device("current")
  if used is None:
    return _available_host_bytes()
  # TensorFlow reserves nearly all memory, so the free memory says little.
  size = _gpu_bytes() if tf.config.list_logical_devices("GPU") else None
  return None if size is None else size - used


def spare_host_bytes() -> int:
  """The bytes of main memory available beyond the peak of this process."""
  available = _available_host_bytes() or 0
  peak, used = (_status_bytes(name) or 0 for name in ("VmHWM", "VmRSS"))
  return available - (peak - used)


def _available_host_bytes():
  """Like `available_bytes`, for the main memory."""
  match = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
  if not match:
    return None
  return min([1024 * int(match[1]), *_left_of_groups()])


def _left_of_groups():
  """Yields the bytes that the limits of this process's control groups leave."""
  # "/" in a container; otherwise the path of the job's group.
  path = re.search(r"(?m)^0::/(.*)$", _read("/proc/self/cgroup"))
  group = _CONTROL_GROUPS / (path[1] if path else "")
  for folder in (group, *group.parents):
    limit, usage = (
      _read(folder / f"memory.{name}").strip() for name in ("max", "current")
    )
    # Linux frees the cache of files that were read when memory is needed.
    stat = _read(folder / "memory.stat")
    files = re.search(r"(?m)^inactive_file (\d+)$", stat)
    if limit.isdecimal() and usage.isdecimal():
      yield int(limit) - int(usage) + int(files[1] if files else 0)


def _read(path):
  """The text of a system file; "" if it cannot be read."""
  try:
    return pathlib.Path(path).read_text()
  except OSError:
    return ""


def _gpu_bytes():
  """The memory of the smallest visible GPU, or None."""
  command = ["nvidia-smi", "--query-gpu=memory.total"]
  command.append("--format=csv,noheader,nounits")
  if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
    command.append(f"--id={visible}")
  try:
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return min(map(int, result.stdout.splitlines())) << 20
  except (OSError, subprocess.CalledProcessError, ValueError):
    return None
