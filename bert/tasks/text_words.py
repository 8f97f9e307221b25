"""Splits plain text into words, and joins words to text."""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def split_text(text: str) -> list[tuple[int, int]]:
  """The words of a plain text, as offsets of their first character and end.

  A word is a Chinese character; an abbreviation such as U.S.; an initial such
  as W. before a capitalized word; 's; letters and digits, with hyphens,
  apostrophes and similar signs inside, and commas and colons between digits; or
  any other sign. `marks` belong to what they follow; no word begins with a
  character that tokenizers drop. An elided article is a word of its own:
  d'Orsay has three.
  """
  return [match.span() for match in _text_words().finditer(text)]


def marks() -> str:
  """The characters that combine with others, or only format them."""
  return _characters("Mn", "Mc", "Me", "Cf")


def dropped() -> str:
  """The control and format characters, and the one for what is unknown."""
  return _characters("Cc", "Cf") + "\ufffd"


def capitals() -> str:
  """The capital letters."""
  return _characters("Lu")


@functools.cache
def _characters(*categories):
  """The characters of Unicode categories."""
  characters = map(chr, range(sys.maxunicode + 1))
  return "".join(c for c in characters if unicodedata.category(c) in categories)


@functools.cache
def _text_words():
  """The pattern of a word."""
  mark, no_start, capital = (
    f"[{re.escape(c)}]" for c in (marks(), dropped(), capitals())
  )
  letter, first = rf"[^\W{CHINESE}]", rf"[^\W\dsS{CHINESE}]"
  number = r"\d(?:[,:]\d)*"
  rest = f"(?:{number}|{letter}|{mark})*"
  letters = f"(?:{number}|{letter}){rest}"
  joint = f"(?:(?<![a-z])['’]|['’](?!{capital}))"
  return re.compile(
    rf"[{CHINESE}]{mark}*|(?:[A-Za-z]\.){{2,}}|"
    rf"\b{capital}\.(?=\s+{capital})|['’][sS]\b|"
    f"{letters}(?:[-./@&+]{letters}|{joint}(?:{first}|[sS]{letter}){rest})*|"
    rf"(?!{no_start})[^\w\s]{mark}*"
  )


def join_words(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
  """The words separated by blanks, and the offsets of each."""
  ends = list(itertools.accumulate(len(word) + 1 for word in words))
  starts = [0, *ends[:-1]]
  return " ".join(words), [
    (a, b - 1) for a, b in zip(starts, ends, strict=True)
  ]
