"""How much memory this process has, and may have."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import tensorflow as tf

# Of versions 2 and 1 of Linux's control groups: the folder, how the line of the
# memory's group in /proc/self/cgroup begins, and the names of limit, usage and
# unused files.
_CONTROL_GROUPS = (
  ("/sys/fs/cgroup", "0:", "max current inactive_file"),
  (
    "/sys/fs/cgroup/memory",
    r"\d+:(?:.*,)?memory",
    "limit_in_bytes usage_in_bytes total_inactive_file",
  ),
)


def _has_tpu():
  """Whether models run on a TPU, whose memory TensorFlow does not report."""
  return bool(tf.config.list_logical_devices("TPU"))


def reset_peak() -> None:
  """Makes `peak_bytes` start from the present, if the system can do that."""
  if tf.config.list_logical_devices("GPU"):
    tf.config.experimental.reset_memory_stats("GPU:0")
    return
  with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
  """The most memory that this process has had, on a GPU if there is one.

  0 if the system does not tell.
  """
  if tf.config.list_logical_devices("GPU"):
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]
  if _has_tpu():
    return 0
  if found := _status_bytes("VmHWM"):
    return found
  try:
    import resource
  except ImportError:  # Windows has none.
    return 0
  unit = 1 if sys.platform == "darwin" else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def used_bytes() -> int:
  """The memory that this process has now, on a GPU if there is one.

  0 if the system does not tell.
  """
  if tf.config.list_logical_devices("GPU"):
    return tf.config.experimental.get_memory_info("GPU:0")["current"]
  if _has_tpu():
    return 0
  return _status_bytes("VmRSS") or peak_bytes()


def _status_bytes(name):
  """An entry of the status that Linux gives of this process, or None."""
  found = re.search(rf"{name}:\s+(\d+)", _read("/proc/self/status"))
  return found and 1024 * int(found[1])


def available_bytes() -> int | None:
  """The memory that this process may take in addition; None if unknown."""
  if tf.config.list_logical_devices("GPU"):
    # TensorFlow reserves nearly all memory, so what is free says little.
    size = _gpu_bytes()
    return None if size is None else size - used_bytes()
  return None if _has_tpu() else _available_host_bytes()


def spare_host_bytes() -> int:
  """The main memory beyond the most that this process has had.

  0 if the system does not tell.
  """
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
  paths = _read("/proc/self/cgroup")
  for groups, line, names in _CONTROL_GROUPS:
    # Of a container, "/"; of a job without one, the path of its group.
    path = re.search(rf"^{line}:/(.*)$", paths, re.MULTILINE)
    group = pathlib.Path(groups, path[1] if path else "")
    for folder in (group, *group.parents):
      if folder.is_relative_to(groups):
        yield from _left_of_group(folder, *names.split())


def _left_of_group(folder, limit, usage, file_cache):
  """The bytes that the limit of a control group leaves, [] without a limit."""
  limit, usage = (
    _read(folder / f"memory.{name}").strip() for name in (limit, usage)
  )
  # Files that were read stay in memory as long as nobody needs it.
  files = re.search(
    rf"^{file_cache} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE
  )
  if not (limit.isdecimal() and usage.isdecimal()):
    return []
  return [int(limit) - int(usage) + int(files[1] if files else 0)]


def _read(path):
  """The text of a file of the system, "" if it has none."""
  try:
    return pathlib.Path(path).read_text()
  except OSError:
    return ""


def _gpu_bytes():
  """The memory of the smallest visible GPU, or None.

  All GPUs take an equal part of a batch.
  """
  command = ["nvidia-smi", "--query-gpu=memory.total"]
  command.append("--format=csv,noheader,nounits")
  if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
    command.append(f"--id={visible}")
  try:
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return min(map(int, found.stdout.splitlines())) << 20
  except (OSError, subprocess.CalledProcessError, ValueError):
    return None
