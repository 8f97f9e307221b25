"""Rows of features: one spec a task, records on disk, batches for the model.

A spec says what a row holds: a dict from feature name to
`tf.io.FixedLenFeature`. The writer checks against it, the reader parses by it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import checkpoints

# Sequences are cut to a multiple of this many positions.
BUCKET_STEP = 4

# Training rows are sorted by length among this many batches: enough for
# batches with little padding, few enough that a batch stays a mixture.
SORTED_BATCHES = 32

# Rows of evaluation and prediction are sorted among this many, which bounds
# what must be held back to give results in the order of the input.
SORTED_ROWS = 4096


def truncate_pair(tokens_a: list, tokens_b: list, max_length: int) -> None:
  """Shortens two lists in place until they hold `max_length` items together.

  The longer one loses its last item, B where both are as long.
  """
  while len(tokens_a) + len(tokens_b) > max_length:
    longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
    longer.pop()


def padded(values: Sequence[int], length: int) -> list[int]:
  """`values` with zeros behind them, a list of `length`."""
  return list(values) + [0] * (length - len(values))


def int_feature(*shape: int) -> tf.io.FixedLenFeature:
  """The spec of an integer feature; no arguments for one number."""
  return tf.io.FixedLenFeature(list(shape), tf.int64)


def encode_row(
  row: Mapping, spec: Mapping[str, tf.io.FixedLenFeature]
) -> bytes:
  """A row as a serialized `tf.train.Example`.

  Args:
    row: dict from feature name to a number or a flat list of them.
    spec: the row's spec.

  Raises:
    ValueError: a feature's length is not the spec's.
  """
  features = {}
  for name, feature in spec.items():
    values = np.ravel(row[name])
    if len(values) != np.prod(feature.shape, dtype=int):
      raise ValueError(
        f"feature {name} has {len(values)} values, where "
        f"{feature.shape} are expected"
      )
    if feature.dtype == tf.int64:
      value = {"int64_list": tf.train.Int64List(value=values.tolist())}
    else:
      value = {"float_list": tf.train.FloatList(value=values.tolist())}
    features[name] = tf.train.Feature(**value)
  example = tf.train.Example(features=tf.train.Features(feature=features))
  # Maps have no order; a fixed one makes equal runs write equal files.
  return example.SerializeToString(deterministic=True)


def write_records(
  path: str, rows: Iterable[Mapping], spec: Mapping[str, tf.io.FixedLenFeature]
) -> int:
  """Writes rows to a TFRecord file that appears whole or not at all.

  Returns:
    The number of rows.
  """
  count = 0
  with (
    checkpoints.written_aside(path) as partial,
    tf.io.TFRecordWriter(partial) as writer,
  ):
    for row in rows:
      writer.write(encode_row(row, spec))
      count += 1
  return count


class Rows:
  """Rows held in memory, serialized.

  Args:
    serialized: sequence of serialized `tf.train.Example`.
    spec: their spec, with a feature `input_mask` [S].

  Attributes:
    lengths: int array, where each row's last real position ends.
  """

  def __init__(
    self, serialized: Sequence[bytes], spec: dict[str, tf.io.FixedLenFeature]
  ):
    self.spec = spec
    self.serialized = tf.constant(serialized, tf.string, [len(serialized)])
    chunks = tf.data.Dataset.from_tensor_slices(self.serialized).batch(1024)
    places = np.arange(1, spec["input_mask"].shape[0] + 1)
    ends = [
      (self._parse(chunk)["input_mask"].numpy() * places).max(axis=1)
      for chunk in chunks
    ]
    self.lengths = np.concatenate([np.zeros(0, np.int64), *ends])

  @classmethod
  def from_file(
    cls, path: str | os.PathLike, spec: dict[str, tf.io.FixedLenFeature]
  ) -> "Rows":
    """The rows of a TFRecord file.

    Raises:
      ValueError: the file is damaged, or its rows do not fit the spec.
    """
    try:
      chunks = [
        chunk.numpy().tolist()
        for chunk in tf.data.TFRecordDataset(path).batch(1024)
      ]
      return cls([record for chunk in chunks for record in chunk], spec)
    except tf.errors.OpError as error:
      raise ValueError(
        f"{os.fspath(path)} does not hold whole records of "
        f"this model's inputs; write it again"
      ) from error

  @classmethod
  def from_features(
    cls, features: Iterable[Mapping], spec: dict[str, tf.io.FixedLenFeature]
  ) -> "Rows":
    """Rows from dicts of feature values."""
    return cls([encode_row(row, spec) for row in features], spec)

  def __len__(self) -> int:
    return len(self.lengths)

  def _parse(self, serialized):
    # A TPU has no int64 worth the name, and ids need none.
    return {
      name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
      for name, value in tf.io.parse_example(serialized, self.spec).items()
    }

  def batch(
    self, indices: tf.Tensor, is_real_row: tf.Tensor, length: int | tf.Tensor
  ) -> dict[str, tf.Tensor]:
    """A batch of features.

    Args:
      indices: int64 [B], which rows.
      is_real_row: bool [B]; False marks a row as padding of the batch.
      length: int64 scalar; features [B, S] are cut to [B, length].

    Returns:
      Dict of int32 or float32 tensors; among them `row_index` [B], and
      `is_real_example` [B], which is 0 also where `is_real_row` is False.
    """
    features = self._parse(tf.gather(self.serialized, indices))
    full = self.spec["input_mask"].shape[0]
    for name, feature in self.spec.items():
      if list(feature.shape) == [full]:
        features[name] = features[name][:, :length]
    is_real = tf.cast(is_real_row, tf.int32)
    features["is_real_example"] = (
      features.get("is_real_example", tf.ones_like(is_real)) * is_real
    )
    features["row_index"] = tf.cast(indices, tf.int32)
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
  left_over = np.zeros(0, np.int64)
  epoch = 0
  while len(lengths):
    rng = np.random.default_rng([seed, epoch])
    rows = np.concatenate([left_over, rng.permutation(len(lengths))])
    whole = len(rows) // batch_size * batch_size
    rows, left_over = rows[:whole], rows[whole:]
    window = SORTED_BATCHES * batch_size
    batches = []
    for start in range(0, whole, window):
      by_length = rows[start : start + window]
      by_length = by_length[np.argsort(lengths[by_length], kind="stable")]
      batches += np.split(by_length, len(by_length) // batch_size)
    for index in rng.permutation(len(batches)):
      yield batches[index]
    epoch += 1


def sequential_batches(
  lengths: np.ndarray, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Batches of row indices, each row once, by length within a window.

  Args:
    lengths: int [rows].
    batch_size: B.

  Yields:
    indices int64 [B] and is_real bool [B]; the last batch is filled up with
    rows that are not real.
  """
  order = np.concatenate(
    [np.zeros(0, np.int64)]
    + [
      start + np.argsort(lengths[start : start + SORTED_ROWS], kind="stable")
      for start in range(0, len(lengths), SORTED_ROWS)
    ]
  )
  for start in range(0, len(order), batch_size):
    indices = order[start : start + batch_size]
    is_real = np.arange(batch_size) < len(indices)
    yield np.resize(indices, batch_size), is_real


