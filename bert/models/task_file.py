"""task.json: the task of a trained model, and what it must remember.

    {"task": "tagging", "labels": ["O", "B-PER"], "max_seq_length": 128, ...}

It stands beside the weights. The config.json of Hugging Face's format has some
of the same settings.
"""

import dataclasses
import os
import typing
from collections.abc import Mapping

from bert import strict_json
from bert.contract import registry
from bert.contract.task import Settings, Task
from bert.data import files
from bert.errors import UserError, listing
from bert.models import (
  checkpoints,
  huggingface_config,
  huggingface_names,
  model_folder,
  sentence_folder,
)

NAME = "task.json"


def read(folder: str) -> tuple[str | None, dict]:
  """The kind of task of the model in a folder, or None, and its settings.

  What task.json does not say is taken from the config.json of Hugging Face's
  format. A folder of sentence-transformers has the kind "vectors".
  """
  path = os.path.join(folder, NAME)
  fields = files.read_json(path, dict, {"task": str, checkpoints.SOURCE: str})
  (fields or {}).pop(checkpoints.SOURCE, None)
  head = huggingface_config.read_head(folder)
  known = huggingface_names.kind_of(head.architecture)
  if fields is None and known is None:
    sentence = sentence_folder.read(folder)
    if sentence is not None:
      return "vectors", sentence
  kind = known if fields is None else fields.pop("task", known)
  if known and kind == known:
    fields = {**registry.task_class(kind).settings_of(head), **(fields or {})}
  return kind, fields or {}


def parse(cls: type[Settings], fields: Mapping, folder: str) -> dict:
  """The fields of a task.json as those of a Settings class."""
  path = os.path.join(folder or "", NAME)
  if not files.exists(path):  # Other files of the folder have the fields.
    path = folder
  names = [field.name for field in dataclasses.fields(cls)]
  for name in fields:
    if name not in names:
      known = f"known are {listing(names)}"
      raise files.damaged(path, f"it has {name!r}; {known}")
  hints = typing.get_type_hints(cls)
  files.check_types(path, fields, {name: hints[name] for name in names})
  parsed = {name: _without_lists(value) for name, value in fields.items()}
  try:
    cls(**parsed).check()
  except ValueError as error:
    raise files.damaged(path, error) from error
  return parsed


def _without_lists(value):
  if isinstance(value, list):
    return tuple(map(_without_lists, value))
  return value


def check_is_complete(folder: str | None) -> None:
  """Raises UserError for a folder of Hugging Face's format without weights."""
  name = huggingface_config.CONFIG_NAME
  if folder and files.exists(os.path.join(folder, name)):
    checkpoints.find_checkpoint(folder)


def check_kind(folder: str, recorded: str | None, wanted: str) -> None:
  """Raises UserError if the kind of a folder's model is not the wanted one."""
  if recorded == wanted:
    return
  check_is_complete(folder)
  problem = f"does not hold a trained model ({wanted})"
  if recorded:
    problem = f"holds a model of another kind ({recorded}, not {wanted})"
  elif not files.exists(folder):
    problem = "does not exist"
  inside = checkpoints.similar_model(folder, lambda p: read(p)[0] == wanted)
  raise UserError(
    f"{folder} {problem}; pass the --output_dir of a finished training{inside}"
  )


def load(
  task: type[Task], folder: str | None, is_required: bool = True
) -> Settings:
  """The settings of the trained model in a folder, for a class of tasks.

  Unless `is_required`, a model without a task has the default settings.
  """
  kind, fields = read(folder) if folder else (None, {})
  if kind != task.kind:
    if is_required or (kind and task.kind not in registry.UNTRAINED):
      check_kind(folder, kind, task.kind)
    fields = {}
  default = task.Settings()
  is_open = "max_seq_length" not in fields
  if folder and is_open and model_folder.find_config(folder):
    default = task.default_settings(model_folder.load_config(folder))
  return dataclasses.replace(default, **parse(task.Settings, fields, folder))


def write(folder: str, task: Task) -> str:
  """Writes the task.json of a folder, or deletes that of another training.

  Returns its path.
  """
  path = os.path.join(folder, NAME)
  if task.kind:
    files.write_file(path, content(task.kind, task.settings))
  elif files.exists(path):
    files.remove(path)
  return path


def content(kind: str, settings: Settings, source: str | None = None) -> str:
  """The content of a task.json; `source` is where the model was trained."""
  fields = {"task": kind, **dataclasses.asdict(settings)}
  if source:
    fields[checkpoints.SOURCE] = source
  return strict_json.dumps(fields)
