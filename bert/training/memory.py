"""How much memory this process has, and may have."""

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
  """TensorFlow's number of bytes on a GPU, 0 on a TPU; None without these."""
  if tf.config.list_logical_devices("GPU"):
    return tf.config.experimental.get_memory_info("GPU:0")[name]
  return 0 if tf.config.list_logical_devices("TPU") else None


def reset_peak() -> None:
  """Makes `peak_bytes` start from the present, if the system can do that."""
  if tf.config.list_logical_devices("GPU"):
    tf.config.experimental.reset_memory_stats("GPU:0")
    return
  with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
  """The most memory that this process, or its GPU, has had; 0 if unknown."""
  found = _of_device("peak")
  if found is None:
    found = _status_bytes("VmHWM")
  if found is not None:
    return found
  try:
    import resource
  except ImportError:  # Windows has none.
    return 0
  unit = 1 if sys.platform == "darwin" else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def used_bytes() -> int:
  """The memory that this process, or its GPU, has now; 0 if unknown."""
  found = _of_device("current")
  return (_status_bytes("VmRSS") or peak_bytes()) if found is None else found


def _status_bytes(name):
  """An entry of the status that Linux gives of this process, or None."""
  found = re.search(rf"{name}:\s+(\d+)", _read("/proc/self/status"))
  return found and 1024 * int(found[1])


def available_bytes() -> int | None:
  """The memory that this process may take in addition; None if unknown."""
  used = _of_device("current")
  if used is None:
    return _available_host_bytes()
  # TensorFlow reserves nearly all memory, so what is free says little.
  size = _gpu_bytes() if tf.config.list_logical_devices("GPU") else None
  return None if size is None else size - used


def spare_host_bytes() -> int:
  """The main memory beyond the most that this process has had; 0 if unknown."""
  available = _available_host_bytes() or 0
  peak, used = (_status_bytes(name) or 0 for name in ("VmHWM", "VmRSS"))
  return available - (peak - used)


def _available_host_bytes():
  """As `available_bytes`, for the main memory."""
  found = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
  if not found:
    return None
  return min([1024 * int(found[1]), *_left_of_groups()])


def _left_of_groups():
  """Yields the bytes that the limits of this process's control groups leave."""
  # Of a container, "/"; of a job without one, the path of its group.
  path = re.search(r"(?m)^0::/(.*)$", _read("/proc/self/cgroup"))
  group = _CONTROL_GROUPS / (path[1] if path else "")
  for folder in (group, *group.parents):
    limit, usage = (
      _read(folder / f"memory.{name}").strip() for name in ("max", "current")
    )
    # Files that were read stay in memory as long as nobody needs it.
    stat = _read(folder / "memory.stat")
    files = re.search(r"(?m)^inactive_file (\d+)$", stat)
    if limit.isdecimal() and usage.isdecimal():
      yield int(limit) - int(usage) + int(files[1] if files else 0)


def _read(path):
  """The text of a file of the system, "" if it has none."""
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
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return min(map(int, found.stdout.splitlines())) << 20
  except (OSError, subprocess.CalledProcessError, ValueError):
    return None
