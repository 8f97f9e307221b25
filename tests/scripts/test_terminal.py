"""A conversation on the terminal."""

import io
import types

import pytest

from bert.contract.task import Task
from bert.data import text_files
from bert.errors import UserError
from bert.scripts import terminal


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


def test_a_byte_order_mark_is_no_part_of_the_input(monkeypatch, capsys):
  monkeypatch.setattr("sys.stdin", io.StringIO("\ufeffJapan\n"))
  terminal.converse(MODEL)
  assert capsys.readouterr().out == "> JAPAN\n> \n"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize(
  "converse", [terminal.converse, terminal.converse_on_files]
)
def test_input_that_is_not_utf8(converse, errors, monkeypatch):
  # In the C locale, Python reads with "surrogateescape".
  typed = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8", errors)
  monkeypatch.setattr("sys.stdin", typed)
  with pytest.raises(UserError, match="standard input is not UTF-8; convert"):
    converse(MODEL)


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
  assert text_files.text_or_pair(line) == text
