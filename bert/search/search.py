"""From queries to the texts of an index that answer them.

    searcher = Searcher(bert.load("faq"), VectorIndex("faq_index"))
    (hits,) = searcher(["How do I get my money back?"], top_k=3)
    hits[0].row.text, hits[0].score

A score is the cosine of the angle between two vectors, or their product, as the
model compares them; of a lexical search, that of BM25; and of a hybrid search,
that of `fused`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert.data import downloads
from bert.data.text_words import check_has_words
from bert.data.top_k import Hits
from bert.engine import loaded_model
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError, check_given, check_known, listing, shortened
from bert.flags.flag_table import SEARCHES
from bert.models import model_folder, task_file
from bert.search import hnsw, text_index
from bert.search.text_index import encode
from bert.search.vector_index import Row, VectorIndex
from bert.tasks.embeddings import page, retrieval
from bert.tasks.embeddings.data import Pair
from bert.tasks.embeddings.vectors import QUERY_PROMPTS

# Reciprocal rank fusion (Cormack et al. 2009): its constant, the number of rows
# of each ranking, and the least share of the best score by words. Without it,
# rows that share common pieces with a part number outweigh the row that has it.
_RANK_OFFSET, _FUSED, _LEAST_SHARE = 60, 100, 0.5


class Hit(NamedTuple):
  """A row that was found, and its score."""

  row: Row
  score: float

  def to_dict(self) -> dict:
    return {"score": round(float(self.score), 6), **self.row._asdict()}


class Reranker:
  """Scores a query and a text by a model that reads both together.

  `relevant_label` is the label of a matching pair, by default the second of two
  labels.
  """

  def __init__(self, model: LoadedModel, relevant_label: str | None = None):
    self.model, fields = model, model.fields
    has_scores = {"value", "probabilities"} & model.outputs.keys()
    if not has_scores or len(fields) != 2 or fields[1].is_list:
      raise UserError(
        f"{model.folder} is no model of pairs; pass a classifier or a "
        f"regression that was trained on pairs of texts"
      )
    self._label = self._index(relevant_label) if model.labels else None

  def _index(self, label):
    labels = self.model.labels
    if label is None and len(labels) == 2:
      text = "The score of a pair is the probability of its label %r"
      logging.log_first_n(logging.INFO, text, 1, labels[1])
      return 1
    check_given("--relevant_label", label, f"one of {listing(labels)}")
    check_known(f"--relevant_label={label}", label, labels)
    return labels.index(label)

  def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
    answers = self.model([(query, text) for text in texts])
    return [self.score(answer) for answer in answers]

  def score(self, answer: Mapping) -> float:
    if self._label is None:
      return answer["value"]
    return answer["probabilities"][self._label]


def fused(rankings: Iterable[Hits], k: int) -> Hits:
  """The k best rows of several rankings of a query.

  The score of a row is the sum of 1 / (60 + rank), with ranks from 1, over the
  rankings that have it. For equal scores, the row that is found first is first.
  """
  totals = {}
  for _, numbers in rankings:
    for rank, number in enumerate(numbers.tolist(), 1):
      totals[number] = totals.get(number, 0.0) + 1 / (_RANK_OFFSET + rank)
  numbers = sorted(totals, key=totals.get, reverse=True)[:k]
  scores = np.array([totals[number] for number in numbers], np.float32)
  return scores, np.array(numbers, np.int64)


class Searcher:
  """Finds the rows of an index that fit queries best.

  Args:
    model: the model of the index; a lexical search needs None.
    reranker: reorders the `candidates` best rows.
    top_k: finds rows by vectors; by default `index.top_k`.
    search: "dense" by vectors, "lexical" by words, or "hybrid" by both.
  """

  def __init__(
    self,
    model: LoadedModel | None,
    index: VectorIndex,
    reranker: Reranker | None = None,
    candidates: int = 50,
    top_k: Callable | None = None,
    search: str = "dense",
  ):
    check_known(f"search={search!r}", search, SEARCHES)
    if model:
      text_index.check_gives_vectors(model)
    self.model, self.index, self.search = model, index, search
    self.reranker, self.candidates = reranker, candidates
    self._top_k = top_k or index.top_k
    self._words = None if search == "dense" else index.words

  def __call__(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
    """The hits of each query, the best first.

    Raises UserError for a query that is no text with a word, or for a `top_k`
    that is not a whole number above 0.
    """
    if isinstance(queries, str):
      raise UserError(f"pass a list of queries, not {shortened(repr(queries))}")
    queries = list(queries)
    if not isinstance(top_k, int | np.integer) or top_k < 1:
      raise UserError(f"top_k={top_k!r} must be a whole number of 1 or more")
    for number, query in enumerate(queries, 1):
      if not isinstance(query, str):
        raise UserError(
          f"query {number} is not a text: {shortened(repr(query))}"
        )
      self.check_query(query, f"query {number}")
    return self.find(queries, self.encode(queries), top_k) if queries else []

  def encode(self, queries: Sequence[str]) -> np.ndarray | None:
    """The vectors of queries, [Q, width]; None if the search needs none."""
    if self.search == "lexical":
      return None
    return encode(self.model, queries, QUERY_PROMPTS)

  def check_query(self, query: str, where: str) -> str:
    """Returns the query; UserError if it has no word that the model reads."""
    source = self.model.task if self.model else self._words
    check_has_words(source.tokenizer, query, where)
    return query

  def find(
    self, queries: Sequence[str], vectors: np.ndarray | None, top_k: int
  ) -> list[list[Hit]]:
    """Like `__call__`, with what `encode` returns."""
    return [
      list(map(Hit, self.index.rows(numbers), scores.tolist()))
      for scores, numbers in self.rank(queries, vectors, top_k)
    ]

  def rank(
    self, queries: Sequence[str], vectors: np.ndarray | None, top_k: int
  ) -> Iterator[Hits]:
    """Yields the scores and the numbers of what `find` returns."""
    count = max(top_k, self.candidates) if self.reranker else top_k
    ranked = self._ranked(queries, vectors, count)
    for query, (scores, numbers) in zip(queries, ranked, strict=True):
      if self.reranker and len(numbers):
        texts = [row.text for row in self.index.rows(numbers)]
        scores = np.array(self.reranker(query, texts))
        order = np.argsort(-scores, kind="stable")
        scores, numbers = scores[order], numbers[order]
      yield scores[:top_k], numbers[:top_k]

  def _ranked(self, queries, vectors, count):
    if self.search == "dense":
      return self._top_k(vectors, count)
    if self.search == "lexical":
      return self._words.top_k(queries, count)
    most = max(count, _FUSED)
    by_words = map(_strong, self._words.top_k(queries, most))
    pairs = zip(self._top_k(vectors, most), by_words, strict=True)
    return [fused(pair, count) for pair in pairs]


def _strong(hits):
  scores, numbers = hits
  stays = scores >= _LEAST_SHARE * scores.max(initial=0)
  return scores[stays], numbers[stays]


def load_searcher(
  folder: str,
  model_dir: str | None = None,
  ann: str | None = None,
  reranker: str | None = None,
  relevant_label: str | None = None,
  candidates: int = 50,
  search: str = "dense",
  needs_model: bool = False,
  **options,
) -> Searcher:
  """The Searcher of the index in a folder; see Searcher and Reranker.

  Args:
    model_dir: the folder of its model, if it has been moved.
    ann: "hnsw" to search by graphs.
    reranker: the folder of the reranker's model.
    needs_model: whether a lexical search loads the model of the index, too.
    **options: of `loaded_model.load`, for both models.
  """
  index = VectorIndex(folder)
  if search != "dense":
    _ = index.words  # An error comes before the model is loaded.
  is_dense = search != "lexical"
  top_k = hnsw.Graphs(index).top_k if ann and is_dense else None
  model = None
  if is_dense or needs_model:
    model = loaded_model.load(model_dir or index.header.model, **options)
  scorer = load_reranker(reranker, relevant_label, **options)
  searcher = Searcher(model, index, scorer, candidates, top_k, search)
  if model:
    text_index.check_model(folder, index, model)
  return searcher


def load_reranker(
  folder: str | None, relevant_label: str | None = None, **options
) -> Reranker | None:
  """The Reranker in a folder, if any.

  Without a recorded length, it reads as much as it can.
  """
  if not folder:
    return None
  folder = downloads.local_path(folder)
  if "max_seq_length" not in task_file.read(folder)[1]:
    config = model_folder.load_config(folder)
    options = {**options, "max_seq_length": config.max_position_embeddings}
  return Reranker(loaded_model.load(folder, **options), relevant_label)


def evaluate(
  searcher: Searcher, searched: retrieval.Retrieval
) -> Iterator[page.Query]:
  """Yields the results of each query, for `retrieval.metrics_of`.

  The corpus is the rows of the index. A reranker finds no more rows than its
  candidates, so that the first ones are those of a search.
  """
  count = searcher.candidates if searcher.reranker else retrieval.FOUND
  queries = searched.queries

  def hits():
    for start in range(0, len(queries), text_index.ENCODED):
      group = queries[start : start + text_index.ENCODED]
      yield from searcher.rank(group, searcher.encode(group), count)

  return retrieval.results(searched, hits())


def mine_negatives(
  searcher: Searcher,
  pairs: Sequence[Pair],
  count: int,
  candidates: int,
  most: float,
) -> Iterator[tuple[str, str, list[str]]]:
  """Yields the right pairs with wrong texts that fit the first text.

  A text whose similarity is more than `most` of the right text's may be right
  as well and is left out (Moreira et al. 2024). A pair gets up to `count`
  texts: those of pairs with its first text and the label 0, and of the
  `candidates` best rows. The searcher has a model, and no reranker.
  """
  right, labeled_wrong = {}, {}
  for pair in pairs:
    texts = labeled_wrong if pair.score == 0 else right
    texts.setdefault(pair.text_a, []).append(pair.text_b.strip())
  queries = list(right)
  for start in range(0, len(queries), text_index.ENCODED):
    group = queries[start : start + text_index.ENCODED]
    vectors = encode(searcher.model, group, QUERY_PROMPTS)
    answers = [(query, text) for query in group for text in right[query]]
    right_vectors = iter(encode(searcher.model, [text for _, text in answers]))
    ranked = searcher.rank(group, vectors, candidates)
    for query, vector, (_, numbers) in zip(group, vectors, ranked, strict=True):
      scores = (searcher.index.vectors(numbers) @ vector).tolist()
      texts = [row.text for row in searcher.index.rows(numbers)]
      for text in right[query]:
        limit = most * float(vector @ next(right_vectors))
        scored = zip(texts, scores, strict=True)
        near = [text for text, score in scored if score <= limit]
        wrong = dict.fromkeys([*labeled_wrong.get(query, ()), *near])
        yield query, text, [x for x in wrong if x not in right[query]][:count]
