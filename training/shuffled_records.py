"""Shuffled batches of TFRecord files that are larger than memory.

The files are read once before the first batch: every record is checked, and
the position of each block of BLOCK_ROWS consecutive records is kept. An epoch
of training takes the blocks in random order, holds about WINDOW_ROWS records
at a time, and shuffles these. The rows of a batch depend only on the files, the
batch size, the seed and the number of the batch, so training can resume at any
batch without reading the records before it.
"""

import hashlib
import math
import operator
import os
import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError

from errors import UserError, listing, plural
from pipeline import records
from training import inputs

# Records that are read at once from one position in a file: enough to read from
# a disk or a bucket at full speed, few enough that a window mixes many of them.
BLOCK_ROWS = 1024

# Shuffle-window size. Smaller data sets are fully shuffled every epoch. That
# many records of 512 positions take about 200 MB.
WINDOW_ROWS = 64 * BLOCK_ROWS

_REMEDY = "make or copy the file again"


class Layout(NamedTuple):
  """The contents of a file's records.

  Attributes:
    max_seq_length: S, the number of `input_ids`.
    max_predictions_per_seq: P, the masked positions; 0 for none.
    next_sentence_prediction: whether there are `next_sentence_labels`.
  """

  max_seq_length: int
  max_predictions_per_seq: int
  next_sentence_prediction: bool


def describe(path: str | os.PathLike) -> Layout:
  """Returns the Layout of a TFRecord file, from its first record.

  Raises:
    UserError: there is no such file, it is empty or not a TFRecord file, or
      its records have no `input_ids`.
  """
  path = os.fspath(path)
  record = next(records.read_records(path), None)
  if record is None:
    raise UserError(f"{path} is empty; {_REMEDY}")
  features = _features(path, 0, record)

  def size(name):
    return len(features[name].int64_list.value) if name in features else 0

  if not size("input_ids"):
    raise UserError(
      f"{path}: record 0 has no input_ids, but "
      f"{listing(sorted(features)) or 'nothing'}; pass files of "
      f"pre-training data"
    )
  return Layout(
    size("input_ids"),
    size("masked_lm_positions"),
    "next_sentence_labels" in features,
  )


class _Block(NamedTuple):
  """Consecutive records of one file; offset and size are in bytes."""

  path: str
  first_row: int
  offset: int
  size: int
  digest: bytes


class RecordFiles:
  """The records of several TFRecord files, all of them checked.

  Args:
    paths: the files; empty ones are skipped with a warning.
    spec: the spec of their records, with `input_ids` and `input_mask` [S].
    vocab_size: V, the limit of ids.

  Attributes:
    paths: list of str.
    spec: the spec.
    lengths: uint16 or int32 [rows], see `inputs.row_lengths`.
    fingerprint: hex string that depends on all records, their order and their
      distribution over files.

  Raises:
    UserError: a file cannot be read, is truncated or damaged, or a record does
      not fit the spec or the vocabulary; or there is no record at all.
  """

  def __init__(
    self,
    paths: Iterable[str | os.PathLike],
    spec: records.Spec,
    vocab_size: int,
  ):
    started = time.monotonic()
    self.paths = [os.fspath(path) for path in paths]
    self.spec = dict(spec)
    self._blocks = []
    lengths = []
    rows = 0
    for block in _scan(self.paths, self.spec, vocab_size):
      path, offset, size, block_lengths, hashes = block
      self._blocks.append(_Block(path, rows, offset, size, _digest(hashes)))
      lengths.append(block_lengths)
      rows += len(block_lengths)
    not_empty = {block.path for block in self._blocks}
    for path in self.paths:
      if path not in not_empty:
        logging.warning("%s has no record", path)
    if not rows:
      raise UserError(
        f"there is no record in {listing(self.paths) or 'no file'}; "
        f"pass files of pre-training data"
      )
    self.lengths = np.concatenate(lengths)
    self._first_rows = np.array([block.first_row for block in self._blocks])
    self.fingerprint = self._hash_of_blocks()
    logging.info(
      "Checked %s in %s in %.1f seconds",
      plural(rows, "record"),
      plural(len(self.paths), "file"),
      time.monotonic() - started,
    )

  def __len__(self) -> int:
    return len(self.lengths)

  @property
  def block_sizes(self) -> np.ndarray:
    """Number of rows in each block, in the order of the files, int64."""
    return np.diff(self._first_rows, append=len(self))

  def read(self, rows: np.ndarray) -> list[bytes]:
    """Reads records, whole blocks at a time.

    Args:
      rows: int64 [n], in ascending order.

    Returns:
      The n serialized records.

    Raises:
      UserError: a file has changed.
    """
    indices = np.searchsorted(self._first_rows, rows, side="right") - 1
    found = []
    for index in np.unique(indices):
      block = self._blocks[index]
      content = _read_block(block)
      found += [content[r - block.first_row] for r in rows[indices == index]]
    return found

  def _hash_of_blocks(self):
    total = hashlib.blake2b(digest_size=16)
    for block in self._blocks:
      # Offset 0 marks the beginning of a file.
      total.update(struct.pack("<QQ", block.first_row, block.offset))
      total.update(block.digest)
    return total.hexdigest()


