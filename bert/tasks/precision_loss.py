"""What eight bits cost: the metrics of a model in both precisions.

They are measured once, on the rows of the development set beside a model, and
kept beside its quantized encoder.
"""

import json
import os

from absl import logging

from bert.data import files, sequences
from bert.training import engines, model_folder, record_files
from bert.training.predictor import Predictor
from bert.training.task import RowSet, Task

# Rows that are measured at most.
_MOST_ROWS = 2000


def measure(
  model: model_folder.Model, task: Task, predictor: Predictor, runtime: str
) -> dict[str, dict[str, float]] | None:
  """The metrics of a model in float32 and in int8, by precision.

  `predictor` computes in int8. None if there are no rows beside the model, or
  if rows alone have no metrics.
  """
  folder = os.path.dirname(model.checkpoint)
  rows_path = os.path.join(folder, "eval.tf_record")
  name = f"int8-{runtime}-{engines.fingerprint(model)}.json"
  path = os.path.join(folder, engines.FOLDER, name)
  known = files.read_json(path, dict)
  if known or not (task.scores_rows and files.exists(rows_path)):
    return known
  rows = _read(rows_path, task)
  full = Predictor(model, task, precision="float32", runtime=runtime)
  found = {
    precision: _score(task, rows, compute)
    for precision, compute in (("float32", full), ("int8", predictor))
  }
  files.write_file(path, json.dumps(found, indent=2) + "\n")
  for metric, value in found["int8"].items():
    before = found["float32"][metric]
    logging.info("int8: %s %.4f, float32 %.4f", metric, value, before)
  return found


def _read(path, task):
  """The rows of a file, dicts of features."""
  spec = task.feature_spec(False)
  rows = record_files.RecordFiles([path], spec)
  count = min(len(rows), _MOST_ROWS)
  parsed = record_files.parse_int64(rows.read(range(count)), spec)
  return list(sequences.rows_of({n: v.numpy() for n, v in parsed.items()}))


def _score(task, rows, compute):
  """The metrics of rows, of which each is an example."""
  outputs = sequences.rows_of(compute(rows))
  answers = (
    task.answer(None, [row | output])
    for row, output in zip(rows, outputs, strict=True)
  )
  row_set = RowSet("dev", "", None, None, len(rows))
  return dict(task.score(row_set, answers).results)
