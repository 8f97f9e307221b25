"""Searches of an index: hits, rerankers, negatives."""

import json

import numpy as np
import pytest
import task_folders

from bert.data.vector_index import Row, VectorIndex
from bert.errors import UserError
from bert.export import huggingface
from bert.tasks import loaded_model, search, text_index
from bert.tasks.text_pairs import Pair

TEXTS = [
  "the mountains of the north",
  "Jim Henson made puppets",
  "who was it ?",
  "a city in the north",
  "puppets of the city",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory, golden, goldens):
  """A release, which gives vectors."""
  folder = tmp_path_factory.mktemp("release")
  return loaded_model.load(task_folders.write(folder, "", golden, goldens))


@pytest.fixture
def other(tmp_path, golden, goldens):
  """The same model with other settings."""
  folder = tmp_path / "other"
  folder.mkdir()
  folder = task_folders.write(folder, "", golden, goldens)
  return loaded_model.load(folder, pooling="max")


def rows_of(texts):
  return [Row(str(i), text, {}) for i, text in enumerate(texts, 1)]


def cosines(model, queries):
  """The cosine of each query with each of TEXTS, by NumPy."""
  found = [
    np.stack([answer["vector"] for answer in model(texts)])
    for texts in (queries, TEXTS)
  ]
  a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in found)
  return a @ b.T


@pytest.fixture
def index(tmp_path, model):
  folder = str(tmp_path / "index")
  text_index.change(folder, model, rows_of(TEXTS), dtype="float32")
  return VectorIndex(folder)


class TestSearch:
  def test_hits_are_those_of_numpy(self, model, index):
    queries = ["puppets of Jim", "the north"]
    expected = cosines(model, queries)
    searcher = search.Searcher(model, index)
    for scores, hits in zip(expected, searcher(queries, 3), strict=True):
      order = np.argsort(-scores)[:3]
      assert [hit.row.text for hit in hits] == [TEXTS[i] for i in order]
      assert [h.score for h in hits] == pytest.approx(scores[order], abs=1e-5)
    assert hits[0].to_dict() == {
      "score": round(hits[0].score, 6),
      "id": hits[0].row.id,
      "text": hits[0].row.text,
      "fields": {},
    }

  def test_a_query_without_words(self, model):
    assert search.check_query(model, "the city", "x:1") == "the city"
    with pytest.raises(UserError, match="x:1 is '\\\\u200b', without a word"):
      search.check_query(model, "\u200b", "x:1")

  def test_another_model(self, index, other):
    with pytest.raises(UserError, match="has vectors of another model"):
      text_index.check_model("i", index, other)


class TestReranker:
  def test_a_classifier_of_pairs(self, tmp_path, model, index, golden, goldens):
    folder = task_folders.write(tmp_path, "multilabel", golden, goldens)
    pairs = loaded_model.load(folder)
    reranker = search.Reranker(pairs, "green")
    expected = [pairs(("puppets", text))["probabilities"][1] for text in TEXTS]
    searcher = search.Searcher(model, index, reranker)
    (hits,) = searcher(["puppets"], 3)
    order = np.argsort([-score for score in expected])[:3]
    assert [hit.row.text for hit in hits] == [TEXTS[i] for i in order]
    best = sorted(expected, reverse=True)[:3]
    assert [h.score for h in hits] == pytest.approx(best, abs=1e-5)
    # Of the two nearest by their vectors.
    (hits,) = search.Searcher(model, index, reranker, 2)(["puppets"], 1)
    nearest = np.argsort(-cosines(model, ["puppets"])[0])[:2]
    best = max(nearest, key=lambda i: expected[i])
    assert hits[0].row.text == TEXTS[best]
    with pytest.raises(UserError, match="--relevant_label= must be one of"):
      search.Reranker(pairs)

  def test_a_cross_encoder_of_hugging_face(self, tmp_path, golden, goldens):
    """It has one output, without a scale."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    task_folders.write(ours, "regression", golden, goldens)
    settings = json.loads((ours / "task.json").read_text())
    (ours / "task.json").write_text(json.dumps({**settings, "is_pair": True}))
    huggingface.to_huggingface(str(ours), str(theirs))
    (theirs / "task.json").unlink()
    ours, theirs = loaded_model.load(ours), loaded_model.load(theirs)
    expected = [ours(("the city", text))["value"] for text in TEXTS]
    found = search.Reranker(theirs)("the city", TEXTS)
    assert found == pytest.approx(expected, abs=1e-4)

  @pytest.mark.parametrize("name", ["", "classification", "multiple choice"])
  def test_models_that_read_no_pairs(self, tmp_path, golden, goldens, name):
    found = loaded_model.load(
      task_folders.write(tmp_path, name, golden, goldens)
    )
    with pytest.raises(UserError, match="is no model of pairs; pass a classif"):
      search.Reranker(found)


def test_negatives(model, index):
  texts = [("puppets", TEXTS[1]), ("puppets", TEXTS[4]), ("north", TEXTS[0])]
  pairs = [Pair("", *pair) for pair in texts]
  searcher = search.Searcher(model, index)
  scores = cosines(model, ["puppets", "north"])
  for share in (1.0, 0.99):
    found = search.mine_negatives(searcher, pairs, 2, 5, share)
    for (query, right, wrong), pair in zip(found, texts, strict=True):
      assert (query, right) == pair
      own = scores[int(query == "north")]
      limit = share * own[TEXTS.index(right)]
      rights = [text for first, text in texts if first == query]
      expected = [
        TEXTS[i]
        for i in np.argsort(-own)
        if own[i] <= limit and TEXTS[i] not in rights
      ]
      assert wrong == expected[:2]
