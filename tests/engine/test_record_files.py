"""Shuffled batches of TFRecord files, and what is wrong with such files."""

import contextlib
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.data import records, sequences
from bert.engine import inputs, record_files
from bert.engine.record_files import RecordFiles

SEQ_LENGTH = 12
PREDICTIONS = 2
VOCAB_SIZE = 1000
SEQUENCES = records.sequence_spec(SEQ_LENGTH)
SPEC = {
  **SEQUENCES,
  "masked_lm_positions": records.Feature((PREDICTIONS,)),
  "masked_lm_ids": records.Feature((PREDICTIONS,)),
  "masked_lm_weights": records.Feature((PREDICTIONS,), "float32"),
  "next_sentence_labels": records.Feature((1,)),
}


def make_row(number):
  """A row whose ids all say its number, of a length from 1 to SEQ_LENGTH."""
  length = length_of(number)
  return {
    "input_ids": sequences.padded([number] * length, SEQ_LENGTH),
    "input_mask": sequences.padded([1] * length, SEQ_LENGTH),
    "segment_ids": [0] * SEQ_LENGTH,
    "masked_lm_positions": [0, 0],
    "masked_lm_ids": [number, 0],
    "masked_lm_weights": [1.0, 0.0],
    "next_sentence_labels": [number % 2],
  }


def length_of(number):
  return 1 + number * 7 % SEQ_LENGTH


def write(folder, sizes, spec=SPEC):
  """Files of so many rows each, numbered through; returns their paths."""
  paths = [str(folder / f"part-{n}.tfrecord") for n in range(len(sizes))]
  numbers = itertools.count()
  for path, size in zip(paths, sizes, strict=True):
    rows = [make_row(number) for number in itertools.islice(numbers, size)]
    records.write_records(path, rows, spec)
  return paths


@contextlib.contextmanager
def constants(block_rows, window_rows):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(record_files, "BLOCK_ROWS", block_rows)
    patch.setattr(inputs, "WINDOW_ROWS", window_rows)
    yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
  """23 rows in three files and eight blocks of up to 4."""
  paths = write(tmp_path_factory.mktemp("rows"), [9, 1, 13])
  with constants(4, 8):
    return RecordFiles(paths, SPEC, VOCAB_SIZE)


def batches_of(input_fn, params, count=None):
  """The first `count` batches, or all, as arrays."""
  return [
    {name: value.numpy() for name, value in batch.items()}
    for batch in itertools.islice(input_fn(params), count)
  ]


def assert_same_batches(some, others):
  assert len(some) == len(others)
  for one, other in zip(some, others, strict=True):
    assert one.keys() == other.keys()
    for name in one:
      np.testing.assert_array_equal(one[name], other[name])


def refusal(function, *args):
  """The message of a ValueError, which has one line."""
  with pytest.raises(ValueError, match=r".") as error:
    function(*args)
  (line,) = str(error.value).splitlines()
  return line


def write_frames(path, records):
  with tf.io.TFRecordWriter(str(path)) as writer:
    for record in records:
      writer.write(record)


