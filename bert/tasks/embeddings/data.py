"""Pairs of texts with a close meaning, queries and their documents, in tables.

read_pairs("faq.csv", Columns("question", "answer"))
read_retrieval("queries.jsonl", "corpus.jsonl", "qrels/test.tsv")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from bert.data import files, tables
from bert.tasks.classification.label_types import as_number


class Pair(NamedTuple):
  """Two similar texts, or a query and a document that answers it."""

  where: str  # its file and line
  text_a: str
  text_b: str
  negatives: tuple[str, ...] = ()  # hard negatives of `text_a`
  score: float | None = None  # None if all pairs are positive
  id: str = ""


@dataclasses.dataclass(frozen=True)
class Columns:
  """The columns of a table by name or index, as the flags name them.

  See `tables.read_table` for the rest.
  """

  text_a_column: str = "text_a"
  text_b_column: str = "text_b"
  negative_column: str | None = None  # or several, separated by commas
  score_column: str | None = None
  label_column: str | None = None  # 1 for texts with a close meaning, else 0
  header: bool = True
  delimiter: str | None = None
  encoding: str | None = None


def read_pairs(path: str, columns: Columns, split: str = "train") -> list[Pair]:
  """The pairs of a table, with scores or labels except for "test".

  Only "train" has negatives. The id of a pair is in the column "id", or else
  the number of its row, from 0.
  """
  table = tables.read_table(
    path, columns.header, columns.delimiter, columns.encoding
  )

  def indices(flag, several=False):
    names = getattr(columns, flag)
    names = names.split(",") if several and names else [names]
    return [
      (table.column_index(name, flag), f"--{flag}={name}")
      for name in names
      if name is not None
    ]

  texts = [*indices("text_a_column"), *indices("text_b_column")]
  negatives = indices("negative_column", True) if split == "train" else []
  numbers, is_label = [], columns.label_column is not None
  if split != "test":
    numbers = [*indices("score_column"), *indices("label_column")]
  pairs, id_index = [], table.find_column("id")
  for row, line in zip(table.rows, table.lines, strict=True):
    where = f"{path}:{line}"
    own_id = None if id_index is None else tables.as_text(row[id_index])
    pair = Pair(
      where,
      *(tables.text_of(row[i], f"{where}: {flag}") for i, flag in texts),
      negatives=tuple(_negatives(row, negatives, where)),
      id=own_id or str(len(pairs)),
    )
    for index, flag in numbers:
      score = score_of(row[index], f"{where}: {flag}", is_label)
      pair = pair._replace(score=score)
    pairs.append(pair)
  return pairs


def check_has_right(pairs: Sequence[Pair], path: str) -> None:
  """Raises UserError if all pairs of a table have the label 0."""
  is_right = any(pair.score != 0 for pair in pairs)
  remedy = "add pairs of texts that belong together"
  files.check_holds(is_right, path, "pair with the label 1", remedy)


def _negatives(row, indices, where):
  """Yields the negatives of a row; empty cells are skipped."""
  for index, flag in indices:
    value = row[index]
    for text in value if isinstance(value, list) else [value]:
      if text not in (None, ""):
        yield tables.text_of(text, f"{where}: {flag}")


def score_of(value: object, cell: str, is_label: bool = False) -> float:
  """The score or label in a cell; UserError for another value."""
  number = as_number(value)
  if number is None or (is_label and number not in (0, 1)):
    raise tables.wrong_cell(cell, value, "0 or 1" if is_label else "a number")
  return number
