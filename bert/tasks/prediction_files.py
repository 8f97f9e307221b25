"""Tables of a classifier's predictions."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

import numpy as np

from bert.data import files
from bert.tasks import labels as label_types
from bert.tasks.examples import InputExample


def header(label_type: label_types.LabelType) -> list[str]:
  """The columns: id, label, and the probability of each label."""
  return ["id", "label" if label_type.labels else "number", *label_type.labels]


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


def write_predictions(
  output_dir: str,
  suffix: str,
  label_type: label_types.LabelType,
  examples: Iterable[InputExample],
  logits: Iterable[np.ndarray],
  more: Callable[[list], Mapping[str, str]] | None = None,
) -> list:
  """Writes test_results.tsv, the original's file, and test_predictions.tsv.

  Args:
    output_dir: the folder.
    suffix: part of the files' names.
    label_type: the label type.
    examples: the examples; their guids are the ids.
    logits: float [C] for each example.
    more: function from the predictions to further files of them: dict from
      path to text.

  Returns:
    The label type's prediction for each example.
  """
  logits = np.reshape(list(logits), [-1, label_type.num_outputs])
  probabilities = np.asarray(label_type.probabilities(logits))
  text = io.StringIO()
  table = table_writer(text)
  table.writerow(header(label_type))
  for example, row in zip(examples, probabilities, strict=True):
    table.writerow(table_row(label_type, example.guid, row))
  results = ["\t".join(map(str, row)) + "\n" for row in probabilities]
  predictions = label_type.predictions(probabilities).tolist()
  named = {
    "test_results": "".join(results),
    "test_predictions": text.getvalue(),
  }
  contents = {
    os.path.join(output_dir, f"{name}{suffix}.tsv"): content
    for name, content in named.items()
  }
  contents |= more(predictions) if more else {}
  files.write_files(contents)
  return predictions
