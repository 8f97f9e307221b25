"""Splits plain text into words, and joins words to text."""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence

import tokenization
from bert.errors import UserError, shortened

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def check_has_words(
  tokenizer: tokenization.FullTokenizer, text: str, where: str
) -> None:
  """Raises UserError for a text without a word that a model reads."""
  if not any(map(tokenizer.tokenize, text.split())):
    shown = shortened(repr(text))
    raise UserError(f"{where} is {shown}, without a word; pass some")


def split_text(text: str) -> list[tuple[int, int]]:
  """The words of a plain text, as offsets of their first character and end.

  A word is a Chinese character; an abbreviation such as U.S.; an initial such
  as W. before a capitalized word; 's; letters and digits, with hyphens,
  apostrophes and similar signs inside, and commas and colons between digits; or
  any other sign. Marks belong to what they follow; no word begins with a
  character that tokenizers drop. An elided article is a word of its own:
  d'Orsay has three.
  """
  return [match.span() for match in _text_words().finditer(text)]


def _characters(*categories):
  """The characters of Unicode categories, escaped."""
  characters = map(chr, range(sys.maxunicode + 1))
  return re.escape(
    "".join(c for c in characters if unicodedata.category(c) in categories)
  )


@functools.cache
def _text_words():
  # Marks combine with other characters, or only format them.
  mark = f"[{_characters('Mn', 'Mc', 'Me', 'Cf')}]"
  no_start = f"[{_characters('Cc', 'Cf')}\ufffd]"
  capital = f"[{_characters('Lu')}]"
  letter, first = rf"[^\W{_CHINESE}]", rf"[^\W\dsS{_CHINESE}]"
  number = r"\d(?:[,:]\d)*"
  rest = f"(?:{number}|{letter}|{mark})*"
  letters = f"(?:{number}|{letter}){rest}"
  joint = f"(?:(?<![a-z])['’]|['’](?!{capital}))"
  return re.compile(
    rf"[{_CHINESE}]{mark}*|(?:[A-Za-z]\.){{2,}}|"
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
