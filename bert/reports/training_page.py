"""The page of a training: curves, metrics, data sets, flags and versions."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert.reports import charts, html, verdict

NAME = "report.html"

_MAX_MATRIX_LABELS = 20
_MAX_CONFUSIONS = 20


def write(
  folder: str,
  task_name: str,
  evaluations: Sequence[Any],
  section: Callable[[str, Any], str],
  history: Mapping[str, Sequence[tuple[int, float]]],
  record: Mapping,
  style: str = "",
  verdicts: Mapping[str, verdict.Verdict] | None = None,
  comparisons: Mapping[str, str] | None = None,
  warnings: Sequence[str] = (),
) -> None:
  """Writes report.html: first whether the result is good, then why.

  Args:
    folder, task_name: of the run.
    evaluations: one for each data set, with its `name`, its metrics `results`,
      and more numbers for the header, `counts`.
    section: makes the HTML of a section from a key, unique in the page, and an
      evaluation.
    history: the (step, value) pairs of each scalar; the names of scalars of the
      development set begin with "dev/".
    record: the content of flags.json.
    style: CSS of the sections.
    verdicts: the Verdict on each data set, by its name.
    comparisons: HTML about another model on a data set, by its name.
    warnings: warnings about the data, one sentence each.
  """
  verdicts = verdicts or {}
  advice = [line for judged in verdicts.values() for line in judged.advice]
  sections = []
  if warnings:
    sections.append(("Warnings about the data", _list(warnings)))
  if advice:
    sections.append(("What to try next", _list(dict.fromkeys(advice))))
  sections.append(("Metrics", _metric_table(evaluations)))
  for number, evaluation in enumerate(evaluations, 1):
    name = evaluation.name[:1].upper() + evaluation.name[1:]
    part = (comparisons or {}).get(evaluation.name, "")
    if part := part + section(f"set-{number}", evaluation):
      sections.append((name, part))
  sections.append(("Learning curves", _curves(history)))
  sections.append(("Flags and versions", _record(record)))
  header = "".join(
    _key_figures(evaluation, verdicts.get(evaluation.name))
    for evaluation in evaluations
  )
  name = task_name[:1].upper() + task_name[1:]
  title = f"{name}: {os.path.basename(os.path.abspath(folder))}"
  html.write(
    os.path.join(folder, NAME),
    html.document(title, header, _body(sections), charts.CSS + _CSS + style),
  )


def _body(sections):
  links = content = ""
  for number, (heading, part) in enumerate(sections, 1):
    key, heading = f"section-{number}", html.escape(heading)
    links += f'<li><a href="#{key}">{heading}</a></li>'
    content += f'<section id="{key}"><h2>{heading}</h2>{part}</section>\n'
  return (
    f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
    f"<main>\n{content}</main>\n"
  )


def _list(lines):
  items = "".join(f'<li dir="auto">{html.escape(line)}</li>' for line in lines)
  return f"<ul>{items}</ul>"


def _key_figures(evaluation, judged):
  figures = {
    metric_name(key): value
    for key, value in evaluation.results.items()
    if key.startswith("eval_") or key in ("f1", "exact_match", "exact")
  }
  figures |= evaluation.counts
  text = html.escape(evaluation.name)
  if judged:
    text += f": <strong>{html.escape(judged)}</strong>"
  cards = html.key_figures(figures, _num_rows(evaluation))
  return f'<p class="set" dir="auto">{text}</p>\n{cards}'


def _num_rows(evaluation):
  return next(iter(evaluation.counts.values()), 0)


def _metric_table(evaluations):
  if not evaluations:
    return "<p>Nothing was evaluated.</p>"
  keys = dict.fromkeys(key for e in evaluations for key in sorted(e.results))
  if "eval_loss" in keys:
    keys.pop("loss", None)  # The same number.
  count = min(map(_num_rows, evaluations))
  rows = [
    html.number_row(
      metric_name(key), [e.results.get(key) for e in evaluations], count
    )
    for key in keys
  ]
  columns = ["metric", *(f"#{e.name}" for e in evaluations)]
  return html.table("Metrics", columns, rows)


def _curves(history):
  charts_of = {}  # Title of a chart -> name of a line -> points.
  # Loss comes first, then the development set.
  for tag in sorted(
    history, key=lambda tag: (tag != "loss", not tag.startswith("dev/"), tag)
  ):
    name = "development" if tag.startswith("dev/") else "training"
    title = metric_name(tag.removeprefix("dev/"))
    if name == "development" and title != "loss":
      title = f"development: {title}"
    if len(history[tag]):
      title = title[:1].upper() + title[1:]
      charts_of.setdefault(title, {})[name] = history[tag]
  if not charts_of:
    return "<p>There is no training history.</p>"
  figures, rows = "", []
  for number, (title, lines) in enumerate(charts_of.items()):
    if max(map(len, lines.values())) > 2:
      figures += _curve(f"curve-{number}", title, lines)
    else:  # Two dots are no curve.
      rows += [
        [text_cell(title), text_cell(name), *map(html.number_cell, point)]
        for name, points in lines.items()
        for point in points
      ]
  columns = ["curve", "set", "#step", "#value"]
  table = html.table("Short curves", columns, rows) if rows else ""
  return f'<div class="grid">{figures}</div>{table}' if figures else table


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
    # Ticks that depend on the size of the axes would change after the layout.
    axes.yaxis.set_major_locator(
      ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    )
    axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    if len(lines) > 1:
      axes.legend()

  return charts.figure(key, title, caption, (4.2, 2.5), draw)


def examples_table(
  title: str,
  text: str,
  columns: Sequence[str],
  rows: Sequence[Sequence[str]],
  count: int,
  legend: str = "",
) -> str:
  """A table of the first of `count` examples, below a heading and a sentence.

  `text` is the sentence without its full stop, `legend` the HTML after it.
  """
  if len(rows) < count:
    text += f"; the table has the first {len(rows)}"
  table = html.table(title, columns, rows, "errors") if rows else ""
  return f"<h3>{title}</h3><p>{text}. {legend}</p>{table}"


def label_table(scores: Mapping[str, Mapping], name: str = "Labels") -> str:
  """A table of precision, recall, F1 and support, by label."""
  count = max((values["support"] for values in scores.values()), default=0)
  rows = [
    [html.row_head(html.escape(label))]
    + [bar_cell(values[key], count) for key in ("precision", "recall", "f1")]
    + [html.number_cell(values["support"])]
    for label, values in scores.items()
  ]
  columns = ["label", "#precision", "#recall", "#F1", "#support"]
  return f"<h3>{name}</h3>" + html.table(name, columns, rows)


def confusion(
  counts: np.ndarray, labels: Sequence[str], unit: str = "examples"
) -> str:
  """A confusion matrix [true, predicted]; for many labels, the worst pairs."""
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
    "labels. Each cell shows the number of "
    f"{unit} and its share of the row."
    "</p>" + html.table("Confusion matrix", columns, rows, "matrix")
  )


def _confused_pairs(counts, shares, labels):
  wrong = counts - np.diag(np.diag(counts))
  order = np.argsort(-wrong, axis=None, kind="stable")[:_MAX_CONFUSIONS]
  rows = [
    [
      text_cell(labels[i]),
      text_cell(labels[j]),
      html.number_cell(int(wrong[i, j])),
      bar_cell(shares[i, j], 0),
    ]
    for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
    if wrong[i, j]
  ]
  title = "Most confused labels"
  columns = ["true", "predicted", "#examples", "#share of the true label"]
  return f"<h3>{title}</h3>" + html.table(title, columns, rows)


_RECORDED = ("flags", "versions", "data")


def _record(record):
  page = ""
  parts = {key.capitalize(): record.get(key, {}) for key in _RECORDED}
  for step, flags in record.get("changes", {}).items():
    parts[f"Flags changed at step {step}"] = flags
  for title, fields in parts.items():
    columns = ["file", "SHA-256"] if title == "Data" else ["name", "value"]
    rows = [
      [
        html.row_head(f"<code>{html.escape(name)}</code>"),
        f"<td><code>{html.escape(value)}</code></td>",
      ]
      for name, value in fields.items()
    ]
    page += f"<h3>{title}</h3>" + html.table(title, columns, rows)
  return page


def metric_name(key: str) -> str:
  """A metric's name in words: "F1 macro" for eval_f1_macro."""
  return key.removeprefix("eval_").replace("_", " ").replace("f1", "F1")


