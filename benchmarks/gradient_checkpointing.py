"""Peak memory of an update, with and without gradient checkpointing.

    python benchmarks/gradient_checkpointing.py [LAYERS HIDDEN LENGTH GB]

By default 24 layers of width 1024, length 512, and 20 GB. Processes of their
own make two updates of pre-training, with 1 and 2 rows without checkpointing,
and with 4 and 8 rows with it, in turns. Prints the largest resident size of
each process and the time of its second update. The line through the sizes gives
the memory of a row and the largest batch that fits into GB.

Fewer rows with checkpointing would measure the update of the weights, which
needs more memory than their gradients. The default needs up to 13 GB.
"""

import resource
import subprocess
import sys
import time

import machine
import numpy as np
import pretraining_step
import training_step

from bert.training import startup

# Numbers of rows, without and with checkpointing.
ROWS = {0: (1, 2), 1: (4, 8)}


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


def main(layers=24, hidden=1024, length=512, limit=20):
  print(machine.describe(), flush=True)
  names = {0: "without", 1: "with"}
  peaks = {0: [], 1: []}
  for turn in range(2):
    for checkpointing, rows in ROWS.items():
      peak, seconds = measure(layers, hidden, length, rows[turn], checkpointing)
      peaks[checkpointing].append(peak)
      print(
        f"{layers} x {hidden}, length {length}, batch {rows[turn]}, "
        f"{names[checkpointing]}: {peak:.2f} GB, {seconds:.2f} s",
        flush=True,
      )
  for checkpointing, found in peaks.items():
    slope, start = np.polyfit(ROWS[checkpointing], found, 1)
    print(
      f"{names[checkpointing]}: {start:.2f} GB and {slope:.3f} GB a row; "
      f"{int((limit - start) / slope)} rows in {limit} GB"
    )


if __name__ == "__main__":
  if sys.argv[1:2] == ["--here"]:
    measure_here(*map(int, sys.argv[2:]))
  else:
    main(*map(int, sys.argv[1:]))
