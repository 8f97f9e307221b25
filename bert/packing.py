"""Several short sequences in one row of the encoder (Krell et al. 2021).

A device that needs static shapes pads every sequence to S positions. A Packing
saves this padding: it computes the B sequences of a batch in R rows of S
positions. Each sequence has a slot, consecutive positions of one row. Attention
stays within a slot and positions restart at 0, so the vectors are the same.

    packing = best_fit([60, 50, 40, 30], 100)  # Rows of 60 + 40 and 50 + 30.
    model = modeling.BertModel(config, False, input_ids, packing=packing)
    model.get_sequence_output()  # [4, 100, H], from 2 rows of 100
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from bert import quiet_start  # noqa: F401  Before TensorFlow.
import numpy as np
import tensorflow as tf


class Packing:
  """The slots of a batch of B sequences [S] in R rows [S].

  All indices are constants, so all shapes are static.

  Args:
    capacities: [B], number of positions of each slot. A longer sequence is cut.
    rows: [B], the row of each slot.
    length: S.

  Attributes:
    capacities: int [B].
    num_rows, length: R and S.
    position_ids: int32 [R, S], the position of each within its slot.
  """

  def __init__(
    self, capacities: Sequence[int], rows: Sequence[int], length: int
  ):
    most = int(max(np.bincount(rows, weights=capacities)))
    if most > length:
      raise ValueError(f"{most} positions do not fit into {length}")
    self.capacities = np.array(capacities)
    self.num_rows, self.length = max(rows) + 1, length
    size = len(capacities)
    slots = [[] for _ in range(self.num_rows)]  # Those of each row.
    used = np.zeros(self.num_rows, int)
    # From positions of the rows to those of the sequences. Positions outside of
    # all slots read the padding after the last sequence.
    sources = np.full(self.num_rows * length, size * length, np.int32)
    # And from positions of the sequences to those of the rows.
    self._targets = np.zeros([size, length], np.int32)
    for slot, (capacity, row) in enumerate(zip(capacities, rows, strict=True)):
      positions = row * length + used[row] + np.arange(capacity)
      sources[positions] = slot * length + np.arange(capacity)
      ends = np.minimum(np.arange(length), capacity - 1)
      self._targets[slot] = positions[ends]
      used[row] += capacity
      slots[row].append(slot)
    self._sources = sources.reshape(-1, length)
    self.position_ids = self._sources % length
    # The slots of each row, [R, most], filled up with slot 0; and where each
    # slot is among these.
    most = max(map(len, slots))
    self._slots = np.zeros([self.num_rows, most], np.int32)
    self._of_slots = np.zeros(size, np.int32)
    for row, found in enumerate(slots):
      self._slots[row, : len(found)] = found
      self._of_slots[found] = row * most + np.arange(len(found))

  def pack(self, sequences: tf.Tensor) -> tf.Tensor:
    """Integers [B, S] as rows [R, S], 0 where there is no slot."""
    flat = tf.reshape(sequences, [-1])
    return tf.gather(tf.pad(flat, [[0, 1]]), self._sources)

  def unpack(self, rows: tf.Tensor) -> tf.Tensor:
    """Vectors [R, S, H] of rows as [B, S, H]; those behind a slot repeat."""
    flat = tf.reshape(rows, [-1, rows.shape[-1]])
    return tf.gather(flat, self._targets)

  def within_slots(self, mask: tf.Tensor) -> tf.Tensor:
    """An attention mask [R, S, S] that also separates the slots."""
    slots = tf.constant(self._sources // self.length)
    is_same = tf.equal(slots[:, :, tf.newaxis], slots[:, tf.newaxis, :])
    return mask * tf.cast(is_same, mask.dtype)

  def at(
    self, positions: tf.Tensor | None
  ) -> tuple[Callable | None, Callable[[tf.Tensor], tf.Tensor]]:
    """How to compute a few positions of each sequence.

    Args:
      positions: integer [B, P]; the first ones if None.

    Returns:
      A function that selects these positions of rows, [R, F, H] of [R, S, H],
      or None if F would not be less than S; and one from [R, F, H], or
      [R, S, H], to [B, P, H].
    """
    if positions is None:
      positions = tf.zeros([len(self.capacities), 1], tf.int32)
    count = positions.shape[1]
    ends = tf.constant(self.capacities[:, np.newaxis] - 1, positions.dtype)
    positions = tf.minimum(positions, ends)
    if self._slots.shape[1] * count >= self.length:
      return None, lambda rows: tf.gather(
        self.unpack(rows), positions, batch_dims=1
      )
    starts = self._targets[:, :1] % self.length
    positions += tf.constant(starts, positions.dtype)
    of_rows = tf.reshape(tf.gather(positions, self._slots), [self.num_rows, -1])

    def unpack(selected):
      groups = tf.reshape(selected, [-1, count, selected.shape[-1]])
      return tf.gather(groups, self._of_slots)

    return functools.partial(_select, of_rows), unpack


def _select(positions, x):
  """[B, F, H] of [B, S, H] at positions, integer [B, F]."""
  return tf.gather(x, positions, batch_dims=1)


class _Unpacked(Packing):
  """Each sequence in a row of its own."""

  position_ids = None

  def __init__(self):
    pass

  def pack(self, sequences):
    return sequences

  def unpack(self, rows):
    return rows

  def within_slots(self, mask):
    return mask

  def at(self, positions):
    if positions is None:
      return lambda x: x[:, :1], tf.identity
    return functools.partial(_select, positions), tf.identity


UNPACKED = _Unpacked()


def best_fit(capacities: Sequence[int], length: int) -> Packing:
  """The Packing of slots, each in the fullest row that has room for it.

  Args:
    capacities: [B], sizes of the slots, at most `length`. Few rows remain
      partly empty if the largest come first (best-fit decreasing).
    length: S.
  """
  room, rows = [], []
  for capacity in capacities:
    fitting = [row for row, free in enumerate(room) if free >= capacity]
    if not fitting:
      fitting = [len(room)]
      room.append(length)
    row = min(fitting, key=room.__getitem__)
    room[row] -= capacity
    rows.append(row)
  return Packing(capacities, rows, length)
