"""report.html of labeled words: scores by type, and sentences with errors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert.reports import html, training_page

_MAX_SENTENCES = 100


def section(key: str, evaluation: Any) -> str:
  """The scores and the errors of a data set.

  `evaluation` has `details`, the content of eval_results.json, and `sentences`,
  whose `spans(scheme)` returns the true and the predicted entities, as (type,
  first word, end).
  """
  details = evaluation.details
  if "entities" in details:
    page = training_page.label_table(details["entities"], "Entities")
    page += _confusion(details["confusion"])
  else:
    labels = list(details["labels"])
    page = training_page.label_table(details["labels"])
    counts = np.array(details["confusion_matrix"])
    page += training_page.confusion(counts, labels)
  return page + _sentences(evaluation)


def _confusion(counts: Mapping[str, Mapping[str, int]]) -> str:
  """The confusion of types, among entities that cover the same words."""
  types = sorted({"", *counts, *(t for row in counts.values() for t in row)})
  types = [*types[1:], types[0]]  # No entity comes last.
  matrix = [[counts.get(a, {}).get(b, 0) for b in types] for a in types]
  names = [name or "no entity" for name in types]
  return training_page.confusion(np.array(matrix), names, "entities")


def _sentences(evaluation):
  """The sentences with errors, those with the largest loss first."""
  wrong = []
  for sentence in evaluation.sentences:
    true, predicted = sentence.spans(evaluation.scheme)
    if true != predicted:
      wrong.append((sentence, true, predicted))
  wrong.sort(key=lambda error: -error[0].loss)
  rows = [
    [
      html.row_head(html.escape(sentence.where)),
      '<td class="text">'
      + _line("true", _marked(sentence.words, true, predicted))
      + _line("predicted", _marked(sentence.words, predicted, true))
      + "</td>",
      html.number_cell(sentence.loss, 2),
    ]
    for sentence, true, predicted in wrong[:_MAX_SENTENCES]
  ]
  return training_page.examples_table(
    "Sentences with the largest loss",
    f"{len(wrong):,} of {len(evaluation.sentences):,} sentences have an error",
    ["line", "sentence", "#loss"],
    rows,
    len(wrong),
    '<mark class="hit">correct</mark> '
    '<mark class="miss">missed or wrong</mark>',
  )


def _line(name, content):
  return f'<p><b>{name}</b><span dir="auto">{content}</span></p>'


def _marked(words: Sequence[str], spans: Iterable, others: Iterable) -> str:
  """The words; the color of a span shows whether `others` has it, too."""
  parts, end = [], 0
  for kind, start, stop in spans:
    parts += map(html.escape, words[end:start])
    color = "hit" if (kind, start, stop) in others else "miss"
    text = html.escape(" ".join(words[start:stop]))
    parts.append(
      f'<mark class="{color}">{text} <small>{html.escape(kind)}</small></mark>'
    )
    end = stop
  return " ".join([*parts, *map(html.escape, words[end:])])


STYLE = """
mark { color: inherit; border-radius: .3rem; padding: .05rem .3rem; }
mark.hit { background: rgb(var(--hit) / .22); }
mark.miss { background: rgb(var(--miss) / .32); }
mark small { font-size: .7rem; font-weight: 650; opacity: .8; }
.text p { line-height: 1.7; display: grid;
  grid-template-columns: 5.5rem 1fr; }
.text b { color: var(--faint); font-size: .85rem; font-weight: 500; }
"""
