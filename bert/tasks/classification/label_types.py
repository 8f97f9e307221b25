"""Label types of a classifier: one label, several labels, or a number.

A label type encodes the label of an example for the loss, computes the loss of
logits, and turns logits into predictions.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert import layers
from bert.contract import ops
from bert.data import records
from bert.errors import UserError, check_known, shortened

_NEVER = -1e4  # A logit whose probability is 0.

# Separates the labels of one example, in files and in predictions.
LABEL_SEPARATOR = "|"


class LabelType:
  """Base class of label types; `labels` are in the order of the outputs."""

  kind: str  # a key of KINDS
  # Keys of `metrics.METRICS`, for the user's own data and processors.
  default_metrics: Sequence[str]
  label_feature = records.Feature()  # spec of an encoded label
  no_label: int | float | list[int] = 0  # encodes an unknown label

  def __init__(self, labels: Sequence[str]):
    self.labels = list(labels)
    self.num_outputs = len(self.labels)  # C, per example.
    self._ids = {label: i for i, label in enumerate(self.labels)}

  def _id(self, label):
    check_known(f"label {label!r}", label, self._ids)
    return self._ids[label]

  def encode(self, label: str) -> int | float | list[int]:
    """Returns an index, 0 or 1 for each label [C], or a number.

    Raises ValueError for an unknown label, or if it is not a number.
    """

  def per_example_loss(
    self,
    logits: tf.Tensor,
    label_ids: tf.Tensor,
    weights: Sequence[float] | None = None,
  ) -> tf.Tensor:
    """The loss of each row [B], from logits [B, C] and label_ids [B, ...].

    `weights` [C] are factors for the rows with each label.
    """

  def shares(self, label_ids: np.ndarray | tf.Tensor) -> tf.Tensor:
    """Encoded labels as a 0 or 1 for each label, float [B, C]."""

  def balanced_weights(self, label_ids: np.ndarray) -> list[float]:
    """Label weights [C] that balance the encoded labels of a training set."""

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """The probability of each label, or the predicted numbers, float [B, C]."""

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """The predicted labels, encoded as by `encode`, or the numbers [rows]."""

  def truth(self, label_ids: np.ndarray) -> np.ndarray:
    """Encoded labels in the form that `predictions` returns."""
    return label_ids

  def answer(self, prediction: int | float | Sequence[int]) -> str:
    """The text of one of `predictions`."""

  def translated(self, logits: np.ndarray, other: LabelType) -> np.ndarray:
    """The logits [C] of another type of this kind, by these labels.

    Those of labels that the other type lacks are very low.
    """
    by_label = dict(zip(other.labels, logits, strict=True))
    return np.float32([by_label.get(x, _NEVER) for x in self.labels])


class Classification(LabelType):
  """One of several labels: softmax and cross-entropy."""

  kind = "classification"
  default_metrics = ("accuracy", "f1_macro")

  def encode(self, label):
    return self._id(label)

  def per_example_loss(self, logits, label_ids, weights=None):
    loss = layers.cross_entropy(logits, label_ids)
    if weights is None:
      return loss
    one_hot = self.shares(label_ids)
    return loss * tf.linalg.matvec(one_hot, tf.constant(weights, loss.dtype))

  def shares(self, label_ids):
    return tf.one_hot(label_ids, self.num_outputs)

  def balanced_weights(self, label_ids):
    counts = np.bincount(label_ids, minlength=self.num_outputs)
    return [len(label_ids) / (self.num_outputs * max(n, 1)) for n in counts]

  def probabilities(self, logits):
    return ops.softmax(logits)

  def predictions(self, probabilities):
    return np.argmax(probabilities, axis=-1)

  def answer(self, prediction):
    return self.labels[int(prediction)]


class Multilabel(LabelType):
  """Any number of labels: a sigmoid and a binary cross-entropy for each.

  In text, labels are separated by `|`; "" stands for no label. A label is
  predicted if its probability is above 0.5. The loss of a row is the mean over
  the labels.
  """

  kind = "multilabel"
  default_metrics = ("accuracy", "f1_micro", "f1_macro")

  def __init__(self, labels: Sequence[str]):
    super().__init__(labels)
    self.label_feature = records.Feature((self.num_outputs,))
    self.no_label = [0] * self.num_outputs

  def encode(self, label):
    given = set(map(self._id, split_labels(label)))
    return [int(i in given) for i in range(self.num_outputs)]

  def per_example_loss(self, logits, label_ids, weights=None):
    loss = tf.nn.weighted_cross_entropy_with_logits(
      labels=tf.cast(label_ids, logits.dtype),
      logits=logits,
      pos_weight=1.0 if weights is None else tf.constant(weights, logits.dtype),
    )
    return tf.reduce_mean(loss, axis=-1)

  def shares(self, label_ids):
    return tf.cast(label_ids, tf.float32)

  def balanced_weights(self, label_ids):
    # A label of all rows or of no row cannot be balanced.
    rows, counts = len(label_ids), np.sum(label_ids, axis=0).tolist()
    return [(rows - n) / n if 0 < n < rows else 1.0 for n in counts]

  def probabilities(self, logits):
    return ops.sigmoid(logits)

  def predictions(self, probabilities):
    return (np.asarray(probabilities) > 0.5).astype(np.int64)

  def answer(self, prediction):
    given = [name for name, p in zip(self.labels, prediction, strict=True) if p]
    return LABEL_SEPARATOR.join(given)


class Regression(LabelType):
  """A number: one output and a squared error.

  The model learns (number - mean) / deviation, with mean and deviation of the
  training set, because numbers far from 0 or far apart are hard to learn.
  """

  kind = "regression"
  default_metrics = ("pearson", "spearman", "mse")
  label_feature = records.Feature(dtype="float32")
  no_label = 0.0

  def __init__(self, mean: float = 0.0, deviation: float = 1.0):
    super().__init__([])
    self.num_outputs = 1
    self.mean = mean
    self.deviation = deviation

  def encode(self, label):
    number = as_number(label)
    if number is None:
      raise ValueError(f"label {label!r} is not a number")
    return (number - self.mean) / self.deviation

  def per_example_loss(self, logits, label_ids, weights=None):
    del weights  # Numbers have no weights.
    return tf.square(logits[:, 0] - tf.cast(label_ids, logits.dtype))

  def balanced_weights(self, label_ids):
    raise UserError("--class_weights=balanced needs labels, not numbers")

  def probabilities(self, logits):
    if not isinstance(logits, np.ndarray):
      return logits * self.deviation + self.mean
    # In float32, large numbers that are close together would be equal.
    numbers = np.asarray(logits, np.float64) * self.deviation + self.mean
    # The outputs themselves have the seven digits of float32.
    decimals = 7 - math.floor(math.log10(self.deviation))
    return np.round(numbers, np.clip(decimals, -300, 300))

  def truth(self, label_ids):
    return self.probabilities(np.asarray(label_ids))

  def predictions(self, probabilities):
    return np.asarray(probabilities)[:, 0]

  def translated(self, logits, other):
    return (other.probabilities(logits) - self.mean) / self.deviation

  def answer(self, prediction):
    number = float(prediction)
    # Six digits of the deviation are significant, and a float has 15.
    ratio = min(max(abs(self.mean) / self.deviation, 1), 1e9)
    digits = 6 + int(math.log10(ratio))
    is_whole = abs(number) >= 10 ** (digits - 1)
    return f"{number:.0f}" if is_whole else f"{number:.{digits}g}"


KINDS = {kind.kind: kind for kind in (Classification, Multilabel, Regression)}


def as_number(label: str | float | None) -> float | None:
  """A label as a finite number, or None."""
  try:
    number = float(label)
  except (TypeError, ValueError, OverflowError):
    return None
  return number if math.isfinite(number) else None


def as_label_type(labels: LabelType | Sequence[str]) -> LabelType:
  """A label type as it is; a list of labels as a Classification."""
  return labels if isinstance(labels, LabelType) else Classification(labels)


def predicted_text(label_type: LabelType, probabilities: np.ndarray) -> str:
  """The text of the prediction for the probabilities [C] of an example."""
  rows = np.asarray(probabilities)[np.newaxis]
  return label_type.answer(label_type.predictions(rows)[0])


def split_labels(label: str) -> list[str]:
  """The labels in a text such as "angry|short"; [] for an empty one."""
  return [part.strip() for part in label.split(LABEL_SEPARATOR) if part.strip()]


def fault_of(labels: Sequence) -> str | None:
  """Why labels are not distinct strings; None if they are."""
  for label in labels:
    if not isinstance(label, str):
      return f"the label {shortened(repr(label))} is not a string"
  for label, count in collections.Counter(labels).items():
    if count > 1:
      return f"the label {shortened(repr(label))} occurs {count} times"
  return None