class TestRecordFiles:
  def test_lengths(self, files):
    assert len(files) == 23
    assert files.lengths.tolist() == [length_of(n) for n in range(23)]
    assert files.lengths.dtype == np.uint16
    assert files.block_sizes.tolist() == [4, 4, 1, 1, 4, 4, 4, 1]

  @given(st.lists(st.integers(0, 22), unique=True))
  def test_read(self, files, rows):
    rows = sorted(rows)
    assert files.read(np.array(rows, np.int64)) == [
      records.encode_row(make_row(row), SPEC) for row in rows
    ]

  def test_a_block_is_read_without_asking_for_its_file(
    self, files, monkeypatch
  ):
    """In a bucket, each such question is a request to the server."""

    def ask(path):
      raise AssertionError(path)

    for name in ("exists", "isdir", "isfile", "size"):
      monkeypatch.setattr(record_files.files, name, ask)
    assert len(files.read(np.arange(23))) == 23

  def test_a_remote_file_that_goes(self):
    path = "ram://rows.tfrecord"
    records.write_records(path, [make_row(0), make_row(1)], SPEC)
    files = RecordFiles([path], SPEC, VOCAB_SIZE)
    assert files.read([1]) == [records.encode_row(make_row(1), SPEC)]
    tf.io.gfile.remove(path)
    assert refusal(files.read, [1]).startswith(f"{path}: no such file")

  def test_empty_files_are_passed_over(self, tmp_path):
    files = RecordFiles(write(tmp_path, [0, 5, 0, 3, 0]), SPEC, VOCAB_SIZE)
    assert files.lengths.tolist() == [length_of(n) for n in range(8)]
    (record,) = files.read(np.array([6]))
    assert record == records.encode_row(make_row(6), SPEC)

  def test_no_record(self, tmp_path):
    files = RecordFiles(write(tmp_path, [0, 0]), SPEC, VOCAB_SIZE)
    assert len(files) == len(files.block_sizes) == 0
    assert files.read(np.zeros(0, np.int64)) == []
    for is_training in (True, False):
      input_fn = inputs.input_fn_from_rows(files, is_training)
      assert batches_of(input_fn, {"batch_size": 2}) == []

  def test_fingerprint(self, tmp_path):
    def fingerprint(paths):
      return RecordFiles(paths, SPEC, VOCAB_SIZE).fingerprint

    paths = write(tmp_path, [3, 2])
    first = fingerprint(paths)
    assert fingerprint(paths) == first
    copies = [path + ".copy" for path in paths]
    for path, copy in zip(paths, copies, strict=True):
      os.rename(path, copy)
    assert fingerprint(copies) == first
    assert fingerprint(copies[::-1]) != first
    # The same records, of which another file holds one.
    assert fingerprint(write(tmp_path, [2, 3])) != first
    rows = [make_row(0), make_row(1), {**make_row(2), "segment_ids": [1] * 12}]
    records.write_records(copies[0], rows, SPEC)
    assert fingerprint(copies) != first


class TestWrongRecords:
  """Files whose frames are whole."""

  @pytest.mark.parametrize("wrong_row", [0, 4])
  @pytest.mark.parametrize(
    ("name", "values", "message"),
    [
      ("input_ids", [5, VOCAB_SIZE] + [0] * 10, "1000, not from 0 to 999"),
      ("masked_lm_ids", [1, VOCAB_SIZE + 7], "1007, not from 0 to 999"),
      # In 32 bits this is 1.
      ("input_ids", [2**32 + 1] + [0] * 11, "4294967297, not from 0 to 999"),
      ("input_ids", [-1] * 12, "-1, not from 0 to 999"),
      ("masked_lm_positions", [3, 12], "12, not from 0 to 11"),
      ("input_mask", [2] + [0] * 11, "2, not from 0 to 1"),
    ],
  )
  def test_values(self, tmp_path, wrong_row, name, values, message):
    rows = [make_row(number) for number in range(10)]
    rows[wrong_row][name] = values
    first, path = str(tmp_path / "first"), str(tmp_path / "second")
    records.write_records(first, [make_row(0)] * 6, SPEC)
    records.write_records(path, rows, SPEC)
    with constants(4, 8):
      refused = refusal(RecordFiles, [first, path], SPEC, VOCAB_SIZE)
    where = f"{path}: record {wrong_row}: {name} holds {message}; pass the"
    assert refused.startswith(where)

  def test_other_features(self, tmp_path):
    paths = write(tmp_path, [3], SEQUENCES)
    refused = refusal(RecordFiles, paths, SPEC, VOCAB_SIZE)
    where = f"{paths[0]}: record 0: masked_lm_positions has 0 values "
    assert refused.startswith(where)
    assert "expected 2" in refused
    assert refused.endswith("--max_seq_length")
    floats = {**SPEC, "input_ids": records.Feature((12,), "float32")}
    paths = write(tmp_path, [3], floats)
    assert "input_ids has 0 values of type int64" in refusal(
      RecordFiles, paths, SPEC, VOCAB_SIZE
    )

  def test_what_the_spec_does_not_name_may_be_there(self, tmp_path):
    assert len(RecordFiles(write(tmp_path, [3]), SEQUENCES, VOCAB_SIZE)) == 3

  def test_no_example(self, tmp_path):
    (path,) = write(tmp_path, [2])
    content = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    write_frames(path, [*content, b"\xff\xff"])
    message = refusal(RecordFiles, [path], SPEC, VOCAB_SIZE)
    assert message.startswith(f"{path}: record 2: input_ids has 0 values")


