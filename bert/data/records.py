"""Rows of features as `tf.train.Example` in TFRecord files, without TensorFlow.

A spec describes a row: a dict from feature name to Feature. Equal rows give
equal bytes, because their features are written in alphabetical order.

A TFRecord file is a sequence of frames: the length of a record in 8 bytes, a
checksum of the length, the record, and a checksum of the record.
"""

import functools
import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import google_crc32c

from bert.data import files
from bert.errors import UserError

# Features [S] that every task has.
SEQUENCES = ("input_ids", "input_mask", "segment_ids")

# Few files have records of so many bytes.
_LARGE = 2**24

# The axis of positions in a sequence.
POSITION = "position"

# Bytes of a frame before its record, and in total beside it.
_HEADER_BYTES = 12
FRAME_BYTES = 16


class Feature(NamedTuple):
  """Shape and type of one feature of a row."""

  shape: tuple[int, ...] = ()
  dtype: str = "int64"  # Or "float32".
  # A name for each axis that a batch cuts to its longest row, None for others.
  # How far a row reaches is read from `input_mask`, whose axes have the names.
  cut_axes: tuple[str | None, ...] = ()


Spec = Mapping[str, Feature]


def sequence_feature(length: int) -> Feature:
  """An integer for each position, [S], cut to the longest row of a batch."""
  return Feature((length,), cut_axes=(POSITION,))


def sequence_spec(length: int) -> dict[str, Feature]:
  """The spec of a row that consists of SEQUENCES [S]."""
  return dict.fromkeys(SEQUENCES, sequence_feature(length))


def encode_row(row: Mapping, spec: Spec) -> bytes:
  """A row as a serialized `tf.train.Example`.

  Its features are numbers, or nested lists or arrays of them. ValueError if the
  size of one differs from the spec.
  """
  features = []
  for name, feature in sorted(spec.items()):
    values = _flat(row[name])
    if len(feature.cut_axes) == 1:  # The row may lack its padding.
      values = values + [0] * (feature.shape[0] - len(values))
    if len(values) != math.prod(feature.shape):
      raise ValueError(
        f"feature {name} has {len(values)} values, expected {feature.shape}"
      )
    is_float = feature.dtype == "float32"
    numbers = encode_floats(values) if is_float else encode_ints(values)
    features.append(encode_feature(name, numbers, is_float))
  return encode_example(features)


def _flat(values):
  if hasattr(values, "ravel"):
    return values.ravel().tolist()
  if not isinstance(values, list | tuple):
    return [values]
  if values and not isinstance(values[0], int | float):
    return list(itertools.chain.from_iterable(map(_flat, values)))
  return values


def encode_example(features: Iterable[bytes]) -> bytes:
  """A `tf.train.Example` of encoded features, sorted by name."""
  return _field(b"\n", b"".join(features))


def encode_feature(name: str, numbers: bytes, is_float: bool = False) -> bytes:
  """One entry of an Example's map: a name and its packed numbers."""
  return feature_head(name, len(numbers), is_float) + numbers


@functools.lru_cache(2**12)
def feature_head(name: str, size: int, is_float: bool = False) -> bytes:
  """The bytes before the `size` bytes of a feature's packed numbers."""
  # An empty list is an empty message, without a packed field.
  numbers = b"\n" + varint(size) if size else b""
  kind = b"\x12" if is_float else b"\x1a"  # Feature.float_list, int64_list.
  feature = kind + varint(len(numbers) + size) + numbers
  key = _field(b"\n", name.encode())
  value = b"\x12" + varint(len(feature) + size) + feature
  return b"\n" + varint(len(key) + len(value) + size) + key + value


def _field(tag, content):
  """A field of a protocol buffer: tag, length, content."""
  return tag + varint(len(content)) + content


class _Varints(dict):
  def __missing__(self, number):
    if 0 <= number < 128:
      encoded = bytes([number])
    else:
      rest = number & 2**64 - 1
      encoded = bytes([rest & 127 | 128]) + self[rest >> 7]
    if 0 <= number < 2**17:  # Only ids recur; do not cache others.
      self[number] = encoded
    return encoded


_varints = _Varints()


def varint(number: int) -> bytes:
  """A 64-bit integer, in two's complement, as a varint of protocol buffers."""
  return _varints[number]


def encode_ints(values: Sequence[int]) -> bytes:
  """The packed numbers of an int64 feature."""
  try:
    encoded = bytes(values)
  except ValueError:  # A value is negative or does not fit one byte.
    encoded = b"\x80"
  return (
    encoded
    if encoded.isascii()
    else b"".join(map(_varints.__getitem__, values))
  )


def encode_floats(values: Sequence[float]) -> bytes:
  """The packed numbers of a float32 feature."""
  return struct.pack(f"<{len(values)}f", *values)


def framed(record: bytes) -> bytes:
  """A record with the length and checksums of a TFRecord file around it."""
  return b"".join((_header(len(record)), record, _masked_checksum(record)))


@functools.lru_cache(2**12)
def _header(length):
  packed = struct.pack("<Q", length)
  return packed + _masked_checksum(packed)


def _masked_checksum(content):
  """The CRC-32C of the content, rotated and offset as in TFRecord files."""
  crc = google_crc32c.value(content)
  return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_records(path: str, rows: Iterable[Mapping], spec: Spec) -> int:
  """Writes rows to a TFRecord file that appears whole; returns their number."""
  count = 0
  with files.open_atomic(path) as writer:
    for row in rows:
      writer.write(framed(encode_row(row, spec)))
      count += 1
  return count


def read_records(path: str, offset: int | None = None) -> Iterator[bytes]:
  """Yields the records of a TFRecord file, each with its checksums verified.

  `offset` is the start of the first one, in bytes. A record takes `FRAME_BYTES`
  more in the file than its length.
  """
  # With an offset, the file is known to exist; skip the remote check.
  if offset is None:
    files.check_is_file(path)
  with files.open_file(path, "rb") as reader:
    reader.seek(offset or 0)
    for number in itertools.count():
      header = reader.read(_HEADER_BYTES)
      if not header:
        return
      length = int.from_bytes(header[:8], "little")
      is_header = header == _header(length)
      # `read` would reserve memory for an impossible length.
      fits = length < _LARGE or length <= files.size(path)
      frame = reader.read(length + 4) if is_header and fits else b""
      record = frame[:-4]
      checksum = _masked_checksum(record)
      if len(record) != length or frame[-4:] != checksum:
        problem = f": record {number} is damaged or cut off"
        if not number:
          problem = " is not a TFRecord file, or its first record is damaged"
        raise UserError(f"{path}{problem}; create or copy the file again")
      yield record
