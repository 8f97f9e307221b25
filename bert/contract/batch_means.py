"""Means by weight over a batch that micro-batches and replicas divide.

The losses of the parts are averaged, so a mean by weight needs the total of
the whole batch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

# Added to a sum of weights, so that a mean without weights is 0.
EPSILON = 1e-5


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
