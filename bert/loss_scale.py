"""Dynamic loss scaling, for training in float16 (Micikevicius et al. 2018).

In float16, small gradients are 0 and large ones infinite. So the loss is
multiplied by a scale before it is differentiated, and the gradients are divided
by it. A step whose gradients are not finite is skipped and halves the scale;
GOOD_STEPS steps in a row double it. The state is in variables, so a continued
training has the same scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bert import variables  # First: `bert` makes TensorFlow load late.
import tensorflow as tf

START = 2.0**15
GOOD_STEPS = 2000

# At less than 1, the gradients themselves are too large; see `Progress`.
_SMALLEST, _LARGEST = 0.5, 2.0**24


def current() -> tf.Variable:
  """The scale, a power of 2."""

  def start(shape, dtype):
    return tf.fill(shape, tf.constant(START, dtype))

  return _variable("loss_scale", tf.float32, start)


def skipped_steps() -> tf.Variable:
  """Number of the steps that were skipped."""
  return _variable("skipped_steps", tf.int64)


def _variable(name, dtype, initializer=None):
  store = variables.current_store()
  return store.get(name, [], initializer, dtype, trainable=False)


def apply_if_finite(
  gradients: Sequence[tf.Tensor], apply: Callable[[tf.Tensor], tf.Tensor]
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
  """Updates the weights unless a gradient of the scaled loss is not finite.

  `apply` updates them, given the scale, and returns the norm of the gradients,
  which are equal on all replicas. Returns the norm, NaN in a skipped step, and
  a dict of scalars for the log.
  """
  scale = tf.identity(current())
  is_finite = tf.math.is_finite(tf.linalg.global_norm(gradients))
  norm = tf.cond(is_finite, lambda: apply(scale), lambda: float("nan"))
  good_steps = _variable("good_steps", tf.int64)
  skipped = skipped_steps()
  count = tf.where(is_finite, good_steps + 1, 0)
  is_long = count >= GOOD_STEPS
  scale *= tf.where(is_finite, tf.where(is_long, 2.0, 1.0), 0.5)
  good_steps.assign(tf.where(is_long, tf.zeros_like(count), count))
  skipped.assign_add(tf.cast(~is_finite, tf.int64))
  return norm, {
    "loss scale": current().assign(
      tf.clip_by_value(scale, _SMALLEST, _LARGEST)
    ),
    "skipped steps": tf.cast(skipped, tf.float32),
  }
