"""Search among documents: queries, results and metrics.

read("queries.jsonl", "corpus.jsonl", "qrels/test.tsv")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from bert.contract.task import Evaluation
from bert.data import files, tables
from bert.data.top_k import Best, Hits
from bert.errors import UserError, plural, shortened
from bert.tasks.embeddings import data, page

# Names of the columns of BEIR's files; a corpus may also have titles.
_ID, _TEXT, _TITLE = "_id", "text", "title"
_QRELS = ("query-id", "corpus-id", "score")

RECALLS = (1, 5, 10, 100)
METRICS = (*("mrr_at_10", "ndcg_at_10"), *(f"recall_at_{k}" for k in RECALLS))

# Documents to find for a query; one of them may be left out.
FOUND = max(RECALLS) + 1

# Numbers of queries and of documents that are compared at a time.
_QUERIES, _DOCUMENTS = 256, 16384

# The flags of the files to search.
FILES = ("queries_file", "corpus_file", "qrels_file")


@dataclasses.dataclass(frozen=True)
class Retrieval:
  """Queries, and the documents to search."""

  queries: Sequence[str]
  corpus: Sequence[str]
  # Grades by index in the corpus; larger indices are of missing documents.
  relevant: Sequence[Mapping[int, float]]
  ids: Sequence[str]  # of the queries
  # The index of the document to leave out for each query, with its id, or -1.
  left_out: Sequence[int]


@dataclasses.dataclass
class Ranked(Evaluation):
  """The Evaluation of vectors, with search results for the report."""

  found: Sequence[page.Query] = ()
  scored: Sequence[page.Scored] = ()


def of_pairs(pairs: Sequence[data.Pair]) -> Retrieval:
  """The first texts as queries for the second ones, which are the corpus.

  The second texts of pairs with the label 0 are in the corpus, too. Several
  pairs with the same first text are one query.
  """
  corpus, relevant, ids = {}, {}, {}
  for pair in pairs:
    index = corpus.setdefault(pair.text_b, len(corpus))
    if pair.score != 0:
      relevant.setdefault(pair.text_a, {})[index] = 1.0
      ids.setdefault(pair.text_a, pair.id)
  columns = map(list, (relevant, corpus, relevant.values(), ids.values()))
  return Retrieval(*columns, left_out=[-1] * len(ids))


def read(queries_file: str, corpus_file: str, qrels_file: str) -> Retrieval:
  """A test set in the layout of BEIR; see `judged`."""
  corpus = _texts_by_id(corpus_file)
  return judged(queries_file, qrels_file, corpus, corpus_file)


def judged(
  queries_file: str, qrels_file: str, corpus: Mapping[str, str], name: str
) -> Retrieval:
  """Queries of BEIR's files for the texts of a corpus by id.

  Queries without qrels are left out. As in BEIR, a document is no result of the
  query with its id, and documents that the corpus lacks count as relevant.
  `name` is that of the corpus in a warning.
  """
  queries = _texts_by_id(queries_file)
  numbers = {name: number for number, name in enumerate(corpus)}
  relevant, missing = {}, []
  table = _table(qrels_file, _QRELS)
  for where, row in table.named_rows():
    ids = [tables.text_of(row[name], f"{where}: {name}") for name in _QRELS[:2]]
    if ids[0] not in queries:
      raise UserError(
        f"{where}: {queries_file} has no _id {shortened(ids[0])!r}; correct "
        f"the row, or remove it"
      )
    grade = data.score_of(row["score"], f"{where}: score")
    if grade > 0:
      if ids[1] not in corpus:
        missing.append(f"{where} ({shortened(ids[1])!r})")
      number = numbers.setdefault(ids[1], len(numbers))
      relevant.setdefault(ids[0], {})[number] = grade
  what = "row with a score above 0"
  remedy = "pass the ids of relevant documents"
  files.check_holds(relevant, qrels_file, what, remedy)
  if missing:
    logging.warning(
      "%s lacks the documents of %s of %s, which count as not found; the first "
      "is %s",
      *(name, plural(len(missing), "row"), qrels_file, missing[0]),
    )
  return Retrieval(
    [queries[key] for key in relevant],
    list(corpus.values()),
    list(relevant.values()),
    list(relevant),
    [numbers[key] if key in corpus else -1 for key in relevant],
  )


def _table(path, names):
  """A table that has all of these columns."""
  table = tables.read_table(path)
  for name in names:
    table.column_index(name)
  return table


def _texts_by_id(path):
  texts, locations = {}, {}
  for where, row in _table(path, (_ID, _TEXT)).named_rows():
    name = tables.text_of(row[_ID], f"{where}: {_ID}")
    tables.note_id(name, where, locations)
    title, text = map(tables.as_text, (row.get(_TITLE), row[_TEXT]))
    if title and text is not None:
      text = f"{title} {text}".strip()
    texts[name] = tables.text_of(text or row[_TEXT], f"{where}: {_TEXT}")
  return texts


def top_k(
  queries: np.ndarray, corpus: np.ndarray, k: int
) -> list[tuple[np.ndarray, np.ndarray]]:
  """For each query [Q, D], the k largest products, and the documents' numbers.

  Of equal products, the document with the lower number comes first.
  """
  hits = []
  for start in range(0, len(queries), _QUERIES):
    part = queries[start : start + _QUERIES]
    best = Best(len(part), k)
    for first in range(0, len(corpus), _DOCUMENTS):
      best.add(first, part @ corpus[first : first + _DOCUMENTS].T)
    hits += best.hits
  return hits


def metrics_of(queries: Sequence[page.Query]) -> dict[str, float]:
  """Means over the queries: MRR@10, nDCG@10, and recall@k.

  As in trec_eval, the gains of nDCG are the grades themselves.
  """
  values = {name: [] for name in METRICS}
  discounts = 1.0 / np.log2(np.arange(2, 12))
  for query in queries:
    gains = np.array([query.relevant.get(n, 0.0) for n in query.documents])
    first = np.flatnonzero(gains[:10])
    values["mrr_at_10"].append(1.0 / (1 + first[0]) if len(first) else 0.0)
    ideal = np.sort(list(query.relevant.values()))[::-1][:10]
    best = np.sum(ideal * discounts[: len(ideal)])
    gained = np.sum(gains[:10] * discounts[: len(gains[:10])])
    values["ndcg_at_10"].append(gained / best)
    for k in RECALLS:
      share = np.count_nonzero(gains[:k]) / len(query.relevant)
      values[f"recall_at_{k}"].append(share)
  return {name: float(np.mean(column)) for name, column in values.items()}


def find(
  searched: Retrieval, queries: np.ndarray, corpus: np.ndarray
) -> list[page.Query]:
  """The search results of each query, by the vectors of all texts, [N, D]."""
  return list(results(searched, top_k(queries, corpus, FOUND)))


def results(searched: Retrieval, hits: Iterable[Hits]) -> Iterator[page.Query]:
  """Yields the search results of each query, of up to FOUND best documents."""
  for text, relevant, name, left_out, (scores, numbers) in zip(
    *(searched.queries, searched.relevant, searched.ids, searched.left_out),
    hits,
    strict=True,
  ):
    stays = np.flatnonzero(numbers != left_out)[: FOUND - 1]
    best = scores[stays], numbers[stays]
    yield page.Query(text, searched.corpus, relevant, *best, name)
