"""Tables of text: TSV, CSV and JSON Lines files, also with .gz, and Parquet."""

import collections
import csv
import dataclasses
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Sequence

from absl import logging

from bert import strict_json
from bert.data import files, sequences, text_files
from bert.errors import (
  UserError,
  did_you_mean,
  first_line,
  import_optional,
  listing,
  plural,
  shortened,
)


# The usual delimiter by extension, and all extensions of tables.
_DELIMITERS = {".tsv": "\t", ".csv": ","}
EXTENSIONS = (*_DELIMITERS, ".jsonl", ".json", ".parquet")
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods")

# Values of --delimiter that are hard to type in a shell.
_NAMED = {"tab": "\t", "\\t": "\t"}

# A first line that tells Excel the delimiter.
_EXCEL_HINT = re.compile(r'"?sep=([^"\r\n])"?[\r\n]', re.IGNORECASE)

# The delimiter is recognized from this number of rows and of characters.
_SAMPLE_ROWS, _SAMPLE_SIZE = 20, 2**20


@dataclasses.dataclass(frozen=True)
class Table:
  """The rows of a file."""

  path: str
  names: list[str] | None  # Of the columns; None without a header.
  # Values are str; in JSON Lines and Parquet any JSON, or None if missing.
  # Read texts by `as_text`.
  rows: list[list]
  lines: list[int]  # Line of each row, from 1; in Parquet its number.

  def column_index(self, column: str | int, flag: str | None = None) -> int:
    """The index of a column by its name, or else by its index in a row.

    `flag`, without dashes, is the flag that names the column; None if the
    format requires the column.
    """
    index, width = self.find_column(column), len(self.rows[0])
    if index is not None:
      return index
    what = f"--{flag}={column}: {self.path} has no such column"
    if self.names is None:
      remedy = f"without a header, pass an index from {-width} to {width - 1}"
    else:
      remedy = f"its columns are {listing(self.names)}"
    if flag is None:
      what = f"{self.path} needs a column {column!r}"
      remedy += "; rename the column"
    elif width == 1:
      remedy += "; pass the character between columns as --delimiter"
    elif self.names is not None:
      remedy += did_you_mean(str(column), self.names)
    raise UserError(f"{what}; {remedy}")

  def find_column(self, column: str | int) -> int | None:
    """Like `column_index`, but None if there is no such column."""
    column, width = str(column), len(self.rows[0])
    if self.names is not None and column in self.names:
      return self.names.index(column)
    if re.fullmatch(r"-?[0-9]{1,9}", column) and -width <= int(column) < width:
      return int(column) % width
    return None

  def named_rows(
    self, needed: Sequence[str] = ()
  ) -> Iterator[tuple[str, dict]]:
    """Yields the file and line of each row, and its values by column."""
    for name in needed:
      self.column_index(name)
    for line, row in zip(self.lines, self.rows, strict=True):
      yield f"{self.path}:{line}", dict(zip(self.names, row, strict=True))


def as_text(value: object) -> str | None:
  """The text of a str, bool or finite number; None for any other value.

  A number in JSON or Parquet is what a CSV file says of it, such as "5".
  """
  if isinstance(value, str):
    return value
  if isinstance(value, bool):
    return "true" if value else "false"
  is_finite = isinstance(value, float) and math.isfinite(value)
  return str(value) if is_finite or isinstance(value, int) else None


def text_of(value: object, cell: str) -> str:
  """The text in a cell, FILE:LINE: COLUMN, which must not be empty."""
  text = as_text(value)
  if text is None or not text.strip():
    raise wrong_cell(cell, value, "a text")
  return text


def wrong_cell(cell: str, value: object, accepted: str) -> UserError:
  """The error of a value that a cell, FILE:LINE: COLUMN, does not accept."""
  shown = "missing" if value is None else shortened(repr(value))
  return UserError(f"{cell} is {shown}; pass {accepted}, or remove the row")


def note_id(key: str, where: str, places: dict[str, str]) -> None:
  """Records where an id is; raises UserError if an earlier row has it."""
  if key in places:
    raise UserError(
      f"{where}: the id {shortened(key)!r} is also that of {places[key]}; "
      f"change one"
    )
  places[key] = where


