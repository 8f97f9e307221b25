"""Metrics of vectors against arithmetic; what a training reads."""

import json
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
  return Query("?", corpus, relevant, scores, np.array(documents), "q")


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
PROMPTS = (("query", "? "), ("document", "> "))


def evaluate(pairs, searched=None, split="dev"):
  task = EmbeddingTask(
    VectorSettings(pooling="mean", prompts=PROMPTS),
    None,
    {split: pairs} if pairs else {},
    searched,
    Training(),
  )
  (texts,) = task.examples(split).values()
  rows = RowSet(split, "", texts, len(texts))
  answers = (np.array(VECTORS[text[2:]], np.float32) for text in texts)
  return task, rows, answers


def score(pairs, searched=None):
  task, rows, answers = evaluate(pairs, searched)
  return task, task.score(rows, answers)


def test_scores_are_correlated_with_cosines():
  pairs = [
    Pair("", "q", "x", score=2.0),
    Pair("", "q", "y", score=5.0),
    Pair("", "r", "y", score=1.0),
    Pair("", "r", "x", score=3.0),
  ]
  # Cosines 0.6, 0.8, 0, 0.8 have the ranks 2, 3.5, 1, 3.5; scores 2, 4, 1, 3.
  task, found = score(pairs)
  ranks = np.corrcoef([2, 3.5, 1, 3.5], [2, 4, 1, 3])[0, 1]
  assert found.results == {"eval_spearman": pytest.approx(ranks)}
  assert task.metrics == ("spearman",)
  page = task.section("", found)
  assert "differ most" in page
  assert "0.800" in page


def test_labels_have_search_results_and_a_correlation():
  """Two right pairs with cosines 0.6 and 0.8, and a wrong one with 0."""
  pairs = [
    Pair("", "q", "x", score=1.0, id="a7"),
    Pair("", "q", "y", score=1.0, id="b7"),
    Pair("", "r", "y", score=0.0, id="c7"),
  ]
  task, found = score(pairs)
  assert task.metrics == (*retrieval.METRICS, "spearman")
  assert list(found.results) == [f"eval_{name}" for name in task.metrics]
  assert found.results["eval_mrr_at_10"] == 1.0
  ranks = np.corrcoef([2, 3, 1], [2.5, 2.5, 1])[0, 1]
  assert found.results["eval_spearman"] == pytest.approx(ranks)
  page = task.section("", found)
  for text in ("a7", "c7", "q", "x"):
    assert f">{text}</td>" in page
  assert PROMPTS[1][1].strip() not in page.replace("<", ">").split(">")


def test_the_report_shows_hits_and_misses():
  relevant = [{0: 1.0}, {0: 1.0}]
  searched = Retrieval(["q", "r"], ["x", "y"], relevant, "12", [-1, -1])
  task, found = score(None, searched)
  assert found.results["eval_mrr_at_10"] == 0.75
  page = task.section("", found)
  misses, hits = page.split("<h3>Hits</h3>")
  assert "1 of 2 queries find no relevant document first" in misses
  for text in ("1", "q", "x", "y"):
    assert f">{text}</td>" in misses
  for text in "2r":
    assert f">{text}</td>" in hits


def test_a_document_is_no_result_of_the_query_with_its_id():
  """And a relevant document that the corpus lacks is never found."""
  relevant = [{0: 1.0}, {2: 2.0}]
  searched = Retrieval(["q", "r"], ["x", "y"], relevant, "12", [1, -1])
  task, found = score(None, searched)
  assert found.results["eval_mrr_at_10"] == 0.5  # Of q, without y: 1.
  assert found.results["eval_recall_at_100"] == 0.5
  assert "(not in the corpus)" in task.section("", found)


def test_predictions_have_the_texts_of_the_table(tmp_path):
  pairs = [Pair("", "q", "x", id="a7"), Pair("", "r", "x", id="1")]
  task, rows, answers = evaluate(pairs, split="test")
  task.write(str(tmp_path), rows, answers)
  lines = (tmp_path / "test_predictions.jsonl").read_text().splitlines()
  assert list(map(json.loads, lines)) == [
    {"id": "a7", "text_a": "q", "text_b": "x", "similarity": 0.6},
    {"id": "1", "text_a": "r", "text_b": "x", "similarity": 0.8},
  ]


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
    (Training("cosent"), 2.0, ("c",), "cosent does not use --negative_column"),
    (Training("cosine"), 1.0, ("c",), "cosine does not use --negative_column"),
    (
      Training("cosent", both_ways=True),
      *(2.0, (), "does not use --both_directions; omit it, or train by --los"),
    ),
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


QUESTIONS = [Pair("", "a", "x", (), 1.0), Pair("", "b", "y", (), 0.5)]
SAME_ANSWER = [pair._replace(text_b="x") for pair in QUESTIONS]
EQUAL_SCORES = [pair._replace(score=0.5) for pair in QUESTIONS]


@pytest.mark.parametrize(
  ("training", "pairs", "wanted"),
  [
    (Training(), QUESTIONS, None),
    (Training(), QUESTIONS[:1], "a batch has a single pair; raise"),
    (Training(batch_size=1), QUESTIONS, "a batch has a single pair; raise"),
    (Training(batch_size=1), [QUESTIONS[0]._replace(negatives=("c",))], None),
    (Training(), SAME_ANSWER, "all pairs have the same text_b; add other"),
    (Training("cosent"), SAME_ANSWER, None),
    (Training("cosent"), EQUAL_SCORES, "all pairs have the same score"),
    (Training("cosine", batch_size=1), QUESTIONS, None),
  ],
)
def test_pairs_that_teach_nothing(training, pairs, wanted, tokenizer, caplog):
  """A warning at the start of the training."""
  settings = VectorSettings(8, pooling="mean")
  task = EmbeddingTask(settings, tokenizer, {"train": pairs}, None, training)
  task.log_data({})
  assert ("Nothing can be learnt" in caplog.text) == bool(wanted)
  assert (wanted or "") in caplog.text
