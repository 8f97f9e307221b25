"""report.html of multiple choice: curves, accuracy, and confident errors."""

from typing import Any

import numpy as np

from bert.reports import html, training_page

_MAX_ERRORS = 50


def section(key: str, evaluation: Any) -> str:
  """The wrong choices, those with the highest probability first.

  `evaluation.answers` has for each row the example, the probability of each
  choice, and the loss.
  """
  wrong = [
    (example, probabilities)
    for example, probabilities, _ in evaluation.answers
    if int(np.argmax(probabilities)) != example.label
  ]
  wrong.sort(key=lambda answer: -max(answer[1]))
  rows = [
    [html.row_head(html.escape(example.where)), _question(example, shares)]
    for example, shares in wrong[:_MAX_ERRORS]
  ]
  return training_page.examples_table(
    "Errors with the highest probability",
    f"{len(wrong):,} of {len(evaluation.answers):,} choices are wrong",
    ["row", "context and choices"],
    rows,
    len(wrong),
  )


def _question(example, shares):
  """A cell with the context and its choices, with the probability of each."""
  predicted = int(np.argmax(shares))
  choices = ""
  for number, (choice, share) in enumerate(
    zip(example.choices, shares, strict=True)
  ):
    kind = {example.label: "right", predicted: "wrong"}.get(number, "other")
    mark = {"right": "✓", "wrong": "✗"}.get(kind, "")
    choices += (
      f'<li class="{kind}"><span>{html.data(share, 3)} {mark}</span>'
      f'<span dir="auto">{html.escape(choice)}</span></li>'
    )
  context = " ".join(filter(None, (example.context, example.question)))
  return (
    f'<td class="text"><p dir="auto">{html.escape(context)}</p>'
    f'<ul class="choices">{choices}</ul></td>'
  )


STYLE = """
.choices { list-style: none; margin: .3rem 0 0; padding: 0; }
.choices li { display: grid; grid-template-columns: 4.5rem 1fr; gap: .5rem;
  padding: .1rem .4rem; border-radius: .3rem; }
.choices .right { background: rgb(var(--hit) / .18); }
.choices .wrong { background: rgb(var(--miss) / .22); }
.choices .other { color: var(--faint); }
"""
