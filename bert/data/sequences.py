"""Joining, sharing and filling sequences of word pieces; rows of columns."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tokenization


def share_room(
  size_a: int,
  size_b: int,
  room: int,
  least: Callable = min,
  most: Callable = max,
) -> tuple[int, int]:
  """How many items of lists A and B are kept so that `room` holds both.

  Items are dropped from the end of the longer list, and from B on a tie: each
  list gets half of the room (A the larger half) plus what the other leaves.
  Sizes may be tensors if `least` and `most` are their minimum and maximum.
  """
  kept_a = least(size_a, most((room + 1) // 2, room - size_b))
  return kept_a, least(size_b, room - kept_a)


def join_texts(
  special: tokenization.SpecialPieces, *texts: Sequence[str]
) -> tuple[list[str], list[int]]:
  """[CLS] A [SEP], or [CLS] A [SEP] B [SEP], and the segment of each piece.

  Pieces may be any objects if those of `special` are, too.
  """
  first, *others = texts
  pieces = [special.cls, *first, special.sep]
  segment_ids = [0] * len(pieces)
  for text in others:
    more = [special.sep] * (special.between - 1)
    segment_ids += [0] * len(more)
    segment_ids += [int(special.has_segments)] * (len(text) + 1)
    pieces += [*more, *text, special.sep]
  return pieces, segment_ids


def input_row(
  tokenizer: tokenization.FullTokenizer, *texts: Sequence[str]
) -> dict[str, list[int]]:
  """The model's input for the word pieces of one or two texts."""
  pieces, segment_ids = join_texts(tokenizer.special, *texts)
  return {
    "input_ids": tokenizer.convert_tokens_to_ids(pieces),
    "input_mask": [1] * len(pieces),
    "segment_ids": segment_ids,
  }


def padded(values: Sequence[int], length: int) -> list[int]:
  """`values` followed by zeros, a list of `length`."""
  return list(values) + [0] * (length - len(values))


def rows_of(columns: Mapping[str, Iterable]) -> Iterator[dict]:
  """Yields a dict by name for each row of columns, which are equally long."""
  for row in zip(*columns.values(), strict=True):
    yield dict(zip(columns, row, strict=True))


def groups_of(items: Iterable, counts: Iterable[int]) -> Iterator[list]:
  """Yields consecutive items in lists, with one count for each list."""
  items = iter(items)
  for count in counts:
    yield list(itertools.islice(items, count))


class Window(NamedTuple):
  """Items `start` to `end` of a long list.

  Of overlapping windows, the one with most context owns an item. This window
  owns the items `first` to `last`. `end` and `last` are excluded.
  """

  start: int
  end: int
  first: int
  last: int


def overlapping_windows(size: int, room: int, stride: int) -> list[Window]:
  """The windows over a list of `size` items, each with at most `room` items.

  `stride` is the distance between their starts. The last ends with the list.
  """
  last_start = max(size - room, 0)
  starts = [*range(0, last_start, stride), last_start]
  # The item in the middle of an overlap has equal context in both windows.
  edges = [(a + room + b) // 2 for a, b in itertools.pairwise(starts)]
  ends = [min(start + room, size) for start in starts]
  return list(map(Window, starts, ends, [0, *edges], [*edges, size]))
