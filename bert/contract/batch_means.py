"""Weighted means over a batch that micro-batches and replicas divide.

The losses of the parts are averaged, so a weighted mean needs the total weight
of the whole batch.
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
  """Thread-local state; replicas are traced in several threads."""

  def __init__(self):
    self.recorded = None  # A list to which totals are added, or None.
    self.known = None  # An iterator over the totals of the batch, or None.


_local = _Local()


@contextlib.contextmanager
def recorded(totals: list[tf.Tensor]) -> Iterator[None]:
  """Appends the totals that are requested inside to a list."""
  _local.recorded = totals
  try:
    yield
  finally:
    _local.recorded = None


@contextlib.contextmanager
def known(totals: Iterator[tf.Tensor]) -> Iterator[None]:
  """Supplies the totals of the whole batch, in the order of their recording."""
  _local.known = totals
  try:
    yield
  finally:
    _local.known = None


def mean_total(total: tf.Tensor) -> tf.Tensor:
  """The mean of a total of weights over the parts of a batch.

  `total` is the scalar of this part. It must depend on features only.
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
  """The weighted mean of values over a batch that may be divided.

  The losses of replicas and micro-batches are averaged, and the average of the
  returned values is the weighted mean over the whole batch. Values and weights
  have the same shape; the weights must depend on features only.
  """
  total = tf.reduce_sum(weights) + EPSILON
  mean = tf.reduce_sum(values * weights) / total
  mean_of_parts = mean_total(total)
  return mean if mean_of_parts is total else mean * total / mean_of_parts


def terms(loss: tf.Tensor | Sequence[Term]) -> list[Term]:
  """Converts the result of `Task.loss` to terms."""
  return list(loss) if isinstance(loss, list | tuple) else [(loss, None)]


def mean(terms: Sequence[Term]) -> tf.Tensor:
  """The loss of a training batch, a scalar: the sum of its terms' means."""
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
  """The sum and the total weight of each term over the real rows.

  `is_real` [B] is 0 for rows that only fill up the batch. Replicas may have
  different numbers of real rows, so their sums are added before the division.
  """
  sums = []
  for values, weights in terms:
    real = tf.cast(is_real, values.dtype)
    real = tf.reshape(real, [-1] + [1] * (values.shape.rank - 1))
    weights, epsilon = (
      (tf.ones_like(values), 0.0) if weights is None else (weights, EPSILON)
    )
    weights *= real
    sums.append(
      (tf.reduce_sum(values * weights), tf.reduce_sum(weights) + epsilon)
    )
  return sums


def quotients(sums: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
  """The loss of `real_sums`, a scalar; 0 without real rows."""
  return tf.add_n([tf.math.divide_no_nan(*pair) for pair in sums])
