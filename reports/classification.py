"""One page on how a run went: report.html, which needs nothing beside it.

Charts are drawn by matplotlib, which is imported only here and only for use.
Texts and labels stand in HTML rather than in charts, so that they come in any
script and any font that the reader has.
"""

import dataclasses
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from reports import html
from training import metrics, run_record

_MAX_ERRORS = 50
_MAX_MATRIX_LABELS = 20
_MAX_CONFUSIONS = 20
_MAX_POINTS = 2000  # Of a scatter chart: more make a heavy page, no picture.
_MAX_CHARACTERS = 300  # Of a text, before it is cut.

# The colours that charts are drawn in, and what the page puts in their place:
# colours of its own, which differ between light and dark.
_INK, _BLUE, _ORANGE = "#010203", "#0072b2", "#d55e00"
_PAGE_COLORS = {
  _INK: "currentColor",
  _BLUE: "var(--blue)",
  _ORANGE: "var(--orange)",
}
_CHART_STYLE = {
  "axes.axisbelow": True,
  "axes.edgecolor": _INK,
  "axes.grid": True,
  "axes.labelcolor": _INK,
  "axes.linewidth": 0.8,
  "axes.spines.right": False,
  "axes.spines.top": False,
  "font.size": 9,
  "grid.alpha": 0.15,
  "grid.color": _INK,
  "legend.frameon": False,
  "svg.fonttype": "none",
  "svg.hashsalt": "report",
  "text.color": _INK,
  "text.parse_math": False,
  "xtick.color": _INK,
  "ytick.color": _INK,
}
_CURVE_TITLES = {
  "loss": "Loss",
  "learning_rate": "Learning rate",
  "gradient_norm": "Gradient norm",
  "examples/s": "Examples per second",
}
_RECORD_TITLES = {"flags": "Flags", "versions": "Versions", "data": "Data"}


@dataclasses.dataclass
class Evaluation:
  """What a model made of one labelled set.

  Args:
    name: the set's, as a reader sees it: "development set".
    label_type: one of `tasks.labels`.
    results: dict from metric, such as `eval_accuracy`, to number.
    label_ids: encoded labels: integer [rows], 0 or 1 [rows, C], or float
      [rows].
    probabilities: float [rows, C]; of a Regression the numbers [rows, 1].
    losses: float [rows].
    examples: the InputExamples.
  """

  name: str
  label_type: Any
  results: dict[str, float]
  label_ids: np.ndarray
  probabilities: np.ndarray
  losses: np.ndarray
  examples: Sequence

  def __post_init__(self):
    self.label_ids = np.asarray(self.label_ids)
    self.probabilities = np.asarray(self.probabilities, np.float64)
    self.losses = np.asarray(self.losses, np.float64)

  @property
  def predictions(self) -> np.ndarray:
    """The predictions, encoded as `label_ids` are."""
    return self.label_type.predictions(self.probabilities)


def write_results(output_dir: str, suffix: str, evaluation: Evaluation) -> None:
  """Writes `eval_results.txt`, as the original has it, and `.json`, with more.

  Args:
    output_dir: where to.
    suffix: of the files' names.
    evaluation: an Evaluation.
  """
  details = {}
  if evaluation.label_type.labels:
    details = metrics.label_report(
      evaluation.label_ids, evaluation.predictions, evaluation.label_type.labels
    )
  stem = os.path.join(output_dir, f"eval_results{suffix}")
  run_record.write_results(stem, evaluation.results, details)


def write_report(
  path: str,
  title: str,
  evaluations: Sequence[Evaluation],
  history: Mapping[str, Sequence[tuple[int, float]]],
  record: Mapping,
) -> None:
  """Writes report.html; without matplotlib, a line to the log and no file.

  Args:
    path: the file to write.
    title: heading of the page.
    evaluations: one for each set.
    history: dict from the tag of a scalar to its (step, value) pairs:
      training's `loss`, `learning_rate`, `gradient_norm`, `examples/s`, and
      `dev/` before a metric of the development set.
    record: what the run was given, dicts under `flags`, `versions` (of
      libraries) and `data` (path to SHA-256).
  """
  try:
    import matplotlib.figure  # noqa: F401
  except ImportError:
    logging.info("pip install matplotlib for report.html")
    return
  html.write(path, _page(title, evaluations, history, record))


