"""Whether a result is good: its range, a baseline, and what to try next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert.reports import html

_DRAWS = 500
_RANGE = (2.5, 97.5)  # Percentiles of a range of 95 %.

# A wider range says little.
_WIDE = 0.1

# A training of fewer steps may have been too short.
_FEW_STEPS = 300


@dataclasses.dataclass(frozen=True)
class Sample:
  """The rows of a metric, from which a bootstrap draws."""

  metric: str  # Its name, such as "accuracy".
  count: int  # Number of rows.
  # The metric of rows by their indices [n], which may repeat; higher is better.
  score: Callable[[np.ndarray], float]
  unit: str = "row"  # What a row is.
  # A baseline without a model, such as "always 'spam'", and its score.
  baseline: tuple[str, float] | None = None
  advice: Sequence[str] = ()  # What to try next, one sentence each.


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A metric with its 95 % range; see `judge`."""

  sample: Sample
  value: float
  low: float
  high: float

  def __str__(self) -> str:
    digits = html.decimals(self.value, self.sample.count)
    text = (
      f"{self.sample.metric} {self.value:.{digits}f} (95 % range "
      f"{self.low:.{digits}f} to {self.high:.{digits}f}, "
      f"{self.sample.count:,} {self.sample.unit}s)"
    )
    if self.sample.baseline:
      name, score = self.sample.baseline
      text += f"; {name} gives {score:.{digits}f}"
    return text

  @property
  def advice(self) -> list[str]:
    """What to try next, one sentence each."""
    advice = []
    if self.sample.baseline and self.low <= self.sample.baseline[1]:
      advice.append(
        "The result is not clearly better than the baseline: check that texts "
        "and labels belong together, and train for more epochs."
      )
    if self.high - self.low > _WIDE:
      advice.append(
        f"The range is wide: evaluate on more than {self.sample.count:,} "
        f"{self.sample.unit}s."
      )
    return [*advice, *self.sample.advice]


@dataclasses.dataclass(frozen=True)
class Difference:
  """A metric of this model minus that of another one; see `compare`."""

  sample: Sample
  value: float  # of this model
  other: float
  low: float  # 95 % range of the difference
  high: float

  def __str__(self) -> str:
    digits = html.decimals(self.value, self.sample.count)
    change = self.value - self.other
    return (
      f"{self.sample.metric} {self.value:.{digits}f}, of the other model "
      f"{self.other:.{digits}f}; difference {change:+.{digits}f} (95 % range "
      f"{self.low:+.{digits}f} to {self.high:+.{digits}f}, "
      f"{self.sample.count:,} {self.sample.unit}s)"
    )


def remedy(results: Mapping[str, float], is_rare: bool, last: str) -> str:
  """Advice for a label with a low F1: first what costs nothing, then `last`.

  `is_rare` says whether the label is rare and can be weighted.
  """
  cheap = []
  if 0 < results.get("global_step", 0) < _FEW_STEPS:
    cheap.append("train for more epochs")
  if is_rare:
    cheap.append("pass --class_weights=balanced")
  first = " and ".join(cheap)
  return f"{first}; if that does not help, {last}" if cheap else last


def judge(sample: Sample) -> Verdict:
  """The metric and its 95 % range, by a bootstrap of the rows (Efron 1979).

  If all draws are equal, an accuracy has Clopper & Pearson's range (1934).
  """
  value = sample.score(np.arange(sample.count))
  low, high = _bootstrap(sample.score, sample.count)
  if low == high and sample.metric == "accuracy":
    from scipy import stats  # Here, because it takes a second to load.

    right = round(value * sample.count)
    low, high = stats.binomtest(right, sample.count).proportion_ci()
  return Verdict(sample, value, float(low), float(high))


def compare(sample: Sample, other: Sample) -> Difference:
  """The difference of two models on the same rows.

  Its range is that of a paired bootstrap: each draw has the same rows of both.
  """
  rows = np.arange(sample.count)
  low, high = _bootstrap(
    lambda rows: sample.score(rows) - other.score(rows), sample.count
  )
  return Difference(sample, sample.score(rows), other.score(rows), low, high)


def _bootstrap(score, count):
  """The 95 % range of a score of `count` rows."""
  draw = np.random.default_rng(0)
  scores = [score(draw.integers(count, size=count)) for _ in range(_DRAWS)]
  return np.percentile(scores, _RANGE)
