"""What a run was given, in `flags.json`, and what it found, `eval_results`."""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from errors import UserError
from pipeline import files
from training import checkpoints

RECORD_NAME = "flags.json"

# Flags that name files whose content counts, and not their place.
_FILE_FLAGS = ("vocab_file", "spm_model_file", "bert_config_file")

# What a training that goes on must not change: the files beside the weights say
# how the model reads.
_READING_FLAGS = (
  "do_lower_case",
  "max_seq_length",
  "long_text",
  "doc_stride",
  "max_query_length",
  "version_2_with_negative",
)

# What may change between two runs without a change to the trained weights.
_FREE_FLAGS = re.compile(
  "do_(train|eval|predict)|.*_dir|.*_file|init_checkpoint|log_steps|tpu_.*|"
  "save_checkpoints_steps|keep_checkpoint_max|(eval|predict)_batch_size|"
  "num_seeds|max_eval_steps|n_best_size|max_answer_length|interactive|"
  "null_score_diff_threshold|exact_answer_text|verbose_logging"
)


def make_record(
  flags: Mapping[str, object], data: Mapping[str, str]
) -> dict[str, dict]:
  """What `flags.json` is to hold.

  Args:
    flags: all flags by name.
    data: dict from name to SHA-256 of the examples that were read.
  """
  paths = {name: flags[name] for name in _FILE_FLAGS if flags[name]}
  if flags["init_checkpoint"]:
    prefix = checkpoints.find_checkpoint(flags["init_checkpoint"])
    # The index holds a checksum of every variable.
    paths["init_checkpoint"] = prefix + ".index"
  return {
    "flags": dict(flags),
    "versions": {
      "python": platform.python_version(),
      "tensorflow": tf.__version__,
      "numpy": np.__version__,
      "scikit-learn": importlib.metadata.version("scikit-learn"),
      "platform": platform.platform(),
    },
    "data": {**data, **{name: _sha256(path) for name, path in paths.items()}},
  }


def keep_record(
  output_dir: str, record: Mapping[str, dict], is_training: bool, goes_on: bool
) -> Mapping[str, dict]:
  """Writes a record, unless there is one of the training that is used.

  Where that training was given other flags, each is logged.

  Args:
    output_dir: an existing folder.
    record: what `make_record` returned.
    is_training: whether this run trains.
    goes_on: whether the folder holds a checkpoint to go on from.

  Returns:
    What the file now holds.

  Raises:
    ValueError: the training that is to go on was of another task or of other
      examples, or read them otherwise; or the file is damaged.
  """
  path = os.path.join(output_dir, RECORD_NAME)
  if tf.io.gfile.exists(path):
    earlier = _read(path)
    if not is_training:
      return earlier
    if goes_on:
      _compare(output_dir, earlier, record)
      return earlier
  files.write_file(
    path, json.dumps(record, indent=2, ensure_ascii=False) + "\n"
  )
  return record


def write_results(
  stem: str, results: Mapping[str, float], details: Mapping | None = None
) -> None:
  """Writes STEM.txt, as the original has it, and STEM.json, with more.

  Args:
    stem: path of both files, without what is behind the dot.
    results: dict of numbers.
    details: what the second one also holds.
  """
  lines = [f"{key} = {results[key]}" for key in sorted(results)]
  files.write_file(f"{stem}.txt", "\n".join(lines) + "\n")
  logging.info("%s.txt: %s", stem, ", ".join(lines))
  content = {"results": dict(results), **(details or {})}
  files.write_file(
    f"{stem}.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n"
  )


def _sha256(path):
  with tf.io.gfile.GFile(path, "rb") as reader:
    return hashlib.sha256(reader.read()).hexdigest()


def _read(path):
  with tf.io.gfile.GFile(path, "rb") as reader:
    content = reader.read()
  try:
    record = json.loads(content)
    if all(isinstance(record[kind], dict) for kind in ("flags", "data")):
      return record
  except (ValueError, TypeError, KeyError):
    pass
  raise UserError(f"{path} is damaged; delete it, and it is written anew")


def _compare(output_dir, earlier, record):
  """Logs other flags; raises ValueError for other examples or windows."""
  before, now = earlier["flags"], record["flags"]
  same_task = before.get("task_name") == now["task_name"]
  train = [r["data"].get("train") for r in (earlier, record)]
  if not same_task or (None not in train and train[0] != train[1]):
    what = "other examples" if same_task else before.get("task_name")
    raise UserError(
      f"--output_dir={output_dir} holds a training on {what}; pass another "
      f"folder, or the task and data that it began with"
    )
  for name in _READING_FLAGS:
    if name in before and before[name] != now.get(name):
      raise UserError(
        f"--{name}={now.get(name)}: the training in {output_dir} began with "
        f"{before[name]}; pass that, or another --output_dir"
      )
  for name in sorted(before.keys() & now.keys()):
    if before[name] != now[name] and not _FREE_FLAGS.fullmatch(name):
      logging.warning(
        "--%s=%s: the training in %s began with %s; to train anew, pass "
        "another --output_dir",
        name,
        now[name],
        output_dir,
        before[name],
      )
