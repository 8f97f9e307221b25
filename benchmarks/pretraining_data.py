"""Speed of create_pretraining_data.py with one worker process and with several.

    python benchmarks/pretraining_data.py VOCAB_FILE TEXT_FILE [MB] [WORKERS]
        [ROUNDS]

Repeats the text to a corpus of MB (200) megabytes, and creates examples in
shards of 4 MB with one worker and with WORKERS (2) in turns. Prints the seconds
of ROUNDS (1) rounds of the whole command, and examples per second. The output
files must be equal.
"""

import functools
import hashlib
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import machine

FLAGS = (
  "--shard_mb=4",
  "--max_seq_length=128",
  "--max_predictions_per_seq=20",
  "--dupe_factor=5",
)


def write_corpus(path, text_file, megabytes):
  """Writes repetitions of the text, each a document of its own at the end."""
  text = pathlib.Path(text_file).read_bytes().rstrip(b"\n") + b"\n\n"
  with open(path, "wb") as writer:
    while writer.tell() < megabytes * 2**20:
      writer.write(text)


def create(folder, vocab_file, workers):
  """Runs the command; returns the number of examples and a hash of the file."""
  log = subprocess.run(
    [
      sys.executable,
      f"{machine.ROOT}/create_pretraining_data.py",
      f"--num_workers={workers}",
      f"--vocab_file={vocab_file}",
      f"--input_file={folder}/corpus.txt",
      f"--output_file={folder}/records",
      *FLAGS,
    ],
    check=True,
    stderr=subprocess.PIPE,
    text=True,
  ).stderr
  with open(f"{folder}/records", "rb") as reader:
    digest = hashlib.file_digest(reader, "sha256").hexdigest()
  return int(
    re.search(r"([\d,]+) examples of ", log)[1].replace(",", "")
  ), digest


def main(vocab_file, text_file, megabytes=200, workers=2, rounds=1):
  print(machine.describe(), flush=True)
  results = set()
  with tempfile.TemporaryDirectory() as folder:
    write_corpus(f"{folder}/corpus.txt", text_file, int(megabytes))

    def run(count):
      results.add(create(folder, vocab_file, count))

    sides = {
      f"workers: {count}": functools.partial(
        machine.timed, functools.partial(run, count)
      )
      for count in (1, int(workers))
    }
    times = machine.in_turns(sides, int(rounds))
  assert len(results) == 1, "the files differ"
  ((examples, _),) = results
  for name, found in times.items():
    print(f"{name}, {examples / statistics.median(found):,.0f} examples/s")


if __name__ == "__main__":
  if not 3 <= len(sys.argv) <= 6:
    sys.exit(__doc__)
  main(*sys.argv[1:])
