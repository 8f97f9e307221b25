"""Updates and forward passes against PyTorch and the peak of products.

    python benchmarks/encoder_steps.py TORCH_PYTHON [LAYERS HIDDEN BATCH LENGTH]

TORCH_PYTHON is the interpreter of an environment with torch and transformers.
By default 12 layers of width 768, batch 8, length 128. A forward pass computes
the vectors of all positions, as the scripts that predict do. Both sides and the
products of matrices take turns, ROUNDS times. Prints the median of each in
seconds, the median of the ratios, and the share of the peak of products that
our side reaches.
"""

import os
import statistics
import subprocess
import sys

import machine
import numpy as np
import tensorflow as tf
import training_step

from bert import fusion
import modeling
from bert import variables

ROUNDS, STEPS = 7, 2


def build_forward(config, batch, length, precision):
  """A function that computes the vectors of all positions of fixed rows."""
  store = variables.VariableStore(is_for_inference=True)
  rng = np.random.default_rng(0)
  ids = tf.constant(rng.integers(0, config.vocab_size, [batch, length]))

  @tf.function(autograph=False)
  def forward():
    with store, fusion.enabled(True), fusion.forward_only():
      model = modeling.BertModel(config, False, ids, precision=precision)
      return model.get_sequence_output()

  return lambda: forward().numpy()


def torch_side(python, sizes):
  """A function (job, precision) -> median seconds in another process."""
  script = os.path.join(os.path.dirname(__file__), "torch_steps.py")
  # Threads that wait must not take the processor from the other side.
  process = subprocess.Popen(
    [python, script, *map(str, sizes)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    env=os.environ | {"OMP_WAIT_POLICY": "passive"},
  )
  print("PyTorch, transformers", process.stdout.readline().strip())

  def seconds(job, precision):
    process.stdin.write(f"{job} {precision} {STEPS}\n")
    process.stdin.flush()
    return float(process.stdout.readline())

  return seconds


def main(python, layers=12, hidden=768, batch=8, length=128):
  print(machine.describe())
  sizes = layers, hidden, batch, length
  torch_seconds = torch_side(python, sizes)
  config = training_step.make_config(layers, hidden)
  layer = training_step.layer_flop(config, batch, length, length)
  flop = {
    "update": 3 * training_step.forward_flop(config, batch, length),
    "forward": layers * layer,
  }
  for precision in ("float32", "bfloat16"):
    steps = {
      "update": training_step.build_step(config, batch, length, precision),
      "forward": build_forward(config, batch, length, precision),
    }
    for job, step in steps.items():
      rounds = []
      for number in range(ROUNDS + 1):
        peak = machine.matmul_peak(repetitions=3, dtype=precision)
        ours, _, _ = machine.seconds(step, STEPS, warmups=2 * (not number))
        rounds.append((ours, torch_seconds(job, precision), peak))
      del rounds[0]  # PyTorch's side warms up.
      ours, theirs, peak = map(statistics.median, zip(*rounds, strict=True))
      ratio = statistics.median(b / a for a, b, _ in rounds)
      share = statistics.median(flop[job] / a / p for a, _, p in rounds)
      print(
        f"{job} {precision}: {ours:.3f} s, PyTorch {theirs:.3f} s, ratio "
        f"{ratio:.2f}, {share:.0%} of {peak / 1e9:.0f} GFLOP/s",
        flush=True,
      )


if __name__ == "__main__":
  main(sys.argv[1], *map(int, sys.argv[2:]))
