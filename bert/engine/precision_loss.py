"""The effect of int8: the metrics of a model in int8 and in float32.

They are measured once, on the rows of the development set beside a model, or by
an evaluation in int8, and stored beside the quantized encoder.
"""

import contextlib
import json
import operator
import os
from collections.abc import Callable, Mapping

from absl import logging

from bert.contract.task import Task, score_rows
from bert.data import files
from bert.engine import graph_encoder, inputs, predictor, record_files
from bert.errors import UserError
from bert.models.resolve import Model

# Maximum number of rows to measure.
_MOST_ROWS = 2000

# The kinds of tasks that can answer and score rows without their examples.
_KINDS = ("classification",)


def measure(
  model: Model, task: Task, small: Callable, runtime: str
) -> dict[str, dict[str, float]] | None:
  """The metrics of a model in float32 and, by the predictor `small`, in int8.

  None if no rows of this length are beside the model, or they have no metrics.
  """
  rows_path = os.path.join(os.path.dirname(model.checkpoint), "eval.tf_record")
  path = path_of(model, runtime)
  try:
    recorded = files.read_json(path, dict)
    if recorded or not (task.kind in _KINDS and files.exists(rows_path)):
      return recorded
    rows = _read(rows_path, task)
  except UserError as error:
    logging.warning("The effect of int8 is not measured: %s", error)
    return None

  def compute_full():
    full = predictor.load(model, task, precision="float32", runtime=runtime)
    return _score(task, rows, full)

  return write(path, _score(task, rows, small), compute_full)


def path_of(model: Model, runtime: str, suffix: str = "") -> str:
  """The file of the metrics of a model; `suffix` is that of the data set."""
  folder = os.path.dirname(model.checkpoint)
  name = f"int8-{runtime}-{graph_encoder.fingerprint(model)}{suffix}.json"
  return os.path.join(folder, graph_encoder.FOLDER, name)


def write(
  path: str,
  small: Mapping[str, float],
  compute_full: Callable[[], Mapping[str, float]],
) -> dict[str, dict[str, float]]:
  """Writes metrics in int8, `small`, and in float32, unless already written."""
  recorded = files.read_json(path, dict)
  if recorded and recorded.get("int8") == small:
    return recorded
  full = compute_full()
  metrics = {"float32": {n: full[n] for n in small}, "int8": small}
  with contextlib.suppress(UserError, OSError):  # The folder may be read-only.
    files.makedirs(os.path.dirname(path))
    files.write_file(path, json.dumps(metrics, indent=2) + "\n")
  for metric, value in small.items():
    logging.info("int8: %s %.4f, float32 %.4f", metric, value, full[metric])
  return metrics


def _read(path, task):
  rows = record_files.RecordFiles([path], task.feature_spec(False))
  return list(inputs.EachRow(rows, min(len(rows), _MOST_ROWS)))


def _score(task, rows, compute):
  """The metrics of rows with one row per example."""
  merged = map(operator.or_, rows, compute(rows))
  return score_rows(task, list(merged))
