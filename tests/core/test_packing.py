"""Slots of sequences in rows."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert import packing

CAPACITIES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def test_best_fit_by_hand():
  packed = packing.best_fit([60, 50, 40, 30], 100)
  assert packed.num_rows == 2
  # 40 fits beside 60 exactly, and 30 then beside 50.
  assert packed.position_ids[0].tolist() == [*range(60), *range(40)]
  assert packed.position_ids[1, :80].tolist() == [*range(50), *range(30)]


@given(CAPACITIES)
def test_every_slot_has_its_positions(capacities):
  packed = packing.best_fit(capacities, 9)
  # No row could be added to another one.
  filled = np.zeros(packed.num_rows, int)
  size = len(capacities)
  sequences = 1 + np.arange(size * 9, dtype=np.int32).reshape(size, 9)
  rows = packed.pack(sequences).numpy()
  wanted = [
    n for row, n in zip(sequences, capacities, strict=True) for n in row[:n]
  ]
  assert sorted(rows[rows > 0]) == wanted
  filled = np.sum(rows > 0, axis=1)
  assert len(filled) == 1 or np.sort(filled)[:2].sum() > 9
  unpacked = packed.unpack(rows[:, :, np.newaxis]).numpy()[:, :, 0]
  for row, expected, n in zip(unpacked, sequences, capacities, strict=True):
    assert row[:n].tolist() == expected[:n].tolist()
  # The first positions, two positions, and so many that all are computed.
  ends = np.array(capacities)[:, np.newaxis] - 1
  for positions in (None, ends * [[0, 1]], ends * [[1] * 9]):
    select, unpack = packed.at(
      positions if positions is None else tf.constant(positions)
    )
    few = rows[:, :, np.newaxis]
    if select is not None:
      few = select(few)
      assert few.shape[1] < 9
    found = unpack(tf.constant(few))[:, :, 0]
    wanted = ends * 0 if positions is None else positions
    wanted = np.take_along_axis(sequences, wanted, axis=1)
    np.testing.assert_array_equal(found, wanted)


@given(CAPACITIES)
def test_attention_stays_within_a_slot(capacities):
  packed = packing.best_fit(capacities, 9)
  numbers = np.repeat(np.arange(1, 1 + len(capacities)), 9).reshape(-1, 9)
  slots = packed.pack(numbers.astype(np.int32)).numpy()
  mask = packed.within_slots(np.ones([packed.num_rows, 9, 9], np.float32))
  expected = slots[:, :, np.newaxis] == slots[:, np.newaxis, :]
  np.testing.assert_array_equal(mask, expected)
  starts = packed.position_ids == 0
  assert np.sum(starts & (slots > 0)) == len(capacities)


def test_a_row_that_is_too_full():
  with pytest.raises(ValueError, match="11 positions do not fit into 10"):
    packing.Packing([6, 5], [0, 0], 10)