class TestDamagedFiles:
  @pytest.mark.parametrize("is_header_cut", [False, True])
  def test_the_record_is_counted_over_blocks(self, tmp_path, is_header_cut):
    size = len(records.encode_row(make_row(15), SPEC)) + 16
    missing = size - 3 if is_header_cut else 1
    with constants(4, 8):
      _, path = paths = write(tmp_path, [5, 11])
      with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - missing)
      refused = refusal(RecordFiles, paths, SPEC, VOCAB_SIZE)
    assert refused.startswith(f"{path}: record 10 is damaged")
    assert refused.endswith("again")

  def test_a_cut_between_records_makes_another_file(self, tmp_path):
    paths = write(tmp_path, [3])
    before = RecordFiles(paths, SPEC, VOCAB_SIZE).fingerprint
    sizes = [len(records.encode_row(make_row(n), SPEC)) for n in range(2)]
    with open(paths[0], "r+b") as file:
      file.truncate(sum(sizes) + 2 * 16)
    files = RecordFiles(paths, SPEC, VOCAB_SIZE)
    assert len(files) == 2
    assert files.fingerprint != before


BLOCK_SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=12).map(np.array)
BATCH_SIZES = st.integers(1, 9)


def plan(block_sizes, batch_size, seed=0):
  lengths = np.array([length_of(n) for n in range(np.sum(block_sizes))])
  return inputs.training_batches(lengths, block_sizes, batch_size, seed)


def first_batches(count, *args):
  batches = itertools.chain.from_iterable(made for _, made in plan(*args))
  return [batch.tolist() for batch in itertools.islice(batches, count)]


class TestShuffledBatches:
  @given(BLOCK_SIZES, BATCH_SIZES, st.integers(1, 30), st.integers(0, 9))
  def test_rows_come_equally_often(self, sizes, batch_size, window, seed):
    rows = int(np.sum(sizes))
    epochs = 3
    count, carried = divmod(epochs * rows, batch_size)
    with constants(7, window):
      batches = first_batches(count, sizes, batch_size, seed)
    assert {len(batch) for batch in batches} <= {batch_size}
    times = np.bincount(np.ravel(batches).astype(int), minlength=rows)
    assert len(times) == rows
    assert times.max() <= epochs
    assert np.sum(epochs - times) == carried

  @given(BLOCK_SIZES, BATCH_SIZES, st.integers(1, 30))
  def test_windows(self, sizes, batch_size, window):
    rows = int(np.sum(sizes))
    block_of = np.repeat(np.arange(len(sizes)), sizes)
    left_over = []
    seen = []
    with constants(7, window):
      for part, batches in plan(sizes, batch_size):
        assert part[: len(left_over)].tolist() == left_over
        new = part[len(left_over) :]
        # Whole blocks, of which no more begin than the window has room for.
        blocks = np.unique(block_of[new])
        assert len(new) == np.sum(sizes[blocks])
        assert len(new) < window + 7
        whole = len(part) // batch_size * batch_size
        assert sorted(np.ravel(batches)) == sorted(part[:whole])
        left_over = part[whole:].tolist()
        seen += new.tolist()
        if len(seen) >= rows:
          break
    assert sorted(seen) == list(range(rows))


class TestTraining:
  @settings(max_examples=5)
  @given(st.integers(0, 20), st.integers(1, 30), st.integers(0, 3))
  def test_resumed_as_if_never_stopped(
    self, files, first_step, batch_size, seed
  ):
    input_fn = inputs.input_fn_from_rows(files, True, transform=add_ordinals)
    params = {"batch_size": batch_size, "seed": seed}
    with constants(4, 8):
      whole = batches_of(input_fn, params, first_step + 4)
      resumed = batches_of(input_fn, {**params, "first_step": first_step}, 4)
    assert_same_batches(resumed, whole[first_step:])

  def test_rows_are_those_of_the_plan(self, files):
    input_fn = inputs.input_fn_from_rows(files, True, transform=add_ordinals)
    with constants(4, 8):
      batches = batches_of(input_fn, {"batch_size": 5, "seed": 3}, 20)
      expected = first_batches(20, files.block_sizes, 5, 3)
    assert [batch["row_index"].tolist() for batch in batches] == expected
    for step, batch in enumerate(batches):
      numbers = batch["row_index"]
      mask = (
        np.arange(max(map(length_of, numbers)))
        < np.array([*map(length_of, numbers)])[:, None]
      )
      np.testing.assert_array_equal(batch["input_mask"], mask)
      np.testing.assert_array_equal(batch["input_ids"], mask * numbers[:, None])
      np.testing.assert_array_equal(batch["masked_lm_ids"][:, 0], numbers)
      assert batch["ordinals"].tolist() == [*range(5 * step, 5 * step + 5)]
      assert batch["is_real_example"].all()

  def test_what_is_passed_over_is_not_read(self, files, monkeypatch):
    def refuse(rows):
      raise AssertionError("reads")

    monkeypatch.setattr(files, "read", refuse)
    with constants(4, 8):
      parts = list(itertools.islice(plan(files.block_sizes, 3), 6))
      steps = sum(len(batches) for _, batches in parts)
      assert list(inputs.read_parts(files, parts, steps)) == []
      with pytest.raises(AssertionError, match="reads"):
        list(inputs.read_parts(files, parts, steps - 1))


