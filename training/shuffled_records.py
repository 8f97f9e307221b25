"""TFRecord files, larger than memory, as shuffled batches that can be resumed.

The files are read once, before the first batch: every record is checked, and
where each block of BLOCK_ROWS consecutive records lies is kept. An epoch of
training takes the blocks in random order, holds about WINDOW_ROWS records of
them at a time, and shuffles these. Which records make a batch is a function of
the files, the batch size, the seed and the number of the batch alone, so a
training goes on anywhere without a look at the records that are done.
"""

import hashlib
import math
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError

from errors import UserError, listing, plural
from training import inputs
from pipeline import records

# Records that are read at once from one place of a file: enough for a disk or
# a bucket to read at full speed, few enough that a window mixes many places.
BLOCK_ROWS = 1024

# Records that are shuffled at a time, or a block's worth more: an epoch of no
# more than these is one permutation. Of 512 positions they take about 200 MB.
WINDOW_ROWS = 64 * BLOCK_ROWS

# What lies around a record: its length and two checksums.
_HEADER_BYTES = 12
_FRAME_BYTES = 16

_REMEDY = "make or copy the file again"

Transform = Callable[[dict[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]


class Layout(NamedTuple):
  """What the records of a file hold.

  Attributes:
    max_seq_length: S, the positions of `input_ids`.
    max_predictions_per_seq: P, the masked positions; 0 for none.
    next_sentence_prediction: whether there are `next_sentence_labels`.
  """

  max_seq_length: int
  max_predictions_per_seq: int
  next_sentence_prediction: bool


def describe(path: str | os.PathLike) -> Layout:
  """The Layout of a TFRecord file, by its first record.

  Raises:
    ValueError: there is no such file, it has no record, it is no TFRecord
      file, or its records have no `input_ids`.
  """
  path = os.fspath(path)
  features = None
  try:
    for record in tf.data.TFRecordDataset(path).take(1):
      features = _features(path, 0, record.numpy())
    size = tf.io.gfile.stat(path).length
  except tf.errors.OpError as error:
    _refuse_to_read(path, 0, error)
  if features is None and size:
    raise UserError(f"{path} is not a TFRecord file; {_REMEDY}")
  if features is None:
    raise UserError(f"{path} is empty, without any record; {_REMEDY}")
  if not _values(features, "input_ids"):
    raise UserError(
      f"{path}: record 0 has no input_ids, but "
      f"{listing(sorted(features)) or 'nothing'}; pass files of "
      f"pre-training data"
    )
  return Layout(
    len(_values(features, "input_ids")),
    len(_values(features, "masked_lm_positions")),
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
  """The records of several TFRecord files, every one checked, none held.

  Args:
    paths: the files; an empty one is passed over.
    spec: what their records hold: dict from feature name to
      Feature, with `input_ids` and `input_mask` [S].
    vocab_size: V, what ids must be below.

  Attributes:
    paths: list of str.
    spec: the spec.
    lengths: uint16 or int32 [rows], where each row's last real position ends.
    fingerprint: hex string over all records, their order and their files.

  Raises:
    ValueError: a file cannot be read, is cut short or damaged, or a record
      does not fit spec or vocabulary; or there is no record at all.
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
    chunks = []
    rows = 0
    for chunk in _scanned(self.paths, self.spec, vocab_size):
      path, offset, size, ends, hashes = chunk
      self._blocks.append(_Block(path, rows, offset, size, _digest(hashes)))
      chunks.append(ends)
      rows += len(ends)
    if not rows:
      raise UserError(
        f"there is no record in {listing(self.paths) or 'no file'}; "
        f"pass files of pre-training data"
      )
    self.lengths = np.concatenate(chunks)
    self._first_rows = np.array([block.first_row for block in self._blocks])
    self.fingerprint = self._hash_of_blocks()
    logging.info(
      "Read %s in %s in %.1f seconds; all are whole",
      plural(rows, "record"),
      plural(len(self.paths), "file"),
      time.monotonic() - started,
    )

  def __len__(self) -> int:
    return len(self.lengths)

  @property
  def block_sizes(self) -> np.ndarray:
    """Rows of each block, in the order of the files, int64 [blocks]."""
    return np.diff(self._first_rows, append=len(self))

  def records(self, rows: np.ndarray) -> dict[int, bytes]:
    """Reads records from their files, whole blocks at a time.

    Args:
      rows: int64 [rows], different ones.

    Returns:
      Dict from row to serialized record.

    Raises:
      ValueError: a file is not any more what it was.
    """
    blocks = np.searchsorted(self._first_rows, rows, side="right") - 1
    found = {}
    for index in np.unique(blocks):
      block = self._blocks[index]
      records = _read_block(block)
      wanted = rows[blocks == index].tolist()
      found.update((row, records[row - block.first_row]) for row in wanted)
    return found

  def _hash_of_blocks(self):
    total = hashlib.blake2b(digest_size=16)
    for block in self._blocks:
      # The offset tells where a file begins.
      total.update(struct.pack("<QQ", block.first_row, block.offset))
      total.update(block.digest)
    return total.hexdigest()


def _scanned(paths, spec, vocab_size):
  """Yields the blocks of all files as (path, offset, size, ends, hashes).

  Offset and size are in bytes; `ends` are of `inputs.row_lengths`.
  """
  limits = _limits(spec, vocab_size)
  rows = [0] * len(paths)
  sizes = [0] * len(paths)
  number = 0
  try:
    for block in _examined_blocks(paths, spec, limits):
      number, is_right, ends, size, hashes = (t.numpy() for t in block)
      if not is_right:
        break
      yield paths[number], sizes[number], int(size), ends, hashes
      rows[number] += len(ends)
      sizes[number] += int(size)
    else:
      _check_ends(paths, rows, sizes)
      return
  except (tf.errors.OpError, UnicodeDecodeError):
    # It does not say which record, nor even which file, and may quote bytes
    # that are no text.
    pass
  for path, first in zip(paths[number:], rows[number:], strict=True):
    _find_fault(path, first, spec, limits)
  raise UserError(f"{paths[number]} changed while it was read; try again")


def _limits(spec, vocab_size):
  """For features of whole numbers, what they must be below."""
  limits = {
    "input_ids": vocab_size,
    "input_mask": 2,
    "masked_lm_positions": spec["input_ids"].shape[0],
    "masked_lm_ids": vocab_size,
    "next_sentence_labels": 2,
  }
  return {name: limits[name] for name in spec if name in limits}


def _examined_blocks(paths, spec, limits):
  """Dataset of what a pass over the files has to know about each block.

  These are the number of its file, whether its values are right, its rows'
  ends, its bytes in the file, and a hash of each record.
  """
  max_seq_length = spec["input_mask"].shape[0]
  small = tf.uint16 if max_seq_length < 2**16 else tf.int32

  def blocks(number, path):
    records = tf.data.TFRecordDataset(path).batch(BLOCK_ROWS)
    return records.map(lambda serialized: (number, serialized))

  def examine(number, serialized):
    features = inputs.parse_int64(serialized, spec)
    # In 64 bits, of which a batch keeps 32.
    is_right = [
      (tf.reduce_min(features[name]) >= 0)
      & (tf.reduce_max(features[name]) < limit)
      for name, limit in limits.items()
    ]
    mask = tf.cast(features["input_mask"], tf.int32)
    ends = tf.cast(inputs.row_lengths({"input_mask": mask}, spec), small)
    sizes = tf.strings.length(serialized) + _FRAME_BYTES
    size = tf.reduce_sum(tf.cast(sizes, tf.int64))
    return number, tf.reduce_all(is_right), ends, size, _hashes(serialized)

  files = tf.data.Dataset.from_tensor_slices(
    tf.constant(paths, tf.string, [len(paths)])
  ).enumerate()
  return (
    files.flat_map(blocks)
    .map(examine, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    .prefetch(tf.data.AUTOTUNE)
  )


def _hashes(serialized):
  """One number a record, int64 [B]; the same on every machine."""
  return tf.strings.to_hash_bucket_fast(serialized, 2**63 - 1)


def _digest(hashes):
  return hashlib.blake2b(hashes.tobytes(), digest_size=16).digest()


def _check_ends(paths, rows, sizes):
  """Raises ValueError for a file that ends within a record's header.

  TensorFlow takes that for the end of the file.
  """
  for path, count, size in zip(paths, rows, sizes, strict=True):
    if tf.io.gfile.stat(path).length != size:
      _refuse_as_cut(path, count)
    if not count:
      logging.warning("%s has no record", path)


def _find_fault(path, first, spec, limits):
  """Raises ValueError if one of a block's records is wrong, from `first` on."""
  number = first
  try:
    dataset = tf.data.TFRecordDataset(path).skip(first).take(BLOCK_ROWS)
    for record in dataset:
      _check_record(path, number, record.numpy(), spec, limits)
      number += 1
  except tf.errors.OpError as error:
    _refuse_to_read(path, number, error)


def _check_record(path, number, record, spec, limits):
  """Raises ValueError, saying why, if a record does not fit."""
  features = _features(path, number, record)
  where = f"{path}: record {number}"
  for name, feature in spec.items():
    kind = "int64_list" if feature.dtype == "int64" else "float_list"
    if name not in features or not features[name].HasField(kind):
      raise UserError(
        f"{where} has no {name} of type {feature.dtype}; pass files that "
        f"were made with the same settings"
      )
    values = getattr(features[name], kind).value
    if len(values) != math.prod(feature.shape):
      raise UserError(
        f"{where}: {name} has {len(values)} values, where "
        f"{math.prod(feature.shape)} are expected; pass files that were made "
        f"with the same max_seq_length and max_predictions_per_seq"
      )
    for value in values if name in limits else []:
      if not 0 <= value < limits[name]:
        _refuse_value(where, name, value, limits[name])


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
      f"{path}: record {number} is no tf.train.Example; pass files of "
      f"pre-training data"
    ) from error


def _values(features, name):
  return features[name].int64_list.value if name in features else []


def _refuse_to_read(path, number, error) -> NoReturn:
  """Raises a ValueError that says what TensorFlow found at a record."""
  if isinstance(error, tf.errors.NotFoundError):
    raise UserError(f"{path} is not there; check the path") from error
  if not isinstance(error, tf.errors.DataLossError):
    reason = error.message.split("}} ")[-1].split(" [Op:")[0].splitlines()[0]
    raise UserError(f"{path} cannot be read: {reason}") from error
  if "truncated" in error.message:
    _refuse_as_cut(path, number)
  if not number and "Is this even" in error.message:
    raise UserError(
      f"{path} is not a TFRecord file, or damaged in its first bytes; {_REMEDY}"
    ) from error
  raise UserError(f"{path}: record {number} is damaged; {_REMEDY}") from error


def _refuse_as_cut(path, number) -> NoReturn:
  raise UserError(
    f"{path} is cut short: it ends within record {number}; {_REMEDY}"
  )


def _read_block(block):
  """The records of a block, a list of bytes."""
  try:
    with tf.io.gfile.GFile(block.path, "rb") as file:
      file.seek(block.offset)
      content = file.read(block.size)
  except tf.errors.OpError as error:
    _refuse_to_read(block.path, 0, error)
  records = _cut(content)
  hashes = _hashes(tf.constant(records, tf.string, [len(records)])).numpy()
  if _digest(hashes) != block.digest:
    raise UserError(
      f"{block.path} changed since this run began; give the same command again "
      f"with the file as it was"
    )
  return records


def _cut(content):
  """The records in some bytes of a file; if these are wrong, anything."""
  records = []
  place = 0
  while place + _FRAME_BYTES <= len(content):
    (length,) = struct.unpack_from("<Q", content, place)
    place += _HEADER_BYTES
    records.append(content[place : place + length])
    place += length + _FRAME_BYTES - _HEADER_BYTES
  return records


def shuffled_batches(
  lengths: np.ndarray, block_sizes: np.ndarray, batch_size: int, seed: int
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
  """Batches without end of `inputs.batches_by_part`, a window a part.

  An epoch's blocks are permuted and cut into windows of about equal size, as
  few as hold WINDOW_ROWS each; the rows of a window are permuted.

  Args:
    lengths: int [rows].
    block_sizes: int64 [blocks], how many consecutive rows each has, all > 0.
    batch_size: B.
    seed: int.

  Yields:
    For each window, its rows and the batches that they make.
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
  files: RecordFiles, transform: Transform | None = None
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` for `Estimator`: batches without end, shuffled.

  In `params`: `batch_size`, `seed`, `first_step`, `pad_to_max_length`, as for
  `inputs.input_fn_from_rows`.

  Args:
    files: RecordFiles.
    transform: what to do to a batch: from its features, and int64 [B], the
      numbers of its rows in the whole training, to features; or None.

  Returns:
    A function from params to a `tf.data.Dataset` of `inputs.read_batch`'s
    dicts. Its iteration ends with an OpError, whose message names the file, if
    one is not any more what it was.
  """

  def input_fn(params):
    def parts():
      return shuffled_batches(
        files.lengths,
        files.block_sizes,
        params["batch_size"],
        params.get("seed", 0),
      )

    first_step = params.get("first_step", 0)
    return _dataset(files, parts, params, transform, first_step=first_step)

  return input_fn


def evaluation_input_fn(
  files: RecordFiles,
  max_rows: int | None = None,
  transform: Transform | None = None,
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` for `Estimator`: each row once, in input order.

  The last batch is filled up with rows that are not real.

  Args:
    files: RecordFiles.
    max_rows: how many of the first rows; all when None.
    transform: as for `training_input_fn`, with the rows' numbers in the input.

  Returns:
    As `training_input_fn`; in `params`, `batch_size` and `pad_to_max_length`.
  """
  count = len(files) if max_rows is None else min(max_rows, len(files))

  def input_fn(params):
    def parts():
      return _batches_in_order(count, params["batch_size"])

    return _dataset(files, parts, params, transform, count=count)

  return input_fn


def _batches_in_order(count, batch_size):
  """Yields parts of the first rows, as (rows, batches), each block in one."""
  size = max(BLOCK_ROWS // batch_size, 1) * batch_size
  for start in range(0, count, size):
    rows = np.arange(start, min(start + size, count))
    # What fills the last batch up comes from its own rows.
    yield (
      rows,
      [
        chosen[np.arange(batch_size) % len(chosen)]
        for chosen in np.split(rows, range(batch_size, len(rows), batch_size))
      ],
    )


def _dataset(files, parts, params, transform, first_step=0, count=np.inf):
  """Dataset of the features of parts' batches; rows up to `count` are real."""
  batch_size = params["batch_size"]
  pad = params.get("pad_to_max_length", False)

  def batches():
    for step, rows, serialized in _loaded(files, parts(), first_step):
      ordinals = step * batch_size + np.arange(batch_size)
      yield serialized, rows, ordinals < count, ordinals

  def read(serialized, rows, is_real, ordinals):
    features = inputs.read_batch(serialized, rows, is_real, files.spec, pad)
    return transform(features, ordinals) if transform else features

  dataset = tf.data.Dataset.from_generator(
    batches,
    output_signature=tuple(
      tf.TensorSpec([batch_size], dtype)
      for dtype in (tf.string, tf.int64, tf.bool, tf.int64)
    ),
  )
  read_ahead = tf.data.AUTOTUNE
  return dataset.map(read, num_parallel_calls=read_ahead).prefetch(read_ahead)


def _loaded(files, parts, first_step):
  """Yields (step, rows [B], records [B]) of batches, from a step on.

  Of the parts before, no record is read unless it is left over.
  """
  held = {}
  step = 0
  for rows, batches in parts:
    passed = max(first_step - step, 0)
    if passed < len(batches):
      # What this part does not need makes room before it is read.
      held = {row: held[row] for row in rows.tolist() if row in held}
      missing = [row for row in np.unique(rows).tolist() if row not in held]
      held.update(files.records(np.array(missing, np.int64)))
    for number, batch in enumerate(batches[passed:], step + passed):
      records = [held[row] for row in batch.tolist()]
      yield number, batch, np.array(records, object)
    step += len(batches)
