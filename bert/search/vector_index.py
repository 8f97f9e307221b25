"""A folder of texts, vectors and words, which search reads from the disk.

    with locked("faq_index"):
      update("faq_index", header, None, [], [(rows, vectors)])
    index = VectorIndex("faq_index")
    scores, numbers = index.top_k(queries, 10)[0]
    index.rows(numbers)[0].text

A block of rows is a NumPy array of vectors, a file of JSON Lines with an id, a
text and fields on each line, and the offsets of these lines. A folder has the
words of all rows, if they are wanted. index.json names the blocks and the
folder, with checksums. It is replaced when new ones are written beside the old
ones, so an interrupted update changes nothing. The next update deletes the old
ones, which another process may be opening.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import orjson

from bert import strict_json
from bert.data import files, folder_lock, top_k
from bert.errors import UserError, first_line
from bert.models import resolve
from bert.search import lexical

NAME = "index.json"
DTYPES = ("float32", "float16")

# A smaller last block is rewritten for new rows; any block, for removed rows.
BLOCK_BYTES = 2**27

# Vectors per product: they stay in the processor's cache.
_CHUNK = 512

# Queries per product.
_QUERIES = 1024


class Row(NamedTuple):
  """A text of an index, its unique id, and more values of any JSON type."""

  id: str
  text: str
  fields: dict


@dataclasses.dataclass(frozen=True)
class Header:
  """What all rows of an index have in common."""

  model: str  # Folder or name of the model that made the vectors.
  fingerprint: str  # A hash of this model.
  width: int  # The size of a vector.
  dtype: str = "float16"  # One of DTYPES, in which vectors are stored.
  text_column: str = "text"  # Column of the table that was indexed.
  id_column: str = "id"  # Its column of ids, which may be missing.


class Block:
  """`count` rows in files whose names begin with `path`.

  `size` is the number of bytes of the file of rows, and `crc32` is of the
  vectors.
  """

  def __init__(
    self, path: str, header: Header, count: int, size: int, crc32: int
  ):
    self.path, self.size, self.crc32 = path, size, crc32
    shape = (count, header.width)
    self._vectors = _mapped(f"{path}.npy", shape, header.dtype)
    self._offsets = _mapped(f"{path}.offsets.npy", (count + 1,), "int64")
    # Mapped files can be read even after an update has deleted them.
    self._lines = _mapped(f"{path}.jsonl", (size,), "uint8")

  def __len__(self) -> int:
    return len(self._vectors)

  @functools.cached_property
  def vectors(self) -> np.ndarray:
    """The vectors [rows, width]; UserError if they have changed."""
    if zlib.crc32(np.ascontiguousarray(self._vectors)) != self.crc32:
      raise files.damaged(f"{self.path}.npy", "its checksum differs")
    return self._vectors

  def rows(self, numbers: Iterable[int] | None = None) -> Iterator[Row]:
    """Yields the rows with these numbers; by default all, in order."""
    if numbers is None:
      lines = self._lines.tobytes().splitlines()
    else:
      ends = (self._offsets[n : n + 2].tolist() for n in numbers)
      lines = (self._lines[start:end].tobytes() for start, end in ends)
    for line in lines:
      try:
        yield Row(**orjson.loads(line))
      except (TypeError, ValueError) as error:
        reason = f"a line is no row: {error}"
        raise files.damaged(f"{self.path}.jsonl", reason) from error


def _open_block(folder, header, name, **rest):
  return Block(os.path.join(folder, name), header, **rest)


def _mapped(path, shape, dtype):
  """The array or, as uint8, the bytes of a file; read when they are used."""
  try:
    if dtype == "uint8":
      array = np.asarray(np.memmap(path, dtype, "r"))
    else:
      array = np.asarray(np.load(path, mmap_mode="r"))
    if (array.shape, array.dtype) != (shape, dtype):
      raise ValueError(
        f"it has {array.dtype} {list(array.shape)} instead of {dtype} "
        f"{list(shape)}"
      )
  except Exception as error:  # NumPy parses a header as Python.
    raise files.damaged(path, first_line(error)) from error
  return array


class VectorIndex:
  """The index in a folder: its `header`, its `blocks`, and perhaps words.

  `word_files` is the entry of the words in index.json, or None. Names of files
  begin with one of `file_numbers`.
  """

  def __init__(self, folder: str):
    path = os.path.join(folder, NAME)
    content = files.read_json(path, dict)
    if content is None:
      raise UserError(
        f"--index={folder} holds no index; write one with --input_file"
      )
    try:
      blocks = content.pop("blocks")
      self.next_block = content.pop("next_block")
      self.word_files = content.pop("words", None)
      entries = [*blocks, *filter(None, [self.word_files])]
      self.file_numbers = {entry["name"][:6] for entry in entries}
      self.header = Header(**content)
      self.blocks = [
        _open_block(folder, self.header, **block) for block in blocks
      ]
    except UserError:
      raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
      raise files.damaged(folder, repr(error)) from error
    self._folder = folder
    self._starts = list(itertools.accumulate(map(len, self.blocks), initial=0))

  @functools.cached_property
  def words(self) -> lexical.WordIndex:
    """The words of all rows; UserError for an index without them."""
    if not self.word_files:
      raise UserError(
        f"--index={self._folder} has no words to search; repeat the command "
        f"that made it, with --search=hybrid: it adds them, and encodes no "
        f"text again"
      )
    path = os.path.join(self._folder, self.word_files["name"])
    return lexical.WordIndex(path, self.word_files["crc32"])

  def __len__(self) -> int:
    return self._starts[-1]

  def numbered_blocks(self) -> Iterator[tuple[int, Block]]:
    """Yields each block with the number of its first row."""
    return zip(self._starts, self.blocks, strict=False)

  def _blocks_of(self, numbers):
    """Yields the block of each row, and the number of the row in it."""
    for number in map(int, numbers):
      index = bisect.bisect_right(self._starts, number) - 1
      yield self.blocks[index], number - self._starts[index]

  def rows(self, numbers: Sequence[int]) -> list[Row]:
    """The rows with these numbers, counted from 0."""
    return [next(block.rows([n])) for block, n in self._blocks_of(numbers)]

  def vectors(self, numbers: Sequence[int]) -> np.ndarray:
    """The vectors of these rows, float32 [rows, width]."""
    vectors = np.empty([len(numbers), self.header.width], np.float32)
    for vector, (block, number) in zip(
      vectors, self._blocks_of(numbers), strict=True
    ):
      vector[:] = block.vectors[number]
    return vectors

  def numbers(self) -> dict[str, int]:
    """The number of each row by its id."""
    rows = (row for block in self.blocks for row in block.rows())
    return {row.id: number for number, row in enumerate(rows)}

  def top_k(self, queries: np.ndarray, k: int) -> list[top_k.Hits]:
    """The k rows with the largest products with queries, float32 [Q, width].

    Returns for each query the scores, float32 [k], largest first, and the
    numbers of the rows, int64 [k]. For equal scores, the lower number is first.
    """
    hits = []
    for start in range(0, len(queries), _QUERIES):
      best = top_k.Best(len(queries[start : start + _QUERIES]), k)
      for first, scores in self._scores(queries[start : start + _QUERIES]):
        best.add(first, scores)
      hits += best.hits
    return hits

  def _scores(self, queries):
    """Yields numbers of first rows, and the scores [Q, _CHUNK] from there."""
    bits = None
    if self.header.dtype == "float16":
      bits = np.empty([_CHUNK, self.header.width], np.int32)
      queries = queries * np.float32(2.0**112)
    for first, block in self.numbered_blocks():
      for start in range(0, len(block), _CHUNK):
        vectors = block.vectors[start : start + _CHUNK]
        if bits is not None:
          vectors = _as_floats(vectors, bits[: len(vectors)])
        yield first + start, queries @ vectors.T


def _as_floats(vectors, bits):
  """The float32 values of float16 vectors, times 2^-112, in place of `bits`.

  This takes less than half of NumPy's time and is exact for finite numbers: the
  shifted bits are those of a float32 whose exponent is 112 too low.
  """
  bits[...] = vectors.view(np.int16)
  bits <<= 13
  bits &= ~0x7000_0000  # The sign was extended into the exponent.
  return bits.view(np.float32)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
  """Creates the folder of an index if needed, and locks it."""
  files.make_local_folder(folder)
  try:
    with folder_lock.lock_folder(folder):
      yield
  finally:
    with contextlib.suppress(OSError):  # It is not empty.
      os.rmdir(folder)


def update(
  folder: str,
  header: Header,
  index: VectorIndex | None,
  removed: Collection[int],
  added: Iterable[tuple[Sequence[Row], np.ndarray]],
  model: resolve.Model | None = None,
) -> None:
  """Changes the index in a folder, which `locked` has locked.

  Args:
    folder, header: where the index is, and its new header.
    index: the index in the folder; None if there is none.
    removed: the numbers of rows to remove.
    added: lists of new rows, and their vectors [rows, width].
    model: its tokenizer splits words; None for an index without words.
  """
  # An index may be empty, which makes it false.
  writer = _Writer(folder, header, 1 if index is None else index.next_block)
  is_removed = np.zeros(len(index or ()), bool)
  is_removed[list(removed)] = True
  for first, block in index.numbered_blocks() if index else ():
    stays = np.flatnonzero(~is_removed[first : first + len(block)])
    is_last = block is index.blocks[-1]
    if len(stays) == len(block) and (not is_last or writer.is_full(block)):
      writer.keep(block)
    else:
      writer.add(list(block.rows(stays)), block.vectors[stays])
  for rows, vectors in added:
    writer.add(rows, vectors)
  writer.finish(index, model)


class _Writer:
  def __init__(self, folder, header, next_block):
    self._folder, self._header = folder, header
    self._next = next_block
    self._dtype = np.dtype(header.dtype)
    self._most = max(1, BLOCK_BYTES // (self._dtype.itemsize * header.width))
    self._blocks = []
    self._rows, self._vectors = [], []

  def is_full(self, block):
    return len(block) == self._most

  def keep(self, block):
    self._flush()
    name = os.path.basename(block.path)
    entry = {"name": name, "count": len(block), "size": block.size}
    self._blocks.append({**entry, "crc32": block.crc32})

  def add(self, rows, vectors):
    self._rows += rows
    self._vectors.append(vectors.astype(self._dtype, copy=False))
    while len(self._rows) >= self._most:
      self._flush()

  def _flush(self):
    if not self._rows:
      return
    rows, self._rows = self._rows[: self._most], self._rows[self._most :]
    waiting = np.concatenate(self._vectors)
    vectors, self._vectors = waiting[: self._most], [waiting[self._most :]]
    name = f"{self._next:06}"
    self._next += 1
    path = os.path.join(self._folder, name)
    option = orjson.OPT_APPEND_NEWLINE
    lines = [orjson.dumps(row._asdict(), option=option) for row in rows]
    offsets = np.cumsum([0, *map(len, lines)], dtype=np.int64)
    with files.open_atomic(f"{path}.jsonl") as writer:
      writer.writelines(lines)
    for extension, array in ((".npy", vectors), (".offsets.npy", offsets)):
      with files.open_atomic(path + extension) as writer:
        np.save(writer, array)
    entry = {"name": name, "count": len(rows), "size": int(offsets[-1])}
    self._blocks.append({**entry, "crc32": zlib.crc32(vectors)})

  def _write_words(self, model):
    blocks = [
      _open_block(self._folder, self._header, **entry) for entry in self._blocks
    ]
    texts = (row.text for block in blocks for row in block.rows())
    name = f"{self._next:06}.words"
    self._next += 1
    path, count = os.path.join(self._folder, name), sum(map(len, blocks))
    return {"name": name, "crc32": lexical.write(path, model, texts, count)}

  def finish(self, index, model):
    """Makes the blocks the index; keeps the files of the `index` before."""
    self._flush()
    content = dataclasses.asdict(self._header)
    if model:
      content["words"] = self._write_words(model)
    content |= {"next_block": self._next, "blocks": self._blocks}
    path = os.path.join(self._folder, NAME)
    files.write_file(path, strict_json.dumps(content))
    used = VectorIndex(self._folder).file_numbers
    used |= set() if index is None else index.file_numbers
    for name in files.listdir(self._folder):
      # A file of an older index, or of an interrupted update.
      if re.match(r"\d{6}\.", name) and name[:6] not in used:
        old = os.path.join(self._folder, name)
        (files.remove_tree if files.isdir(old) else files.remove)(old)
