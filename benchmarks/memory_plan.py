"""Compares the memory that --dry_run predicts with the measured peak.

    python benchmarks/memory_plan.py MRPC_DIR VOCAB_FILE

Plans a classifier of three sizes with random weights, each in a process of its
own, and prints the predicted and the measured peak, and their ratio.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import machine

ROOT = pathlib.Path(__file__).parent.parent

# Layers, width, rows of a batch, other flags.
CASES = (
  (2, 128, 32),
  (6, 384, 32),
  (6, 384, 64, "--gradient_accumulation_steps=4"),
  (6, 384, 32, "--gradient_checkpointing"),
  (6, 384, 32, "--precision=bfloat16"),
  (12, 768, 8),
  (12, 768, 16, "--gradient_checkpointing"),
)


def plan(folder, data_dir, vocab_file, layers, width, batch_size, *flags):
  """The predicted and the measured peak, in GB."""
  config = {
    "vocab_size": len(pathlib.Path(vocab_file).read_text().splitlines()),
    "hidden_size": width,
    "num_hidden_layers": layers,
    "num_attention_heads": width // 64,
    "intermediate_size": 4 * width,
    "type_vocab_size": 2,
  }
  path = pathlib.Path(folder, "bert_config.json")
  path.write_text(json.dumps(config))
  printed = subprocess.run(
    [
      sys.executable,
      str(ROOT / "run_classifier.py"),
      "--task_name=MRPC",
      f"--data_dir={data_dir}",
      f"--vocab_file={vocab_file}",
      f"--bert_config_file={path}",
      f"--output_dir={folder}/out",
      f"--train_batch_size={batch_size}",
      "--do_train",
      "--dry_run",
      *flags,
    ],
    check=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  ).stdout
  return [
    float(re.search(rf"{name} peak +(.*) GB", printed)[1])
    for name in ("predicted", "measured")
  ]


def main(data_dir, vocab_file):
  print(machine.describe())
  print("| model | batch | flags | predicted | measured | ratio |")
  print("| --- | --- | --- | --- | --- | --- |")
  for layers, width, batch_size, *flags in CASES:
    with tempfile.TemporaryDirectory() as folder:
      predicted, measured = plan(
        folder, data_dir, vocab_file, layers, width, batch_size, *flags
      )
    print(
      f"| {layers} × {width} | {batch_size} | {' '.join(flags)} | "
      f"{predicted:.2f} GB | {measured:.2f} GB | {predicted / measured:.2f} |",
      flush=True,
    )


if __name__ == "__main__":
  main(*sys.argv[1:])
