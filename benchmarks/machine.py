"""What the benchmarks share: the machine, timing, commands.

TensorFlow is imported on use, because the league does not need it.
"""

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time

# Benchmarks run from anywhere and find the code beside their folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert import quiet_start  # noqa: F401  Before TensorFlow.

ROOT = sys.path[0]


def describe():
  """One line: processor, cores, versions."""
  processor = platform.processor() or platform.machine()
  if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo", encoding="utf-8") as reader:
      names = [line for line in reader if line.startswith("model name")]
    processor = names[0].split(":")[1].strip() if names else processor
  return (
    f"{processor}, {os.cpu_count()} cores, Python "
    f"{platform.python_version()}, TensorFlow "
    f"{importlib.metadata.version('tensorflow')}"
  )


def timed(run):
  """Seconds of `run()`."""
  start = time.perf_counter()
  run()
  return time.perf_counter() - start


def median_seconds(run, repetitions, warmups=0):
  """Median seconds of `run()`."""
  for _ in range(warmups):
    run()
  return statistics.median(timed(run) for _ in range(repetitions))


def matmul_peak(dtype="float32", size=4096, repetitions=3):
  """Median FLOP/s of the product of two square matrices."""
  import tensorflow as tf

  a, b = (tf.cast(tf.random.normal([size, size]), dtype) for _ in range(2))
  product = tf.function(tf.matmul, autograph=False)
  # Converting all elements of a bfloat16 tensor to NumPy takes long.
  median = median_seconds(lambda: product(a, b)[0, :9].numpy(), repetitions, 1)
  return 2 * size**3 / median


def in_turns(sides, rounds, warmups=0):
  """Measures all sides in each round, and prints what `report` prints.

  Args:
    sides: dict from a name to a function that returns its seconds.
    rounds: number of measurements of each side.
    warmups: number of rounds before these that do not count.

  Returns:
    Dict from the name to a list of seconds.
  """
  times = {name: [] for name in sides}
  for _ in range(warmups + rounds):
    for name, seconds in sides.items():
      times[name].append(seconds())
  times = {name: found[warmups:] for name, found in times.items()}
  report(times)
  return times


def report(times):
  """Prints the median of each side, and its ratio to the first side."""
  first, *_ = times.values()
  for name, found in times.items():
    ratios = [a / b for a, b in zip(found, first, strict=True)]
    line = f"{name}: {statistics.median(found):.4g} s"
    if len(found) > 1:
      line += f" ({min(found):.4g} to {max(found):.4g})"
    if found is not first:
      line += f", {statistics.median(ratios):.2f} times the first"
    print(line, flush=True)


def script(name, *flags):
  """Standard output of a script at the root; ends with its log if it fails."""
  # The script would take this setting for that of the user.
  environment = {**os.environ}
  environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
  command = [sys.executable, os.path.join(ROOT, name), *flags]
  finished = subprocess.run(
    command, capture_output=True, text=True, env=environment
  )
  if finished.returncode:
    sys.exit(f"failed: {' '.join(command)}\n{finished.stderr}")
  return finished.stdout
