"""Batches for training, and the rows that evaluation reads, too.

A row has the features of its task's spec, see `bert.data.records`. In a batch,
sequences are cut to the longest row, and rows of similar length share a batch,
so that little of it is padding.

An epoch of training takes the blocks of the files in random order, holds about
WINDOW_ROWS rows at a time, and shuffles these. The rows of a batch depend only
on the files, the batch size, the seed and the number of the batch, so training
can resume at any batch without reading the records before it.
"""

from __future__ import annotations

import array
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert import variables
from bert.data import files, records, sequences
from bert.engine import devices, record_files
from bert.engine.batches import lengths_up_to

# Training rows are sorted by length among this many batches: enough for
# batches with little padding, few enough that batches stay mixed.
SORTED_BATCHES = 32

# Shuffle-window size. Smaller data sets are fully shuffled every epoch. That
# many records of 512 positions take about 200 MB.
WINDOW_ROWS = 64 * 1024

# Maximum size of the serialized rows of a data set in memory; larger data sets
# are read from their file. A row of 128 positions has about 500 bytes.
MEMORY_BYTES = 2**28

# Batches that are prepared while the model computes.
_BATCHES_AHEAD = 4

InputFn = Callable[[Mapping], "tf.data.Dataset"]

# The rows of a part of the data, int64 [rows of the part], and the batches that
# they form, each int64 [B]. One part at a time is in memory.
Part = tuple[np.ndarray, list[np.ndarray]]

# Changes a batch: from its features and the numbers of its rows in the whole
# training or evaluation, int64 [B], to features.
Transform = Callable[
  [dict[str, "tf.Tensor"], "tf.Tensor"], dict[str, "tf.Tensor"]
]


class Rows:
  """Rows in memory, with the attributes and `read` of RecordFiles.

  They have the same blocks as a file, and so form the same batches.
  """

  def __init__(self, features: Iterable[Mapping], spec: records.Spec):
    variables.check_eager()
    self.spec = spec
    self._serialized, self._lengths = [], array.array("i")
    for row in features:
      self.add(row)

  def add(self, row: Mapping) -> bytes:
    """Adds a row; returns it serialized."""
    self._serialized.append(records.encode_row(row, self.spec))
    self._lengths.append(_row_length(row))
    return self._serialized[-1]

  def clear(self) -> None:
    """Removes all rows."""
    self._serialized.clear()
    del self._lengths[:]

  @property
  def lengths(self) -> np.ndarray:
    """The length of each row up to its last real position, int32 [rows]."""
    return np.array(self._lengths, np.int32)

  @property
  def block_sizes(self) -> np.ndarray:
    """The number of rows in each block, int64 [blocks]."""
    starts = np.arange(0, len(self), record_files.BLOCK_ROWS)
    return np.diff(starts, append=len(self))

  def __len__(self) -> int:
    return len(self._serialized)

  def read(self, rows: np.ndarray) -> list[bytes]:
    """The serialized rows of some indices, int64 [n]."""
    return [self._serialized[row] for row in rows]


def _row_length(row):
  mask = np.asarray(row["input_mask"])
  used = np.flatnonzero(mask.reshape(-1, mask.shape[-1]).any(axis=0))
  return int(used[-1]) + 1 if used.size else 0


def write_rows(
  path: str, features: Iterable[Mapping], spec: records.Spec
) -> tuple[int, Callable[[], Rows | record_files.RecordFiles]]:
  """Writes rows to a TFRecord file, atomically.

  Returns the number of rows, and a function that returns them: from memory, or
  from the file if they exceed MEMORY_BYTES.
  """
  held, count, size = Rows([], spec), 0, 0
  with files.open_atomic(path) as writer:
    for row in features:
      record = held.add(row)
      writer.write(records.framed(record))
      count += 1
      size += len(record)
      if size > MEMORY_BYTES:
        held.clear()
  if len(held) == count:
    return count, lambda: held
  return count, functools.cache(lambda: record_files.RecordFiles([path], spec))


def _cut(features, spec, rounds):
  """Features without the positions after the batch's longest row."""
  sizes = {
    name: tf.maximum(tf.reduce_max(ends), 1)
    for name, ends in record_files.row_extents(features, spec).items()
  }
  if rounds:
    size, most = sizes[records.POSITION], spec["input_mask"].shape[-1]
    lengths = tf.constant(lengths_up_to(most))
    sizes[records.POSITION] = tf.reduce_min(lengths[lengths >= size])

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
  rounds_lengths: bool = False,
) -> dict[str, tf.Tensor]:
  """A batch of features, int32 or float32, of serialized rows, string [B].

  They include `row_index` [B] and `is_real_example` [B], which is also 0 where
  `is_real_row`, bool [B], is False: for rows that only fill up the batch.
  Unless `pad_to_max_length`, the batch is cut to its longest row or, if
  `rounds_lengths`, to the next of `lengths_up_to`.
  """
  features = {
    # TPUs emulate int64 slowly, and ids fit into int32.
    name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    for name, value in record_files.parse_int64(serialized, spec).items()
  }
  if not pad_to_max_length:
    features = _cut(features, spec, rounds_lengths)
  is_real = tf.cast(is_real_row, tf.int32)
  features["is_real_example"] = (
    features.get("is_real_example", tf.ones_like(is_real)) * is_real
  )
  features["row_index"] = tf.cast(row_index, tf.int32)
  return features


