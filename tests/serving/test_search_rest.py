"""Requests for vectors, similarities, search and reranking."""

import base64
import json

import numpy as np
import orjson
import pytest
import task_folders

from bert.engine import loaded_model
from bert.errors import UserError
from bert.search import search, text_index
from bert.search.vector_index import Row, VectorIndex
from bert.serving import search_rest

TEXTS = ["the mountains", "Jim Henson made puppets", "a city in the north"]


@pytest.fixture(scope="module")
def models(tmp_path_factory, golden, goldens):
  """A model of vectors, a classifier of pairs, and one of texts."""
  found = []
  for name in ("", "multilabel", "classification"):
    folder = tmp_path_factory.mktemp("model")
    task_folders.write(folder, name, golden, goldens)
    found.append(loaded_model.load(folder))
  return found


@pytest.fixture(scope="module")
def searcher(tmp_path_factory, models):
  folder = str(tmp_path_factory.mktemp("index"))
  rows = [Row(str(i), text, {"n": i}) for i, text in enumerate(TEXTS)]
  text_index.change(folder, models[0], rows, dtype="float32")
  return search.Searcher(models[0], VectorIndex(folder))


def ask(reader, model, kind, body):
  """The response to a request, after JSON."""
  call = getattr(reader, f"read_{kind}")(model, body)
  return json.loads(orjson.dumps(call.finish(model.answer(call.items))))


