"""Rows of features: one spec a task, records on disk, batches for the model.

A spec says what a row holds: a dict from feature name to
`tf.io.FixedLenFeature`. The writer checks against it, the reader parses by it.

And what all readers of a user's files share: `decode_utf8` and `split_lines`,
and `listing` and `did_you_mean` for their messages.
"""

import contextlib
import difflib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import checkpoints

# The features [S] that a batch cuts behind its longest row.
SEQUENCES = ("input_ids", "input_mask", "segment_ids")

# Training rows are sorted by length among this many batches: enough for
# batches with little padding, few enough that a batch stays a mixture.
SORTED_BATCHES = 32

# Rows of evaluation and prediction are sorted among this many, which bounds
# what must be held back to give results in the order of the input.
SORTED_ROWS = 4096

# Names in one message; a file or a task may have thousands.
LISTED = 20


def read_bytes(path: str) -> bytes:
  """All of a file, or of a pipe, such as a shell makes of `<(command)`."""
  if "://" in path or os.path.isfile(path):
    with tf.io.gfile.GFile(path, "rb") as reader:
      return reader.read()
  with open(path, "rb") as reader:
    return reader.read()


def decode_utf8(path: str, content: bytes) -> str:
  """A file's content as text, without its byte order mark.

  Raises:
    ValueError: it is not UTF-8; the message names the line and the byte, which
      is counted from 0, the mark among them.
  """
  try:
    return content.decode("utf-8").removeprefix("\ufeff")
  except UnicodeDecodeError as error:
    newline = b"\n" if b"\n" in content else b"\r"
    line = 1 + content.count(newline, 0, error.start)
    raise ValueError(
      f"{path}:{line}: byte {error.start} is not UTF-8; convert the file to "
      f"UTF-8"
    ) from error


def split_lines(text: str) -> list[str]:
  """The lines of a text, which end in \\n, \\r\\n or, if all do, in \\r."""
  newline = "\n" if "\n" in text else "\r"
  lines = text.removesuffix(newline).split(newline) if text else []
  return [line.removesuffix("\r") for line in lines]


def listing(names: Sequence) -> str:
  """The names, between quotation marks; of many, or long ones, a part."""
  shown = ", ".join(repr(shortened(str(name))) for name in names[:LISTED])
  more = len(names) - LISTED
  return f"{shown} and {more} more" if more > 0 else shown


def counted(number: int, noun: str) -> str:
  """A number of things: 1 row, 2 rows."""
  return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shortened(text: str) -> str:
  """The text, or what of it fits into a message."""
  return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(
  word: str, words: Iterable[str], shown: Callable[[str], str] = repr
) -> str:
  """ "; did you mean ...?", or nothing if no word comes near.

  Args:
    word: what the user wrote; case does not matter.
    words: what there is.
    shown: how the message writes it.
  """
  by_lower = {str(other).lower(): str(other) for other in words}
  near = difflib.get_close_matches(word.lower(), by_lower, n=1)
  return f"; did you mean {shown(by_lower[near[0]])}?" if near else ""


