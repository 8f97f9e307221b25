"""Time from a command to its first training step, and to an error.

    python benchmarks/start.py [LAYERS HIDDEN ROUNDS]

Times, in turns: a process that only imports TensorFlow; run_classifier.py with
a wrong flag, and with a missing file; and the same script up to its first
training step (32 rows) with a model with random weights, by default 6 layers of
width 384. Prints the seconds of ROUNDS (5) rounds.
"""

import os
import subprocess
import sys
import tempfile
import time

import machine

# Logged after the first update.
FIRST_STEP = ": loaded "


def timed(command, until=None):
  """Seconds until the process ends, or logs a line with the text `until`."""
  start = time.perf_counter()
  process = subprocess.Popen(
    command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
  )
  found = None
  for line in process.stderr:
    if until and not found and until in line:
      found = time.perf_counter() - start
      process.kill()
  process.wait()
  assert not until or found, f"no line with {until!r}"
  return found or time.perf_counter() - start


def main(layers=6, hidden=384, rounds=5):
  print(machine.describe(), flush=True)
  script = [sys.executable, os.path.join(machine.ROOT, "run_classifier.py")]
  with tempfile.TemporaryDirectory() as folder:
    machine.write_model(f"{folder}/model", layers, hidden)
    machine.write_table(f"{folder}/train.tsv", machine.make_texts(512))

    def train(table, until=None):
      with tempfile.TemporaryDirectory() as output_dir:
        flags = [
          "--task_name=custom",
          "--do_train",
          f"--train_file={table}",
          f"--init_checkpoint={folder}/model",
          f"--output_dir={output_dir}/out",
        ]
        return timed([*script, *flags], until)

    sides = {
      "import tensorflow": lambda: timed(
        [sys.executable, "-c", "import tensorflow"]
      ),
      "wrong flag": lambda: timed([*script, "--learning_rat=1"]),
      "missing file": lambda: train("/no/such/table.tsv"),
      "first step": lambda: train(f"{folder}/train.tsv", FIRST_STEP),
    }
    machine.in_turns(sides, rounds)


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
