"""The section of report.html about this model and another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert.errors import plural
from bert.reports import html, training_page
from bert.reports.verdict import Difference


class Changed(NamedTuple):
  """An example that two models answer differently."""

  where: str  # its place in the data
  texts: Sequence[str]
  answer: str  # of this model
  other: str


class Comparison(NamedTuple):
  """This model beside another one, on the same examples."""

  other: str  # the folder of the other model
  # Examples left out: the other model cannot know their labels, or was trained
  # on them.
  num_left_out: int
  num_rows: int  # examples compared
  results: Mapping[str, tuple[float, float]]  # the metrics of both models
  difference: Difference | None  # None without a metric whose range is known
  changed: Sequence[Changed]  # the first ones
  num_changed: int
  # The largest absolute difference of each output of the network, by name;
  # empty if the models read or compute something else.
  largest: Mapping[str, float]

  def __str__(self) -> str:
    parts = [
      f"{name} {own:.4f}, of the other model {other:.4f}"
      for name, (own, other) in self.results.items()
    ]
    if self.difference:
      parts = [str(self.difference)]
    verb = "differs" if self.num_changed == 1 else "differ"
    parts.append(f"{plural(self.num_changed, 'answer')} {verb}")
    shown = (f"{name} {value:.2g}" for name, value in self.largest.items())
    if self.largest:
      parts.append(f"largest difference of outputs: {', '.join(shown)}")
    if self.num_left_out:
      parts.append(
        f"without {plural(self.num_left_out, 'row')} that the other model was "
        f"trained on or whose labels are new to it"
      )
    return "; ".join(parts)


def section(comparison: Comparison) -> str:
  """HTML: the difference with its range, and the examples that changed."""
  path = html.escape(comparison.other)
  page = f"<h3>Comparison with {path}</h3><p>{html.escape(comparison)}.</p>"
  rows = [
    html.number_row(training_page.metric_name(name), pair, comparison.num_rows)
    for name, pair in comparison.results.items()
  ]
  columns = ["metric", "#this model", "#the other model"]
  page += html.table("Metrics of both models", columns, rows)
  if not comparison.changed:
    return page
  cell = training_page.text_cell
  rows = [
    [
      html.row_head(html.escape(changed.where)),
      cell(changed.answer),
      cell(changed.other),
      f'<td class="text">{"".join(map(_paragraph, changed.texts))}</td>',
    ]
    for changed in comparison.changed
  ]
  columns = ["example", "this model", "the other model", "text"]
  return page + training_page.examples_table(
    "Answers that changed",
    f"The answers to {plural(comparison.num_changed, 'example')} differ",
    columns,
    rows,
    comparison.num_changed,
  )


def _paragraph(text):
  return f'<p dir="auto">{html.escape(text)}</p>'
