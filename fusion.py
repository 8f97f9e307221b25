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

import quiet_start  # noqa: F401  Before TensorFlow.
import tensorflow as tf

# A matrix of fewer elements takes less time than the start of a program. Where
# the number of rows varies, this many are assumed.
_MIN_ELEMENTS = 2**16
_ASSUMED_ROWS = 2**9

# See quiet_start.
HAS_ONEDNN = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "1"

_local = threading.local()


def enabled(is_enabled: bool) -> contextlib.AbstractContextManager:
  """Lets `fused` compile what this thread builds inside, or not.

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


def fused(
  function: Callable[..., tf.Tensor], *settings
) -> Callable[[tf.Tensor], tf.Tensor]:
  """The function of a matrix, compiled with its gradient where `enabled`.

  Args:
    function: takes `settings` and a tensor [rows, width], and returns a tensor.
      Its programs are kept, so it must not be defined anew for each call.
    settings: hashable objects.
  """

  def call(x):
    rows, width = x.shape
    elements = (rows or _ASSUMED_ROWS) * width
    is_enabled = getattr(_local, "is_enabled", False)
    if not is_enabled or elements < _MIN_ELEMENTS:
      return function(*settings, x)
    return _compiled(function, settings, (x.dtype, rows, width))(x)

  return call


@functools.lru_cache
def _compiled(function, settings, key):
  """A differentiable function of a tensor, as two programs.

  It is one object for all layers, so that XLA compiles each program once.
  """
  del key  # With one object for all sizes, TensorFlow warns of many traces.

  @functools.partial(tf.function, jit_compile=True, autograph=False)
  def forward(x):
    return function(*settings, x)

  @functools.partial(tf.function, jit_compile=True, autograph=False)
  def backward(upstream, x):
    return tf.gradients(function(*settings, x), x, upstream)[0]

  @tf.custom_gradient
  def call(x):
    return forward(x), lambda upstream: backward(upstream, x)

  return call
