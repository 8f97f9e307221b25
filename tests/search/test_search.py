"""Indexes of texts, and searches: updates, hits, rerankers, negatives."""

import json
import types

import numpy as np
import pytest
import task_folders

from bert.contract.task import Field
from bert.engine import loaded_model
from bert.errors import UserError
from bert.export import huggingface
from bert.search import search, text_index
from bert.search.vector_index import Row, VectorIndex
from bert.tasks.embeddings import vectors as features
from bert.tasks.embeddings.data import Pair

TEXTS = [
  "the mountains of the north",
  "Jim Henson made puppets",
  "who was it ?",
  "a city in the north",
  "puppets of the city",
]


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

  def test_wrong_queries_are_named(self, model, index):
    searcher = search.Searcher(model, index)
    assert searcher([], 3) == []
    array = np.array(TEXTS[:2], object)
    assert searcher(array, 2) == searcher(TEXTS[:2], 2)
    for queries, top_k, problem in (
      ("puppets", 3, "a list of queries, not 'puppets'"),
      (["puppets", None], 3, "query 2 is not a text: None"),
      (["puppets", " "], 3, "query 2 is ' ', without a word"),
      (["puppets"], 0, "top_k=0 must be a whole number of 1 or more"),
      (["puppets"], 2.5, "top_k=2.5 must be a whole number"),
    ):
      with pytest.raises(UserError, match=problem):
        searcher(queries, top_k)

  def test_a_model_without_vectors_is_refused(
    self, tmp_path, index, golden, goldens
  ):
    folder = task_folders.write(tmp_path, "classification", golden, goldens)
    with pytest.raises(UserError, match="is a classification model; pass one"):
      search.Searcher(loaded_model.load(folder), index)


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
    with pytest.raises(UserError, match="--relevant_label is required"):
      search.Reranker(pairs)

  def test_the_second_of_two_labels(self):
    model = types.SimpleNamespace(
      folder="pairs",
      fields=[Field("text_a"), Field("text_b")],
      outputs={"probabilities": "DT_FLOAT"},
      labels=("no", "yes"),
    )
    reranker = search.Reranker(model)
    assert reranker.score({"probabilities": [0.2, 0.8]}) == 0.8

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


def test_labels_of_pairs_for_negatives(model, index):
  """A text with the label 0 comes first, unless another row says 1."""
  labeled = [(TEXTS[1], 1.0), (TEXTS[3], 0.0), (TEXTS[1], 0.0), ("new", 0.0)]
  pairs = [Pair("", "puppets", text, score=score) for text, score in labeled]
  pairs.append(Pair("", "north", TEXTS[0], score=0.0))
  searcher = search.Searcher(model, index)
  ((query, right, wrong),) = search.mine_negatives(searcher, pairs, 3, 5, 1.0)
  assert (query, right) == ("puppets", TEXTS[1])
  assert wrong[:2] == [TEXTS[3], "new"]
  assert len(set(wrong)) == len(wrong)
  assert TEXTS[1] not in wrong


def test_prompts_go_before_queries_and_texts(goldens):
  """As sentence-transformers has encoded them."""
  folder = goldens / "variants" / "st-cls-prompts"
  texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
  expected = np.load(folder / "outputs.npz")["query"]
  expected /= np.linalg.norm(expected, axis=1, keepdims=True)
  model = loaded_model.load(folder / "folder")
  found = text_index.encode(model, texts, features.QUERY_PROMPTS)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  of_passages = text_index.encode(model, [f"passage: {texts[0]}"], ())
  np.testing.assert_allclose(
    text_index.encode(model, texts[:1]), of_passages, atol=1e-5
  )


class TestRows:
  def test_a_table(self, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,id,answer\nwhy ?,7, because \nhow ?,x,so\n")
    found = text_index.read_rows(str(path), "answer")
    assert found == [
      Row("7", "because", {"question": "why ?"}),
      Row("x", "so", {"question": "how ?"}),
    ]
    (first, _) = text_index.read_rows(str(path), "answer", "question")
    assert first == Row("why ?", "because", {"id": "7"})

  def test_json_lines(self, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"id": 3, "text": "a", "tags": ["x"]}, {"id": 4, "text": "b"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = text_index.read_rows(str(path))
    assert found == [Row("3", "a", {"tags": ["x"]}), Row("4", "b", {})]

  def test_lines_have_ids_of_their_content(self, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\none\n")
    found = text_index.read_rows(str(path))
    assert [row.text for row in found] == ["one", "two"]
    path.write_text("two\none\n")
    assert text_index.read_rows(str(path)) == found[::-1]
    path.write_bytes("größer\n".encode("cp1252"))
    (row,) = text_index.read_rows(str(path), encoding="cp1252")
    assert row.text == "größer"

  def test_an_id_of_two_rows(self, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text;id\na;1\na;1\n")
    assert [row.id for row in text_index.read_rows(str(path))] == ["1"]
    path.write_text("text;id\na;1\nb;1\n")
    message = ":3: .*the id '1' is also that of .*:2: .*; cha"
    with pytest.raises(UserError, match=message):
      text_index.read_rows(str(path))


class TestChanges:
  def test_only_new_texts_are_encoded(self, tmp_path, model):
    folder = str(tmp_path / "i")
    rows = rows_of(TEXTS)

    def change(rows, *removed):
      encoded = []
      found = text_index.change(
        folder, model, rows, removed, None, encoded.append
      )
      assert sum(encoded) == found[0]
      return found

    assert change(rows[:3]) == (3, 3)
    assert change(rows[:4]) == (1, 4)
    assert change(rows[:4]) == (0, 4)
    changed = [rows[0]._replace(text="north"), rows[1], rows[4]]
    assert change(changed, "3") == (2, 4)
    index = VectorIndex(folder)
    assert index.header.dtype == "float16"
    found = index.rows(list(range(4)))
    assert {row.id: row.text for row in found} == {
      "1": "north",
      "2": TEXTS[1],
      "4": TEXTS[3],
      "5": TEXTS[4],
    }
    expected = text_index.encode(model, [row.text for row in found])
    np.testing.assert_allclose(
      index.vectors(list(range(4))), expected, atol=1e-3
    )

  def test_bad_changes_change_nothing(self, tmp_path, model, other):
    folder = str(tmp_path / "i")
    text_index.change(folder, model, rows_of(TEXTS))
    for args, message in (
      ((model, [], ["9"]), "--remove_ids: the index has no '9'"),
      (
        (other, rows_of("a")),
        "vectors of another model, .*release.* as it was",
      ),
    ):
      with pytest.raises(UserError, match=message):
        text_index.change(folder, *args)
      assert len(VectorIndex(folder)) == len(TEXTS)
