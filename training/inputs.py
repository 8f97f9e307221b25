"""Rows of features: read from records, gathered in batches for the model.

A row has the features of its task's spec, see `pipeline.records`. In a batch,
sequences are cut to the longest row, and rows of similar length share a batch,
so that little of it is padding.
"""

import itertools
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from errors import UserError
from pipeline import files, records

# Training rows are sorted by length among this many batches: enough for
# batches with little padding, few enough that batches stay mixed.
SORTED_BATCHES = 32

# Rows of evaluation and prediction are sorted by length among this many. Their
# results must be held back to be given in input order.
SORTED_ROWS = 4096

# Records that are examined at a time.
CHUNK_ROWS = 1024

InputFn = Callable[[Mapping], tf.data.Dataset]

# From a batch's features, and int64 [B], the numbers of its rows in the whole
# training or evaluation, to features.
Transform = Callable[[dict[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]


class Rows:
  """Serialized rows that can be read in any order.

  Args:
    spec: their spec, with a feature `input_mask`.
    lengths: int array [rows], see `row_lengths`.
    read: from int [n], indices of rows, to a list of n serialized rows.
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
    """The rows of a TFRecord file, of which only lengths and sizes are held.

    Raises:
      UserError: the file is damaged, or its rows do not fit the spec.
    """
    lengths, sizes = _examine_file(path, spec)
    ends = np.cumsum(sizes)
    content = _mapped(path) if len(sizes) else b""

    def read(indices):
      frames = [content[ends[i] - sizes[i] : ends[i]] for i in indices]
      return [_record(frame, path) for frame in frames]

    return cls(spec, lengths, read)

  @classmethod
  def from_features(
    cls, features: Iterable[Mapping], spec: records.Spec
  ) -> "Rows":
    """Rows in memory, from dicts of feature values."""
    serialized = [records.encode_row(row, spec) for row in features]
    chunks = [
      serialized[start : start + CHUNK_ROWS]
      for start in range(0, len(serialized), CHUNK_ROWS)
    ]
    lengths = [
      row_lengths(parse(chunk, spec), spec).numpy() for chunk in chunks
    ]
    return cls(
      spec,
      np.concatenate([np.zeros(0, np.int32), *lengths]),
      lambda indices: [serialized[i] for i in indices],
    )

  def __len__(self) -> int:
    return len(self.lengths)


def check_records(path: str | os.PathLike, spec: records.Spec) -> int:
  """Reads a TFRecord file once, and returns its number of rows.

  Raises:
    UserError: the file is damaged, or its rows do not fit the spec.
  """
  return len(_examine_file(path, spec)[0])


def _examine_file(path, spec):
  """Lengths of a file's rows, and sizes in bytes of their frames, [rows]."""

  def examine(serialized):
    lengths = row_lengths(parse(serialized, spec), spec)
    return lengths, tf.strings.length(serialized) + records.FRAME_BYTES

  chunks = (
    tf.data.TFRecordDataset(path)
    .batch(CHUNK_ROWS)
    .map(examine, num_parallel_calls=tf.data.AUTOTUNE)
  )
  error = None
  columns = [], []
  try:
    for chunk in chunks.as_numpy_iterator():
      for column, values in zip(columns, chunk, strict=True):
        column.append(values)
  except (tf.errors.OpError, UnicodeDecodeError) as caught:
    error = caught  # Its text may quote bytes of the file, and be long.
  lengths, sizes = (
    np.concatenate([np.zeros(0, np.int32), *column]) for column in columns
  )
  sizes = sizes.astype(np.int64)
  # TensorFlow takes an incomplete header for the end of the file.
  if error or np.sum(sizes) != tf.io.gfile.stat(path).length:
    raise UserError(
      f"{os.fspath(path)} does not hold whole records of this model's inputs; "
      f"write it again"
    ) from error
  return lengths, sizes


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
    features: dict with `input_mask`, int32 [B, ..., S].
    spec: the rows' spec.

  Returns:
    Dict from the name of each axis in `cut_axes` to int32 [B].
  """
  mask = features["input_mask"]
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


def sequential_batches(
  serialized_rows: tf.data.Dataset,
  spec: records.Spec,
  batch_size: int,
  drop_remainder: bool = False,
) -> tf.data.Dataset:
  """Batches of rows, each row once, by length among every SORTED_ROWS.

  Only that many rows are held in memory.

  Args:
    serialized_rows: dataset of them.
    spec: their spec.
    batch_size: B.
    drop_remainder: leave out the rows that fill no batch.

  Returns:
    A dataset of (serialized string [B], row_index int64 [B], is_real bool
    [B]); the last batch is filled up with rows that are not real.
  """

  def by_length(row_index, serialized):
    # The length of a row is that of its mask.
    mask = parse(serialized, {"input_mask": spec["input_mask"]})
    order = tf.argsort(row_lengths(mask, spec), stable=True)
    return tf.gather(row_index, order), tf.gather(serialized, order)

  def filled_up(row_index, serialized):
    count = tf.size(row_index)
    positions = tf.range(batch_size)
    chosen = positions % count
    return (
      tf.gather(serialized, chosen),
      tf.gather(row_index, chosen),
      positions < count,
    )

  windows = serialized_rows.enumerate().batch(SORTED_ROWS).map(by_length)
  return windows.unbatch().batch(batch_size, drop_remainder).map(filled_up)


def input_fn_from_file(
  path: str, spec: records.Spec, is_training: bool, drop_remainder: bool = False
) -> InputFn:
  """An `input_fn(params)` over a TFRecord file; see `input_fn_from_rows`.

  The file need not exist yet, and its rows are not held in memory. The
  `input_fn` raises a UserError if the file is damaged or its rows do not fit
  the spec.
  """

  def input_fn(params):
    if is_training:
      return _shuffled(Rows.from_file(path, spec), params)
    # A damaged file is found before hours are spent on half of it.
    check_records(path, spec)
    serialized = tf.data.TFRecordDataset(path)
    return _in_order(serialized, spec, params, drop_remainder)

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
    if is_training:
      return _shuffled(rows, params)
    serialized = rows.read(np.arange(len(rows)))
    constant = tf.constant(serialized, tf.string, [len(rows)])
    dataset = tf.data.Dataset.from_tensor_slices(constant)
    return _in_order(dataset, rows.spec, params, drop_remainder)

  return input_fn


def _shuffled(rows, params):
  """The dataset of batches to train on."""

  def batches():
    plan = training_batches(
      rows.lengths, params["batch_size"], params.get("seed", 0)
    )
    first_step = params.get("first_step", 0)
    for step, indices in itertools.islice(enumerate(plan), first_step, None):
      yield step, indices, rows.read(indices)

  return batches_dataset(batches, rows.spec, params)


def _in_order(serialized_rows, spec, params, drop_remainder):
  """The dataset of batches to evaluate on."""
  pad = params.get("pad_to_max_length", False)
  batches = sequential_batches(
    serialized_rows, spec, params["batch_size"], drop_remainder
  )
  features = batches.map(lambda *batch: read_batch(*batch, spec, pad))
  return features.prefetch(tf.data.AUTOTUNE)


def batches_dataset(
  batches: Callable[[], Iterable[tuple[int, np.ndarray, list[bytes]]]],
  spec: records.Spec,
  params: Mapping,
  transform: Transform | None = None,
  count: float = np.inf,
) -> tf.data.Dataset:
  """The dataset of `read_batch`'s dicts for batches that Python reads.

  Args:
    batches: function without arguments that yields, for each batch, its step,
      the indices of its rows, int64 [B], and these rows, serialized.
    spec: the rows' spec.
    params: dict with `batch_size` and, optionally, `pad_to_max_length`.
    transform: applied to each batch, or None.
    count: number of real rows; those after them only fill up the last batch.
  """
  size = params["batch_size"]
  pad = params.get("pad_to_max_length", False)

  def columns():
    for step, row_index, serialized in batches():
      numbers = np.arange(step * size, (step + 1) * size)
      is_real = numbers < count
      yield np.array(serialized, object), row_index, is_real, numbers

  def read(serialized, row_index, is_real, numbers):
    features = read_batch(serialized, row_index, is_real, spec, pad)
    return transform(features, numbers) if transform else features

  dtypes = (tf.string, tf.int64, tf.bool, tf.int64)
  dataset = tf.data.Dataset.from_generator(
    columns, output_signature=tuple(tf.TensorSpec([size], d) for d in dtypes)
  )
  dataset = dataset.map(read, num_parallel_calls=tf.data.AUTOTUNE)
  return dataset.prefetch(tf.data.AUTOTUNE)
