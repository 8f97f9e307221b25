"""Records, and the batches drawn from them."""

import itertools
import os
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.data import records, sequences
from bert.engine import batches, inputs, record_files
from bert.training import estimator

SEQ_LENGTH = 20
SPEC = {
  "input_ids": records.sequence_feature(SEQ_LENGTH),
  "input_mask": records.sequence_feature(SEQ_LENGTH),
  "label_ids": records.Feature(),
  "weights": records.Feature((2,), "float32"),
}


@pytest.mark.parametrize(
  "build",
  [
    lambda path: inputs.Rows([], SPEC),
    lambda path: record_files.RecordFiles([path], SPEC),
    lambda path: estimator.Estimator(None, estimator.RunConfig(path)),
  ],
)
def test_a_v1_graph_is_an_error(tmp_path, build):
  with (
    tf.Graph().as_default(),
    pytest.raises(ValueError, match="v1 graph; remove"),
  ):
    build(str(tmp_path / "new"))
  assert not any(tmp_path.iterdir())


def make_row(number, length):
  """A row of `length` ids that all say `number`."""
  return {
    "input_ids": sequences.padded([number] * length, SEQ_LENGTH),
    "input_mask": sequences.padded([1] * length, SEQ_LENGTH),
    "label_ids": number % 3,
    "weights": [number / 2, -1.0],
  }


def make_rows(lengths):
  return inputs.Rows(
    [make_row(number, length) for number, length in enumerate(lengths)], SPEC
  )


def as_numpy(batch):
  return {name: value.numpy() for name, value in batch.items()}


def batches_of(rows, params, count=None, **kwargs):
  """The first `count` batches of an input_fn, or all, as arrays."""
  kwargs.setdefault("is_training", False)
  dataset = inputs.input_fn_from_rows(rows, **kwargs)(params)
  return [as_numpy(batch) for batch in itertools.islice(dataset, count)]


class TestShareRoom:
  @given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 90))
  def test_one_item_at_a_time(self, size_a, size_b, room):
    a, b = size_a, size_b
    while a + b > room:
      a, b = (a - 1, b) if a > b else (a, b - 1)
    assert sequences.share_room(size_a, size_b, room) == (a, b)


class TestRowsOfAFile:
  @pytest.fixture
  def path(self, tmp_path):
    rows = [make_row(number, 1 + number % SEQ_LENGTH) for number in range(3000)]
    records.write_records(str(tmp_path / "rows"), rows, SPEC)
    return str(tmp_path / "rows")

  def test_they_are_not_held(self, path):
    """What is held of a row are its length, size and offset."""
    record_files.RecordFiles(
      [path], SPEC
    )  # TensorFlow's own memory comes first.
    tracemalloc.start()
    rows = record_files.RecordFiles([path], SPEC)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 3000
    assert held < os.path.getsize(path) / 2


def test_rows_of_memory_and_of_their_file_form_equal_batches(
  tmp_path, monkeypatch
):
  """In several windows of several blocks, the last of them smaller."""
  monkeypatch.setattr(record_files, "BLOCK_ROWS", 7)
  monkeypatch.setattr(inputs, "WINDOW_ROWS", 20)
  rows = [make_row(n, n * 13 % (SEQ_LENGTH + 1)) for n in range(50)]
  records.write_records(str(tmp_path / "wanted"), rows, SPEC)
  batches = []
  for limit, kind in ((2**20, inputs.Rows), (0, record_files.RecordFiles)):
    monkeypatch.setattr(inputs, "MEMORY_BYTES", limit)
    path = tmp_path / f"rows-{limit}"
    count, read = inputs.write_rows(str(path), iter(rows), SPEC)
    assert count == 50
    assert type(read()) is kind
    assert path.read_bytes() == (tmp_path / "wanted").read_bytes()
    found = batches_of(read(), {"batch_size": 4}, 40, is_training=True)
    batches.append(found + batches_of(read(), {"batch_size": 4}))
  assert len(batches[0]) == 40 + 13
  for one, other in zip(*batches, strict=True):
    assert one.keys() == other.keys()
    for name, value in one.items():
      np.testing.assert_array_equal(value, other[name])


