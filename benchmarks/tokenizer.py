"""Compares FullTokenizer with a straightforward implementation.

    python benchmarks/tokenizer.py VOCAB_FILE TEXT_FILE

Both sides tokenize all lines of the text in turns on one core. Their pieces
must be equal.
"""

import os
import statistics
import sys
import time

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine
import plain_tokenizer

import tokenization

REPETITIONS = 5


def plain(vocab_file):
  """A tokenizer function that examines every character of every word."""
  return plain_tokenizer.make_tokenizer(vocab_file)


def remembering(vocab_file):
  """A new FullTokenizer, with an empty cache."""
  return tokenization.FullTokenizer(vocab_file, do_lower_case=True).tokenize


def main(vocab_file, text_file):
  with open(text_file, encoding="utf-8") as reader:
    lines = reader.read().split("\n")
  times = {plain: [], remembering: []}
  for _ in range(REPETITIONS):
    outputs = []
    for side in times:
      tokenize = side(vocab_file)
      start = time.perf_counter()
      outputs.append([tokenize(line) for line in lines])
      times[side].append(time.perf_counter() - start)
    assert outputs[0] == outputs[1]
  count = sum(map(len, outputs[0]))
  print(machine.describe().replace(f"{os.cpu_count()} cores", "1 core used"))
  for side, values in times.items():
    median = statistics.median(values)
    print(
      f"{side.__name__:12s} median {median:.3f} s (min {min(values):.3f}, max "
      f"{max(values):.3f}), {count / median / 1e6:.2f} M pieces/s"
    )
  ratios = [a / b for a, b in zip(*times.values(), strict=True)]
  print(f"ratio        median {statistics.median(ratios):.1f}; output equal")


if __name__ == "__main__":
  if len(sys.argv) != 3:
    sys.exit(__doc__)
  main(*sys.argv[1:])
