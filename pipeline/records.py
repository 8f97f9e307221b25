"""Rows of features as `tf.train.Example` in TFRecord files, without TensorFlow.

A spec says what a row holds: a dict from feature name to Feature. The writer
checks against it, and readers parse by it. Equal rows give equal bytes: the
features of a row are written in alphabetical order.
"""

import functools
import math
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import google_crc32c
import numpy as np

from pipeline import files

# Features [S] that every task has.
SEQUENCES = ("input_ids", "input_mask", "segment_ids")

# The axis of positions in a sequence.
POSITION = "position"

# Bytes of a frame before the record, and in addition to it.
HEADER_BYTES = 12
FRAME_BYTES = 16


class Feature(NamedTuple):
  """Shape and type of one feature of a row.

  Attributes:
    shape: sizes of its axes; () for a single number.
    dtype: "int64" or "float32".
    cut_axes: a name for each axis that a batch cuts to its longest row, and
      None for the others. How far a row reaches along an axis is read from
      the feature `input_mask`, whose axes carry the same names.
  """

  shape: tuple[int, ...] = ()
  dtype: str = "int64"
  cut_axes: tuple[str | None, ...] = ()


Spec = Mapping[str, Feature]


def sequence_feature(length: int) -> Feature:
  """An integer for each position, [S], cut to the longest row of a batch."""
  return Feature((length,), cut_axes=(POSITION,))


def encode_row(row: Mapping, spec: Spec) -> bytes:
  """A row as a serialized `tf.train.Example`.

  Args:
    row: dict from feature name to a number or an array of them.
    spec: the row's spec.

  Raises:
    ValueError: the size of a feature is not the spec's.
  """
  features = []
  for name, feature in sorted(spec.items()):
    values = row[name]
    if not isinstance(values, list) or (values and type(values[0]) is list):
      values = np.ravel(values).tolist()
    if len(values) != math.prod(feature.shape):
      raise ValueError(
        f"feature {name} has {len(values)} values, expected {feature.shape}"
      )
    is_float = feature.dtype == "float32"
    numbers = _encode_floats(values) if is_float else _encode_ints(values)
    features.append(encode_feature(name, numbers, is_float))
  return encode_example(features)


def encode_example(features: Iterable[bytes]) -> bytes:
  """A `tf.train.Example` of features from `encode_feature`, sorted by name."""
  return _field(b"\n", b"".join(features))


def encode_feature(name: str, numbers: bytes, is_float: bool) -> bytes:
  """One entry of an Example's map: a name and its packed numbers."""
  return feature_head(name, len(numbers), is_float) + numbers


@functools.lru_cache(2**12)
def feature_head(name: str, size: int, is_float: bool) -> bytes:
  """The bytes before the `size` bytes of a feature's packed numbers."""
  # Empty lists are written as empty messages, without a packed field.
  numbers = b"\n" + varint(size) if size else b""
  kind = b"\x12" if is_float else b"\x1a"  # Feature.float_list, int64_list.
  feature = kind + varint(len(numbers) + size) + numbers
  key = _field(b"\n", name.encode())
  value = b"\x12" + varint(len(feature) + size) + feature
  return b"\n" + varint(len(key) + len(value) + size) + key + value


def _field(tag, content):
  """A field of a protocol buffer: tag, length, content."""
  return tag + varint(len(content)) + content


@functools.lru_cache(2**16)
def varint(number: int) -> bytes:
  """An integer as protocol buffers write it, seven bits a byte, low bits first.

  Negative numbers are written as their two's complement in 64 bits.
  """
  number &= 2**64 - 1
  encoded = bytearray()
  while number > 127:
    encoded.append(number & 127 | 128)
    number >>= 7
  encoded.append(number)
  return bytes(encoded)


def _encode_ints(values):
  if values and min(values) >= 0 and max(values) < 128:
    return bytes(values)
  return b"".join([varint(value) for value in values])


def _encode_floats(values):
  return struct.pack(f"<{len(values)}f", *values)


def framed(record: bytes) -> bytes:
  """A record with the length and checksums that a TFRecord file adds."""
  length = struct.pack("<Q", len(record))
  return b"".join(
    (length, masked_checksum(length), record, masked_checksum(record))
  )


def masked_checksum(content: bytes) -> bytes:
  """CRC-32C of the content, rotated and offset as TFRecord files have it."""
  crc = google_crc32c.value(content)
  return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_records(path: str, rows: Iterable[Mapping], spec: Spec) -> int:
  """Writes rows to a TFRecord file that appears whole or not at all.

  Returns:
    The number of rows.
  """
  count = 0
  with (
    files.atomic_write(path) as partial,
    files.open_file(partial, "wb") as writer,
  ):
    for row in rows:
      writer.write(framed(encode_row(row, spec)))
      count += 1
  return count
