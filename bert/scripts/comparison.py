"""An evaluation beside that of another model, on the same examples."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert.contract.task import RowSet, Task
from bert.data import downloads
from bert.models import checkpoints, model_folder, task_file
from bert.reports.comparison import Changed, Comparison, section
from bert.reports.verdict import compare

if TYPE_CHECKING:
  from bert.engine.loaded_model import LoadedModel
  from bert.scripts.settings import RunSettings

_MOST_SHOWN = 50


@dataclasses.dataclass
class Kept:
  """The outputs of the network for each row, and the answers."""

  outputs: list[Mapping] = dataclasses.field(default_factory=list)
  answers: list = dataclasses.field(default_factory=list)


def keep(items: Iterable, kept: list) -> Iterator:
  """Yields the items, and adds them to a list."""
  for item in items:
    kept.append(item)
    yield item


def find_other(task: Task, settings: RunSettings) -> str | None:
  """The folder or the name of the model to compare with, if any.

  By default it is the one that a training started from, if that is a finished
  model of the same kind. Raises UserError if --compare_to has no such model.
  """
  if settings.compare_to:
    folder = downloads.local_path(settings.compare_to)
    task_file.check_kind(folder, task_file.read(folder)[0], task.kind)
    return settings.compare_to
  folder = model_folder.folder_of(settings.init_checkpoint)
  if not (settings.do_train and folder and model_folder.is_finished(folder)):
    return None
  if task_file.read(folder)[0] != task.kind:
    return None
  named, own = map(
    checkpoints.find_checkpoint, (settings.init_checkpoint, folder)
  )
  return folder if os.path.abspath(named) == os.path.abspath(own) else None


def load_other(folder: str, batch_size: int) -> LoadedModel:
  """The model that `find_other` found."""
  from bert.engine import loaded_model

  model = loaded_model.load(folder, batch_size=batch_size)
  model.task.name = folder
  return model


def section_of(other: LoadedModel, task: Task, rows: RowSet, kept: Kept) -> str:
  """The section of the report about another model; see `compare_with`."""
  found = compare_with(other, task, rows, kept)
  if not found:
    text = (
      "%s: not compared with %s, which was trained on all rows or has other "
      "labels"
    )
    logging.warning(text, rows.name, other.folder)
    return ""
  logging.info("%s: compared with %s: %s", rows.name, other.folder, found)
  return section(found)


def compare_with(
  other: LoadedModel, task: Task, rows: RowSet, kept: Kept
) -> Comparison | None:
  """Compares the results of this model, `kept`, with those of another one.

  None if no example is left to compare; see `Task.answers_of`.
  """
  outputs, predictor = [], other.predictor
  other = copy.copy(other)
  other.predictor = lambda *given: keep(predictor(*given), outputs)
  answers = task.answers_of(other, rows.examples)
  triples = [
    triple
    for triple in zip(rows.examples, kept.answers, answers, strict=True)
    if triple[2] is not None
  ]
  if not triples:
    return None
  examples, own, theirs = map(list, zip(*triples, strict=True))
  known = dataclasses.replace(rows, examples=examples, num_rows=len(examples))
  scored = [copy.copy(task).score(known, each) for each in (own, theirs)]
  results = [evaluation.results for evaluation in scored]
  names = [name for name in results[0] if name != "loss"]  # `eval_loss` is.
  samples = [evaluation.sample and evaluation.sample() for evaluation in scored]
  changed = list(_changed(task, known, own, theirs))
  return Comparison(
    other.folder,
    len(answers) - len(triples),
    len(known.examples),
    {name: (results[0][name], results[1][name]) for name in names},
    compare(*samples) if all(samples) else None,
    changed[:_MOST_SHOWN],
    len(changed),
    _largest(task, kept.outputs, outputs),
  )


def _changed(task, rows, own, theirs):
  """Yields the examples whose answers differ in more than numbers."""
  for example, *answers in zip(rows.examples, own, theirs, strict=True):
    one, other = (_decided(task.public(answer)) for answer in answers)
    names = [name for name in one if one[name] != other.get(name)]
    if names:
      only = dataclasses.replace(rows, examples=[example])
      where, texts = next(iter(task.texts(only)), ("", ()))
      where = where.rpartition("/")[2]
      shown = (_shown([x.get(name) for name in names]) for x in (one, other))
      yield Changed(where, tuple(filter(None, texts)), *shown)


def _decided(value):
  """A public answer without its numbers that are not whole."""
  if isinstance(value, Mapping):
    parts = {name: _decided(part) for name, part in value.items()}
    return {name: part for name, part in parts.items() if part is not None}
  if isinstance(value, list | tuple):
    return [part for part in map(_decided, value) if part is not None]
  return value if isinstance(value, str | int) else None


def _shown(values):
  texts = (
    value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    for value in values
  )
  return ", ".join(texts)


def _largest(
  task: Task, own: Sequence[Mapping], theirs: Sequence[Mapping]
) -> dict[str, float]:
  """The largest difference of each output, if all have the same shapes."""
  largest = {}
  for name in task.output_axes() if len(own) == len(theirs) else ():
    pairs = [
      (row[name], other.get(name))
      for row, other in zip(own, theirs, strict=True)
    ]
    if all(np.shape(x) == np.shape(y) for x, y in pairs):
      pairs = ((np.float64(x), np.float64(y)) for x, y in pairs)
      largest[name] = max(np.max(np.abs(x - y), initial=0.0) for x, y in pairs)
  return largest