def text_cell(text: str) -> str:
  """A table cell with a text."""
  return f'<td dir="auto">{html.escape(text)}</td>'


def bar_cell(share: float, rows: int) -> str:
  """A share of so many rows, from 0 to 1, above a bar of that length."""
  number = html.data(share, rows=rows)
  return f'<td class="number bar" style="--share:{share:.3f}">{number}</td>'


_CSS = """
.errors td { min-width: 5rem; max-width: 12rem; overflow-wrap: break-word; }
.errors .text { min-width: 18rem; max-width: 44rem; overflow-wrap: anywhere; }
.text p { margin: 0; }
.set { color: var(--faint); margin: 1rem 0 .4rem; }
.set strong { color: var(--ink, inherit); font-weight: 600; }
nav ol { display: flex; flex-wrap: wrap; gap: .25rem 1.4rem;
  margin: 1.75rem 0 0; padding: 0; list-style: none; }
.bar { min-width: 5rem; background: linear-gradient(to right,
  rgb(var(--hit) / .75) calc(var(--share) * 100%), rgb(var(--hit) / .15) 0)
  center bottom .2rem / calc(100% - 1.6rem) .2rem no-repeat; }
.matrix td, .matrix thead th.number { text-align: center; min-width: 4rem;
  max-width: 9rem; overflow-wrap: break-word; }
.matrix small { display: block; font-size: .75rem; }
.hit { background: rgb(var(--hit) / calc(var(--share) * .4)); }
.miss { background: rgb(var(--miss) / calc(var(--share) * .4)); }
@media (max-width: 40rem) {
  .bar { min-width: 4rem; }
  .errors .text { min-width: 13.5rem; }
  .errors tbody th { max-width: 5.5rem; overflow-wrap: anywhere; }
}
.matrix tbody th { white-space: nowrap; vertical-align: middle;
  background: var(--card); position: sticky; left: 0; }
"""
