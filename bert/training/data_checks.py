"""Warnings about rows that a model is to be trained on."""

import contextlib
import hashlib
import logging as std_logging
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from bert.contract.task import RowSet, Task
from bert.engine import record_files
from bert.errors import plural

# Rows that are looked at, and rows that are searched for those of another set.
_MAX_ROWS, _MAX_HASHES = 10_000, 1_000_000

# Shares from which on a warning is due.
_UNKNOWN_SHARE, _LABEL_SHARE, _FULL_SHARE = 0.01, 0.9, 0.05


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
  """Yields a list that gets the texts of the warnings logged inside."""
  handler, found = std_logging.Handler(std_logging.WARNING), []
  handler.emit = lambda record: found.append(record.getMessage())
  logger = logging.get_absl_logger()
  logger.addHandler(handler)
  try:
    yield found
  finally:
    logger.removeHandler(handler)


def log_data_checks(rows: RowSet, task: Task) -> None:
  """Warns of rows that are full, unknown pieces, and skewed labels."""
  found = rows.read()
  index = np.arange(min(len(found), _MAX_ROWS))
  features = _read(found, index)
  lengths = found.lengths[index]
  full = np.mean(lengths >= found.spec["input_ids"].shape[-1])
  # With several rows per example, longer texts are read in windows.
  if task.truncates and rows.rows_per_example is None and full > _FULL_SHARE:
    _warn(
      rows,
      f"{full:.1%} of the rows have the full --max_seq_length; raise it if "
      f"their texts were cut",
    )
  ids, mask = features["input_ids"], features["input_mask"]
  unknown_id = -1
  if task.tokenizer:
    unknown_id = task.tokenizer.vocab.get(task.tokenizer.unk_token, -1)
  is_unknown = (ids == unknown_id) & (mask > 0)
  share = np.sum(is_unknown) / max(np.sum(mask), 1)
  if share > _UNKNOWN_SHARE:
    _warn(
      rows,
      f"{share:.1%} of the word pieces are unknown; a model with another "
      f"vocabulary may suit the text better",
    )
  feature = found.spec.get("label_ids")
  if feature and feature.dtype == "int64":  # A float is no label.
    _check_labels(rows, features["label_ids"], feature, task)


def log_overlap(train: RowSet, dev: RowSet) -> None:
  """Warns of rows that are in both sets, whatever their labels are."""
  if train.read() is dev.read():  # The same files, which the user knows.
    return
  seen = set(_hashes(train))
  hashes = _hashes(dev)
  count = sum(h in seen for h in hashes)
  if count:
    share = f"{count:,} of {plural(len(hashes), 'row')}"
    _warn(dev, f"{share} ({count / len(hashes):.1%}) are in the {train.name}")


def _hashes(rows):
  """A hash of the pieces and segments of each row."""
  found, hashes = rows.read(), []
  count = min(rows.num_rows, _MAX_HASHES)
  for start in range(0, count, _MAX_ROWS):
    features = _read(found, np.arange(start, min(start + _MAX_ROWS, count)))
    columns = [features[name] for name in ("input_ids", "segment_ids")]
    hashes += [
      hashlib.blake2b(b"".join(map(bytes, row)), digest_size=16).digest()
      for row in zip(*columns, strict=True)
    ]
  return hashes


def _read(found, index):
  serialized = tf.constant(found.read(index), tf.string)
  features = record_files.parse_int64(serialized, found.spec)
  return {name: value.numpy() for name, value in features.items()}


def _check_labels(rows, labels, feature, task):
  """Warns if one label is nearly everywhere."""
  what = "rows"
  if feature.cut_axes:  # Of a word, plus 1; 0 where there is no word.
    labels, what = labels[labels > 0] - 1, "words"
  elif feature.shape:  # Several labels, each 0 or 1.
    shares = np.mean(labels, axis=0)
  if labels.ndim == 1:
    shares = np.bincount(labels) / max(labels.size, 1)
  if shares.size and shares.max() > _LABEL_SHARE:
    label = int(shares.argmax())
    name = task.labels[label] if task.labels else label
    if name != task.usual_label:
      _warn(rows, f"{shares.max():.1%} of the {what} have the label {name!r}")


def _warn(rows, text):
  logging.warning("%s: %s", rows.name, text)
