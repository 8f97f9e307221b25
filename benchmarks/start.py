"""How long commands take to start, and to report an error.

    python benchmarks/start.py BERT_DIR MRPC_DIR [REPETITIONS] [ROOT]

Times, in turns: a process that only loads TensorFlow; run_classifier.py with a
wrong flag, and with a folder without data; and the same script from the command
to its first training step (batch 32). ROOT is another checkout to compare with.
BERT_DIR is the folder of a release.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine

# Logged when the first update has been made.
FIRST_STEP = ": loaded "


def timed(command, until=None):
  """Seconds until the process ends, or writes a line with the text `until`."""
  start = time.perf_counter()
  process = subprocess.Popen(
    command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
  )
  found = None
  for line in process.stderr:
    if until and until in line:
      found = time.perf_counter() - start
      process.kill()
  process.wait()
  assert not until or found, f"no line with {until!r}"
  return found or time.perf_counter() - start


def make_jobs(root, bert_dir, data_dir):
  """From the name of a job to a function that returns its seconds."""
  script = [sys.executable, os.path.join(root, "run_classifier.py")]
  good = [
    *script,
    "--task_name=MRPC",
    "--do_train",
    f"--vocab_file={bert_dir}/vocab.txt",
    f"--bert_config_file={bert_dir}/bert_config.json",
    f"--init_checkpoint={bert_dir}/bert_model.ckpt",
    "--learning_rate=5e-5",
  ]

  def first_step():
    with tempfile.TemporaryDirectory() as out:
      flags = [f"--data_dir={data_dir}", f"--output_dir={out}/out"]
      return timed([*good, *flags], FIRST_STEP)

  no_data = [*good, "--data_dir=/no/data", "--output_dir=/tmp/never_made"]
  return {
    "wrong flag": lambda: timed([*script, "--learning_rat=1"]),
    "no data": lambda: timed(no_data),
    "first step": first_step,
  }


def main(bert_dir, data_dir, repetitions=5, *others):
  print(machine.describe(), flush=True)
  tensorflow = [sys.executable, "-c", "import tensorflow"]
  jobs = {"import tensorflow": lambda: timed(tensorflow)}
  for root in (machine.ROOT, *others):
    for name, job in make_jobs(root, bert_dir, data_dir).items():
      jobs[f"{root}: {name}" if others else name] = job
  seconds = {name: [] for name in jobs}
  for _ in range(int(repetitions)):
    for name, job in jobs.items():
      seconds[name].append(job())
  for name, found in seconds.items():
    print(
      f"{statistics.median(found):6.2f} s ({min(found):.2f} to "
      f"{max(found):.2f})  {name}"
    )


if __name__ == "__main__":
  main(*sys.argv[1:])
