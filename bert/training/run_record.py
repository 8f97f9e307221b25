"""The record of a run, `flags.json`, and its results, `eval_results`."""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from bert.errors import UserError
from bert.data import files
from bert.training import checkpoints

RECORD_NAME = "flags.json"

# Flags that name files whose content is recorded.
_FILE_FLAGS = ("vocab_file", "spm_model_file", "bert_config_file")

# Files of word pieces: another one gives texts other ids.
_VOCABULARIES = ("vocab_file", "spm_model_file")

# Flags that must not change when a training continues, because the files
# beside the weights depend on them.
_READING_FLAGS = (
  "max_seq_length",
  "long_text",
  "doc_stride",
  "max_query_length",
  "version_2_with_negative",
  "label_all_tokens",
  "max_context",
)

# Flags that select rows of --train_file for training, without --dev_file.
_SAMPLE_FLAGS = ("seed", "dev_fraction")

# Flags that do not affect the trained weights.
_FREE_FLAGS = re.compile(
  "do_(train|eval|predict)|.*_dir|.*_file|init_checkpoint|log_steps|tpu_.*|"
  "master|gcp_project|num_tpu_cores|"
  "save_checkpoints_steps|keep_checkpoint_max|(eval|predict)_batch_size|"
  "num_seeds|max_eval_steps|n_best_size|max_answer_length|interactive|"
  "null_score_diff_threshold|verbose_logging|gradient_checkpointing|"
  "iterations_per_loop|offline|"
  "distribution_strategy|worker_timeout"
)


def make_record(
  flags: Mapping[str, object], data: Mapping[str, str]
) -> dict[str, dict | list]:
  """Returns the content of `flags.json`.

  Args:
    flags: all flags by name.
    data: dict from name to SHA-256 of the examples that were read.
  """
  hashes = {name: _hash(flags[name]) for name in _FILE_FLAGS if flags[name]}
  if flags["init_checkpoint"]:
    hashes["init_checkpoint"] = hash_of_weights(flags["init_checkpoint"])
  return {
    "flags": dict(flags),
    "versions": {
      "python": platform.python_version(),
      "tensorflow": tf.__version__,
      "numpy": np.__version__,
      "scikit-learn": importlib.metadata.version("scikit-learn"),
      "platform": platform.platform(),
    },
    "data": {**data, **hashes},
    "changes": {},
  }


def hash_of_weights(checkpoint: str) -> str:
  """SHA-256 that tells the weights of a checkpoint from others.

  Args:
    checkpoint: prefix or folder.
  """
  # The first file is the index, which holds a checksum of every variable.
  return _hash(checkpoints.checkpoint_files(checkpoint)[0])


def _hash(path):
  return hashlib.sha256(files.read_bytes(path)).hexdigest()


def keep_record(
  output_dir: str,
  record: Mapping[str, dict | list],
  is_training: bool,
  continues: bool,
) -> Mapping[str, dict | list]:
  """Writes a record, or keeps the one of an earlier training that is used.

  Flags that differ from those of a training that continues are logged.

  Args:
    output_dir: an existing folder.
    record: what `make_record` returned.
    is_training: whether this run trains.
    continues: whether the folder holds a checkpoint to continue from.

  Returns:
    The content of the file.

  Raises:
    UserError: a training that continues has another task, other examples,
      another vocabulary or other flags that affect how text is read; or the
      file is damaged.
  """
  earlier = read_record(output_dir)
  if earlier:
    if is_training and continues:
      check_record(output_dir, record)
      _log_changes(output_dir, earlier, record)
    is_of_training = earlier["flags"].get("do_train", True)
    if continues or (is_of_training and not is_training):
      return earlier
  _write_json(os.path.join(output_dir, RECORD_NAME), record)
  return record


def note_changes(
  output_dir: str, kept: dict[str, dict | list], flags: Mapping, step: int
) -> None:
  """Adds the flags that differ after a step to the record of a training.

  Changes at this step or later are of updates that were lost, and are removed.

  Args:
    output_dir: its folder.
    kept: its record, from `keep_record`, which is changed.
    flags: all flags by name.
    step: updates until now.
  """
  changes = {k: v for k, v in kept["changes"].items() if int(k) < step}
  known = dict(kept["flags"])
  for earlier in changes.values():
    known |= earlier
  changed = {
    name: value
    for name, value in flags.items()
    if known.get(name, value) != value and not _FREE_FLAGS.fullmatch(name)
  }
  if changed:
    changes[str(step)] = changed
  if changes != kept["changes"]:
    kept["changes"] = changes
    _write_json(os.path.join(output_dir, RECORD_NAME), kept)


