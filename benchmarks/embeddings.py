"""Training of vectors on pairs: whole commands, and sentence-transformers'.

    python benchmarks/embeddings.py MODEL_DIR TRAIN.jsonl DEV.jsonl
        [--torch=PYTHON] [--batch=32] [--epochs=1] [--parts=1] [--rounds=1]
        [--precision=float32]

MODEL_DIR is a folder of sentence-transformers, which both sides read; the files
have `text_a` and `text_b` on each line. With --parts, our side computes each
batch in so many parts. The sides take turns, on the same cores. Prints seconds,
processor time, peak memory in MiB, and MRR@10 of each command.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

import machine

FOLDER = os.path.dirname(os.path.abspath(__file__))


def run(name, command):
  """Runs a command, and prints what it took."""
  start = time.perf_counter()
  process = subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  )
  output = process.stdout.read()
  _, status, usage = os.wait4(process.pid, 0)
  seconds = time.perf_counter() - start
  found = re.findall(r"eval_mrr_at_10 = ([\d.]+)", output)
  if status or not found:
    sys.exit(output)
  processor = usage.ru_utime + usage.ru_stime
  print(
    f"{name}: {seconds:.1f} s ({processor:.1f} s of processor time), "
    f"{usage.ru_maxrss / 1024:.0f} MiB, MRR@10 {float(found[-1]):.4f}",
    flush=True,
  )


def ours(flags, seed, folder):
  """The command of this repository."""
  return [
    *(sys.executable, os.path.join(machine.ROOT, "run_embeddings.py")),
    *("--do_train", "--do_eval", f"--init_checkpoint={flags.model_dir}"),
    *(f"--train_file={flags.train_file}", f"--dev_file={flags.dev_file}"),
    *(f"--train_batch_size={flags.batch}", "--eval_batch_size=32"),
    *(f"--num_train_epochs={flags.epochs}", "--learning_rate=2e-5"),
    *("--max_seq_length=128", f"--gradient_accumulation_steps={flags.parts}"),
    *(f"--seed={seed}", f"--output_dir={folder}"),
    f"--precision={flags.precision}",
  ]


def theirs(flags, seed):
  """The command of sentence-transformers."""
  script = os.path.join(FOLDER, "torch_pairs.py")
  command = [flags.torch, script, flags.model_dir]
  command += [flags.train_file, flags.dev_file, f"--batch={flags.batch}"]
  command += [f"--epochs={flags.epochs}", f"--seed={seed}"]
  return command + ["--bf16"] * (flags.precision == "bfloat16")


def main():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("model_dir")
  parser.add_argument("train_file")
  parser.add_argument("dev_file")
  parser.add_argument("--torch")
  parser.add_argument("--batch", type=int, default=32)
  parser.add_argument("--epochs", type=float, default=1.0)
  parser.add_argument("--parts", type=int, default=1)
  parser.add_argument("--rounds", type=int, default=1)
  parser.add_argument("--precision", default="float32")
  flags = parser.parse_args()
  print(machine.describe())
  for seed in range(1, flags.rounds + 1):
    with tempfile.TemporaryDirectory() as folder:
      run("here", ours(flags, seed, folder))
    if flags.torch:
      run("sentence-transformers", theirs(flags, seed))


if __name__ == "__main__":
  main()