def training_batches(
  lengths: np.ndarray, block_sizes: np.ndarray, batch_size: int, seed: int
) -> Iterator[Part]:
  """Yields Parts without end; the rows of a batch have similar lengths.

  The blocks of an epoch are permuted and divided into windows of about equal
  size, at most about WINDOW_ROWS each; then the rows of a window are permuted.
  The permutations are drawn from (seed, epoch). Rows left over at the end of a
  window come first in the next, so all rows are used equally often.

  `lengths` is int [rows], and `block_sizes` int64 [blocks].
  """
  left_over = np.zeros(0, np.int64)
  for rows, rng in _shuffled_windows(block_sizes, seed):
    rows = np.concatenate([left_over, rows])
    whole = len(rows) // batch_size * batch_size
    left_over = rows[whole:]
    batches = _by_length(lengths, rows[:whole], batch_size)
    yield rows, [batches[index] for index in rng.permutation(len(batches))]


def _shuffled_windows(block_sizes, seed):
  """Yields the rows of each window, and the generator of its epoch."""
  ends = np.cumsum(block_sizes)
  count = np.sum(block_sizes)
  windows = -(-count // WINDOW_ROWS)
  for epoch in itertools.count() if count else ():
    rng = np.random.default_rng([seed, epoch])
    order = np.arange(len(block_sizes))
    if windows > 1:
      rng.shuffle(order)
    starts = np.cumsum(block_sizes[order]) - block_sizes[order]
    window = starts * windows // count
    for blocks in np.split(order, np.flatnonzero(np.diff(window)) + 1):
      rows = [np.arange(ends[n] - block_sizes[n], ends[n]) for n in blocks]
      yield rng.permutation(np.concatenate(rows)), rng


def _by_length(lengths, rows, batch_size):
  """Batches of rows, sorted by length among every SORTED_BATCHES."""
  window = SORTED_BATCHES * batch_size
  batches = []
  for start in range(0, len(rows), window):
    by_length = rows[start : start + window]
    by_length = by_length[np.argsort(lengths[by_length], kind="stable")]
    batches += np.split(by_length, len(by_length) // batch_size)
  return batches


def balanced_batches(
  groups: Sequence[np.ndarray], batch_size: int, seed: int
) -> Iterator[Part]:
  """Yields Parts without end, with the rows of all groups equally often.

  The groups, each int64 [rows], follow each other in a random order and give
  two rows at a time, so that a batch has pairs. A group gives each of its rows
  once before it repeats one.
  """
  rng = np.random.default_rng(seed)
  cycles = [_cycle(rows, rng) for rows in groups]
  order = _cycle(np.arange(len(groups)), rng)
  drawn = (next(cycles[group]) for group in order for _ in range(2))
  while True:
    rows = itertools.islice(drawn, SORTED_BATCHES * batch_size)
    batches = np.fromiter(rows, np.int64).reshape(-1, batch_size)
    yield batches.ravel(), list(batches)


def _cycle(values, rng):
  """Yields values without end, each time in another order."""
  while True:
    yield from rng.permutation(values)


def ordered_batches(count: int, batch_size: int) -> Iterator[Part]:
  """Yields Parts with each of `count` rows once, in order."""
  size = -(-record_files.BLOCK_ROWS // batch_size) * batch_size
  for start in range(0, count, size):
    rows = np.arange(start, min(start + size, count))
    yield rows, np.split(rows, range(batch_size, len(rows), batch_size))


class EachRow:
  """The rows of a source, one after another: dicts of the features in `spec`.

  Args:
    count: number of rows.
    transform: changes the features of several rows, and may add some.
    chosen: the indices of `count` rows, int64; None for the first ones.
  """

  def __init__(
    self,
    source: Rows | record_files.RecordFiles,
    count: int,
    transform: Transform | None = None,
    chosen: np.ndarray | None = None,
  ):
    self._source, self._count, self._transform = source, count, transform
    self._chosen = np.arange(count) if chosen is None else chosen
    none = self._read(np.zeros(0, np.int64)) if transform else {}
    added = {
      name: records.Feature(
        value.shape[1:], "float32" if value.dtype.kind == "f" else "int64"
      )
      for name, value in none.items()
      if name not in source.spec
    }
    self.spec = {**source.spec, **added}

  def __len__(self) -> int:
    return self._count

  def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
    for start in range(0, self._count, record_files.BLOCK_ROWS):
      end = min(start + record_files.BLOCK_ROWS, self._count)
      yield from sequences.rows_of(self._read(self._chosen[start:end]))

  def _read(self, index):
    """The features of some rows, without those that only a batch has."""
    serialized = tf.constant(self._source.read(index), tf.string)
    is_real = tf.ones([len(index)], tf.bool)
    spec = self._source.spec
    features = read_batch(serialized, index, is_real, spec, True)
    for name in {"row_index", "is_real_example"} - spec.keys():
      del features[name]
    if self._transform:
      features = self._transform(features, tf.constant(index))
    return {name: value.numpy() for name, value in features.items()}


def input_fn_from_file(
  path: str | Sequence[str],
  spec: records.Spec,
  is_training: bool,
  drop_remainder: bool = False,
) -> InputFn:
  """An `input_fn(params)` over TFRecord files, which it reads when called."""
  paths = [path] if isinstance(path, (str, os.PathLike)) else path
  read = functools.cache(lambda: record_files.RecordFiles(paths, spec))
  return input_fn_from_rows(read, is_training, drop_remainder)


def input_fn_from_rows(
  source: Rows | record_files.RecordFiles | Callable,
  is_training: bool,
  drop_remainder: bool = False,
  transform: Transform | None = None,
) -> InputFn:
  """An `input_fn(params)` for `Estimator`, over batches of `read_batch`.

  In `params`: `batch_size`; for training also `seed` and `first_step`, the
  number of batches to skip, `by_length`, whether rows of similar length share a
  batch (default: True), and `groups`, if any, see `balanced_batches`;
  `pad_to_max_length` and `rounds_lengths`, see `RunConfig`; `fill_batches`, for
  devices that share a batch evenly.

  As in the original, an evaluation keeps the order of the rows and all
  positions. Its last batch may be smaller, unless it is filled by repeating its
  rows.

  Args:
    source: the rows, or a function that returns them when they are needed.
    is_training: shuffled batches without end, or each row once.
    drop_remainder: drop the last, smaller batch, unless `is_training`.
  """

  def input_fn(params):
    rows = source() if callable(source) else source
    size = params["batch_size"]
    first_step = params.get("first_step", 0) if is_training else 0

    def batches():
      parts = ordered_batches(len(rows), size)
      if is_training:
        lengths = rows.lengths
        if not params.get("by_length", True):
          lengths = np.zeros_like(lengths)  # Keeps the shuffled order.
        seed = params.get("seed", 0)
        parts = training_batches(lengths, rows.block_sizes, size, seed)
        if groups := params.get("groups"):
          parts = balanced_batches(groups, size, seed)
      for row_index, serialized in read_parts(rows, parts, first_step):
        if len(row_index) == size or not drop_remainder:
          yield row_index, np.array(serialized, object)

    # Passing columns from Python is slow, so TensorFlow computes the others.
    columns = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], tf.string)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=columns)
    dataset = dataset.enumerate(first_step)
    fills = is_training or drop_remainder
    read = _batch_reader(rows.spec, params, transform, not is_training, fills)
    dataset = dataset.map(read, num_parallel_calls=_BATCHES_AHEAD)
    if is_training and len(rows):
      dataset = devices.endless(dataset)
    # Otherwise a thread tunes the input, and the end of an iteration may wait
    # for up to a minute until that thread stops.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(_BATCHES_AHEAD).with_options(options)

  return input_fn


