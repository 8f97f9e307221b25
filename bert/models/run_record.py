"""The record of a run, `flags.json`, and its results, `eval_results`."""

import math
import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

import bert
from bert import strict_json
from bert.data import files
from bert.errors import UserError, listing
from bert.flags.values import Flags
from bert.models import checkpoints

RECORD_NAME = "flags.json"

# Flags that name files whose content is recorded.
_FILE_FLAGS = ("vocab_file", "spm_model_file", "bert_config_file")

# Files of word pieces: another one gives texts other ids.
_VOCABULARIES = ("vocab_file", "spm_model_file")

# The largest float32.
_LARGEST = float(np.finfo(np.float32).max)


class RunRecord:
  """The record of a run, to compare with that of an earlier run in its folder.

  `data` has the SHA-256 of each data set, and `examples` their numbers;
  `content` is that of flags.json.
  """

  def __init__(
    self,
    flags: Flags,
    data: Mapping[str, str],
    examples: Mapping[str, int] | None = None,
  ):
    from importlib import metadata  # Commands that do not train start faster.

    self._rows = flags.rows
    hashes = {
      name: files.hash_of(flags[name]) for name in _FILE_FLAGS if flags[name]
    }
    if flags.init_checkpoint:
      hashes["init_checkpoint"] = checkpoints.hash_of_weights(
        flags.init_checkpoint
      )
    self.content = {
      "flags": dict(sorted(flags.values.items())),
      "given": dict(sorted(flags.given.items())),
      "versions": {
        "bert": bert.__version__,
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "scikit-learn": metadata.version("scikit-learn"),
        "platform": platform.platform(),
      },
      "data": {**data, **hashes},
      "examples": dict(examples or {}),
      "changes": {},
    }

  def keep(
    self, output_dir: str, is_training: bool, continues: bool
  ) -> dict[str, dict]:
    """Writes the record, or keeps the one of an earlier training that is used.

    Flags that differ from those of a training that `continues` are logged.
    Returns the content of the file.
    """
    earlier = read_record(output_dir)
    if earlier:
      self._log_version(output_dir, earlier)
      if is_training and continues:
        self.check(output_dir)
        self._log_changes(output_dir, earlier)
      is_of_training = earlier["flags"].get("do_train", True)
      if continues or (is_of_training and not is_training):
        return earlier
    _write_json(os.path.join(output_dir, RECORD_NAME), self.content)
    return self.content

  def note_changes(self, output_dir: str, kept: dict, step: int) -> None:
    """Adds the flags that differ after a step to `kept`, as `keep` gave it."""
    # Changes at this step or later are of updates that were lost.
    changes = {k: v for k, v in kept["changes"].items() if int(k) < step}
    known = dict(kept["flags"])
    for earlier in changes.values():
      known |= earlier
    changed = self._changed_flags(known)
    teachers = (r["data"].get("teacher") for r in (kept, self.content))
    teacher = self.content["flags"].get("teacher")
    if len(set(teachers)) > 1 and teacher != known.get("teacher"):
      changed["teacher"] = teacher
    if changed:
      changes[str(step)] = changed
    if changes != kept["changes"]:
      kept["changes"] = changes
      _write_json(os.path.join(output_dir, RECORD_NAME), kept)

  def note_weights(self, output_dir: str, kept: dict) -> None:
    """Adds the hash of the trained weights to `kept`; see `note_changes`.

    Logs whether the weights are those of the training in --repeat.
    """
    release = os.path.join(output_dir, checkpoints.RELEASE_NAME)
    kept["weights"] = checkpoints.hash_of_weights(release)
    _write_json(os.path.join(output_dir, RECORD_NAME), kept)
    repeated = self.content["flags"].get("repeat")
    other = repeated and read_record(repeated)
    # A command may train several models; the record is of one.
    names = ("task_name", "seed")
    if not other or any(
      other["flags"].get(name) != kept["flags"].get(name) for name in names
    ):
      return
    if other.get("weights") == kept["weights"]:
      logging.info("The weights are those of %s, byte for byte", repeated)
      return
    differing = [
      *self._changed_flags(other["flags"]),
      *(["changes"] if other["changes"] else []),
      *(
        name
        for part in ("data", "versions")
        for name, value in other[part].items()
        if self.content[part].get(name) != value
      ),
    ]
    logging.warning(
      "The weights are not those of %s; what differs in flags.json: %s",
      repeated,
      listing(differing, False) or "nothing, so the processor may be another",
    )

  def _changed_flags(self, before):
    """The flags that affect weights and differ from those of a training."""
    return {
      name: value
      for name, value in self.content["flags"].items()
      if before.get(name, value) != value
      and getattr(self._rows.get(name), "affects_weights", True)
    }

  def check(self, output_dir: str) -> None:
    """Raises UserError unless a training in a folder can continue."""
    earlier = read_record(output_dir)
    if not earlier:
      return
    before, now = earlier["flags"], self.content["flags"]
    tasks = (str(flags.get("task_name")).lower() for flags in (before, now))
    same_task = len(set(tasks)) == 1
    train = [r["data"].get("train") for r in (earlier, self.content)]
    if not same_task or (None not in train and train[0] != train[1]):
      what = "other examples" if same_task else before.get("task_name")
      raise UserError(
        f"--output_dir={output_dir} holds a training on {what}; pass another "
        f"folder, or the task, the data and the --seed that it began with"
      )
    self._check_unlabeled(output_dir, earlier)
    self.check_vocabulary(output_dir)
    for row in self._rows.values():
      if row.fixed_by == "task":  # The files beside the weights depend on it.
        _check_same(row.name, output_dir, before, now)

  def _check_unlabeled(self, output_dir, earlier):
    """Raises UserError for other examples without labels."""
    name, records = "unlabeled_file", (earlier, self.content)
    if len({record["data"].get(name) for record in records}) > 1:
      was, value = (record["flags"].get(name) for record in records)
      before = "another file" if was == value else was
      raise _other_value(name, value, output_dir, before)

  def check_vocabulary(self, output_dir: str) -> None:
    """Raises UserError unless texts get the ids of the training in a folder."""
    earlier = read_record(output_dir)
    if not earlier:
      return
    before, now = earlier["flags"], self.content["flags"]
    _check_same("do_lower_case", output_dir, before, now)
    hashes, current = earlier["data"], self.content["data"]
    is_known = any(name in hashes for name in _VOCABULARIES)
    for name in _VOCABULARIES:
      if is_known and name in current and hashes.get(name) != current[name]:
        raise _other_value(name, now[name], output_dir, "another file")

  def _log_version(self, output_dir, earlier):
    """Logs whether another version of this code wrote the earlier record."""
    before = earlier.get("versions", {}).get("bert", "unknown")
    if before != bert.__version__:
      logging.info(
        "%s holds a run of another version of this code: %s, and this is %s",
        output_dir,
        before,
        bert.__version__,
      )

  def _log_changes(self, output_dir, earlier):
    began = f"the training in {output_dir} began with"
    remedy = "to start a new training, pass another --output_dir"
    before = earlier["flags"]
    for name, value in self._changed_flags(before).items():
      logging.warning(f"--{name}={value}: {began} {before[name]}; {remedy}")
    before, now = earlier["data"], self.content["data"]
    both = {*(before.keys() & now.keys()), "teacher"}
    changed = {name for name in both if before.get(name) != now.get(name)}
    if "init_checkpoint" in changed:
      changed.discard("bert_config_file")  # It may lie beside the checkpoint.
    for name in sorted(changed):
      if name in ("bert_config_file", "init_checkpoint", "teacher"):
        logging.warning(f"--{name} is not the one that {began}; {remedy}")
      elif name.startswith("dev"):
        logging.warning(f"The {name} set is not the one that {began}; {remedy}")


