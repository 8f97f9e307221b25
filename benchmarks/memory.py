"""Peak memory and time of a training step, by batch size and flag.

    python benchmarks/memory.py [LAYERS HIDDEN LENGTH GB]

By default 12 layers of width 768, length 128, and 16 GB. Pre-trains batches of
two sizes, each in a process of its own, in float32, in bfloat16, and with
--gradient_checkpointing. Prints the peak of each process and the seconds of its
second update, the memory of a row, and the largest batch that fits into GB.
"""

import resource
import sys

import machine
import training_step

from bert.scripts import startup

# Precision, gradient checkpointing, and two batch sizes. Small batches with
# checkpointing would measure the update of the weights only.
CASES = {
  "float32": ("float32", 0, 4, 8),
  "bfloat16": ("bfloat16", 0, 4, 8),
  "gradient checkpointing": ("float32", 1, 16, 32),
}


def measure_here(precision, checkpointing, layers, hidden, length, batch):
  """Prints the peak of this process in GB, and the seconds of an update."""
  startup.keep_freed_memory()
  step = training_step.build_step(
    machine.make_config(layers, hidden),
    batch,
    length,
    precision,
    is_pretraining=True,
    gradient_checkpointing=bool(checkpointing),
  )
  step()
  seconds = machine.timed(step)
  # Linux reports kilobytes of 1,024 bytes.
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
  print(peak, seconds)


def main(layers=12, hidden=768, length=128, limit=16):
  print(machine.describe(), flush=True)
  for name, (precision, checkpointing, *batches) in CASES.items():
    peaks = []
    for batch in batches:
      values = precision, checkpointing, layers, hidden, length, batch
      printed = machine.run(sys.executable, __file__, *map(str, values))
      peak, seconds = map(float, printed.split()[-2:])
      peaks.append(peak)
      print(f"{name}, batch {batch}: {peak:.2f} GB, {seconds:.2f} s")
    row = (peaks[1] - peaks[0]) / (batches[1] - batches[0])
    rest = peaks[0] - row * batches[0]
    print(
      f"{name}: {rest:.2f} GB and {row:.3f} GB for each row; "
      f"{int((limit - rest) / row)} rows in {limit} GB",
      flush=True,
    )


if __name__ == "__main__":
  if len(sys.argv) == 7:
    measure_here(sys.argv[1], *map(int, sys.argv[2:]))
  else:
    main(*map(int, sys.argv[1:]))
