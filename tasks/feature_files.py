"""Files of features: JSON Lines as the original writes them, and four others.

What a line of text yields is in place n of each; n counts from 0.

jsonl, numbers rounded to 6 decimals:

    for line in open("out.jsonl"):
      features = json.loads(line)["features"]
      features[0]["token"], features[0]["layers"][0]["values"]

npz: the tokens of all lines one after another, line n from offsets[n] on;
`values` is [tokens, layers, H]:

    z = dict(np.load("out.npz"))
    start, end = z["offsets"][n : n + 2]
    tokens, values = z["tokens"][start:end], z["values"][start:end]

hdf5: the same arrays, of which just the part that is asked for is read:

    h = h5py.File("out.hdf5")
    start, end = h["offsets"][n : n + 2]
    tokens, values = h["tokens"].asstr()[start:end], h["values"][start:end]

parquet: a row a line, a row group a window of lines:

    table = pyarrow.parquet.read_table("out.parquet")
    tokens, values = table["tokens"][n].as_py(), table["values"][n].values
    values = values.to_numpy().reshape(len(tokens), LAYERS, -1)

tfrecord: a `tf.train.Example` a line, whose `values` are a serialized tensor:

    spec = {"values": tf.io.FixedLenFeature([], tf.string)}
    for record in tf.data.TFRecordDataset("out.tfrecord"):
      serialized = tf.io.parse_single_example(record, spec)["values"]
      values = tf.io.parse_tensor(serialized, tf.float32)

Which layers these are stands in npz as `layers`, in hdf5 as the attribute
`layers`, in parquet in the schema's metadata, and in each Example.

These four also hold `orig_to_tok_map`: for each word of the line the place of
its first piece among the line's tokens, or -1, see `features.Features`. In npz
and hdf5 the words of line n start at word_offsets[n]. So labels of words go to
tokens by

    for label, place in zip(labels, orig_to_tok_map):
      if place >= 0: token_labels[place] = label

White space parts words. U+0085 and control characters do not, which the
tokenizer drops: Python's `split` would cut there. The words of a pair are those
of its first text, then those of its second; the bars between are none.

With pooling a line has one vector and nothing else: {"linex_index": n,
"vector": [...]} in JSON Lines, else the array or column `vectors`: [lines, H]
in npz and hdf5, a row's list in parquet, a serialized tensor in tfrecord.
"""

import contextlib
import gzip
import importlib
import io
import itertools
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import orjson
import tensorflow as tf

from errors import UserError
from pipeline import files, text_files
from tasks.features import FeatureExtractor, Features, Text
from training import inputs

STREAM = "-"

# The least that is read at a time; a pipe gives what it has.
_READ_BYTES = 2**20

# Chunks of hdf5 datasets.
_CHUNK_BYTES = 2**18

Write = Callable[[Sequence[Features]], None]


class Layout(NamedTuple):
  """What a file of features holds.

  Attributes:
    layers: as they were asked for; none of the pooler's output.
    is_pooled: whether a line has one vector, of all of them.
    shape: of a token's values, [layers, H], or of a line's vector, [H*].
    dtype: "float32" or "float16", of binary formats.
    token_size: characters of the longest token there may be.
  """

  layers: tuple[int, ...]
  is_pooled: bool
  shape: tuple[int, ...]
  dtype: str
  token_size: int


def layout_of(extractor: FeatureExtractor, dtype: str | None = None) -> Layout:
  """The Layout of what an extractor yields, in its dtype or another."""
  choice = extractor.choice
  return Layout(
    () if choice.pooling == "pooled" else choice.layers,
    choice.is_pooled,
    choice.shape(extractor.config.hidden_size),
    dtype or extractor.dtype,
    max(map(len, extractor.tokenizer.vocab)),
  )


def parse_line(line: str) -> Text:
  """The text of a line, or the pair if ` ||| ` parts two."""
  line = line.strip()
  pair = re.match(r"^(.*) \|\|\| (.*)$", line)
  return pair.groups() if pair else line


def read_texts(path: str) -> Iterator[Iterable[Text]]:
  """Yields the lines of a file, as one part; of a pipe, in parts, as they come.

  A part is to be used up before the next.

  Args:
    path: a file of UTF-8 lines, a gzip file of them (.gz), or "-" for standard
      input.

  Raises:
    ValueError: a line is not UTF-8, a gzip file is not whole, or there is no
      line.
  """
  if path == STREAM:
    if sys.stdin is None:
      raise UserError("--input_file=-: standard input is closed")
    yield from _parts_of_pipe(sys.stdin.buffer, "standard input")
  elif "://" in path or os.path.isfile(path):
    yield _texts_of_file(path)
  else:  # Such as what a shell makes of <(command).
    with open(path, "rb") as reader:
      yield from _parts_of_pipe(reader, path)


