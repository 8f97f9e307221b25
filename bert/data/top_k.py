"""The best of many scores, which come in parts."""

import numpy as np

Hits = tuple[np.ndarray, np.ndarray]


class Best:
  """Collects the best scores for `count` queries."""

  def __init__(self, count: int, k: int):
    self._k = k
    self._least = np.full(count, -np.inf, np.float32)
    empty = np.empty(0, np.float32), np.empty(0, np.int64)
    self.hits: list[Hits] = [empty] * count

  def add(self, first: int, scores: np.ndarray) -> None:
    """Adds the scores [Q, N] of the rows from number `first` on."""
    for query in np.flatnonzero(scores.max(axis=1) > self._least):
      better = np.flatnonzero(scores[query] > self._least[query])
      self.add_rows(query, first + better, scores[query, better])

  def add_rows(
    self, query: int, numbers: np.ndarray, scores: np.ndarray
  ) -> None:
    """Adds scores [N] of a query; the numbers [N] of the rows ascend."""
    old, old_numbers = self.hits[query]
    scores = np.concatenate([old, scores])
    order = np.argsort(-scores, kind="stable")[: self._k]
    numbers = np.concatenate([old_numbers, numbers])[order]
    self.hits[query] = scores[order], numbers
    if len(order) == self._k:
      self._least[query] = scores[order[-1]]
