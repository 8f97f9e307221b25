"""From texts to an index, and from queries to the texts that answer them.

    search.change("faq_index", model, search.read_rows("faq.csv"))
    searcher = Searcher(model, VectorIndex("faq_index"))
    (hits,) = searcher(["How do I get my money back?"], top_k=3)
    hits[0].row.text, hits[0].score

The vectors are those of a model of vectors, scaled to length 1, so a score is
the cosine of the angle between two vectors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert.errors import UserError, listing, shortened
from bert.data import downloads, files, hnsw, tables, text_files, vector_index
from bert.data.vector_index import Header, Row, VectorIndex
from bert.tasks import loaded_model
from bert.tasks.features import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bert.tasks.loaded_model import LoadedModel
from bert.tasks.text_pairs import Pair, text_of
from bert.training import model_folder, task_file

Progress = Callable[[int], object]

# Texts that are encoded together.
_ENCODED = 4096


class Hit(NamedTuple):
  """A row that was found, and its score."""

  row: Row
  score: float

  def to_dict(self) -> dict:
    """The hit as JSON."""
    return {"score": round(float(self.score), 6), **self.row._asdict()}


def check_gives_vectors(model: LoadedModel) -> None:
  """Raises UserError unless a model gives one vector of a text."""
  if "vector" not in model.outputs:
    raise UserError(
      f"{model.folder} is a {model.kind} model; pass one that gives vectors of "
      f"texts"
    )


def fingerprint(model: LoadedModel) -> str:
  """A hash of the files and the settings that a model's vectors depend on."""
  settings = dataclasses.asdict(model.task.settings)
  found = hashlib.sha256(json.dumps([model.kind, settings]).encode())
  for path in model_folder.input_files(downloads.local_path(model.folder)):
    # The index of a checkpoint has a checksum of each variable in its data.
    if ".data-" not in path and files.isfile(path):
      found.update(os.path.basename(path).encode() + files.read_bytes(path))
  return found.hexdigest()[:16]


def input_of(
  model: LoadedModel, text: str, prompts: Sequence[str] = ()
) -> loaded_model.Texts:
  """The input of a model of vectors for a text.

  Args:
    model: the model.
    text: the text.
    prompts: names of prompts, such as QUERY_PROMPTS; the first that the model
      has is put before the text.
  """
  value = {"text": text}
  if getattr(model.task.settings, "prompts", ()):
    value["prompt"] = model.task.settings.prompt_of(*prompts)
  return model.parse(value)


def encode(
  model: LoadedModel,
  texts: Sequence[str],
  prompts: Sequence[str] = DOCUMENT_PROMPTS,
  progress: Progress = lambda count: None,
) -> np.ndarray:
  """The vectors of texts, scaled to length 1: float32 [texts, width].

  Args:
    model: a model of vectors.
    texts: at least one text.
    prompts: see `input_of`.
    progress: called after each batch with the number of its rows.
  """
  inputs = (input_of(model, text, prompts) for text in texts)
  examples = [model.task.example(*parts) for parts in inputs]
  answers = model.answer_examples(examples, progress)
  return unit_vectors(list(map(model.task.public, answers)))


def unit_vectors(
  answers: Sequence[Mapping], width: int | None = None
) -> np.ndarray:
  """The vectors of public answers, scaled to length 1: [answers, width].

  Args:
    answers: at least one answer.
    width: how many of the first dimensions count; default: all.
  """
  vectors = np.stack([answer["vector"][:width] for answer in answers])
  length = np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors / np.where(length, length, 1)


def check_query(model: LoadedModel, query: str, where: str) -> str:
  """The query."""
  if not model.task.tokenizer.tokenize(query):
    raise UserError(f"{where} is {query!r}, without a word; pass some")
  return query


# From files to an index.


def read_rows(
  path: str,
  text_column: str = "text",
  id_column: str | None = None,
  delimiter: str | None = None,
) -> list[Row]:
  """The rows of a table, or the lines of a text file.

  A row without an id gets a hash of its text and its fields as its id.

  Args:
    path: a table as `tables.read_table` reads it, or a file with a text on each
      line, whose name ends in .txt or has no extension.
    text_column: the column of the text. All others are fields.
    id_column: the column of the id. Default: "id", if there is one.
    delimiter: see `tables.read_table`.
  """
  name = path.lower().removesuffix(".gz")
  if os.path.splitext(name)[1] in ("", ".txt"):
    lines = enumerate(text_files.read_lines(path), 1)
    found = ((f"{path}:{n}", "", line, {}) for n, line in lines)
  else:
    table = tables.read_table(path, delimiter=delimiter)
    found = _table_rows(table, text_column, id_column)
  rows, places = {}, {}
  for where, key, text, fields in found:
    text = text.strip()
    if not text:
      raise UserError(f"{where}: the text is empty; remove the row")
    row = Row(key or _hash(text, fields), text, fields)
    if key and key in rows:
      raise UserError(
        f"{where}: the id {shortened(key)!r} is that of {places[key]}, too; "
        f"rename one"
      )
    rows[row.id], places[row.id] = row, where
  return list(rows.values())