class TestReadBatch:
  def read(self, rows, *args, spec=SPEC, **kwargs):
    serialized = [records.encode_row(row, spec) for row in rows]
    return as_numpy(inputs.read_batch(serialized, *args, spec, **kwargs))

  def test_by_hand(self):
    batch = self.read([make_row(2, 2), make_row(0, 3)], [2, 0], [True, False])
    assert batch["input_ids"].tolist() == [[2, 2, 0], [0, 0, 0]]
    assert batch["input_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["label_ids"].tolist() == [2, 0]
    assert batch["weights"].tolist() == [[1.0, -1.0], [0.0, -1.0]]
    assert batch["row_index"].tolist() == [2, 0]
    assert batch["is_real_example"].tolist() == [1, 0]
    assert batch.pop("weights").dtype == np.float32
    assert {value.dtype for value in batch.values()} == {np.dtype("int32")}

  def test_a_row_may_itself_be_unreal(self):
    spec = {**SPEC, "is_real_example": records.Feature()}
    rows = [{**make_row(0, 3), "is_real_example": real} for real in (0, 1, 1)]
    batch = self.read(rows, [0, 1, 2], [True, True, False], spec=spec)
    assert batch["is_real_example"].tolist() == [0, 1, 0]

  def test_what_is_no_sequence_is_not_cut(self):
    # As many labels, or masked positions, as a sequence has positions.
    spec = {
      **SPEC,
      "segment_ids": records.sequence_feature(SEQ_LENGTH),
      "label_ids": records.Feature((SEQ_LENGTH,)),
      "masked_lm_positions": records.Feature((SEQ_LENGTH,)),
    }
    everything = list(range(SEQ_LENGTH))
    row = {
      **make_row(7, 3),
      "segment_ids": everything,
      "label_ids": everything,
      "masked_lm_positions": everything,
    }
    batch = self.read([row], [0], [True], spec=spec)
    assert batch["input_ids"].tolist() == [[7, 7, 7]]
    assert batch["segment_ids"].tolist() == [[0, 1, 2]]
    assert batch["label_ids"].tolist() == [everything]
    assert batch["masked_lm_positions"].tolist() == [everything]


def take(lengths, batch_size, seed, count):
  parts = inputs.training_batches(
    lengths, np.array([len(lengths)]), batch_size, seed
  )
  batches = itertools.chain.from_iterable(batches for _, batches in parts)
  return list(itertools.islice(batches, count))


def spread(lengths, batches):
  """How far the longest row of a batch exceeds the shortest, on average."""
  return np.mean([np.ptp(lengths[batch]) for batch in batches])


class TestTrainingBatches:
  def test_an_epoch_is_two_draws(self):
    # Of rows as long as each other, one a batch, only the two draws are left.
    orders = []
    for epoch in range(2):
      rng = np.random.default_rng([5, epoch])
      rows = rng.permutation(7)
      orders.append(rows[rng.permutation(7)])
    batches = take(np.full(7, 3), 1, 5, 14)
    np.testing.assert_array_equal(np.ravel(batches), np.ravel(orders))

  def test_rows_of_a_batch_are_of_similar_length(self):
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 128, size=1000)
    batches = take(lengths, 8, 1, 125)
    at_random = rng.permutation(1000).reshape(125, 8)
    assert spread(lengths, batches) < spread(lengths, at_random) / 5

  def test_batches_do_not_come_by_length(self):
    lengths = np.arange(256)
    means = [lengths[batch].mean() for batch in take(lengths, 8, 1, 32)]
    rises = np.sum(np.diff(means) > 0)
    assert 5 < rises < 26


class TestInputFn:
  LENGTHS = (3, 20, 9, 1, 12, 5, 8)

  @pytest.mark.parametrize("name", ["fill_batches", "pad_to_max_length"])
  def test_an_evaluation_can_fill_its_batches(self, name):
    params = {"batch_size": 4, name: True}
    batches = batches_of(make_rows(self.LENGTHS), params)
    rows = [batch["row_index"].tolist() for batch in batches]
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 4]]
    assert batches[1]["is_real_example"].tolist() == [1, 1, 1, 0]
    assert batches[1]["input_ids"].shape == (4, SEQ_LENGTH)

  @pytest.mark.parametrize(
    ("longest", "length"), [(3, 4), (5, 8), (9, SEQ_LENGTH)]
  )
  def test_lengths_are_rounded(self, monkeypatch, longest, length):
    """XLA compiles a program for each length."""
    monkeypatch.setattr(batches, "LENGTHS", (4, 8, 512))
    params = {"batch_size": 2, "rounds_lengths": True}
    rows = make_rows([2, longest])
    (batch,) = batches_of(rows, params, 1, is_training=True)
    for name in ("input_ids", "input_mask"):
      assert batch[name].shape == (2, length)

  def test_rows_are_read_when_they_are_due(self, monkeypatch):
    rows = make_rows([3] * 2000)
    taken = []

    def read(indices):
      taken.extend(indices)
      return serialized(indices)

    serialized, rows.read = rows.read, read
    monkeypatch.setattr(record_files, "BLOCK_ROWS", 100)
    dataset = inputs.input_fn_from_rows(rows, False)({"batch_size": 4})
    for count, _ in enumerate(dataset.take(50), 1):
      assert len(taken) <= 4 * (count + 64) + 100

  @pytest.mark.parametrize("is_training", [True, False])
  def test_static_shapes(self, is_training):
    input_fn = inputs.input_fn_from_rows(make_rows(self.LENGTHS), is_training)
    dataset = input_fn({"batch_size": 2, "pad_to_max_length": True})
    shapes = {n: s.shape.as_list() for n, s in dataset.element_spec.items()}
    assert shapes == {
      "input_ids": [2, SEQ_LENGTH],
      "input_mask": [2, SEQ_LENGTH],
      "label_ids": [2],
      "weights": [2, 2],
      "is_real_example": [2],
      "row_index": [2],
    }
    batch = as_numpy(next(iter(dataset)))
    lengths = np.array(self.LENGTHS)[batch["row_index"]]
    assert batch["input_mask"].sum(axis=1).tolist() == lengths.tolist()

  def test_only_training_is_endless(self):
    """The strategy of a TPU expects a smaller last batch of any other input."""
    params = {"batch_size": 3}
    for is_training in (True, False):
      input_fn = inputs.input_fn_from_rows(make_rows(self.LENGTHS), is_training)
      found = input_fn(params).cardinality()
      assert (found == tf.data.INFINITE_CARDINALITY) == is_training
    batches = batches_of(make_rows(self.LENGTHS), params, 99, is_training=True)
    assert len(batches) == 99
