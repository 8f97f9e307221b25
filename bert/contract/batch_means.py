"""Means by weight over a batch that micro-batches and replicas divide.

The losses of the parts are averaged, so a mean by weight needs the total of
the whole batch.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Iterator, Sequence

import tensorflow as tf

# Added to a sum of weights, so that a mean without weights is 0.
EPSILON = 1e-5

# A part of a loss: values [B, ...], or a scalar, and weights of the same shape;
# None for equal weights.
Term = tuple["tf.Tensor", "tf.Tensor | None"]


class _Local(threading.local):
  """State of a thread; the replicas of a model are traced in several."""

  def __init__(self):
    self.recorded = None  # A list to which totals are added, or None.
    self.known = None  # An iterator over the totals of the batch, or None.


_local = _Local()


@contextlib.contextmanager
def recorded(totals: list[tf.Tensor]) -> Iterator[None]:
  """Adds the totals that are asked for to a list."""
  _local.recorded = totals
  try:
    yield
  finally:
    _local.recorded = None


@contextlib.contextmanager
def known(totals: Iterator[tf.Tensor]) -> Iterator[None]:
  """Gives these totals of the whole batch, in the order of the recording."""
  _local.known = totals
  try:
    yield
  finally:
    _local.known = None


def mean_total(total: tf.Tensor) -> tf.Tensor:
  """The mean of a total of weights over the parts of a batch.

  `total` is a scalar, that of this part, and depends on features only.
  """
  if _local.known is not None:
    return next(_local.known)
  replica = tf.distribute.get_replica_context()
  if replica is not None and replica.num_replicas_in_sync > 1:
    total = replica.all_reduce(tf.distribute.ReduceOp.MEAN, total)
  if _local.recorded is not None:
    _local.recorded.append(total)
  return total


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  """The mean of values by weight over a batch that may be divided.

  The losses of replicas and of micro-batches are averaged. The mean of what
  each returns is the mean over the weights of all. The weights must depend on
  features only.
  """
  total = tf.reduce_sum(weights) + EPSILON
  mean = tf.reduce_sum(values * weights) / total
  mean_of_parts = mean_total(total)
  return mean if mean_of_parts is total else mean * total / mean_of_parts


def terms(loss: tf.Tensor | Sequence[Term]) -> list[Term]:
  """What the `loss` of a task returned, as terms."""
  return list(loss) if isinstance(loss, list | tuple) else [(loss, None)]


def mean(terms: Sequence[Term]) -> tf.Tensor:
  """The sum of the means of terms, a scalar: the loss of a training batch."""
  means = (
    tf.reduce_mean(values)
    if weights is None
    else weighted_mean(values, weights)
    for values, weights in terms
  )
  return functools.reduce(operator.add, means)


def real_sums(
  terms: Sequence[Term], is_real: tf.Tensor
) -> list[tuple[tf.Tensor, tf.Tensor]]:
  """The sum and the weight of each term, without rows that fill up the batch.

  `is_real`, [B], is 0 for these rows. The replicas of an evaluation may have
  different numbers of them, so their sums are added up before the division.
  """
  found = []
  for values, weights in terms:
    real = tf.cast(is_real, values.dtype)
    real = tf.reshape(real, [-1] + [1] * (values.shape.rank - 1))
    weights, least = (
      (tf.ones_like(values), 0.0) if weights is None else (weights, EPSILON)
    )
    weights *= real
    found.append(
      (tf.reduce_sum(values * weights), tf.reduce_sum(weights) + least)
    )
  return found


def quotients(sums: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
  """The loss of `real_sums`, a scalar; 0 without real rows."""
  return tf.add_n([tf.math.divide_no_nan(*pair) for pair in sums])
