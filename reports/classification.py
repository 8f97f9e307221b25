"""report.html: the learning curves, metrics and errors of a classifier."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reports import charts, html
from training import metrics

_MAX_ERRORS = 50
_MAX_MATRIX_LABELS = 20
_MAX_CONFUSIONS = 20
_MAX_POINTS = 2000  # More points make a scatter chart large, not clearer.


@dataclasses.dataclass
class Evaluation:
  """The predictions for a labeled data set.

  Attributes:
    name: the data set, such as "development set".
    label_type: a `LabelType` of `tasks.labels`.
    results: dict from metric, such as `eval_accuracy`, to number. The header
      shows those that start with `eval_`, in this order.
    label_ids: the true labels, in the form of `label_type.predictions`.
    probabilities: float [rows, C]; for a regression the numbers [rows, 1].
    losses: float [rows].
    examples: the rows, with `guid`, `text_a` and `text_b`.
  """

  name: str
  label_type: Any
  results: Mapping[str, float]
  label_ids: np.ndarray
  probabilities: np.ndarray
  losses: np.ndarray
  examples: Sequence

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
  def predictions(self) -> np.ndarray:
    """The predicted labels, [rows] or [rows, C]."""
    return self.label_type.predictions(self.probabilities)

  @property
  def errors(self) -> np.ndarray:
    """Indices of the rows whose prediction differs from the label."""
    unequal = self.predictions != self.label_ids
    return np.flatnonzero(unequal.any(axis=tuple(range(1, unequal.ndim))))


def write_report(
  path: str,
  title: str,
  evaluations: Sequence[Evaluation],
  history: Mapping[str, Sequence[tuple[int, float]]],
  record: Mapping,
) -> None:
  """Writes the page.

  Args:
    path: the file to write.
    title: heading of the page.
    evaluations: one for each data set.
    history: dict from the tag of a scalar to its (step, value) pairs; "dev/"
      precedes metrics of the development set.
    record: the content of flags.json.
  """
  sections = [
    ("Learning curves", _curves(history)),
    ("Metrics", _metric_table(evaluations)),
  ]
  for number, evaluation in enumerate(evaluations, 1):
    name = evaluation.name[:1].upper() + evaluation.name[1:]
    sections.append((name, _evaluation(f"set-{number}", evaluation)))
  sections.append(("Flags and versions", _record(record)))
  links = content = ""
  for number, (heading, section) in enumerate(sections, 1):
    key, heading = f"section-{number}", html.escape(heading)
    links += f'<li><a href="#{key}">{heading}</a></li>'
    content += f'<section id="{key}"><h2>{heading}</h2>{section}</section>\n'
  body = (
    f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
    f"<main>\n{content}</main>\n"
  )
  header = "".join(map(_key_figures, evaluations))
  html.write(path, html.document(title, header, body, charts.CSS + _CSS))


def _key_figures(evaluation):
  figures = [
    (_name(key), html.data(value))
    for key, value in evaluation.results.items()
    if key.startswith("eval_")
  ]
  figures.append(("examples", html.data(len(evaluation.examples))))
  if evaluation.label_type.kind != "regression":
    figures.append(("wrong", html.data(len(evaluation.errors))))
  name = html.escape(evaluation.name)
  return f'<p class="set" dir="auto">{name}</p>\n' + html.key_figures(figures)


def _metric_table(evaluations):
  if not evaluations:
    return "<p>Nothing was evaluated.</p>"
  keys = dict.fromkeys(key for e in evaluations for key in sorted(e.results))
  rows = [
    [html.row_head(f"<code>{html.escape(key)}</code>")]
    + [
      html.number_cell(e.results[key])
      if key in e.results
      else '<td class="number">–</td>'
      for e in evaluations
    ]
    for key in keys
  ]
  columns = ["metric", *(f"#{e.name}" for e in evaluations)]
  return html.table("Metrics", columns, rows)


# Learning curves.


def _curves(history):
  charts_of = {}  # Title of a chart -> name of a line -> points.
  # Loss comes first, then the development set.
  for tag in sorted(
    history, key=lambda tag: (tag != "loss", not tag.startswith("dev/"), tag)
  ):
    name = "development" if tag.startswith("dev/") else "training"
    title = _name(tag.removeprefix("dev/"))
    if name == "development" and title != "loss":
      title = f"development: {title}"
    if len(history[tag]):
      charts_of.setdefault(title.capitalize(), {})[name] = history[tag]
  if not charts_of:
    return "<p>There is no training history.</p>"
  figures = [
    _curve(f"curve-{number}", title, lines)
    for number, (title, lines) in enumerate(charts_of.items())
  ]
  return f'<div class="grid">{"".join(figures)}</div>'


def _curve(key, title, lines):
  caption = "; ".join(
    f"{name} {points[-1][1]:.4g} at step {points[-1][0]:,}"
    for name, points in lines.items()
  )

  def draw(figure):
    from matplotlib import ticker

    axes = figure.add_subplot()
    for name, points in lines.items():
      axes.plot(
        *zip(*points, strict=True),
        color=charts.BLUE if name == "training" else charts.ORANGE,
        label=name,
        marker="o" if len(points) <= 25 else None,
        markersize=3.5,
      )
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    if len(lines) > 1:
      axes.legend()

  return charts.figure(key, title, caption, (4.2, 2.5), draw)


# One data set.


def _evaluation(key, evaluation):
  if evaluation.label_type.kind == "regression":
    return _regression_chart(key, evaluation) + _errors(evaluation)
  details = evaluation.details
  page = _label_table(details["labels"])
  if "confusion_matrix" in details:
    counts = np.array(details["confusion_matrix"])
    page += _confusion(counts, evaluation.label_type.labels)
  return page + _calibration(key, evaluation) + _errors(evaluation)


def _label_table(report):
  rows = [
    [html.row_head(html.escape(label))]
    + [_bar_cell(scores[name]) for name in ("precision", "recall", "f1")]
    + [html.number_cell(scores["support"])]
    for label, scores in report.items()
  ]
  columns = ["label", "#precision", "#recall", "#F1", "#support"]
  return "<h3>Labels</h3>" + html.table("Labels", columns, rows)


def _confusion(counts, labels):
  shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
  if len(labels) > _MAX_MATRIX_LABELS:
    return _confused_pairs(counts, shares, labels)
  rows = [
    [html.row_head(html.escape(label))]
    + [
      f'<td class="number {"hit" if i == j else "miss"}" '
      f'style="--share:{shares[i, j]:.3f}">{counts[i, j]:,}'
      f"<small>{shares[i, j]:.0%}</small></td>"
      for j in range(len(labels))
    ]
    for i, label in enumerate(labels)
  ]
  columns = ["true ↓ predicted →", *(f"#{label}" for label in labels)]
  return (
    "<h3>Confusion matrix</h3><p>Rows are true labels, columns are predicted "
    "labels. Each cell shows the number of examples and its share of the row."
    "</p>" + html.table("Confusion matrix", columns, rows, "matrix")
  )


def _confused_pairs(counts, shares, labels):
  wrong = counts - np.diag(np.diag(counts))
  order = np.argsort(-wrong, axis=None, kind="stable")[:_MAX_CONFUSIONS]
  rows = [
    [
      _text_cell(labels[i]),
      _text_cell(labels[j]),
      html.number_cell(int(wrong[i, j])),
      _bar_cell(shares[i, j]),
    ]
    for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
    if wrong[i, j]
  ]
  title = "Most confused labels"
  columns = ["true", "predicted", "#examples", "#share of the true label"]
  return f"<h3>{title}</h3>" + html.table(title, columns, rows)


def _calibration(key, evaluation):
  if evaluation.label_type.kind == "multilabel":
    subject, share = "each label of each example", "share with the label"
    probabilities = evaluation.probabilities.ravel()
    correct = evaluation.label_ids.ravel() == 1
  else:
    subject, share = "the predicted label", "share correct"
    probabilities = evaluation.probabilities.max(axis=1)
    correct = evaluation.predictions == evaluation.label_ids
  bins = metrics.calibration(probabilities, correct)
  error = bins["expected_calibration_error"]
  points = zip(bins["mean_confidence"], bins["accuracy"], strict=True)
  filled = [point for point in points if None not in point]

  def draw(figure):
    above, below = figure.subplots(
      2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    charts.diagonal(above)
    above.plot(*zip(*filled, strict=True), color=charts.BLUE, marker="o")
    above.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel=share)
    below.stairs(bins["count"], bins["edges"], fill=True, color=charts.BLUE)
    below.set(xlabel="probability", ylabel="number")

  caption = f"On the dotted line, the probability is the {share}; below it, "
  caption += "the model is overconfident."
  return (
    "<h3>Calibration</h3>"
    f"<p>The expected calibration error is {html.data(error)}.</p>"
    + charts.figure(key, f"Probability of {subject}", caption, (4.6, 3.8), draw)
  )


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


# Errors, with their texts.


def _errors(evaluation):
  wrong, predictions = evaluation.errors, evaluation.predictions
  title = "Errors with the largest loss"
  if not len(wrong):
    return f"<h3>{title}</h3><p>No example is wrong.</p>"
  losses = np.where(np.isnan(evaluation.losses), np.inf, evaluation.losses)
  shown = wrong[np.argsort(-losses[wrong], kind="stable")][:_MAX_ERRORS]
  answer = evaluation.label_type.answer
  columns = ["id", "text", "true", "predicted", "#loss"]
  rows = [
    [
      _text_cell(evaluation.examples[row].guid),
      _texts_cell(evaluation.examples[row]),
      _text_cell(answer(evaluation.label_ids[row]) or "none"),
      _text_cell(answer(predictions[row]) or "none"),
      html.number_cell(evaluation.losses[row]),
    ]
    for row in shown
  ]
  if evaluation.label_type.kind == "classification":
    columns.append("#probability")
    for cells, row in zip(rows, shown, strict=True):
      cells.append(html.number_cell(evaluation.probabilities[row].max()))
  total = f"{len(wrong):,} of {len(predictions):,} predictions are wrong"
  if len(shown) < len(wrong):
    total += f"; the table has the first {len(shown)}"
  return f"<h3>{title}</h3><p>{total}, sorted by loss.</p>" + html.table(
    title, columns, rows, "errors"
  )


def _record(record):
  page = ""
  for key, values in record.items():
    title = html.escape(key.capitalize())
    columns = ["file", "SHA-256"] if key == "data" else ["name", "value"]
    rows = [
      [
        html.row_head(f"<code>{html.escape(name)}</code>"),
        f"<td><code>{html.escape(value)}</code></td>",
      ]
      for name, value in values.items()
    ]
    page += f"<h3>{title}</h3>" + html.table(title, columns, rows)
  return page


# Pieces of the page.


def _name(key):
  """The name of a metric or tag in words."""
  return key.removeprefix("eval_").replace("_", " ")


def _text_cell(text):
  return f'<td dir="auto">{html.escape(text)}</td>'


def _bar_cell(share):
  """A number from 0 to 1 above a bar of that length."""
  number = html.data(share)
  return f'<td class="number bar" style="--share:{share:.3f}">{number}</td>'


def _texts_cell(example):
  texts = [example.text_a, *filter(None, [example.text_b])]
  parts = [f'<p dir="auto">{html.escape(text)}</p>' for text in texts]
  return f'<td class="text">{"".join(parts)}</td>'


_CSS = """
.set { color: var(--faint); margin: 1rem 0 .4rem; }
nav ol { display: flex; flex-wrap: wrap; gap: .25rem 1.4rem;
  margin: 1.75rem 0 0; padding: 0; list-style: none; }
.bar { min-width: 6.5rem; background: linear-gradient(to right,
  rgb(var(--hit) / .75) calc(var(--share) * 100%), rgb(var(--hit) / .15) 0)
  center bottom .2rem / calc(100% - 1.6rem) .2rem no-repeat; }
.matrix td, .matrix thead th.number { text-align: center; min-width: 4rem;
  max-width: 9rem; overflow-wrap: break-word; }
.matrix small { display: block; font-size: .75rem; opacity: .8; }
.hit { background: rgb(var(--hit) / calc(var(--share) * .5)); }
.miss { background: rgb(var(--miss) / calc(var(--share) * .6)); }
.matrix tbody th { white-space: nowrap; vertical-align: middle;
  background: var(--card); position: sticky; left: 0; }
.errors td { min-width: 5rem; max-width: 12rem; overflow-wrap: break-word; }
.errors .text { min-width: 18rem; max-width: 36rem; overflow-wrap: anywhere; }
.errors td:first-child { white-space: nowrap; }
.text p { margin: 0; white-space: pre-wrap; max-height: 12rem;
  overflow: auto; }
.text p + p { margin-top: .5rem; padding-top: .5rem;
  border-top: 1px dashed var(--line); }
@media print { .text p { max-height: none; } }
"""
