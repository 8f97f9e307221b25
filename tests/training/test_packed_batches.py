"""Batches that fit a Packing: each row once per epoch, in fewer rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert import packing
from bert.training import packed_batches

LENGTH = 30

# Lengths of the rows, number of slots, and how often a batch has all slots.
LENGTHS = st.lists(st.integers(0, LENGTH), min_size=1, max_size=90).map(
  lambda lengths: np.array(lengths, np.uint16)
)
SIZES = st.integers(1, 12)
TIMES = st.integers(1, 3)


def form(windows, lengths, size, times, parts=1):
  """Yields batches of windows, each checked to fit its rows and its slots."""
  packed = packed_batches.choose_packing([lengths], size, LENGTH, parts)
  formed = packed_batches.form_batches(
    windows, lengths, packed, size * times, parts
  )
  for part, batches in formed:
    for batch in batches:
      slots = packed.capacities[np.arange(len(batch)) % (size // parts)]
      assert np.all(lengths[batch] <= slots)
      assert set(batch.tolist()) <= set(part.tolist())
      yield batch.tolist()


@given(LENGTHS, SIZES, TIMES, st.integers(1, 4))
def test_an_evaluation_has_each_row_once(lengths, size, times, windows):
  rows = np.arange(len(lengths))
  parts = ((0, window) for window in np.array_split(rows, windows))
  *whole, last = form(parts, lengths, size, times)
  assert all(len(batch) == size * times for batch in whole)
  assert 0 < len(last) <= size * times
  assert sorted(itertools.chain(*whole, last)) == rows.tolist()


def take(lengths, size, parts=1, windows=1):
  """The training batches of five epochs, and not less than one."""

  def shuffled():
    for epoch in itertools.count():
      order = np.random.default_rng(epoch).permutation(len(lengths))
      for window in np.array_split(order, windows):
        yield epoch, window

  formed = form(shuffled(), lengths, size, 1, parts)
  return list(itertools.islice(formed, 1 + 5 * len(lengths) // size))


@given(LENGTHS, SIZES, st.integers(1, 4))
def test_training_uses_all_rows_equally_often(lengths, size, windows):
  batches = take(lengths, size, windows=windows)
  assert {len(batch) for batch in batches} == {size}
  used = np.bincount(np.ravel(batches), minlength=len(lengths))
  # A slot may be one row ahead of its share, or behind.
  assert used.max() - used.min() <= 2


@given(LENGTHS, st.sampled_from([1, 2, 3, 70]), st.integers(1, 3))
def test_the_number_of_devices_changes_no_batch(lengths, share, parts):
  alone = take(lengths, share * parts)
  shared = take(lengths, share * parts, parts)
  assert [sorted(batch) for batch in shared] == [
    sorted(batch) for batch in alone
  ]


@given(st.lists(LENGTHS, min_size=1, max_size=3), SIZES)
def test_slots_are_as_long_as_their_longest_row(data_sets, size):
  packed = packed_batches.choose_packing(data_sets, size, LENGTH)
  for slot, capacity in enumerate(packed.capacities):
    longest = [
      sorted(lengths, reverse=True)[slot * len(lengths) // size]
      for lengths in data_sets
    ]
    assert capacity == max(1, *longest)


def test_many_slots_share_groups():
  lengths = np.arange(1000) % LENGTH
  size = 10 * packed_batches.GROUPS
  packed = packed_batches.choose_packing([lengths], size, LENGTH)
  assert len(packed.capacities) == size
  for start in range(0, size, 10):
    assert len(set(packed.capacities[start : start + 10])) == 1


def test_rows_that_the_packing_was_not_chosen_for():
  lengths = np.array([5, 9, 5, 5])
  packed = packing.best_fit([5, 5], LENGTH)
  with pytest.raises(ValueError, match="chosen for other rows"):
    list(packed_batches.form_batches([(0, np.arange(4))], lengths, packed, 2))
