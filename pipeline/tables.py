"""Tables of texts: TSV, CSV and JSON Lines files, compressed or not."""

import collections
import csv
import dataclasses
import gzip
import io
import json
import os
import re
import zlib

import tensorflow as tf
from absl import logging

from errors import UserError, did_you_mean, listing, plural, shortened
from pipeline.text_files import decode_utf8, split_lines

_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclasses.dataclass(frozen=True)
class Table:
  """The rows of a file.

  Attributes:
    path: the file.
    names: the columns' names; None if the file has no header. For JSON Lines
      the keys of all objects, in the order in which they first appear.
    rows: for each row a list of str; for JSON Lines a dict.
    lines: the line on which each row starts, counted from 1.
  """

  path: str
  names: list[str] | None
  rows: list
  lines: list[int]

  def place(self, column: str | int, flag: str) -> int:
    """Which column that is, counted from 0.

    Args:
      column: its name, or its number, from 0 or, if negative, from the end.
        What is both is a name.
      flag: the flag that named it, without dashes, for errors.

    Raises:
      ValueError: there is no such column.
    """
    column = str(column)
    width = len(self.rows[0] if self.names is None else self.names)
    if self.names is not None and column in self.names:
      return self.names.index(column)
    if re.fullmatch(r"-?[0-9]{1,9}", column):
      if -width <= int(column) < width:
        return int(column) % width
      problem = f"{self.path} has {plural(width, 'column')}"
    else:
      problem = f"{self.path} has no such column"
    if self.names is None:
      remedy = (
        f"it is read without a header, so give a number, 0 to {width - 1}, or "
        f"-1 for the last column"
      )
    else:
      remedy = f"its columns are {listing(self.names)}"
      remedy += did_you_mean(column, self.names)
    if width == 1:
      remedy += "; a tab parts columns in .tsv, a comma in .csv"
    raise UserError(f"--{flag}={column}: {problem}; {remedy}")

  def column(self, place: int) -> list:
    """A column's values; None for what an object of JSON Lines lacks."""
    if isinstance(self.rows[0], dict):
      name = self.names[place]
      return [row.get(name) for row in self.rows]
    return [row[place] for row in self.rows]


def read_table(path: str | os.PathLike, header: bool = True) -> Table:
  """Reads a file by its extension: .tsv, .csv, .jsonl or .json, or these + .gz.

  The text is UTF-8, with or without a byte order mark. In a TSV file a
  quotation mark is text; in CSV it quotes, and a quoted field may hold line
  breaks; JSON Lines is one object a line. Empty lines at the end are passed
  over, in JSON Lines all of them. Elsewhere an empty line is a row of one
  column in TSV, and an error in CSV.

  Args:
    path: the file.
    header: whether the first line of TSV or CSV names the columns; objects
      name theirs in any case.

  Raises:
    ValueError: the file is missing, broken or without rows, or a row has more
      or fewer columns than the first; the message names file and line.
  """
  path = os.fspath(path)
  if tf.io.gfile.isdir(path):
    raise UserError(f"{path} is a folder; pass a file in it")
  extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
  if extension not in _READERS:
    raise UserError(
      f"{path} has none of the known extensions "
      f"{', '.join(_READERS)}, each also with .gz; export or convert the file"
    )
  rows, lines = _READERS[extension](path, decode_utf8(path, _read_bytes(path)))
  if not rows:
    raise UserError(f"{path} is empty; give a file with rows")
  if isinstance(rows[0], dict):
    keys = dict.fromkeys(key for row in rows for key in row)
    return Table(path, list(keys), rows, lines)
  names = rows[0]
  if header and names in ([], [""]):
    raise UserError(f"{path}:1: the header is empty; name the columns there")
  _check_widths(path, extension, rows, lines)
  if not header:
    return Table(path, None, rows, lines)
  name, times = collections.Counter(names).most_common(1)[0]
  if times > 1:
    raise UserError(
      f"{path}:1: the header names {times} columns {name!r}; rename one"
    )
  if len(rows) == 1:
    raise UserError(f"{path} has a header and no rows; give a file with rows")
  return Table(path, names, rows[1:], lines[1:])