def _table_rows(table, text_column, id_column):
  """Yields where a row is, its id, its text, and its fields."""
  text_index = table.column_index(text_column, "text_column")
  if id_column is None:
    id_index = table.names.index("id") if "id" in table.names else None
  else:
    id_index = table.column_index(id_column, "id_column")
  others = [
    (index, name)
    for index, name in enumerate(table.names)
    if index not in (text_index, id_index)
  ]
  for line, row in zip(table.lines, table.rows, strict=True):
    where, text = f"{table.path}:{line}", row[text_index]
    text = text_of(text, f"{where}: --text_column={text_column}")
    key = "" if id_index is None else row[id_index]
    if id_index is not None and (key in ("", None) or isinstance(key, list)):
      raise UserError(f"{where} has no id; add one")
    fields = {name: row[i] for i, name in others if row[i] is not None}
    yield where, str(key), text, fields


def _hash(text, fields):
  content = json.dumps([text, fields], sort_keys=True)
  return hashlib.sha256(content.encode()).hexdigest()[:16]


def change(
  folder: str,
  model: LoadedModel,
  rows: Sequence[Row],
  removed_ids: Collection[str] = (),
  dtype: str | None = None,
  progress: Progress = lambda count: None,
) -> tuple[int, int]:
  """Adds rows to the index in a folder, or makes it, and removes rows.

  A row replaces the one with its id. Only new rows are encoded. The index
  changes when all is computed.

  Args:
    folder: the folder.
    model: a model of vectors.
    rows: the rows to add.
    removed_ids: ids of rows to remove.
    dtype: how a new index stores its vectors; default: float16.
    progress: see `encode`.

  Returns:
    The number of rows that were encoded, and of those in the index now.
  """
  check_gives_vectors(model)
  with vector_index.locked(folder):
    index = None
    if rows and not files.exists(os.path.join(folder, vector_index.NAME)):
      width = encode(model, [rows[0].text]).shape[1]
      name = model.folder
      name = os.path.abspath(name) if os.path.isdir(name) else name
      header = Header(name, fingerprint(model), width, dtype or "float16")
    else:
      index = VectorIndex(folder)
      check_model(folder, index, model)
      header = index.header
      if dtype not in (None, header.dtype):
        raise UserError(
          f"--dtype={dtype}: --index={folder} has {header.dtype}; omit it"
        )
    numbers = index.numbers() if index else {}
    if unknown := [key for key in removed_ids if key not in numbers]:
      raise UserError(f"--remove_ids: the index has no {listing(unknown)}")
    known = [row for row in rows if row.id in numbers]
    old = index.rows([numbers[row.id] for row in known]) if known else []
    pairs = zip(known, old, strict=True)
    unchanged = {row.id for row, before in pairs if row == before}
    new = [row for row in rows if row.id not in unchanged]
    removed = {*removed_ids, *(row.id for row in new if row.id in numbers)}
    if removed or new:
      added = _encoded(model, new, progress)
      places = [numbers[key] for key in removed]
      vector_index.update(folder, header, index, places, added)
    return len(new), len(numbers) - len(removed) + len(new)


def _encoded(model, rows, progress):
  """Yields lists of rows and their vectors."""
  for start in range(0, len(rows), _ENCODED):
    part = rows[start : start + _ENCODED]
    texts = [row.text for row in part]
    yield part, encode(model, texts, progress=progress)


# From queries to hits.


def check_model(folder: str, index: VectorIndex, model: LoadedModel) -> None:
  """Raises UserError unless an index has the vectors of a model."""
  if fingerprint(model) != index.header.fingerprint:
    raise UserError(
      f"--index={folder} has vectors of another model, {index.header.model} as "
      f"it was then, not of {model.folder}; pass its --model_dir, or make the "
      f"index anew"
    )


def reads_pairs(model: LoadedModel) -> bool:
  """Whether a model can score pairs of texts, as a reranker does."""
  has_scores = {"value", "probabilities"} & model.outputs.keys()
  fields = model.fields
  return bool(has_scores) and len(fields) == 2 and not fields[1].is_list


