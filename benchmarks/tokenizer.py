"""Speed of FullTokenizer, on one core.

    python benchmarks/tokenizer.py VOCAB_FILE TEXT_FILE [ROUNDS]

Tokenizes all lines of the text with a new tokenizer, whose cache is empty, and
again with the same one. If the package tokenizers is installed, its
BertWordPieceTokenizer takes turns. Prints the seconds of ROUNDS (5) rounds, and
megabytes per second.
"""

import os
import statistics
import sys

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine

import tokenization


def make_sides(vocab_file, lines):
  """Functions that return the seconds of a pass over the lines."""
  tokenizer = None

  def tokenize():
    for line in lines:
      tokenizer.tokenize(line)

  def first():
    nonlocal tokenizer
    tokenizer = tokenization.FullTokenizer(vocab_file)
    return machine.timed(tokenize)

  sides = {"first pass": first, "second pass": lambda: machine.timed(tokenize)}
  try:
    from tokenizers import BertWordPieceTokenizer
  except ImportError:
    return sides
  peer = BertWordPieceTokenizer(vocab_file)

  def encode():
    for line in lines:
      peer.encode(line)

  sides["tokenizers"] = lambda: machine.timed(encode)
  return sides


def main(vocab_file, text_file, rounds=5):
  with open(text_file, encoding="utf-8") as reader:
    lines = reader.read().split("\n")
  megabytes = os.path.getsize(text_file) / 1e6
  print(f"{machine.describe()}; 1 core used", flush=True)
  times = machine.in_turns(make_sides(vocab_file, lines), int(rounds))
  for name, found in times.items():
    print(f"{name}: {megabytes / statistics.median(found):.1f} MB/s")


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:])
