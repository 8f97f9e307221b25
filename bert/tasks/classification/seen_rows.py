"""The rows that a model and the models before it have seen, as hashes.

task.json keeps them, so that a later training never evaluates on rows that an
earlier one was trained on. A hash is one of texts, not of labels: a row whose
label was corrected stays where it was.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import logging

from bert.errors import plural
from bert.tasks.classification.examples import InputExample

# Bytes of a hash. One in 280 million rows has a hash of a million others.
_SIZE = 6


class SeenRows(NamedTuple):
  """Hashes of the rows that were kept for evaluation, or trained on."""

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
  """The hash of an example's texts; white space does not matter."""
  texts = (example.text_a, example.text_b or "")
  content = json.dumps([" ".join(text.split()) for text in texts])
  return hashlib.blake2b(content.encode(), digest_size=_SIZE).digest()


def encode(hashes: Iterable[bytes]) -> str:
  """Hashes as text."""
  return base64.b64encode(b"".join(sorted(hashes))).decode()


def decode(text: str) -> frozenset[bytes]:
  """The inverse of `encode`; raises ValueError for another text."""
  joined = base64.b64decode(text, validate=True)
  if len(joined) % _SIZE:
    raise ValueError(f"{len(joined)} bytes are not hashes of {_SIZE} bytes")
  starts = range(0, len(joined), _SIZE)
  return frozenset(joined[start : start + _SIZE] for start in starts)


def log_missing(
  name: str, rows: Iterable[InputExample], trained_on: frozenset[bytes]
) -> None:
  """Warns if most rows that a model was trained on are not among the rows."""
  missing = trained_on
  if trained_on:  # Otherwise no row needs a hash.
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


def log_seen(
  name: str, dev: Sequence[InputExample], trained_on: frozenset[bytes]
) -> None:
  """Warns of development examples that a model was trained on before."""
  found = [e for e in dev if row_hash(e) in trained_on] if trained_on else []
  if found:
    logging.warning(
      "%s: the model that this run starts from was trained on %d of the %s, "
      "starting with %s; the metrics are too optimistic",
      name,
      len(found),
      plural(len(dev), "development example"),
      found[0],
    )
