"""Rows in TFRecord files that may be larger than memory.

The files are read once before training: every record is checked, and the
position of each block of 1,024 consecutive records is kept. Afterwards,
records can be read in any order, whole blocks at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError

from bert import variables
from bert.data import files, records
from bert.errors import UserError, listing, plural

# Records read at once from one position in a file: enough to read from a disk
# or a bucket at full speed, few enough for a shuffle window to hold the records
# of many positions.
BLOCK_ROWS = 1024


class Layout(NamedTuple):
  """The contents of a file's records."""

  max_seq_length: int  # S, the number of `input_ids`
  max_predictions_per_seq: int  # P, the masked positions; 0 for none
  next_sentence_prediction: bool  # whether there are `next_sentence_labels`


def describe(path: str | os.PathLike) -> Layout:
  """Returns the Layout of a TFRecord file, from its first record."""
  path = os.fspath(path)
  record = next(records.read_records(path), None)
  features = _decode_example(record or b"")

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


def without_empty(paths: Sequence[str]) -> Sequence[str]:
  """The files that are not empty; all files if all are empty.

  With more files than instances, create_pretraining_data.py leaves some empty.
  """
  nonempty = [path for path in paths if files.size(path)]
  if 0 < len(nonempty) < len(paths):
    logging.warning(
      "Skipping %s", plural(len(paths) - len(nonempty), "empty file")
    )
  return nonempty or paths


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
    paths: the files.
    spec: the spec of their records, with a feature `input_mask`.
    vocab_size: V, the limit of ids in pre-training data; None to check no
      values.

  Attributes:
    lengths: uint16 or int32 [rows], see `row_lengths`.
    block_sizes: int64 [blocks], number of consecutive rows in each block.
    fingerprint: hex; depends on all records, their order and their files.
  """

  def __init__(
    self,
    paths: Iterable[str | os.PathLike],
    spec: records.Spec,
    vocab_size: int | None = None,
  ):
    variables.check_eager()
    self.spec = dict(spec)
    self._blocks = []
    limits = _limits(spec, vocab_size) if vocab_size else {}
    lengths = [np.zeros(0, np.int32)]
    total = hashlib.blake2b(digest_size=16)
    rows = 0
    for path in map(os.fspath, paths):
      first_row, offset = rows, 0
      for content, features in _read_blocks(path, spec):
        _check_values(path, rows - first_row, features, limits)
        size = sum(map(len, content)) + len(content) * records.FRAME_BYTES
        block = _Block(path, rows, offset, size, _digest(content))
        self._blocks.append(block)
        # Offset 0 marks the beginning of a file.
        total.update(struct.pack("<QQ", rows, offset) + block.digest)
        lengths.append(row_lengths(features, spec).numpy())
        offset += size
        rows += len(content)
    is_short = spec["input_mask"].shape[-1] < 2**16
    self.lengths = np.concatenate(lengths).astype("u2" if is_short else "i4")
    self._first_rows = np.array([b.first_row for b in self._blocks], np.int64)
    self.block_sizes = np.diff(self._first_rows, append=rows)
    self.fingerprint = total.hexdigest()

  def __len__(self) -> int:
    return len(self.lengths)

  def read(self, rows: np.ndarray) -> list[bytes]:
    """The serialized records of some rows, int64 [n]."""
    blocks = np.searchsorted(self._first_rows, rows, side="right") - 1
    serialized = [b""] * len(rows)
    for index in np.unique(blocks):
      content = _read_block(self._blocks[index])
      for i in np.flatnonzero(blocks == index):
        serialized[i] = content[rows[i] - self._first_rows[index]]
    return serialized


def _read_blocks(path, spec):
  """Yields the records of each block of a TFRecord file, and their features."""
  rows = enumerate(records.read_records(path))
  while block := list(itertools.islice(rows, BLOCK_ROWS)):
    serialized = [record for _, record in block]
    try:
      features = parse_int64(serialized, spec)
    except (tf.errors.OpError, UnicodeDecodeError):
      # The error does not say which record is wrong.
      for number, record in block:
        _check_record(f"{path}: record {number}", record, spec)
      raise
    yield serialized, features


def _check_record(where, record, spec):
  features = _decode_example(record)
  for name, feature in spec.items():
    kind = "int64_list" if feature.dtype == "int64" else "float_list"
    count = 0
    if name in features:
      count = len(getattr(features[name], kind).value)
    if count != math.prod(feature.shape):
      raise UserError(
        f"{where}: {name} has {count} values of type {feature.dtype}, expected "
        f"{math.prod(feature.shape)}; create the file with the settings of "
        f"this run, such as --max_seq_length"
      )


def _decode_example(record):
  """The features of a `tf.train.Example` by name; {} for any other record."""
  try:
    return tf.train.Example.FromString(record).features.feature
  except DecodeError:
    return {}


def parse_int64(
  serialized: tf.Tensor, spec: records.Spec
) -> dict[str, tf.Tensor]:
  """Features [B, ...], int64 or float32, of serialized rows [B]."""
  fixed = {
    name: tf.io.FixedLenFeature(list(feature.shape), feature.dtype)
    for name, feature in spec.items()
  }
  return tf.io.parse_example(serialized, fixed)


def row_extents(
  features: Mapping[str, tf.Tensor], spec: records.Spec
) -> dict[str, tf.Tensor]:
  """The extent of each row of `input_mask` along its `cut_axes`.

  Returns a dict from the name of each axis to int32 [B].
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


def _limits(spec, vocab_size):
  limits = {
    "input_ids": vocab_size,
    "input_mask": 2,
    "masked_lm_positions": spec["input_ids"].shape[0],
    "masked_lm_ids": vocab_size,
    "next_sentence_labels": 2,
  }
  return {name: limits[name] for name in spec if name in limits}


def _check_values(path, first_number, features, limits):
  """Raises UserError unless all values are at least 0 and below their limit."""
  for name, limit in limits.items():
    values = features[name].numpy()
    wrong = np.argwhere((values < 0) | (values >= limit))
    if not len(wrong):
      continue
    value = values[tuple(wrong[0])]
    raise UserError(
      f"{path}: record {first_number + wrong[0][0]}: {name} holds {value}, not "
      f"from 0 to {limit - 1}; pass the --vocab_file and --bert_config_file "
      f"that the records were made with"
    )


def _digest(content):
  """A hash of records; the same on every machine."""
  hashes = tf.strings.to_hash_bucket_fast(content, 2**63 - 1).numpy()
  return hashlib.blake2b(hashes.tobytes(), digest_size=16).digest()


def _read_block(block):
  content = []
  size = 0
  try:
    with contextlib.suppress(UserError):  # Reported as a change below.
      for record in records.read_records(block.path, block.offset):
        content.append(record)
        size += len(record) + records.FRAME_BYTES
        if size >= block.size:
          break
  except (OSError, tf.errors.NotFoundError):
    files.check_is_file(block.path)
    raise
  if not content or _digest(content) != block.digest:
    raise UserError(
      f"{block.path} changed since this run began; run the same command again "
      f"with the original file"
    )
  return content
