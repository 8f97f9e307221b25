"""Runs rows through a compiled program, and checks the numbers.

    program = in_numpy(programs.get(ModeKeys.PREDICT, signature(batching)))
    for outputs in compute_rows(program, batching, rows, axes, "checkpoint X"):
      outputs["logits"]  # of one row

Evaluation and prediction, `bert.load` and the server all compute rows here, by
TensorFlow or by any other runtime.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import TypeVar

import numpy as np
import tensorflow as tf

from bert import termination
from bert.engine.batches import Axes, Batching, in_order
from bert.errors import UserError

_T, _U = TypeVar("_T"), TypeVar("_U")

Tensors = Mapping[str, "tf.Tensor"]
Arrays = Mapping[str, np.ndarray]


class InfiniteOutputError(UserError):
  """A model computes numbers that are not finite."""


def signature(batching: Batching) -> dict[str, tf.TensorSpec]:
  """The spec of a batch, for `Programs.get`."""
  return {
    name: tf.TensorSpec(shape, dtype)
    for name, (shape, dtype) in batching.shapes().items()
  }


def in_numpy(program: Callable[[Tensors], Tensors]) -> Callable:
  """A program of TensorFlow as a function from arrays to arrays."""

  def compute(features):
    tensors = program({n: tf.constant(x) for n, x in features.items()})
    return {name: tensor.numpy() for name, tensor in tensors.items()}

  return compute


def compute_rows(
  program: Callable[[Arrays], Arrays],
  batching: Batching,
  rows: Iterable[Mapping],
  axes: Axes,
  source: str,
  progress: Callable[[int], object] = lambda count: None,
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the outputs of each row as they are computed, in input order.

  Args:
    program: from the features of a batch to outputs [B, ...].
    axes: of the outputs; those with a name are cut to the size of the row.
    source: name of the model, for InfiniteOutputError.
    progress: called after each batch with the number of its rows.
  """

  def compute(batch):
    outputs = {
      name: value
      for name, value in program(batching.features(batch)).items()
      if name not in ("row_index", "is_real_example")
    }
    check_finite(outputs, source)
    return list(batching.by_row(batch, outputs, axes))

  def numbered():
    # Two batches at a time use cores that one leaves idle. Devices that share a
    # batch must compute in the same order.
    workers = 1 if batching.is_full else 2
    results = _in_parallel(compute, batching.batches(rows), workers)
    with contextlib.closing(results):
      for batch_outputs in results:
        termination.raise_if_signaled()
        progress(len(batch_outputs))
        yield from batch_outputs

  return in_order(numbered())


def compute_batches(
  program: Callable[[Tensors], Tensors], batches: Iterable[Tensors]
) -> Iterator[dict[str, np.ndarray]]:
  """Like `compute_rows`, for batches of features that are ready.

  `row_index` [B] numbers the rows of a batch; rows whose `is_real_example` is 0
  are skipped.
  """

  def numbered():
    for features in batches:
      outputs = {n: t.numpy() for n, t in program(features).items()}
      is_real = outputs.pop("is_real_example")
      for position, index in enumerate(outputs.pop("row_index")):
        row = {name: values[position] for name, values in outputs.items()}
        yield index, row if is_real[position] else None

  return in_order(numbered())


def _in_parallel(
  compute: Callable[[_T], _U], items: Iterable[_T], workers: int
) -> Iterator[_U]:
  """Computes the items in threads, and yields the results in order.

  After an error or Ctrl-C, items that have not begun are cancelled.
  """
  begun = collections.deque()
  with futures.ThreadPoolExecutor(workers) as pool:
    try:
      for item in items:
        begun.append(pool.submit(compute, item))
        # One item per thread waits, so that no thread is idle.
        if len(begun) == 2 * workers:
          yield begun.popleft().result()
      while begun:
        yield begun.popleft().result()
    finally:
      for future in begun:
        future.cancel()


def check_finite(
  outputs: Mapping[str, np.ndarray],
  source: str,
  remedy: str = "its files are damaged or its training diverged: pass another "
  "checkpoint",
) -> None:
  """Raises InfiniteOutputError if an output of `source` is not finite."""
  for name, output in outputs.items():
    if output.dtype.kind == "f" and not np.isfinite(output).all():
      raise InfiniteOutputError(
        f"{source} gives {name} that are infinite or not a number; {remedy}"
      )
