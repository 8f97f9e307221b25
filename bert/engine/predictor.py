"""Runs a trained model over rows of features.

    predictor = Predictor(resolve(folder), task)
    predictor(rows)["logits"]  # float32 [rows, C]

The Predictor loads and checks the weights, forms the batches, and applies the
encoder and the head of the task to them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures

import numpy as np
import tensorflow as tf

import modeling
from bert import kernels, runtimes, termination, variables
from bert.contract import ops
from bert.contract.task import Task
from bert.engine import devices, graph_encoder as engines
from bert.engine.encoding import encode
from bert.engine.programs import EstimatorSpec, ModeKeys, Programs
from bert.errors import UserError
from bert.models import checkpoints
from bert.models.resolve import Model, check_length

Tensors = Mapping[str, "tf.Tensor"]

# Fewer batches take less time than to compile activations for their shapes.
_MANY_BATCHES = 50


class InfiniteOutputError(UserError):
  """A model computes numbers that are not finite."""


class Predictor:
  """A trained model, loaded once.

  Args:
    batch_size: rows per batch.
    strategy: default: the current one.
    pad_to_max_length: give all batches one static shape.
    precision, runtime: see `engines.GraphEncoder`, and for "tensorflow", which
      computes in float32 by default, BertModel.
    use_one_hot_embeddings: see BertModel.
    outputs: which outputs of the head to compute, with their axes; default:
      those of `task.output_axes`.
  """

  def __init__(
    self,
    model: Model,
    task: Task,
    batch_size: int = 32,
    strategy: tf.distribute.Strategy | None = None,
    pad_to_max_length: bool = False,
    precision: str | None = None,
    use_one_hot_embeddings: bool = False,
    runtime: str = runtimes.TENSORFLOW,
    outputs: Mapping[str, Sequence[str | int | None]] | None = None,
  ):
    runtimes.check_runtime(runtime, precision)
    self._config = model.config
    self._task = task
    self._spec = task.feature_spec(False)
    self._axes = outputs or task.output_axes()
    self._output_axes = {
      name: axes
      for name, axes in self._axes.items()
      if any(isinstance(axis, str) for axis in axes)
    }
    self._batch_size = batch_size
    self._strategy = strategy or tf.distribute.get_strategy()
    self._replicas = self._strategy.num_replicas_in_sync
    self._pads = pad_to_max_length
    self._precision = precision or "float32"
    self._use_one_hot_embeddings = use_one_hot_embeddings
    self._can_compile = (
      runtime == runtimes.TENSORFLOW
      and not (self._precision == "float32" and kernels.HAS_ONEDNN)
      and devices.is_one_cpu(self._strategy)
    )
    # A batch that devices share, or whose shape is static, is always full.
    self._is_full = pad_to_max_length or self._replicas > 1
    length = self._spec["input_mask"].shape[-1]
    check_length(length, model.config, "the model")
    devices.check_batch_size("--batch_size", batch_size, self._replicas)
    self._encoder = None
    if runtime != runtimes.TENSORFLOW:
      self._encoder = engines.GraphEncoder(runtime, precision, model)
    wanted = modeling.variable_shapes(model.config)
    weights = checkpoints.load_weights(
      model.checkpoint,
      wanted | task.head_shapes(model.config),
      task.optional_variables(),
    )
    self._store = variables.VariableStore(
      initial_values=weights, is_for_inference=True
    )
    self._programs = Programs(
      self._model_fn, {}, self._store, self._strategy, use_xla=False
    )
    self._batch_spec = self._signature()
    self._outputs = self._traced_outputs()

  def __call__(
    self,
    rows: Sequence[Mapping],
    progress: Callable[[int], object] = lambda count: None,
  ) -> dict[str, np.ndarray | list[np.ndarray]]:
    """The outputs of each row, in the order of the rows.

    Args:
      rows: dicts of the features in the spec: numbers, or nested lists of them,
        with or without padding.
      progress: called after each batch with the number of its rows.

    Returns:
      Dict from name to an array [rows, ...] or, for names in `output_axes`, a
      list of arrays, each cut to its row's own size.
    """
    rank = len(self._spec["input_mask"].shape)
    sizes = [_used_size(row["input_mask"], rank) for row in rows]
    # Longest first, so that the threads end at about the same time.
    order = sorted(range(len(rows)), key=lambda i: sizes[i][::-1], reverse=True)
    batches = [
      order[start : start + self._batch_size]
      for start in range(0, len(order), self._batch_size)
    ]
    results = {
      name: [None] * len(rows)
      if name in self._output_axes
      else np.zeros([len(rows), *output.shape[1:]], output.dtype.as_numpy_dtype)
      for name, output in self._outputs.items()
    }

    program = self._program(len(batches) >= _MANY_BATCHES)

    def run(batch):
      largest = np.max([sizes[i] for i in batch], axis=0, initial=1).tolist()
      outputs = self._call(program, [rows[i] for i in batch], largest)
      for name, output in outputs.items():
        for i, values in zip(batch, output, strict=False):
          results[name][i] = self._cut(name, values, sizes[i])

    # Two batches at a time use cores that one leaves idle.
    with (
      futures.ThreadPoolExecutor(1 if self._is_full else 2) as pool,
      # After an error, or Ctrl-C, the batches that have not begun are dropped.
      contextlib.closing(pool.map(run, batches)) as finished,
    ):
      for batch, _ in zip(batches, finished, strict=True):
        termination.raise_if_signaled()
        progress(len(batch))
    return results

  @property
  def variables(self) -> list[tf.Variable]:
    """The model's variables."""
    return [variable for _, variable in self._store.items()]

  def compute(self, features: Tensors) -> Tensors:
    """The outputs of a batch [B, ...], as a part of the caller's graph."""
    with self._store, kernels.forward_only():
      bert = encode(
        self._config,
        features,
        False,
        self._use_one_hot_embeddings,
        self._precision,
      )
      return self._head(bert, features)

  def _head(self, bert, features):
    found = self._task.head(ops.TensorOps(), bert, features)
    return {name: found[name] for name in self._axes}

  def _model_fn(self, features, labels, mode, params):
    del labels, params
    if self._encoder:
      head = functools.partial(self._head, features=features)
      outputs = self._encoder(features, head)
    else:
      outputs = self.compute(features)
    return EstimatorSpec(mode, predictions=outputs)

  def _program(self, is_long=False):
    fuses = is_long and self._can_compile
    return self._programs.get(ModeKeys.PREDICT, self._batch_spec, fuses)

  def _traced_outputs(self):
    found = self._program().structured_outputs
    outputs = {name: found[name] for name in self._axes}
    for name, output in outputs.items():
      if name not in self._output_axes and None in output.shape[1:]:
        raise ValueError(
          f"the size of output {name}, {output.shape}, differs from batch to "
          f"batch; name its axes in output_axes"
        )
    return outputs

  def _call(self, program, rows, largest):
    features = self._pad(rows, largest)
    results = program({n: tf.constant(x) for n, x in features.items()})
    outputs = {name: results[name].numpy() for name in self._outputs}
    check_finite(outputs, f"checkpoint {self._store.initial_values.prefix}")
    return outputs

  def _pad(self, rows, largest):
    """The features of one batch, arrays [B, ...] filled up with zeros."""
    axes = self._spec["input_mask"].cut_axes
    sizes = {} if self._pads else dict(zip(axes, largest, strict=True))
    count = self._batch_size if self._is_full else len(rows)
    features = {}
    for name, feature in self._spec.items():
      shape = _cut_shape(feature, sizes)
      dtype = _tensor_type(feature).as_numpy_dtype
      features[name] = np.zeros([count, *shape], dtype)
      _fill(features[name], [row[name] for row in rows], 1 + len(shape))
    features["row_index"] = np.arange(count, dtype=np.int32)
    features["is_real_example"] = np.int32(features["row_index"] < len(rows))
    return features

  def _cut(self, name, values, size):
    """A row's output, without the padding that its batch added."""
    if name not in self._output_axes:
      return values
    sizes = dict(zip(self._spec["input_mask"].cut_axes, size, strict=True))
    axes = self._output_axes[name]
    cut = tuple(
      slice(sizes[axis] if isinstance(axis, str) else None) for axis in axes
    )
    # A view would keep the whole batch in memory.
    return values[cut].copy()

  def _signature(self):
    axes = self._spec["input_mask"].cut_axes
    any_size = {} if self._pads else dict.fromkeys(axes)
    count = self._batch_size if self._pads else None
    index = tf.TensorSpec([count], tf.int32)
    return {
      name: tf.TensorSpec(
        [count, *_cut_shape(feature, any_size)], _tensor_type(feature)
      )
      for name, feature in self._spec.items()
    } | {"row_index": index, "is_real_example": index}


