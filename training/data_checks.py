"""Warnings about rows that a model is to be trained on."""

import json
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from pipeline import records
from tokenization import UNKNOWN
from training import record_files
from training.task import RowSet

# Rows that are looked at.
_MAX_ROWS = 10_000

# Shares from which on a warning is due.
_UNKNOWN_SHARE, _LABEL_SHARE, _FULL_SHARE = 0.01, 0.9, 0.05


def log_data_checks(rows: RowSet, files: Mapping[str, str | bytes]) -> None:
  """Warns of rows that are full, unknown pieces, casing, and skewed labels.

  Args:
    rows: a training set.
    files: content of the model's files, by name.
  """
  found = rows.read()
  index = np.arange(min(len(found), _MAX_ROWS))
  features = record_files.parse_int64(
    tf.constant(found.read(index), tf.string), found.spec
  )
  lengths = found.lengths[index]
  full = np.mean(lengths >= found.spec["input_ids"].shape[-1])
  if full > _FULL_SHARE:
    _warn(rows, f"{full:.1%} of the rows have the full --max_seq_length")
  pieces = _read_pieces(files)
  if UNKNOWN in pieces:
    ids, mask = features["input_ids"], features["input_mask"]
    is_unknown = (ids == pieces.index(UNKNOWN)) & (mask > 0)
    share = np.sum(is_unknown) / max(np.sum(mask), 1)
    if share > _UNKNOWN_SHARE:
      _warn(rows, f"{share:.1%} of the word pieces are {UNKNOWN}")
  _check_casing(rows, pieces, files)
  # A label of a regression is a float.
  if found.spec.get("label_ids") == records.Feature():
    counts = np.bincount(features["label_ids"])
    share = counts.max() / counts.sum()
    if share > _LABEL_SHARE:
      _warn(rows, f"{share:.1%} of the rows have the label {counts.argmax()}")


def _read_pieces(files):
  """The word pieces, by id; none for a SentencePiece model."""
  content = files.get("vocab.txt", "")
  text = content.decode() if isinstance(content, bytes) else content
  # Only "\n" ends a line, as in `tokenization.load_vocab`.
  return [line.strip() for line in text.split("\n")] if text else []


def _check_casing(rows, pieces, files):
  if not pieces:
    return
  is_cased = any(
    piece.lower() != piece for piece in pieces if not piece.startswith("[")
  )
  lower_cases = json.loads(files["bert_config.json"]).get("do_lower_case", True)
  if is_cased == lower_cases:
    kind = "has capitals" if is_cased else "has no capitals"
    _warn(rows, f"the vocabulary {kind}, but --do_lower_case={lower_cases}")


def _warn(rows, text):
  logging.warning("%s: %s", rows.name, text)
