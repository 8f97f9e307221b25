"""The weights and products of an ONNX graph in eight bits.

Weights are quantized for each channel. The activations before a product are
quantized either as they come (`dynamic`), or with ranges that are known before,
from rows that are like those to come (`static`).
"""

import logging
import os
import tempfile
from collections.abc import Iterable, Mapping

import numpy as np

from bert.data import files, records
from bert.errors import import_optional
from bert.training import runtimes

_PACKAGE = "onnxruntime.quantization"


def dynamic(content: bytes, flag: str) -> bytes:
  """The ONNX file with int8 weights, which quantizes activations as they come.

  `flag` is what needs it, for the message if onnxruntime is missing.
  """
  package = import_optional(_PACKAGE, flag, runtimes.REQUIREMENTS)
  return _converted(
    content,
    lambda full, small: package.quantize_dynamic(full, small, per_channel=True),
  )


def static(
  content: bytes, batches: Iterable[Mapping[str, np.ndarray]], flag: str
) -> bytes:
  """The ONNX file with int8 weights and ranges of activations, like `dynamic`.

  `batches` have the three sequences, int64 [B, S], by name.
  """
  package = import_optional(_PACKAGE, flag, runtimes.REQUIREMENTS)

  left = iter(batches)

  class Reader(package.CalibrationDataReader):
    def get_next(self):
      return next(left, None)

  def quantize(full, small):
    package.quantize_static(
      full,
      small,
      Reader(),
      quant_format=package.QuantFormat.QDQ,
      per_channel=True,
      # The products of attention have no weights, and stay in float32.
      op_types_to_quantize=["MatMul"],
      extra_options={"MatMulConstBOnly": True},
    )

  return _converted(content, quantize)


def _converted(content, convert):
  """The content of a file that `convert` writes, given that of another."""
  # The package reads and writes local files only.
  with tempfile.TemporaryDirectory() as folder:
    full, small = (os.path.join(folder, name) for name in ("full", "small"))
    files.write_file(full, content)
    logging.disable(logging.WARNING)  # Advice on models with convolutions.
    try:
      convert(full, small)
    finally:
      logging.disable(logging.NOTSET)
    return files.read_bytes(small)


# Sequences to find the ranges of activations with, and those of a batch.
_COUNT, _BATCH = 64, 8

# Length of random sequences.
_LENGTH = 64


def calibration_batches(
  folder: str, vocab_size: int, special: tuple[int, int], length: int
) -> list[dict[str, np.ndarray]]:
  """Batches of sequences like those that a model in a folder reads.

  They are rows of its training, if its folder has them; otherwise, random
  pieces between [CLS] and [SEP], whose ids are `special`. `length` is that of
  the rows of its training.
  """
  path = os.path.join(folder, "train.tf_record")
  found = []
  if files.exists(path):
    found = _sequences_of(path, length)
  rng = np.random.default_rng(0)
  cls, sep = special
  while len(found) < _COUNT:
    size = min(length, _LENGTH)
    ids = rng.integers(0, vocab_size, size)
    ids[0], ids[-1] = cls, sep
    found.append((ids, np.ones(size, int), np.zeros(size, int)))
  # Sequences of similar length share a batch.
  found.sort(key=lambda row: np.sum(row[1]))
  batches = []
  for start in range(0, _COUNT, _BATCH):
    rows = found[start : start + _BATCH]
    batch = np.zeros([3, len(rows), max(len(row[1]) for row in rows)], np.int64)
    for number, row in enumerate(rows):
      batch[:, number, : len(row[1])] = row
    used = int(np.max(np.sum(batch[1], axis=-1)))
    batches.append(
      dict(zip(records.SEQUENCES, batch[:, :, :used], strict=True))
    )
  return batches


def _sequences_of(path, length):
  """The three sequences of the first rows of a file."""
  import tensorflow as tf

  found = []
  for record in records.read_records(path):
    row = tf.train.Example.FromString(record).features.feature
    columns = [row[name].int64_list.value for name in records.SEQUENCES]
    if len(columns[0]) % length:  # It is of another length.
      return []
    # A row may have several sequences.
    columns = [np.reshape(column, [-1, length]) for column in columns]
    found += [row for row in zip(*columns, strict=True) if row[1].any()]
    if len(found) >= _COUNT:
      break
  return found[:_COUNT]