def write_results(
  stem: str, results: Mapping[str, float], details: Mapping | None = None
) -> None:
  """Writes STEM.txt, in the original's format, and STEM.json, with details."""
  lines = [f"{key} = {_shortest(results[key])}" for key in sorted(results)]
  # First, because it says which predictions the results are of.
  content = _finite({"results": dict(results), **(details or {})})
  _write_json(f"{stem}.json", content)
  files.write_file(f"{stem}.txt", "\n".join(lines) + "\n")
  logging.info("%s.txt: %s", stem, ", ".join(lines))


def _shortest(value):
  """A number with the digits that float32 needs, as the original writes it."""
  fits = isinstance(value, float) and abs(value) < _LARGEST
  return str(np.float32(value) if fits else value)


def _write_json(path, content):
  files.write_file(path, strict_json.dumps(content))


def _finite(content):
  """The content with null for infinity and NaN, which JSON does not have."""
  if isinstance(content, Mapping):
    return {name: _finite(value) for name, value in content.items()}
  if isinstance(content, (list, tuple)):
    return [_finite(value) for value in content]
  is_number = isinstance(content, float)
  return None if is_number and not math.isfinite(content) else content


def read_record(output_dir: str) -> dict[str, Any] | None:
  """The content of a folder's `flags.json`; None without the file."""
  path = os.path.join(output_dir, RECORD_NAME)
  known = dict.fromkeys(("flags", "data", "given", "examples"), dict)
  record = files.read_json(path, dict, {**known, "changes": dict[str, dict]})
  return record and {"flags": {}, "data": {}, "changes": {}, **record}


def recorded_flags(output_dir: str) -> dict[str, Any]:
  """The flags of the training in a folder; none without a record."""
  record = read_record(output_dir)
  return record["flags"] if record else {}


def _check_same(name, output_dir, before, now):
  if name in before and before[name] != now.get(name):
    raise _other_value(name, now.get(name), output_dir, before[name])


def _other_value(name, value, output_dir, before):
  return UserError(
    f"--{name}={value}: the training in {output_dir} began with {before}; pass "
    f"that, or another --output_dir"
  )
