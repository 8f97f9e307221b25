"""Records: the bytes that TensorFlow writes, and files checked when read."""

import itertools
import struct

import google_crc32c
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from bert import errors
from bert.data import records

INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
FLOATS = st.floats(width=32, allow_nan=False)


@st.composite
def _rows(draw):
  """A spec and a row that fits it."""
  spec, row = {}, {}
  for name in draw(st.lists(st.text(max_size=5), unique=True, max_size=5)):
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=2)))
    dtype = draw(st.sampled_from(["int64", "float32"]))
    size = int(np.prod(shape))
    values = FLOATS if dtype == "float32" else INTS
    drawn = draw(st.lists(values, min_size=size, max_size=size))
    array = np.array(drawn, dtype).reshape(shape)
    spec[name] = records.Feature(shape, dtype)
    row[name] = draw(st.sampled_from([array, array.tolist()]))
  return spec, row


def _example(spec, row):
  """The `tf.train.Example` of a row, as TensorFlow makes it."""
  features = {}
  for name, feature in spec.items():
    values = np.ravel(row[name]).tolist()
    if feature.dtype == "float32":
      floats = tf.train.FloatList(value=values)
      features[name] = tf.train.Feature(float_list=floats)
    else:
      ints = tf.train.Int64List(value=values)
      features[name] = tf.train.Feature(int64_list=ints)
  return tf.train.Example(features=tf.train.Features(feature=features))


@hypothesis.given(_rows())
def test_a_row_is_encoded_as_by_tensorflow(pair):
  spec, row = pair
  example, encoded = _example(spec, row), records.encode_row(row, spec)
  assert tf.train.Example.FromString(encoded) == example
  # Implementations of protocol buffers differ in the order of two names if one
  # is the start of the other.
  pairs = itertools.permutations(spec, 2)
  hypothesis.assume(not any(a.startswith(b) for a, b in pairs))
  assert encoded == example.SerializeToString(deterministic=True)


@pytest.mark.parametrize("value", [7, np.int64(7), np.array(7), [7], [[7]]])
def test_a_single_number_may_come_in_any_form(value):
  wanted = _example({"x": records.Feature()}, {"x": 7}).SerializeToString()
  assert records.encode_row({"x": value}, {"x": records.Feature()}) == wanted


@pytest.mark.parametrize("values", [[1], [[1, 2], [3, 4]]])
def test_a_row_of_another_size_is_an_internal_error(values):
  spec = {"x": records.Feature((2,))}
  with pytest.raises(ValueError, match=r"feature x has \d values") as error:
    records.encode_row({"x": values}, spec)
  assert not isinstance(error.value, errors.UserError)


@hypothesis.given(st.lists(st.binary(max_size=300), max_size=5))
def test_a_file_is_framed_as_by_tensorflow(tmp_path_factory, contents):
  path = str(tmp_path_factory.mktemp("records") / "x")
  with tf.io.TFRecordWriter(path) as writer:
    for content in contents:
      writer.write(content)
  with open(path, "rb") as reader:
    written = reader.read()
  assert b"".join(map(records.framed, contents)) == written
  assert list(records.read_records(path)) == contents


def test_reading_starts_at_any_record(tmp_path):
  contents = [b"a" * size for size in (5, 0, 300, 2)]
  path = tmp_path / "x"
  path.write_bytes(b"".join(map(records.framed, contents)))
  offset = 5 + records.FRAME_BYTES
  found = list(records.read_records(str(path), offset))
  assert found == contents[1:]


CONTENTS = (b"first", b"second", b"third")
FRAMES = list(map(records.framed, CONTENTS))
CUT = r"record 2 is damaged or cut off; create or copy the file again$"
DAMAGED = r"record 1 is damaged or cut off; create or copy the file again$"
OTHER = r"is not a TFRecord file, or its first record is damaged; create"


def _flipped(index):
  content = bytearray(b"".join(FRAMES))
  content[index] ^= 1
  return bytes(content)


@pytest.mark.parametrize(
  ("content", "whole", "message"),
  [
    *((b"".join(FRAMES)[:-cut], 2, CUT) for cut in (1, 5, 20)),
    # The length, its checksum, the record and its checksum.
    *((_flipped(len(FRAMES[0]) + n), 1, DAMAGED) for n in (0, 8, 12, 19)),
    (_flipped(3), 0, OTHER),
    (b"text that is not a TFRecord file", 0, OTHER),
  ],
)
def test_a_damaged_file_is_named_with_the_record(
  tmp_path, content, whole, message
):
  path = tmp_path / "x"
  path.write_bytes(content)
  found = []
  with pytest.raises(errors.UserError, match=rf"^{path}.* ?{message}"):
    found.extend(records.read_records(str(path)))
  assert len(list(_until_error(str(path)))) == whole


def _until_error(path):
  try:
    yield from records.read_records(path)
  except errors.UserError:
    return


@pytest.mark.parametrize("length", [2**24, 2**40, 2**62, 2**64 - 1])
def test_a_huge_length_is_not_reserved(tmp_path, length):
  """Its checksum is right, and the file is shorter."""
  path = str(tmp_path / "a.tf_record")
  header = struct.pack("<Q", length)
  checksum = google_crc32c.value(header)
  masked = (checksum >> 15 | checksum << 17) + 0xA282EAD8 & 2**32 - 1
  with open(path, "wb") as writer:
    writer.write(header + struct.pack("<I", masked) + b"content")
  with pytest.raises(errors.UserError, match="its first record is damaged"):
    next(records.read_records(path))