def read_table(
  path: str | os.PathLike,
  header: bool = True,
  delimiter: str | None = None,
  encoding: str | None = None,
) -> Table:
  """Reads a .tsv, .csv, .jsonl or .json file, or one with .gz, or a .parquet.

  In files whose columns are separated by tabs and whose name ends in .tsv,
  quotation marks have no meaning. In others, quoted fields may contain line
  breaks. JSON files have one object per line. Empty rows at the end and empty
  columns at the right are ignored, and in JSON files all empty lines. The class
  labels of Parquet files that Hugging Face's `datasets` has written are read by
  name.

  `header` says whether the first line of a TSV or CSV file names the columns,
  `delimiter` which character separates them, or "tab". Default: the character
  that a line "sep=;" before the header names, or else the tab, comma or
  semicolon that the header has.
  """
  path = os.fspath(path)
  name = path.lower()
  extension = os.path.splitext(name.removesuffix(".gz"))[1]
  if extension == ".parquet" and name.endswith(extension):
    return _table_of(path, *_read_parquet(path))
  if extension not in EXTENSIONS[:-1]:
    remedy = "export or convert the file"
    if extension in _WORKBOOKS:
      remedy = 'save the workbook as "CSV UTF-8" in Excel'
    raise UserError(
      f"{path} has none of the known extensions {', '.join(EXTENSIONS)}, all "
      f"but the last also with .gz; {remedy}"
    )
  text = text_files.read_text(path, encoding)
  if extension in _DELIMITERS:
    return _read_columns(path, text, extension, header, delimiter)
  return _table_of(path, *_read_json_lines(path, text))


def _table_of(path, rows, lines, names=None):
  files.check_holds(rows, path, "rows")
  if isinstance(rows[0], dict):
    names = list(dict.fromkeys(key for row in rows for key in row))
    rows = [[row.get(name) for name in names] for row in rows]
  return Table(path, names, rows, lines)


def _read_columns(path, text, extension, header, delimiter):
  hint = _EXCEL_HINT.match(text)
  if delimiter is None:
    delimiter = hint[1] if hint else _DELIMITERS[extension]
    if header and not hint:
      delimiter = _find_delimiter(path, text, extension)
  delimiter = _NAMED.get(delimiter.lower(), delimiter)
  if len(delimiter) != 1 or delimiter in '"\r\n':
    raise UserError(
      f"--delimiter={delimiter!r} is not one character that separates columns; "
      f"pass a character such as ; or the word tab"
    )
  rows, lines = _split_rows(path, text, extension, delimiter)
  if hint:
    rows, lines = rows[1:], lines[1:]
  _check_widths(path, rows, lines, delimiter)
  while any(rows) and not any(row[-1] for row in rows):
    rows = [row[:-1] for row in rows]
  if not header:
    return _table_of(path, rows, lines)
  names = rows[0] if rows else []
  for name, count in collections.Counter(names).most_common(1):
    if count > 1:
      raise UserError(
        f"{path}:1: the header names {count} columns {name!r}; rename one"
      )
  return _table_of(path, rows[1:], lines[1:], names)


def _find_delimiter(path, text, extension):
  """The character that splits header and rows into equally many columns.

  Of several, the one with most columns; on a tie, the extension's usual one.
  """
  usual = _DELIMITERS[extension]
  text, ranks = text[:_SAMPLE_SIZE], {usual: (False, 1)}
  for delimiter in dict.fromkeys((usual, *_DELIMITERS.values(), ";")):
    try:
      rows, _ = _split_rows(path, text, extension, delimiter, _SAMPLE_ROWS)
    except UserError:
      continue
    widths = list(map(len, rows)) or [1]
    ranks[delimiter] = (set(widths) == {widths[0]} != {1}, widths[0])
  best = max(ranks, key=ranks.get)
  if best != usual:
    logging.info("%s: columns are separated by %r", path, best)
  return best


