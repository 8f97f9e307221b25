"""Numbers that papers report, by scikit-learn."""

import numpy as np


def classification_metrics(
  label_ids: np.ndarray, predictions: np.ndarray, per_example_loss: np.ndarray
) -> dict[str, float]:
  """What the original reports of a classifier.

  Args:
    label_ids: int [rows].
    predictions: int [rows].
    per_example_loss: float [rows].

  Returns:
    Dict with `eval_accuracy` and `eval_loss`, means over the rows.
  """
  # Loading it takes a second, which a run that only trains need not wait for.
  from sklearn import metrics

  return {
    "eval_accuracy": float(metrics.accuracy_score(label_ids, predictions)),
    "eval_loss": float(np.mean(per_example_loss, dtype=np.float64)),
  }
