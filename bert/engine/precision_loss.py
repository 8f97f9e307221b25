"""What eight bits cost: the metrics of a model in both precisions.

They are measured once, on the rows of the development set beside a model, or by
an evaluation in eight bits, and kept beside the quantized encoder.
"""

import contextlib
import json
import operator
import os
from collections.abc import Callable, Mapping

from absl import logging

from bert.contract.task import Task, score_rows
from bert.data import files
from bert.engine import graph_encoder, inputs, record_files
from bert.engine.predictor import Predictor
from bert.errors import UserError
from bert.models.resolve import Model

# Rows that are measured at most.
_MOST_ROWS = 2000

# The kinds of tasks that answer and score rows without their examples.
_KINDS = ("classification",)


def measure(
  model: Model, task: Task, predictor: Predictor, runtime: str
) -> dict[str, dict[str, float]] | None:
  """The metrics of a model in float32 and, by `predictor`, in int8.

  None without rows of this length beside the model, or if they have no metrics.
  """
  rows_path = os.path.join(os.path.dirname(model.checkpoint), "eval.tf_record")
  path = path_of(model, runtime)
  try:
    known = files.read_json(path, dict)
    if known or not (task.kind in _KINDS and files.exists(rows_path)):
      return known
    rows = _read(rows_path, task)
  except UserError as error:
    logging.warning("The loss by int8 is not measured: %s", error)
    return None

  def compute_full():
    full = Predictor(model, task, precision="float32", runtime=runtime)
    return _score(task, rows, full)

  return write(path, _score(task, rows, predictor), compute_full)


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
  """Writes metrics in int8, `small`, and in float32, unless they are there."""
  known = files.read_json(path, dict)
  if known and known.get("int8") == small:
    return known
  full = compute_full()
  found = {"float32": {n: full[n] for n in small}, "int8": small}
  with contextlib.suppress(UserError, OSError):  # The folder may be read-only.
    files.makedirs(os.path.dirname(path))
    files.write_file(path, json.dumps(found, indent=2) + "\n")
  for metric, value in small.items():
    logging.info("int8: %s %.4f, float32 %.4f", metric, value, full[metric])
  return found


def _read(path, task):
  rows = record_files.RecordFiles([path], task.feature_spec(False))
  return list(inputs.EachRow(rows, min(len(rows), _MOST_ROWS)))


def _score(task, rows, compute):
  """The metrics of rows, of which each is an example."""
  merged = map(operator.or_, rows, compute(rows))
  return score_rows(task, list(merged))
