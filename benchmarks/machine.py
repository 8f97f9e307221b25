"""What a figure was measured on, and how fast matrices multiply there."""

import os
import platform
import statistics
import sys
import time

# Benchmarks run from anywhere and find the code beside their folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert import quiet_start  # noqa: F401  Before TensorFlow.
import tensorflow as tf

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
    f"{platform.python_version()}, TensorFlow {tf.__version__}"
  )


def seconds(run, repetitions, warmups=2):
  """Median, minimum and maximum seconds of `run()`."""
  for _ in range(warmups):
    run()
  times = []
  for _ in range(repetitions):
    start = time.perf_counter()
    run()
    times.append(time.perf_counter() - start)
  return statistics.median(times), min(times), max(times)


def matmul_peak(size=4096, repetitions=9, dtype="float32"):
  """Median FLOP/s of a product of two square matrices."""
  a, b = (tf.cast(tf.random.normal([size, size]), dtype) for _ in range(2))
  product = tf.function(tf.matmul, autograph=False)
  # A few elements, as NumPy takes long to make an array of all in bfloat16.
  median, _, _ = seconds(lambda: product(a, b)[0, :9].numpy(), repetitions)
  return 2 * size**3 / median