def _page(title, evaluations, history, record):
  sections = [("curves", "Learning curves", _curves(history))]
  sections.append(("metrics", "Metrics", _metric_table(evaluations)))
  for number, evaluation in enumerate(evaluations, 1):
    key = f"set-{number}"
    name = evaluation.name
    sections.append(
      (key, name[:1].upper() + name[1:], _evaluation(key, evaluation))
    )
  sections.append(("record", "What the run was given", _record(record)))
  contents = "".join(
    f'<li><a href="#{key}">{html.escape(heading)}</a></li>'
    for key, heading, _ in sections
  )
  body = "".join(
    f'<section id="{key}"><h2>{html.escape(heading)}</h2>{content}</section>\n'
    for key, heading, content in sections
  )
  body = (
    f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n'
    f"<main>\n{body}</main>\n"
  )
  return html.document(title, _key_figures(evaluations), body, _CSS)


def _key_figures(evaluations):
  parts = []
  for evaluation in evaluations:
    results = evaluation.results
    wanted = [f"eval_{name}" for name in evaluation.label_type.default_metrics]
    shown = [key for key in (*wanted, "eval_loss") if key in results]
    figures = [(_name(key), html.data(results[key])) for key in shown]
    figures.append(("examples", html.data(len(evaluation.examples))))
    if evaluation.label_type.kind != "regression":
      figures.append(("wrong", html.data(len(_wrong(evaluation)))))
    parts.append(
      f'<p class="set" dir="auto">{html.escape(evaluation.name)}</p>\n'
      + html.key_figures(figures)
    )
  return "".join(parts)


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
  history = {tag: points for tag, points in history.items() if len(points)}
  if not history:
    return "<p>There is no history of a training run.</p>"
  charts = {}  # Title -> name of a line -> points.
  for tag in sorted(history, key=_curve_order):
    title = _CURVE_TITLES.get(tag, _name(tag))
    line = "training"
    if tag.startswith("dev/"):
      line = "development"
      name = _name(tag.removeprefix("dev/"))
      title = "Loss" if name == "loss" else f"Development: {name}"
    charts.setdefault(title, {})[line] = history[tag]
  figures = "".join(
    _curve_figure(f"curve-{number}", title, lines)
    for number, (title, lines) in enumerate(charts.items(), 1)
  )
  return f'<div class="grid">{figures}</div>'


def _curve_order(tag):
  """Loss first, then the development set, then the rest of training."""
  known = ["loss", "dev/", *list(_CURVE_TITLES)[1:]]
  start = "dev/" if tag.startswith("dev/") else tag
  return known.index(start) if start in known else len(known), tag


def _curve_figure(key, title, lines):
  facts = []
  for name, points in lines.items():
    values = [value for _, value in points if math.isfinite(value)]
    step, last = points[-1]
    fact = f"{last:.4g} at step {step:,}"
    if values:
      fact += f", range {min(values):.4g} to {max(values):.4g}"
    if len(values) < len(points):
      fact += f", {len(points) - len(values)} not finite"
    facts.append(f"{name + ': ' if len(lines) > 1 else ''}{fact}")

  def draw(figure):
    from matplotlib import ticker

    axes = figure.add_subplot()
    for name, points in lines.items():
      steps, values = np.array(points, np.float64).T
      axes.plot(
        steps,
        np.where(np.isfinite(values), values, np.nan),
        color=_BLUE if name == "training" else _ORANGE,
        label=name,
        linewidth=1.5,
        marker="o" if len(points) <= 25 else None,
        markersize=3.5,
      )
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    if len(lines) > 1:
      axes.legend()

  svg = _svg(key, f"{title} by step. {'; '.join(facts)}", (4.2, 2.5), draw)
  return _figure(title, svg, html.escape("; ".join(facts)))


# One labelled set.


def _evaluation(key, evaluation):
  if not len(evaluation.label_ids):
    return "<p>The set has no rows.</p>"
  if evaluation.label_type.kind == "regression":
    parts = [_regression_charts(key, evaluation)]
  else:
    labels = evaluation.label_type.labels
    report = metrics.label_report(
      evaluation.label_ids, evaluation.predictions, labels
    )
    parts = [_label_table(report["labels"])]
    if evaluation.label_type.kind == "classification":
      parts.append(_confusion(np.array(report["confusion_matrix"]), labels))
    parts.append(_calibration(key, evaluation))
  return "".join([*parts, _errors(evaluation)])


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
  names = [html.escape(label) for label in labels]
  rows = [
    [html.row_head(name)]
    + [
      f'<td class="number {"hit" if i == j else "miss"}" '
      f'style="--share:{shares[i, j]:.3f}">{counts[i, j]:,}'
      f"<small>{shares[i, j]:.0%}</small></td>"
      for j in range(len(labels))
    ]
    for i, name in enumerate(names)
  ]
  columns = ["true ↓ predicted →", *(f"#{label}" for label in labels)]
  return (
    "<h3>Confusion matrix</h3><p>Rows are true labels, columns are predicted "
    "ones. Each cell has the number of examples and its share of the row."
    "</p>" + html.table("Confusion matrix", columns, rows, "matrix")
  )


