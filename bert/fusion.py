"""Activations in one pass over memory.

An activation such as GELU consists of some ten operations. One by one, they
read and write the widest matrices of the model in memory as often, and their
gradients again. XLA makes one program of them, and one of their gradient, which
pass over memory once. The matrix products stay outside, because oneDNN's are
faster than those of XLA on a CPU. Where no gradient is needed, oneDNN can apply
an activation to a product in float32 by itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable

from bert import quiet_start  # noqa: F401  Before TensorFlow.
import tensorflow as tf

# A matrix of fewer elements takes less time than the start of a program. Where
# the number of rows varies, this many are assumed.
_MIN_ELEMENTS = 2**16
_ASSUMED_ROWS = 2**9

# See quiet_start.
HAS_ONEDNN = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "1"

_local = threading.local()


def enabled(is_enabled: bool) -> contextlib.AbstractContextManager:
  """Lets `activate` compile what this thread builds inside, or not.

  XLA takes 0.1 s for each program and each shape, so this is for steps that run
  often. Several replicas in one process do not support it.
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
  return HAS_ONEDNN and is_forward_only and x.dtype == tf.float32


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
  """activation(x), computed in float32; one program where `enabled`.

  Args:
    activation: a function of a tensor. Its programs are kept, so it must not be
      defined anew for each call.
    x: [rows, width].
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
