"""report.html of vectors: queries with their hits, pairs with their scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert.reports import html, training_page

_MAX_ROWS = 30  # per table
_SHOWN = 200  # characters per text


class Query(NamedTuple):
  """A query and its search results."""

  text: str
  corpus: Sequence[str]  # all documents
  relevant: Mapping[int, float]  # see `retrieval.Retrieval`
  scores: np.ndarray  # cosines of the best documents, best first
  documents: np.ndarray  # numbers of these documents
  id: str

  @property
  def rank(self) -> int | None:
    """The rank of the first relevant document, from 1; None without one."""
    ranks = (n for n, d in enumerate(self.documents, 1) if d in self.relevant)
    return next(ranks, None)


class Scored(NamedTuple):
  """A pair with `id`, `text_a`, `text_b` and `score`, and its cosine."""

  pair: Any
  cosine: float


def section(key: str, evaluation: Any) -> str:
  """The queries of `found` by rank; the worst of the pairs in `scored`."""
  page = ""
  if evaluation.found:
    misses = [query for query in evaluation.found if query.rank != 1]
    misses.sort(key=lambda query: -(query.rank or len(query.corpus) + 1))
    hits = [query for query in evaluation.found if query.rank == 1]
    hits.sort(key=lambda query: -query.scores[0])
    count = len(evaluation.found)
    for title, queries in (("Misses", misses), ("Hits", hits)):
      page += _queries(title, queries, count)
  if evaluation.scored:
    page += _pairs(evaluation.scored)
  return page


def _queries(title, queries, count):
  rows = []
  for query in queries[:_MAX_ROWS]:
    best = max(query.relevant, key=query.relevant.get)
    is_missing = best >= len(query.corpus)
    relevant = "(not in the corpus)" if is_missing else query.corpus[best]
    cells = [query.text, relevant, query.corpus[query.documents[0]]]
    rank = str(query.rank or f"> {len(query.documents)}")
    name = training_page.text_cell(query.id)
    rows.append([html.row_head(rank), name, *map(_text, cells)])
  which = "a relevant" if title == "Hits" else "no relevant"
  text = f"{len(queries):,} of {count:,} queries find {which} document first"
  names = ["rank", "id", "query", "relevant document", "first document"]
  return training_page.examples_table(title, text, names, rows, len(queries))


def _pairs(scored):
  """The pairs whose ranks by score and by cosine differ most."""
  ranks = [
    np.argsort(np.argsort(column, kind="stable"), kind="stable")
    for column in ([s.pair.score for s in scored], [s.cosine for s in scored])
  ]
  order = np.argsort(-np.abs(ranks[0] - ranks[1]), kind="stable")
  rows = [
    [
      html.number_cell(scored[index].pair.score, 2),
      html.number_cell(scored[index].cosine, 3),
      training_page.text_cell(scored[index].pair.id),
      _text(scored[index].pair.text_a),
      _text(scored[index].pair.text_b),
    ]
    for index in order[:_MAX_ROWS]
  ]
  text = "Pairs whose ranks by score and by cosine differ most"
  names = ["#score", "#cosine", "id", "text A", "text B"]
  return training_page.examples_table("Pairs", text, names, rows, len(scored))


def _text(text):
  shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
  return f'<td class="text" dir="auto">{html.escape(shown)}</td>'


STYLE = ".errors .text { min-width: 12rem; max-width: 24rem; }"
