"""From texts to an index of their vectors, and perhaps of their words.

    text_index.change("faq_index", model, read_rows("faq.csv"))

A model of vectors computes the vectors. They are scaled to length 1, unless the
model compares vectors by their products (`similarity="dot"`).
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from absl import logging

from bert.data import downloads, files, tables, text_files
from bert.engine.loaded_model import LoadedModel, Texts
from bert.errors import UserError, listing, plural
from bert.models import model_folder
from bert.models.resolve import resolve
from bert.search import lexical, vector_index
from bert.search.vector_index import Header, Row, VectorIndex
from bert.tasks.embeddings.vectors import DOCUMENT_PROMPTS, comparable

Progress = Callable[[int], object]

# Number of texts that are encoded together.
ENCODED = 4096


def check_gives_vectors(model: LoadedModel) -> None:
  """Raises UserError unless a model gives one vector per text."""
  if "vector" not in model.outputs:
    raise UserError(
      f"{model.folder} is a {model.kind} model; pass one that gives vectors of "
      f"texts, such as hf://sentence-transformers/all-MiniLM-L6-v2 or one that "
      f"run_embeddings.py trained"
    )


def fingerprint(model: LoadedModel) -> str:
  """A hash of the files and the settings that a model's vectors depend on."""
  settings = dataclasses.asdict(model.task.settings)
  digest = hashlib.sha256(json.dumps([model.kind, settings]).encode())
  for path in model_folder.input_files(downloads.local_path(model.folder)):
    # The index of a checkpoint has a checksum of each variable in its data.
    if ".data-" not in path and files.isfile(path):
      digest.update(os.path.basename(path).encode() + files.read_bytes(path))
  return digest.hexdigest()[:16]


def input_of(
  model: LoadedModel,
  text: str,
  prompts: Sequence[str] = (),
  where: str = "the input",
) -> Texts:
  """The input of a model of vectors for a text.

  The first of the names `prompts`, such as QUERY_PROMPTS, that is a prompt of
  the model is put before the text.
  """
  value = {"text": text}
  if getattr(model.task.settings, "has_prompts", False):
    value["prompt"] = model.task.settings.prompt_of(*prompts)
  return model.parse(value, where)


def encode(
  model: LoadedModel,
  texts: Sequence[str],
  prompts: Sequence[str] = DOCUMENT_PROMPTS,
  progress: Progress = lambda count: None,
) -> np.ndarray:
  """The vectors of texts, whose products are similarities: [texts, width].

  See `input_of` for the prompts, and `LoadedModel` for `progress`.
  """
  parts = []
  for start in range(0, len(texts), ENCODED):  # Examples take much memory.
    group = texts[start : start + ENCODED]
    inputs = (input_of(model, text, prompts) for text in group)
    examples = [model.task.example(*given) for given in inputs]
    answers = model.answer_examples(examples, progress)
    answers = list(map(model.task.public, answers))
    parts.append(comparable_vectors(model, answers))
  return np.concatenate(parts)


def comparable_vectors(
  model: LoadedModel, answers: Sequence[Mapping], width: int | None = None
) -> np.ndarray:
  """The vectors of answers, cut; see `vectors.comparable`: [answers, width]."""
  matrix = np.stack([answer["vector"][:width] for answer in answers])
  return comparable(matrix, model.task.settings)


def read_rows(
  path: str,
  text_column: str = "text",
  id_column: str | None = None,
  delimiter: str | None = None,
  usual_id_column: str = "id",
  encoding: str | None = None,
) -> list[Row]:
  """The rows of a table, or the lines of a text file.

  A row without an id gets a hash of its text and its fields as its id. Rows
  without a text are left out with a warning.

  Args:
    path: a table for `tables.read_table`, or, with .txt or no extension, a file
      with a text on each line.
    id_column: by default `usual_id_column`, if the table has it.
  """
  name = path.lower().removesuffix(".gz")
  if os.path.splitext(name)[1] in ("", ".txt"):
    text = text_files.read_text(path, encoding)
    lines = enumerate(text_files.split_lines(text), 1)
    entries = ((f"{path}:{n}: the text", "", line, {}) for n, line in lines)
  else:
    table = tables.read_table(path, delimiter=delimiter, encoding=encoding)
    id_index = table.find_column(usual_id_column)
    if id_column is not None:
      id_index = table.column_index(id_column, "id_column")
    entries = _table_rows(table, text_column, id_index)
  rows, places, empty = {}, {}, []
  for where, key, text, fields in entries:
    if text is None or not str(text).strip():
      empty.append(where)
      continue
    text = tables.text_of(text, where).strip()
    row = Row(key or _hash(text, fields), text, fields)
    if rows.get(row.id) == row:
      continue  # Tables often have a row twice.
    if key:
      tables.note_id(key, where, places)
    rows[row.id] = row
  files.check_holds(rows, path, "texts")
  if empty:
    count = plural(len(empty), "row")
    logging.warning("%s without a text left out: %s is empty", count, empty[0])
  return list(rows.values())


