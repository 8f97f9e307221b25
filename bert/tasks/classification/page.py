"""report.html: the learning curves, metrics and errors of a classifier."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert import metrics
from bert.errors import plural
from bert.reports import charts, html, training_page, verdict

_MAX_ERRORS = 50
_THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_MAX_POINTS = 2000  # More points make a scatter chart large, not clearer.


@dataclasses.dataclass
class ClassifiedSet:
  """A task's Evaluation, for the report."""

  name: str  # of the data set, such as "dev set"
  label_type: Any  # a `label_types.LabelType`
  results: Mapping[str, float]  # by metric, such as `eval_accuracy`
  label_ids: np.ndarray  # in the form of `label_type.predictions`
  probabilities: np.ndarray  # [rows, C]; for a regression, numbers [rows, 1]
  losses: np.ndarray  # [rows]
  examples: Sequence  # with `guid`, `text_a` and `text_b`
  uncalibrated: np.ndarray | None = None  # probabilities before --calibrate
  suffix: str = ""  # part of the names of its files
  can_balance: bool = False  # whether to advise equal label weights
  advice: Sequence[str] = ()  # of the training, one sentence each

  def __post_init__(self):
    self.label_ids = np.asarray(self.label_ids)
    self.probabilities = np.asarray(self.probabilities, np.float64)
    self.losses = np.asarray(self.losses, np.float64)

  @property
  def details(self) -> dict:
    """The scores of each label, and the confusion of labels; {} for numbers."""
    labels = self.label_type.labels
    if not labels:
      return {}
    return metrics.label_report(self.label_ids, self.predictions, labels)

  @property
  def counts(self) -> dict[str, int]:
    """The number of examples, and of wrong predictions if they are labels."""
    counts = {"examples": len(self.examples)}
    if self.label_type.labels:
      counts["wrong"] = len(self.errors)
    return counts

  def sample(self) -> verdict.Sample | None:
    """The rows behind the first metric; None for a loss."""
    name = next(iter(self.results), "").removeprefix("eval_")
    if name not in metrics.METRICS or metrics.is_lower_better(name):
      return None
    truth, predictions = self.label_ids, self.predictions
    metric = metrics.METRICS[name]
    return verdict.Sample(
      name,
      len(truth),
      lambda rows: metric(truth[rows], predictions[rows]),
      baseline=self._baseline(metric),
      advice=[*self._advice(), *self.advice],
    )

  def _baseline(self, metric):
    """The score of predicting the majority label, or labels, for all rows."""
    labels = self.label_type.labels
    if not labels:
      return None  # A constant has no correlation.
    if self.label_ids.ndim == 2:
      name = "predicting the usual labels"
      majority = self.label_ids.mean(axis=0) > 0.5
    else:
      majority = np.bincount(self.label_ids).argmax()
      name = f"always {labels[majority]!r}"
    always = np.broadcast_to(majority, self.label_ids.shape).astype(np.int64)
    return name, metric(self.label_ids, always)

  def _advice(self):
    """The label with the lowest F1, if it is far below the others."""
    scores = self.details.get("labels", {})
    occurring = {k: row for k, row in scores.items() if row["support"]}
    if len(occurring) < 3:
      return ()
    worst = min(occurring, key=lambda label: occurring[label]["f1"])
    f1, support = occurring[worst]["f1"], occurring[worst]["support"]
    if f1 > np.median([row["f1"] for row in occurring.values()]) - 0.1:
      return ()
    mean = sum(row["support"] for row in occurring.values()) / len(occurring)
    remedy = verdict.remedy(
      self.results,
      support < mean / 2 and self.can_balance,
      "add rows of it to the training set, and check their labels",
    )
    return (
      f"The label {worst!r} has an F1 of {f1:.2f} ({support:,} rows here): "
      f"{remedy}.",
    )

  @property
  def predictions(self) -> np.ndarray:
    """The predicted labels, [rows] or [rows, C]."""
    return self.label_type.predictions(self.probabilities)

  @property
  def errors(self) -> np.ndarray:
    """Indices of the rows whose prediction differs from the label."""
    unequal = self.predictions != self.label_ids
    return np.flatnonzero(unequal.any(axis=tuple(range(1, unequal.ndim))))


def section(key: str, evaluation: ClassifiedSet) -> str:
  """The scores, the calibration and the errors; `key` is unique in the page."""
  if evaluation.label_type.kind == "regression":
    return _regression_chart(key, evaluation) + _errors(evaluation)
  details = evaluation.details
  page = training_page.label_table(details["labels"])
  if "confusion_matrix" in details:
    counts = np.array(details["confusion_matrix"])
    page += training_page.confusion(counts, evaluation.label_type.labels)
  page += _calibration(key, evaluation)
  return page + _errors(evaluation) + _doubtful_labels(evaluation)


def _calibration(key, evaluation):
  several = evaluation.label_type.kind == "multilabel"
  subject, share = "the predicted label", "share correct"
  if several:
    subject, share = "each label of each example", "share with the label"
  bins = _bins(evaluation, evaluation.probabilities)
  name, count = "expected_calibration_error", len(evaluation.examples)
  error = html.data(bins[name], rows=count)
  text = f"The expected calibration error is {error}."
  before = None
  if evaluation.uncalibrated is not None:
    before = _bins(evaluation, evaluation.uncalibrated)
    error = html.data(before[name], rows=count)
    text += f" Before the calibration, it was {error}."

  def draw(figure):
    above, below = figure.subplots(
      2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    charts.diagonal(above)
    if before:
      orange = {"color": charts.ORANGE, "marker": "s", "linestyle": "--"}
      above.plot(*_points(before), label="before", **orange)
    blue = {"color": charts.BLUE, "marker": "o"}
    above.plot(*_points(bins), label="calibrated", **blue)
    if before:
      above.legend()
    above.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel=share)
    below.stairs(bins["count"], bins["edges"], fill=True, color=charts.BLUE)
    below.set(xlabel="probability", ylabel="number")

  caption = f"On the dotted line, the probability is the {share}; below it, "
  caption += "the model is overconfident."
  figure = charts.figure(
    key, f"Probability of {subject}", caption, (4.6, 3.8), draw
  )
  page = f"<h3>Calibration</h3><p>{text}</p>{figure}"
  return page if several else page + _thresholds(evaluation)


