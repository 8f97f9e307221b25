"""Reads sentences with a label for each word.

A CoNLL file has one word per line, in columns: the word first, its label last.
An empty line ends a sentence, and a line that begins with -DOCSTART- starts a
document. If the first column numbers the words of each sentence, as in CoNLL-U
and GermEval, the word is in the second. A JSON Lines file has an object with
`tokens` and `labels` (or `ner_tags`) for each sentence.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import logging

from bert.data import files, tables, text_files
from bert.errors import UserError, check_known, plural, shortened
from bert.flags.values import Flags
from bert.tasks.tagging import entities

_DOCUMENT = "-DOCSTART-"

# Other lines that start with # may be words, unless words are numbered.
_COMMENT = re.compile(r"#\s*\w+ = ")

# CoNLL-U has ten columns: number, word, lemma, part of speech, ... The number
# of a word that is not in the text, or of a multiword token, is no integer.
_CONLLU_WIDTH, _CONLLU_TAG = 10, 3
_NO_WORD = re.compile(r"\d+[-.]\d+$")


# Split -> names of its file in --data_dir.
_NAMES = {
  "train": ("train.txt",),
  "dev": ("dev.txt", "valid.txt"),
  "test": ("test.txt",),
}


class Sentence(NamedTuple):
  """A sentence of a file."""

  where: str  # its file, and the line of its first word
  words: list[str]
  labels: list[str] | None  # of each word; None: unknown
  lines: list[str]  # of each word in the file; the words in JSON Lines
  document: int = 0  # number of its document in the file, from 0
  # For the first sentence of a document: the line that starts the document,
  # after the lines of documents without sentences.
  document_lines: Sequence[str] = ()
  separator: str = " "  # of columns; a tab in JSON Lines
  text: str | None = None  # the source of the words, if any


def find_file(flags: Flags, split: str) -> str:
  """The file of a split, by its flag or in --data_dir."""
  flag, names = f"{split}_file", _NAMES[split]
  if flags.data_dir and not flags[flag]:
    files.check_is_folder(flags.data_dir, f"--data_dir={flags.data_dir}")
    for name in names:
      for end in ("", ".gz"):
        path = os.path.join(flags.data_dir, name + end)
        if files.isfile(path):
          return path
  flags.require(flag, value=f"it, or a --data_dir with {' or '.join(names)}")
  flags.require_file(flag)
  return flags[flag]


def read_sentences(path: str, is_labeled: bool) -> list[Sentence]:
  """The sentences of a CoNLL file (any name), or of a .jsonl or .parquet file.

  CoNLL and .jsonl files may be gzipped (.gz). `is_labeled` says whether the
  file has labels.
  """
  name = path.lower().removesuffix(".gz")
  is_table = name.endswith((".jsonl", ".json", ".parquet"))
  read = _read_table if is_table else _read_columns
  sentences = list(read(path, is_labeled))
  remedy = "pass a file with a word and its label per line"
  files.check_holds(sentences, path, "sentence", remedy)
  return sentences


def warn_of_plain_text(sentences: Sequence[Sentence]) -> None:
  """Warns if every sentence is one line, as in plain text."""
  if sentences and all(
    sentence.separator == " "
    and len(sentence.words) == 1
    and len(_columns(sentence.lines[0])) > 1
    for sentence in sentences
  ):
    logging.warning(
      "%s: each sentence has one word, the first of its line; if this is plain "
      "text, pass it as --predict_file",
      sentences[0].where,
    )


class _Line(NamedTuple):
  """A line of a CoNLL file: its location, text and columns."""

  where: str
  text: str
  columns: list[str]


def _read_columns(path, is_labeled):
  groups = list(_groups(path, is_labeled))
  words = [[x for x in lines if _is_word(x)] for _, _, lines in groups]
  is_numbered = _are_numbered(words, is_labeled)
  if not is_numbered:
    width = next((len(line.columns) for line in itertools.chain(*words)), None)
    words = [
      [x for x in lines if not _is_note(x, width)] for _, _, lines in groups
    ]
  word, label = (1, _find_label_column(path, words)) if is_numbered else (0, -1)
  used = (word, label) if is_labeled else (word,)
  _check_columns([*itertools.chain(*words)], used)
  for (document, document_lines, _), lines in zip(groups, words, strict=True):
    if lines:
      yield Sentence(
        lines[0].where,
        [line.columns[word] for line in lines],
        [line.columns[label] for line in lines] if is_labeled else None,
        [line.text for line in lines],
        document,
        document_lines,
        "\t" if "\t" in lines[0].text else " ",
      )


def _groups(path, is_labeled):
  """Yields the document, its start lines and the _Lines of each sentence."""
  sentence, document, document_lines = [], 0, []
  lines = enumerate(text_files.read_lines(path), 1)
  for number, line in (*lines, (0, "")):
    line, where = line.rstrip("\r"), f"{path}:{number}"
    columns = _columns(line)
    starts_document = columns[:1] == [_DOCUMENT]
    # Without labels, a line of unusual blanks may be a word.
    text = line.replace("\ufeff", "")
    is_empty = not (text.strip() if is_labeled else text.strip(" \t"))
    if not (is_empty or starts_document):
      sentence.append(_Line(where, line, columns))
      continue
    if sentence:
      yield document, document_lines, sentence
      sentence, document_lines = [], []
    if starts_document:
      document += 1
      document_lines.append(line)


def _is_word(line):
  """Whether a line contains a word, in a file that numbers words."""
  return not (line.text.startswith("#") or _NO_WORD.match(line.columns[0]))


def _is_note(line, width):
  """Whether a line is a comment, in a file that does not number words."""
  if not line.text.startswith("#\t"):
    return bool(_COMMENT.match(line.text))
  has_width = width in (None, len(line.columns))
  return not has_width or " " in line.columns[-1]


def _are_numbered(sentences, is_labeled):
  """Whether the first column counts the words of each sentence from 1."""
  least = 3 if is_labeled else 2
  has_several_words = any(len(lines) > 1 for lines in sentences)
  for lines in sentences:
    for number, line in enumerate(lines, 1):
      if len(line.columns) < least or line.columns[0] != str(number):
        return False
  return has_several_words


def _find_label_column(path, sentences):
  """The column of the labels in a file that numbers its words."""
  width = len(next(lines for lines in sentences if lines)[0].columns)
  if width == _CONLLU_WIDTH:
    logging.info("%s: the labels are the parts of speech of CoNLL-U", path)
    return _CONLLU_TAG
  columns = (
    [[line.columns[index] for line in lines] for lines in sentences]
    for index in (-2, -1)
  )
  # GermEval has labels of entities, and of nested entities.
  if width == 4 and all(map(entities.find_scheme, columns)):
    logging.info(
      "%s: the last two columns mark entities; the first of them is read", path
    )
    return -2
  return -1


def _columns(line):
  """The columns of a line, between tabs or else between blanks."""
  # Other blanks, such as a no-break space, are part of a word.
  if "\t" in line:
    return [column.strip(" ") for column in line.split("\t")]
  return [column for column in line.split(" ") if column]


def _check_columns(lines, used):
  """Raises UserError for a _Line with other columns, or without a used one."""
  for where, text, columns in lines:
    top = lines[0]
    problem = None
    width = 1 if "\t" in top.text and "\t" not in text else len(columns)
    if width != len(top.columns):
      problem = (
        f"{plural(width, 'column')}, but {len(top.columns)} in the lines "
        f"before; separate all columns in the same way, remove comments, or "
        f"pass plain text as --predict_file"
      )
    elif width < len(used) or not all(columns[index] for index in used):
      problem = (
        f"{shortened(text)!r} lacks a column; add the word and its label"
      )
    if problem:
      raise UserError(f"{where}: {problem}")


def _read_table(path, is_labeled):
  names = {}
  for where, row in tables.read_table(path).named_rows():
    words = _words(row.get("tokens"))
    if not words:
      accepted = "a list of words, not empty and without tabs and line breaks"
      raise tables.wrong_cell(f"{where}: tokens", row.get("tokens"), accepted)
    labels = None
    if is_labeled:
      given = row.get("labels") or row.get("ner_tags")
      labels = _words(given)
      if len(labels) != len(words):
        accepted = f"a list with a label for each of the {len(words)} tokens"
        cell = f"{where}: labels (or ner_tags)"
        raise tables.wrong_cell(cell, given, accepted)
    # A sentence without a document name is a separate document.
    name = row.get("document")
    document = names.setdefault(
      where if name is None else str(name), len(names)
    )
    yield Sentence(where, words, labels, words, document, separator="\t")


def _words(values):
  """A list of words or labels; [] if it is invalid, or one contains a tab."""
  if not isinstance(values, list):
    return []
  # True and False are not words.
  words = [None if isinstance(x, bool) else tables.as_text(x) for x in values]
  is_word = (x and x.strip() and not re.search(r"[\t\n\r]", x) for x in words)
  return words if all(is_word) else []


def find_labels(sentences: Iterable[Sentence]) -> list[str]:
  """The labels that occur, sorted."""
  return sorted({label for s in sentences for label in s.labels})


def check_labels(sentences: Iterable[Sentence], labels: Sequence[str]) -> None:
  """Raises UserError for the first label that the model does not know."""
  known = set(labels)
  for sentence in sentences:
    path, _, first = sentence.where.rpartition(":")
    # The words of a CoNLL file are in consecutive lines.
    has_lines = sentence.lines is not sentence.words
    for index, (word, label) in enumerate(
      zip(sentence.words, sentence.labels, strict=True)
    ):
      if label not in known:
        line = int(first) + index * has_lines
        what = f"the label {shortened(label)!r} of {shortened(word)!r}"
        check_known(f"{path}:{line}: {what}", label, labels)
