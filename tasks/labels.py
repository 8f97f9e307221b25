"""What a classifier's outputs stand for: one label, several, or a number.

A head turns the label of an example into what the loss wants, logits into a
loss, and logits into an answer. The model below it is the same for all.
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from errors import UserError
from pipeline import records

# Between the labels of one text, in files and in answers.
LABEL_SEPARATOR = "|"

# Labels in one message; a task may have thousands.
_LISTED = 20


class _Labels:
  """What heads that choose among labels have in common."""

  def __init__(self, labels: Sequence[str]):
    self.labels = list(labels)
    self.num_outputs = len(self.labels)

  def truth(self, label_ids: np.ndarray) -> np.ndarray:
    """Encoded labels in the form of `predictions`: as they are."""
    return label_ids


class Classification(_Labels):
  """Exactly one of several labels: softmax and cross-entropy (section 4.1).

  Args:
    labels: the labels, in the order of the model's outputs.
  """

  kind = "classification"
  default_metrics = ("accuracy",)
  no_label = 0  # Stands in the features of a text whose label is unknown.

  def __init__(self, labels: Sequence[str]):
    super().__init__(labels)
    self._places = {label: place for place, label in enumerate(self.labels)}

  def label_feature(self) -> records.Feature:
    """The spec of an encoded label."""
    return records.Feature()

  def encode(self, label: str) -> int:
    """The label's place among the labels.

    Raises:
      ValueError: it is none of them.
    """
    if label not in self._places:
      raise UserError(_unknown(label, self.labels))
    return self._places[label]

  def per_example_loss(
    self,
    logits: tf.Tensor,
    label_ids: tf.Tensor,
    weights: Sequence[float] | None = None,
  ) -> tf.Tensor:
    """Cross-entropy float [B].

    Args:
      logits: float [B, C].
      label_ids: integer [B].
      weights: [C], factor of the loss of each label's examples, or None.
    """
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=label_ids, logits=logits
    )
    if weights is None:
      return loss
    return loss * tf.gather(tf.constant(weights, loss.dtype), label_ids)

  def balanced_weights(self, label_ids: np.ndarray) -> list[float]:
    """Weights [C] under which every label counts the same in all.

    Args:
      label_ids: integer [rows], of the training set.
    """
    counts = np.bincount(label_ids, minlength=self.num_outputs)
    return [len(label_ids) / (self.num_outputs * max(n, 1)) for n in counts]

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """Softmax [B, C] of logits [B, C]."""
    return tf.nn.softmax(logits)

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """The most probable label's place, integer [rows]."""
    return np.argmax(probabilities, axis=-1)

  def answer(self, prediction) -> str:
    """One of `predictions` as a user reads it."""
    return self.labels[int(prediction)]


class Multilabel(_Labels):
  """Any number of the labels: a sigmoid and a binary cross-entropy for each.

  In text, the labels of an example are separated by `|`; none is "".

  Args:
    labels: the labels, in the order of the model's outputs.
  """

  kind = "multilabel"
  default_metrics = ("accuracy", "f1_micro", "f1_macro")

  def __init__(self, labels: Sequence[str]):
    super().__init__(labels)
    self.no_label = [0] * self.num_outputs

  def label_feature(self) -> records.Feature:
    """The spec of encoded labels."""
    return records.Feature((self.num_outputs,))

  def encode(self, label: str) -> list[int]:
    """1 for each label that is given and 0 for the others, [C].

    Raises:
      ValueError: one of them is unknown.
    """
    given = split_labels(label)
    for name in given:
      if name not in self.labels:
        raise UserError(_unknown(name, self.labels))
    return [int(name in given) for name in self.labels]

  def per_example_loss(
    self,
    logits: tf.Tensor,
    label_ids: tf.Tensor,
    weights: Sequence[float] | None = None,
  ) -> tf.Tensor:
    """Binary cross-entropy, mean over the labels, float [B].

    Args:
      logits: float [B, C].
      label_ids: integer [B, C], 1 and 0.
      weights: [C], factor of the loss where a label is given, or None.
    """
    loss = tf.nn.weighted_cross_entropy_with_logits(
      labels=tf.cast(label_ids, logits.dtype),
      logits=logits,
      pos_weight=1.0 if weights is None else tf.constant(weights, logits.dtype),
    )
    return tf.reduce_mean(loss, axis=-1)

  def balanced_weights(self, label_ids: np.ndarray) -> list[float]:
    """Weights [C] under which having a label counts as not having it.

    1 for a label that all rows have or none has.

    Args:
      label_ids: 1 and 0 [rows, C], of the training set.
    """
    given = np.sum(label_ids, axis=0)
    rows = len(label_ids)
    return [(rows - n) / n if 0 < n < rows else 1.0 for n in given.tolist()]

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """Each label's own probability [B, C], of logits [B, C]."""
    return tf.sigmoid(logits)

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """1 where a label is more probable than not, integer [rows, C]."""
    return (np.asarray(probabilities) > 0.5).astype(np.int64)

  def answer(self, prediction) -> str:
    """One of `predictions` as a user reads it."""
    given = [name for name, p in zip(self.labels, prediction, strict=True) if p]
    return LABEL_SEPARATOR.join(given)


