"""Compares FullTokenizer with a straightforward implementation.

    python benchmarks/tokenizer.py VOCAB_FILE TEXT_FILE [GENERATED]

Both sides tokenize all lines of the text in turns on one core. Their pieces
must be equal, also those of GENERATED (0) generated texts: words and pieces of
the vocabulary and of the text, whole, cut and joined, between characters from
all of Unicode.
"""

import os
import random
import statistics
import sys
import unicodedata
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


def generate_texts(vocab_file, lines, count):
  """`count` texts of 1 to 12 parts, the same ones in each run."""
  rng = random.Random(1)
  with open(vocab_file, encoding="utf-8") as reader:
    words = reader.read().split("\n") + " ".join(lines).split()
  # Characters that text consists of, and with them all others.
  assigned = [
    chr(i)
    for i in range(sys.maxunicode + 1)
    if unicodedata.category(chr(i)) not in ("Cn", "Co", "Cs")
  ]
  common = [x for x in assigned if x < "\u0600"]

  def part():
    kind = rng.random()
    if kind < 0.3:
      return "".join(rng.choices(common, k=rng.randint(1, 6)))
    if kind < 0.5:
      return rng.choice(assigned) * rng.choice((1, 1, 1, 2, 250))
    word = rng.choice(words)
    return word.upper() if kind < 0.6 else word[: rng.randint(1, 20)]

  for _ in range(count):
    parts = (part() for _ in range(rng.randint(1, 12)))
    yield rng.choice((" ", " ", "")).join(parts)


def compare_generated(vocab_file, lines, count):
  """Ends with the first generated text that the sides tokenize otherwise."""
  expected, tokenize = plain(vocab_file), remembering(vocab_file)
  for text in generate_texts(vocab_file, lines, count):
    if tokenize(text) != expected(text):
      sys.exit(f"different pieces: {text!r}")
  print(f"equal pieces of {count:,} generated texts")


def main(vocab_file, text_file, generated=0):
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
  compare_generated(vocab_file, lines, generated)


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:3], *map(int, sys.argv[3:]))
