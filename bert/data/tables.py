"""Tables of text: TSV, CSV and JSON Lines files, plain or gzip-compressed."""

import collections
import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Iterator

from bert.errors import UserError, did_you_mean, listing, plural, shortened
from bert.data import text_files


@dataclasses.dataclass(frozen=True)
class Table:
  """The rows of a file.

  Attributes:
    path: the file.
    names: names of the columns; None if the file has no header. For JSON Lines,
      the keys of all objects in order of their first appearance.
    rows: a list for each row. Its values are str; for JSON Lines, any JSON
      values, and None for a key that the object lacks.
    lines: the line on which each row starts, counted from 1.
  """

  path: str
  names: list[str] | None
  rows: list[list]
  lines: list[int]

  def column_index(self, column: str | int, flag: str) -> int:
    """The index of a column.

    Args:
      column: its name or, if no column has this name, its index, which counts
        from the end if it is negative.
      flag: the flag that named it, without dashes, for errors.

    Raises:
      UserError: there is no such column.
    """
    found, width = self.find_column(column), len(self.rows[0])
    if found is not None:
      return found
    if self.names is None:
      remedy = f"without a header, pass an index from {-width} to {width - 1}"
    else:
      remedy = f"its columns are {listing(self.names)}"
    if width == 1:
      remedy += "; .tsv files separate columns by tabs, .csv files by commas"
    elif self.names is not None:
      remedy += did_you_mean(str(column), self.names)
    raise UserError(
      f"--{flag}={column}: {self.path} has no such column; {remedy}"
    )

  def find_column(self, column: str | int) -> int | None:
    """As `column_index`; None if there is no such column."""
    column, width = str(column), len(self.rows[0])
    if self.names is not None and column in self.names:
      return self.names.index(column)
    if re.fullmatch(r"-?[0-9]{1,9}", column) and -width <= int(column) < width:
      return int(column) % width
    return None

  def named_rows(self) -> Iterator[tuple[str, dict]]:
    """Yields the file and line of each row, and its values by column."""
    for line, row in zip(self.lines, self.rows, strict=True):
      yield f"{self.path}:{line}", dict(zip(self.names, row, strict=True))


def read_table(path: str | os.PathLike, header: bool = True) -> Table:
  """Reads a .tsv, .csv, .jsonl or .json file, or one of these with .gz.

  The text is UTF-8, with or without a byte order mark. Quotation marks have no
  meaning in TSV files. In CSV files, quoted fields may contain line breaks.
  JSON files have one object per line. Empty lines at the end are ignored, in
  JSON files everywhere.

  Args:
    path: the file.
    header: whether the first line of a TSV or CSV file names the columns.

  Raises:
    UserError: the file is missing, damaged or without rows, or the rows differ
      in their number of columns. The message has the file and the line.
  """
  path = os.fspath(path)
  extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
  if extension not in _READERS:
    raise UserError(
      f"{path} has none of the known extensions {', '.join(_READERS)}, each "
      f"also with .gz; export or convert the file"
    )
  rows, lines = _READERS[extension](path, text_files.read_text(path))
  if not rows:
    raise UserError(f"{path} is empty; pass a file with rows")
  if isinstance(rows[0], dict):
    names = list(dict.fromkeys(key for row in rows for key in row))
    rows = [[row.get(name) for name in names] for row in rows]
    return Table(path, names, rows, lines)
  names = rows[0]
  if header and names in ([], [""]):
    raise UserError(f"{path}:1: the header is empty; name the columns there")
  _check_widths(path, extension, rows, lines)
  if not header:
    return Table(path, None, rows, lines)
  name, count = collections.Counter(names).most_common(1)[0]
  if count > 1:
    raise UserError(
      f"{path}:1: the header names {count} columns {name!r}; rename one"
    )
  if len(rows) == 1:
    raise UserError(f"{path} has a header and no rows; pass a file with rows")
  return Table(path, names, rows[1:], lines[1:])


def _read_tsv(path, text):
  rows = [line.split("\t") for line in text_files.split_lines(text)]
  while rows and rows[-1] == [""]:
    rows.pop()
  return rows, list(range(1, len(rows) + 1))


def _read_csv(path, text):
  csv.field_size_limit(2**31 - 1)
  # Without `strict`, an unclosed quotation mark swallows the rest of the file.
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
      f"quotation mark, and double those inside of quotes"
    ) from error
  while rows and not rows[-1]:
    rows.pop()
  return rows, lines[: len(rows)]


def _read_json_lines(path, text):
  rows, lines = [], []
  for number, line in enumerate(text_files.split_lines(text), start=1):
    if not line.strip(" \t\r"):
      continue
    try:
      row = json.loads(line)
      if "\\u" in line:  # UTF-8 cannot encode half of a surrogate pair.
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
      half = ord(error.object[error.start])
      raise UserError(
        f"{path}:{number}: \\u{half:04x} is half of a surrogate pair; add the "
        f"other half, or remove it"
      ) from error
    except (ValueError, RecursionError) as error:
      problem = str(error).replace("line 1 column", "column")
      raise UserError(
        f"{path}:{number}: {problem}; write one JSON object per line"
      ) from error
    if not isinstance(row, dict):
      raise UserError(
        f"{path}:{number}: {shortened(line.strip())} is not a JSON object"
      )
    rows.append(row)
    lines.append(number)
  return rows, lines


_READERS = {
  ".tsv": _read_tsv,
  ".csv": _read_csv,
  ".jsonl": _read_json_lines,
  ".json": _read_json_lines,
}

# Of the files that `read_table` knows.
EXTENSIONS = tuple(_READERS)


def _check_widths(path, extension, rows, lines):
  width = len(rows[0])
  for row, line in zip(rows, lines, strict=True):
    if len(row) == width:
      continue
    remedy = "a tab separates columns, so no text may contain one"
    if row in ([], [""]):
      remedy = "remove the empty line"
    elif extension == ".csv":
      remedy = "put fields that contain a comma between quotation marks"
    raise UserError(
      f"{path}:{line}: {plural(len(row), 'column')} where the first line has "
      f"{width}; {remedy}"
    )
