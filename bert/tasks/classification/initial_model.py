"""Metrics of the model that a training starts from, on the same rows."""

import functools
import os
from collections.abc import Sequence

import numpy as np

from bert import metrics
from bert.models import checkpoints, model_folder
from bert.tasks.classification import label_types
from bert.tasks.classification.examples import InputExample, without_label


def find_folder(init_checkpoint: str | None) -> str | None:
  """The folder of the finished model that has this checkpoint, or None."""
  folder = model_folder.folder_of(init_checkpoint)
  if not folder or not model_folder.is_finished(folder):
    return None
  named, own = map(checkpoints.find_checkpoint, (init_checkpoint, folder))
  return folder if os.path.abspath(named) == os.path.abspath(own) else None


def scores(
  folder: str,
  label_type: label_types.LabelType,
  names: Sequence[str],
  examples: Sequence[InputExample],
  truth: np.ndarray,
  predictions: np.ndarray,
) -> tuple[dict[str, tuple[float, float]], int]:
  """Compares the metrics of the classifier in a folder with other predictions.

  Returns both values of each metric, and the number of rows that are left out
  because their labels are new to the classifier. There are no metrics if its
  labels differ too much. `truth` and `predictions` are [rows] or [rows, C], as
  from `label_type.predictions`.
  """
  from bert.engine import loaded_model

  model = loaded_model.load(folder)
  task = model.task
  task.name = f"the initial model, {folder}"
  is_new = np.array([name not in task.labels for name in label_type.labels])
  has_others = label_type.labels and sum(~is_new) < 2
  if has_others or task.settings.kind != label_type.kind:
    return {}, 0
  rows = np.arange(len(truth))
  if label_type.labels:
    rows = rows[~(is_new[truth] if truth.ndim == 1 else truth @ is_new > 0)]
  if not (texts := [without_label(examples[row]) for row in rows]):
    return {}, 0
  initial = np.stack(
    list(map(task.probabilities, model.answer_examples(texts)))
  )
  initial = _translated(task.label_type.predictions(initial), task, label_type)
  both = {}
  for key in names:
    metric = metrics.METRICS[key]
    if key == "f1_macro" and truth.ndim == 1:
      metric = functools.partial(metric, without=np.flatnonzero(is_new))
    pair = (metric(truth[rows], x) for x in (initial, predictions[rows]))
    both[f"eval_{key}"] = tuple(pair)
  return both, len(truth) - len(texts)


def _translated(predictions, task, label_type):
  """Converts the predictions of another model to the ids of a label type."""
  ids = {label: index for index, label in enumerate(label_type.labels)}
  if label_type.kind == "regression":
    return predictions
  if label_type.kind == "classification":
    # Labels that the label type lacks get further ids.
    codes = [ids.get(name, len(ids) + i) for i, name in enumerate(task.labels)]
    return np.array(codes)[predictions]
  translated = np.zeros([len(predictions), len(ids)], np.int64)
  for column, label in enumerate(task.labels):
    if label in ids:
      translated[:, ids[label]] = predictions[:, column]
  return translated