def _confused_pairs(counts, shares, labels):
  wrong = counts - np.diag(np.diag(counts))
  order = np.argsort(-wrong, axis=None, kind="stable")[:_MAX_CONFUSIONS]
  pairs = [divmod(int(place), len(labels)) for place in order]
  rows = [
    [
      _text_cell(labels[i]),
      _text_cell(labels[j]),
      html.number_cell(int(wrong[i, j])),
      _bar_cell(shares[i, j]),
    ]
    for i, j in pairs
    if wrong[i, j]
  ]
  if not rows:
    return "<h3>Most confused labels</h3><p>None are confused.</p>"
  columns = ["true", "predicted", "#examples", "#share of the true label"]
  return "<h3>Most confused labels</h3>" + html.table(
    "Most confused labels", columns, rows
  )


def _calibration(key, evaluation):
  if evaluation.label_type.kind == "multilabel":
    of, share = "each label of each example", "share with the label"
    counted = "labels"
    probabilities = evaluation.probabilities.ravel()
    came_true = evaluation.label_ids.ravel() == 1
  else:
    of, share, counted = "the predicted label", "share right", "examples"
    probabilities = _of_predicted(evaluation)
    came_true = evaluation.predictions == evaluation.label_ids
  finite = np.isfinite(probabilities)
  if not finite.any():
    return "<h3>Calibration</h3><p>No probability is a number.</p>"
  bins = metrics.calibration(probabilities[finite], came_true[finite])
  error = bins["expected_calibration_error"]
  label = (
    f"Reliability diagram of the probability of {of}. Expected calibration "
    f"error {html.short(error)}"
  )

  def draw(figure):
    _draw_reliability(figure, bins, share, counted)

  return (
    "<h3>Calibration</h3>"
    f"<p>Expected calibration error {html.data(error)}, over the probability "
    f"of {of}. On the dotted line a probability is the {share}; below it the "
    "model is too sure.</p>"
    + _figure("", _svg(f"{key}-calibration", label, (4.6, 3.8), draw), "")
    + _calibration_table(bins, share, counted)
  )


def _draw_reliability(figure, bins, share, counted):
  above, below = figure.subplots(
    2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
  )
  above.plot([0, 1], [0, 1], color=_INK, linestyle=":", linewidth=1)
  filled = [place for place, n in enumerate(bins["count"]) if n]
  above.plot(
    [bins["mean_confidence"][place] for place in filled],
    [bins["accuracy"][place] for place in filled],
    color=_BLUE,
    marker="o",
    markersize=5,
  )
  above.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel=share)
  below.stairs(bins["count"], bins["edges"], fill=True, color=_BLUE)
  below.set(xlabel="probability", ylabel=counted)


def _calibration_table(bins, share, counted):
  edges = bins["edges"]
  rows = [
    [
      html.row_head(f"{low:.1f} to {high:.1f}"),
      html.number_cell(count),
      html.number_cell(probability),
      html.number_cell(accuracy),
    ]
    for low, high, count, probability, accuracy in zip(
      edges[:-1],
      edges[1:],
      bins["count"],
      bins["mean_confidence"],
      bins["accuracy"],
      strict=True,
    )
    if count
  ]
  columns = ["probability", f"#{counted}", "#mean probability", f"#{share}"]
  return (
    "<details><summary>The numbers of the chart</summary>"
    f"{html.table('Calibration', columns, rows)}</details>"
  )