def write_results(
  stem: str, results: Mapping[str, float], details: Mapping | None = None
) -> None:
  """Writes STEM.txt, in the original's format, and STEM.json, with details.

  Args:
    stem: path of both files, without extension.
    results: dict of numbers.
    details: further entries of STEM.json.
  """
  lines = [f"{key} = {results[key]}" for key in sorted(results)]
  # First, because it says which predictions the results are of.
  content = _finite({"results": dict(results), **(details or {})})
  _write_json(f"{stem}.json", content)
  files.write_file(f"{stem}.txt", "\n".join(lines) + "\n")
  logging.info("%s.txt: %s", stem, ", ".join(lines))


def _write_json(path, content):
  text = json.dumps(content, indent=2, ensure_ascii=False)
  files.write_file(path, text + "\n")


def _finite(content):
  """The content with null for infinity and NaN, which JSON does not have."""
  if isinstance(content, Mapping):
    return {name: _finite(value) for name, value in content.items()}
  if isinstance(content, (list, tuple)):
    return [_finite(value) for value in content]
  is_number = isinstance(content, float)
  return None if is_number and not math.isfinite(content) else content


def read_record(output_dir: str) -> dict[str, dict | list] | None:
  """The content of a folder's `flags.json`; None without the file.

  Raises:
    UserError: the file is damaged.
  """
  path = os.path.join(output_dir, RECORD_NAME)
  if not files.exists(path):
    return None
  try:
    record = json.loads(files.read_bytes(path))
    notes = record.setdefault("changes", {})
    found = [record["flags"], record["data"], notes, *notes.values()]
    are_steps = all(step.isdecimal() for step in notes)
    if are_steps and all(isinstance(fields, dict) for fields in found):
      return record
  except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
    pass
  raise UserError(f"{path} is damaged; delete it, and it is written again")


def check_record(output_dir: str, record: Mapping[str, dict | list]) -> None:
  """Raises UserError unless a training can continue; see `keep_record`."""
  earlier = read_record(output_dir)
  if not earlier:
    return
  before, now = earlier["flags"], record["flags"]
  tasks = (str(flags.get("task_name")).lower() for flags in (before, now))
  same_task = len(set(tasks)) == 1
  train = [r["data"].get("train") for r in (earlier, record)]
  if not same_task or (None not in train and train[0] != train[1]):
    if same_task:
      _check_sample(output_dir, before, now)
    what = "other examples" if same_task else before.get("task_name")
    raise UserError(
      f"--output_dir={output_dir} holds a training on {what}; pass another "
      f"folder, or the task and data that it began with"
    )
  check_same_vocabulary(output_dir, record)
  for name in _READING_FLAGS:
    _check_same(name, output_dir, before, now)


def check_same_vocabulary(
  output_dir: str, record: Mapping[str, dict | list]
) -> None:
  """Raises UserError unless texts get the ids that they had in a training.

  Args:
    output_dir: its folder.
    record: that of another run, from `make_record`.
  """
  earlier = read_record(output_dir)
  if not earlier:
    return
  before, now = earlier["flags"], record["flags"]
  _check_same("do_lower_case", output_dir, before, now)
  hashes, new_hashes = earlier["data"], record["data"]
  is_known = any(name in hashes for name in _VOCABULARIES)
  for name in _VOCABULARIES:
    if is_known and name in new_hashes and hashes.get(name) != new_hashes[name]:
      raise UserError(
        f"--{name}={now[name]} is not the file that the training in "
        f"{output_dir} began with; pass that, or another --output_dir"
      )


def _check_same(name, output_dir, before, now):
  """Raises UserError if a flag differs from that of a training."""
  if name in before and before[name] != now.get(name):
    raise UserError(
      f"--{name}={now.get(name)}: the training in {output_dir} began with "
      f"{before[name]}; pass that, or another --output_dir"
    )


def _check_sample(output_dir, before, now):
  """Raises UserError if flags select other rows of --train_file than before."""
  for flags in (before, now):
    is_table = "dev_fraction" in flags and flags.get("train_file")
    if not is_table or flags.get("dev_file"):
      return
  for name in _SAMPLE_FLAGS:
    if name in before and before[name] != now[name]:
      raise UserError(
        f"--{name}={now[name]} selects other training examples: the training "
        f"in {output_dir} began with {before[name]}; pass that, or another "
        f"--output_dir"
      )


def _log_changes(output_dir, earlier, record):
  """Logs flags and files that differ from those of the training."""
  began = f"the training in {output_dir} began with"
  before, now = earlier["flags"], record["flags"]
  for name in sorted(before.keys() & now.keys()):
    if before[name] != now[name] and not _FREE_FLAGS.fullmatch(name):
      logging.warning(
        f"--{name}={now[name]}: {began} {before[name]}; to start a new "
        f"training, pass another --output_dir"
      )
  before, now = earlier["data"], record["data"]
  for name in sorted(before.keys() & now.keys() - {*_VOCABULARIES}):
    what = "--bert_config_file" if name == "bert_config_file" else None
    what = f"The {name} set" if name.startswith("dev") else what
    if what and before[name] != now[name]:
      logging.warning(
        f"{what} is not the one that {began}; to start a new training, pass "
        f"another --output_dir"
      )