def _texts_of_file(path):
  line = None
  for line in text_files.read_lines(path):
    yield parse_line(line)
  if line is None:
    raise _no_line(path)


def _parts_of_pipe(reader, name):
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
  return ValueError(f"{name} holds no line; pass texts, one a line")


def format_of(path: str) -> str:
  """The format that a file's name tells; jsonl if it tells none."""
  extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
  return _EXTENSIONS.get(extension, "jsonl")


def check_output(path: str, file_format: str, dtype: str) -> None:
  """Raises ValueError unless features can be written so.

  Args:
    path: the file, or "-" for standard output.
    file_format: one of FORMATS.
    dtype: "float32" or "float16".
  """
  where = f"--output_file={path} --output_format={file_format}"
  text = file_format == "jsonl"
  if path == STREAM and not text:
    raise UserError(f"{where}: standard output takes jsonl; pass a file")
  if path.lower().endswith(".gz") and file_format not in ("jsonl", "tfrecord"):
    raise UserError(f"{where} cannot be .gz; leave .gz out of the name")
  if text and dtype != "float32":
    raise UserError(
      f"--dtype={dtype} means nothing with --output_format=jsonl; leave it "
      f"out, or pass a binary format such as npz"
    )
  module = {"hdf5": "h5py", "parquet": "pyarrow.parquet"}.get(file_format)
  if module and "://" in path:
    raise UserError(f"{where}: the format needs a local file; copy it then")
  if module:
    _check_package(module, where)


def _check_package(module, where):
  package = module.partition(".")[0]
  try:
    importlib.import_module(module)
  except ModuleNotFoundError as error:
    raise UserError(
      f"{where} needs the package {package}; install it by pip install -r "
      f"requirements-formats.txt"
    ) from error
  except Exception as error:  # One that is damaged may raise anything.
    raise UserError(
      f"{where} needs the package {package}, which cannot be loaded "
      f"({_reason(error)}); install it anew"
    ) from error


@contextlib.contextmanager
def open_features(
  path: str, file_format: str, layout: Layout
) -> Iterator[Write]:
  """A function that appends features to a file, which appears whole at the end.

  Args:
    path: the file, or "-" for standard output.
    file_format: one of FORMATS.
    layout: what the features have in common.

  Raises:
    ValueError: a number is too large for float16.
    OSError: the file cannot be written.
  """
  if path == STREAM:
    yield _checked(_json_lines(sys.stdout.buffer, layout), "standard output")
    return
  with files.atomic_write(path) as partial:
    file = _WRITERS[file_format](partial, layout, path.lower().endswith(".gz"))
    with _told_of(path):
      write = file.__enter__()
    try:
      yield _checked(write, path)
    except BaseException:
      # Whatever else fails at this end, the first error is the one to tell.
      with contextlib.suppress(OSError, tf.errors.OpError):
        file.__exit__(*sys.exc_info())
      raise
    with _told_of(path):
      file.__exit__(None, None, None)


def _checked(write, path):
  """Lets the errors of `write` tell what they are about."""

  def checked(rows):
    with _told_of(path):
      try:
        with np.errstate(over="raise"):
          write(rows)
      except FloatingPointError as error:
        raise UserError(
          f"{path}: there are numbers beyond {np.finfo(np.float16).max:.0f}, "
          f"the largest of float16; pass --dtype=float32"
        ) from error

  return checked


@contextlib.contextmanager
def _told_of(path):
  """Lets an error of the system name the file that the user asked for."""
  try:
    yield
  except BrokenPipeError:
    raise  # Whoever reads has enough.
  except (OSError, tf.errors.OpError) as error:
    raise OSError(f"{path} cannot be written: {_reason(error)}") from error


def _reason(error):
  """What went wrong, in one line, without the name of the file at work."""
  if isinstance(error, tf.errors.OpError):
    return error.message.rpartition("; ")[2]
  lines = str(getattr(error, "strerror", None) or error).splitlines()
  return lines[0] if lines else type(error).__name__


def _json_lines(file, layout):
  """A function that writes features to a binary file as lines of JSON."""
  numbers = itertools.count()

  def write(rows):
    for row in rows:
      file.write(_json_line(next(numbers), row, layout.layers))
    file.flush()

  return write


def _json_line(number, row, layers):
  # In float64 this rounds as Python does: the product of a float32 and 10^6 is
  # exact, and so is what the division makes of the integer next to it.
  if row.vector is not None:
    found = {"vector": np.round(row.vector.astype(np.float64), 6)}
  else:
    values = np.round(row.values.astype(np.float64), 6)
    found = {
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
    {"linex_index": number, **found},
    option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE,
  )


