"""Warnings about rows that a model is to be trained on."""

import contextlib
import logging as std_logging
from collections.abc import Collection, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from bert.contract.task import RowSet, Task
from bert.data.text_hashes import hash_texts
from bert.engine import record_files
from bert.errors import plural

# Rows that are looked at.
_MAX_ROWS = 10_000

# Shares from which on a warning is due.
_UNKNOWN_SHARE, _LABEL_SHARE, _FULL_SHARE = 0.01, 0.9, 0.05

# The label of words in no entity: of most words.
_OUTSIDE = "O"


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


def log_overlap(task: Task, train: RowSet, dev: RowSet) -> None:
  """Logs how many examples of `dev` have the texts of one of `train`."""
  count = sum(1 for _ in task.texts(dev))
  if not count:
    return
  seen = {hash_texts(texts) for _, texts in task.texts(train)}
  found = find_seen(task, dev, seen)
  message = (
    f"{task.name}: {len(found)} of the "
    f"{plural(count, 'development example')} ({100 * len(found) / count:.1f} %)"
    f" are also in the training set"
  )
  if found:
    logging.warning(
      "%s, starting with %s; the metrics are too optimistic", message, found[0]
    )
  else:
    logging.info(message)


def find_seen(task: Task, rows: RowSet, hashes: Collection[bytes]) -> list[str]:
  """Where the examples are whose texts have one of the hashes."""
  if not hashes:
    return []
  return [
    where for where, texts in task.texts(rows) if hash_texts(texts) in hashes
  ]


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
    if (what, name) != ("words", _OUTSIDE):
      _warn(rows, f"{shares.max():.1%} of the {what} have the label {name!r}")


def _warn(rows, text):
  logging.warning("%s: %s", rows.name, text)
