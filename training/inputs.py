"""Rows of features: read from records, gathered in batches for the model.

A row has the features of its task's spec, see `pipeline.records`. In a batch,
sequences are cut to the longest row, and rows of similar length share a batch,
so that little of it is padding.
"""

import functools
import itertools
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from errors import UserError
from pipeline import files, records

# Training rows are sorted by length among this many batches: enough for
# batches with little padding, few enough that batches stay mixed.
SORTED_BATCHES = 32

# Rows of evaluation and prediction are sorted by length among this many. Their
# results must be held back to be given in input order.
SORTED_ROWS = 4096

# Records that are read at once from one position in a file: enough to read from
# a disk or a bucket at full speed, few enough for a shuffle window to hold the
# records of many positions.
CHUNK_ROWS = 1024

InputFn = Callable[[Mapping], tf.data.Dataset]

# Changes a batch: from its features and the numbers of its rows in the whole
# training or evaluation, int64 [B], to features.
Transform = Callable[[dict[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]


class Rows:
  """Serialized rows that can be read in any order.

  Args:
    spec: their spec, with a feature `input_mask`.
    lengths: int array [rows], see `row_lengths`.
    read: from row indices, int [n], to a list of n serialized rows.
  """

  def __init__(
    self,
    spec: records.Spec,
    lengths: np.ndarray,
    read: Callable[[np.ndarray], list[bytes]],
  ):
    self.spec = spec
    self.lengths = lengths
    self.read = read

  @classmethod
  def from_file(cls, path: str | os.PathLike, spec: records.Spec) -> "Rows":
    """The rows of a TFRecord file; only their lengths and sizes are in memory.

    Raises:
      UserError: the file is damaged, or its rows do not fit the spec.
    """
    lengths, sizes = [np.zeros(0, np.int32)], []
    for chunk, features in read_chunks(path, spec):
      lengths.append(row_lengths(features, spec).numpy())
      sizes += [len(record) + records.FRAME_BYTES for record in chunk]
    starts = np.cumsum([0, *sizes])
    content = _mapped(path) if sizes else b""

    def read(indices):
      frames = [content[starts[i] : starts[i + 1]] for i in indices]
      return [_record(frame, path) for frame in frames]

    return cls(spec, np.concatenate(lengths), read)

  @classmethod
  def from_features(
    cls, features: Iterable[Mapping], spec: records.Spec
  ) -> "Rows":
    """Rows in memory, from dicts of feature values."""
    serialized = [records.encode_row(row, spec) for row in features]
    lengths = [np.zeros(0, np.int32)]
    for start in range(0, len(serialized), CHUNK_ROWS):
      chunk = parse(serialized[start : start + CHUNK_ROWS], spec)
      lengths.append(row_lengths(chunk, spec).numpy())
    return cls(
      spec,
      np.concatenate(lengths),
      lambda indices: [serialized[i] for i in indices],
    )

  def __len__(self) -> int:
    return len(self.lengths)


def read_chunks(
  path: str | os.PathLike, spec: records.Spec
) -> Iterator[tuple[list[bytes], dict[str, tf.Tensor]]]:
  """Yields CHUNK_ROWS rows of a TFRecord file at a time, and their features.

  Raises:
    UserError: the file is damaged, or its rows do not fit the spec.
  """
  rows = enumerate(records.read_records(os.fspath(path)))
  while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
    serialized = [record for _, record in chunk]
    try:
      features = parse_int64(serialized, spec)
    except (tf.errors.OpError, UnicodeDecodeError):
      # The error does not say which record is wrong.
      for number, record in chunk:
        _check_record(f"{path}: record {number}", record, spec)
      raise
    yield serialized, features


def _check_record(where, record, spec):
  """Raises UserError if a record does not fit the spec."""
  features = decode_example(where, record)
  for name, feature in spec.items():
    kind = "int64_list" if feature.dtype == "int64" else "float_list"
    if name not in features or not features[name].HasField(kind):
      raise UserError(
        f"{where} has no {name} of type {feature.dtype}; create the file with "
        f"the settings of this run"
      )
    count = len(getattr(features[name], kind).value)
    if count != math.prod(feature.shape):
      raise UserError(
        f"{where}: {name} has {count} values, expected "
        f"{math.prod(feature.shape)}; create the file with the settings of "
        f"this run, such as --max_seq_length"
      )


def decode_example(where: str, record: bytes) -> Mapping:
  """The features of a serialized `tf.train.Example` by name.

  Raises:
    UserError: it is not one; the message begins with `where`.
  """
  try:
    return tf.train.Example.FromString(record).features.feature
  except DecodeError as error:
    raise UserError(
      f"{where} is not a tf.train.Example; pass a file of examples"
    ) from error


def _mapped(path):
  """A file's content, mapped into memory; of a remote file, a copy on disk."""
  with files.open_file(path) as file, tempfile.TemporaryFile() as copy:
    if files.is_remote(path):
      shutil.copyfileobj(file, copy)
      copy.flush()
      file = copy
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _record(frame, path):
  """The record in a frame, checked against its checksums."""
  end = len(frame) + records.HEADER_BYTES - records.FRAME_BYTES
  record = frame[records.HEADER_BYTES : end]
  if records.framed(record) != frame:
    raise UserError(
      f"{path} changed while it was read; give the same command again"
    )
  return record


def parse_int64(
  serialized: tf.Tensor, spec: records.Spec
) -> dict[str, tf.Tensor]:
  """Features [B, ...], int64 or float32, of serialized rows [B]."""
  fixed = {
    name: tf.io.FixedLenFeature(list(feature.shape), feature.dtype)
    for name, feature in spec.items()
  }
  return tf.io.parse_example(serialized, fixed)


def parse(serialized: tf.Tensor, spec: records.Spec) -> dict[str, tf.Tensor]:
  """Features [B, ...], int32 or float32, of serialized rows [B]."""
  # TPUs emulate int64 slowly, and ids fit into int32.
  return {
    name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    for name, value in parse_int64(serialized, spec).items()
  }


def row_extents(
  features: Mapping[str, tf.Tensor], spec: records.Spec
) -> dict[str, tf.Tensor]:
  """How far the real positions of each row reach along each axis that is cut.

  Args:
    features: dict with `input_mask`, integer [B, ..., S].
    spec: the rows' spec.

  Returns:
    Dict from the name of each axis in `cut_axes` to int32 [B].
  """
  mask = tf.cast(features["input_mask"], tf.int32)
  extents = {}
  for axis, name in enumerate(spec["input_mask"].cut_axes, start=1):
    if name is not None:
      others = [i for i in range(1, mask.shape.rank) if i != axis]
      is_used = tf.reduce_max(mask, axis=others) if others else mask
      ends = tf.range(1, mask.shape[axis] + 1)
      extents[name] = tf.reduce_max(is_used * ends, axis=1)
  return extents


def row_lengths(
  features: Mapping[str, tf.Tensor], spec: records.Spec
) -> tf.Tensor:
  """The length of each row up to its last real position, int32 [B]."""
  return row_extents(features, spec)[records.POSITION]


def _cut(features, spec):
  """Features without the positions after the batch's longest row."""
  sizes = {
    name: tf.maximum(tf.reduce_max(ends), 1)
    for name, ends in row_extents(features, spec).items()
  }

  def cut(name, value):
    axes = spec[name].cut_axes
    return value[(slice(None), *(slice(sizes.get(axis)) for axis in axes))]

  return {name: cut(name, value) for name, value in features.items()}


def read_batch(
  serialized: tf.Tensor,
  row_index: tf.Tensor,
  is_real_row: tf.Tensor,
  spec: records.Spec,
  pad_to_max_length: bool = False,
) -> dict[str, tf.Tensor]:
  """Returns a batch of features.

  Args:
    serialized: string [B], the rows.
    row_index: integer [B], their indices in the input.
    is_real_row: bool [B]; False for rows that only fill up the batch.
    spec: the rows' spec.
    pad_to_max_length: keep all positions instead of cutting to the longest row.

  Returns:
    Dict of int32 or float32 tensors; among them `row_index` [B], and
    `is_real_example` [B], which is also 0 where `is_real_row` is False.
  """
  features = parse(serialized, spec)
  if not pad_to_max_length:
    features = _cut(features, spec)
  is_real = tf.cast(is_real_row, tf.int32)
  features["is_real_example"] = (
    features.get("is_real_example", tf.ones_like(is_real)) * is_real
  )
  features["row_index"] = tf.cast(row_index, tf.int32)
  return features


def training_batches(
  lengths: np.ndarray, batch_size: int, seed: int
) -> Iterator[np.ndarray]:
  """Yields batches of row indices without end, rows of similar length together.

  Each epoch is a permutation drawn from (seed, epoch). Rows that fill no batch
  at its end come first in the next, so all rows are used equally often.

  Args:
    lengths: int [rows].
    batch_size: B.
    seed: int.

  Yields:
    int64 [B].
  """
  for _, batches in batches_by_part(
    lengths, batch_size, seed, lambda rng: [rng.permutation(len(lengths))]
  ):
    yield from batches


def batches_by_part(
  lengths: np.ndarray,
  batch_size: int,
  seed: int,
  parts: Callable[[np.random.Generator], Iterable[np.ndarray]],
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
  """Like `training_batches`, with each epoch divided into parts.

  Rows of similar length in a part share a batch. Those that fill no batch at
  its end come first in the next part.

  Args:
    lengths: int [rows].
    batch_size: B.
    seed: int.
    parts: from an epoch's random generator, seeded by (seed, epoch), to its
      parts: row indices, int64 [rows of the part], in random order.

  Yields:
    For each part, its row indices, int64 [left over + rows of the part], and
    the list of batches, each int64 [B], that they form.
  """
  left_over = np.zeros(0, np.int64)
  for epoch in itertools.count() if len(lengths) else ():
    rng = np.random.default_rng([seed, epoch])
    for part in parts(rng):
      rows = np.concatenate([left_over, part])
      whole = len(rows) // batch_size * batch_size
      left_over = rows[whole:]
      batches = _by_length(lengths, rows[:whole], batch_size)
      yield rows, [batches[index] for index in rng.permutation(len(batches))]


def _by_length(lengths, rows, batch_size):
  """Batches of rows, sorted by length among every SORTED_BATCHES."""
  window = SORTED_BATCHES * batch_size
  batches = []
  for start in range(0, len(rows), window):
    by_length = rows[start : start + window]
    by_length = by_length[np.argsort(lengths[by_length], kind="stable")]
    batches += np.split(by_length, len(by_length) // batch_size)
  return batches


def evaluation_batches(
  lengths: np.ndarray, batch_size: int
) -> list[np.ndarray]:
  """Returns batches of row indices, each row once.

  Rows are sorted by length among every SORTED_ROWS.

  Args:
    lengths: int [rows].
    batch_size: B.

  Returns:
    List of int64 [B]; the last batch may be smaller.
  """
  order = [np.zeros(0, np.int64)]
  for start in range(0, len(lengths), SORTED_ROWS):
    window = lengths[start : start + SORTED_ROWS]
    order.append(start + np.argsort(window, kind="stable"))
  ends = range(batch_size, len(lengths), batch_size)
  return np.split(np.concatenate(order), ends) if len(lengths) else []


def input_fn_from_file(
  path: str, spec: records.Spec, is_training: bool, drop_remainder: bool = False
) -> InputFn:
  """An `input_fn(params)` over a TFRecord file; see `input_fn_from_rows`.

  The file is first read when the `input_fn` is called, which raises a UserError
  if it is damaged or its rows do not fit the spec.
  """
  rows = functools.cache(lambda: Rows.from_file(path, spec))

  def input_fn(params):
    return input_fn_from_rows(rows(), is_training, drop_remainder)(params)

  return input_fn


def input_fn_from_rows(
  rows: Rows, is_training: bool, drop_remainder: bool = False
) -> InputFn:
  """An `input_fn(params)` for `Estimator`.

  In `params`: `batch_size`; for training also `seed` and `first_step`, the
  number of batches to skip (both default to 0); `pad_to_max_length`, for
  devices that need one static shape.

  Args:
    rows: Rows.
    is_training: shuffled batches without end, or each row once.
    drop_remainder: leave out the rows that fill no batch, if each comes once.

  Returns:
    A function from params to a `tf.data.Dataset` of `read_batch`'s dicts.
  """

  def input_fn(params):
    size = params["batch_size"]
    first_step = params.get("first_step", 0) if is_training else 0

    def batches():
      plan = evaluation_batches(rows.lengths, size)
      if is_training:
        plan = training_batches(rows.lengths, size, params.get("seed", 0))
      for batch in itertools.islice(plan, first_step, None):
        if len(batch) == size or not drop_remainder:
          yield batch, rows.read(batch)

    return batches_dataset(batches, rows.spec, params, first_step=first_step)

  return input_fn


def batches_dataset(
  batches: Callable[[], Iterable[tuple[np.ndarray, list[bytes]]]],
  spec: records.Spec,
  params: Mapping,
  transform: Transform | None = None,
  first_step: int = 0,
) -> tf.data.Dataset:
  """The dataset of `read_batch`'s dicts for batches that Python reads.

  Args:
    batches: function without arguments that yields the row indices of each
      batch, int64 [B], and its rows, serialized. A smaller batch is filled up
      with its own rows, which are not real then.
    spec: the rows' spec.
    params: dict with `batch_size` and, optionally, `pad_to_max_length`.
    transform: applied to each batch, or None.
    first_step: number of the first batch.
  """
  size = params["batch_size"]
  pad = params.get("pad_to_max_length", False)

  def columns():
    for row_index, serialized in batches():
      yield row_index, np.array(serialized, object)

  @tf.autograph.experimental.do_not_convert  # Converting takes a second.
  def read(step, columns):
    count = tf.size(columns[0])
    position = tf.range(size)
    row_index, serialized = (tf.gather(c, position % count) for c in columns)
    features = read_batch(serialized, row_index, position < count, spec, pad)
    numbers = step * size + tf.range(size, dtype=tf.int64)
    return transform(features, numbers) if transform else features

  # Passing a column from Python takes time, so the others are computed.
  signature = (
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.string),
  )
  dataset = tf.data.Dataset.from_generator(columns, output_signature=signature)
  dataset = dataset.enumerate(first_step)
  dataset = dataset.map(read, num_parallel_calls=tf.data.AUTOTUNE)
  return dataset.prefetch(tf.data.AUTOTUNE)