def _scan(paths, spec, vocab_size):
  """Yields the blocks of all files as (path, offset, size, lengths, hashes)."""
  limits = _limits(spec, vocab_size)
  # Rows and bytes of each file that have been examined.
  rows = [0] * len(paths)
  sizes = [0] * len(paths)
  number = 0
  try:
    for block in _examined_blocks(paths, spec, limits).as_numpy_iterator():
      number, is_right, lengths, size, hashes = block
      if not is_right:
        break
      yield paths[number], sizes[number], int(size), lengths, hashes
      rows[number] += len(lengths)
      sizes[number] += int(size)
    else:
      # TensorFlow takes an incomplete header for the end of the file.
      ends = [tf.io.gfile.stat(path).length for path in paths]
      if ends == sizes:
        return
      number = [*map(operator.ne, ends, sizes)].index(True)
  except (tf.errors.OpError, UnicodeDecodeError):
    # The error does not tell the record, nor even the file.
    pass
  for state in zip(paths[number:], rows[number:], sizes[number:], strict=True):
    _find_fault(*state, spec, limits)
  raise UserError(f"{paths[number]} changed while it was read; try again")


def _limits(spec, vocab_size):
  """Limits that values of integer features must be below."""
  limits = {
    "input_ids": vocab_size,
    "input_mask": 2,
    "masked_lm_positions": spec["input_ids"].shape[0],
    "masked_lm_ids": vocab_size,
    "next_sentence_labels": 2,
  }
  return {name: limits[name] for name in spec if name in limits}


