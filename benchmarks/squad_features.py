"""Compares making the windows of SQuAD's questions with a plain implementation.

    python benchmarks/squad_features.py VOCAB_FILE SQUAD_FILE... [ROUNDS]

The questions of the files are repeated, each time with new paragraphs, until
there are 10,000. Both sides turn them into windows for training (length 384,
stride 128, questions up to 64) in turns, in one process on one core, with the
same tokenizer class. The windows must be equal. Prints questions per second and
the ratio.
"""

import collections
import itertools
import os
import statistics
import sys
import time

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine
import plain_squad

import tokenization
from bert.tasks import squad

ROUNDS = 5
QUESTIONS = 10_000
SETTINGS = squad.ReadingSettings()


def ours(examples, tokenizer):
  """The windows that `squad.iterate_windows` makes."""
  return itertools.chain.from_iterable(
    squad.iterate_windows(examples, tokenizer, SETTINGS, True)
  )


def plain(examples, tokenizer):
  """The same windows, each question by itself."""
  unique_id = squad.FIRST_UNIQUE_ID
  for index, example in enumerate(examples):
    for features in plain_squad.plain_features(
      example,
      tokenizer,
      SETTINGS.max_seq_length,
      SETTINGS.doc_stride,
      SETTINGS.max_query_length,
      True,
    ):
      features.unique_id = unique_id
      features.example_index = index
      unique_id += 1
      yield features


def read(paths):
  """QUESTIONS examples; repetitions do not share paragraphs."""
  repetitions = (
    example
    for _ in itertools.count()
    for path in paths
    for example in squad.read_squad_examples(path, is_training=True)
  )
  return list(itertools.islice(repetitions, QUESTIONS))


def compare(vocab_file, examples, rounds):
  """Runs both sides in turns, checks that they agree, prints the times."""
  times = {ours: [], plain: []}
  for _ in range(rounds):
    for side, values in times.items():
      tokenizer = tokenization.FullTokenizer(vocab_file)
      start = time.perf_counter()
      collections.deque(side(examples, tokenizer), maxlen=0)
      values.append(time.perf_counter() - start)
  sides = (side(examples, tokenizer) for side in times)
  windows = 0
  for one, other in zip(*sides, strict=True):
    assert one == other, f"window {windows} differs"
    windows += 1
  for side, values in times.items():
    median = statistics.median(values)
    print(
      f"{side.__name__:6s} median {median:.3f} s (min {min(values):.3f}, max "
      f"{max(values):.3f}), {len(examples) / median:,.0f} questions/s"
    )
  ratios = [b / a for a, b in zip(*times.values(), strict=True)]
  print(
    f"ratio  median {statistics.median(ratios):.1f} over {rounds} rounds of "
    f"{len(examples):,} questions, {windows:,} windows; all equal"
  )


def main(vocab_file, *paths):
  rounds = ROUNDS
  if paths[-1].isdecimal():
    *paths, rounds = paths
  print(
    machine.describe().replace(f"{os.cpu_count()} cores", "1 core used"),
    flush=True,
  )
  compare(vocab_file, read(paths), int(rounds))


if __name__ == "__main__":
  if len(sys.argv) < 3:
    sys.exit(__doc__)
  main(*sys.argv[1:])