def _regression_charts(key, evaluation):
  true = np.asarray(evaluation.label_ids, np.float64)
  predicted = evaluation.predictions
  finite = np.flatnonzero(np.isfinite(predicted))
  if not len(finite):
    return "<p>No predicted number is finite.</p>"
  errors = (predicted - true)[finite]
  drawn = finite
  if len(finite) > _MAX_POINTS:
    places = np.linspace(0, len(finite) - 1, _MAX_POINTS).round().astype(int)
    drawn = finite[places]
  low = min(true[finite].min(), predicted[finite].min())
  high = max(true[finite].max(), predicted[finite].max())

  def scatter(figure):
    axes = figure.add_subplot()
    axes.plot([low, high], [low, high], color=_INK, linestyle=":", linewidth=1)
    axes.plot(
      true[drawn],
      predicted[drawn],
      alpha=0.45,
      color=_BLUE,
      linestyle="none",
      marker="o",
      markeredgewidth=0,
      markersize=4,
    )
    axes.set(xlabel="true", ylabel="predicted")

  def histogram(figure):
    axes = figure.add_subplot()
    axes.hist(errors, bins=30, color=_BLUE, rwidth=0.92)
    axes.axvline(0, color=_INK, linestyle=":", linewidth=1)
    axes.set(xlabel="predicted less true", ylabel="examples")

  shown = f"{len(drawn):,} of {len(true):,} examples"
  mean, deviation = html.short(errors.mean()), html.short(errors.std())
  spread = f"mean {mean}, deviation {deviation}"
  size = (4.2, 3.4)
  return (
    '<h3>Predicted and true</h3><div class="grid">'
    + _figure(
      "Predicted against true",
      _svg(f"{key}-scatter", f"Scatter chart of {shown}", size, scatter),
      f"{shown}; on the dotted line both are equal",
    )
    + _figure(
      "Errors",
      _svg(f"{key}-errors", f"Histogram of errors, {spread}", size, histogram),
      spread,
    )
    + "</div>"
  )


# Errors, with their texts.


def _wrong(evaluation):
  """Places of the rows that are not quite right, integer [wrong]."""
  unequal = evaluation.predictions != evaluation.label_ids
  if unequal.ndim > 1:
    unequal = unequal.any(axis=-1)
  return np.flatnonzero(unequal)


def _of_predicted(evaluation):
  """The probability of each row's predicted label, float [rows]."""
  places = evaluation.predictions[:, np.newaxis]
  return np.take_along_axis(evaluation.probabilities, places, axis=-1)[:, 0]


def _errors(evaluation):
  title, by, scores, cells = {
    "classification": _classification_errors,
    "multilabel": _multilabel_errors,
    "regression": _regression_errors,
  }[evaluation.label_type.kind](evaluation)
  label_type, predictions = evaluation.label_type, evaluation.predictions
  wrong = _wrong(evaluation)
  if not len(wrong):
    return f"<h3>{title}</h3><p>No example is wrong.</p>"
  # What is not a number is the worst there is.
  scores = np.where(np.isnan(scores), np.inf, scores)
  worst = wrong[np.argsort(-scores[wrong], kind="stable")][:_MAX_ERRORS]
  rows = [
    [
      _text_cell(evaluation.examples[row].guid),
      _texts_cell(evaluation.examples[row]),
      _text_cell(label_type.answer(evaluation.label_ids[row]) or "none"),
      _text_cell(label_type.answer(predictions[row]) or "none"),
      *(cell(row) for cell in cells.values()),
    ]
    for row in worst
  ]
  of = f"{len(wrong):,} of {len(predictions):,} examples are wrong"
  if label_type.kind == "regression":  # Hardly a number is just right.
    of = f"{len(wrong):,} examples"
  first = f"; the first {len(worst)} are here" * (len(worst) < len(wrong))
  columns = ["id", "text", "true", "predicted", *cells]
  return f"<h3>{title}</h3><p>{of}, sorted by {by}{first}.</p>" + html.table(
    title, columns, rows, "errors"
  )


def _classification_errors(evaluation):
  scores = _of_predicted(evaluation)

  def probability(row):
    return html.number_cell(scores[row])

  cells = {"#probability": probability}
  return "Most confident errors", "probability", scores, cells


def _multilabel_errors(evaluation):
  label_type, losses = evaluation.label_type, evaluation.losses
  unequal = evaluation.predictions != evaluation.label_ids

  def probability(row):
    wrong = "".join(
      f"<li>{html.escape(label_type.labels[place])} "
      f"{html.data(evaluation.probabilities[row, place])}</li>"
      for place in np.flatnonzero(unequal[row])
    )
    return f'<td class="number"><ul>{wrong}</ul></td>'

  def loss(row):
    return html.number_cell(losses[row])

  cells = {"#probability of wrong ones": probability, "#loss": loss}
  return "Errors of the greatest loss", "loss", losses, cells


