"""Reads UTF-8 text, plain or gzip-compressed, whole or line by line."""

import codecs
import contextlib
import functools
import gzip
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from absl import logging

from bert.data import files
from bert.errors import UserError

_CHUNK_BYTES = 2**20

# Separates the texts of a line.
SEPARATOR = " ||| "

# The name of standard input, or standard output.
STREAM = "-"

# First bytes of other files, and the remedy. Excel's workbooks are zip archives
# or, before 2007, compound files.
_EXCEL = 'an Excel workbook; in Excel, save it as "CSV UTF-8"'
_OTHER_FORMATS = {
  # gzip, bzip2, xz and Zstandard.
  rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ|\(\xb5/\xfd": "compressed; decompress it",
  rb"PK\x03\x04.*(\[Content_Types\]|xl/)|\xd0\xcf\x11\xe0": _EXCEL,
  rb"PK\x03\x04": "a zip archive; extract the file from it",
  rb"\xff\xfe|\xfe\xff": "in UTF-16; convert it to UTF-8",
  rb"PAR1": "an Apache Parquet file; give it the extension .parquet",
}

# Byte order marks, the longest first; UTF-16 without one has zeros.
_MARKS = {
  codecs.BOM_UTF8: "utf-8",
  codecs.BOM_UTF32_LE: "utf-32",
  codecs.BOM_UTF32_BE: "utf-32",
  codecs.BOM_UTF16_LE: "utf-16",
  codecs.BOM_UTF16_BE: "utf-16",
  rb"[^\0]\0[^\0]\0": "utf-16-le",
  rb"\0[^\0]\0[^\0]": "utf-16-be",
}


@contextlib.contextmanager
def line_writer(path: str | None) -> Iterator[Callable[[str], object]]:
  """Yields a function that writes a line to a file, in gzip if it ends in .gz.

  The file appears when it is complete. "-" or None is standard output.
  """
  if path in (None, STREAM):
    # A program that sends questions through a pipe may wait for each answer.
    yield functools.partial(print, flush=True)
    return
  with contextlib.ExitStack() as stack:
    writer = stack.enter_context(files.open_atomic(path))
    if path.lower().endswith(".gz"):
      writer = stack.enter_context(gzip.GzipFile("", "wb", 6, writer, mtime=0))
    yield lambda line: writer.write(f"{line}\n".encode())


def texts_of(line: str, most: int | None = None) -> list[str]:
  """The texts of a line, which SEPARATOR separates; at most `most`."""
  return line.strip().rsplit(SEPARATOR, -1 if most is None else most - 1)


def text_or_pair(line: str) -> str | tuple[str, str]:
  """The text of a line, or a pair if SEPARATOR stands between two."""
  text, *others = texts_of(line, 2)
  return (text, *others) if others else text


def read_lines(path: str) -> Iterator[str]:
  """Yields the lines of a UTF-8 text file, or of a gzip file (.gz) of text.

  Only \\n ends a line. It and a byte order mark are removed.
  """
  for _, line in sized_lines(path):
    yield line.removesuffix("\n")


def sized_lines(
  path: str,
  start: int = 0,
  stop: float = math.inf,
  copy_to: BinaryIO | None = None,
) -> Iterator[tuple[int, str]]:
  """Yields the size in bytes and the text of each line in a part of a file.

  The part begins at `start`, in bytes of the uncompressed text, and ends with
  the line that reaches `stop`. `copy_to` gets the uncompressed text, too.
  """
  number, position = 0, start
  with contextlib.ExitStack() as stack:
    reader = stack.enter_context(_open_uncompressed(path))
    if start:  # A pipe can only be read from its beginning.
      reader.seek(start)
    for lines in _line_lists(reader.read, copy_to):
      for line in lines:
        number += 1
        try:
          text = line.decode()
        except UnicodeDecodeError as error:
          raise _not_utf8(f"{path}:{number}", error, position) from error
        yield len(line), text if position else text.removeprefix("\ufeff")
        position += len(line)
        if position >= stop:
          return


@contextlib.contextmanager
def _open_uncompressed(path):
  """Opens a file, or the content of a gzip file, and names it in errors."""
  files.check_is_file(path)
  with files.open_file(path) as reader:
    if not path.lower().endswith(".gz"):
      yield reader
      return
    try:
      with gzip.GzipFile(fileobj=reader) as unzipped:
        yield unzipped
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
      raise UserError(
        f"{path} is not a complete gzip file: {error}; download or create it "
        f"again"
      ) from error


def _not_utf8(where, error, offset=0, encoding=None):
  """The UserError for bytes at an offset that are not UTF-8, or --encoding."""
  content = error.object
  formats = {} if offset else _OTHER_FORMATS
  for pattern, remedy in formats.items():
    if re.match(pattern, content, re.S):
      problem = f"the file is {remedy}"
      break
  else:
    position = offset + error.start
    name = (encoding or "utf-8").upper()
    problem = f"byte {position} is not {name}; convert the file to UTF-8"
    remedy = ", or pass its --encoding" if encoding else ""
    with contextlib.suppress(UnicodeDecodeError):
      content.decode("cp1252")
      way = "pass --encoding=" if encoding else "run iconv -t utf-8 -f "
      remedy = (
        ', from Windows-1252 if it is of Excel: save it there as "CSV UTF-8", '
        f"or {way}cp1252"
      )
    problem += remedy
  return UserError(f"{where}: {problem}")


@contextlib.contextmanager
def open_input(path: str) -> Iterator[tuple[BinaryIO, str]]:
  """Yields a reader of a file, .gz, pipe or "-", and its name for errors."""
  if path == STREAM:
    yield sys.stdin.buffer, "standard input"
    return
  with _open_uncompressed(path) as reader:
    yield reader, path


def lines_as_they_come(
  reader: BinaryIO, name: str, max_lines: int
) -> Iterator[list[tuple[str, str]]]:
  """Yields lists of the lines that have arrived, waiting for at least one.

  A line is a pair: where it is, NAME:NUMBER, and its text, without \\r\\n.
  """
  number = position = 0
  # `read1` returns what a pipe has so far; `read` would wait for all of it.
  for lines in _line_lists(getattr(reader, "read1", reader.read)):
    for start in range(0, len(lines), max_lines):
      batch = []
      for line in lines[start : start + max_lines]:
        number += 1
        where = f"{name}:{number}"
        try:
          text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
        except UnicodeDecodeError as error:
          raise _not_utf8(where, error, position) from error
        batch.append((where, text))
        position += len(line)
      yield batch


def checked(
  reader: BinaryIO, read: Callable[[], Iterator[Any]]
) -> Iterator[Any]:
  """The items of `read`, after a first pass over a file.

  So an error in a file comes before the first item. A pipe is read only once.
  """
  if reader.seekable() and not reader.isatty():
    start = reader.tell()
    for _ in read():
      pass
    reader.seek(start)
  return read()


def _line_lists(read, copy_to=None):
  """Yields lists of whole lines, each with its end, as `read` returns them."""
  rest = []
  while chunk := read(_CHUNK_BYTES):
    if copy_to:
      copy_to.write(chunk)
    first, *others = chunk.split(b"\n")
    rest.append(first)
    if others:
      yield [line + b"\n" for line in (b"".join(rest), *others[:-1])]
      rest = others[-1:]
  last = b"".join(rest)
  if last:
    yield [last]


def read_text(path: str, encoding: str | None = None) -> str:
  """The text of a file, see `read_lines`, in any encoding of `decode_text`."""
  with _open_uncompressed(path) as reader:
    return decode_text(path, reader.read(), encoding)


def decode_text(path: str, content: bytes, encoding: str | None = None) -> str:
  """The content of a file as text, without a byte order mark.

  The encoding is that of the mark, or else --encoding, or else UTF-8.
  """
  marked = (name for mark, name in _MARKS.items() if re.match(mark, content))
  name = next(marked, encoding or "utf-8")
  is_other = not codecs.lookup(name).name.startswith("utf")
  if is_other and not content.isascii():
    with contextlib.suppress(UnicodeDecodeError):
      content.decode()
      logging.warning(
        "%s is UTF-8, but read as %s; pass --encoding=utf-8", path, name
      )
  return _decode(path, content, name, encoding and name)


def _decode(path, content, name="utf-8", encoding=None):
  try:
    return content.decode(name).removeprefix("\ufeff")
  except UnicodeDecodeError as error:
    newline = b"\n" if b"\n" in content else b"\r"
    line = 1 + content.count(newline, 0, error.start)
    raise _not_utf8(f"{path}:{line}", error, 0, encoding) from error


def is_encoding(name: str) -> bool:
  """Whether Python has an encoding of text by this name."""
  try:
    "".encode(name)
  except (LookupError, ValueError, TypeError):
    return False
  return True


def check_utf8(path: str) -> None:
  """Raises UserError unless a file is UTF-8."""
  _decode(path, files.read_bytes(path))


def split_lines(text: str) -> list[str]:
  """The lines of a text, which end in \\n or \\r\\n, or all of them in \\r."""
  newline = "\n" if "\n" in text else "\r"
  lines = text.removesuffix(newline).split(newline) if text else []
  return [line.removesuffix("\r") for line in lines]
