"""Sentences with a label for each word, and their files.

A CoNLL file has one word per line, in columns: the word first, its label last.
An empty line ends a sentence, and a line that begins with -DOCSTART- starts a
document. A JSON Lines file has an object with `tokens` and `labels` (or
`ner_tags`) for each sentence.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import logging

from bert.errors import UserError, listing, plural, shortened
from bert.data import tables, text_files

_DOCUMENT = "-DOCSTART-"

# Other lines that start with # may be words.
_COMMENT = re.compile(r"#\s*\w+ = ")


class Sentence(NamedTuple):
  """A sentence of a file.

  Attributes:
    where: the file, and the line of the first word, for messages.
    words: its words.
    labels: the label of each word; None if they are not known.
    lines: the line of each word in the file; the word itself in JSON Lines.
    document: number of its document in the file, from 0.
    document_lines: the line that starts the document, if the sentence is its
      first, after those of documents without sentences.
    separator: what separates the columns of its file; a tab in JSON Lines.
    text: the text that the words are from; None if there are only words.
  """

  where: str
  words: list[str]
  labels: list[str] | None
  lines: list[str]
  document: int = 0
  document_lines: Sequence[str] = ()
  separator: str = " "
  text: str | None = None


def read_sentences(path: str, is_labeled: bool) -> list[Sentence]:
  """The sentences of a CoNLL file (any name), or of a .jsonl or .parquet file.

  Args:
    path: the file, or a gzip file (.gz) of it.
    is_labeled: whether each word has a label, which is read.
  """
  name = path.lower().removesuffix(".gz")
  if name.endswith(".conllu"):
    raise UserError(
      f"{path}: words must be in the first column, but .conllu has them in the "
      f"second; write a .txt file with two columns, word and tag"
    )
  is_table = name.endswith((".jsonl", ".json", ".parquet"))
  read = _read_table if is_table else _read_columns
  sentences = list(read(path, is_labeled))
  if not sentences:
    raise UserError(
      f"{path} has no sentence; pass a file with a word and its label per line"
    )
  return sentences


def warn_of_plain_text(sentences: Sequence[Sentence]) -> None:
  """Warns of sentences that are all in one line, as in plain text."""
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


def _read_columns(path, is_labeled):
  """Yields the sentences of a CoNLL file."""
  rows, first, top = [], 0, None
  document, document_lines = 0, []
  lines = enumerate(text_files.read_lines(path), 1)
  for number, line in (*lines, (0, "")):
    line, where = line.rstrip("\r"), f"{path}:{number}"
    if "\r" in line:
      raise UserError(
        f"{where}: there is a carriage return within the line; end lines with "
        f"\\n or \\r\\n"
      )
    columns = _columns(line)
    starts_document = columns[:1] == [_DOCUMENT]
    # A label tells a word from a line of unusual blanks.
    is_empty = not (line.strip() if is_labeled else any(columns))
    if not (is_empty or starts_document):
      first = first if rows else number
      top = top or line
      _check_columns(where, line, top, is_labeled)
      rows.append((columns, line))
      continue
    if rows:
      columns, source = zip(*rows, strict=True)
      yield Sentence(
        f"{path}:{first}",
        [row[0] for row in columns],
        [row[-1] for row in columns] if is_labeled else None,
        list(source),
        document,
        document_lines,
        "\t" if "\t" in source[0] else " ",
      )
      rows, document_lines = [], []
    if starts_document:
      document += 1
      document_lines.append(line)


def _columns(line):
  """The columns of a line, between tabs or else between blanks."""
  # Other blanks, such as a no-break space, are part of a word.
  if "\t" in line:
    return [column.strip(" ") for column in line.split("\t")]
  return [column for column in line.split(" ") if column]


def _check_columns(where, line, top, is_labeled):
  """Raises UserError if a line of a CoNLL file is wrong; `top` is the first."""
  columns, width = _columns(line), len(_columns(top))
  if _COMMENT.match(line):
    raise UserError(
      f"{where}: comments are not read; remove the lines that start with #"
    )
  remedy = "separate all columns in the same way"
  if not is_labeled:
    remedy += ", or pass plain text as --predict_file"
  if "\t" in top and "\t" not in line:
    raise UserError(
      f"{where}: there is no tab, but tabs separate the columns of the lines "
      f"before; {remedy}"
    )
  if len(columns) != width:
    if "# " in (line[:2], top[:2]):
      remedy += ", and remove comments"
    raise UserError(
      f"{where}: {plural(len(columns), 'column')}, but {width} in the lines "
      f"before; {remedy}"
    )
  if is_labeled and width < 2:
    raise UserError(
      f"{where}: {shortened(columns[0])!r} has no label; add a column with the "
      f"label of each word"
    )
  if not columns[0] or (is_labeled and not columns[-1]):
    raise UserError(f"{where}: a column is empty; add the word and its label")


def _read_table(path, is_labeled):
  """Yields the sentences of a JSON Lines or Parquet file."""
  names = {}
  for where, row in tables.read_table(path).named_rows():
    words = row.get("tokens")
    if not _are_words(words):
      raise UserError(
        f"{where}: expected an object with tokens, a list of words that are "
        f"not empty and have no tabs or line breaks"
      )
    labels = None
    if is_labeled:
      labels = row.get("labels") or row.get("ner_tags")
      if isinstance(labels, list):
        # The numbers of labels are labels, too. True and False are not.
        labels = [str(x) if type(x) is int else x for x in labels]
      if not _are_words(labels) or len(labels) != len(words):
        raise UserError(
          f"{where}: expected labels (or ner_tags), a list with one label for "
          f"each of the {len(words)} tokens"
        )
    # Without the name of its document, a sentence is a document of its own.
    name = row.get("document")
    document = names.setdefault(
      where if name is None else str(name), len(names)
    )
    yield Sentence(where, words, labels, words, document, separator="\t")


def _are_words(values):
  """Whether it is a list of strings that fit into columns between tabs."""
  return (
    isinstance(values, list)
    and bool(values)
    and all(isinstance(value, str) and value.strip() for value in values)
    and not any(sign in value for value in values for sign in "\t\n\r")
  )


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
        raise UserError(
          f"{path}:{int(first) + index * has_lines}: the word "
          f"{shortened(word)!r} has the unknown label {shortened(label)!r}; "
          f"correct it: the labels of the training set are {listing(labels)}"
        )
