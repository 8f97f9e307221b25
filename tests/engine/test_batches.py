"""Rows in windows and batches, and the outputs of each row."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.data import records
from bert.engine import batches, runner
from bert.engine.batches import Batching

SEQ_LENGTH = 20
SPEC = {
  "input_ids": records.sequence_feature(SEQ_LENGTH),
  "input_mask": records.sequence_feature(SEQ_LENGTH),
  "weights": records.Feature((2,), "float32"),
}
AXES = {"doubled": (records.POSITION,), "total": (), "shape": (2,)}

# Lengths of the rows of a data set, and a batch size.
LENGTHS = st.lists(st.integers(0, SEQ_LENGTH), max_size=60)
SIZES = st.integers(1, 70)


def make_rows(lengths):
  """Row i has ids that all say i + 1."""
  return [
    {
      "input_ids": [number] * length,
      "input_mask": [1] * length,
      "weights": [number / 2, -1.0],
    }
    for number, length in enumerate(lengths, 1)
  ]


def indices_of(lengths, *args, window=4096, **kwargs):
  """The rows of each batch."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(batches, "SORTED_ROWS", window)
    made = Batching(SPEC, *args, **kwargs).batches(make_rows(lengths))
    return [list(batch.indices) for batch in made]


def compute(features):
  """A program that depends on nothing but the row, except for the shape."""
  ids = features["input_ids"]
  totals = np.sum(ids, axis=1)
  shape = np.tile([ids.shape], [len(totals), 1])
  return {**features, "doubled": 2 * ids, "total": totals, "shape": shape}


@given(LENGTHS, SIZES, SIZES, st.tuples(*[st.booleans()] * 4))
def test_outputs_of_a_row_do_not_depend_on_its_batch(
  lengths, batch_size, window, options
):
  batching = Batching(SPEC, batch_size, *options)
  counts = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(batches, "SORTED_ROWS", window)
    found = list(
      runner.compute_rows(
        compute, batching, make_rows(lengths), AXES, "it", counts.append
      )
    )
  assert [row["doubled"].tolist() for row in found] == [
    [2 * number] * length for number, length in enumerate(lengths, 1)
  ]
  assert [row["total"] for row in found] == [
    number * length for number, length in enumerate(lengths, 1)
  ]
  assert [row["weights"].tolist() for row in found] == [
    [number / 2, -1.0] for number in range(1, len(lengths) + 1)
  ]
  assert sum(counts) == len(lengths)
  is_static, fills, rounds, _ = options
  for row in found:
    count, length = row["shape"]
    assert count == batch_size if is_static or fills else count <= batch_size
    assert length == SEQ_LENGTH if is_static else length <= SEQ_LENGTH
    if rounds:
      assert length == SEQ_LENGTH  # Shorter than all of LENGTHS.


@given(LENGTHS, SIZES, SIZES)
def test_batches_as_sorted_by_hand(lengths, batch_size, window):
  order = [
    row
    for start in range(0, len(lengths), window)
    for row in sorted(
      range(start, min(start + window, len(lengths))),
      key=lambda row: -lengths[row],
    )
  ]
  found = indices_of(lengths, batch_size, window=window)
  assert list(itertools.chain(*found)) == order
  assert all(len(batch) == batch_size for batch in found[:-1])
  in_order = indices_of(lengths, batch_size, window=window, in_order=True)
  assert list(itertools.chain(*in_order)) == list(range(len(lengths)))
  assert list(map(len, in_order)) == list(map(len, found))


def test_a_row_is_not_held_back_for_long():
  lengths = np.random.default_rng(0).integers(1, 20, size=10_000)
  order = np.concatenate(indices_of(lengths, 100))
  assert np.abs(np.arange(10_000) - order).max() < 4096


def test_rows_are_read_when_they_are_due(monkeypatch):
  monkeypatch.setattr(batches, "SORTED_ROWS", 100)
  taken = []

  def read():
    for number, row in enumerate(make_rows([3] * 2000)):
      taken.append(number)
      yield row

  found = runner.compute_rows(compute, Batching(SPEC, 4), read(), AXES, "it")
  for count, _ in enumerate(found, 1):
    assert len(taken) <= count + 200


@pytest.mark.parametrize(
  ("longest", "length"), [(3, 4), (5, 8), (9, SEQ_LENGTH)]
)
def test_lengths_are_rounded(monkeypatch, longest, length):
  """XLA compiles a program for each length."""
  monkeypatch.setattr(batches, "LENGTHS", (4, 8, 512))
  batching = Batching(SPEC, 2, rounds_lengths=True)
  (batch,) = batching.batches(make_rows([2, longest]))
  features = batching.features(batch)
  assert features["input_ids"].shape == (2, length)
  assert features["input_mask"].sum() == 2 + longest


def test_features_by_hand():
  spec = {**SPEC, "is_real_example": records.Feature()}
  rows = [{**row, "is_real_example": 1} for row in make_rows([1, 3])]
  rows[1]["is_real_example"] = 0
  batching = Batching(spec, 3, fills=True)
  (batch,) = batching.batches(rows)
  features = batching.features(batch)
  found = {name: value.tolist() for name, value in features.items()}
  assert found == {
    "input_ids": [[2, 2, 2], [1, 0, 0], [2, 2, 2]],
    "input_mask": [[1, 1, 1], [1, 0, 0], [1, 1, 1]],
    "weights": [[1.0, -1.0], [0.5, -1.0], [1.0, -1.0]],
    "row_index": [0, 1, 2],
    "is_real_example": [0, 1, 0],
  }
  assert features.pop("weights").dtype == np.float32
  assert {value.dtype for value in features.values()} == {np.dtype("int32")}


def test_numbers_that_are_not_finite():
  def divide(features):
    with np.errstate(divide="ignore"):
      return {"inverse": 1 / features["weights"]}

  found = runner.compute_rows(
    divide, Batching(SPEC, 2), make_rows([1, 2]), {}, "checkpoint X"
  )
  assert [row["inverse"].tolist() for row in found] == [[2, -1], [1, -1]]
  rows = make_rows([1, 2])
  rows[0]["weights"] = [1.0, 0.0]
  found = runner.compute_rows(
    divide, Batching(SPEC, 2), rows, {}, "checkpoint X"
  )
  message = "^checkpoint X gives inverse that are infinite or not a number; "
  with pytest.raises(runner.InfiniteOutputError, match=message):
    list(found)
