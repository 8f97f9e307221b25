"""Peak memory and time of an update, with and without gradient checkpointing.

    python benchmarks/gradient_checkpointing.py [LAYERS HIDDEN LENGTH ROWS GB]

By default 24 layers of width 1024, length 512, batches of 1 and 2 rows, and 20
GB. A process of its own makes two updates of pre-training with each number of
rows, by turns with and without. Prints the largest resident size of each
process and the time of its second update. The line through the sizes gives the
memory of a row and the largest batch that fits into GB.

The default needs 15 GB for 2 rows without checkpointing. It extrapolates to
other batches.
"""

import resource
import subprocess
import sys
import time

import machine
import numpy as np
import pretraining_step
import training_step

from training import startup


def measure_here(layers, hidden, length, batch, checkpointing):
  """Prints this process's peak in GB, and the seconds of its last update."""
  startup.keep_freed_memory()
  config = training_step.make_config(layers, hidden)
  step = pretraining_step.build_step(
    config, "float32", batch, length, bool(checkpointing)
  )
  step()
  start = time.perf_counter()
  step()
  seconds = time.perf_counter() - start
  # Linux reports kilobytes of 1024 bytes.
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
  print(peak, seconds)


def measure(*arguments):
  """What `measure_here` prints in a process of its own."""
  command = [sys.executable, __file__, "--here", *map(str, arguments)]
  output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
  return map(float, output.split()[-2:])


def main(layers=24, hidden=1024, length=512, batches="1,2", limit="20"):
  print(machine.describe(), flush=True)
  sizes = [int(size) for size in batches.split(",")]
  peaks = {0: [], 1: []}
  for size in sizes:
    for checkpointing, found in peaks.items():
      peak, seconds = measure(layers, hidden, length, size, checkpointing)
      found.append(peak)
      print(
        f"{layers} x {hidden}, length {length}, batch {size}, "
        f"{'with' if checkpointing else 'without'} checkpointing: "
        f"{peak:.2f} GB, {seconds:.2f} s",
        flush=True,
      )
  for checkpointing, found in peaks.items():
    slope, start = np.polyfit(sizes, found, 1)
    print(
      f"{'with' if checkpointing else 'without'}: {start:.2f} GB and "
      f"{slope:.3f} GB a row; {int((float(limit) - start) / slope)} rows in "
      f"{limit} GB"
    )


if __name__ == "__main__":
  if sys.argv[1:2] == ["--here"]:
    measure_here(*map(int, sys.argv[2:]))
  else:
    main(*sys.argv[1:])
