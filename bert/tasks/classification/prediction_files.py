"""Tables of a classifier's predictions for data sets and lines of text."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, TextIO

import numpy as np

from bert.data import text_files
from bert.errors import UserError, plural
from bert.tasks.classification import label_types
from bert.tasks.classification.examples import InputExample

if TYPE_CHECKING:
  from bert.engine.loaded_model import LoadedModel

# Columns of other content than a probability.
_COLUMNS = ("id", "label", "given", "text", "text_a", "text_b")

# Maximum number of lines per block.
_MAX_LINES = 1024


def header(label_type: label_types.LabelType) -> list[str]:
  """The columns: id, label, and the probability of each label.

  A label with the name of a column, such as "id", is "probability_id".
  """
  labels = [
    f"probability_{label}" if label in _COLUMNS else label
    for label in label_type.labels
  ]
  return ["id", "label" if labels else "number", *labels]


def table_row(
  label_type: label_types.LabelType, name: str, probabilities: np.ndarray
) -> list[str]:
  """These columns for the example `name` with probabilities [C]."""
  answer = label_types.predicted_text(label_type, probabilities)
  if not label_type.labels:
    return [name, answer]
  return [name, answer, *(f"{p:.6f}" for p in probabilities.tolist())]


def table_writer(file: TextIO):
  """A `csv.writer` of tab-separated lines, which quotes where necessary."""
  return csv.writer(file, delimiter="\t", lineterminator="\n")


def predictions_table(
  label_type: label_types.LabelType,
  examples: Sequence[InputExample],
  probabilities: np.ndarray,
  shows_given: bool = False,
) -> str:
  """A table of predictions [rows, C], with the ids and texts of the examples.

  `shows_given` adds the labels of the examples as the column `given`.
  """
  is_pair = any(example.text_b is not None for example in examples)
  names = header(label_type)
  given = ["given"] if shows_given else []
  text = io.StringIO()
  table = table_writer(text)
  texts = ["text_a", "text_b"] if is_pair else ["text"]
  table.writerow([*names[:2], *given, *names[2:], *texts])
  for example, row in zip(examples, probabilities, strict=True):
    name, label, *others = table_row(label_type, example.guid, row)
    given = [example.label] if shows_given else []
    texts = [example.text_a, example.text_b or ""][: 1 + is_pair]
    table.writerow([name, label, *given, *others, *texts])
  return text.getvalue()


def answer_lines(
  model: LoadedModel, reader: BinaryIO, name: str, writer: TextIO | None = None
) -> None:
  """Writes a table of predictions for lines of text as they arrive.

  A line of the reader is a text, or two separated by a tab; `name` is for
  messages. If the model reads pairs, empty lines at the end are ignored. If a
  line of a file is wrong, nothing is answered.
  """
  task = model.task
  is_pair = bool(task.settings.is_pair)
  blocks = text_files.checked(reader, lambda: _read(reader, name, is_pair))
  writer = writer or sys.stdout
  table = table_writer(writer)
  table.writerow(header(task.label_type))
  writer.flush()
  number = 0
  for texts in blocks:
    for answer in model.answers(texts):
      row = task.probabilities(answer)
      table.writerow(table_row(task.label_type, str(number), row))
      number += 1
    writer.flush()


def _read(reader, name, is_pair):
  empty = []
  for lines in text_files.lines_as_they_come(reader, name, _MAX_LINES):
    if is_pair:
      # An empty line is an error as soon as another line follows.
      lines, empty = _without_empty_end([*empty, *lines])
    yield [_parse(text, where, is_pair) for where, text in lines]


def _without_empty_end(lines):
  """Lines up to the last one with text, and the first empty one after it."""
  size = len(lines)
  while size and not lines[size - 1][1]:
    size -= 1
  return lines[:size], lines[size : size + 1]


def _parse(text: str, where: str, is_pair: bool) -> tuple[str, ...]:
  texts = tuple(text.split("\t"))
  if len(texts) != 1 + is_pair:
    expected = "two texts, separated by a tab" if is_pair else "one text"
    raise UserError(
      f"{where}: {plural(len(texts), 'text')}, separated by tabs; the model "
      f"needs {expected}, per line"
    )
  return texts
