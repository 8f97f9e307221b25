"""Compares the runtimes of the encoder, in float32 and in bfloat16.

    python benchmarks/runtimes.py MODEL_DIR [TEXTS] [ROUNDS]

Classifies TEXTS (256) random texts of 4 to 60 words of the vocabulary, in
batches of 32 and one by one (an eighth of them), with each runtime in turns.
Prints the median time of ROUNDS (5) rounds per text in milliseconds, and the
largest difference between a probability and that of TensorFlow in float32.
MODEL_DIR is the --output_dir of run_classifier.py for single texts or pairs.
"""

import random
import re
import statistics
import sys
import time

import machine
import numpy as np

import bert

SIDES = (
  ("tensorflow", "float32"),
  ("tensorflow", "bfloat16"),
  ("onnxruntime", "float32"),
  ("openvino", "float32"),
  ("openvino", "bfloat16"),
)


def make_texts(model_dir, count, is_pair):
  with open(f"{model_dir}/vocab.txt", encoding="utf-8") as reader:
    words = [w for w in reader.read().split("\n") if re.fullmatch("[a-z]+", w)]
  rng = random.Random(1)

  def text():
    return " ".join(rng.choices(words, k=rng.randint(4, 60)))

  return [(text(), text()) if is_pair else (text(),) for _ in range(count)]


def probabilities(model, texts):
  return np.array([answer["probabilities"] for answer in model(texts)])


def main(model_dir, texts=256, rounds=5):
  print(machine.describe(), flush=True)
  models = [
    bert.load(model_dir, precision=precision, runtime=runtime)
    for runtime, precision in SIDES
  ]
  texts = make_texts(model_dir, int(texts), len(models[0].required) > 1)
  few = texts[: len(texts) // 8]
  reference = probabilities(models[0], texts)
  times = [([], []) for _ in SIDES]
  for number in range(int(rounds) + 1):
    for model, (together, single) in zip(models, times, strict=True):
      start = time.perf_counter()
      model(texts)
      middle = time.perf_counter()
      for text in few:
        model(text)
      end = time.perf_counter()
      if number:  # The first is for warming up.
        together.append(1000 * (middle - start) / len(texts))
        single.append(1000 * (end - middle) / len(few))
  for side, model, measured in zip(SIDES, models, times, strict=True):
    together, single = map(statistics.median, measured)
    difference = np.abs(probabilities(model, texts) - reference).max()
    print(
      f"{' '.join(side)}: {together:.2f} ms in a batch, {single:.2f} ms alone, "
      f"difference {difference:.1e}",
      flush=True,
    )


if __name__ == "__main__":
  main(*sys.argv[1:])
