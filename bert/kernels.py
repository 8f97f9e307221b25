"""What is made by hand for speed, where `layers` has the textbook form.

Each part computes what TensorFlow's own operations would, in fewer passes over
memory. benchmarks/training_step.py measures them together.

- GELU and LayerNorm with explicit gradients: half as many passes, or fewer.
- A bias whose gradient is a product, and which stays apart in bfloat16.
- Activations as one program: an activation such as GELU consists of some ten
  operations. One by one, they read and write the widest matrices of the model
  as often, and their gradients again. XLA makes one program of them, and one of
  their gradient, which pass over memory once. The matrix products stay outside,
  because oneDNN's are faster than those of XLA on a CPU. Where no gradient is
  needed, oneDNN can apply an activation to a product in float32 by itself.

A v1 graph uses the textbook forms: there, a custom gradient would leave
operations that nothing uses.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from collections.abc import Callable

import tensorflow as tf

# A matrix of fewer elements takes less time than the start of a program. Where
# the number of rows varies, this many are assumed.
_MIN_ELEMENTS = 2**16
_ASSUMED_ROWS = 2**9

_local = threading.local()


def has_onednn() -> bool:
  """Whether TensorFlow uses oneDNN; see quiet_start."""
  return os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "1"


def gelu(x: tf.Tensor) -> tf.Tensor:
  """`layers.gelu`."""
  # Decorators would load TensorFlow when this module is imported.
  return tf.custom_gradient(_gelu_and_gradient)(x)


def _gelu_and_gradient(x):
  """x (1 + tanh u) / 2 as x sigmoid(2 u)."""
  slope = 2.0 * math.sqrt(2.0 / math.pi)
  sigmoid = tf.sigmoid(x * (slope + 0.044715 * slope * tf.square(x)))

  def gradient(upstream):
    inner = slope + 3 * 0.044715 * slope * tf.square(x)
    # SigmoidGrad(s, x) is x s (1 - s).
    sloped = tf.raw_ops.SigmoidGrad(y=sigmoid, dy=x) * inner
    return upstream * (sigmoid + sloped)

  return x * sigmoid, gradient


def normalize(
  x: tf.Tensor, beta: tf.Tensor, gamma: tf.Tensor, epsilon: float
) -> tf.Tensor:
  """`layers.normalize` with the gradients of its three tensors."""

  @tf.custom_gradient
  def call(x, beta, gamma):
    wide = tf.cast(x, tf.float32)
    centered = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
    scale = tf.math.rsqrt(variance + epsilon)
    normalized = centered * scale

    def gradient(upstream):
      upstream = tf.cast(upstream, tf.float32)
      scaled = upstream * normalized
      weights = tf.expand_dims(gamma, 1) / gamma.shape[0]  # For means [..., 1].
      mean, slope = (tf.matmul(y, weights) for y in (upstream, scaled))
      inner = upstream * gamma - mean - normalized * slope
      return (
        tf.cast(inner * scale, x.dtype),
        _sum_of_rows(upstream),
        _sum_of_rows(scaled),
      )

    return tf.cast(normalized * gamma + beta, x.dtype), gradient

  return call(x, beta, gamma)


def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
  """x + b of a matrix."""
  return tf.custom_gradient(_add_bias_and_gradient)(x, bias)


def _add_bias_and_gradient(x, bias):
  def gradient(upstream):
    return upstream, _sum_of_rows(upstream)

  # TensorFlow makes one operation of a product and its bias. That of oneDNN
  # does not use AMX in bfloat16, and a leading axis prevents it.
  if x.dtype == tf.bfloat16:
    return tf.nn.bias_add(x[tf.newaxis], bias)[0], gradient
  return tf.nn.bias_add(x, bias), gradient


def _sum_of_rows(x):
  """[width] of [..., width], by a product: fast, and summed in float32."""
  x = tf.reshape(x, [-1, x.shape[-1]])
  ones = tf.ones_like(tf.slice(x, [0, 0], [-1, 1]))
  return tf.reshape(tf.matmul(ones, x, transpose_a=True), [-1])


def enabled(is_enabled: bool) -> contextlib.AbstractContextManager:
  """Lets `activate` compile what this thread builds inside, or not.

  XLA takes 0.1 s for each program and each shape. Several replicas in one
  process do not support it.
  """
  return _setting("is_enabled", is_enabled)


def forward_only(is_enabled: bool = True) -> contextlib.AbstractContextManager:
  """Tells the layers that no gradient of what is built inside is needed."""
  return _setting("is_forward_only", is_enabled)


def combines(x: tf.Tensor) -> bool:
  """Whether TensorFlow makes one operation of a product, bias and activation.

  oneDNN does so for all shapes of a matrix x in float32, without a gradient.
  """
  is_forward_only = getattr(_local, "is_forward_only", False)
  return has_onednn() and is_forward_only and x.dtype == tf.float32


@contextlib.contextmanager
def _setting(name, value):
  previous = getattr(_local, name, False)
  setattr(_local, name, value)
  try:
    yield
  finally:
    setattr(_local, name, previous)


def activate(
  activation: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor
) -> tf.Tensor:
  """activation(x) of [rows, width], computed in float32.

  Where `enabled`, it is one program, which is kept, so the activation must not
  be defined anew for each call.
  """
  rows, width = x.shape
  elements = (rows or _ASSUMED_ROWS) * width
  if not getattr(_local, "is_enabled", False) or elements < _MIN_ELEMENTS:
    return _in_float32(activation, x)
  return _compiled(activation, (x.dtype, rows, width))(x)


def _in_float32(activation, x):
  return tf.cast(activation(tf.cast(x, tf.float32)), x.dtype)


@functools.lru_cache
def _compiled(activation, key):
  """The activation of a matrix and its gradient, as two programs.

  It is one object for all layers, so that XLA compiles each program once.
  """
  del key  # With one object for all sizes, TensorFlow warns of many traces.

  @functools.partial(tf.function, jit_compile=True, autograph=False)
  def forward(x):
    return _in_float32(activation, x)

  @functools.partial(tf.function, jit_compile=True, autograph=False)
  def backward(upstream, x):
    return tf.gradients(_in_float32(activation, x), x, upstream)[0]

  @tf.custom_gradient
  def call(x):
    return forward(x), lambda upstream: backward(upstream, x)

  return call