def add_ordinals(features, ordinals):
  return {**features, "ordinals": ordinals}


class TestFilesThatChange:
  @pytest.fixture
  def case(self, tmp_path):
    paths = write(tmp_path, [6, 6])
    with constants(4, 8):
      yield paths[1], RecordFiles(paths, SPEC, VOCAB_SIZE)

  def remove(path):
    os.remove(path)

  def shorten(path):
    with open(path, "r+b") as file:
      file.truncate(os.path.getsize(path) - 5)

  def empty(path):
    with open(path, "wb"):
      pass

  def replace(path):
    rows = [make_row(number) for number in (6, 7, 8, 9, 10, 23)]
    records.write_records(path, rows, SPEC)

  def overwrite(path):
    with open(path, "r+b") as file:
      file.write(b"\xff" * os.path.getsize(path))

  @pytest.mark.parametrize(
    ("change", "message"),
    [
      (remove, ": no such file; check the path"),
      (shorten, " changed since this run began; run the same command"),
      (empty, " changed since this run began; run the same command"),
      (replace, " changed since this run began; run the same command"),
      (overwrite, " changed since this run began; run the same command"),
    ],
  )
  def test_in_training_and_evaluation(self, case, change, message):
    path, files = case
    change(path)
    assert len(files.read(np.arange(6))) == 6
    assert refusal(files.read, np.arange(12)).startswith(path + message)
    for input_fn in (
      inputs.input_fn_from_rows(files, True),
      inputs.input_fn_from_rows(files, False),
    ):
      with pytest.raises(tf.errors.OpError) as error:
        batches_of(input_fn, {"batch_size": 2}, 12)
      first_line = error.value.message.splitlines()[0]
      assert f"UserError: {path}{message}" in first_line
    assert refusal(list, inputs.EachRow(files, 12)).startswith(path + message)


class TestEvaluation:
  @settings(max_examples=5)
  @given(st.integers(1, 30))
  def test_batches_in_order(self, files, batch_size):
    input_fn = inputs.input_fn_from_rows(files, False, False, add_ordinals)
    with constants(4, 8):
      batches = batches_of(input_fn, {"batch_size": batch_size})
    assert len(batches) == -(-23 // batch_size)
    rows = np.concatenate([batch["row_index"] for batch in batches])
    assert rows.tolist() == list(range(23))
    for batch in batches:
      numbers = batch["row_index"]
      assert len(numbers) == batch_size or batch is batches[-1]
      np.testing.assert_array_equal(batch["masked_lm_ids"][:, 0], numbers)
      np.testing.assert_array_equal(batch["ordinals"], numbers)

  @settings(max_examples=5)
  @given(st.integers(0, 23))
  def test_each_row(self, files, count):
    with constants(4, 8):
      found = inputs.EachRow(files, count, add_ordinals)
      rows = list(found)
    assert len(found) == len(rows) == count
    assert [row["ordinals"] for row in rows] == list(range(count))
    for number, row in enumerate(rows):
      assert row.keys() == found.spec.keys() == {*SPEC, "ordinals"}
      assert row["masked_lm_ids"][0] == number
      ids = [number] * length_of(number)
      assert row["input_ids"][: len(ids)].tolist() == ids
      assert not row["input_ids"][len(ids) :].any()