def _table_rows(table, text_column, id_index):
  """Yields where a row is, its id, its text, and its fields."""
  text_index = table.column_index(text_column, "text_column")
  others = [
    (index, name)
    for index, name in enumerate(table.names)
    if index not in (text_index, id_index)
  ]
  for line, row in zip(table.lines, table.rows, strict=True):
    where = f"{table.path}:{line}: --text_column={text_column}"
    key = "" if id_index is None else row[id_index]
    fields = {name: row[i] for i, name in others if row[i] is not None}
    yield where, "" if key is None else str(key), row[text_index], fields


def has_own_id(row: Row) -> bool:
  """Whether a row's id was in its table."""
  return row.id != _hash(row.text, row.fields)


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
  has_words: bool = False,
  **columns: str,
) -> tuple[int, int]:
  """Adds rows to the index in a folder, which may be new, and removes rows.

  A row replaces the one with its id. Only new rows are encoded. The index
  changes when everything is computed. A new index stores its vectors as
  `dtype`, by default float16, and the `columns` of its Header. `has_words` adds
  the words, which an index then keeps. Returns the numbers of rows that were
  encoded and that are in the index now.
  """
  check_gives_vectors(model)
  with vector_index.locked(folder):
    index = None
    if rows and not files.exists(os.path.join(folder, vector_index.NAME)):
      width = encode(model, [rows[0].text]).shape[1]
      name = model.folder
      name = os.path.abspath(name) if os.path.isdir(name) else name
      dtype = dtype or "float16"
      header = Header(name, fingerprint(model), width, dtype, **columns)
    else:
      index = VectorIndex(folder)
      check_model(folder, index, model)
      header = index.header
    had_words = index is not None and bool(index.word_files)
    adds_words, has_words = has_words and not had_words, has_words or had_words
    if has_words:
      lexical.import_bm25s()  # Before the texts are encoded.
    numbers = index.numbers() if index else {}
    if unknown := [key for key in removed_ids if key not in numbers]:
      raise UserError(f"--remove_ids: the index has no {listing(unknown)}")
    known = [row for row in rows if row.id in numbers]
    old = index.rows([numbers[row.id] for row in known]) if known else []
    pairs = zip(known, old, strict=True)
    unchanged = {row.id for row, before in pairs if row == before}
    new = [row for row in rows if row.id not in unchanged]
    removed = {*removed_ids, *(row.id for row in new if row.id in numbers)}
    if removed or new or adds_words:
      added = _encoded(model, new, progress)
      places = [numbers[key] for key in removed]
      split_by = resolve(model.folder) if has_words else None
      vector_index.update(folder, header, index, places, added, split_by)
    return len(new), len(numbers) - len(removed) + len(new)


def _encoded(model, rows, progress):
  for start in range(0, len(rows), ENCODED):
    part = rows[start : start + ENCODED]
    texts = [row.text for row in part]
    yield part, encode(model, texts, progress=progress)


def check_model(folder: str, index: VectorIndex, model: LoadedModel) -> None:
  """Raises UserError unless an index has the vectors of a model."""
  if fingerprint(model) != index.header.fingerprint:
    raise UserError(
      f"--index={folder} has vectors of another model, {index.header.model} as "
      f"it was then, not of {model.folder}; pass its --model_dir, or make the "
      f"index anew"
    )
