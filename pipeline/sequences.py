"""Sharing and filling a sequence of fixed length."""

from collections.abc import Sequence


def share_room(size_a: int, size_b: int, room: int) -> tuple[int, int]:
  """How many items of lists A and B are kept so that `room` holds both.

  Items are dropped from the end of the longer list, and from B on a tie. In
  closed form: each list gets half of the room (A the larger half if odd) plus
  what the other leaves unused.
  """
  kept_a = min(size_a, max((room + 1) // 2, room - size_b))
  return kept_a, min(size_b, room - kept_a)


def truncate_pair(tokens_a: list, tokens_b: list, max_length: int) -> None:
  """Shortens two lists in place until they hold `max_length` items together.

  Items are dropped from the end of the longer list, and from B on a tie.
  """
  kept_a, kept_b = share_room(len(tokens_a), len(tokens_b), max_length)
  del tokens_a[kept_a:], tokens_b[kept_b:]


def padded(values: Sequence[int], length: int) -> list[int]:
  """`values` followed by zeros, a list of `length`."""
  return list(values) + [0] * (length - len(values))