def check_finite(
  outputs: Mapping[str, np.ndarray],
  source: str,
  remedy: str = "its files are damaged or its training diverged: pass another "
  "checkpoint",
) -> None:
  """Raises InfiniteOutputError if a number that `source` gave is not finite."""
  for name, output in outputs.items():
    if output.dtype.kind == "f" and not np.isfinite(output).all():
      raise InfiniteOutputError(
        f"{source} gives {name} that are infinite or not a number; {remedy}"
      )


def _tensor_type(feature):
  # TPUs emulate int64 slowly, and ids fit into int32.
  return tf.int32 if feature.dtype == "int64" else tf.float32


def _cut_shape(feature, sizes):
  """A feature's shape, with the given sizes of the axes that are cut."""
  axes = itertools.zip_longest(feature.shape, feature.cut_axes)
  return [sizes.get(axis, size) if axis else size for size, axis in axes]


def _used_size(mask, rank):
  """How far the ones of a nested list reach along each axis."""
  if rank == 1:
    used = np.flatnonzero(mask)
    return (int(used[-1]) + 1 if len(used) else 0,)
  parts = [_used_size(part, rank - 1) for part in mask]
  count = max((i for i, part in enumerate(parts, 1) if all(part)), default=0)
  return (count, *np.max(parts, axis=0).tolist())


def _fill(target, values, rank):
  """Copies a nested list to the start of each axis of an array."""
  if rank == 1:
    target[: len(values)] = values[: len(target)]
    return
  for part, value in zip(target, values, strict=False):
    _fill(part, value, rank - 1)
