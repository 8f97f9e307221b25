"""From queries to the texts of an index that answer them.

    searcher = Searcher(bert.load("faq"), VectorIndex("faq_index"))
    (hits,) = searcher(["How do I get my money back?"], top_k=3)
    hits[0].row.text, hits[0].score

A score is the cosine of the angle between two vectors, or their product, as the
model compares them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert.data import downloads
from bert.data.text_words import check_has_words
from bert.engine import loaded_model
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError, check_given, check_known, listing
from bert.models import model_folder, task_file
from bert.search import hnsw, text_index
from bert.search.text_index import encode
from bert.search.vector_index import Row, VectorIndex
from bert.tasks.embeddings.data import Pair
from bert.tasks.embeddings.vectors import QUERY_PROMPTS


class Hit(NamedTuple):
  """A row that was found, and its score."""

  row: Row
  score: float

  def to_dict(self) -> dict:
    return {"score": round(float(self.score), 6), **self.row._asdict()}


def check_query(model: LoadedModel, query: str, where: str) -> str:
  """Returns the query; UserError if it has no word that the model reads."""
  check_has_words(model.task.tokenizer, query, where)
  return query


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


class Searcher:
  """Finds the rows of an index whose vectors are nearest to those of queries.

  A reranker reorders the `candidates` nearest rows. `top_k` finds rows, by
  default `index.top_k`.
  """

  def __init__(
    self,
    model: LoadedModel,
    index: VectorIndex,
    reranker: Reranker | None = None,
    candidates: int = 50,
    top_k: Callable | None = None,
  ):
    self.model, self.index = model, index
    self.reranker, self._candidates = reranker, candidates
    self._top_k = top_k or index.top_k

  def __call__(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
    """The hits of each query, the best first."""
    vectors = encode(self.model, queries, QUERY_PROMPTS)
    return self.find(queries, vectors, top_k)

  def find(
    self, queries: Sequence[str], vectors: np.ndarray, top_k: int
  ) -> list[list[Hit]]:
    """Like `__call__`, with the vectors of the queries, [Q, width]."""
    count = max(top_k, self._candidates) if self.reranker else top_k
    found_hits = []
    for query, (scores, numbers) in zip(
      queries, self._top_k(vectors, count), strict=True
    ):
      rows = self.index.rows(numbers)
      if self.reranker and rows:
        scores = self.reranker(query, [row.text for row in rows])
      hits = map(Hit, rows, map(float, scores))
      # Hits with equal scores stay in their order.
      ordered = sorted(hits, key=lambda hit: -hit.score)
      found_hits.append(ordered[:top_k])
    return found_hits


def load_searcher(
  folder: str,
  model_dir: str | None = None,
  ann: str | None = None,
  reranker: str | None = None,
  relevant_label: str | None = None,
  candidates: int = 50,
  **options,
) -> Searcher:
  """The Searcher of the index in a folder; see Searcher and Reranker.

  Args:
    model_dir: the folder of its model, if it has been moved.
    ann: "hnsw" to search by graphs.
    reranker: the folder of the reranker's model.
    **options: of `loaded_model.load`, for both models.
  """
  index = VectorIndex(folder)
  top_k = hnsw.Graphs(index).top_k if ann else None
  model = loaded_model.load(model_dir or index.header.model, **options)
  text_index.check_gives_vectors(model)
  text_index.check_model(folder, index, model)
  scorer = load_reranker(reranker, relevant_label, **options)
  return Searcher(model, index, scorer, candidates, top_k)


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


def mine_negatives(
  searcher: Searcher,
  pairs: Sequence[Pair],
  count: int,
  candidates: int,
  most: float,
) -> Iterator[tuple[str, str, list[str]]]:
  """Yields the right pairs with wrong texts that are near the first text.

  A text that scores more than `most` of the right text's score may be right as
  well and is left out (Moreira et al. 2024). A pair gets up to `count` texts:
  those of pairs with its first text and the label 0, and of the `candidates`
  nearest rows. The searcher has no reranker.
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
    nearest = searcher.find(group, vectors, candidates)
    for query, vector, hits in zip(group, vectors, nearest, strict=True):
      for text in right[query]:
        limit = most * float(vector @ next(right_vectors))
        near = [hit.row.text for hit in hits if hit.score <= limit]
        wrong = dict.fromkeys([*labeled_wrong.get(query, ()), *near])
        yield query, text, [x for x in wrong if x not in right[query]][:count]
