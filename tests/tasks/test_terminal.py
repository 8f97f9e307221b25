"""A conversation on the terminal."""

import io
import types

import pytest

from bert.errors import UserError
from bert.tasks import terminal
from bert.training.task import Task


class Shout(Task):
  """Answers a text in capitals."""

  def example(self, text):
    return text

  def describe(self, answer):
    return answer.upper()


MODEL = types.SimpleNamespace(
  task=Shout(),
  parse=lambda parts: parts.values(),
  answer_examples=lambda examples: examples,
)


def test_a_byte_order_mark_is_no_part_of_the_input():
  lines, shown = iter(["\ufeffJapan"]), []

  def read(prompt):
    for line in lines:
      return line
    raise EOFError

  terminal.converse(MODEL, read=read, write=shown.append)
  assert shown == ["JAPAN", ""]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize(
  "converse", [terminal.converse, terminal.converse_on_files]
)
def test_input_that_is_not_utf8(converse, errors):
  # In the C locale, Python reads with "surrogateescape".
  typed = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8", errors)
  with pytest.raises(UserError, match="standard input is not UTF-8; convert"):
    converse(MODEL, lambda prompt: next(typed), str)


@pytest.mark.parametrize(
  ("line", "text"),
  [
    ("a b", "a b"),
    ("  a \t", "a"),
    ("a ||| b", ("a", "b")),
    ("a ||| b ||| c", ("a ||| b", "c")),
    ("a  |||  b", ("a ", " b")),
    ("a |||", "a |||"),
    ("||| b", "||| b"),
    ("a |||b", "a |||b"),
    ("a||| b", "a||| b"),
    ("||| ||| ", "||| |||"),
    ("", ""),
  ],
)
def test_a_line(line, text):
  assert terminal.parse_line(line) == text
