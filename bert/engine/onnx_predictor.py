"""Runs the graph of an ONNX folder over rows of features, without TensorFlow.

    predictor = OnnxPredictor(resolve(folder), task)
    for outputs in predictor(rows):
      outputs["logits"]  # float32 [C], of one row

export_model.py --format=onnx writes such a folder. Its one graph has the
encoder and the head of the task; `Predictor` computes the same from weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert import runtimes
from bert.contract.task import Task
from bert.data import files
from bert.engine import devices, graph_encoder, runner, sessions
from bert.engine.batches import Batching
from bert.errors import UserError, listing
from bert.models import task_file
from bert.models.resolve import Model

# Characters of a runtime's message.
_MOST_CHARS = 300


class OnnxPredictor:
  """The graph of an ONNX folder, loaded once; it is called as `Predictor` is.

  Args:
    batch_size, precision: see `Predictor`.
    runtime: "openvino", or else onnxruntime.
    **others: options of `Predictor` that a graph does not have.
  """

  def __init__(
    self,
    model: Model,
    task: Task,
    batch_size: int = 32,
    precision: str | None = None,
    runtime: str = runtimes.TENSORFLOW,
    **others,
  ):
    del others
    if runtime == runtimes.TENSORFLOW:
      runtime = "onnxruntime"
    runtimes.check_runtime(runtime, precision)
    devices.check_batch_size("--batch_size", batch_size, 1)
    self._path, self.runtime = model.checkpoint, runtime
    self._axes = task.output_axes()
    self._batching = Batching(task.feature_spec(False), batch_size)
    model.check_length(self._batching.spec["input_mask"].shape[-1])
    _check_settings(model, task)
    self._session = self._load(model, runtime, precision)
    unknown = set(self._session.inputs) - self._batching.spec.keys()
    if unknown:
      raise self._unfit(f"no row of the task has {listing(sorted(unknown))}")
    self._try_a_row(max(task.tokenizer.vocab.values()))

  def __call__(
    self,
    rows: Sequence[Mapping],
    progress: Callable[[int], object] = lambda count: None,
  ) -> Iterator[dict[str, np.ndarray]]:
    """Yields the outputs of each row in input order; see `Predictor`."""
    return runner.compute_rows(
      self._compute, self._batching, rows, self._axes, self._path, progress
    )

  def _load(self, model, runtime, precision):
    graph, path = self._path, None
    if files.is_remote(graph):  # The runtimes read local files.
      graph = files.read_bytes(graph)
    try:
      if precision == runtimes.INT8:
        name = f"{graph_encoder.fingerprint(model)}-int8-{runtime}.onnx"
        path = os.path.join(model.folder, graph_encoder.FOLDER, name)
        graph = sessions.quantized(graph, path, runtime)
      return sessions.Session(runtime, precision, graph)
    except (UserError, OSError):
      raise
    except Exception as error:  # Each package has its own exceptions.
      raise files.damaged(path or self._path, _reason(error)) from error

  def _compute(self, features):
    names = self._session.inputs
    try:
      arrays = self._session({n: features[n].astype(np.int64) for n in names})
    except Exception as error:
      raise self._unfit(_reason(error)) from error
    outputs = dict(zip(self._session.outputs, arrays, strict=True))
    return {name: outputs[name] for name in self._axes if name in outputs}

  def _try_a_row(self, last_id):
    """Raises UserError unless the graph fits the task and the tokenizer."""
    row = {
      name: np.zeros(len(feature.cut_axes) * (1,) or feature.shape, np.int64)
      for name, feature in self._batching.spec.items()
    }
    row["input_ids"] += last_id
    row["input_mask"] += 1
    (batch,) = self._batching.batches([row])
    outputs = self._compute(self._batching.features(batch))
    for name, axes in self._axes.items():
      if name not in outputs:
        known = listing(self._session.outputs)
        raise self._unfit(f"it has no output {name!r}, but {known}")
      wanted = [1 if isinstance(axis, str) else axis for axis in axes]
      shape = outputs[name].shape[1:]
      if len(shape) != len(wanted) or any(
        axis not in (None, size)
        for axis, size in zip(wanted, shape, strict=True)
      ):
        raise self._unfit(
          f"its output {name!r} is {list(shape)} for a row of one piece, "
          f"expected {wanted}"
        )

  def _unfit(self, reason):
    return UserError(
      f"{self._path} does not fit the other files of its folder: {reason}; "
      f"export the model again"
    )


def _reason(error):
  """The end of a runtime's message, which begins with places in its code."""
  return " ".join(str(error).split())[-_MOST_CHARS:]


def _check_settings(model, task):
  """Raises UserError for a task or settings that the graph is not made for."""
  recorded = task_file.load(type(task), model.folder)
  for name in task.settings.in_graph:
    value, known = (getattr(s, name) for s in (task.settings, recorded))
    if value != known:
      raise UserError(
        f"{name}={value!r}: the graph {model.checkpoint} computes {known!r}; "
        f"omit it, or pass the folder that the graph was exported from"
      )
