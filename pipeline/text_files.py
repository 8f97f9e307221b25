"""Lines of UTF-8 text files, plain or in gzip, of which little is in memory."""

import contextlib
import gzip
import math
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import tensorflow as tf

from errors import UserError

_CHUNK_BYTES = 2**20


def read_lines(path: str) -> Iterator[str]:
  """Yields the lines of a UTF-8 text file, or of one in a gzip file (.gz).

  Only \\n ends a line; it and a byte order mark are left out. Little of the
  file is in memory at a time.

  Raises:
    ValueError: there is no such file, it is no whole gzip file, or a line is
      not UTF-8; the message names the line, and the byte, counted from 0.
  """
  for _, line in sized_lines(path):
    yield line.removesuffix("\n")


def sized_lines(
  path: str, start: int = 0, stop: float = math.inf
) -> Iterator[tuple[int, str]]:
  """Yields the size in bytes and the text of each line in a part of a file.

  Args:
    path: as `read_lines` takes it.
    start: where the part begins, in bytes of the unzipped text.
    stop: the part ends with the line that reaches it.

  Raises:
    ValueError: as `read_lines` raises it; or the file ends before `stop`.
  """
  if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
    raise UserError(f"there is no file {path}; correct the path")
  number, position = 0, start
  with contextlib.ExitStack() as stack:
    reader = stack.enter_context(tf.io.gfile.GFile(path, "rb"))
    if path.lower().endswith(".gz"):
      reader = stack.enter_context(gzip.GzipFile(fileobj=reader))
    try:
      reader.seek(start)
      for line in _byte_lines(reader):
        number += 1
        text = line.decode()
        # It may begin with a byte order mark.
        yield len(line), text if position else text.removeprefix("\ufeff")
        position += len(line)
        if position >= stop:
          return
    except UnicodeDecodeError as error:
      raise UserError(
        f"{path}:{number}: byte {position + error.start} is not UTF-8; convert "
        f"the file to UTF-8"
      ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
      raise UserError(
        f"{path} is not a whole gzip file: {error}; fetch or write it again"
      ) from error
  if stop < math.inf:
    raise UserError(
      f"{path} has become shorter since it was first read; give the same "
      f"command again"
    )


def lines_as_they_come(
  reader: BinaryIO, max_lines: int
) -> Iterator[list[bytes]]:
  """Yields lists of the lines that are there, waiting for at least one.

  Args:
    reader: a binary file or pipe; a line ends with \\n, which is left out.
    max_lines: how many lines a list has at the most.
  """
  # `read1` gives what a pipe has so far; `read` would wait for all of it.
  for lines in _line_lists(getattr(reader, "read1", reader.read)):
    for start in range(0, len(lines), max_lines):
      yield [
        line.removesuffix(b"\n") for line in lines[start : start + max_lines]
      ]


def decode_line(line: bytes, where: str) -> str:
  """A line's text, without a byte order mark in front.

  Raises:
    ValueError: it is not UTF-8; the message begins with `where`.
  """
  try:
    return line.decode().removeprefix("\ufeff")
  except UnicodeDecodeError as error:
    raise UserError(
      f"{where}: byte {error.start} of the line is not UTF-8; convert the "
      f"input to UTF-8"
    ) from error


def _byte_lines(reader):
  """Yields the lines of a binary file, each with its end.

  Those that a GFile itself yields have lost each \\r.
  """
  for lines in _line_lists(reader.read):
    yield from lines


def _line_lists(read):
  """Yields lists of whole lines, each with its end, as `read` gives them."""
  rest = []
  while chunk := read(_CHUNK_BYTES):
    first, *others = chunk.split(b"\n")
    rest.append(first)
    if others:
      yield [line + b"\n" for line in (b"".join(rest), *others[:-1])]
      rest = others[-1:]
  last = b"".join(rest)
  if last:
    yield [last]


def decode_utf8(path: str, content: bytes) -> str:
  """A file's content as text, without its byte order mark.

  Raises:
    ValueError: it is not UTF-8; the message names the line and the byte, which
      is counted from 0, the mark among them.
  """
  try:
    return content.decode("utf-8").removeprefix("\ufeff")
  except UnicodeDecodeError as error:
    newline = b"\n" if b"\n" in content else b"\r"
    line = 1 + content.count(newline, 0, error.start)
    raise UserError(
      f"{path}:{line}: byte {error.start} is not UTF-8; convert the file to "
      f"UTF-8"
    ) from error


def split_lines(text: str) -> list[str]:
  """The lines of a text, which end in \\n, \\r\\n or, if all do, in \\r."""
  newline = "\n" if "\n" in text else "\r"
  lines = text.removesuffix(newline).split(newline) if text else []
  return [line.removesuffix("\r") for line in lines]
