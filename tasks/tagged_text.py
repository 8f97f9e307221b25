"""Sentences with a label for each word: files, label schemes and entities.

A CoNLL file has one word per line, in columns: the word first, its label last.
An empty line ends a sentence, and a line that begins with -DOCSTART- starts a
document. A JSON Lines file has an object with `tokens` and `labels` (or
`ner_tags`) for each sentence.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from errors import UserError, shortened
from pipeline import tables, text_files

_DOCUMENT = "-DOCSTART-"

# What plain text is split into: a Chinese character; an abbreviation such as
# U.S.; a word, with hyphens and similar signs inside; 's; any other sign.
CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = f"[^\\W{CHINESE}]"
_TEXT_WORDS = re.compile(
  f"[{CHINESE}]|(?:[A-Za-z]\\.){{2,}}|'s\\b|{_WORD}+(?:[-./@&+]{_WORD}+)*|[^\\w\\s]"
)


class Sentence(NamedTuple):
  """A sentence of a file.

  Attributes:
    where: the file, and the line of the first word, for messages.
    words: its words.
    labels: the label of each word; None if they are not known.
    lines: the line of each word in the file; the word itself in JSON Lines.
    document: number of its document in the file, from 0.
    document_line: the line that starts the document, if the sentence is its
      first, or None.
  """

  where: str
  words: list[str]
  labels: list[str] | None
  lines: list[str]
  document: int = 0
  document_line: str | None = None


def read_sentences(path: str, is_labelled: bool) -> list[Sentence]:
  """The sentences of a CoNLL file (.txt or any other name) or of a .jsonl file.

  Args:
    path: the file, or a gzip file (.gz) of it.
    is_labelled: whether each word has a label, which is read.

  Raises:
    UserError: the file is missing or wrong; the message has file and line.
  """
  is_json = path.lower().removesuffix(".gz").endswith((".jsonl", ".json"))
  read = _read_json_lines if is_json else _read_columns
  sentences = list(read(path, is_labelled))
  if not sentences:
    raise UserError(
      f"{path} has no sentence; pass a file with a word and its label per line"
    )
  return sentences


def _read_columns(path, is_labelled):
  """Yields the sentences of a CoNLL file."""
  rows, first, width = [], 0, None
  document, document_line = 0, None
  lines = enumerate(text_files.read_lines(path), 1)
  for number, line in (*lines, (0, "")):
    line = line.rstrip("\r")
    columns = line.split("\t") if "\t" in line else line.split()
    starts_document = columns[:1] == [_DOCUMENT]
    if line.strip() and not starts_document:
      first = first if rows else number
      width = width or len(columns)
      _check_columns(f"{path}:{number}", columns, width, is_labelled)
      rows.append((columns, line))
      continue
    if rows:
      labels = [c[-1].strip() for c, _ in rows] if is_labelled else None
      words = [c[0].strip() for c, _ in rows]
      yield Sentence(
        f"{path}:{first}",
        words,
        labels,
        [line for _, line in rows],
        document,
        document_line,
      )
      rows, document_line = [], None
    if starts_document:
      document, document_line = document + 1, line


def _check_columns(where, columns, width, is_labelled):
  """Raises UserError if a line of a CoNLL file is wrong."""
  if len(columns) != width:
    raise UserError(
      f"{where}: {len(columns)} columns, but {width} in the lines before; "
      f"separate all columns in the same way"
    )
  if is_labelled and width < 2:
    raise UserError(
      f"{where}: {shortened(columns[0])!r} has no label; add a column with the "
      f"label of each word"
    )
  if not columns[0].strip() or (is_labelled and not columns[-1].strip()):
    raise UserError(f"{where}: a column is empty; add the word and its label")


def _read_json_lines(path, is_labelled):
  """Yields the sentences of a JSON Lines file."""
  table = tables.read_table(path)
  names = {}
  for number, values in zip(table.lines, table.rows, strict=True):
    where = f"{path}:{number}"
    row = dict(zip(table.names, values, strict=True))
    words = row.get("tokens")
    if not _is_list_of(words, str) or not all(map(str.strip, words)):
      raise UserError(
        f"{where}: expected an object with tokens, a list of words that are "
        f"not empty"
      )
    labels = None
    if is_labelled:
      labels = row.get("labels") or row.get("ner_tags")
      if not _is_list_of(labels, str | int) or len(labels) != len(words):
        raise UserError(
          f"{where}: expected labels (or ner_tags), a list with one label for "
          f"each of the {len(words)} tokens"
        )
      labels = list(map(str, labels))
    # Without the name of its document, a sentence is a document of its own.
    name = row.get("document")
    document = names.setdefault(
      where if name is None else str(name), len(names)
    )
    yield Sentence(where, words, labels, words, document)


def _is_list_of(values, kind):
  is_list = isinstance(values, list) and len(values)
  return is_list and all(isinstance(value, kind) for value in values)


def find_labels(sentences: Iterable[Sentence]) -> list[str]:
  """The labels that occur, sorted."""
  return sorted({label for s in sentences for label in s.labels})


def check_labels(sentences: Iterable[Sentence], labels: Sequence[str]) -> None:
  """Raises UserError for the first label that the model does not know."""
  known = set(labels)
  for sentence in sentences:
    for word, label in zip(sentence.words, sentence.labels, strict=True):
      if label not in known:
        raise UserError(
          f"{sentence.where}: the word {shortened(word)!r} of this sentence "
          f"has the unknown label {shortened(label)!r}; the model was trained "
          f"on {', '.join(labels)}"
        )


def split_text(text: str) -> list[tuple[int, int]]:
  """The words of a plain text, as offsets of their first character and end."""
  return [match.span() for match in _TEXT_WORDS.finditer(text)]


def join_words(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
  """The words separated by blanks, and the offsets of each."""
  ends = list(itertools.accumulate(len(word) + 1 for word in words))
  starts = [0, *ends[:-1]]
  return " ".join(words), [
    (a, b - 1) for a, b in zip(starts, ends, strict=True)
  ]
