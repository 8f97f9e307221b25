"""Metrics of vectors against arithmetic; what a training reads."""

import math

import numpy as np
import pytest

from bert.contract.task import RowSet
from bert.errors import UserError
from bert.tasks.embeddings import losses as embedding_losses, retrieval
from bert.tasks.embeddings.data import Pair
from bert.tasks.embeddings.losses import Training
from bert.tasks.embeddings.page import Query
from bert.tasks.embeddings.retrieval import Retrieval
from bert.tasks.embeddings.task import EmbeddingTask
from bert.tasks.embeddings.vectors import VectorSettings


def query(relevant, documents):
  corpus = [f"document {n}" for n in range(200)]
  scores = np.linspace(1, 0, len(documents))
  return Query("?", corpus, relevant, scores, np.array(documents))


def test_metrics_of_retrieval():
  """By the definitions of trec_eval."""
  found = [
    query({3: 1.0}, [3, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]),
    query({1: 2.0, 9: 1.0, 150: 1.0}, [5, 9, 1, 2, 3, 4]),
    query({11: 1.0}, [3, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]),  # At rank 11.
  ]
  gained = 1 / math.log2(3) + 2 / math.log2(4)
  ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
  wanted = {
    "mrr_at_10": (1 + 1 / 2 + 0) / 3,
    "ndcg_at_10": (1 + gained / ideal + 0) / 3,
    "recall_at_1": (1 + 0 + 0) / 3,
    "recall_at_5": (1 + 2 / 3 + 0) / 3,
    "recall_at_10": (1 + 2 / 3 + 0) / 3,
    "recall_at_100": (1 + 2 / 3 + 1) / 3,
  }
  assert retrieval.metrics_of(found) == pytest.approx(wanted)
  assert list(wanted) == list(retrieval.METRICS)


def test_top_k_is_a_stable_sort_of_all_products():
  """Also where they are more than are compared at a time."""
  rng = np.random.default_rng(1)
  queries, corpus = (rng.integers(-2, 3, [n, 4]) for n in (257, 16387))
  corpus[-3:] *= 9  # Some of the best are in the last part.
  products = queries @ corpus.T
  found = retrieval.top_k(queries.astype("f4"), corpus.astype("f4"), 6)
  for row, (scores, numbers) in zip(products, found, strict=True):
    wanted = np.argsort(-row, kind="stable")[:6]
    np.testing.assert_array_equal(numbers, wanted)
    np.testing.assert_array_equal(scores, row[wanted])


VECTORS = {
  "q": [1.0, 0.0, 0.0],
  "r": [0.0, 3.0, 0.0],
  "x": [0.6, 0.8, 0.0],
  "y": [0.8, 0.0, 0.6],
}


def evaluate(pairs, searched=None):
  task = EmbeddingTask(
    VectorSettings(pooling="mean"),
    None,
    {"dev": pairs} if pairs else {},
    searched,
    Training(),
  )
  (texts,) = task.examples("dev").values()
  rows = RowSet("dev", "", texts, len(texts))
  answers = (np.array(VECTORS[text], np.float32) for text in texts)
  return task, task.score(rows, answers)


def test_scores_are_correlated_with_cosines():
  pairs = [
    Pair("", "q", "x", score=2.0),
    Pair("", "q", "y", score=5.0),
    Pair("", "r", "y", score=1.0),
    Pair("", "r", "x", score=3.0),
  ]
  # Cosines 0.6, 0.8, 0, 0.8 have the ranks 2, 3.5, 1, 3.5; scores 2, 4, 1, 3.
  task, found = evaluate(pairs)
  ranks = np.corrcoef([2, 3.5, 1, 3.5], [2, 4, 1, 3])[0, 1]
  assert found.results == {"eval_spearman": pytest.approx(ranks)}
  assert task.metrics == ("spearman",)
  page = task.section("", found)
  assert "differ most" in page
  assert "0.800" in page


def test_the_report_shows_hits_and_misses():
  searched = Retrieval(["q", "r"], ["x", "y"], [{0: 1.0}, {0: 1.0}])
  task, found = evaluate(None, searched)
  assert found.results["eval_mrr_at_10"] == 0.75
  page = task.section("", found)
  misses, hits = page.split("<h3>Hits</h3>")
  assert "1 of 2 queries find no relevant document first" in misses
  for text in ("q", "x", "y"):
    assert f">{text}</td>" in misses
  assert ">r</td>" in hits


def test_rows_of_training(tokenizer):
  """Equal texts have equal ids; missing negatives have none."""
  settings = VectorSettings(
    8, pooling="mean", prompts=(("query", "the "), ("document", "city "))
  )
  pairs = [
    Pair("", "game", "north", ("south", "game")),
    Pair("", "south", "north"),
  ]
  task = EmbeddingTask(settings, tokenizer, {"train": pairs})
  (examples,) = task.examples("train").values()
  first, second = (task.rows(pair, True)[0] for pair in examples)
  assert first["text_ids"] == [1, 2, 3, 4]  # Of the prompted texts.
  assert second["text_ids"] == [5, 2, 0, 0]
  words = [
    tokenizer.convert_ids_to_tokens(i for i in ids if i)
    for ids in first["input_ids"]
  ]
  assert words[0][:2] == ["[CLS]", "the"]
  assert words[1][:2] == words[2][:2] == ["[CLS]", "city"]
  assert np.sum(second["input_mask"], axis=1)[2:].tolist() == [0, 0]


@pytest.mark.parametrize(
  ("training", "score", "negatives", "wanted"),
  [
    (Training(dimensions=(64, 32)), None, (), "--dimensions: 64 is not from 1"),
    (Training("cosent"), None, (), "--loss=cosent needs --score_column or"),
    (Training("cosine"), 2.0, (), "that of x:1 is 2; divide .* by 2, or"),
    (Training("ranking"), 2.0, (), "--loss=ranking reads no scores; pass"),
  ],
)
def test_a_loss_that_does_not_suit_the_pairs(
  training, score, negatives, wanted
):
  pairs = [Pair("x:1", "a", "b", negatives, score)]
  with pytest.raises(UserError, match=wanted):
    embedding_losses.check(training, pairs, 32)
  good = [Pair("x:1", "a", "b", (), 1.0)]
  for loss in embedding_losses.LOSSES:
    embedding_losses.check(Training(loss, dimensions=(32,)), good, 32)
