"""Reads texts and writes files of features, see docs/features.md."""

import contextlib
import gzip
import io
import itertools
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import orjson
import tensorflow as tf

from errors import UserError
from pipeline import files, records, text_files
from tasks.features import FeatureExtractor, Features, Text
from training import inputs

# Standard input, or standard output.
STREAM = "-"

_COPY_BYTES = 2**20

Write = Callable[[Sequence[Features]], None]


def parse_line(line: str) -> Text:
  """The text of a line, or a pair if ` ||| ` separates two texts."""
  line = line.strip()
  pair = re.match(r"^(.*) \|\|\| (.*)$", line)
  return pair.groups() if pair else line


def read_texts(path: str) -> Iterator[Iterable[Text]]:
  """Yields the texts of a file in one block, or of a pipe in blocks.

  A block of a pipe contains the lines that have arrived. Use up a block before
  requesting the next.

  Args:
    path: a UTF-8 file with a text or pair on each line, such a file in gzip
      (.gz), a pipe, or "-" for standard input.

  Raises:
    UserError: a line is not UTF-8, a gzip file is damaged, or there is no line.
  """
  if path == STREAM:
    if sys.stdin is None:
      raise UserError("--input_file=-: standard input is closed")
    yield from _blocks_of_pipe(sys.stdin.buffer, "standard input")
  elif files.is_remote(path) or os.path.isfile(path):
    lines = text_files.read_lines(path)
    first = next(lines, None)
    if first is None:
      raise _no_line(path)
    yield map(parse_line, itertools.chain([first], lines))
  else:  # Such as <(command) in a shell.
    with open(path, "rb") as reader:
      yield from _blocks_of_pipe(reader, path)


def _blocks_of_pipe(reader, name):
  number = 0
  for lines in text_files.lines_as_they_come(reader, inputs.SORTED_ROWS):
    yield [
      parse_line(text_files.decode_line(line, f"{name}:{number + i}"))
      for i, line in enumerate(lines, start=1)
    ]
    number += len(lines)
  if not number:
    raise _no_line(name)


def _no_line(name):
  return UserError(f"{name} is empty; pass one text per line")


def format_of(path: str) -> str:
  """The format that the extension of a file means; default: jsonl."""
  extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
  formats = {name: name for name in FORMATS} | {"tf_record": "tfrecord"}
  return formats.get(extension[1:], "jsonl")


def check_output(path: str, file_format: str, dtype: str) -> None:
  """Raises UserError unless features can be written as requested.

  Args:
    path: the file, or "-" for standard output.
    file_format: one of FORMATS.
    dtype: "float32" or "float16".
  """
  where = f"--output_file={path} --output_format={file_format}"
  if path == STREAM and file_format != "jsonl":
    raise UserError(f"{where}: standard output is for jsonl; pass a file")
  if path.lower().endswith(".gz") and file_format not in ("jsonl", "tfrecord"):
    raise UserError(f"{where} cannot be .gz; remove .gz from the name")
  if file_format == "jsonl" and dtype != "float32":
    raise UserError(
      f"--dtype={dtype} has no effect with --output_format=jsonl; omit it, or "
      f"pass a binary format such as npz"
    )
  if file_format == "parquet":
    try:
      import pyarrow.parquet  # noqa: F401
    except ImportError as error:
      raise UserError(
        f"{where}: cannot load the package pyarrow ({error}); install it by "
        f"pip install -r requirements-formats.txt"
      ) from error


@contextlib.contextmanager
def open_features(
  path: str, file_format: str, extractor: FeatureExtractor
) -> Iterator[Write]:
  """Yields a function that appends features to a file.

  The file appears under its name when it is complete.

  Args:
    path: the file, or "-" for standard output.
    file_format: one of FORMATS.
    extractor: the FeatureExtractor of the features.

  Raises:
    UserError: the file cannot be written.
  """
  with contextlib.ExitStack() as stack:
    if path == STREAM:
      file = _Output("standard output", sys.stdout.buffer)
    else:
      partial = stack.enter_context(files.atomic_write(path))
      file = stack.enter_context(_Output(path, files.open_file(partial, "wb")))
    if path.lower().endswith(".gz"):
      file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
    yield stack.enter_context(_WRITERS[file_format](file, extractor))


class _Output(io.RawIOBase):
  """A file, local or remote, whose errors name the path that the user passed.

  It does not seek, as remote files cannot.
  """

  def __init__(self, path, file):
    self.file = file
    self._path = path
    self._call("write", b"")  # A remote file does not exist before.

  def writable(self):
    return True

  def write(self, content):
    self._call("write", bytes(content))
    return len(content)

  def flush(self):
    self._call("flush")

  def close(self):
    if not self.closed and self.file is not sys.stdout.buffer:
      try:
        super().close()  # Flushes.
      finally:
        self._call("close")

  def temporary(self):
    """A temporary file in the same folder."""
    folder = os.path.dirname(self._path) or "."
    if files.is_remote(self._path):
      folder = None
    return _Output(self._path, tempfile.TemporaryFile(dir=folder))

  def _call(self, method, *arguments):
    try:
      getattr(self.file, method)(*arguments)
    except BrokenPipeError:
      raise  # The reader has stopped, which is no error.
    except (OSError, tf.errors.OpError) as error:
      reason = getattr(error, "strerror", None) or error
      raise UserError(
        f"{self._path} cannot be written: {reason}; free some space, or pass "
        f"another path"
      ) from error


