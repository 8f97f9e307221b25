"""Compares the encoder's runtimes with PyTorch on vectors of all positions.

    python benchmarks/runtime_vectors.py TORCH_PYTHON
        [LAYERS HIDDEN BATCH LENGTH [ROUNDS]]

TORCH_PYTHON is the interpreter of an environment with torch and transformers.
By default 12 layers of width 768 with random weights, one batch of 8 rows of
128 positions. Ours is the predictor of extract_features.py, which takes Python
lists and returns arrays. All sides take turns, ROUNDS (7) times. Prints the
median seconds of each side, and the median ratio of PyTorch's in the same
precision.
"""

import os
import statistics
import sys
import tempfile

import encoder_steps
import machine
import numpy as np
import training_step
from runtimes import SIDES

import modeling
from bert.tasks.features import FeatureExtractor
from bert.training import checkpoints

STEPS = 2


def write_model(folder, config):
  """Writes a model folder with random weights and a vocabulary of numbers."""
  rng = np.random.default_rng(0)
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  pieces += map(str, range(config.vocab_size - len(pieces)))
  weights = {
    name: rng.normal(0, 0.02, shape).astype(np.float32)
    for name, shape in modeling.variable_shapes(config).items()
  }
  contents = {
    "vocab.txt": "\n".join(pieces) + "\n",
    "bert_config.json": config.to_json_string(),
  }
  checkpoints.write_release(folder, weights, contents)


def make_forward(folder, batch, length, runtime, precision):
  """A function that computes the vectors of a batch."""
  extractor = FeatureExtractor(
    folder,
    layers=[-1],
    max_seq_length=length,
    batch_size=batch,
    precision=precision,
    runtime=runtime,
  )
  rng = np.random.default_rng(0)
  ids = rng.integers(5, extractor.config.vocab_size, [batch, length])
  rows = [
    {"input_ids": row, "input_mask": [1] * length, "segment_ids": [0] * length}
    for row in ids.tolist()
  ]
  return lambda: extractor.predictor(rows)


def main(python, layers=12, hidden=768, batch=8, length=128, rounds=7):
  print(machine.describe())
  torch_seconds = encoder_steps.torch_side(
    python, (layers, hidden, batch, length)
  )
  with tempfile.TemporaryDirectory() as folder:
    os.environ["BERT_CACHE"] = folder  # Runtimes keep the model's graph there.
    write_model(folder, training_step.make_config(layers, hidden))
    forwards = {
      side: make_forward(folder, batch, length, *side) for side in SIDES
    }
    times = {side: [] for side in SIDES}
    theirs = {"float32": [], "bfloat16": []}
    for number in range(rounds + 1):
      for precision, found in theirs.items():
        found.append(torch_seconds("forward", precision))
      for side, forward in forwards.items():
        warmups = 2 * (not number)
        times[side].append(machine.seconds(forward, STEPS, warmups)[0])
  for precision, found in theirs.items():
    print(f"PyTorch {precision}: {statistics.median(found[1:]):.3f} s")
  for (runtime, precision), found in times.items():
    pairs = list(zip(found, theirs[precision], strict=True))[1:]
    ratio = statistics.median(b / a for a, b in pairs)
    print(
      f"{runtime} {precision}: {statistics.median(found[1:]):.3f} s, ratio "
      f"{ratio:.2f}"
    )


if __name__ == "__main__":
  main(sys.argv[1], *map(int, sys.argv[2:]))
