"""Rows of features: one spec a task, records on disk, batches for the model.

A spec says what a row holds: a dict from feature name to
`tf.io.FixedLenFeature`. The writer checks against it, the reader parses by it.

And what all readers of a user's files share: `decode_utf8` and `split_lines`,
and `listing` and `did_you_mean` for their messages.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from errors import UserError
from pipeline import records

# Training rows are sorted by length among this many batches: enough for
# batches with little padding, few enough that a batch stays a mixture.
SORTED_BATCHES = 32

# Rows of evaluation and prediction are sorted among this many, which bounds
# what must be held back to give results in the order of the input.
SORTED_ROWS = 4096


class Rows:
  """Rows held in memory, serialized.

  Args:
    serialized: sequence of serialized `tf.train.Example`.
    spec: their spec, with a feature `input_mask` [S].

  Attributes:
    lengths: int array, where each row's last real position ends.
  """

  def __init__(self, serialized: Sequence[bytes], spec: records.Spec):
    self.spec = spec
    self.serialized = tf.constant(serialized, tf.string, [len(serialized)])
    chunks = tf.data.Dataset.from_tensor_slices(self.serialized).batch(1024)
    ends = [row_lengths(parse(chunk, spec), spec).numpy() for chunk in chunks]
    self.lengths = np.concatenate([np.zeros(0, np.int32), *ends])

  @classmethod
  def from_file(cls, path: str | os.PathLike, spec: records.Spec) -> "Rows":
    """The rows of a TFRecord file.

    Raises:
      ValueError: the file is damaged, or its rows do not fit the spec.
    """
    with _whole_records(path):
      chunks = [
        chunk.numpy().tolist()
        for chunk in tf.data.TFRecordDataset(path).batch(1024)
      ]
      return cls([record for chunk in chunks for record in chunk], spec)

  @classmethod
  def from_features(
    cls, features: Iterable[Mapping], spec: records.Spec
  ) -> "Rows":
    """Rows from dicts of feature values."""
    return cls([records.encode_row(row, spec) for row in features], spec)

  def __len__(self) -> int:
    return len(self.lengths)


def check_records(path: str | os.PathLike, spec: records.Spec) -> int:
  """Reads a TFRecord file once, in little memory; returns how many rows it has.

  Raises:
    ValueError: the file is damaged, or its rows do not fit the spec.
  """
  sizes = (
    tf.data.TFRecordDataset(path)
    .batch(1024)
    .map(lambda batch: tf.size(row_lengths(parse(batch, spec), spec), tf.int64))
  )
  with _whole_records(path):
    return int(sizes.reduce(tf.constant(0, tf.int64), tf.add))


@contextlib.contextmanager
def _whole_records(path):
  try:
    yield
  except (tf.errors.OpError, UnicodeDecodeError) as error:
    # TensorFlow quotes what it could not read, be it text or not.
    raise UserError(
      f"{os.fspath(path)} does not hold whole records of "
      f"this model's inputs; write it again"
    ) from error


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
  """Features without what lies behind the batch's longest row."""
  sizes = {
    name: tf.maximum(tf.reduce_max(ends), 1)
    for name, ends in row_extents(features, spec).items()
  }
  return {
    name: value[
      (
        slice(None),
        *(slice(sizes[axis] if axis else None) for axis in spec[name].cut_axes),
      )
    ]
    for name, value in features.items()
  }