def _examined_blocks(paths, spec, limits):
  """Dataset of the blocks of all files.

  Each is (number of its file, whether its values are valid, lengths of its
  rows, its bytes in the file, a hash of each record).
  """
  max_seq_length = spec["input_mask"].shape[0]
  small = tf.uint16 if max_seq_length < 2**16 else tf.int32

  def blocks(number, path):
    dataset = tf.data.TFRecordDataset(path).batch(BLOCK_ROWS)
    return dataset.map(lambda serialized: (number, serialized))

  def examine(number, serialized):
    features = inputs.parse_int64(serialized, spec)
    is_right = [
      (tf.reduce_min(features[name]) >= 0)
      & (tf.reduce_max(features[name]) < limit)
      for name, limit in limits.items()
    ]
    mask = tf.cast(features["input_mask"], tf.int32)
    lengths = tf.cast(inputs.row_lengths({"input_mask": mask}, spec), small)
    sizes = tf.strings.length(serialized) + records.FRAME_BYTES
    size = tf.reduce_sum(tf.cast(sizes, tf.int64))
    return number, tf.reduce_all(is_right), lengths, size, _hashes(serialized)

  numbered = tf.data.Dataset.from_tensor_slices(
    tf.constant(paths, tf.string, [len(paths)])
  ).enumerate()
  return (
    numbered.flat_map(blocks)
    .map(examine, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    .prefetch(tf.data.AUTOTUNE)
  )


def _hashes(serialized):
  """A hash of each record, int64 [B]; the same on every machine."""
  return tf.strings.to_hash_bucket_fast(serialized, 2**63 - 1)


def _digest(hashes):
  return hashlib.blake2b(hashes.tobytes(), digest_size=16).digest()


def _find_fault(path, first_row, offset, spec, limits):
  """Raises UserError if a record of a file, from the first one on, is wrong."""
  found = records.read_records(path, offset, first_row)
  for number, record in enumerate(found, first_row):
    features = _features(path, number, record)
    for name, feature in spec.items():
      _check_feature(f"{path}: record {number}", features, name, feature)
      for value in features[name].int64_list.value if name in limits else ():
        if not 0 <= value < limits[name]:
          _refuse_value(f"{path}: record {number}", name, value, limits[name])


def _check_feature(where, features, name, feature):
  kind = "int64_list" if feature.dtype == "int64" else "float_list"
  if name not in features or not features[name].HasField(kind):
    raise UserError(
      f"{where} has no {name} of type {feature.dtype}; pass files that "
      f"were made with the same settings"
    )
  count = len(getattr(features[name], kind).value)
  if count != math.prod(feature.shape):
    raise UserError(
      f"{where}: {name} has {count} values, expected "
      f"{math.prod(feature.shape)}; pass files that were made with the same "
      f"max_seq_length and max_predictions_per_seq"
    )


def _refuse_value(where, name, value, limit):
  if name.endswith("_ids") and value >= limit:
    raise UserError(
      f"{where}: {name} holds id {value}, beyond vocab_size={limit}; pass the "
      f"bert_config.json of the vocabulary that the records were made with"
    )
  raise UserError(
    f"{where}: {name} holds {value}, which is not from 0 to {limit - 1}; "
    f"{_REMEDY}"
  )


def _features(path, number, record):
  """A record's features by name."""
  try:
    return tf.train.Example.FromString(record).features.feature
  except DecodeError as error:
    raise UserError(
      f"{path}: record {number} is not a tf.train.Example; pass files of "
      f"pre-training data"
    ) from error


def _read_block(block):
  """The records of a block, a list of bytes."""
  content = []
  size = 0
  try:
    for record in records.read_records(block.path, block.offset):
      content.append(record)
      size += len(record) + records.FRAME_BYTES
      if size >= block.size:
        break
  except UserError:
    if not tf.io.gfile.exists(block.path):
      raise
  hashes = _hashes(tf.constant(content, tf.string, [len(content)])).numpy()
  if _digest(hashes) != block.digest:
    raise UserError(
      f"{block.path} changed since this run began; give the same command again "
      f"with the original file"
    )
  return content


def shuffled_batches(
  lengths: np.ndarray, block_sizes: np.ndarray, batch_size: int, seed: int
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
  """Like `inputs.batches_by_part`, where a part is a window.

  An epoch's blocks are permuted and divided into windows of about equal size,
  as few as have WINDOW_ROWS each; the rows of a window are permuted.

  Args:
    lengths: int [rows].
    block_sizes: int64 [blocks], number of consecutive rows in each, all > 0.
    batch_size: B.
    seed: int.

  Yields:
    For each window, its rows and the batches that they form.
  """
  ends = np.cumsum(block_sizes)
  windows = -(-len(lengths) // WINDOW_ROWS)

  def parts(rng):
    order = rng.permutation(len(block_sizes))
    starts = np.cumsum(block_sizes[order]) - block_sizes[order]
    window = starts * windows // len(lengths)
    for blocks in np.split(order, np.flatnonzero(np.diff(window)) + 1):
      rows = [np.arange(ends[n] - block_sizes[n], ends[n]) for n in blocks]
      yield rng.permutation(np.concatenate(rows))

  return inputs.batches_by_part(lengths, batch_size, seed, parts)


def training_input_fn(
  files: RecordFiles, transform: inputs.Transform | None = None
) -> inputs.InputFn:
  """An `input_fn(params)` for `Estimator`: shuffled batches without end.

  In `params`: `batch_size`, `seed`, `first_step`, `pad_to_max_length`, as for
  `inputs.input_fn_from_rows`. Iteration raises an OpError that contains the
  text of a UserError if a file has changed.

  Args:
    files: RecordFiles.
    transform: applied to each batch, or None.
  """

  def input_fn(params):
    plan = (files.lengths, files.block_sizes, params["batch_size"])
    seed = params.get("seed", 0)
    first_step = params.get("first_step", 0)

    def batches():
      return _load(files, shuffled_batches(*plan, seed), first_step)

    return inputs.batches_dataset(batches, files.spec, params, transform)

  return input_fn


def evaluation_input_fn(
  files: RecordFiles,
  max_rows: int | None = None,
  transform: inputs.Transform | None = None,
) -> inputs.InputFn:
  """An `input_fn(params)` for `Estimator`: each row once, in input order.

  Args:
    files: RecordFiles.
    max_rows: number of rows to read; all when None.
    transform: applied to each batch, or None.
  """
  count = len(files) if max_rows is None else min(max_rows, len(files))

  def input_fn(params):
    def batches():
      return _load(files, _batches_in_order(count, params["batch_size"]))

    return inputs.batches_dataset(batches, files.spec, params, transform, count)

  return input_fn


def _batches_in_order(count, batch_size):
  """Yields the first rows as (rows, batches) of about a block each."""
  size = max(BLOCK_ROWS // batch_size, 1) * batch_size
  for start in range(0, count, size):
    rows = np.arange(start, min(start + size, count))
    batches = np.split(rows, range(batch_size, len(rows), batch_size))
    # The last batch is filled up with its own rows.
    yield rows, [b[np.arange(batch_size) % len(b)] for b in batches]


def _load(files, parts, first_step=0):
  """Yields (step, rows [B], serialized rows) of batches, from a step on.

  In the parts before, only records that are left over are read.
  """
  held = {}
  step = 0
  for rows, batches in parts:
    skipped = max(first_step - step, 0)
    if skipped < len(batches):
      # Release what this part does not need before reading more.
      held = {row: held[row] for row in rows.tolist() if row in held}
      missing = [row for row in np.unique(rows).tolist() if row not in held]
      content = files.read(np.array(missing, np.int64))
      held.update(zip(missing, content, strict=True))
    for number, batch in enumerate(batches[skipped:], step + skipped):
      yield number, batch, [held[row] for row in batch.tolist()]
    step += len(batches)
