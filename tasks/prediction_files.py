"""Tables of a classifier's predictions."""

import contextlib
import csv
import itertools
import os
from collections.abc import Iterable
from typing import TextIO

import numpy as np

from pipeline import files
from tasks import labels as label_types
from tasks.examples import InputExample

# Rows that are computed and written together.
ROWS_AT_A_TIME = 1024


def header(label_type: label_types.LabelType) -> list[str]:
  """The columns: id, label, and the probability of each label."""
  return ["id", "label" if label_type.labels else "number", *label_type.labels]


def table_row(
  label_type: label_types.LabelType, name: str, probabilities: np.ndarray
) -> list[str]:
  """One prediction under these columns.

  Args:
    label_type: what the outputs stand for.
    name: id of the example.
    probabilities: float [C].
  """
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
) -> list:
  """Writes test_results.tsv, the original's file, and test_predictions.tsv.

  Args:
    output_dir: the folder.
    suffix: part of the files' names.
    label_type: what the outputs stand for.
    examples: the examples; their guids are the ids.
    logits: float [C] for each example.

  Returns:
    The label_type's prediction for each example.
  """
  predictions = []
  with contextlib.ExitStack() as stack:

    def open_output(name):
      path = os.path.join(output_dir, f"{name}{suffix}.tsv")
      partial = stack.enter_context(files.atomic_write(path))
      return stack.enter_context(files.open_file(partial, "w"))

    plain, named = map(open_output, ("test_results", "test_predictions"))
    table = table_writer(named)
    table.writerow(header(label_type))
    plain.write("")  # A remote file is created by the first write.
    rows = zip(examples, logits, strict=True)
    while chunk := list(itertools.islice(rows, ROWS_AT_A_TIME)):
      chunk_examples, chunk_logits = zip(*chunk, strict=True)
      probabilities = np.asarray(
        label_type.probabilities(np.stack(chunk_logits))
      )
      predictions += label_type.predictions(probabilities).tolist()
      for example, row in zip(chunk_examples, probabilities, strict=True):
        plain.write("\t".join(map(str, row)) + "\n")
        table.writerow(table_row(label_type, example.guid, row))
  return predictions
