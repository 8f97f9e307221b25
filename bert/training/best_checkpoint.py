"""Keeps the best weights of a run, and stops it when they stop improving.

A run that was killed and started again ends as if it had not been killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from bert import metrics
from bert.data import files
from bert.errors import UserError, plural
from bert.models import checkpoints


class BestCheckpoint:
  """The best weights of a run and the history of its evaluations.

  An evaluation enters the history after its weights are written. Training saves
  a checkpoint before it evaluates, so evaluations later than the newest valid
  training checkpoint belong to a run whose checkpoints are lost, and are
  dropped.

  Args:
    metric: a name in the results, with or without the prefix `eval_`. Higher is
      better, unless it contains `loss` or `mse`.
    patience: stop after that many evaluations in a row without a new best;
      None for never.
  """

  def __init__(self, model_dir: str, metric: str, patience: int | None = None):
    self._metric = metric
    self._patience = patience
    self._prefix = os.path.join(model_dir, checkpoints.BEST_NAME)
    self._path = os.path.join(model_dir, checkpoints.HISTORY_NAME)
    latest = checkpoints.latest_valid(model_dir)
    # (step, value) by step; the value is None if it was not finite.
    self.evaluations = self._read_history(latest.step if latest else 0)
    # If the run died between writing the weights of an evaluation and its
    # entry in the history, the weights on disk have no known value. Training
    # repeats that evaluation.
    step = None
    with contextlib.suppress(UserError):
      step = checkpoints.Checkpoint(self._prefix).step
    self.best_value = dict(self.evaluations).get(step)
    self.best_step = None if self.best_value is None else step

  @property
  def checkpoint(self) -> str | None:
    """Prefix of the best weights, or None if there are none."""
    return None if self.best_step is None else self._prefix

  @property
  def stop_reason(self) -> str | None:
    """Why training should stop, or None while it should continue."""
    if self.best_step is not None:
      since = [step for step, _ in self.evaluations if step > self.best_step]
      reason = (
        f"no better {self._metric} in {plural(len(since), 'evaluation')} "
        f"(best {self.best_value:.4g} at step {self.best_step})"
      )
    else:
      # The weights of a finite value were lost: wait for the next evaluation.
      values = [value for _, value in self.evaluations]
      since = values if set(values) == {None} else []
      reason = f"{self._metric} is not finite"
    is_over = self._patience is not None and len(since) >= self._patience
    return reason if is_over else None

  def has_evaluated(self, step: int) -> bool:
    """Whether the history has an evaluation after that many updates."""
    return step in dict(self.evaluations)

  def add(
    self,
    step: int,
    results: Mapping[str, float],
    weights: Mapping[str, tf.Tensor | tf.Variable],
  ) -> str | None:
    """Adds an evaluation; writes its weights if it is the best.

    Returns the reason to stop, or None.
    """
    if self._metric not in results:
      self._metric = f"eval_{self._metric}"
    value = float(results[self._metric])
    value = value if math.isfinite(value) else None
    self.evaluations = [e for e in self.evaluations if e[0] < step]
    self.evaluations.append((step, value))
    if self.best_step is not None and self.best_step >= step:
      self.best_step = self.best_value = None
    if self._is_better(value):
      # Write them before the history, which may only name weights on disk.
      checkpoints.write_checkpoint(
        self._prefix, {**weights, "global_step": np.int64(step)}
      )
      self.best_step, self.best_value = step, value
    history = {
      "metric": self._metric,
      "best_step": self.best_step,
      "best_value": self.best_value,
      "evaluations": self.evaluations,
    }
    files.write_file(self._path, json.dumps(history) + "\n")
    logging.info(
      "step %d: %s %s, best %s at step %s",
      step,
      self._metric,
      _shown(value),
      _shown(self.best_value),
      self.best_step,
    )
    return self.stop_reason

  def _is_better(self, value):
    if value is None or self.best_value is None:
      return value is not None
    sign = -1 if metrics.is_lower_better(self._metric) else 1
    return sign * value > sign * self.best_value

  def _read_history(self, last_step):
    history = files.read_json(self._path, dict) or {"evaluations": []}
    entries = [tuple(e) for e in history["evaluations"] if e[0] <= last_step]
    names = (self._metric, f"eval_{self._metric}")
    if not entries or history["metric"] not in names:
      return []
    self._metric = history["metric"]
    return entries


def _shown(value):
  return "not finite" if value is None else f"{value:.4f}"
