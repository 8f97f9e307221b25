"""Converts the labels of words to spans of entities."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from bert.errors import listing, plural

OUTSIDE = "O"

# The type of entities with labels without a type, as in seqeval.
NO_TYPE = "_"


class Entity(NamedTuple):
  """An entity: its type, and its words from `start` up to `end`."""

  type: str
  start: int
  end: int


class FoundEntity(NamedTuple):
  """An entity in a text, from its character `start` up to `end`."""

  text: str
  type: str
  start: int
  end: int
  probability: float  # that all its words have the predicted labels

  def to_dict(self) -> dict[str, str | int | float]:
    """The fields for JSON, rounded to be independent of the batch size."""
    return self._asdict() | {"probability": round(self.probability, 6)}


def split_label(label: str) -> tuple[str, str]:
  """The prefix and the type of a label; O and "" if it marks no entity."""
  prefix, hyphen, kind = label.partition("-")
  kind = kind if hyphen else NO_TYPE
  marks_entity = kind and prefix in tuple("IBES")
  return (prefix, kind) if marks_entity else (OUTSIDE, "")


def find_scheme(sequences: Iterable[Sequence[str]]) -> str | None:
  """How labels mark entities: "IOB1", "IOB2", "IOBES", or None.

  A label is O, or a prefix, a hyphen and a type, or a prefix alone. I is inside
  an entity. B begins an entity: every one in IOB2 and IOBES, but in IOB1 only
  one right after another of its type. In IOBES, E ends an entity, and S is an
  entity of a single word.
  """
  prefixes, counts = set(), Counter()
  for labels in sequences:
    before = ""
    for label in labels:
      prefix, kind = split_label(label)
      if prefix == OUTSIDE != label:
        return None
      prefixes.add(prefix)
      counts[prefix, kind == before] += 1
      before = kind
  if prefixes & {"E", "S"}:
    return "IOBES"
  if not prefixes & {"B", "I"}:
    return None
  return "IOB1" if counts["I", False] > counts["B", False] else "IOB2"


def log_scheme(labels: Sequence[str], scheme: str | None) -> None:
  """Logs how labels mark entities; warns if they only seem to."""
  what = f"which mark entities by {scheme}" if scheme else "no entities"
  logging.info("%s, %s", plural(len(labels), "label"), what)
  odd = [x for x in labels if x != OUTSIDE and not split_label(x)[1]]
  if not scheme and odd and any(re.match("(?i)[BI][-_]", x) for x in labels):
    logging.warning(
      "Entities are not evaluated, because no scheme has these labels: %s; "
      "correct them",
      listing(odd),
    )


def entities(labels: Sequence[str]) -> Iterator[Entity]:
  """Yields the entities that labels mark, in any of the schemes.

  As in conlleval, an entity also begins at an I or E that continues no entity
  of its type. A label without a prefix, such as [PAD], marks no entity.
  """
  start = before = None
  for index, label in enumerate((*labels, OUTSIDE)):
    prefix, kind = split_label(label)
    continues = start is not None and kind == before[1]
    continues = continues and prefix in "IE" and before[0] not in "ES"
    if start is not None and not continues:
      yield Entity(before[1], start, index)
      start = None
    if start is None and kind:
      start = index
    before = (prefix, kind)


def found_entities(
  text: str,
  spans: Sequence[tuple[int, int]],
  labels: Sequence[str],
  probabilities: Sequence[float],
  scheme: str | None,
) -> list[FoundEntity]:
  """The entities in a text; without a scheme, each word with its label.

  `spans` are the offsets of its words, each with a predicted label.
  """
  marked = entities(labels)
  if not scheme:
    marked = (Entity(label, i, i + 1) for i, label in enumerate(labels))
  results = []
  for kind, first, last in marked:
    start, end = spans[first][0], spans[last - 1][1]
    probability = math.prod(map(float, probabilities[first:last]))
    results.append(FoundEntity(text[start:end], kind, start, end, probability))
  return results


def to_json(text: str, spans: Iterable[FoundEntity]) -> str:
  """A text and its entities as one line of JSON."""
  rows = [entity.to_dict() for entity in spans]
  return json.dumps({"text": text, "entities": rows}, ensure_ascii=False)
