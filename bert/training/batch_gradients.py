"""Gradients of a loss that spans a batch, such as one with in-batch negatives.

The texts of a batch are encoded in groups of similar length, each cut to its
longest text. The loss is a function of all vectors, so neither groups nor
devices change it. The backward pass of a group needs only the gradient of the
loss by the group's vectors. With several micro-batches, all vectors are
computed first; then each group is encoded again for its backward pass
(GradCache, Gao et al. 2021), so the activations of only one group are in
memory. Both passes have the same dropout, because its seed depends on the index
of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

import modeling
import optimization
from bert import variables
from bert.data import records
from bert.training import micro_batches

# Groups per micro-batch, and the minimum number of rows per group.
_GROUPS, _LEAST_ROWS = 2, 4

# Groups are cut to a multiple of this, because activations are compiled for
# each length.
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
      [B, ...] to a scalar. It gets the global batch of all devices.
    features: the part of this device: sequences [B, T, S], and others.
    cuts_groups: whether to form groups by length, and cut them. XLA cannot
      compile shapes that depend on the data.
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
  # sum(vectors * by_vector) has the same gradient as the loss.
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
    # A static length must not change.
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
    # Some texts are repeated, so that all groups have the same size.
    size = -(-count // self.num_groups)
    slots = tf.range(self.num_groups * size)
    self._is_first = tf.reshape(slots < count, [self.num_groups, size])
    order = tf.gather(order, slots % count)
    self._order = tf.reshape(order, [self.num_groups, size])
    self._longest = None
    if by_length:
      self._longest = tf.reduce_max(tf.gather(sizes, self._order), axis=1)

  def group(self, index):
    """The sequences of a group, [R, S]."""
    sequences = {
      n: tf.gather(x, self._order[index]) for n, x in self._sequences.items()
    }
    if self._longest is None:
      return sequences
    end = tf.maximum(-(-self._longest[index] // _MULTIPLE) * _MULTIPLE, 1)
    return {name: x[:, :end] for name, x in sequences.items()}

  def joined(self, vectors):
    """Vectors of groups [K, R, D] as those of the batch [B, T, D]."""
    size = vectors.shape[-1]
    vectors = tf.gather(tf.reshape(vectors, [-1, size]), self._positions)
    return tf.reshape(vectors, [*self._shape, size])

  def divided(self, vectors):
    """The inverse of `joined`; zeros for repeated texts."""
    size = vectors.shape[-1]
    grouped = tf.gather(tf.reshape(vectors, [-1, size]), self._order)
    return tf.where(self._is_first[:, :, tf.newaxis], grouped, 0.0)


def _loss_of_all(batch_loss, vectors, others):
  """The loss of the global batch, and its gradient by this device's vectors."""
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
