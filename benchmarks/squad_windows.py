"""Speed of making the windows of SQuAD's questions, on one core.

    python benchmarks/squad_windows.py VOCAB_FILE SQUAD_FILE [QUESTIONS]
        [ROUNDS]

Repeats the questions of the file up to QUESTIONS (10,000), and converts them to
windows for training (length 384, stride 128, questions of up to 64 pieces).
Prints the seconds of ROUNDS (5) rounds, and questions per second.
"""

import itertools
import os
import statistics
import sys

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine

import run_squad
import tokenization


def read(path, count):
  """This number of examples; repetitions do not share paragraphs."""
  repetitions = (
    example
    for _ in itertools.count()
    for example in run_squad.read_squad_examples(path, is_training=True)
  )
  return list(itertools.islice(repetitions, count))


def main(vocab_file, squad_file, questions=10_000, rounds=5):
  print(f"{machine.describe()}; 1 core used", flush=True)
  examples = read(squad_file, int(questions))
  windows = []

  def convert():
    windows.clear()
    tokenizer = tokenization.FullTokenizer(vocab_file)
    run_squad.convert_examples_to_features(
      examples, tokenizer, 384, 128, 64, True, windows.append
    )

  sides = {"windows": lambda: machine.timed(convert)}
  (times,) = machine.in_turns(sides, int(rounds)).values()
  print(
    f"{len(examples):,} questions, {len(windows):,} windows: "
    f"{len(examples) / statistics.median(times):,.0f} questions/s"
  )


if __name__ == "__main__":
  if not 3 <= len(sys.argv) <= 5:
    sys.exit(__doc__)
  main(*sys.argv[1:])
