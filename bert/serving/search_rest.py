"""Requests for vectors, similarities, search and reranking.

    reader = Reader(model, "faq", searcher)
    reader.read_answer(model, {"query": "Where is my order?", "top_k": 3})

Clients of OpenAI's embeddings, and of Cohere's and Jina's reranking, work.
"""

import base64
import itertools

import numpy as np

from bert.contract.task import Field
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError, check_known, plural
from bert.search import text_index
from bert.search.search import Reranker, Searcher
from bert.search.text_index import input_of
from bert.serving import rest
from bert.serving.rest import Call
from bert.serving.server_page import Form
from bert.tasks.embeddings.vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS

# Hits of a search.
_TOP_K, _MOST_HITS = 10, 1000

# Value of "input_type" -> names of prompts.
_PROMPTS = {"query": QUERY_PROMPTS, "document": DOCUMENT_PROMPTS}
_PROMPTS["passage"] = DOCUMENT_PROMPTS

# Search -> what the page says of the scores.
_SCORES = {
  "dense": "similarities",
  "lexical": "those of BM25",
  "hybrid": "sums of 1 / (60 + rank)",
}

_SIMILARITIES = (
  "the scores are similarities of vectors; for scores of a model of pairs, "
  "start serve.py with --reranker"
)


class Reader:
  """Reads the requests that only some models answer; see `server.make_app`.

  Its `form` is what the server's page asks for.
  """

  def __init__(
    self,
    model: LoadedModel,
    name: str,
    searcher: Searcher | None = None,
    relevant_label: str | None = None,
    reranker: Reranker | None = None,
  ):
    self._name, self._searcher = name, searcher
    self._relevant_label = relevant_label
    self._reranker = searcher.reranker if searcher else reranker
    self._gives_vectors = "vector" in model.outputs
    self.form = Form(model.kind, model.fields)
    if searcher:
      title = f"Search among {plural(len(searcher.index), 'text')}"
      if not self._reranker:
        title += f"; the scores are {_SCORES[searcher.search]}"
      self.form = Form(title, [Field("query")], "Search")
    elif self._gives_vectors:
      fields = [Field("text_a"), Field("text_b")]
      self.form = Form("Similarity of two texts", fields, "Compare")

  def read_answer(self, model: LoadedModel, body: object) -> Call:
    """A search, two texts to compare, or what `rest.read_answer` reads.

    Also a list of these.
    """
    if isinstance(body, list) and any(map(self._reader_of, body)):
      calls = [self.read_answer(model, part) for part in body]
      return Call(
        [item for call in calls for item in call.items],
        lambda answers: {"answers": _finish_each(calls, answers)},
        rounds=False,
      )
    read = self._reader_of(body) or rest.read_answer
    return read(model, body)

  def _reader_of(self, body):
    """What reads a search or two texts to compare; None for other requests."""
    names = set(body) if isinstance(body, dict) else set()
    if self._searcher and "query" in names:
      return self._read_search
    if self._gives_vectors and {"text_a", "text_b"} <= names:
      return self._read_pair
    return None

  def _read_pair(self, model, body):
    rest.check_keys(body, ("text_a", "text_b"))
    items = [input_of(model, body[n], (), n) for n in ("text_a", "text_b")]

    def respond(answers):
      a, b = text_index.comparable_vectors(model, answers)
      return {"similarity": round(float(a @ b), 6)}

    return Call(items, respond, rounds=False)

  def _read_search(self, model, body):
    rest.check_keys(body, ("query",), "top_k")
    query, count = body["query"], _number(body, "top_k", _TOP_K, _MOST_HITS)
    item = input_of(model, query, QUERY_PROMPTS, "query")
    self._searcher.check_query(query, "query")

    def respond(answers):
      vectors = text_index.comparable_vectors(model, answers)
      (hits,) = self._searcher.find([query], vectors, count)
      return {"hits": [hit.to_dict() for hit in hits]}

    return Call([item], respond, rounds=False)

  def read_embeddings(self, model: LoadedModel, body: object) -> Call:
    """A request in OpenAI's form: a text, or a list of texts."""
    optional = "encoding_format", "dimensions", "input_type"
    self._check_model(body, ("input",), *optional)
    encoded = _choice(body, "encoding_format", _ENCODINGS, np.ndarray.tolist)
    prompts = _choice(body, "input_type", _PROMPTS, ())
    width, given = _number(body, "dimensions"), body["input"]
    given = rest.check_list(
      [given] if isinstance(given, str) else given, "input"
    )
    if isinstance(given[0], int | list):
      raise UserError("'input' has token ids; pass texts")
    items = [
      input_of(model, text, prompts, f"input[{index}]")
      for index, text in enumerate(given)
    ]

    def respond(answers):
      vectors = [answer["vector"] for answer in answers]
      if width:
        _number(body, "dimensions", most=len(vectors[0]))
        vectors = list(text_index.comparable_vectors(model, answers, width))
      data = [
        {"object": "embedding", "index": index, "embedding": encoded(v)}
        for index, v in enumerate(vectors)
      ]
      count = _count_pieces(model, items)
      usage = {"prompt_tokens": count, "total_tokens": count}
      fields = {"object": "list", "data": data, "model": self._name}
      return {**fields, "usage": usage}

    return Call(items, respond, rounds=False)

  def read_rerank(self, model: LoadedModel, body: object) -> Call:
    """Scores documents for a query by a model of pairs, or by similarity."""
    reranker = self._reranker
    if not (reranker or self._gives_vectors):
      reranker = Reranker(model, self._relevant_label)
    self._check_model(body, ("query", "documents"), "top_n", "return_documents")
    query = body["query"]
    texts = [
      document.get("text") if isinstance(document, dict) else document
      for document in rest.check_list(body["documents"], "documents")
    ]
    top_n = _number(body, "top_n")
    items = [] if reranker else [input_of(model, query, QUERY_PROMPTS, "query")]
    for index, text in enumerate(texts):
      where = f"documents[{index}]"
      if reranker:
        items.append(reranker.model.parse((query, text), where))
      else:
        items.append(input_of(model, text, DOCUMENT_PROMPTS, where))

    def respond(answers):
      if reranker:
        scores = list(map(reranker.score, answers))
      else:
        vectors = text_index.comparable_vectors(model, answers)
        scores = (vectors[1:] @ vectors[0]).tolist()
      order = sorted(range(len(scores)), key=lambda i: -scores[i])[:top_n]
      results = [{"index": i, "relevance_score": scores[i]} for i in order]
      if body.get("return_documents"):
        for result in results:
          result["document"] = {"text": texts[result["index"]]}
      reply = {"model": self._name, "results": results}
      meta = {"warnings": [_SIMILARITIES]}  # In Cohere's form.
      return reply if reranker else {**reply, "meta": meta}

    other = self._reranker and self._reranker.model
    return Call(items, respond, rounds=False, model=other)

  def _check_model(self, body, required, *optional):
    """Raises UserError for a wrong key, or the name of another model."""
    rest.check_keys(body, required, "model", "user", *optional)
    name = body.get("model", self._name)
    if name != self._name:
      raise UserError(f"model={name!r} is not served; there is {self._name!r}")


def _number(body, name, default=None, most=None):
  value = body.get(name)
  if value is None:
    return default
  if type(value) is not int or not 1 <= value <= (most or value):
    limit = f" to {most}" if most else ""
    raise UserError(f"{name}={value!r} is not a whole number from 1{limit}")
  return value


def _choice(body, name, choices, default):
  """The choice that a body names; `default` if it names none."""
  value = body.get(name)
  if value is None:
    return default
  check_known(f"{name}={value!r}", value, list(choices))
  return choices[value]


def _base64(vector):
  return base64.b64encode(vector.astype("<f4").tobytes()).decode()


# Value of "encoding_format" -> the JSON of a vector.
_ENCODINGS = {"float": np.ndarray.tolist, "base64": _base64}


def _count_pieces(model, items):
  examples = [model.task.example(*item) for item in items]
  rows = [row for e in examples for row in model.task.rows(e, False)]
  return sum(int(np.sum(row["input_mask"])) for row in rows)


def _finish_each(calls, answers):
  """The responses of several calls, whose answers are in one list."""
  rest_of = iter(answers)
  return [
    call.finish(list(itertools.islice(rest_of, len(call.items))))
    for call in calls
  ]
