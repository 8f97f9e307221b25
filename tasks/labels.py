"""Label types of a classifier: one label, several labels, or a number.

A label type encodes the label of an example for the loss, computes the loss of
logits, and turns logits into predictions.
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from errors import UserError, listing
from pipeline import records

# Separates the labels of one example, in files and in predictions.
LABEL_SEPARATOR = "|"


class _Labels:
  """Base class of the label types that choose among labels."""

  def __init__(self, labels: Sequence[str]):
    self.labels = list(labels)
    self.num_outputs = len(self.labels)

  def truth(self, label_ids: np.ndarray) -> np.ndarray:
    """Encoded labels as `predictions` returns them."""
    return label_ids


class Classification(_Labels):
  """One of several labels: softmax and cross-entropy.

  Args:
    labels: the labels, in the order of the model's outputs.
  """

  kind = "classification"
  default_metrics = ("accuracy",)
  no_label = 0  # Encodes an unknown label.

  def __init__(self, labels: Sequence[str]):
    super().__init__(labels)
    self._ids = {label: i for i, label in enumerate(self.labels)}

  def label_feature(self) -> records.Feature:
    """The spec of an encoded label."""
    return records.Feature()

  def encode(self, label: str) -> int:
    """The index of a label.

    Raises:
      UserError: the label is unknown.
    """
    if label not in self._ids:
      raise UserError(_unknown(label, self.labels))
    return self._ids[label]

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
      weights: [C], weight of the examples of each label, or None.
    """
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=label_ids, logits=logits
    )
    if weights is None:
      return loss
    return loss * tf.gather(tf.constant(weights, loss.dtype), label_ids)

  def balanced_weights(self, label_ids: np.ndarray) -> list[float]:
    """Weights [C] that give each label the same total weight.

    Args:
      label_ids: integer [rows], of the training set.
    """
    counts = np.bincount(label_ids, minlength=self.num_outputs)
    return [len(label_ids) / (self.num_outputs * max(n, 1)) for n in counts]

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """Softmax [B, C] of logits [B, C]."""
    return tf.nn.softmax(logits)

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """The index of the most probable label, integer [rows]."""
    return np.argmax(probabilities, axis=-1)

  def answer(self, prediction: int) -> str:
    """The text of one of `predictions`."""
    return self.labels[int(prediction)]


class Multilabel(_Labels):
  """Any number of labels: a sigmoid and a binary cross-entropy for each.

  In text, labels are separated by `|`; "" stands for no label.

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
    """1 for each of the given labels and 0 for the others, [C].

    Raises:
      UserError: a label is unknown.
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
    """Binary cross-entropy, averaged over the labels, float [B].

    Args:
      logits: float [B, C].
      label_ids: integer [B, C], 0 or 1.
      weights: [C], weight of the examples that have the label, or None.
    """
    loss = tf.nn.weighted_cross_entropy_with_logits(
      labels=tf.cast(label_ids, logits.dtype),
      logits=logits,
      pos_weight=1.0 if weights is None else tf.constant(weights, logits.dtype),
    )
    return tf.reduce_mean(loss, axis=-1)

  def balanced_weights(self, label_ids: np.ndarray) -> list[float]:
    """Weights [C] that balance examples with and without each label.

    The weight of a label that all rows or no rows have is 1.

    Args:
      label_ids: integer [rows, C], 0 or 1, of the training set.
    """
    given = np.sum(label_ids, axis=0)
    rows = len(label_ids)
    return [(rows - n) / n if 0 < n < rows else 1.0 for n in given.tolist()]

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """The probability of each label [B, C], for logits [B, C]."""
    return tf.sigmoid(logits)

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """1 for labels with a probability above 0.5, integer [rows, C]."""
    return (np.asarray(probabilities) > 0.5).astype(np.int64)

  def answer(self, prediction: Sequence[int]) -> str:
    """The text of one of `predictions`."""
    given = [name for name, p in zip(self.labels, prediction, strict=True) if p]
    return LABEL_SEPARATOR.join(given)


class Regression:
  """A number: one output and a squared error.

  The model learns (number - mean) / deviation, because numbers far from 0 or
  far apart are hard to learn.

  Args:
    mean: mean of the training set's numbers.
    deviation: their standard deviation.
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
    """The spec of an encoded number."""
    return records.Feature(dtype="float32")

  def encode(self, label: str) -> float:
    """The number that the text of a label gives, standardized.

    Raises:
      UserError: it is not a finite number.
    """
    try:
      number = float(label)
    except (TypeError, ValueError):
      number = math.nan
    if not math.isfinite(number):
      raise UserError(f"label {label!r} is not a number")
    return (number - self.mean) / self.deviation

  def per_example_loss(
    self, logits: tf.Tensor, label_ids: tf.Tensor, weights: None = None
  ) -> tf.Tensor:
    """Squared error float [B].

    Args:
      logits: float [B, 1].
      label_ids: float [B].
      weights: None; numbers have no weights.
    """
    del weights
    return tf.square(logits[:, 0] - tf.cast(label_ids, logits.dtype))

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """The predicted numbers [B, 1]; they have no probability."""
    return logits * self.deviation + self.mean

  def truth(self, label_ids: np.ndarray) -> np.ndarray:
    """The numbers that were encoded, float [rows]."""
    return np.asarray(label_ids) * self.deviation + self.mean

  def predictions(self, probabilities: np.ndarray) -> np.ndarray:
    """The predicted numbers, float [rows]."""
    return np.asarray(probabilities)[:, 0]

  def answer(self, prediction: float) -> str:
    """The text of one of `predictions`."""
    return f"{float(prediction):.4f}"


LabelType = Classification | Multilabel | Regression
KINDS = {kind.kind: kind for kind in (Classification, Multilabel, Regression)}


def make_label_type(
  kind: str, labels: Sequence[str], mean: float = 0.0, deviation: float = 1.0
) -> LabelType:
  """The label type of a kind: classification, multilabel or regression.

  Args:
    kind: one of KINDS.
    labels: the labels; not used for a regression.
    mean, deviation: scale of a regression.

  Raises:
    ValueError: the kind is unknown.
  """
  if kind not in KINDS:
    raise ValueError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
  if kind == Regression.kind:
    return Regression(mean, deviation)
  return KINDS[kind](labels)


def as_label_type(labels: LabelType | Sequence[str]) -> LabelType:
  """A label type as it is; a list of labels as a Classification."""
  return labels if isinstance(labels, LabelType) else Classification(labels)


def predicted_text(label_type: LabelType, probabilities: np.ndarray) -> str:
  """The text of the prediction for the probabilities [C] of an example."""
  rows = np.asarray(probabilities)[np.newaxis]
  return label_type.answer(label_type.predictions(rows)[0])


def split_labels(label: str) -> list[str]:
  """The labels in a text such as "angry|short"; none in an empty one."""
  return [part.strip() for part in label.split(LABEL_SEPARATOR) if part.strip()]


def _unknown(label, labels):
  return f"label {label!r} is not one of {listing(labels)}"
