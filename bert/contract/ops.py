"""The operations of task heads, on TensorFlow tensors.

`onnx_graph.OnnxOps` has the same operations on the tensors of an ONNX graph.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bert import layers, variables


def unit_length(x: np.ndarray) -> np.ndarray:
  """`TensorOps.unit_length` in NumPy."""
  length = np.linalg.norm(x, axis=-1, keepdims=True)
  return x / np.where(length, length, 1)


def softmax(x: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
  """Softmax over the last axis; of an array without TensorFlow."""
  if not isinstance(x, np.ndarray):
    return tf.nn.softmax(x)
  weights = np.exp(x - np.max(x, axis=-1, keepdims=True))
  return weights / np.sum(weights, axis=-1, keepdims=True)


def sigmoid(x: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
  """Element-wise sigmoid; of an array without TensorFlow."""
  if not isinstance(x, np.ndarray):
    return tf.sigmoid(x)
  return np.exp(-np.logaddexp(0, -x))


class TensorOps:
  """Operations on tensors; in training with dropout."""

  def __init__(self, is_training: bool = False):
    self._is_training = is_training

  def output_layer(
    self, x, size: int, scope: str = "", dropout: bool = True
  ) -> tf.Tensor:
    """x W + b, [..., size], with the variables of `layers.output_shapes`.

    `scope` is the prefix of their names, such as "cls/squad/". `dropout`
    applies to x [..., H], in training only.
    """
    if not scope:
      return layers.task_logits(x, size, self._is_training and dropout)
    with variables.variable_scope(scope.rstrip("/")):
      return layers.task_logits(x, size, self._is_training and dropout)

  def softmax(self, x) -> tf.Tensor:
    """Softmax over the last axis."""
    return softmax(x)

  def sigmoid(self, x) -> tf.Tensor:
    """Element-wise sigmoid."""
    return sigmoid(x)

  def largest(self, x) -> tf.Tensor:
    """The maximum over the last axis."""
    return tf.reduce_max(x, axis=-1)

  def index_of_largest(self, x) -> tf.Tensor:
    """The argmax over the last axis, int32."""
    return tf.argmax(x, axis=-1, output_type=tf.int32)

  def take(self, x, index: int) -> tf.Tensor:
    """x[..., index]."""
    return x[..., index]

  def first(self, x, size: int) -> tf.Tensor:
    """x[..., :size]."""
    return x[..., :size]

  def linear(self, x, factor, offset: float) -> tf.Tensor:
    """x * factor + offset; `factor` may be a list with one per channel."""
    return x * factor + offset

  def masked(self, x, mask, value: float) -> tf.Tensor:
    """x + value where the integer mask is 0."""
    return x + (1.0 - tf.cast(mask, tf.float32)) * value

  def reshaped(self, x, like) -> tf.Tensor:
    """x in the shape of `like`."""
    return tf.reshape(x, tf.shape(like))

  def pool(self, x, mask, how: str) -> tf.Tensor:
    """One vector per row, [B, H], from its token vectors [B, S, H].

    `mask` is 1 for the tokens that count; a row without any gets zeros. `how`
    is "cls", the first token regardless of the mask; "mean"; "max"; or
    "mean_sqrt_len", the sum divided by the square root of the token count.
    """
    if how == "cls":
      return x[:, 0, :]
    mask = tf.cast(mask, x.dtype)
    number = tf.reduce_sum(mask, axis=1, keepdims=True)  # [B, 1]
    weights = mask[:, :, tf.newaxis]
    if how == "max":
      lowest = tf.where(weights > 0, x, x.dtype.min)
      return tf.where(number > 0, tf.reduce_max(lowest, axis=1), 0.0)
    number = tf.maximum(number, 1.0)
    if how == "mean_sqrt_len":
      number = tf.sqrt(number)
    return tf.reduce_sum(x * weights, axis=1) / number

  def unit_length(self, x) -> tf.Tensor:
    """x / ||x|| over the last axis; zeros stay zeros, with gradient 0."""
    return tf.math.l2_normalize(x, axis=-1, epsilon=layers.SMALLEST_NORM**2)
