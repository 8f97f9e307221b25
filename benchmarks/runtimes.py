"""Vectors of all positions with each runtime, in each precision.

    python benchmarks/runtimes.py [--torch=PYTHON] [--layers=12] [--hidden=768]
        [--batch=8] [--length=128] [--rounds=7]

Computes the vectors of one batch of random texts with a model with random
weights, in turns with TensorFlow, ONNX Runtime and OpenVINO, and with --torch,
the Python of an environment with torch and transformers, also with PyTorch.
Prints the seconds of each side, their ratio to TensorFlow in float32, how many
times faster each runtime is in eight bits than in float32, and the largest
difference from TensorFlow's vectors.
"""

import argparse
import functools
import os
import statistics
import tempfile

import machine
import numpy as np
import training_step

import bert

SIDES = (
  ("tensorflow", "float32"),
  ("tensorflow", "bfloat16"),
  ("onnxruntime", "float32"),
  ("openvino", "float32"),
  ("openvino", "bfloat16"),
  ("onnxruntime", "int8"),
  ("openvino", "int8"),
)


def make_run(folder, flags, runtime, precision):
  """A function that returns the mean vectors of the batch."""
  model = bert.load(
    folder,
    task="vectors",
    pooling="mean",
    batch_size=flags.batch,
    max_seq_length=flags.length,
    precision=precision,
    runtime=runtime,
  )
  words = flags.length - 2  # Without [CLS] and [SEP].
  texts = machine.make_texts(flags.batch, words, words)
  return lambda: np.array([found["vector"] for found in model(texts)])


def parse_flags():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("--torch")
  for name, default in (
    ("layers", 12),
    ("hidden", 768),
    ("batch", 8),
    ("length", 128),
    ("rounds", 7),
  ):
    parser.add_argument(f"--{name}", type=int, default=default)
  return parser.parse_args()


def main():
  flags = parse_flags()
  print(machine.describe(), flush=True)
  sizes = flags.layers, flags.hidden, flags.batch, flags.length
  with tempfile.TemporaryDirectory() as folder:
    machine.write_model(f"{folder}/model", flags.layers, flags.hidden)
    os.environ["BERT_CACHE"] = folder  # Runtimes keep the model's graph there.
    runs = {
      " ".join(side): make_run(f"{folder}/model", flags, *side)
      for side in SIDES
    }
    sides = {
      name: functools.partial(machine.median_seconds, run, training_step.STEPS)
      for name, run in runs.items()
    }
    if flags.torch:
      peer = training_step.torch_side(flags.torch, sizes)
      for precision in ("float32", "bfloat16"):
        sides[f"PyTorch {precision}"] = functools.partial(
          peer, "forward", precision
        )
    times = machine.in_turns(sides, flags.rounds, warmups=1)
    vectors = {name: run() for name, run in runs.items()}
  for runtime in ("onnxruntime", "openvino"):
    full, small = (times[f"{runtime} {p}"] for p in ("float32", "int8"))
    ratios = [a / b for a, b in zip(full, small, strict=True)]
    print(f"{runtime}: int8 is {statistics.median(ratios):.2f} times as fast")
  first, *_ = vectors.values()
  for name, found in vectors.items():
    print(f"{name}: differs by {np.abs(found - first).max():.1e} at most")


if __name__ == "__main__":
  main()