class Regression:
  """A number: one output, squared error.

  Numbers far from 0 or far apart are learnt badly as they stand, so the model
  may learn how many deviations they lie from a mean.

  Args:
    mean: what the model is to output 0 for.
    deviation: how much more it is to output 1 for.
  """

  kind = "regression"
  default_metrics = ("pearson", "spearman", "mse")
  labels = ()
  num_outputs = 1
  no_label = 0.0

  def __init__(self, mean: float = 0.0, deviation: float = 1.0):
    self.mean = mean
    self.deviation = deviation

  def label_feature(self) -> records.Feature:
    """The spec of a number."""
    return records.Feature(dtype="float32")

  def encode(self, label: str) -> float:
    """The number that stands there, in deviations from the mean.

    Raises:
      ValueError: none does.
    """
    try:
      number = float(label)
    except (TypeError, ValueError):
      number = math.nan
    if not math.isfinite(number):
      raise UserError(f"label {label!r} is no number")
    return (number - self.mean) / self.deviation

  def per_example_loss(
    self, logits: tf.Tensor, label_ids: tf.Tensor, weights: None = None
  ) -> tf.Tensor:
    """Squared error float [B].

    Args:
      logits: float [B, 1].
      label_ids: float [B].
      weights: None; a number has no classes to weigh.
    """
    del weights
    return tf.square(logits[:, 0] - tf.cast(label_ids, logits.dtype))

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """The numbers themselves [B, 1]; they have no probability."""
    return logits * self.deviation + self.mean

  def truth(self, label_ids: np.ndarray) -> np.ndarray:
    """The numbers that were encoded, float [rows]."""
    return np.asarray(label_ids) * self.deviation + self.mean

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """The numbers, float [rows]."""
    return np.asarray(probabilities)[:, 0]

  def answer(self, prediction) -> str:
    """One of `predictions` as a user reads it."""
    return f"{float(prediction):.4f}"


Head = Classification | Multilabel | Regression


def make_head(
  kind: str, labels: Sequence[str], mean: float = 0.0, deviation: float = 1.0
) -> Head:
  """The head of that kind: classification, multilabel or regression.

  The labels are those of the first two, mean and deviation of the last.

  Raises:
    ValueError: there is no such kind.
  """
  if kind == Regression.kind:
    return Regression(mean, deviation)
  kinds = {head.kind: head for head in (Classification, Multilabel)}
  if kind not in kinds:
    raise UserError(
      f"kind={kind!r} is none of {', '.join(kinds)}, {Regression.kind}"
    )
  return kinds[kind](labels)


def as_head(labels: "Head | Sequence[str]") -> Head:
  """A head as it is; a list of labels as a Classification."""
  if isinstance(labels, Head):
    return labels
  return Classification(labels)


def split_labels(label: str) -> list[str]:
  """The labels in a text such as "angry|short"; none in an empty one."""
  return [part.strip() for part in label.split(LABEL_SEPARATOR) if part.strip()]


def _unknown(label, labels):
  known = ", ".join(map(str, labels[:_LISTED]))
  more = len(labels) - _LISTED
  return f"label {label!r} is none of {known}" + (
    f" and {more} more" if more > 0 else ""
  )
