"""Entities in sentences with a label for each word: decoding and scores."""

import dataclasses
import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from training import metrics

OUTSIDE = "O"

# The name of all types together, among the scores of each.
ALL = "all"


class Entity(NamedTuple):
  """An entity: its type, and its words from `start` up to `end`."""

  type: str
  start: int
  end: int


class FoundEntity(NamedTuple):
  """An entity in a text.

  Attributes:
    text: its characters, from `start` up to `end` of the whole text.
    type: its type.
    start, end: offsets in characters.
    probability: that all its words have the predicted labels.
  """

  text: str
  type: str
  start: int
  end: int
  probability: float


def find_scheme(sequences: Iterable[Sequence[str]]) -> str | None:
  """How labels mark entities: "IOB1", "IOB2", "IOBES", or None.

  A label is O or a prefix, a hyphen and a type. I is inside an entity. B begins
  one: each in IOB2 and IOBES, only one right after another of its type in IOB1.
  In IOBES, E ends an entity, and S is an entity of a single word.
  """
  prefixes, counts = set(), Counter()
  for labels in sequences:
    before = OUTSIDE
    for label in labels:
      prefix, _, kind = label.partition("-")
      if label != OUTSIDE and not (kind and prefix in set("IBES")):
        return None
      prefixes.add(prefix)
      if prefix in ("B", "I"):
        is_after_own_type = before.partition("-")[2] == kind
        counts[prefix, is_after_own_type] += 1
      before = label
  if prefixes & {"E", "S"}:
    return "IOBES"
  if not prefixes & {"B", "I"}:
    return None
  return "IOB1" if counts["I", False] > counts["B", False] else "IOB2"


def entities(labels: Sequence[str]) -> Iterator[Entity]:
  """Yields the entities that labels mark, in any of the schemes.

  As conlleval counts them, an entity also begins at an I or E that continues no
  entity of its type. A label without a prefix, such as [PAD], marks none.
  """
  start = before = None
  for index, label in enumerate((*labels, OUTSIDE)):
    prefix, _, kind = label.partition("-")
    continues = start is not None and kind == before[1]
    continues = continues and prefix in ("I", "E") and before[0] not in "ES"
    if start is not None and not continues:
      yield Entity(before[1], start, index)
      start = None
    if start is None and kind and prefix in set("IBES"):
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

  Args:
    text: the text.
    spans: offsets of its words.
    labels, probabilities: the predicted label of each word.
    scheme: how labels mark entities, see `find_scheme`, or None.
  """
  marked = entities(labels)
  if not scheme:
    marked = (Entity(label, i, i + 1) for i, label in enumerate(labels))
  found = []
  for kind, first, last in marked:
    start, end = spans[first][0], spans[last - 1][1]
    probability = math.prod(map(float, probabilities[first:last]))
    found.append(FoundEntity(text[start:end], kind, start, end, probability))
  return found


def to_json(text: str, found: Iterable[FoundEntity]) -> str:
  """A text and its entities as one line of JSON."""
  rows = [e._asdict() | {"probability": round(e.probability, 6)} for e in found]
  return json.dumps({"text": text, "entities": rows}, ensure_ascii=False)


def entity_scores(
  truth: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]
) -> dict[str, dict[str, float]]:
  """Precision, recall, F1 and support of ALL entities and of each type.

  An entity is correct if its type and all its words are. Scores are 0 where
  they are undefined. A type with the name ALL gets the key "all (type)".

  Args:
    truth, predicted: the entities of each sentence.
  """
  support, found, correct = Counter(), Counter(), Counter()
  for true, answers in zip(truth, predicted, strict=True):
    for counts, chosen in (
      (support, true),
      (found, answers),
      (correct, set(true) & set(answers)),
    ):
      for entity in chosen:
        counts.update((None, entity.type))  # None counts all of them.
  scores, names = {}, {None: ALL, ALL: f"{ALL} (type)"}
  for kind in (None, *sorted((support | found).keys() - {None})):
    precision = correct[kind] / max(found[kind], 1)
    recall = correct[kind] / max(support[kind], 1)
    f1 = 2 * correct[kind] / max(found[kind] + support[kind], 1)
    scores[names.get(kind, kind)] = {
      "precision": precision,
      "recall": recall,
      "f1": f1,
      "support": support[kind],
    }
  return scores


def type_confusion(
  truth: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]
) -> dict[str, Counter]:
  """Counts by true and predicted type of the entities that cover equal words.

  The type "" stands for no entity of these words.
  """
  counts = {}
  for true, answers in zip(truth, predicted, strict=True):
    types = [{e[1:]: e.type for e in chosen} for chosen in (true, answers)]
    for span in sorted(types[0].keys() | types[1].keys()):
      row, column = (kind.get(span, "") for kind in types)
      counts.setdefault(row, Counter())[column] += 1
  return counts


class TaggedSentence(NamedTuple):
  """A sentence with the predicted labels of its words, and their loss."""

  where: str
  words: Sequence[str]
  labels: Sequence[str]
  predicted: Sequence[str]
  loss: float

  def spans(self, scheme: str | None) -> tuple[list[Entity], list[Entity]]:
    """The true and the predicted entities; without a scheme, wrong words."""
    if scheme:
      return list(entities(self.labels)), list(entities(self.predicted))
    wrong = [
      index
      for index, label in enumerate(self.labels)
      if label != self.predicted[index]
    ]
    return tuple(
      [Entity(labels[index], index, index + 1) for index in wrong]
      for labels in (self.labels, self.predicted)
    )


@dataclasses.dataclass
class TaggedSet:
  """A task's Evaluation, as the report takes it.

  Attributes:
    name: the data set, such as "dev set".
    sentences: its sentences with their predictions.
    labels, scheme: see TaggingTask.
  """

  name: str
  sentences: Sequence[TaggedSentence]
  labels: Sequence[str]
  scheme: str | None

  @functools.cached_property
  def results(self) -> dict[str, float]:
    """The scores of the entities, and accuracy and loss of the labels."""
    truth, predicted = self._joined()
    loss = sum(s.loss for s in self.sentences) / len(truth)
    found = {}
    if self.scheme:
      scores = self.details["entities"][ALL]
      found = {f"eval_{n}": scores[n] for n in ("f1", "precision", "recall")}
    found["eval_accuracy"] = float(np.mean(truth == predicted))
    return found | {"eval_loss": loss, "loss": loss}

  @property
  def counts(self) -> dict[str, int]:
    """The number of sentences, and of those with a wrong entity or word."""
    spans = (sentence.spans(self.scheme) for sentence in self.sentences)
    wrong = sum(true != predicted for true, predicted in spans)
    return {"sentences": len(self.sentences), "with errors": wrong}

  @functools.cached_property
  def details(self) -> dict:
    """Scores of each type of entity, or of each label, and their confusion."""
    if not self.scheme:
      return metrics.label_report(*self._joined(), self.labels)
    truth = [list(entities(s.labels)) for s in self.sentences]
    predicted = [list(entities(s.predicted)) for s in self.sentences]
    return {
      "entities": entity_scores(truth, predicted),
      "confusion": type_confusion(truth, predicted),
    }

  def _joined(self):
    """The true and the predicted index of the label of every word."""
    index = {label: i for i, label in enumerate(self.labels)}
    true = [index[label] for s in self.sentences for label in s.labels]
    predicted = [index[label] for s in self.sentences for label in s.predicted]
    return np.array(true), np.array(predicted)
