"""Runs a trained model over rows of features.

    predictor = Predictor(resolve(folder), task)
    for outputs in predictor(rows):
      outputs["logits"]  # float32 [C], of one row

The Predictor loads and checks the weights, and applies the encoder and the head
of the task to batches of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import modeling
from bert import kernels, runtimes, variables
from bert.contract import ops
from bert.contract.task import Task
from bert.engine import devices, graph_encoder, runner
from bert.engine.batches import Axes, Batching
from bert.engine.encoding import encode
from bert.engine.onnx_predictor import OnnxPredictor
from bert.engine.programs import EstimatorSpec, ModeKeys, Programs
from bert.models import checkpoints
from bert.models.resolve import Model

Tensors = Mapping[str, "tf.Tensor"]

# With fewer batches, compiling activations costs more time than it saves.
_MANY_BATCHES = 50


def load(model: Model, task: Task, **options) -> Predictor | OnnxPredictor:
  """What computes the rows of a model: from its weights, or from its graph."""
  is_graph = checkpoints.is_graph(model.checkpoint)
  return (OnnxPredictor if is_graph else Predictor)(model, task, **options)


class Predictor:
  """A trained model, loaded once.

  Args:
    batch_size: rows per batch.
    strategy: default: the current one.
    pad_to_max_length: give all batches one static shape.
    precision, runtime: see `GraphEncoder`; for "tensorflow", which computes in
      float32 by default, see BertModel.
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
    outputs: Axes | None = None,
  ):
    runtimes.check_runtime(runtime, precision)
    self._config = model.config
    self._task = task
    self.runtime = runtime
    self._axes = outputs or task.output_axes()
    strategy = strategy or tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync
    self._batching = Batching(
      task.feature_spec(False),
      batch_size,
      is_static=pad_to_max_length,
      fills=replicas > 1,
    )
    self._precision = precision or "float32"
    self._use_one_hot_embeddings = use_one_hot_embeddings
    self._can_compile = (
      runtime == runtimes.TENSORFLOW
      and not (self._precision == "float32" and kernels.has_onednn())
      and devices.is_one_cpu(strategy)
    )
    length = self._batching.spec["input_mask"].shape[-1]
    model.check_length(length)
    devices.check_batch_size("--batch_size", batch_size, replicas)
    self._encoder = None
    if runtime != runtimes.TENSORFLOW:
      self._encoder = graph_encoder.GraphEncoder(runtime, precision, model)
    shapes = modeling.variable_shapes(model.config)
    weights = checkpoints.load_weights(
      model.checkpoint,
      shapes | task.head_shapes(model.config),
      task.optional_variables(),
    )
    self._store = variables.VariableStore(
      initial_values=weights, is_for_inference=True
    )
    self._store.free_with(self)
    self._programs = Programs(
      self._model_fn, {}, self._store, strategy, use_xla=False
    )
    self._check_axes()

  def __call__(
    self,
    rows: Sequence[Mapping],
    progress: Callable[[int], object] = lambda count: None,
  ) -> Iterator[dict[str, np.ndarray]]:
    """Yields the outputs of each row as they are computed, in input order.

    Args:
      rows: dicts of the features in the spec, see `Batching`.
      progress: called after each batch with the number of its rows.
    """
    count = -(-len(rows) // self._batching.batch_size)
    return runner.compute_rows(
      runner.in_numpy(self._program(count >= _MANY_BATCHES)),
      self._batching,
      rows,
      self._axes,
      f"checkpoint {self._store.initial_values.prefix}",
      progress,
    )

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
    outputs = self._task.head(ops.TensorOps(), bert, features)
    return {name: outputs[name] for name in self._axes}

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
    spec = runner.signature(self._batching)
    return self._programs.get(ModeKeys.PREDICT, spec, fuses)

  def _check_axes(self):
    """Raises ValueError if an axis of varying size has no name."""
    outputs = self._program().structured_outputs
    for name, axes in self._axes.items():
      is_named = any(isinstance(axis, str) for axis in axes)
      if not is_named and None in outputs[name].shape[1:]:
        raise ValueError(
          f"the size of output {name}, {outputs[name].shape}, differs from "
          f"batch to batch; name its axes in output_axes"
        )
