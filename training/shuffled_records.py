"""Shuffled batches of TFRecord files that are larger than memory.

The files are read once before the first batch: every record is checked, and
the position of each block of 1,024 consecutive records is kept. An epoch
of training takes the blocks in random order, holds about WINDOW_ROWS records
at a time, and shuffles these. The rows of a batch depend only on the files, the
batch size, the seed and the number of the batch, so training can resume at any
batch without reading the records before it.
"""

import functools
import hashlib
import os
import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from errors import UserError, listing, plural
from pipeline import records
from training import inputs

# Shuffle-window size. Smaller data sets are fully shuffled every epoch. That
# many records of 512 positions take about 200 MB.
WINDOW_ROWS = 64 * 1024


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
    raise UserError(f"{path} is empty; make or copy the file again")
  features = inputs.decode_example(f"{path}: record 0", record)

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
    limits = _limits(spec, vocab_size)
    lengths = []
    rows = 0
    for path in self.paths:
      first_row, offset = rows, 0
      for chunk, features in inputs.read_chunks(path, spec):
        _check_values(path, rows - first_row, features, limits)
        size = sum(map(len, chunk)) + len(chunk) * records.FRAME_BYTES
        self._blocks.append(_Block(path, rows, offset, size, _digest(chunk)))
        lengths.append(inputs.row_lengths(features, spec).numpy())
        offset += size
        rows += len(chunk)
      if rows == first_row:
        logging.warning("%s has no record", path)
    if not rows:
      raise UserError(
        f"there is no record in {listing(self.paths) or 'no file'}; "
        f"pass files of pre-training data"
      )
    is_short = spec["input_mask"].shape[0] < 2**16
    self.lengths = np.concatenate(lengths).astype("u2" if is_short else "i4")
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
    """Reads records; fastest in ascending order, as whole blocks are read.

    Args:
      rows: int64 [n].

    Returns:
      The n serialized records.

    Raises:
      UserError: a file has changed.
    """
    blocks = np.searchsorted(self._first_rows, rows, side="right") - 1
    found = [b""] * len(rows)
    for index in np.unique(blocks):
      content = _read_block(self._blocks[index])
      for i in np.flatnonzero(blocks == index):
        found[i] = content[rows[i] - self._first_rows[index]]
    return found

  def _hash_of_blocks(self):
    total = hashlib.blake2b(digest_size=16)
    for block in self._blocks:
      # Offset 0 marks the beginning of a file.
      total.update(struct.pack("<QQ", block.first_row, block.offset))
      total.update(block.digest)
    return total.hexdigest()


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


def _check_values(path, first_number, features, limits):
  """Raises UserError if a record's value is not from 0 to below its limit."""
  for name, limit in limits.items():
    values = features[name].numpy()
    wrong = np.argwhere((values < 0) | (values >= limit))
    if not len(wrong):
      continue
    value = values[tuple(wrong[0])]
    where = f"{path}: record {first_number + wrong[0][0]}: {name} holds"
    if name.endswith("_ids") and value >= limit:
      raise UserError(
        f"{where} id {value}, beyond vocab_size={limit}; pass the "
        f"bert_config.json of the vocabulary that the records were made with"
      )
    raise UserError(
      f"{where} {value}, which is not from 0 to {limit - 1}; make or copy the "
      f"file again"
    )


def _digest(chunk):
  """A hash of records; the same on every machine."""
  hashes = tf.strings.to_hash_bucket_fast(chunk, 2**63 - 1).numpy()
  return hashlib.blake2b(hashes.tobytes(), digest_size=16).digest()


@functools.lru_cache(maxsize=2)  # One for training, one for evaluation.
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
  if not content or _digest(content) != block.digest:
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

    return inputs.batches_dataset(
      batches, files.spec, params, transform, first_step
    )

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
    size = params["batch_size"]

    def batches():
      for start in range(0, count, size):
        rows = np.arange(start, min(start + size, count))
        yield rows, files.read(rows)

    return inputs.batches_dataset(batches, files.spec, params, transform)

  return input_fn


def _load(files, parts, first_step):
  """Yields (rows [B], serialized rows) of batches, from a step on.

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
    for batch in batches[skipped:]:
      yield batch, [held[row] for row in batch.tolist()]
    step += len(batches)
