"""What saving a checkpoint costs a training.

    python benchmarks/checkpoint.py [LAYERS HIDDEN BATCH LENGTH [MB_PER_SECOND]]

By default 12 layers of width 768, batch 8, length 128. Measures ten updates in
three ways, by turns: without a checkpoint, with one that the updates wait for,
and with one that a thread writes meanwhile. Prints the medians of what a
checkpoint adds, and its share of a training that saves every 1,000 updates, as
by default. With MB_PER_SECOND, writing takes longer, as to a network folder of
this speed; ten updates should take longer still.
"""

import itertools
import os
import statistics
import sys
import tempfile
import time

import machine
import training_step

from bert import variables
from bert.training import checkpoints, startup
from bert.training.checkpoint_writer import CheckpointWriter

ROUNDS = 5
UPDATES = 10


def slow_down(folder, rate):
  """Makes writing checkpoints take as long as with `rate` MB/s."""
  write = checkpoints.write_checkpoint

  def write_slowly(prefix, tensors):
    start = time.perf_counter()
    write(prefix, tensors)
    seconds = size_of_newest(folder) / (rate * 1e6)
    time.sleep(max(0, start + seconds - time.perf_counter()))

  checkpoints.write_checkpoint = write_slowly


def size_of_newest(folder):
  """Bytes of the newest checkpoint."""
  prefix = checkpoints.training_checkpoints(folder)[-1]
  return os.path.getsize(f"{prefix}.data-00000-of-00001")


def run(step, save=lambda writer: None, folder=None):
  """Seconds of UPDATES updates, with `save` after the first."""
  with CheckpointWriter(folder, keep_max=2) as writer:
    start = time.perf_counter()
    for update in range(UPDATES):
      step()
      if update == 0:
        save(writer)
    return time.perf_counter() - start


def main(layers=12, hidden=768, batch=8, length=128, rate=0):
  print(machine.describe())
  startup.keep_freed_memory()
  config = training_step.make_config(layers, hidden)
  store = variables.VariableStore()
  step = training_step.build_step(config, batch, length, store=store)
  step()
  numbers = itertools.count(1)

  def save(writer):
    writer.save(next(numbers), dict(store.items()))

  def save_and_wait(writer):
    save(writer)
    writer.wait()

  updates, added = [], {"waiting": [], "with a thread": []}
  with tempfile.TemporaryDirectory() as folder:
    if rate:
      slow_down(folder, rate)
    for _ in range(ROUNDS):
      plain = run(step)
      updates.append(plain / UPDATES)
      added["waiting"].append(run(step, save_and_wait, folder) - plain)
      added["with a thread"].append(run(step, save, folder) - plain)
    size = size_of_newest(folder)
  update = statistics.median(updates)
  print(
    f"{layers} x {hidden}: update {update:.2f} s, checkpoint of "
    f"{size / 1e6:.0f} MB"
  )
  for way, seconds in added.items():
    median = statistics.median(seconds)
    print(
      f"{way}: {median:.2f} s more ({min(seconds):.2f} to {max(seconds):.2f}), "
      f"{median / (median + 1000 * update):.2%} every 1,000 updates"
    )


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