def read_batch(
  serialized: tf.Tensor,
  row_index: tf.Tensor,
  is_real_row: tf.Tensor,
  spec: records.Spec,
  pad_to_max_length: bool = False,
) -> dict[str, tf.Tensor]:
  """A batch of features.

  Args:
    serialized: string [B], the rows.
    row_index: integer [B], their places in the input.
    is_real_row: bool [B]; False marks a row as padding of the batch.
    spec: the rows' spec.
    pad_to_max_length: leave sequences [B, S]; or cut them to the longest row.

  Returns:
    Dict of int32 or float32 tensors; among them `row_index` [B], and
    `is_real_example` [B], which is 0 also where `is_real_row` is False.
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
  """Batches of row indices without end, rows of similar length together.

  Each epoch is a permutation drawn from (seed, epoch). Rows that fill no batch
  at its end come first in the next, so all rows come equally often.

  Args:
    lengths: int [rows].
    batch_size: B.
    seed: int.

  Yields:
    int64 [B].
  """

  def one_part(rng):
    return [rng.permutation(len(lengths))] if len(lengths) else []

  for _, batches in batches_by_part(lengths, batch_size, seed, one_part):
    yield from batches


def batches_by_part(
  lengths: np.ndarray,
  batch_size: int,
  seed: int,
  parts: Callable[[np.random.Generator], Iterable[np.ndarray]],
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
  """Batches of `training_batches`, where an epoch is cut into parts.

  Rows of similar length of a part share a batch; those that fill no batch at
  its end come first in the next part, or the next epoch. There is no end,
  unless an epoch has no part.

  Args:
    lengths: int [rows].
    batch_size: B.
    seed: int.
    parts: from an epoch's random numbers, drawn from (seed, epoch), to its
      rows in parts, each int64 [rows of the part] in random order.

  Yields:
    For each part, the rows it has, int64 [left over + rows of the part], and
    the batches, each int64 [B], that they make.
  """
  left_over = np.zeros(0, np.int64)
  for epoch in itertools.count():
    rng = np.random.default_rng([seed, epoch])
    part = None
    for part in parts(rng):
      rows = np.concatenate([left_over, part])
      whole = len(rows) // batch_size * batch_size
      left_over = rows[whole:]
      batches = _by_length(lengths, rows[:whole], batch_size)
      yield rows, [batches[index] for index in rng.permutation(len(batches))]
    if part is None:
      return


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

  No more than these are held in memory, however many rows there are.

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
    # Of a row's features, this one tells its length.
    mask = parse(serialized, {"input_mask": spec["input_mask"]})
    order = tf.argsort(row_lengths(mask, spec), stable=True)
    return tf.gather(row_index, order), tf.gather(serialized, order)

  def filled_up(row_index, serialized):
    count = tf.size(row_index)
    places = tf.range(batch_size)
    chosen = places % count
    return (
      tf.gather(serialized, chosen),
      tf.gather(row_index, chosen),
      places < count,
    )

  windows = serialized_rows.enumerate().batch(SORTED_ROWS).map(by_length)
  return windows.unbatch().batch(batch_size, drop_remainder).map(filled_up)


def input_fn_from_file(
  path: str, spec: records.Spec, is_training: bool, drop_remainder: bool = False
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` over a TFRecord file.

  As `input_fn_from_rows`, but the file need not be there yet, and unless for
  training it is not held in memory. The `input_fn` raises a ValueError if the
  file is damaged or its rows do not fit the spec.
  """

  def input_fn(params):
    if is_training:
      return _shuffled(Rows.from_file(path, spec), params)
    # What is wrong with a file is found before hours are spent on half of it.
    check_records(path, spec)
    serialized_rows = tf.data.TFRecordDataset(path)
    return _in_order(serialized_rows, spec, params, drop_remainder)

  return input_fn


def input_fn_from_rows(
  rows: Rows, is_training: bool, drop_remainder: bool = False
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` for `Estimator` over rows in memory.

  In `params`: `batch_size`; for training also `seed` and `first_step`, the
  number of batches to pass over (both 0 if absent); `pad_to_max_length`, for
  devices that want one static shape.

  Args:
    rows: Rows.
    is_training: batches without end and shuffled, or each row once.
    drop_remainder: leave out the rows that fill no batch, if each comes once.

  Returns:
    A function from params to a `tf.data.Dataset` of `read_batch`'s dicts.
  """

  def input_fn(params):
    if is_training:
      return _shuffled(rows, params)
    records = tf.data.Dataset.from_tensor_slices(rows.serialized)
    return _in_order(records, rows.spec, params, drop_remainder)

  return input_fn


def _shuffled(rows, params):
  """The dataset of batches to train on."""

  def plan():
    batches = training_batches(
      rows.lengths, params["batch_size"], params.get("seed", 0)
    )
    return itertools.islice(batches, params.get("first_step", 0), None)

  def batch(indices):
    serialized = tf.gather(rows.serialized, indices)
    return serialized, indices, tf.ones_like(indices, tf.bool)

  indices = tf.data.Dataset.from_generator(
    plan, output_signature=tf.TensorSpec([params["batch_size"]], tf.int64)
  )
  return _read(indices.map(batch), rows.spec, params)


def _in_order(serialized_rows, spec, params, drop_remainder):
  """The dataset of batches to evaluate on."""
  batches = sequential_batches(
    serialized_rows, spec, params["batch_size"], drop_remainder
  )
  return _read(batches, spec, params)


def _read(batches, spec, params):
  pad = params.get("pad_to_max_length", False)
  features = batches.map(lambda *batch: read_batch(*batch, spec, pad))
  return features.prefetch(tf.data.AUTOTUNE)
