"""Gradients of a batch, computed in several smaller batches.

Only memory changes: the gradients of the N micro-batches of a batch are summed,
and the sum is the gradient of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

import modeling
import optimization
from bert import variables
from bert.contract import batch_means

# From features to the loss, a scalar, and the scalars to log.
Forward = Callable[
  [Mapping[str, "tf.Tensor"]], tuple["tf.Tensor", dict[str, "tf.Tensor"]]
]


def compute_gradients(
  forward: Forward,
  features: Mapping[str, tf.Tensor],
  update: optimization.Optimization,
) -> tuple[tf.Tensor, dict[str, tf.Tensor], optimization.Gradients]:
  """Loss, scalars and gradients of a batch, computed in micro-batches.

  The loss and scalars of `forward` are means over rows, or weighted means
  (`batch_means.mean_total`). The features are tensors [B, ...].
  """
  count = update.gradient_accumulation_steps
  if count == 1 and not update.compiles_gradients:
    loss, logged = forward(features)
    return loss, logged, optimization.compute_gradients(loss, update)
  # Weighted means need the totals of the batch before the first micro-batch,
  # and replicas cannot sum them in a compiled program. TensorFlow prunes the
  # rest of this forward pass, because nothing reads it.
  totals = []
  with batch_means.recorded(totals):
    _, logged = forward(features)
  parts = {name: _split(x, count) for name, x in features.items()}

  def part_of(index):
    batch_totals = iter([total / count for total in totals])
    with variables.micro_batch(index), batch_means.known(batch_totals):
      loss, logged = forward({name: x[index] for name, x in parts.items()})
    means = {"loss": loss, **logged}
    return loss / count, {name: x / count for name, x in means.items()}

  means, grads = sum_gradients(part_of, count, ("loss", *logged), update)
  return means.pop("loss"), means, grads


def sum_gradients(
  part_of: Callable[[tf.Tensor], tuple[tf.Tensor, Mapping[str, tf.Tensor]]],
  count: int,
  names: Iterable[str],
  update: optimization.Optimization,
) -> tuple[dict[str, tf.Tensor], optimization.Gradients]:
  """Sums the scalars and the Gradients of the parts of a batch.

  `part_of` returns a part's share of the loss, and its scalars with these
  `names`. The parts are computed one after another.
  """
  traced = []

  def terms_of(index):
    loss, scalars = part_of(index)
    grads = optimization.compute_gradients(loss, update)
    traced[:] = [grads]
    return {
      "scalars": scalars,
      "gradients": dict(zip(grads.names, grads.dense, strict=True)),
      "squares": {n: tf.square(norm) for n, norm in grads.row_norms.items()},
    }

  if update.compiles_gradients:
    terms_of = tf.function(terms_of, jit_compile=True, autograph=False)
  sums = _sum(terms_of, count, _zeros(names, update))
  (grads,) = traced
  grads = grads._replace(
    dense=[sums["gradients"][name] for name in grads.names],
    row_norms={n: tf.sqrt(sums["squares"][n]) for n in grads.row_norms},
  )
  return sums["scalars"], grads


def _sum(terms_of, count, zeros):
  """Sums the terms of micro-batches; a missing term counts as 0."""

  def add(index, sums):
    terms = terms_of(index)
    return index + 1, {
      part: {n: x + terms[part].get(n, 0.0) for n, x in old.items()}
      for part, old in sums.items()
    }

  _, sums = tf.while_loop(
    lambda index, _: index < count,
    add,
    (tf.constant(0), zeros),
    parallel_iterations=1,
    maximum_iterations=count,
  )
  return sums


def _zeros(names, update):
  """The sums before the first micro-batch."""
  tvars = optimization.trained_variables(update)
  shapes = {variables.name_of(v): v.shape for v in tvars}
  return {
    "scalars": {name: tf.zeros([]) for name in names},
    "gradients": {name: tf.zeros(shape) for name, shape in shapes.items()},
    "squares": {name: tf.zeros([]) for name in shapes},
  }


def _split(x, count):
  """[B, ...] as [count, B / count, ...]."""
  rows, *rest = modeling.get_shape_list(x)
  return tf.reshape(x, [count, rows // count, *rest])
