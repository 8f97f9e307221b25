"""Hashes of the rows that a model and its initial models have seen.

task.json records them. When a later training splits its file, these rows are
not held out for evaluation; for a --dev_file that has them, the run warns.
"""

from collections.abc import Iterable
from typing import NamedTuple

from absl import logging

from bert.data import text_hashes
from bert.errors import plural
from bert.tasks.classification.examples import InputExample


class SeenRows(NamedTuple):
  """Hashes of the rows that were held out for evaluation, or trained on."""

  held_out: frozenset[bytes] = frozenset()
  trained_on: frozenset[bytes] = frozenset()

  def adding(
    self,
    held_out: Iterable[InputExample] = (),
    trained_on: Iterable[InputExample] = (),
  ) -> "SeenRows":
    return SeenRows(
      self.held_out.union(map(row_hash, held_out)),
      self.trained_on.union(map(row_hash, trained_on)),
    )


NO_ROWS = SeenRows()


def row_hash(example: InputExample) -> bytes:
  """The hash of an example's texts."""
  return text_hashes.hash_texts(example.texts)


def log_missing(
  name: str, rows: Iterable[InputExample], trained_on: frozenset[bytes]
) -> None:
  """Warns if most rows that a model was trained on are missing from `rows`."""
  missing = trained_on
  if trained_on:  # Otherwise skip the hashing.
    missing = trained_on.difference(map(row_hash, rows))
  if 2 * len(missing) > len(trained_on):
    logging.warning(
      "%s: %d of the %s that the initial model was trained on are missing, so "
      "it may forget what it learned from them; put old and new rows into one "
      "table",
      name,
      len(missing),
      plural(len(trained_on), "row"),
    )
