"""Batches whose sequences fit the slots of a Packing.

Rows are ranked by length, and divided into as many groups as a Packing has
slots. A batch takes one row of each group, so all batches have the same mixture
of lengths, and one Packing serves them all. Its slots have the lengths of the
longest rows of each group.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert import packing
from bert.packing import Packing

# Slots share a group if there are more. With more groups, slots have fewer
# unused positions; with fewer, fewer rows of large data sets wait in memory for
# rows of other groups.
GROUPS = 64

# The rows of a part of the data, int64 [rows of the part], and the batches that
# they form, each int64 [B]. Only one part is in memory.
Part = tuple[np.ndarray, list[np.ndarray]]


def choose_packing(
  data_sets: Sequence[np.ndarray], size: int, length: int, parts: int = 1
) -> Packing:
  """A Packing for `form_batches`.

  Args:
    data_sets: the lengths of the rows of each data set that it must serve.
    size: number of rows that are chosen together, one of each slot.
    length: S, number of positions of a packed row.
    parts: number of equal parts, such as the shares of devices, of these rows.
      The Packing is that of one part.
  """
  groups = _groups(size)
  first_slots = np.searchsorted(groups, groups)
  capacities = np.ones(size, int)
  for lengths in data_sets:
    # The longest row of a group is the first of its first slot, see `_slots`.
    ranks = first_slots * len(lengths) // size
    at_least = np.cumsum(_histogram(lengths, length)[::-1])
    longest = length - np.searchsorted(at_least, ranks, side="right")
    capacities = np.maximum(capacities, longest)
  # Each part has one of `parts` slots in turn. The first is the longest.
  return packing.best_fit(capacities[::parts].tolist(), length)


def form_batches(
  windows: Iterable[tuple[int, np.ndarray]],
  lengths: np.ndarray,
  chosen: Packing,
  batch_size: int,
  parts: int = 1,
) -> Iterator[Part]:
  """Yields batches; row i of a batch fits slot i, modulo the number of slots.

  Rows wait until there is one for each slot. All rows are used equally often.
  The number of parts changes the order of a batch's rows, but not the rows.

  Args:
    windows: number of the epoch, from 0, and rows that are read together. Each
      epoch has each row once.
    lengths: int [rows].
    chosen: the Packing that was chosen for these lengths and parts.
    batch_size: B, a multiple of the number of slots.
    parts: as in `choose_packing`.

  Yields:
    For each window, the rows that wait and its own, and the batches that they
    form. After the last window, which is for `parts=1`, a batch of the rows
    that remain, if any.
  """
  slots, n = len(chosen.capacities), len(lengths)
  size = slots * parts
  groups = _groups(size)
  shares = np.bincount(groups)  # Number of slots of each group.
  longer = n - np.cumsum(_histogram(lengths, chosen.length))
  waiting = [np.zeros(0, np.int64) for _ in shares]
  ready = np.zeros(0, np.int64)
  next_ranks, latest = None, None
  for epoch, rows in windows:
    if epoch != latest:
      next_ranks, latest = longer.copy(), epoch
    ranks = _ranks(lengths[rows], next_ranks)
    found = groups[_slots(ranks, epoch * n % size, n, size)]
    waiting = [
      np.concatenate([queue, rows[found == group]])
      for group, queue in enumerate(waiting)
    ]
    part = np.concatenate([ready, *waiting])
    taken = _take(waiting, shares).reshape(-1, slots, parts)
    ready = np.concatenate([ready, taken.transpose(0, 2, 1).ravel()])
    whole = len(ready) // batch_size * batch_size
    batches = ready[:whole].reshape(-1, batch_size)
    if np.any(lengths[batches].reshape(-1, slots) > chosen.capacities):
      raise ValueError("the Packing was chosen for other rows")
    ready = ready[whole:]
    yield part, list(batches)
  # Each that remains belongs to another slot. So the longest fit the first.
  rest = np.concatenate(waiting)
  rest = rest[np.argsort(-lengths[rest].astype(int), kind="stable")]
  rest = np.concatenate([ready, rest])
  if len(rest):
    yield rest, [rest]


def _take(waiting, shares):
  """Removes as many rows for all slots as there are, int64 [times, slots].

  Args:
    waiting: a queue of rows for each group; the rows are removed.
    shares: number of slots of each group.
  """
  count = min(len(q) // n for q, n in zip(waiting, shares, strict=True))
  taken = []
  for group, share in enumerate(shares):
    first, waiting[group] = np.split(waiting[group], [count * share])
    taken.append(first.reshape(count, share))
  return np.concatenate(taken, axis=1)


def _groups(size):
  """The group of each slot, int [size]."""
  return np.arange(size) * min(size, GROUPS) // size


def _slots(ranks, remainder, num_rows, size):
  """The slots of rows, from their ranks by length in an epoch.

  Slot i has the ranks from (i n + r) // size on, for n rows. With the remainder
  r that the earlier epochs left, all slots have had equally many rows after
  each epoch, except for one more or less.
  """
  return ((ranks + 1) * size - 1 - remainder) // num_rows


def _ranks(found, next_ranks):
  """The ranks of rows among all of an epoch, from 0 for the longest.

  Args:
    found: int [rows], their lengths.
    next_ranks: the next rank of each length, which this function advances.
  """
  order = np.argsort(found, kind="stable")
  by_length = found[order]
  ranks = np.empty(len(found), np.int64)
  earlier = np.searchsorted(by_length, by_length)  # Rows that are shorter.
  ranks[order] = next_ranks[by_length] + np.arange(len(found)) - earlier
  next_ranks += np.bincount(found, minlength=len(next_ranks))
  return ranks


def _histogram(lengths, length):
  """Number of rows of each length from 0 to `length`."""
  return np.bincount(lengths, minlength=length + 1)
