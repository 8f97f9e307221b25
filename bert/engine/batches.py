"""Batches of rows for evaluation and prediction.

    batching = Batching(task.feature_spec(False), batch_size=32)
    for batch in batching.batches(rows):
      outputs = compute(batching.features(batch))  # arrays [B, ...] by name
      for index, row_outputs in batching.by_row(batch, outputs, axes):
        ...

Rows are read in windows, so the input may be larger than memory. Rows of
similar length within a window share a batch, which is cut to its longest row,
so there is little padding. Training forms its batches in `inputs`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bert.data import records

_T = TypeVar("_T")

# Rows sorted by length at a time. Their results are buffered to restore the
# input order.
SORTED_ROWS = 4096

# Lengths of batches with XLA, which compiles a program for each length.
LENGTHS = (32, 64, 128, 256, 384, 512)

# Output name -> axes after the first: a size, None for any size, or the name of
# an axis that batches cut.
Axes = Mapping[str, Sequence[str | int | None]]


class Batch(NamedTuple):
  """Rows that are computed together."""

  indices: tuple[int, ...]  # of the rows in the input
  rows: tuple[Mapping, ...]
  sizes: tuple[tuple[int, ...], ...]  # of the rows along the axes that are cut


@dataclasses.dataclass(frozen=True)
class Batching:
  """How rows form batches.

  A row is a dict of the features in the spec: numbers, or nested lists or
  arrays of them, with or without padding.
  """

  spec: records.Spec
  batch_size: int
  is_static: bool = False  # full batches with the shapes of the spec
  fills: bool = False  # fill the last batch by repeating its rows
  rounds_lengths: bool = False  # to one of `lengths_up_to`
  in_order: bool = False  # do not sort the rows

  @property
  def is_full(self) -> bool:
    """Whether all batches have the batch size."""
    return self.fills or self.is_static

  def batches(self, rows: Iterable[Mapping]) -> Iterator[Batch]:
    """Yields batches with each row once, the longest rows of a window first.

    Rows left over at the end of a window come first in the next.
    """
    rank = len(self.spec["input_mask"].shape)
    measured = (
      (index, row, _used_size(row["input_mask"], rank))
      for index, row in enumerate(rows)
    )
    left_over = []
    while window := list(itertools.islice(measured, SORTED_ROWS)):
      if not self.in_order:
        window.sort(key=lambda item: item[2][::-1], reverse=True)
      ready = left_over + window
      whole = len(ready) // self.batch_size * self.batch_size
      left_over = ready[whole:]
      for start in range(0, whole, self.batch_size):
        yield Batch(*zip(*ready[start : start + self.batch_size], strict=True))
    if left_over:
      yield Batch(*zip(*left_over, strict=True))

  def features(self, batch: Batch) -> dict[str, np.ndarray]:
    """The features [B, ...] of a batch, int32 or float32, padded with zeros.

    They include `row_index`, the position in the batch, and
    `is_real_example`, which is 0 for rows that only fill up the batch.
    """
    used = len(batch.rows)
    count = self.batch_size if self.is_full else used
    rows = [batch.rows[index % used] for index in range(count)]
    sizes = self._sizes(batch)
    features = {}
    for name, feature in self.spec.items():
      shape = _cut_shape(feature, sizes)
      array = features[name] = np.zeros([count, *shape], _dtype(feature))
      _fill(array, [row[name] for row in rows], 1 + len(shape))
    index = features["row_index"] = np.arange(count, dtype=np.int32)
    is_real = features.get("is_real_example", np.ones_like(index))
    features["is_real_example"] = is_real * (index < used)
    return features

  def _sizes(self, batch):
    """The sizes of the axes that the batch cuts."""
    if self.is_static:
      return {}
    mask = self.spec["input_mask"]
    largest = np.max(batch.sizes, axis=0, initial=1).tolist()
    sizes = dict(zip(mask.cut_axes, largest, strict=True))
    if self.rounds_lengths:
      size, most = sizes[records.POSITION], mask.shape[-1]
      rounded = (n for n in lengths_up_to(most) if size <= n)
      sizes[records.POSITION] = min(rounded)
    return sizes

  def shapes(self) -> dict[str, tuple[list[int | None], np.dtype]]:
    """Shape and type of all `features`; None is a size that varies."""
    axes = self.spec["input_mask"].cut_axes
    any_size = {} if self.is_static else dict.fromkeys(axes)
    count = self.batch_size if self.is_full else None
    shapes = {
      name: ([count, *_cut_shape(feature, any_size)], _dtype(feature))
      for name, feature in self.spec.items()
    }
    names = ("row_index", "is_real_example")
    return shapes | dict.fromkeys(names, ([count], np.dtype(np.int32)))

  def by_row(
    self, batch: Batch, outputs: Mapping[str, np.ndarray], axes: Axes
  ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields the index and the outputs of each row of a batch.

    An output whose `axes` are named is cut to the size of the row.
    """
    names = self.spec["input_mask"].cut_axes
    for position, index in enumerate(batch.indices):
      sizes = dict(zip(names, batch.sizes[position], strict=True))
      yield (
        index,
        {
          name: _cut(values[position], axes.get(name, ()), sizes)
          for name, values in outputs.items()
        },
      )


def lengths_up_to(most: int) -> list[int]:
  """The lengths of batches whose lengths are rounded, in ascending order."""
  return [*(n for n in LENGTHS if n < most), most]


def in_order(numbered: Iterable[tuple[int, _T | None]]) -> Iterator[_T]:
  """Yields items in the order of their numbers, which count from 0.

  An item is yielded once all earlier ones have been. If a number is missing,
  later items are yielded at the end. An item that is None is skipped.
  """
  waiting, due = {}, 0
  for number, item in numbered:
    # Rows that fill up a batch repeat some of its rows.
    if item is not None or number not in waiting:
      waiting[number] = item
    while due in waiting:
      due_item = waiting.pop(due)
      due += 1
      if due_item is not None:
        yield due_item
  for _, due_item in sorted(waiting.items()):
    if due_item is not None:
      yield due_item


def _dtype(feature):
  # TPUs emulate int64 slowly, and ids fit into int32.
  return np.dtype(np.int32 if feature.dtype == "int64" else np.float32)


def _cut_shape(feature, sizes):
  """A feature's shape, with the given sizes of the axes that are cut."""
  axes = itertools.zip_longest(feature.shape, feature.cut_axes)
  return [sizes.get(axis, size) if axis else size for size, axis in axes]


def _cut(values, axes, sizes):
  """A row's output, without the padding that its batch added."""
  if not any(isinstance(axis, str) for axis in axes):
    return values
  cut = (slice(sizes[a] if isinstance(a, str) else None) for a in axes)
  # A view would keep the whole batch in memory.
  return values[tuple(cut)].copy()


def _used_size(mask, rank):
  """The extent of the ones of a nested list along each axis."""
  if rank == 1:
    used = np.flatnonzero(mask)
    return (int(used[-1]) + 1 if len(used) else 0,)
  parts = [_used_size(part, rank - 1) for part in mask]
  count = max((i for i, part in enumerate(parts, 1) if all(part)), default=0)
  return (count, *np.max(parts, axis=0).tolist())


def _fill(target, values, rank):
  """Copies a nested list to the start of each axis of an array."""
  if rank == 1:
    target[: len(values)] = values[: len(target)]
    return
  for part, value in zip(target, values, strict=False):
    _fill(part, value, rank - 1)
