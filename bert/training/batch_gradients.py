"""Gradients of a loss that spans a batch, as one with in-batch negatives does.

The texts of a batch are encoded in groups of similar length, each cut to its
own longest. The loss is a function of all their vectors, so neither groups nor
devices change it. Its gradient by vector is all that the backward pass of a
group needs. So with several micro-batches, all vectors are computed first, and
then each group is encoded again with its gradient (GradCache, Gao et al. 2021):
the activations of one group are in memory at a time. Both passes have the same
dropout, whose seed depends on the number of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

import modeling
import optimization
from bert import variables
from bert.data import records
from bert.training import micro_batches

# Groups of a micro-batch, and its least number of rows for each.
_GROUPS, _LEAST_ROWS = 2, 4

# Groups are cut to a multiple, as activations are compiled for each length.
_MULTIPLE = 4

Tensors = Mapping[str, "tf.Tensor"]


def compute_gradients(
  encode: Callable[[Tensors], tf.Tensor],
  batch_loss: Callable[[tf.Tensor, Tensors], tf.Tensor],
  features: Tensors,
  update: optimization.Optimization,
  cuts_groups: bool = True,
) -> tuple[tf.Tensor, optimization.Gradients]:
  """Loss and gradients of a batch; see `micro_batches.compute_gradients`.

  Args:
    encode: from three sequences [R, S] to vectors [R, D].
    batch_loss: from the vectors of a batch [B, T, D] and its other features
      [B, ...] to a scalar. With several devices, the batch is that of all.
    features: the part of this device: sequences [B, T, S], and others.
    cuts_groups: whether to form groups by length, and cut them. XLA compiles
      no shapes that depend on the data.
  """
  texts = _Texts(features, update.gradient_accumulation_steps, cuts_groups)
  is_divided = update.gradient_accumulation_steps > 1

  def vectors_of(index):
    # A new scope numbers the sites of dropout from 0, in both passes.
    with variables.micro_batch(index), variables.variable_scope(""):
      return encode(texts.group(index))

  if is_divided:
    vectors = tf.map_fn(
      vectors_of,
      tf.range(texts.num_groups),
      fn_output_signature=tf.float32,
      parallel_iterations=1,
    )
  else:
    vectors = tf.stack([vectors_of(i) for i in range(texts.num_groups)])
  others = {n: x for n, x in features.items() if n not in records.SEQUENCES}
  loss, by_vector = _loss_of_all(batch_loss, texts.joined(vectors), others)
  by_vector = texts.divided(by_vector)
  # Its gradient is that of the loss.
  if not is_divided:
    product = tf.reduce_sum(vectors * by_vector)
    return loss, optimization.compute_gradients(product, update)

  def part_of(index):
    return tf.reduce_sum(vectors_of(index) * by_vector[index]), {}

  _, gradients = micro_batches.sum_gradients(
    part_of, texts.num_groups, (), update
  )
  return loss, gradients


class _Texts:
  """The texts of a batch, sequences [B, T, S] or [B, S], in K groups."""

  def __init__(self, features, micro_batches, by_length):
    self._shape = modeling.get_shape_list(features["input_ids"])[:-1]
    # If the length is static, it has to stay.
    by_length &= features["input_ids"].shape[-1] is None
    of_micro_batch = (features["input_ids"].shape[0] or 0) // micro_batches
    groups = min(_GROUPS, of_micro_batch // _LEAST_ROWS) if by_length else 1
    self.num_groups = micro_batches * max(groups, 1)
    length = modeling.get_shape_list(features["input_ids"])[-1]
    self._sequences = {
      name: tf.reshape(features[name], [-1, length])
      for name in records.SEQUENCES
    }
    sizes = tf.reduce_sum(self._sequences["input_mask"], axis=1)
    count = modeling.get_shape_list(sizes)[0]
    order = tf.argsort(sizes) if by_length else tf.range(count)
    self._positions = tf.argsort(order)
    # Some texts come twice if groups of one size cannot hold them once.
    size = -(-count // self.num_groups)
    places = tf.range(self.num_groups * size)
    self._is_first = tf.reshape(places < count, [self.num_groups, size])
    order = tf.gather(order, places % count)
    self._order = tf.reshape(order, [self.num_groups, size])
    self._longest = None
    if by_length:
      self._longest = tf.reduce_max(tf.gather(sizes, self._order), axis=1)

  def group(self, index):
    """The sequences of a group, [R, S]."""
    found = {
      n: tf.gather(x, self._order[index]) for n, x in self._sequences.items()
    }
    if self._longest is None:
      return found
    end = tf.maximum(-(-self._longest[index] // _MULTIPLE) * _MULTIPLE, 1)
    return {name: x[:, :end] for name, x in found.items()}

  def joined(self, vectors):
    """Vectors of groups [K, R, D] as those of the batch [B, T, D]."""
    size = vectors.shape[-1]
    vectors = tf.gather(tf.reshape(vectors, [-1, size]), self._positions)
    return tf.reshape(vectors, [*self._shape, size])

  def divided(self, vectors):
    """The inverse of `joined`; zeros for what comes a second time."""
    size = vectors.shape[-1]
    found = tf.gather(tf.reshape(vectors, [-1, size]), self._order)
    return tf.where(self._is_first[:, :, tf.newaxis], found, 0.0)


def _loss_of_all(batch_loss, vectors, others):
  """The loss of the batch of all devices, and its gradient by own vector."""
  replica = tf.distribute.get_replica_context()
  count = replica.num_replicas_in_sync if replica is not None else 1
  rows = modeling.get_shape_list(vectors)[0]
  if count > 1:
    vectors, others = tf.nest.map_structure(
      lambda x: tf.ensure_shape(
        replica.all_gather(x, axis=0), [None, *x.shape[1:]]
      ),
      (vectors, others),
    )
  vectors = tf.stop_gradient(vectors)
  loss = batch_loss(vectors, others)
  (gradient,) = tf.gradients(loss, [vectors])
  if count > 1:
    first = replica.replica_id_in_sync_group * rows
    # The update takes the mean over the devices, each with a part of the sum.
    gradient = gradient[first : first + rows] * count
  return loss, tf.stop_gradient(gradient)