@contextlib.contextmanager
def _json_file(partial, layout, is_gzip):
  with contextlib.ExitStack() as stack:
    file = stack.enter_context(tf.io.gfile.GFile(partial, "wb"))
    file.write(b"")  # TensorFlow makes no file before the first write.
    if is_gzip:
      file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
    yield _json_lines(file, layout)


def _joined(rows, layout):
  """The arrays of some features, those of one line after those of another.

  Returns:
    Dict from name to array; `lengths` and `word_lengths` tell the lines apart.
  """
  if layout.is_pooled:
    vectors = np.stack([row.vector for row in rows])
    return {"vectors": vectors.astype(layout.dtype)}
  return {
    "values": np.concatenate(
      [row.values for row in rows], dtype=layout.dtype, casting="same_kind"
    ),
    "tokens": [token for row in rows for token in row.tokens],
    "lengths": np.array([len(row.tokens) for row in rows]),
    "orig_to_tok_map": np.array(
      [place for row in rows for place in row.orig_to_tok_map], np.int32
    ),
    "word_lengths": np.array([len(row.orig_to_tok_map) for row in rows]),
  }


class _Columns:
  """Appends features to arrays, one for all lines: what npz and hdf5 hold.

  Args:
    layout: a Layout.
    append: (name, array) -> None.
  """

  def __init__(self, layout, append):
    self._layout = layout
    self._append = append
    self._ends = {"offsets": 0, "word_offsets": 0}
    if not layout.is_pooled:
      for name in self._ends:
        append(name, np.zeros(1, np.int64))

  def write(self, rows):
    joined = _joined(rows, self._layout)
    for name, lengths in (
      ("offsets", joined.pop("lengths", None)),
      ("word_offsets", joined.pop("word_lengths", None)),
    ):
      if lengths is not None:
        ends = self._ends[name] + np.cumsum(lengths, dtype=np.int64)
        self._ends[name] = ends[-1]
        self._append(name, ends)
    for name, array in joined.items():
      self._append(name, array)


def _column_types(layout):
  """Name, dtype and shape of an item of each of these arrays, but `tokens`."""
  if layout.is_pooled:
    return [("vectors", layout.dtype, layout.shape)]
  return [
    ("values", layout.dtype, layout.shape),
    ("offsets", "int64", ()),
    ("orig_to_tok_map", "int32", ()),
    ("word_offsets", "int64", ()),
  ]


@contextlib.contextmanager
def _npz_file(partial, layout, is_gzip):
  del is_gzip
  # The head of an array tells its length, so arrays wait in files, which have
  # no name and go with the process, until all is there.
  folder = None if "://" in partial else os.path.dirname(partial) or "."
  types = [("layers", "int64", ()), *_column_types(layout)]
  if not layout.is_pooled:
    types.append(("tokens", f"<U{layout.token_size}", ()))
  with contextlib.ExitStack() as stack:
    spools = {
      name: _Spool(
        stack.enter_context(tempfile.TemporaryFile(dir=folder)), dtype, shape
      )
      for name, dtype, shape in types
    }
    spools["layers"].append(layout.layers)
    columns = _Columns(layout, lambda name, a: spools[name].append(a))
    yield columns.write
    file = stack.enter_context(tf.io.gfile.GFile(partial, "wb"))
    with zipfile.ZipFile(_Sequential(file), "w") as archive:
      for name, spool in spools.items():
        # A ZipInfo of no date makes equal runs write equal files.
        member = zipfile.ZipInfo(f"{name}.npy")
        with archive.open(member, "w", force_zip64=True) as writer:
          spool.copy_to(writer)


class _Spool:
  """An array that grows in a file."""

  def __init__(self, file, dtype, shape):
    self._file = file
    self._dtype = np.dtype(dtype)
    self._shape = shape
    self._length = 0

  def append(self, items):
    items = np.ascontiguousarray(items, self._dtype)
    self._length += len(items)
    self._file.write(items.data.cast("B") if items.size else b"")

  def copy_to(self, writer):
    """Writes it as a .npy file."""
    np.lib.format.write_array_header_1_0(
      writer,
      {
        "descr": np.lib.format.dtype_to_descr(self._dtype),
        "fortran_order": False,
        "shape": (self._length, *self._shape),
      },
    )
    self._file.seek(0)
    while chunk := self._file.read(_READ_BYTES):
      writer.write(chunk)


class _Sequential:
  """A GFile, of which `zipfile` knows that it cannot go back in it."""

  def __init__(self, file):
    self._file = file
    self.flush = file.flush

  def write(self, content):
    content = bytes(content)
    self._file.write(content)
    return len(content)


