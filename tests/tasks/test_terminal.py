"""A conversation on the terminal."""

import io

import pytest

from bert.errors import UserError
from bert.tasks import squad_reader, terminal


def test_a_byte_order_mark_is_no_part_of_the_input():
  lines, shown = iter(["\ufeffJapan"]), []

  def read(prompt):
    for line in lines:
      return line
    raise EOFError

  terminal.converse(str.upper, read=read, write=shown.append)
  assert shown == ["JAPAN", ""]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize(
  "converse",
  [
    lambda read: terminal.converse(str, read=read, write=str),
    lambda read: squad_reader.converse(None, read, str),
  ],
)
def test_input_that_is_not_utf8(converse, errors):
  # In the C locale, Python reads with "surrogateescape".
  typed = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8", errors)
  with pytest.raises(UserError, match="standard input is not UTF-8; convert"):
    converse(lambda prompt: next(typed))
