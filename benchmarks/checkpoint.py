"""What saving a checkpoint costs a training.

    python benchmarks/checkpoint.py [LAYERS HIDDEN BATCH LENGTH]

By default 12 layers of width 768, batch 8, length 128. Updates and checkpoints
of weights and moments take turns. Prints the medians, and the share of the time
of training that saving takes by default (every 1,000 updates), and how many
updates must lie between two checkpoints for a share of 5 %.
"""

import os
import statistics
import sys
import tempfile
import time

import machine
import training_step

import variables
from training import checkpoints

ROUNDS = 5


def main(layers=12, hidden=768, batch=8, length=128):
  print(machine.describe())
  config = training_step.make_config(layers, hidden)
  store = variables.VariableStore()
  step = training_step.build_step(config, batch, length, store=store)
  steps, saves = [], []
  with tempfile.TemporaryDirectory() as folder:
    for number in range(ROUNDS):
      steps.append(machine.seconds(step, 3)[0])
      start = time.perf_counter()
      prefix = checkpoints.save_training_checkpoint(
        folder, number + 1, dict(store.items()), 2
      )
      saves.append(time.perf_counter() - start)
    size = os.path.getsize(f"{prefix}.data-00000-of-00001")
  update, save = statistics.median(steps), statistics.median(saves)
  share = save / (save + 1000 * update)
  print(
    f"{layers} x {hidden}: update {update:.2f} s, checkpoint of "
    f"{size / 1e6:.0f} MB {save:.2f} s (max {max(saves):.2f}); every 1,000 "
    f"updates {share:.2%} of the time, 5 % every {19 * save / update:.0f}"
  )


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