@contextlib.contextmanager
def _hdf5_file(partial, layout, is_gzip):
  del is_gzip
  import h5py  # Only those who write this format pay for loading it.

  with _UnfailingFile(partial, "wb+") as target:
    with h5py.File(target, "w") as file:
      types = _column_types(layout)
      if not layout.is_pooled:
        types.append(("tokens", h5py.string_dtype(), ()))
      for name, dtype, shape in types:
        items = max(1, _CHUNK_BYTES // (8 * max(1, int(np.prod(shape)))))
        file.create_dataset(
          name,
          (0, *shape),
          dtype,
          maxshape=(None, *shape),
          chunks=(items, *shape),
        )
      file.attrs["layers"] = np.array(layout.layers, np.int64)

      def append(name, array):
        dataset = file[name]
        start = len(dataset)
        dataset.resize(start + len(array), axis=0)
        dataset[start:] = array
        target.raise_error()

      yield _Columns(layout, append).write
    target.raise_error()


class _UnfailingFile(io.FileIO):
  """A file whose writes never fail; the first error waits to be asked for.

  HDF5 tries a failed write again when its objects go, and crashes then.
  """

  _error = None

  def raise_error(self):
    if self._error:
      raise self._error

  def write(self, content):
    rest = memoryview(content).cast("B")
    try:
      while rest and not self._error:
        rest = rest[super().write(rest) :]
    except BaseException as error:
      self._error = error
    return len(content)

  def truncate(self, size=None):
    try:
      return super().truncate(size) if not self._error else size
    except BaseException as error:
      self._error = error
    return size


@contextlib.contextmanager
def _parquet_file(partial, layout, is_gzip):
  del is_gzip
  import pyarrow  # Only those who write this format pay for loading it.
  import pyarrow.parquet

  floats = pyarrow.float16() if layout.dtype == "float16" else pyarrow.float32()
  columns = {"vectors": floats}
  if not layout.is_pooled:
    columns = {
      "tokens": pyarrow.string(),
      "orig_to_tok_map": pyarrow.int32(),
      "values": floats,
    }
  schema = pyarrow.schema(
    {
      "linex_index": pyarrow.int64(),
      **{name: pyarrow.list_(kind) for name, kind in columns.items()},
    },
    metadata={"layers": ",".join(map(str, layout.layers))},
  )
  first = 0

  def lists(items, lengths, kind):
    ends = np.cumsum([0, *lengths], dtype=np.int32)
    return pyarrow.ListArray.from_arrays(ends, pyarrow.array(items, kind))

  def write(rows):
    nonlocal first
    joined = _joined(rows, layout)
    size = int(np.prod(layout.shape))
    one_each = np.ones(len(rows), np.int64)
    lengths = {
      "tokens": joined.get("lengths"),
      "orig_to_tok_map": joined.get("word_lengths"),
      "values": joined.get("lengths", one_each) * size,
      "vectors": one_each * size,
    }
    arrays = [pyarrow.array(range(first, first + len(rows)))]
    for name, kind in columns.items():
      items = joined[name]
      if name in ("values", "vectors"):
        items = items.reshape(-1)
      arrays.append(lists(items, lengths[name], kind))
    writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
    first += len(rows)

  # Numbers like these hardly become smaller by compression.
  with pyarrow.parquet.ParquetWriter(
    partial,
    schema,
    compression="none",
    use_dictionary=["tokens.list.element"],  # What the list holds.
  ) as writer:
    yield write


@contextlib.contextmanager
def _record_file(partial, layout, is_gzip):
  numbers = itertools.count()
  layers = _ints(layout.layers)

  def write(rows):
    for row in rows:
      feature = {"linex_index": _ints([next(numbers)]), "layers": layers}
      if layout.is_pooled:
        feature["vectors"] = _serialized(row.vector, layout.dtype)
      else:
        feature["values"] = _serialized(row.values, layout.dtype)
        feature["tokens"] = _strings([token.encode() for token in row.tokens])
        feature["orig_to_tok_map"] = _ints(row.orig_to_tok_map)
      example = tf.train.Example(features=tf.train.Features(feature=feature))
      writer.write(example.SerializeToString(deterministic=True))

  with tf.io.TFRecordWriter(partial, "GZIP" if is_gzip else None) as writer:
    yield write


def _ints(values):
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _strings(values):
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def _serialized(array, dtype):
  tensor = tf.constant(array.astype(dtype))
  return _strings([tf.io.serialize_tensor(tensor).numpy()])


_WRITERS = {
  "jsonl": _json_file,
  "npz": _npz_file,
  "hdf5": _hdf5_file,
  "parquet": _parquet_file,
  "tfrecord": _record_file,
}
FORMATS = tuple(_WRITERS)

_EXTENSIONS = {
  ".npz": "npz",
  ".hdf5": "hdf5",
  ".h5": "hdf5",
  ".parquet": "parquet",
  ".tfrecord": "tfrecord",
  ".tf_record": "tfrecord",
}
