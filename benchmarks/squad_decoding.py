"""Compares finding SQuAD's answers from logits with a plain implementation.

    python benchmarks/squad_decoding.py VOCAB_FILE SQUAD_FILE [ROUNDS]

The questions of the file are repeated until there are 10,000, in windows of 384
with a stride of 128. Their logits are noise with a peak at the start and at the
end of a random answer of up to 8 pieces, like those of a trained model. Both
sides find the 20 best answers in turns, in one process on one core; the plain
side those of the first 500 questions. Their answers must be equal. Prints
questions per second and the ratio.
"""

import itertools
import os
import statistics
import sys
import time

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine
import numpy as np
import plain_squad

import tokenization
from bert.tasks import squad, squad_decoding

ROUNDS = 5
QUESTIONS = 10_000
PLAIN_QUESTIONS = 500
SETTINGS = squad_decoding.DecodingSettings()


def peaked(rng, length, peak):
  """Logits float32 [length]: noise, and about 10 more at the peak."""
  distance = np.abs(np.arange(length) - peak)
  noise = rng.normal(-5, 1.5, length)
  return (noise + 10 * np.exp(-distance / 1.5)).astype(np.float32)


def make_result(rng, window):
  """The RawResult of a window."""
  length = len(window.tokens)
  start = rng.integers(1, length)
  end = min(start + rng.integers(0, 8), length - 1)
  logits = (peaked(rng, length, position) for position in (start, end))
  return squad_decoding.RawResult(window.unique_id, *logits)


def read(vocab_file, squad_file):
  """QUESTIONS triples of an example, its windows and their results."""
  examples = squad.read_squad_examples(squad_file, is_training=False)
  examples = list(itertools.islice(itertools.cycle(examples), QUESTIONS))
  tokenizer = tokenization.FullTokenizer(vocab_file)
  windows = squad.iterate_windows(
    examples, tokenizer, squad.ReadingSettings(), False
  )
  rng = np.random.default_rng(1)
  return [
    (example, own, [make_result(rng, window) for window in own])
    for example, own in zip(examples, windows, strict=True)
  ]


def ours(example, windows, results):
  """The n best (text, probability) of `squad_decoding`."""
  answer = squad_decoding.answer_question(example, windows, results, SETTINGS)
  return [(entry.text, entry.probability) for entry in answer.nbest]


def plain(example, windows, results):
  """The same, each span by itself."""
  return plain_squad.plain_answers(
    example, windows, results, SETTINGS.n_best_size, SETTINGS.max_answer_length
  )


def compare(questions, rounds):
  """Runs both sides in turns, checks that they agree, prints the rates."""
  rates = {ours: [], plain: []}
  parts = {ours: questions, plain: questions[:PLAIN_QUESTIONS]}
  for _ in range(rounds):
    found = {}
    for side, part in parts.items():
      start = time.perf_counter()
      found[side] = [side(*question) for question in part]
      rates[side].append(len(part) / (time.perf_counter() - start))
  for own, other in zip(*found.values(), strict=False):
    if other:  # Without any allowed span, ours has an answer of its own.
      assert [text for text, _ in own] == [text for text, _ in other]
      assert np.allclose([p for _, p in own], [p for _, p in other])
  for side, values in rates.items():
    print(
      f"{side.__name__:6s} median {statistics.median(values):,.0f} "
      f"questions/s (min {min(values):,.0f}, max {max(values):,.0f})"
    )
  ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
  print(f"ratio  median {statistics.median(ratios):.1f}; answers equal")


def main(vocab_file, squad_file, rounds=ROUNDS):
  print(
    machine.describe().replace(f"{os.cpu_count()} cores", "1 core used"),
    flush=True,
  )
  compare(read(vocab_file, squad_file), int(rounds))


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:])
