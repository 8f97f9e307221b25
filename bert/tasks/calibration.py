"""Temperatures that make probabilities match frequencies (Guo et al. 2017).

    temperatures = fit_temperatures(logits, label_ids)  # One number.
    probabilities = softmax(logits / temperatures)

They minimize the loss of rows that were not trained on. A temperature is
positive, so no predicted label changes.
"""

from __future__ import annotations

import numpy as np

# Limits of a temperature: with few rows and no error, none is low enough.
_LEAST, _MOST = 0.05, 20.0

# Halvings of the interval, until it is as small as rounding allows.
_STEPS = 60


def fit_temperatures(
  logits: np.ndarray, label_ids: np.ndarray
) -> tuple[float, ...]:
  """The best temperature, or that of each label if a row may have several.

  Args:
    logits: float [rows, C].
    label_ids: the index of the label of each row [rows], or 0 and 1 [rows, C].
  """
  logits = np.asarray(logits, np.float64)
  if np.ndim(label_ids) == 1:
    own = np.take_along_axis(logits, label_ids[:, np.newaxis], 1)[:, 0]
    return (_fit(lambda factor: _expected(logits, factor) - own),)
  return tuple(map(_fit_label, logits.T, np.transpose(label_ids)))


def _fit_label(logits, is_label):
  """The temperature of one of several labels; 1 if all rows are alike."""
  if len(set(is_label.tolist())) < 2:
    return 1.0
  # Its probability is a softmax over the logit and 0.
  pair = np.stack([np.zeros_like(logits), logits], axis=1)
  return _fit(lambda factor: _expected(pair, factor) - is_label * logits)


def _expected(logits, factor):
  """The mean of the logits of each row under softmax(logits * factor)."""
  scaled = logits * factor
  weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
  return (weights * logits).sum(axis=1) / weights.sum(axis=1)


def _fit(slope_of_rows):
  """The temperature where the slope of the mean loss is 0.

  The loss is convex in the factor, 1 / temperature, so its slope rises.
  """
  low, high = 1 / _MOST, 1 / _LEAST
  for _ in range(_STEPS):
    factor = (low + high) / 2
    if np.mean(slope_of_rows(factor)) < 0:
      low = factor
    else:
      high = factor
  return 1 / low