def share_room(size_a: int, size_b: int, room: int) -> tuple[int, int]:
  """How many items of each of two lists fit into `room` together.

  The longer one loses first, and B where both are as long: each has half of
  the room, A the odd one, and what the other leaves of its half.
  """
  kept_a = min(size_a, max((room + 1) // 2, room - size_b))
  return kept_a, min(size_b, room - kept_a)


def truncate_pair(tokens_a: list, tokens_b: list, max_length: int) -> None:
  """Shortens two lists in place until they hold `max_length` items together.

  The longer one loses its last item, B where both are as long.
  """
  kept_a, kept_b = share_room(len(tokens_a), len(tokens_b), max_length)
  del tokens_a[kept_a:], tokens_b[kept_b:]


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
    values = row[name]
    if not isinstance(values, list):
      values = np.ravel(values).tolist()
    if len(values) != math.prod(feature.shape):
      raise ValueError(
        f"feature {name} has {len(values)} values, where "
        f"{feature.shape} are expected"
      )
    if feature.dtype == tf.int64:
      value = {"int64_list": tf.train.Int64List(value=values)}
    else:
      value = {"float_list": tf.train.FloatList(value=values)}
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
    ends = [row_ends(parse(chunk, spec)).numpy() for chunk in chunks]
    self.lengths = np.concatenate([np.zeros(0, np.int32), *ends])

  @classmethod
  def from_file(
    cls, path: str | os.PathLike, spec: dict[str, tf.io.FixedLenFeature]
  ) -> "Rows":
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
    cls, features: Iterable[Mapping], spec: dict[str, tf.io.FixedLenFeature]
  ) -> "Rows":
    """Rows from dicts of feature values."""
    return cls([encode_row(row, spec) for row in features], spec)

  def __len__(self) -> int:
    return len(self.lengths)


def check_records(
  path: str | os.PathLike, spec: dict[str, tf.io.FixedLenFeature]
) -> int:
  """Reads a TFRecord file once, in little memory; returns how many rows it has.

  Raises:
    ValueError: the file is damaged, or its rows do not fit the spec.
  """
  sizes = (
    tf.data.TFRecordDataset(path)
    .batch(1024)
    .map(lambda records: tf.size(row_ends(parse(records, spec)), tf.int64))
  )
  with _whole_records(path):
    return int(sizes.reduce(tf.constant(0, tf.int64), tf.add))


@contextlib.contextmanager
def _whole_records(path):
  try:
    yield
  except (tf.errors.OpError, UnicodeDecodeError) as error:
    # TensorFlow quotes what it could not read, be it text or not.
    raise ValueError(
      f"{os.fspath(path)} does not hold whole records of "
      f"this model's inputs; write it again"
    ) from error


def parse(
  serialized: tf.Tensor, spec: Mapping[str, tf.io.FixedLenFeature]
) -> dict[str, tf.Tensor]:
  """Features [B, ...], int32 or float32, of serialized rows [B]."""
  # A TPU has no int64 worth the name, and ids need none.
  return {
    name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    for name, value in tf.io.parse_example(serialized, spec).items()
  }


def row_ends(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
  """Where the last real position of each row ends, int32 [B].

  Args:
    features: dict with `input_mask`, int32 [B, S].
  """
  mask = features["input_mask"]
  places = tf.range(1, mask.shape[1] + 1)
  return tf.reduce_max(mask * places, axis=1)


def read_batch(
  serialized: tf.Tensor,
  row_index: tf.Tensor,
  is_real_row: tf.Tensor,
  spec: Mapping[str, tf.io.FixedLenFeature],
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
    length = tf.maximum(tf.reduce_max(row_ends(features)), 1)
    for name in features.keys() & set(SEQUENCES):
      features[name] = features[name][:, :length]
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
  records: tf.data.Dataset,
  spec: Mapping[str, tf.io.FixedLenFeature],
  batch_size: int,
  drop_remainder: bool = False,
) -> tf.data.Dataset:
  """Batches of rows, each row once, by length among every SORTED_ROWS.

  No more than these are held in memory, however many rows there are.

  Args:
    records: dataset of serialized rows.
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
    order = tf.argsort(row_ends(mask), stable=True)
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

  windows = records.enumerate().batch(SORTED_ROWS).map(by_length)
  return windows.unbatch().batch(batch_size, drop_remainder).map(filled_up)


def input_fn_from_file(
  path: str,
  spec: dict[str, tf.io.FixedLenFeature],
  is_training: bool,
  drop_remainder: bool = False,
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
    records = tf.data.TFRecordDataset(path)
    return _in_order(records, spec, params, drop_remainder)

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


def _in_order(records, spec, params, drop_remainder):
  """The dataset of batches to evaluate on."""
  batches = sequential_batches(
    records, spec, params["batch_size"], drop_remainder
  )
  return _read(batches, spec, params)


def _read(batches, spec, params):
  pad = params.get("pad_to_max_length", False)
  features = batches.map(lambda *batch: read_batch(*batch, spec, pad))
  return features.prefetch(tf.data.AUTOTUNE)
