"""The loss of a student that learns from a teacher (Hinton et al. 2015).

In fine-tuning, the soft targets are outputs of the teacher's head, and features
of the rows: the output `logits` becomes the feature `teacher/logits`; see
`bert.training.teacher`. In pre-training, the teacher computes the targets in
each step; see `bert.tasks.pretraining.teacher`. This module combines their loss
with the loss of the labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from bert.layers import MASKED_SCORE

if TYPE_CHECKING:
  import modeling
  from bert.contract.task import Task

# Prefix of the names of soft targets among the features of a row.
PREFIX = "teacher/"

# Whether a row has a label, 0 or 1; among its features.
IS_LABELED = "is_labeled"


@dataclasses.dataclass
class Distillation:
  """How a student learns from soft targets, which are features of its rows."""

  weight: float = 0.5  # of the soft loss; the label loss has 1 - weight
  temperature: float = 2.0  # T, the divisor of logits before the softmax

  def mixed(
    self,
    losses: tf.Tensor,
    task: Task,
    bert: modeling.BertModel | None,
    outputs: Mapping[str, tf.Tensor],
    features: Mapping[str, tf.Tensor],
  ) -> tf.Tensor:
    """Combines the losses of a task, [B, ...] or a scalar, with the soft loss.

    `bert` is the student, or None if the loss spans the batch.
    """
    soft = self.soft_loss(task, bert, outputs, features)
    is_labeled = features.get(IS_LABELED)
    if is_labeled is None:
      is_labeled = tf.ones(tf.shape(soft)[:1])
    return self.mix(losses, soft, is_labeled)

  def soft_loss(self, task, bert, outputs, features) -> tf.Tensor:
    """The loss of the soft targets among the features; see `Task.soft_loss`."""
    del bert
    return task.soft_loss(outputs, features, self.temperature)

  def mix(
    self, hard: tf.Tensor, soft: tf.Tensor, is_labeled: tf.Tensor
  ) -> tf.Tensor:
    """The weighted mean of both losses; the soft one alone without a label.

    `hard`, the loss of the labels, and `soft`, that of the soft targets, are
    float [B, ...]; `is_labeled` [B] is 0 or 1.
    """
    is_labeled = tf.cast(is_labeled, tf.float32)
    weight = 1.0 - is_labeled * (1.0 - self.weight)
    for axis in range(1, hard.shape.rank):
      weight = tf.expand_dims(weight, axis)
    return (1.0 - weight) * hard + weight * soft


def divergence(
  logits: tf.Tensor,
  targets: tf.Tensor,
  temperature: float,
  mask: tf.Tensor | None = None,
) -> tf.Tensor:
  """T^2 KL(teacher, student) over the last axis, float [...].

  The factor T^2 makes the scale of the gradients independent of the temperature
  (Hinton et al. 2015, section 2). `logits` of the student and `targets` of the
  teacher are float [..., C]; `mask`, integer [..., C], is 0 for padding.
  """
  if mask is not None:
    padding = (1.0 - tf.cast(mask, tf.float32)) * MASKED_SCORE
    logits, targets = logits + padding, targets + padding
  student = tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature)
  teacher = tf.nn.log_softmax(targets / temperature)
  terms = tf.exp(teacher) * (teacher - student)
  return temperature**2 * tf.reduce_sum(terms, axis=-1)


def binary_divergence(
  logits: tf.Tensor, targets: tf.Tensor, temperature: float
) -> tf.Tensor:
  """T^2 KL(teacher, student), averaged over C labels: [B] from [B, C]."""
  probabilities = tf.sigmoid(targets / temperature)
  cross, own = (
    tf.nn.sigmoid_cross_entropy_with_logits(probabilities, x / temperature)
    for x in (tf.cast(logits, tf.float32), targets)
  )
  return temperature**2 * tf.reduce_mean(cross - own, axis=-1)
