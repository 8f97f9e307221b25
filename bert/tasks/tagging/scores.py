"""Scores of labeled words: of their entities, or of each label."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert import metrics
from bert.reports import verdict
from bert.tasks.tagging.entities import Entity, entities

# The key of the scores of all types together.
ALL = "all"


def entity_scores(
  truth: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]
) -> dict[str, dict[str, float]]:
  """Precision, recall, F1 and support of ALL entities and of each type.

  An entity is correct if its type and its words are correct. Scores are 0 where
  they are undefined. A type with the name ALL gets the key "all (type)".
  """
  support, answered, correct = Counter(), Counter(), Counter()
  for true, answers in zip(truth, predicted, strict=True):
    for counts, chosen in (
      (support, true),
      (answered, answers),
      (correct, set(true) & set(answers)),
    ):
      for entity in chosen:
        counts.update((None, entity.type))  # None counts all types.
  scores, names = {}, {None: ALL, ALL: f"{ALL} (type)"}
  for kind in (None, *sorted((support | answered).keys() - {None})):
    precision = correct[kind] / max(answered[kind], 1)
    recall = correct[kind] / max(support[kind], 1)
    f1 = 2 * correct[kind] / max(answered[kind] + support[kind], 1)
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
  """Counts of entities with equal words, by true and predicted type, or ""."""
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


def _correct(sentence):
  pairs = zip(sentence.labels, sentence.predicted, strict=True)
  return sum(true == predicted for true, predicted in pairs)


@dataclasses.dataclass
class TaggedSet:
  """An Evaluation for the report; see TaggingTask."""

  name: str
  sentences: Sequence[TaggedSentence]
  labels: Sequence[str]
  scheme: str | None

  @functools.cached_property
  def results(self) -> dict[str, float]:
    """The scores of the entities, and accuracy and loss of the labels."""
    truth, predicted = self._joined()
    loss = sum(s.loss for s in self.sentences) / len(truth)
    results = {}
    if self.scheme:
      scores = self.details["entities"][ALL]
      results = {f"eval_{n}": scores[n] for n in ("f1", "precision", "recall")}
    results["eval_accuracy"] = float(np.mean(truth == predicted))
    return results | {"eval_loss": loss}

  @property
  def counts(self) -> dict[str, int]:
    """The number of sentences, and of sentences with a wrong entity or word."""
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

  def sample(self) -> verdict.Sample:
    """The sentences behind F1, or behind the accuracy of words."""
    if not self.scheme:
      counts = np.array([[len(s.labels), _correct(s)] for s in self.sentences])
      truth, _ = self._joined()
      usual = np.bincount(truth)
      name = f"always {self.labels[usual.argmax()]!r}"
      return verdict.Sample(
        "accuracy",
        len(counts),
        lambda rows: float(counts[rows, 1].sum() / counts[rows, 0].sum()),
        unit="sentence",
        baseline=(name, float(usual.max() / usual.sum())),
      )
    spans = [tuple(map(set, s.spans(self.scheme))) for s in self.sentences]
    counts = np.array([[len(t & p), len(t) + len(p)] for t, p in spans])
    return verdict.Sample(
      "f1",
      len(counts),
      lambda rows: float(
        2 * counts[rows, 0].sum() / max(counts[rows, 1].sum(), 1)
      ),
      unit="sentence",
      advice=self._advice(),
    )

  def _advice(self):
    """The type of entities with the lowest F1, if it is far below the mean."""
    scores = dict(self.details["entities"])
    mean = scores.pop(ALL)["f1"]
    occurring = {k: row for k, row in scores.items() if row["support"]}
    worst = min(occurring, key=lambda kind: occurring[kind]["f1"], default=None)
    if worst is None or occurring[worst]["f1"] > mean - 0.1:
      return ()
    f1, support = occurring[worst]["f1"], occurring[worst]["support"]
    remedy = verdict.remedy(
      self.results,
      False,  # Entities have no weights.
      "add sentences with them to the training set, and check their labels",
    )
    return (
      f"Entities of type {worst!r} have an F1 of {f1:.2f} ({support:,} here): "
      f"{remedy}.",
    )

  def _joined(self):
    """The true and the predicted index of the label of every word."""
    index = {label: i for i, label in enumerate(self.labels)}
    true = [index[label] for s in self.sentences for label in s.labels]
    predicted = [index[label] for s in self.sentences for label in s.predicted]
    return np.array(true), np.array(predicted)
