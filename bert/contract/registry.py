"""The kinds of tasks by name. The class of a task is imported on first use."""

import importlib
import inspect

from bert.contract.task import Task
from bert.errors import UserError, listing

# Kind -> its class, or "module:Class" until it is imported.
_places = {
  "classification": "bert.tasks.classification.task:ClassificationTask",
  "tagging": "bert.tasks.tagging.task:TaggingTask",
  "squad": "bert.tasks.squad.task:SquadTask",
  "multiple choice": "bert.tasks.multiple_choice.task:MultipleChoiceTask",
  "vectors": "bert.tasks.embeddings.vectors:VectorTask",
  "fill_mask": "bert.tasks.fill_mask.task:MaskTask",
}

# Kinds that every pre-trained model supports; its folder does not record them.
UNTRAINED = ("vectors", "fill_mask")

# Kinds that our own scripts train. Their variables belong to one kind only.
_TRAINED = _places.keys() - {*UNTRAINED}


def register(*tasks: type[Task] | str) -> None:
  """Registers tasks of your own; see `bert.register`."""
  for task in tasks:
    for cls in _classes(task) if isinstance(task, str) else [task]:
      _places[cls.kind] = cls


def _classes(place):
  """The class at "module:Class", or all task classes of a module."""
  name, _, class_name = place.partition(":")
  name = name.removesuffix(".py")
  try:
    module = importlib.import_module(name)
  except ModuleNotFoundError as error:
    if not name.startswith(error.name or "\n"):
      raise
    raise UserError(
      f"there is no module {name}; pass one in this folder or in PYTHONPATH"
    ) from error
  if class_name:
    classes = [getattr(module, class_name, None)]
  else:
    classes = [c for c in vars(module).values() if _is_task(c, name)]
  if not all(map(_is_task, classes)) or not classes:
    raise UserError(f"{place} is not a subclass of bert.Task with a kind")
  return classes


def _is_task(value, module=None):
  is_task = inspect.isclass(value) and issubclass(value, Task) and value.kind
  return is_task and module in (None, value.__module__)


def kinds() -> list[str]:
  """The names of all kinds."""
  return list(_places)


def kinds_over(trained: str) -> list[str]:
  """The kinds that a model trained on one may be loaded as.

  They include the user's own tasks, which may read variables of other kinds.
  """
  return [k for k in kinds() if k == trained or k not in _TRAINED]


def task_class(kind: str, folder: str = "") -> type[Task]:
  """The class of a kind of task, of the model in a folder if there is one."""
  place = _places.get(kind)
  if place is None:
    where = f" of {folder}" if folder else ""
    raise UserError(
      f"task {kind!r}{where} is not one of {listing(kinds())}; if it is your "
      f"own, pass its module to bert.register or as --task_module"
    )
  if isinstance(place, str):
    name, _, class_name = place.partition(":")
    place = _places[kind] = getattr(importlib.import_module(name), class_name)
  return place
