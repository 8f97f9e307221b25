"""Compares one worker process with two on a large corpus.

    python benchmarks/pretraining_workers.py VOCAB_FILE TEXT_FILE [MB] [ROUNDS]

Repeats the text to a corpus of this size (200 MB) and runs
create_pretraining_data.py on shards of 4 MB with one and with two workers by
turns. Prints instances per second of the whole command, the ratio, and the peak
memory of all processes. The output files must be equal.
"""

import hashlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import machine

SCRIPT = pathlib.Path(__file__).parent.parent / "create_pretraining_data.py"
FLAGS = (
  "--shard_mb=4",
  "--max_seq_length=128",
  "--max_predictions_per_seq=20",
  "--dupe_factor=5",
)


def repeated(text_file, megabytes, folder):
  """A file of this size with repetitions of the text."""
  text = pathlib.Path(text_file).read_bytes().rstrip(b"\n") + b"\n\n"
  path = folder / "corpus.txt"
  with open(path, "wb") as writer:
    while writer.tell() < megabytes * 2**20:
      writer.write(text)
  return path


def memory(pid):
  """MB of a process and its descendants, counting shared memory once."""
  parents = {}
  for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
      parents[int(path.parent.name)] = int(
        path.read_text().rsplit(")", 1)[1].split()[1]
      )
    except OSError:
      continue  # It has ended meanwhile.
  family = {pid}
  while more := {p for p in parents if parents[p] in family} - family:
    family |= more
  total = 0
  for member in family:
    try:
      lines = pathlib.Path(f"/proc/{member}/smaps_rollup").read_text()
    except OSError:
      continue
    total += int(lines.split("\nPss:")[1].split()[0]) if "Pss:" in lines else 0
  return total / 1024


def run(workers, vocab_file, corpus, output):
  """Seconds, instances and peak memory in MB of the command."""
  start = time.perf_counter()
  process = subprocess.Popen(
    [
      sys.executable,
      str(SCRIPT),
      f"--num_workers={workers}",
      f"--vocab_file={vocab_file}",
      f"--input_file={corpus}",
      f"--output_file={output}",
      *FLAGS,
    ],
    stderr=subprocess.PIPE,
    text=True,
  )
  peaks = [0]

  def watch():
    while process.poll() is None:
      peaks.append(memory(process.pid))
      time.sleep(4)  # Measuring takes time from the workers.

  threading.Thread(target=watch).start()
  log = process.stderr.read()
  process.wait()
  seconds = time.perf_counter() - start
  assert process.returncode == 0, log
  count = log.split(" examples of ")[0].split()[-1]
  instances = int(count.replace(",", ""))
  return seconds, instances, max(peaks)


def _digest(reader):
  digest = hashlib.sha256()
  while chunk := reader.read(2**20):
    digest.update(chunk)
  return digest.digest()


def main(vocab_file, text_file, megabytes=200, rounds=1):
  times, digests = {1: [], 2: []}, set()
  print(machine.describe())
  with tempfile.TemporaryDirectory() as folder:
    corpus = repeated(text_file, int(megabytes), pathlib.Path(folder))
    output = os.path.join(folder, "records")
    for _ in range(int(rounds)):
      for workers, seconds in times.items():
        result, instances, peak = run(workers, vocab_file, corpus, output)
        seconds.append(result)
        with open(output, "rb") as reader:
          digests.add(_digest(reader))
        print(
          f"{workers} worker{'s' * (workers > 1)}: {result:.1f} s, "
          f"{instances / result:,.0f} instances/s, {peak:.0f} MB",
          flush=True,
        )
  assert len(digests) == 1
  ratios = [a / b for a, b in zip(*times.values(), strict=True)]
  print(f"ratio: median {statistics.median(ratios):.2f}; files equal")


if __name__ == "__main__":
  if not 3 <= len(sys.argv) <= 5:
    sys.exit(__doc__)
  main(*sys.argv[1:])
