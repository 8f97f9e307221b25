"""Reads texts and writes files of features, see docs/features.md."""

import contextlib
import gzip
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import orjson

from bert.data import files, text_files
from bert.data.masked_text import Text
from bert.engine import batches
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError, import_optional
from bert.tasks.embeddings.vectors import Features

Write = Callable[[Sequence[Features]], None]

# Size limit of the values and rows of a window. With a large model or long
# texts, SORTED_ROWS texts would need gigabytes.
WINDOW_BYTES = 2**27

# Approximate bytes of a word piece in an input row: its string, its id, and
# their list entries.
PIECE_BYTES = 128


def read_texts(
  path: str, check: Callable[[Text, int], object] = lambda text, number: None
) -> Iterator[Iterable[Text]]:
  """Yields the texts of a file in one block, or of a pipe in blocks.

  A block of a pipe contains the lines that have arrived. Use up a block before
  requesting the next. `check` is called with each text of a file and the number
  of its line, from 1, before the block is yielded.
  """
  if files.is_remote(path) or os.path.isfile(path):
    # Read the file twice: an error in a late line would otherwise be reported
    # only after hours of computation.
    number = 0
    for number, line in enumerate(text_files.read_lines(path), 1):
      check(text_files.text_or_pair(line), number)
    yield map(text_files.text_or_pair, text_files.read_lines(path))
  else:  # A pipe, such as <(command) in a shell.
    number = 0
    with text_files.open_input(path) as (reader, path):
      for lines in text_files.lines_as_they_come(
        reader, path, batches.SORTED_ROWS
      ):
        yield [text_files.text_or_pair(text) for _, text in lines]
        number += 1
  files.check_holds(number, path, "lines", "pass one text per line")


def windows(
  model: LoadedModel,
  blocks: Iterable[Iterable[Text]],
  progress: Callable[[int], object] = lambda count: None,
) -> Iterator[list[Features]]:
  """Yields the features of any number of texts, in order, in bounded memory.

  Texts of similar length within a window share a batch. A window ends with its
  block, so all features of a block are yielded before the next block is
  requested. `progress` gets the number of texts of each batch.
  """
  task = model.task
  vector_bytes = 4 * int(np.prod(task.vector_shape(model.config)))
  for block in blocks:
    examples, size = [], 0
    for text in block:
      parts = (text,) if isinstance(text, str) else text
      examples.append(task.example(*parts))
      rows = examples[-1].rows
      pieces = sum(len(row["input_ids"]) for row in rows)
      count = len(rows) if task.is_pooled else pieces
      size += count * vector_bytes + pieces * PIECE_BYTES
      if len(examples) == batches.SORTED_ROWS or size >= WINDOW_BYTES:
        yield model.answer_examples(examples, progress)
        examples, size = [], 0
    if examples:
      yield model.answer_examples(examples, progress)


def format_of(path: str) -> str:
  """The format of a file's extension; default: jsonl."""
  name = os.path.basename(path.lower().removesuffix(".gz"))
  _, dot, extension = name.rpartition(".")
  return extension if dot and extension in _WRITERS else "jsonl"


def check_output(path: str) -> None:
  """Raises UserError unless the format of a file can be written."""
  file_format = format_of(path)
  if path.lower().endswith(".gz") and file_format != "jsonl":
    raise UserError(
      f"--output_file={path}: only JSON Lines can be .gz; remove .gz"
    )
  if file_format == "parquet":
    import_optional(
      "pyarrow.parquet", f"--output_file={path}", "requirements-formats.txt"
    )


@contextlib.contextmanager
def open_features(path: str, model: LoadedModel) -> Iterator[Write]:
  """Yields a function that appends features to a file, or to "-", stdout.

  The extension selects the format. The file appears when it is complete.
  """
  with contextlib.ExitStack() as stack:
    is_stream = path == text_files.STREAM
    if is_stream:
      file = sys.stdout.buffer
    else:
      file = stack.enter_context(files.open_atomic(path))
    file = stack.enter_context(_Unseekable(file))
    if path.lower().endswith(".gz"):
      file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
    write = stack.enter_context(_WRITERS[format_of(path)](file, model))

    def write_and_flush(rows):
      write(rows)
      file.flush()

    # In gs://, each flush would upload the whole file.
    yield write_and_flush if is_stream else write


