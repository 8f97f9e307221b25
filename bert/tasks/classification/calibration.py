"""Temperatures that make probabilities match frequencies (Guo et al. 2017).

    temperatures = fit_temperatures(logits, label_ids)  # One number.
    probabilities = softmax(logits / temperatures)

They minimize the loss on held-out rows. A temperature is positive, so no
predicted label changes.
"""

import numpy as np

_BOUNDS = 0.05, 20.0


def fit_temperatures(
  logits: np.ndarray, label_ids: np.ndarray
) -> tuple[float, ...]:
  """The best temperature, or one per label if a row may have several labels.

  It is 1 if no row is an error, because then no temperature is optimal.

  Args:
    logits: float [rows, C].
    label_ids: the index of the label of each row [rows], or 0 and 1 [rows, C].
  """
  logits = np.asarray(logits, np.float64)
  if np.ndim(label_ids) == 1:
    return (_fit(logits, label_ids),)
  return tuple(map(_fit_label, logits.T, np.transpose(label_ids)))


def _fit_label(logits, is_label):
  """The temperature of one of several labels; 1 if all rows agree on it."""
  if len(set(is_label.tolist())) < 2:
    return 1.0
  # Its probability is a softmax over the logit and 0.
  return _fit(np.stack([np.zeros_like(logits), logits], axis=1), is_label)


def _fit(logits, label_ids):
  # Without an error, the loss always falls with the temperature.
  if (logits.argmax(axis=1) == label_ids).all():
    return 1.0
  # Imported on use, as in `metrics`.
  from scipy import optimize, special

  rows = np.arange(len(logits))

  def loss(temperature):
    log_probs = special.log_softmax(logits / temperature, axis=1)
    return -log_probs[rows, label_ids].mean()

  result = optimize.minimize_scalar(
    loss, bounds=_BOUNDS, method="bounded", options={"xatol": 1e-9}
  )
  return float(result.x)
