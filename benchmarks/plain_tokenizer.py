"""A straightforward tokenizer without a cache, for comparison.

Its pieces equal those of FullTokenizer.
"""

import unicodedata
from collections.abc import Callable

import tokenization


def make_tokenizer(vocab_file: str) -> Callable[[str], list[str]]:
  """A function from text to word pieces, lower-cased."""
  vocab = tokenization.load_vocab(vocab_file)

  def tokenize(text):
    pieces = []
    for word in _words(text):
      pieces.extend(_wordpieces(word, vocab))
    return pieces

  return tokenize


def _words(text):
  words = []
  for word in _clean(text).split():
    words.extend(_part(_strip_accents(word.lower())).split())
  return words


def _clean(text):
  output = []
  for char in text:
    if ord(char) in (0, 0xFFFD) or tokenization._is_control(char):
      continue
    if tokenization._is_whitespace(char):
      output.append(" ")
    elif tokenization._is_cjk(char):
      output.append(" " + char + " ")
    else:
      output.append(char)
  return "".join(output)


def _strip_accents(text):
  output = []
  for char in unicodedata.normalize("NFD", text):
    if unicodedata.category(char) != "Mn":
      output.append(char)
  return "".join(output)


def _part(text):
  output = []
  for char in text:
    if tokenization._is_punctuation(char):
      output.append(" " + char + " ")
    else:
      output.append(char)
  return "".join(output)


def _wordpieces(word, vocab):
  pieces = []
  start = 0
  while start < len(word) <= 200:
    end = len(word)
    while end > start:
      piece = ("##" if start else "") + word[start:end]
      if piece in vocab:
        break
      end -= 1
    if end == start:
      return ["[UNK]"]
    pieces.append(piece)
    start = end
  return pieces or ["[UNK]"]