def unit(model, texts):
  vectors = np.stack([answer["vector"] for answer in model(texts)])
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class TestEmbeddings:
  def test_openai_form(self, models):
    model, *_ = models
    reader = search_rest.Reader(model, "faq")
    found = ask(
      reader, model, "embeddings", {"input": TEXTS[:2], "model": "faq"}
    )
    assert (found["object"], found["model"]) == ("list", "faq")
    assert [row["object"] for row in found["data"]] == ["embedding"] * 2
    assert [row["index"] for row in found["data"]] == [0, 1]
    for row, answer in zip(found["data"], model(TEXTS[:2]), strict=True):
      assert row["embedding"] == pytest.approx(answer["vector"], abs=1e-6)
    lengths = [len(model.task.tokenizer.tokenize(t)) + 2 for t in TEXTS[:2]]
    usage = {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
    assert found["usage"] == usage
    one = ask(reader, model, "embeddings", {"input": TEXTS[0]})
    assert one["data"][0]["embedding"] == pytest.approx(
      found["data"][0]["embedding"], abs=1e-5
    )

  def test_base64_and_fewer_dimensions(self, models):
    model, *_ = models
    body = {"input": [TEXTS[0]], "encoding_format": "base64", "dimensions": 8}
    found = ask(search_rest.Reader(model, "faq"), model, "embeddings", body)
    content = base64.b64decode(found["data"][0]["embedding"])
    vector = np.frombuffer(content, "<f4")
    expected = model(TEXTS[0])["vector"][:8]
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_similarity(models):
  model, *_ = models
  body = {"text_a": TEXTS[0], "text_b": TEXTS[1]}
  found = ask(search_rest.Reader(model, "faq"), model, "answer", body)
  a, b = unit(model, TEXTS[:2])
  assert found == {"similarity": pytest.approx(a @ b, abs=1e-5)}
  reader = search_rest.Reader(model, "faq")
  assert ask(reader, model, "answer", {"text": "a"}).keys() == {"vector"}


def test_search(models, searcher):
  model, *_ = models
  reader = search_rest.Reader(model, "faq", searcher)
  body = {"query": "puppets", "top_k": 2}
  found = ask(reader, model, "answer", body)
  scores = unit(model, TEXTS) @ unit(model, ["puppets"])[0]
  order = np.argsort(-scores)[:2]
  assert [hit["text"] for hit in found["hits"]] == [TEXTS[i] for i in order]
  assert [hit["fields"]["n"] for hit in found["hits"]] == order.tolist()
  for hit, index in zip(found["hits"], order, strict=True):
    assert hit["score"] == pytest.approx(scores[index], abs=1e-5)
  assert len(ask(reader, model, "answer", {"query": "puppets"})["hits"]) == 3
  text = "Search among 3 texts; the scores are similarities"
  assert reader.form.description == text
  assert [field.name for field in reader.form.fields] == ["query"]


@pytest.mark.parametrize(
  ("kind", "scores"),
  [("lexical", "those of BM25"), ("hybrid", "sums of 1 / (60 + rank)")],
)
def test_search_by_words(tmp_path, models, kind, scores):
  model, *_ = models
  rows = [Row(str(i), text, {}) for i, text in enumerate(TEXTS)]
  text_index.change(str(tmp_path), model, rows, has_words=True)
  found = search.load_searcher(
    str(tmp_path), model.folder, search=kind, needs_model=True
  )
  reader = search_rest.Reader(found.model, "faq", found)
  hits = ask(reader, model, "answer", {"query": "puppets city"})["hits"]
  assert {hits[0]["id"], hits[1]["id"]} == {"1", "2"}
  assert len(hits) == (2 if kind == "lexical" else 3)
  assert reader.form.description.endswith(f"; the scores are {scores}")
  hits = ask(reader, model, "answer", {"query": "was"})["hits"]
  assert len(hits) == (0 if kind == "lexical" else 3)


def test_the_prompt_of_an_input_type(models):
  model, *_ = models
  prompts = (("query", "the city "), ("passage", "Jim "))
  prompted = loaded_model.load(model.folder, prompts=prompts)
  reader = search_rest.Reader(prompted, "faq")
  for name, text in (
    ("query", "the city puppets"),
    ("document", "Jim puppets"),
    ("passage", "Jim puppets"),
    (None, "puppets"),
  ):
    body = {"input": "puppets", "input_type": name}
    found = ask(reader, prompted, "embeddings", body)["data"][0]["embedding"]
    assert found == pytest.approx(model(text)["vector"], abs=1e-5)


def test_more_dimensions_than_the_model_has(models):
  model, *_ = models
  reader = search_rest.Reader(model, "faq")
  body = {"input": "a", "dimensions": 32}
  (row,) = ask(reader, model, "embeddings", body)["data"]
  assert len(row["embedding"]) == 32
  message = "dimensions=33 is not a whole number from 1 to 32"
  with pytest.raises(UserError, match=message):
    ask(reader, model, "embeddings", {**body, "dimensions": 33})


def test_products_of_vectors(tmp_path, models):
  """For a model that compares by products: similarity, search, reranking."""
  model = loaded_model.load(models[0].folder, similarity="dot")
  rows = [Row(str(i), text, {}) for i, text in enumerate(TEXTS)]
  text_index.change(str(tmp_path), model, rows, dtype="float32")
  index = search.Searcher(model, VectorIndex(str(tmp_path)))
  reader = search_rest.Reader(model, "faq", index)
  vectors = np.stack([answer["vector"] for answer in model(TEXTS)])
  scores = vectors @ model("puppets")["vector"]
  assert np.abs(scores).max() > 1
  body = {"text_a": "puppets", "text_b": TEXTS[0]}
  found = ask(reader, model, "answer", body)
  assert found["similarity"] == pytest.approx(scores[0], abs=1e-3)
  hits = ask(reader, model, "answer", {"query": "puppets"})["hits"]
  by_id = {hit["id"]: hit["score"] for hit in hits}
  assert by_id == {str(i): pytest.approx(x, 1e-4) for i, x in enumerate(scores)}
  body = {"query": "puppets", "documents": TEXTS}
  results = ask(reader, model, "rerank", body)["results"]
  found = {row["index"]: row["relevance_score"] for row in results}
  assert found == {i: pytest.approx(x, 1e-4) for i, x in enumerate(scores)}


class TestRerank:
  def test_by_vectors(self, models):
    model, *_ = models
    reader = search_rest.Reader(model, "faq")
    body = {"query": "puppets", "documents": TEXTS, "top_n": 2}
    found = ask(reader, model, "rerank", body)
    scores = unit(model, TEXTS) @ unit(model, ["puppets"])[0]
    order = np.argsort(-scores)[:2]
    assert [row["index"] for row in found["results"]] == order.tolist()
    (warning,) = found["meta"]["warnings"]
    assert "similarities" in warning
    for row in found["results"]:
      wanted = pytest.approx(scores[row["index"]], abs=1e-5)
      assert row["relevance_score"] == wanted

  @pytest.mark.parametrize("served", ["pairs", "vectors", "index"])
  def test_by_a_model_of_pairs(self, models, searcher, served):
    vectors, model, _ = models
    own = model if served == "pairs" else vectors
    reranker = search.Reranker(model, "green")
    reader = search_rest.Reader(model, "pairs", relevant_label="green")
    if served == "vectors":
      reader = search_rest.Reader(vectors, "pairs", reranker=reranker)
    elif served == "index":
      searcher = search.Searcher(vectors, searcher.index, reranker)
      reader = search_rest.Reader(vectors, "pairs", searcher)
      assert reader.form.description == "Search among 3 texts"
    documents = [{"text": text} for text in TEXTS]
    body = {"query": "a", "documents": documents, "return_documents": True}
    # A server has the answers from the model of the call, if it names one.
    call = reader.read_rerank(own, {**body, "model": "pairs"})
    assert call.model is (None if served == "pairs" else model)
    found = call.finish(model.answer(call.items))
    assert "meta" not in found
    scores = [model(("a", text))["probabilities"][1] for text in TEXTS]
    order = np.argsort([-score for score in scores])
    assert [row["index"] for row in found["results"]] == order.tolist()
    texts = [row["document"]["text"] for row in found["results"]]
    assert texts == [TEXTS[i] for i in order]
    best = found["results"][0]["relevance_score"]
    assert best == pytest.approx(max(scores), abs=1e-5)


@pytest.mark.parametrize(
  ("which", "kind", "body", "message"),
  [
    (0, "embeddings", [], "the body must be an object with 'input'"),
    (0, "embeddings", {"input": []}, "'input' is not a list with at least"),
    (0, "embeddings", {"input": [[1, 2]]}, "has token ids; pass texts"),
    (0, "embeddings", {"input": [1, 2]}, "has token ids; pass texts"),
    (0, "embeddings", {"input": ["a", {}]}, r"input\[1\]: text is not a str"),
    (
      0,
      "embeddings",
      {"input": "a", "encoding_format": "hex"},
      "encoding_format='hex' is not one of 'float', 'base64'",
    ),
    (0, "embeddings", {"input": "a", "input_type": []}, r"_type=\[\] is not"),
    (0, "embeddings", {"input": "a", "n": 1}, "must be an object with 'input'"),
    (0, "embeddings", {"input": "a", "model": "b"}, "there is 'm'"),
    (0, "embeddings", {"input": "a", "dimensions": 0}, "dimensions=0 is not a"),
    (0, "answer", {"query": "a"}, "the input is not an object with"),
    (0, "answer", {"text_a": "a", "text_b": 1}, "text_b: text is not a string"),
    (
      0,
      "answer",
      {"query": "a", "text_a": "a", "text_b": "b"},
      "the body must be an object with 'text_a', 'text_b'",
    ),
    (0, "rerank", {"query": "a"}, "an object with 'query', 'documents'"),
    (0, "rerank", {"query": "a", "documents": []}, "not a list with at least"),
    (
      0,
      "rerank",
      {"query": "a", "documents": [1]},
      r"documents\[0\]: text is not a",
    ),
    (1, "rerank", {"query": "a", "documents": ["b"]}, "--relevant_label is r"),
    (2, "rerank", {"query": "a", "documents": ["b"]}, "is no model of pairs"),
  ],
)
def test_bad_requests(models, which, kind, body, message):
  model = models[which]
  reader = search_rest.Reader(model, "m")
  with pytest.raises(UserError, match=message):
    getattr(reader, f"read_{kind}")(model, body)


def test_a_list_of_requests_gets_a_list_of_answers(models, searcher):
  reader = search_rest.Reader(models[0], "m", searcher)
  bodies = [
    {"query": "puppets", "top_k": 2},
    {"text_a": TEXTS[0], "text_b": TEXTS[1]},
    {"text": TEXTS[2]},
    {"query": TEXTS[0], "top_k": 1},
  ]
  single = [ask(reader, models[0], "answer", body) for body in bodies]
  found = ask(reader, models[0], "answer", bodies)["answers"]
  assert [part.keys() for part in found] == [part.keys() for part in single]
  assert [x["id"] for x in found[0]["hits"]] == [
    x["id"] for x in single[0]["hits"]
  ]
  assert found[1] == pytest.approx(single[1], abs=1e-5)
  assert found[2]["vector"] == pytest.approx(single[2]["vector"], abs=1e-5)
  assert found[3]["hits"][0]["text"] == TEXTS[0]


@pytest.mark.parametrize(
  ("body", "message"),
  [
    ([{"query": "a"}, {"query": "\u200b"}], "query is '.*', without a word"),
    ({"query": "\u200b"}, "query is '.*', without a word; pass some"),
    (
      {"query": "a", "top_k": 0},
      "top_k=0 is not a whole number from 1 to 1000",
    ),
    ({"query": 1}, "query: text is not a string"),
  ],
)
def test_bad_searches(models, searcher, body, message):
  reader = search_rest.Reader(models[0], "m", searcher)
  with pytest.raises(UserError, match=message):
    reader.read_answer(models[0], body)
