"""Pre-training with the last layer at masked positions and at all, in turns.

    python benchmarks/masked_positions.py [PRECISION LAYERS HIDDEN BATCH LENGTH]

By default float32, 4 layers of width 256, batch 16, length 128. Prints the
medians over 20 rounds of the seconds of an update and of the ratios.
"""

import statistics
import sys

import machine
import pretraining_step
import tensorflow as tf
import training_step

import modeling
from bert.training import startup

ROUNDS = 20


few_positions = modeling.BertModel.sequence_output_at


def all_positions(model, positions, *site):
  """The last layer at some positions, but computed at all."""
  if positions is None:  # The first one is computed by itself in both ways.
    return few_positions(model, positions, *site)
  return tf.gather(model.get_sequence_output(), positions, batch_dims=1)


def main(precision="float32", layers=4, hidden=256, batch=16, length=128):
  startup.keep_freed_memory()
  print(machine.describe(), flush=True)
  config = training_step.make_config(int(layers), int(hidden))
  ways = {"all positions": all_positions, "masked positions": few_positions}
  steps = {}
  for name, way in ways.items():
    modeling.BertModel.sequence_output_at = way
    steps[name] = pretraining_step.build_step(
      config, precision, int(batch), int(length)
    )
    steps[name]()  # Compiles.
  rounds = [
    [machine.seconds(step, 1, warmups=0)[0] for step in steps.values()]
    for _ in range(ROUNDS)
  ]
  for name, seconds in zip(steps, zip(*rounds, strict=True), strict=True):
    print(f"{name}: {statistics.median(seconds):.3f} s")
  ratios = [whole / few for whole, few in rounds]
  print(f"ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
  main(*sys.argv[1:])
