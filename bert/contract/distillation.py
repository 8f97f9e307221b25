"""The loss of a student that learns from a teacher (Hinton et al. 2015).

The soft targets of fine-tuning, outputs of the teacher's head, are features of
the rows: those of the output `logits` are the feature `teacher/logits`; see
`bert.training.teacher`. A teacher of pre-training computes them in each step;
see `bert.tasks.pretraining.teacher`. Both are mixed into the loss here.
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

  weight: float = 0.5  # of their loss; that of the labels has the rest
  temperature: float = 2.0  # T, by which logits are divided before the softmax

  def mixed(
    self,
    losses: tf.Tensor,
    task: Task,
    bert: modeling.BertModel | None,
    outputs: Mapping[str, tf.Tensor],
    features: Mapping[str, tf.Tensor],
  ) -> tf.Tensor:
    """The losses of a task, [B, ...] or a scalar, with those of its teacher.

    `bert` is the student; None for a loss that spans the batch.
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
    """The weighted mean of two losses; the soft one alone without a label.

    The losses, of the labels and of the soft targets, are float [B, ...], and
    `is_labeled` is 0 or 1, [B].
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

  The factor keeps the size of the gradients, whatever the temperature (Hinton
  et al. 2015, section 2). The logits of student and teacher are float [..., C];
  the mask, integer [..., C], is 0 for what is no class.
  """
  if mask is not None:
    padding = (1.0 - tf.cast(mask, tf.float32)) * MASKED_SCORE
    logits, targets = logits + padding, targets + padding
  found = tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature)
  wanted = tf.nn.log_softmax(targets / temperature)
  terms = tf.exp(wanted) * (wanted - found)
  return temperature**2 * tf.reduce_sum(terms, axis=-1)


def binary_divergence(
  logits: tf.Tensor, targets: tf.Tensor, temperature: float
) -> tf.Tensor:
  """T^2 KL(teacher, student), the mean over C labels of logits [B, C]: [B]."""
  wanted = tf.sigmoid(targets / temperature)
  cross, own = (
    tf.nn.sigmoid_cross_entropy_with_logits(wanted, x / temperature)
    for x in (tf.cast(logits, tf.float32), targets)
  )
  return temperature**2 * tf.reduce_mean(cross - own, axis=-1)
