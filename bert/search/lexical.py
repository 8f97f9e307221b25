"""Search by words: BM25 (Robertson & Zaragoza 2009) of a model's word pieces.

    crc32 = write("faq_index/000002.words", resolve("faq"), texts, len(texts))
    words = WordIndex("faq_index/000002.words", crc32)
    scores, numbers = words.top_k(["error E-1042"], 10)[0]

The folder has the files of bm25s, and the model's tokenizer: a search needs no
model, and its pieces fit those of the texts even if the model has changed.
"""

import logging as python_logging
import os
import zlib
from collections.abc import Iterable, Sequence
from types import ModuleType

import numpy as np
from absl import logging

from bert.data import files, progress, top_k
from bert.errors import first_line, import_optional, plural
from bert.models import model_folder
from bert.models.resolve import Model, Overrides, load_tokenizer
from tokenization import FullTokenizer


def import_bm25s() -> ModuleType:
  """The package; UserError if it is not installed."""
  package = import_optional(
    "bm25s", "--search by words", "requirements-search.txt"
  )
  # It passes all messages on, also those for debugging.
  python_logging.getLogger("bm25s").setLevel(python_logging.WARNING)
  return package


def pieces(tokenizer: FullTokenizer, text: str) -> list[str]:
  """The word pieces of a text or a query; upper and lower case are equal.

  Unknown words are left out, as they have nothing in common.
  """
  found = tokenizer.tokenize_behind_blank(text.lower())
  return [piece for piece in found if piece != tokenizer.unk_token]


def write(folder: str, model: Model, texts: Iterable[str], count: int) -> int:
  """Writes the words of `count` texts to a new folder; returns a checksum."""
  logging.info("Indexing the words of %s", plural(count, "text"))
  ids, numbers = [], {}
  for text in progress.bar(texts, total=count, unit="text"):
    found = pieces(model.tokenizer, text)
    ids.append([numbers.setdefault(piece, len(numbers)) for piece in found])
  bm25 = import_bm25s().BM25()
  with np.errstate(invalid="ignore"):  # The mean length may be 0.
    bm25.index(
      (ids or [[]], numbers), create_empty_token=False, show_progress=False
    )
  bm25.save(folder)
  for name, content in model.contents().items():
    files.write_file(os.path.join(folder, name), content)
  return _checksum(folder)


def _checksum(folder):
  found = 0
  for name in sorted(os.listdir(folder)):
    if name.startswith("."):  # Of a desktop or a network drive.
      continue
    content = np.memmap(os.path.join(folder, name), np.uint8, "r")
    found = zlib.crc32(content, found)
  return found


class WordIndex:
  """The word pieces of texts in a folder, and their `tokenizer`."""

  def __init__(self, folder: str, crc32: int):
    bm25s = import_bm25s()
    try:
      if _checksum(folder) != crc32:
        raise ValueError("its checksum differs")
      self._bm25 = bm25s.BM25.load(folder, mmap=True)
    except (OSError, ValueError) as error:
      raise files.damaged(folder, first_line(error)) from error
    path = model_folder.find_vocabulary(folder)
    flag = "spm_model_file" if path.endswith(".model") else "vocab_file"
    self.tokenizer = load_tokenizer(Overrides(**{flag: path}))

  def top_k(self, queries: Sequence[str], k: int) -> list[top_k.Hits]:
    """The k best rows of each query, in the form of `VectorIndex.top_k`.

    Rows without a word of the query are left out. The scores are those of
    Lucene's variant of BM25, with k1 = 1.5 and b = 0.75.
    """
    hits = []
    for query in queries:
      best = top_k.Best(1, k)
      if ids := self._bm25.get_tokens_ids(pieces(self.tokenizer, query)):
        scores = self._bm25.get_scores_from_ids(ids)
        numbers = np.flatnonzero(scores)
        best.add_rows(0, numbers, scores[numbers])
      hits += best.hits
    return hits
