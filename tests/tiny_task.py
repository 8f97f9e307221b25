"""Tiny files for run_classifier.py, and the flags that name them."""

import json
import re
import shutil

import numpy as np

ROWS = {"train": 40, "dev": 11, "test": 7}

# Changes to a command that train nothing below the pooling layer of a model of
# one layer. The program of such a step is made in a third of the time.
HEAD_ONLY = {"freeze_layers": 1}


def make_files(folder, goldens):
  """Makes data/, a small MRPC, and model/, as an unzipped release has it.

  Of the golden model's two layers, the configuration has the first one only,
  which saves a quarter of the time. two_layers.json has both.
  """
  write_mrpc(folder / "data", goldens)
  shutil.copytree(goldens / "model", folder / "model")
  shutil.copy(goldens / "vocab.txt", folder / "model")
  config = folder / "model" / "bert_config.json"
  fields = json.loads(config.read_text())
  shutil.move(config, folder / "two_layers.json")
  config.write_text(json.dumps({**fields, "num_hidden_layers": 1}))
  return folder


def write_mrpc(folder, goldens):
  """MRPC's files with the first texts of the golden features."""
  folder.mkdir(parents=True)
  examples = {name: [] for name in ROWS}
  with open(goldens / "mrpc_features.jsonl", encoding="utf-8") as reader:
    for line in reader:
      example = json.loads(line)
      examples[example["split"]].append(example)
  for name, count in ROWS.items():
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    lines += [
      "\t".join((e["label"], "1", "2", e["text_a"], e["text_b"]))
      for e in examples[name][:count]
    ]
    write_lines(folder / f"{name}.tsv", lines)


def write_tsv(path, *rows, newline="\n"):
  """Writes rows, each a list of columns, into a folder that it makes."""
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "".join("\t".join(row) + newline for row in rows)
  path.write_bytes(text.encode())
  return path


def write_lines(path, lines):
  """Writes lines as UTF-8, each with its end."""
  path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def flags(files, out, **changes):
  """A command for MRPC, as changed; None leaves a flag out."""
  values = {
    "task_name": "MRPC",
    "data_dir": files / "data",
    "vocab_file": files / "model" / "vocab.txt",
    "bert_config_file": files / "model" / "bert_config.json",
    "init_checkpoint": files / "model" / "bert_model.ckpt",
    "max_seq_length": 48,
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_train_epochs": 2,
    "save_checkpoints_steps": 3,
    "output_dir": out,
    **changes,
  }
  return [f"--{k}={v}" for k, v in values.items() if v is not None]


def results(folder, suffix=""):
  """The metrics that an evaluation leaves in a folder, by name."""
  lines = (folder / f"eval_results{suffix}.txt").read_text().splitlines()
  assert lines == sorted(lines)
  return {name: float(v) for name, v in (line.split(" = ") for line in lines)}


def largest_changes(before, after):
  """How far vectors of each part of a model have moved, at most.

  Biases and LayerNorms have no weight decay, so a first update by Adam changes
  each element with a gradient by 0.1 g / sqrt(0.001 g^2) times the rate.

  Args:
    before, after: Checkpoints. New variables start from 0.

  Returns:
    Dict from "embeddings", "layer_0" and so on, and "head".
  """
  found = {}
  for name, shape in after.shapes.items():
    if len(shape) == 1 and not name.startswith("bert/pooler/"):
      is_new = name not in before.shapes
      old = np.zeros(shape) if is_new else before[name]
      part = re.match(r"bert/(embeddings|encoder/layer_\d+)/", name)
      part = part[1].removeprefix("encoder/") if part else "head"
      change = float(np.max(np.abs(after[name] - old)))
      found[part] = max(change, found.get(part, 0.0))
  return found