def _split_rows(path, text, extension, delimiter, max_rows=None):
  """The rows of a TSV or CSV file and the line on which each starts."""
  if extension == ".tsv" and delimiter == "\t":
    lines = text_files.split_lines(text)[:max_rows]
    rows = _without_empty_end([line.split(delimiter) for line in lines])
    return rows, list(range(1, len(rows) + 1))
  csv.field_size_limit(2**31 - 1)
  # Without `strict`, an unclosed quotation mark swallows the rest of the file.
  reader = csv.reader(
    io.StringIO(text, newline=""), delimiter=delimiter, strict=True
  )
  rows, lines = [], []
  start = 1
  try:
    for row in itertools.islice(reader, max_rows):
      rows.append(row)
      lines.append(start)
      start = reader.line_num + 1
  except csv.Error as error:
    raise UserError(
      f"{path}:{start}: {error} in the row that starts here; close each "
      f"quotation mark, and double those inside of quotes"
    ) from error
  rows = _without_empty_end(rows)
  return rows, lines[: len(rows)]


def _without_empty_end(rows):
  while rows and not any(rows[-1]):
    rows.pop()
  return rows


def _read_parquet(path):
  """The rows of a Parquet file, dicts by column, and their numbers."""
  parquet = import_optional("pyarrow.parquet", path, "requirements-formats.txt")
  import pyarrow

  files.check_is_file(path)
  content = files.read_bytes(path)
  try:
    table = parquet.read_table(pyarrow.BufferReader(content))
    columns = {
      name: _with_names(_plain(table[name]).to_pylist(), names)
      for name, names in _class_names(table.schema).items()
    }
  # The metadata may have another structure, too.
  except (
    *(pyarrow.ArrowException, OSError, ValueError),
    *(LookupError, TypeError, AttributeError),
  ) as error:
    reason = first_line(error)
    raise UserError(
      f"{path} is not a Parquet file that can be read: {reason}; write it again"
    ) from error
  rows = list(sequences.rows_of(columns))
  return rows, list(range(1, len(rows) + 1))


def _plain(column):
  """A column whose decimals are numbers as in JSON."""
  if str(column.type).startswith("decimal"):
    return column.cast("float64" if column.type.scale else "int64")
  return column


def _class_names(schema):
  """For each column, the names of its class labels, or None."""
  # Hugging Face's `datasets` stores numbers, and their names in the metadata.
  metadata = strict_json.loads(
    (schema.metadata or {}).get(b"huggingface", b"{}")
  )
  features = metadata.get("info", {}).get("features", {})
  names = {}
  for name in schema.names:
    feature = features.get(name, {})
    # The labels of lists are one level deeper.
    feature = feature.get("feature", feature)
    names[name] = feature.get("names")
  return names


def _with_names(values, names):
  """Values, with the names of class labels; -1 stands for an unknown label."""
  if not names:
    return values
  return [
    _with_names(value, names)
    if isinstance(value, list)
    else (None if value in (None, -1) else names[value])
    for value in values
  ]


def _read_json_lines(path, text):
  rows, lines = [], []
  for number, line in enumerate(text_files.split_lines(text), start=1):
    if not line.strip(" \t\r"):
      continue
    try:
      row = strict_json.loads(line, allows_nan=True)
      if not isinstance(row, dict):
        raise ValueError(f"{shortened(line.strip())} is not a JSON object")
      if "\\u" in line:  # UTF-8 cannot encode half of a surrogate pair.
        json.dumps(row, ensure_ascii=False).encode()
    except ValueError as error:
      problem = str(error).replace("line 1 column", "column")
      raise UserError(
        f"{path}:{number}: {problem}; write one JSON object per line"
      ) from error
    rows.append(row)
    lines.append(number)
  return rows, lines


def _check_widths(path, rows, lines, delimiter):
  width = len(rows[0]) if rows else 0
  for row, line in zip(rows, lines, strict=True):
    if len(row) == width:
      continue
    remedy = "a tab separates columns, so no text may contain one"
    if row in ([], [""]):
      remedy = "remove the empty line"
    elif width == 1 and (match := re.search("[;\t]", rows[0][0])):
      name = "tab" if match[0] == "\t" else "';'"
      remedy = f"if {name} separates the columns, pass --delimiter={name}"
    elif len(row) < width:
      remedy = "complete the row"
    elif delimiter != "\t":
      name = {",": "comma", ";": "semicolon"}.get(delimiter, repr(delimiter))
      remedy = f"put fields that contain a {name} between quotation marks"
    raise UserError(
      f"{path}:{line}: {plural(len(row), 'column')} where the first line has "
      f"{width}; {remedy}"
    )
