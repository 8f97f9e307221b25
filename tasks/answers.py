"""Answers that people read: a table, lines as they come, a dialogue."""

import contextlib
import csv
import itertools
import os
from collections.abc import Callable, Iterable
from typing import BinaryIO, TextIO

import numpy as np
import tensorflow as tf

from errors import UserError
from pipeline import files, tables, text_files
from tasks import labels as label_types
from tasks.classification import Classifier
from tasks.examples import InputExample

# The most that is answered together, and read at once of lines.
_ROWS_AT_A_TIME = 1024


def header(head: label_types.Head) -> list[str]:
  """The columns of a table of answers: id, label, each label's probability."""
  return ["id", "label" if head.labels else "number", *head.labels]


def table_row(
  head: label_types.Head, name: str, probabilities: np.ndarray
) -> list[str]:
  """An answer under these columns.

  Args:
    head: what the outputs stand for.
    name: id of the example.
    probabilities: float [C].
  """
  answer = head.answer(head.predictions(probabilities[np.newaxis])[0])
  if not head.labels:
    return [name, answer]
  return [name, answer, *(f"{p:.6f}" for p in probabilities.tolist())]


def table_writer(file: TextIO):
  """A `csv.writer` of tab-separated lines; it quotes where it must."""
  return csv.writer(file, delimiter="\t", lineterminator="\n")


def write_predictions(
  output_dir: str,
  suffix: str,
  head: label_types.Head,
  examples: Iterable[InputExample],
  logits: Iterable[np.ndarray],
) -> list:
  """Writes `test_results.tsv`, as the original has it, and `test_predictions`.

  Args:
    output_dir: where to.
    suffix: of the files' names.
    head: what the outputs stand for.
    examples: the examples, whose guids name the rows.
    logits: float [C] for each, in the same order; they may come late.

  Returns:
    The head's prediction for each example.
  """
  predictions = []
  paths = [
    os.path.join(output_dir, f"{name}{suffix}.tsv")
    for name in ("test_results", "test_predictions")
  ]
  with contextlib.ExitStack() as stack:
    plain, named = (
      stack.enter_context(tf.io.gfile.GFile(partial, "w"))
      for partial in [
        stack.enter_context(files.atomic_write(path)) for path in paths
      ]
    )
    table = table_writer(named)
    table.writerow(header(head))
    plain.write("")  # TensorFlow makes no file before the first write.
    rows = zip(examples, logits, strict=True)
    while chunk := list(itertools.islice(rows, _ROWS_AT_A_TIME)):
      names, chunk = zip(*chunk, strict=True)
      probabilities = np.asarray(head.probabilities(np.stack(chunk)))
      predictions += head.predictions(probabilities).tolist()
      for example, row in zip(names, probabilities, strict=True):
        plain.write("\t".join(map(str, row)) + "\n")
        table.writerow(table_row(head, example.guid, row))
  return predictions


def answer_lines(
  classifier: Classifier, reader: BinaryIO, writer: TextIO, name: str
) -> None:
  """Writes a table of answers to lines of text, as they come.

  Lines that are there already are answered together; a line that comes alone
  is answered at once.

  Args:
    classifier: a Classifier.
    reader: where UTF-8 lines come from: a text, or two separated by a tab.
    writer: where the table goes.
    name: what to call the reader in errors.

  Raises:
    ValueError: a line is not UTF-8, or has more tabs.
  """
  table = table_writer(writer)
  table.writerow(header(classifier.head))
  writer.flush()
  number = 0
  for lines in text_files.lines_as_they_come(reader, _ROWS_AT_A_TIME):
    texts, error = [], None
    for line in lines:
      where = f"{name}:{number + len(texts) + 1}"
      try:
        texts.append(_parse(line, where, classifier.is_pair))
      except ValueError as wrong:
        error = wrong
        break
    for row in classifier.probabilities(texts):
      table.writerow(table_row(classifier.head, str(number), row))
      number += 1
    writer.flush()
    if error:
      raise error  # The lines before it have their answers.


def _parse(line: bytes, where: str, is_pair: bool) -> tuple[str, ...]:
  text = text_files.decode_line(line, where).rstrip("\r\n")
  try:
    text_a, text_b = tables.parse_line(text)
  except ValueError as error:
    raise UserError(f"{where}: {error}") from error
  if is_pair != (text_b is not None):
    found, wanted = ("one text", "two texts, separated by a tab,")
    if not is_pair:
      found, wanted = ("a tab", "one text, without a tab,")
    raise UserError(f"{where}: {found}, where the model needs {wanted} a line")
  return (text_a, text_b) if is_pair else (text_a,)


def converse(
  classifier: Classifier,
  read: Callable[[str], str] = input,
  write: Callable[[str], object] = print,
) -> None:
  """Asks for texts until there are no more, and answers each."""
  prompts = ["first text> ", "second text> "] if classifier.is_pair else ["> "]
  while True:
    try:
      texts = tuple(read(prompt) for prompt in prompts)
    except EOFError:
      return
    if any(text.strip() for text in texts):
      row = classifier.probabilities([texts])[0]
      write(_described(classifier.head, row))


def _described(head, probabilities):
  """An answer in words: the label, then all labels, the likeliest first."""
  answer = head.answer(head.predictions(probabilities[np.newaxis])[0])
  if not head.labels:
    return answer
  ranked = sorted(
    zip(probabilities.tolist(), head.labels, strict=True), reverse=True
  )
  shares = (f"{label} {p:.1%}" for p, label in ranked)
  return f"{answer or 'no label'}   ({', '.join(shares)})"
