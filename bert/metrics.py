"""Metrics that papers report, most by scikit-learn and SciPy.

Both are imported on use: that takes a second, which a run that only trains
should not wait for.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

# Every metric takes labels and predictions: int [rows], one label a row; 0 and
# 1 [rows, C], any number of C labels a row; or float [rows] of a regression.


def accuracy(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Share of correct rows; a row of several labels needs all of them.

  Uses NumPy for speed, because a report computes it for hundreds of draws.
  """
  correct = np.equal(label_ids, predictions)
  return float(np.mean(correct.reshape(len(correct), -1).all(axis=1)))


def f1(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """F1 of label 1; 0 if it neither occurs nor is predicted."""
  from sklearn import metrics

  return float(
    metrics.f1_score(
      np.equal(label_ids, 1), np.equal(predictions, 1), zero_division=0
    )
  )


def f1_micro(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """F1 of all decisions together; with one label a row, the accuracy."""
  if np.ndim(label_ids) == 2:
    return f1(np.ravel(label_ids), np.ravel(predictions))
  return accuracy(label_ids, predictions)


def f1_macro(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Mean of the labels' F1, each 0 where undefined.

  With one label a row, labels that neither occur nor are predicted are left
  out.
  """
  from sklearn import metrics

  if np.ndim(label_ids) == 2:
    return float(np.mean([f1(*c) for c in _columns(label_ids, predictions)]))
  return float(
    metrics.f1_score(label_ids, predictions, average="macro", zero_division=0)
  )


def matthews(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Matthews correlation; 0 if either is constant, NaN if any is NaN."""
  from sklearn import metrics

  return _correlation(metrics.matthews_corrcoef, label_ids, predictions)


def pearson(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Pearson correlation; 0 if either is constant, NaN if any is NaN."""
  from scipy import stats

  return _correlation(stats.pearsonr, label_ids, predictions)


def spearman(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Spearman correlation; 0 if either is constant, NaN if any is NaN."""
  from scipy import stats

  return _correlation(stats.spearmanr, label_ids, predictions)


def mse(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Mean squared error."""
  difference = np.asarray(label_ids, np.float64) - predictions
  return float(np.mean(np.square(difference)))


def _correlation(statistic, label_ids, predictions):
  if np.isnan(predictions).any():
    return math.nan
  if min(np.unique(x).size for x in (label_ids, predictions)) < 2:
    return 0.0
  with warnings.catch_warnings():
    # Nearly constant numbers cause a warning, but the result is usable.
    warnings.simplefilter("ignore")
    pair = np.asarray([label_ids, predictions], np.float64)
    return float(np.ravel(statistic(*pair))[0])


def _columns(label_ids, predictions):
  """Labels and predictions, [rows] each, of each of C labels."""
  return zip(np.transpose(label_ids), np.transpose(predictions), strict=True)


_ALL = accuracy, f1, f1_micro, f1_macro, matthews, pearson, spearman, mse
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
  metric.__name__: metric for metric in _ALL
}


def compute(
  names: Sequence[str], label_ids: np.ndarray, predictions: np.ndarray
) -> dict[str, float]:
  """Dict from `eval_NAME` to the metric of that name, for names in METRICS."""
  return {
    f"eval_{name}": METRICS[name](label_ids, predictions) for name in names
  }


def label_report(
  label_ids: np.ndarray, predictions: np.ndarray, labels: Sequence
) -> dict:
  """Precision, recall, F1 and confusion matrix of each of C labels, for JSON.

  Returns:
    Dict with `labels`, from each label to its precision, recall, f1 (0 where
    undefined) and support (number of rows that have it); and
    `confusion_matrix` [true label][predicted label], or, with several labels a
    row, `confusion_matrices`, from each label to [without, with][predicted
    without, predicted with].
  """
  names = [str(label) for label in labels]
  if np.ndim(label_ids) == 1:
    indices = range(len(names))
    scores = _scores(label_ids, predictions, indices)
    return {
      "labels": dict(zip(names, scores, strict=True)),
      "confusion_matrix": _confusion(label_ids, predictions, indices),
    }
  columns = dict(zip(names, _columns(label_ids, predictions), strict=True))
  return {
    "labels": {name: _scores(*pair, [1])[0] for name, pair in columns.items()},
    "confusion_matrices": {
      name: _confusion(*pair, [0, 1]) for name, pair in columns.items()
    },
  }


def _scores(label_ids, predictions, indices):
  from sklearn import metrics

  scores = metrics.precision_recall_fscore_support(
    label_ids, predictions, labels=list(indices), zero_division=0
  )
  names = ("precision", "recall", "f1", "support")
  return [
    dict(zip(names, [*map(float, row[:3]), int(row[3])], strict=True))
    for row in zip(*scores, strict=True)
  ]


def _confusion(label_ids, predictions, indices):
  from sklearn import metrics

  return metrics.confusion_matrix(
    label_ids, predictions, labels=list(indices)
  ).tolist()


def calibration(
  confidences: np.ndarray, correct: np.ndarray, bins: int = 10
) -> dict:
  """Accuracy by confidence (Guo et al. 2017, "On Calibration ..."), for JSON.

  Args:
    confidences: float [rows], probability of the predicted label.
    correct: bool [rows].
    bins: number of equal intervals of confidence, each with its upper edge.

  Returns:
    Dict with `edges` [bins + 1]; `mean_confidence`, `accuracy` (None where a
    bin is empty) and `count`, each [bins]; and `expected_calibration_error`
    (equation 3).
  """
  confidences = np.asarray(confidences, np.float64)
  correct = np.asarray(correct, np.float64)
  edges = np.linspace(0.0, 1.0, bins + 1)
  index = np.digitize(confidences, edges[1:-1], right=True)
  count, confident, right = (
    np.bincount(index, weights, minlength=bins).tolist()
    for weights in (np.ones_like(confidences), confidences, correct)
  )
  gaps = [abs(r - c) for r, c in zip(right, confident, strict=True)]
  return {
    "edges": edges.tolist(),
    "mean_confidence": _ratios(confident, count),
    "accuracy": _ratios(right, count),
    "count": [int(n) for n in count],
    "expected_calibration_error": sum(gaps) / max(sum(count), 1),
  }


def _ratios(sums, counts):
  return [s / n if n else None for s, n in zip(sums, counts, strict=True)]


def summarize(
  results: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> list[list[str]]:
  """A table, with a header, of metrics over seeds: task -> seed -> metric.

  A loss with the values of its eval_loss is left out.
  """
  header = ["task", "metric", "mean", "deviation", "lowest", "highest"]
  rows = [[*header, "best seed", "seeds"]]
  for task, by_seed in results.items():
    for name in sorted(next(iter(by_seed.values()))):
      if name.startswith("global_step"):
        continue
      values = {seed: found[name] for seed, found in by_seed.items()}
      same = [found.get(f"eval_{name}") for found in by_seed.values()]
      if name.startswith("loss") and same == [*values.values()]:
        continue
      choose = min if is_lower_better(name) else max
      seed = choose(values, key=values.get)
      numbers = list(values.values())
      deviation = _shown(np.std(numbers, ddof=1)) if len(numbers) > 1 else ""
      mean, *ends = map(_shown, (np.mean(numbers), min(numbers), max(numbers)))
      row = [task, name, mean, deviation, *ends, str(seed), str(len(values))]
      rows.append(row)
  return rows


def _shown(value):
  # Errors of small numbers, such as 1e-8, are small.
  return f"{value:.4f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.3e}"


def is_lower_better(name: str) -> bool:
  """Whether a metric of that name is an error, to be minimized."""
  return "loss" in name or "mse" in name