class Reranker:
  """Scores pairs of a query and a text by a model that reads both together.

  Args:
    model: a classifier of pairs, or a regression.
    relevant_label: the label of a pair that matches. Default: the second of
      two labels.
  """

  def __init__(self, model: LoadedModel, relevant_label: str | None = None):
    self.model = model
    if not reads_pairs(model):
      raise UserError(
        f"{model.folder} is no model of pairs; pass a classifier or a "
        f"regression that was trained on pairs of texts"
      )
    self._label = None
    if model.labels:
      self._label = self._index(relevant_label)

  def _index(self, label):
    labels = self.model.labels
    if label in labels:
      return labels.index(label)
    if label is None and len(labels) == 2:
      return 1
    raise UserError(
      f"--relevant_label={label or ''} must be one of the labels of "
      f"{self.model.folder}, {listing(labels)}"
    )

  def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
    """The score of each text."""
    answers = self.model([(query, text) for text in texts])
    return [self.score(answer) for answer in answers]

  def score(self, answer: Mapping) -> float:
    """The score in an answer of the model."""
    if self._label is None:
      return answer["value"]
    return answer["probabilities"][self._label]


class Searcher:
  """Finds the rows of an index whose vectors are nearest to those of queries.

  Args:
    model: the model of the index.
    index: the VectorIndex.
    reranker: reorders the nearest rows, if it is given.
    candidates: number of rows that the reranker reorders.
    top_k: finds rows, as `VectorIndex.top_k` does, which is the default.
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
    self._reranker, self._candidates = reranker, candidates
    self._top_k = top_k or index.top_k

  def __call__(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
    """The hits of each query, the best first."""
    vectors = encode(self.model, queries, QUERY_PROMPTS)
    return self.find(queries, vectors, top_k)

  def find(
    self, queries: Sequence[str], vectors: np.ndarray, top_k: int
  ) -> list[list[Hit]]:
    """Like `__call__`, with the vectors of the queries, [Q, width]."""
    count = max(top_k, self._candidates) if self._reranker else top_k
    found = []
    for query, (scores, numbers) in zip(
      queries, self._top_k(vectors, count), strict=True
    ):
      rows = self.index.rows(numbers)
      if self._reranker and rows:
        scores = self._reranker(query, [row.text for row in rows])
      hits = map(Hit, rows, map(float, scores))
      # Hits with equal scores stay in their order.
      ordered = sorted(hits, key=lambda hit: -hit.score)
      found.append(ordered[:top_k])
    return found


def load_searcher(
  folder: str,
  model_dir: str | None = None,
  ann: str | None = None,
  reranker_dir: str | None = None,
  relevant_label: str | None = None,
  candidates: int = 50,
  **options,
) -> Searcher:
  """The Searcher of the index in a folder.

  Args:
    folder: the folder.
    model_dir: the folder of its model, if it has been moved.
    ann: "hnsw" to search by graphs.
    reranker_dir: the folder of the reranker's model.
    relevant_label: see Reranker.
    candidates: see Searcher.
    **options: of `loaded_model.load`, for both models.
  """
  index = VectorIndex(folder)
  top_k = None
  if ann:
    top_k = hnsw.Graphs(index).top_k
  model = loaded_model.load(model_dir or index.header.model, **options)
  check_gives_vectors(model)
  check_model(folder, index, model)
  reranker = None
  if reranker_dir:
    reranker = Reranker(_load_reranker(reranker_dir, options), relevant_label)
  return Searcher(model, index, reranker, candidates, top_k)


def _load_reranker(folder, options):
  """A model of pairs, which reads as much as it can unless it records less."""
  folder = downloads.local_path(folder)
  if "max_seq_length" not in task_file.read(folder)[1]:
    config = model_folder.load_config(folder)
    options = {**options, "max_seq_length": config.max_position_embeddings}
  return loaded_model.load(folder, **options)


# From pairs to triples.


def mine_negatives(
  searcher: Searcher,
  pairs: Sequence[Pair],
  count: int,
  candidates: int,
  most: float,
) -> Iterator[tuple[str, str, list[str]]]:
  """Yields pairs with texts that are near the first text, but are not right.

  Texts that are nearly as near as the right one may be right as well, and are
  left out (Moreira et al. 2024).

  Args:
    searcher: a Searcher without a reranker.
    pairs: texts, and texts of the index that are right for them.
    count: number of wrong texts for each pair; some pairs get fewer.
    candidates: number of rows to choose from.
    most: the largest share of the score of the right text.
  """
  right = {}
  for pair in pairs:
    right.setdefault(pair.text_a, []).append(pair.text_b.strip())
  queries = list(right)
  for start in range(0, len(queries), _ENCODED):
    group = queries[start : start + _ENCODED]
    vectors = encode(searcher.model, group, QUERY_PROMPTS)
    answers = [(query, text) for query in group for text in right[query]]
    right_vectors = iter(encode(searcher.model, [text for _, text in answers]))
    found = searcher.find(group, vectors, candidates)
    for query, vector, hits in zip(group, vectors, found, strict=True):
      for text in right[query]:
        limit = most * float(vector @ next(right_vectors))
        wrong = dict.fromkeys(
          hit.row.text
          for hit in hits
          if hit.score <= limit and hit.row.text not in right[query]
        )
        yield query, text, list(wrong)[:count]
