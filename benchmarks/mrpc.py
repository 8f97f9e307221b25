"""The MRPC command as a whole, against the same trained the original's way.

    python benchmarks/mrpc.py BERT_DIR MRPC_DIR [SEEDS]

Runs run_classifier.py once a seed (3) and precision (batch 32, length 128, 3
epochs, learning rate 5e-5) and times the process. A run of original.py precedes
the first seed and follows each: its start to the first step, 342 more steps and
its evaluation count as the original's whole time.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import machine

STEPS = 343
PRECISIONS = ("float32", "bfloat16")


def original_seconds(bert_dir, data_dir):
  """What the whole takes the original's way."""
  script = os.path.join(os.path.dirname(__file__), "original.py")
  start = time.time()
  output = subprocess.run(
    [sys.executable, script, bert_dir, data_dir],
    check=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
  ).stdout
  found = json.loads(output)
  found["start"] = found.pop("first_step") - start
  print("original", json.dumps(found), flush=True)
  return found["start"] + (STEPS - 1) * found["step"] + found["evaluation"]


def run_command(bert_dir, data_dir, seed, precision):
  """Seconds of the whole, to the first update; accuracy; processor seconds."""
  with tempfile.TemporaryDirectory() as output_dir:
    command = [
      sys.executable,
      os.path.join(machine.ROOT, "run_classifier.py"),
      "--task_name=MRPC",
      "--do_train=true",
      "--do_eval=true",
      f"--data_dir={data_dir}",
      f"--vocab_file={bert_dir}/vocab.txt",
      f"--bert_config_file={bert_dir}/bert_config.json",
      f"--init_checkpoint={bert_dir}/bert_model.ckpt",
      "--max_seq_length=128",
      "--train_batch_size=32",
      "--learning_rate=5e-5",
      "--num_train_epochs=3",
      f"--seed={seed}",
      f"--precision={precision}",
      f"--output_dir={output_dir}",
    ]
    start = time.perf_counter()
    first = None
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in run.stderr:
      # Logged when the first update has been made.
      if first is None and ": loaded " in line:
        first = time.perf_counter() - start
    _, status, usage = os.wait4(run.pid, 0)
    assert status == 0
    whole = time.perf_counter() - start
    with open(f"{output_dir}/eval_results.txt", encoding="utf-8") as reader:
      accuracy = float(re.search("eval_accuracy = (.*)", reader.read())[1])
  return whole, first, accuracy, usage.ru_utime + usage.ru_stime


def main(bert_dir, data_dir, seeds=3):
  print(machine.describe(), flush=True)
  originals = [original_seconds(bert_dir, data_dir)]
  runs = {precision: [] for precision in PRECISIONS}
  for seed in range(1, seeds + 1):
    for precision in PRECISIONS:
      runs[precision].append(run_command(bert_dir, data_dir, seed, precision))
      print(precision, seed, *runs[precision][-1], flush=True)
    originals.append(original_seconds(bert_dir, data_dir))
  original = statistics.median(originals)
  print(f"the original's way: median {original:.0f} s")
  for precision in PRECISIONS:
    whole, first, accuracy, _ = zip(*runs[precision], strict=True)
    print(
      f"{precision}: median {statistics.median(whole):.0f} s, ratio "
      f"{original / statistics.median(whole):.2f}; first update after "
      f"{statistics.median(first):.1f} s; mean accuracy "
      f"{statistics.mean(accuracy):.3f}"
    )


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:3], *map(int, sys.argv[3:]))