class _Unseekable(io.RawIOBase):
  """A file that reports it cannot seek, because remote files cannot."""

  def __init__(self, file):
    self._file = file

  def writable(self):
    return True

  def write(self, content):
    self._file.write(bytes(content))
    return len(content)

  def flush(self):
    self._file.flush()


@contextlib.contextmanager
def _json_writer(file, model):
  numbers = itertools.count()

  def write(rows):
    for row in rows:
      file.write(_json_line(next(numbers), row, model.task.settings.layers))

  yield write


def _json_line(number, row, layers):
  # In float64 this rounds as Python does: the product of a float32 and 10^6 is
  # exact, and so is the division of the nearest integer by 10^6.
  if row.vector is not None:
    content = {"vector": np.round(row.vector.astype(np.float64), 6)}
  else:
    values = np.round(row.values.astype(np.float64), 6)
    content = {
      "features": [
        {
          "token": token,
          "layers": [
            {"index": layer, "values": vector}
            for layer, vector in zip(layers, vectors, strict=True)
          ],
        }
        for token, vectors in zip(row.tokens, values, strict=True)
      ]
    }
  return orjson.dumps(
    {"linex_index": number, **content},
    option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE,
  )


@contextlib.contextmanager
def _npz_writer(file, model):
  """Holds all features in memory, as do the readers of .npz files."""
  rows = []
  yield rows.extend
  arrays = {"layers": np.array(model.task.settings.layers, np.int64)}
  empty = np.empty(
    [0, *model.task.vector_shape(model.config)], model.task.settings.dtype
  )
  if model.task.is_pooled:
    vectors = [row.vector[np.newaxis] for row in rows]
    arrays["vectors"] = np.concatenate([empty, *vectors])
  else:
    words = [row.orig_to_tok_map for row in rows]
    arrays |= {
      "tokens": np.array([t for row in rows for t in row.tokens], str),
      "offsets": np.cumsum([0, *(len(row.tokens) for row in rows)]),
      "orig_to_tok_map": np.array([i for row in words for i in row], np.int32),
      "word_offsets": np.cumsum([0, *map(len, words)]),
      "values": np.concatenate([empty, *(row.values for row in rows)]),
    }
  np.savez(file, **arrays)


@contextlib.contextmanager
def _parquet_writer(file, model):
  import pyarrow
  import pyarrow.parquet

  floats = pyarrow.list_(pyarrow.from_numpy_dtype(model.task.settings.dtype))
  columns = {"vectors": floats}
  if not model.task.is_pooled:
    columns = {
      "tokens": pyarrow.list_(pyarrow.string()),
      "orig_to_tok_map": pyarrow.list_(pyarrow.int32()),
      "values": floats,
    }
  schema = pyarrow.schema(
    {"linex_index": pyarrow.int64(), **columns},
    metadata={"layers": ",".join(map(str, model.task.settings.layers))},
  )
  numbers = itertools.count()

  def write(rows):
    table = {"linex_index": [next(numbers) for _ in rows]}
    if model.task.is_pooled:
      table["vectors"] = [row.vector for row in rows]
    else:
      table["tokens"] = [row.tokens for row in rows]
      table["orig_to_tok_map"] = [row.orig_to_tok_map for row in rows]
      table["values"] = [row.values.reshape(-1) for row in rows]
    writer.write_table(pyarrow.table(table, schema))

  # Such numbers hardly compress; a dictionary does reduce tokens.
  with pyarrow.parquet.ParquetWriter(
    file, schema, compression="none", use_dictionary=["tokens.list.element"]
  ) as writer:
    yield write


_WRITERS = {
  "jsonl": _json_writer,
  "npz": _npz_writer,
  "parquet": _parquet_writer,
}
