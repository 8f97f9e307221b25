"""Warnings about the rows of a training set."""

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

# Maximum number of rows to check.
_MAX_ROWS = 10_000

# Shares above which a warning is logged.
_UNKNOWN_SHARE, _LABEL_SHARE, _FULL_SHARE = 0.01, 0.9, 0.05

# The majority label of words, outside any entity; never warned about.
_OUTSIDE = "O"


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
  """Yields a list to which warnings logged in this context are appended."""
  handler, messages = std_logging.Handler(std_logging.WARNING), []
  handler.emit = lambda record: messages.append(record.getMessage())
  logger = logging.get_absl_logger()
  logger.addHandler(handler)
  try:
    yield messages
  finally:
    logger.removeHandler(handler)


def log_data_checks(rows: RowSet, task: Task) -> None:
  """Warns of truncated rows, unknown word pieces and skewed labels."""
  source = rows.read()
  index = np.arange(min(len(source), _MAX_ROWS))
  features = _read(source, index)
  lengths = source.lengths[index]
  full = np.mean(lengths >= source.spec["input_ids"].shape[-1])
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
  feature = source.spec.get("label_ids")
  if feature and feature.dtype == "int64":  # A float is not a class.
    _check_labels(rows, features["label_ids"], feature, task)


def log_overlap(task: Task, train: RowSet, dev: RowSet) -> None:
  """Logs how many examples of `dev` have the same texts as one of `train`."""
  count = sum(1 for _ in task.texts(dev))
  if not count:
    return
  seen = {hash_texts(texts) for _, texts in task.texts(train)}
  shared = find_seen(task, dev, seen)
  message = (
    f"{task.name}: {len(shared)} of the "
    f"{plural(count, 'development example')} "
    f"({100 * len(shared) / count:.1f} %) are also in the training set"
  )
  if shared:
    logging.warning(
      "%s, starting with %s; the metrics are too optimistic", message, shared[0]
    )
  else:
    logging.info(message)


def find_seen(task: Task, rows: RowSet, hashes: Collection[bytes]) -> list[str]:
  """The locations of the examples whose texts have one of the hashes."""
  if not hashes:
    return []
  return [
    where for where, texts in task.texts(rows) if hash_texts(texts) in hashes
  ]


def _read(source, index):
  serialized = tf.constant(source.read(index), tf.string)
  features = record_files.parse_int64(serialized, source.spec)
  return {name: value.numpy() for name, value in features.items()}


def _check_labels(rows, labels, feature, task):
  """Warns if nearly all rows or words have the same label."""
  what = "rows"
  if feature.cut_axes:  # The label of each word, plus 1; 0 for padding.
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
