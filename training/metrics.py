"""Numbers that papers report, by scikit-learn and SciPy.

Both are loaded on use: it takes a second that a run which only trains need
not wait for.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from errors import UserError


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
  from sklearn import metrics

  return {
    "eval_accuracy": float(metrics.accuracy_score(label_ids, predictions)),
    "eval_loss": float(np.mean(per_example_loss, dtype=np.float64)),
  }


def accuracy(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Share of the rows that are right; of several labels, all must be.

  Args:
    label_ids, predictions: int [rows], or 0 and 1 [rows, C].
  """
  from sklearn import metrics

  return float(metrics.accuracy_score(label_ids, predictions))


def f1(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """F1 of the label whose place is 1; 0 if it neither is nor is predicted.

  Args:
    label_ids, predictions: int [rows].
  """
  from sklearn import metrics

  return float(
    metrics.f1_score(
      np.equal(label_ids, 1), np.equal(predictions, 1), zero_division=0
    )
  )


def f1_micro(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """F1 of all decisions together; 0 if none is or is predicted positive.

  Args:
    label_ids, predictions: int [rows], of which one label each, so that this
      is the accuracy; or 0 and 1 [rows, C].
  """
  from sklearn import metrics

  if np.ndim(label_ids) == 2:
    return f1(np.ravel(label_ids), np.ravel(predictions))
  return float(
    metrics.f1_score(label_ids, predictions, average="micro", zero_division=0)
  )


def f1_macro(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Mean of the labels' F1, each 0 if it neither is nor is predicted.

  Args:
    label_ids, predictions: int [rows], where only labels that occur in one of
      them count; or 0 and 1 [rows, C].
  """
  from sklearn import metrics

  if np.ndim(label_ids) == 2:
    columns = zip(
      np.transpose(label_ids), np.transpose(predictions), strict=True
    )
    return float(np.mean([f1(*pair) for pair in columns]))
  return float(
    metrics.f1_score(label_ids, predictions, average="macro", zero_division=0)
  )


def matthews(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Matthews' correlation; 0 if labels or predictions are all the same.

  Args:
    label_ids, predictions: int [rows].
  """
  from sklearn import metrics

  if _is_constant(label_ids) or _is_constant(predictions):
    return 0.0
  return float(metrics.matthews_corrcoef(label_ids, predictions))


def pearson(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Pearson's correlation; 0 if labels or predictions are all the same.

  Args:
    label_ids, predictions: float [rows].
  """
  from scipy import stats

  return _correlation(stats.pearsonr, label_ids, predictions)


def spearman(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Spearman's rank correlation; 0 if labels or predictions are all the same.

  Args:
    label_ids, predictions: float [rows].
  """
  from scipy import stats

  return _correlation(stats.spearmanr, label_ids, predictions)


def mse(label_ids: np.ndarray, predictions: np.ndarray) -> float:
  """Mean squared error.

  Args:
    label_ids, predictions: float [rows].
  """
  difference = np.asarray(label_ids, np.float64) - predictions
  return float(np.mean(np.square(difference)))


def _correlation(statistic, label_ids, predictions):
  if _is_constant(label_ids) or _is_constant(predictions):
    return 0.0
  with warnings.catch_warnings():
    # Of numbers that are nearly the same: the result stands nevertheless.
    warnings.simplefilter("ignore")
    return float(
      statistic(
        np.asarray(label_ids, np.float64), np.asarray(predictions, np.float64)
      )[0]
    )


def _is_constant(values):
  return np.unique(values).size < 2


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
  metric.__name__: metric
  for metric in (
    accuracy,
    f1,
    f1_micro,
    f1_macro,
    matthews,
    pearson,
    spearman,
    mse,
  )
}


def compute(
  names: Sequence[str], label_ids: np.ndarray, predictions: np.ndarray
) -> dict[str, float]:
  """Dict from `eval_NAME` to the metric of that name.

  Where a metric is undefined (the F1 of a label that neither is nor is
  predicted, the correlation with something constant), it is 0.

  Args:
    names: of METRICS.
    label_ids, predictions: [rows], or 0 and 1 [rows, C] of several labels.

  Raises:
    ValueError: a name is unknown.
  """
  for name in names:
    if name not in METRICS:
      raise UserError(f"metric {name} is none of {', '.join(METRICS)}")
  return {
    f"eval_{name}": METRICS[name](label_ids, predictions) for name in names
  }


def label_report(
  label_ids: np.ndarray, predictions: np.ndarray, labels: Sequence
) -> dict:
  """Each label's numbers, as JSON knows them.

  Args:
    label_ids, predictions: int [rows], or 0 and 1 [rows, C].
    labels: the C labels, in the order of the model's outputs.

  Returns:
    Dict with `labels`, from each label to its precision, recall, f1 (0 where
    undefined) and support (rows that have it); and
    `confusion_matrix`, of rows that have label i and are predicted j; or, of
    several labels, `confusion_matrices`, from each label to
    [[right without, wrong with], [wrong without, right with]].
  """
  names = [str(label) for label in labels]
  if np.ndim(label_ids) == 1:
    places = range(len(names))
    return {
      "labels": dict(
        zip(names, _scores(label_ids, predictions, places), strict=True)
      ),
      "confusion_matrix": _confusion(label_ids, predictions, places),
    }
  pairs = zip(np.transpose(label_ids), np.transpose(predictions), strict=True)
  columns = dict(zip(names, pairs, strict=True))
  return {
    "labels": {name: _scores(*pair, [1])[0] for name, pair in columns.items()},
    "confusion_matrices": {
      name: _confusion(*pair, [0, 1]) for name, pair in columns.items()
    },
  }


def _scores(label_ids, predictions, places):
  """Precision and so on of each of the places, a list of dicts."""
  from sklearn import metrics

  scores = metrics.precision_recall_fscore_support(
    label_ids, predictions, labels=list(places), zero_division=0
  )
  return [
    {
      "precision": float(precision),
      "recall": float(recall),
      "f1": float(score),
      "support": int(support),
    }
    for precision, recall, score, support in zip(*scores, strict=True)
  ]


def _confusion(label_ids, predictions, places):
  from sklearn import metrics

  return metrics.confusion_matrix(
    label_ids, predictions, labels=list(places)
  ).tolist()


def calibration(
  confidences: np.ndarray, correct: np.ndarray, bins: int = 10
) -> dict:
  """How often a model is right, by how sure it is (Guo et al. 2017).

  Args:
    confidences: float [rows], probability of what was predicted.
    correct: bool [rows], whether that was right.
    bins: number of equal parts of the range from 0 to 1.

  Returns:
    Dict, as JSON knows it, with `edges` [bins + 1]; `mean_confidence`,
    `accuracy` (None where a bin is empty) and `count`, each [bins]; and
    `expected_calibration_error`: the mean over the rows of how far their
    bin's accuracy is from its mean confidence (equation 3).
  """
  confidences = np.asarray(confidences, np.float64)
  correct = np.asarray(correct, np.float64)
  edges = np.linspace(0.0, 1.0, bins + 1)
  # A bin holds its upper edge; the first holds 0, too.
  place = np.digitize(confidences, edges[1:-1], right=True)
  count, confident, right = (
    np.bincount(place, weights, minlength=bins).tolist()
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
  """A table of metrics over seeds.

  Args:
    results: task -> seed -> metric -> value.

  Returns:
    Rows of task, metric, mean, standard deviation, the best value and the seed
    that gave it, under a header.
  """
  rows = [["task", "metric", "mean", "deviation", "best", "best seed"]]
  for task, by_seed in results.items():
    for name in sorted(next(iter(by_seed.values()))):
      if name.startswith("global_step"):
        continue
      values = {seed: found[name] for seed, found in by_seed.items()}
      choose = min if is_lower_better(name) else max
      seed = choose(values, key=values.get)
      numbers = list(values.values())
      deviation = np.std(numbers, ddof=1) if len(numbers) > 1 else 0.0
      shown = (np.mean(numbers), deviation, values[seed])
      rows.append([task, name, *(f"{n:.4f}" for n in shown), str(seed)])
  return rows


def is_lower_better(name: str) -> bool:
  """Whether a metric of that name is an error, to be made small."""
  return "loss" in name or "mse" in name