def _read_bytes(path):
  if not tf.io.gfile.exists(path):
    raise UserError(f"there is no file {path}; correct the path")
  with tf.io.gfile.GFile(path, "rb") as reader:
    content = reader.read()
  if not path.lower().endswith(".gz"):
    return content
  try:
    return gzip.decompress(content)
  except (EOFError, OSError, zlib.error) as error:
    raise UserError(
      f"{path} is not a whole gzip file: {error}; fetch or write it again"
    ) from error


def _read_tsv(path, text):
  rows = [line.split("\t") for line in split_lines(text)]
  _drop_empty_end(path, rows, [""])
  return rows, list(range(1, len(rows) + 1))


def _read_csv(path, text):
  csv.field_size_limit(2**31 - 1)
  # Strict, or an open quotation mark would swallow the rest of the file.
  reader = csv.reader(io.StringIO(text, newline=""), strict=True)
  rows, lines = [], []
  start = 1
  try:
    for row in reader:
      rows.append(row)
      lines.append(start)
      start = reader.line_num + 1
  except csv.Error as error:
    raise UserError(
      f"{path}:{start}: {error} in the row that starts here; close each "
      f"quotation mark, and write one within quotes twice"
    ) from error
  _drop_empty_end(path, rows, [])
  return rows, lines[: len(rows)]


def _drop_empty_end(path, rows, empty):
  before = len(rows)
  while rows and rows[-1] == empty:
    rows.pop()
  if len(rows) < before:
    logging.info(
      "%s: passing over %s at its end",
      path,
      plural(before - len(rows), "empty line"),
    )


def _read_json_lines(path, text):
  rows, lines = [], []
  for number, line in enumerate(split_lines(text), start=1):
    if not line.strip(" \t\r"):
      continue
    try:
      rows.append(_parse_object(line))
    except (ValueError, RecursionError) as error:
      problem = str(error)
      if isinstance(error, json.JSONDecodeError):
        problem = f"{error.msg} (column {error.colno})"
      raise UserError(
        f"{path}:{number}: {problem}; write one whole JSON object a line, such "
        f'as {{"text": "...", "label": "..."}}'
      ) from error
    lines.append(number)
  return rows, lines


def _parse_object(line):
  parsed = json.loads(line, object_pairs_hook=_unique_keys)
  if not isinstance(parsed, dict):
    raise UserError(f"{shortened(line.strip())} is no object")
  if _HALF_A_PAIR.search(line):
    try:
      json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
      raise UserError(
        "a \\u escape is half of a surrogate pair and no character"
      ) from error
  return parsed


def _unique_keys(pairs):
  parsed = dict(pairs)
  if len(parsed) < len(pairs):
    (key, _), *_ = collections.Counter(k for k, _ in pairs).most_common(1)
    raise UserError(f"the key {key!r} stands there twice")
  return parsed


_READERS = {
  ".tsv": _read_tsv,
  ".csv": _read_csv,
  ".jsonl": _read_json_lines,
  ".json": _read_json_lines,
}


def _check_widths(path, extension, rows, lines):
  width = len(rows[0])
  for row, line in zip(rows, lines, strict=True):
    if len(row) != width:
      remedy = {
        ".csv": "put a field that holds a comma between quotation marks",
        ".tsv": "a tab parts columns, and no text may hold one",
      }[extension]
      if row in ([], [""]):
        remedy = "remove the empty line"
      raise UserError(
        f"{path}:{line}: {plural(len(row), 'column')} where the first line "
        f"has {width}; {remedy}"
      )


def parse_line(line: str) -> tuple[str, str | None]:
  """A line to predict: a text, or two with a tab between them.

  Returns:
    text_a, and text_b or None.

  Raises:
    ValueError: there is more than one tab.
  """
  text_a, *rest = line.removesuffix("\n").removesuffix("\r").split("\t")
  if len(rest) > 1:
    raise UserError(
      f"{len(rest) + 1} columns in {shortened(line)!r}; give one text, or two "
      f"with a tab between them"
    )
  return text_a, rest[0] if rest else None
