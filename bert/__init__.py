"""BERT for TensorFlow 2: all that supports the core and the scripts.

import bert

model = bert.load("/tmp/mrpc_output")
model(("It rains.", "Rain falls."))  # {"label": "1", ...}
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from bert import quiet_start  # noqa: F401  Before TensorFlow.

__all__ = [
  "Evaluation",
  "Field",
  "Settings",
  "Task",
  "load",
  "main",
  "register",
  "run",
]

__version__ = "1.0.0"

if TYPE_CHECKING:
  import os

  from bert.contract.task import Evaluation, Field, Settings, Task
  from bert.engine.loaded_model import LoadedModel


def load(
  model: str | os.PathLike, task: str | None = None, **options
) -> LoadedModel:
  """A trained model of any task, ready to answer; see `LoadedModel`.

  Args:
    model: the `output_dir` of a finished training; or the folder or name of a
      release, or hf://OWNER/NAME, which are downloaded once.
    task: the kind of task, such as "vectors" or "fill_mask" of a pre-trained
      model, or a registered one that reads the variables of the folder.
      Default: that of the folder's training, or vectors.
    **options: `batch_size` (rows at a time), `precision` ("float32",
      "bfloat16", ...) and `runtime` ("tensorflow", "onnxruntime", "openvino");
      of vectors also `layers`, `pooling`, `normalize`, `max_seq_length` and
      `long_text`; of masks `top_k`.
  """
  from bert.engine import loaded_model

  return loaded_model.load(model, task, **options)


def register(*tasks: type[Task] | str) -> None:
  """Makes tasks of your own known; see docs/add-a-task.md.

  They are subclasses of `bert.Task`, "module:Class", or names of modules with
  such classes.
  """
  from bert.contract import registry

  registry.register(*tasks)


def main(task: type[Task]) -> None:
  """Trains, evaluates and uses a task of your own, by the flags given."""
  from bert.scripts import script

  register(task)
  _, command = script.make(task)
  command()


def run(task: type[Task], **flags) -> dict[str, float]:
  """Does what `main` does, with flags as arguments; returns the metrics."""
  from bert.scripts import script

  register(task)
  run, _ = script.make(task)
  return run(**flags)


def __getattr__(name):
  if name in ("Task", "Settings", "Field", "Evaluation"):
    from bert.contract import task

    return getattr(task, name)
  if name == "UserError":
    from bert import errors

    return errors.UserError
  command = f"bert.commands.{name}"  # from bert import run_ner
  if importlib.util.find_spec(command):
    return importlib.import_module(command)
  raise AttributeError(f"module 'bert' has no attribute {name!r}")