def _batch_reader(spec, params, transform, pads, fills):
  """A function from a step, and columns of its rows, to a batch.

  `pads` keeps all positions; `fills` fills a smaller batch with its own rows.
  """
  size, is_static = params["batch_size"], params.get("pad_to_max_length")
  pads = pads or is_static
  rounds = params.get("rounds_lengths", False)
  fills = fills or is_static or params.get("fill_batches")

  @tf.autograph.experimental.do_not_convert  # Saves a second.
  def read(step, columns):
    count = tf.size(columns[0])
    position = tf.range(size if fills else count)
    row_index, serialized = (tf.gather(c, position % count) for c in columns)
    features = read_batch(
      serialized, row_index, position < count, spec, pads, rounds
    )
    numbers = step * size + tf.cast(position, tf.int64)
    return transform(features, numbers) if transform else features

  return read


def read_parts(
  rows: Rows | record_files.RecordFiles,
  parts: Iterable[Part],
  first_step: int = 0,
) -> Iterator[tuple[np.ndarray, list[bytes]]]:
  """Yields batches, from a step on: row indices, int64 [B], and B rows."""
  held = {}
  step = 0
  for part, batches in parts:
    skipped = max(first_step - step, 0)
    if skipped < len(batches):
      # Release what this part does not need before reading more.
      held = {row: held[row] for row in part.tolist() if row in held}
      missing = [row for row in np.unique(part).tolist() if row not in held]
      content = rows.read(np.array(missing, np.int64))
      held.update(zip(missing, content, strict=True))
    for batch in batches[skipped:]:
      yield batch, [held[row] for row in batch.tolist()]
    step += len(batches)