@contextlib.contextmanager
def _json_writer(file, extractor):
  numbers = itertools.count()

  def write(rows):
    for row in rows:
      file.write(_json_line(next(numbers), row, extractor.layers))
    file.flush()

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
def _npz_writer(file, extractor):
  types = {"layers": ("int64", ())}
  token_size = max(map(len, extractor.tokenizer.vocab))
  if extractor.is_pooled:
    types["vectors"] = (extractor.dtype, extractor.vector_shape)
  else:
    types |= {
      "tokens": (f"<U{token_size}", ()),
      "offsets": ("int64", ()),
      "orig_to_tok_map": ("int32", ()),
      "word_offsets": ("int64", ()),
      "values": (extractor.dtype, extractor.vector_shape),
    }
  with contextlib.ExitStack() as stack:
    arrays = {
      name: _GrowingArray(stack.enter_context(file.temporary()), *kind)
      for name, kind in types.items()
    }
    arrays["layers"].append(extractor.layers)

    def append_ends():
      arrays["offsets"].append([arrays["tokens"].length])
      arrays["word_offsets"].append([arrays["orig_to_tok_map"].length])

    def write(rows):
      for row in rows:
        if extractor.is_pooled:
          arrays["vectors"].append([row.vector])
        else:
          for name in ("tokens", "orig_to_tok_map", "values"):
            arrays[name].append(getattr(row, name))
          append_ends()

    if not extractor.is_pooled:
      append_ends()
    yield write
    with zipfile.ZipFile(file, "w") as archive:
      for name, array in arrays.items():
        # Without a date, equal runs write equal files.
        member = zipfile.ZipInfo(f"{name}.npy")
        with archive.open(member, "w", force_zip64=True) as writer:
          array.write_npy(writer)


class _GrowingArray:
  """An array in a temporary file: the header of an .npy needs its length."""

  def __init__(self, file, dtype, shape):
    self._file = file
    self._dtype = np.dtype(dtype)
    self._shape = shape
    self.length = 0

  def append(self, items):
    items = np.asarray(items, self._dtype)
    self.length += len(items)
    self._file.write(items.tobytes())

  def write_npy(self, writer):
    header = {
      "descr": np.lib.format.dtype_to_descr(self._dtype),
      "fortran_order": False,
      "shape": (self.length, *self._shape),
    }
    np.lib.format.write_array_header_1_0(writer, header)
    self._file.flush()
    self._file.file.seek(0)
    shutil.copyfileobj(self._file.file, writer, _COPY_BYTES)


@contextlib.contextmanager
def _parquet_writer(file, extractor):
  import pyarrow
  import pyarrow.parquet

  floats = pyarrow.list_(pyarrow.from_numpy_dtype(extractor.dtype))
  columns = {"vectors": floats}
  if not extractor.is_pooled:
    columns = {
      "tokens": pyarrow.list_(pyarrow.string()),
      "orig_to_tok_map": pyarrow.list_(pyarrow.int32()),
      "values": floats,
    }
  schema = pyarrow.schema(
    {"linex_index": pyarrow.int64(), **columns},
    metadata={"layers": ",".join(map(str, extractor.layers))},
  )
  numbers = itertools.count()

  def write(rows):
    table = {"linex_index": [next(numbers) for _ in rows]}
    if extractor.is_pooled:
      table["vectors"] = [row.vector for row in rows]
    else:
      table["tokens"] = [row.tokens for row in rows]
      table["orig_to_tok_map"] = [row.orig_to_tok_map for row in rows]
      table["values"] = [row.values.reshape(-1) for row in rows]
    writer.write_table(pyarrow.table(table, schema))

  # Compression hardly reduces such numbers; a dictionary does reduce tokens.
  with pyarrow.parquet.ParquetWriter(
    file, schema, compression="none", use_dictionary=["tokens.list.element"]
  ) as writer:
    yield write


@contextlib.contextmanager
def _record_writer(file, extractor):
  numbers = itertools.count()

  def write(rows):
    for row in rows:
      example = tf.train.Example()
      feature = example.features.feature
      feature["linex_index"].int64_list.value.append(next(numbers))
      feature["layers"].int64_list.value.extend(extractor.layers)
      name, array = "vectors", row.vector
      if not extractor.is_pooled:
        name, array = "values", row.values
        tokens = [token.encode() for token in row.tokens]
        feature["tokens"].bytes_list.value.extend(tokens)
        feature["orig_to_tok_map"].int64_list.value.extend(row.orig_to_tok_map)
      serialized = tf.io.serialize_tensor(array).numpy()
      feature[name].bytes_list.value.append(serialized)
      file.write(records.framed(example.SerializeToString(deterministic=True)))

  yield write


_WRITERS = {
  "jsonl": _json_writer,
  "npz": _npz_writer,
  "parquet": _parquet_writer,
  "tfrecord": _record_writer,
}
FORMATS = tuple(_WRITERS)