def _regression_errors(evaluation):
  errors = evaluation.predictions - evaluation.label_ids

  def error(row):
    return html.number_cell(errors[row])

  return "Largest errors", "error", np.abs(errors), {"#error": error}


def _record(record):
  parts = []
  for key, values in record.items():
    if not isinstance(values, Mapping):
      values = {key: values}
    rows = [
      [html.row_head(f"<code>{html.escape(name)}</code>"), _code_cell(value)]
      for name, value in values.items()
    ]
    title = _RECORD_TITLES.get(key, key)
    columns = ["file", "SHA-256"] if key == "data" else ["name", "value"]
    parts.append(
      f"<h3>{html.escape(title)}</h3>"
      + html.table(title, columns, rows, "record")
      if rows
      else ""
    )
  return "".join(parts) or "<p>There is no record.</p>"


# Pieces of the page.


def _name(key):
  """A metric's or tag's name as people write it."""
  return key.removeprefix("eval_").replace("_", " ")


def _text_cell(text):
  return f'<td dir="auto">{html.escape(text)}</td>'


def _code_cell(value):
  return f"<td><code>{html.escape(value)}</code></td>"


def _bar_cell(share):
  """A number from 0 to 1 over a bar of that length."""
  number = html.data(share)
  return f'<td class="number bar" style="--share:{share:.3f}">{number}</td>'


def _texts_cell(example):
  texts = [example.text_a]
  if example.text_b:
    texts.append(example.text_b)
  return f'<td class="text">{"".join(map(_text, texts))}</td>'


def _text(text):
  whole = f'<p dir="auto">{html.escape(text)}</p>'
  if len(text) <= _MAX_CHARACTERS:
    return whole
  cut = html.escape(text[:_MAX_CHARACTERS].rstrip())
  return (
    f'<details><summary><span dir="auto">{cut}…</span></summary>'
    f"{whole}</details>"
  )


def _figure(title, svg, caption):
  """A chart between its title, as text, and its caption, as HTML."""
  above = f"<h4>{html.escape(title)}</h4>" if title else ""
  below = f"<figcaption>{caption}</figcaption>" if caption else ""
  return f"<figure>{above}{svg}{below}</figure>\n"


def _svg(
  key: str, label: str, size: tuple[float, float], draw: Callable
) -> str:
  """A chart as an element of the page, in the page's colours.

  Args:
    key: stands before its ids, which are unique in the page thereby.
    label: what it shows, for readers who do not see it.
    size: width and height in inches.
    draw: called with the matplotlib Figure.
  """
  import matplotlib
  from matplotlib.figure import Figure

  buffer = io.StringIO()
  # Whatever a matplotlibrc says, equal numbers are equal bytes.
  with matplotlib.rc_context():
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_CHART_STYLE)
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    figure.savefig(
      buffer,
      format="svg",
      transparent=True,
      metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
    )
  svg = buffer.getvalue()
  svg = svg[svg.index("<svg") :]
  # The style is in the page's; namespaces mean nothing within HTML.
  for needless in (r"<!--.*?-->\s*", r"<style.*?</style>", r' xmlns\S*=".*?"'):
    svg = re.sub(needless, "", svg, flags=re.DOTALL)
  svg = svg.replace("xlink:href", "href")
  svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{key}-", svg)
  for drawn, shown in _PAGE_COLORS.items():
    svg = svg.replace(drawn, shown)
  return svg.replace(
    "<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1
  )


_CSS = """
.set { color: var(--faint); margin: 1rem 0 .4rem; }
nav ol { display: flex; flex-wrap: wrap; gap: .25rem 1.4rem;
  margin: 1.75rem 0 0; padding: 0; list-style: none; }
.grid { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; padding: .9rem 1rem; max-width: 38rem; min-width: 0;
  background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; break-inside: avoid; }
figcaption { color: var(--faint); font-size: .85rem; margin-top: .4rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: inherit !important; }
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
.errors .text { min-width: 18rem; max-width: 36rem; }
.errors td { overflow-wrap: anywhere; min-width: 5rem; }
.errors td:first-child { white-space: nowrap; }
.errors ul { margin: 0; padding: 0; list-style: none; white-space: normal; }
.text p, .text details { margin: 0; white-space: pre-wrap; }
.text > :not(:first-child) { margin-top: .5rem; padding-top: .5rem;
  border-top: 1px dashed var(--line); }
.text [open] summary span { display: none; }
.text [open] summary::after { content: "less"; color: var(--blue); }
.record { min-width: min(100%, 26rem); }
"""