def _thresholds(evaluation):
  """Coverage and accuracy if a person answers the less probable rows."""
  probabilities = evaluation.probabilities.max(axis=1)
  correct = evaluation.predictions == evaluation.label_ids
  rows = []
  for threshold in _THRESHOLDS:
    kept = probabilities >= threshold
    if kept.any():
      numbers = (np.mean(kept), np.mean(correct[kept]))
      rows.append(html.number_row(f"{threshold:g}", numbers, len(correct)))
  columns = ("probability at least", "#share of the rows", "#their accuracy")
  return html.table("Rows above a threshold", columns, rows) if rows else ""


def _bins(evaluation, probabilities):
  """The accuracy by probability; see `metrics.calibration`."""
  if evaluation.label_type.kind == "multilabel":
    correct = evaluation.label_ids.ravel() == 1
    return metrics.calibration(probabilities.ravel(), correct)
  correct = evaluation.predictions == evaluation.label_ids
  return metrics.calibration(probabilities.max(axis=1), correct)


def _points(bins):
  """The coordinates of the bins that have examples."""
  points = zip(bins["mean_confidence"], bins["accuracy"], strict=True)
  return zip(*(point for point in points if None not in point), strict=True)


def _regression_chart(key, evaluation):
  count = len(evaluation.label_ids)
  step = -(-count // _MAX_POINTS)
  true = evaluation.label_ids[::step]
  predicted = evaluation.predictions[::step]

  def draw(figure):
    axes = figure.add_subplot()
    charts.diagonal(axes)
    color = {"color": charts.BLUE, "alpha": 0.45, "linewidths": 0}
    axes.scatter(true, predicted, s=16, **color)
    axes.set(xlabel="true", ylabel="predicted")

  caption = f"{len(true):,} of {count:,} examples; equal on the dotted line"
  return charts.figure(
    key, "Predicted and true values", caption, (4.2, 3.4), draw
  )


def _errors(evaluation):
  predictions, losses = evaluation.predictions, evaluation.losses

  def label_cell(label):
    text = evaluation.label_type.answer(label)
    return training_page.text_cell(text or "none")

  columns = {
    "true": lambda row: label_cell(evaluation.label_ids[row]),
    "predicted": lambda row: label_cell(predictions[row]),
    "#loss": lambda row: html.number_cell(losses[row]),
  }
  if evaluation.label_type.kind == "classification":
    best = evaluation.probabilities.max(axis=1)
    columns["#probability"] = lambda row: html.number_cell(best[row])
  are = "are wrong"
  if not evaluation.label_type.labels:  # Numbers rarely match exactly.
    are = "differ from the given number"
  count = len(evaluation.errors)
  text = f"{count:,} of {len(predictions):,} predictions {are}"
  order = -np.where(np.isnan(losses), np.inf, losses)
  title = "Errors with the largest loss"
  return _wrong_rows(evaluation, title, text, columns, order)


def _wrong_rows(evaluation, title, text, columns, order):
  """A table of wrong predictions; `columns` make cells by index."""
  wrong, examples = evaluation.errors, evaluation.examples
  shown = wrong[np.argsort(order[wrong], kind="stable")][:_MAX_ERRORS]
  rows = [
    [
      training_page.text_cell(examples[row].guid),
      _texts_cell(examples[row]),
      *(make_cell(row) for make_cell in columns.values()),
    ]
    for row in shown
  ]
  names = ["id", "text", *columns]
  return training_page.examples_table(title, text, names, rows, len(wrong))


def _doubtful_labels(evaluation):
  """The given labels that are not predicted, the least likely first."""
  if not len(evaluation.errors):
    return ""
  labels, truth = evaluation.label_type.labels, evaluation.label_ids
  probabilities = evaluation.probabilities
  if truth.ndim == 1:
    names = [labels[index] for index in truth]
    given = probabilities[np.arange(len(truth)), truth]
  else:  # Show the least probable label, given or not, of each row.
    each = np.where(truth, probabilities, 1 - probabilities)
    worst, given = each.argmin(axis=1), each.min(axis=1)
    names = [
      labels[column] if truth[row, column] else f"not {labels[column]}"
      for row, column in enumerate(worst)
    ]
  columns = {
    "given": lambda row: training_page.text_cell(names[row]),
    "#probability": lambda row: html.number_cell(given[row]),
  }
  text = plural(len(evaluation.errors), "given label")
  text += " that the model does not predict; some may be wrong in the file"
  return _wrong_rows(evaluation, "Labels to check", text, columns, given)


def _texts_cell(example):
  texts = [example.text_a, *filter(None, [example.text_b])]
  parts = [f'<p dir="auto">{html.escape(text)}</p>' for text in texts]
  return f'<td class="text">{"".join(parts)}</td>'


STYLE = """
.errors td:first-child { white-space: nowrap; }
.text p { white-space: pre-wrap; max-height: 12rem; overflow: auto; }
.text p + p { margin-top: .5rem; padding-top: .5rem;
  border-top: 1px dashed var(--line); }
@media print { .text p { max-height: none; } }
"""