def bucket_length(longest: int, max_length: int) -> int:
  """The length that a batch is cut to: a multiple of BUCKET_STEP, or all."""
  buckets = -(-max(longest, 1) // BUCKET_STEP)
  return min(buckets * BUCKET_STEP, max_length)


def input_fn_from_rows(
  rows: Rows | Callable[[], Rows],
  is_training: bool,
  drop_remainder: bool = False,
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` for `Estimator` over rows.

  In `params`: `batch_size`; for training also `seed` and `first_step`, the
  number of batches to pass over (both 0 if absent); `pad_to_max_length`, for
  devices that want one static shape.

  Args:
    rows: Rows, or a function that returns them when first needed.
    is_training: batches without end and shuffled, or each row once.
    drop_remainder: leave out the rows that fill no batch.
  """

  def input_fn(params):
    table = rows() if callable(rows) else rows
    batch_size = params["batch_size"]
    max_length = table.spec["input_mask"].shape[0]
    pad = params.get("pad_to_max_length", False)

    def plan():
      if is_training:
        batches = training_batches(
          table.lengths, batch_size, params.get("seed", 0)
        )
        for _ in range(params.get("first_step", 0)):
          next(batches)
        batches = ((b, np.ones(batch_size, bool)) for b in batches)
      else:
        batches = sequential_batches(table.lengths, batch_size)
      for indices, is_real in batches:
        if drop_remainder and not is_real.all():
          continue
        longest = table.lengths[indices].max()
        yield (
          indices,
          is_real,
          max_length if pad else bucket_length(longest, max_length),
        )

    dataset = tf.data.Dataset.from_generator(
      plan,
      output_signature=(
        tf.TensorSpec([batch_size], tf.int64),
        tf.TensorSpec([batch_size], tf.bool),
        tf.TensorSpec([], tf.int64),
      ),
    )
    dataset = dataset.map(
      lambda indices, is_real, length: table.batch(
        indices, is_real, max_length if pad else length
      )
    )
    return dataset.prefetch(tf.data.AUTOTUNE)

  return input_fn
