"""The best model of a run by its evaluations, and when to stop for patience.

    best = BestCheckpoint(model_dir, "eval_accuracy", patience=3)

    def evaluate(step):
      if best.knows(step):  # From before an interruption.
        return best.is_finished
      return best.add(step, model.evaluate(dev_input_fn, 8), model.weights)

    train(model, input_fn, 32, max_steps, evaluate, 100, best, release_files)

A run that was killed goes on as if it had not been.
"""

import json
import math
import os
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from errors import UserError
from pipeline import files
from training import checkpoints, estimator, metrics


class BestCheckpoint:
  """Keeps a run's best weights and the history of its evaluations.

  The weights are `best_model.ckpt`, the history is `best.json`, and an
  evaluation is in the history once both are written. `Estimator.train` saves a
  checkpoint before it evaluates, so evaluations beyond the newest training
  checkpoint belong to a run that is gone, and are dropped.

  Args:
    model_dir: the run's folder, with its training checkpoints.
    metric: a name among the results of `Estimator.evaluate`, with or without
      its `eval_`. The higher the better; the lower if `loss` or `mse` is in it.
    patience: stop after that many evaluations in a row without a new best;
      None for never.

  Attributes:
    evaluations: list of (step, value), by step; the value is None where it was
      no finite number.
    best_step: step of the weights in `best_model.ckpt`, or None.
    best_value: their metric, or None.

  Raises:
    ValueError: the folder's history is by another metric, or damaged.
  """

  def __init__(self, model_dir: str, metric: str, patience: int | None = None):
    self._metric = metric
    self._patience = patience
    self._prefix = os.path.join(model_dir, checkpoints.BEST_NAME)
    self._path = os.path.join(model_dir, checkpoints.HISTORY_NAME)
    trained = checkpoints.training_checkpoints(model_dir)
    last_step = int(trained[-1].rpartition("-")[2]) if trained else 0
    self.evaluations = self._read_history(last_step)
    # A run may have died after it had written the weights of an evaluation
    # that the history does not have. It will come again; until then nothing is
    # known of the weights.
    step = self._step_on_disk()
    values = dict(self.evaluations)
    self.best_value = values.get(step)
    self.best_step = None if self.best_value is None else step

  @property
  def checkpoint(self) -> str | None:
    """Prefix of the best weights, or None if there are none."""
    return None if self.best_step is None else self._prefix

  @property
  def is_finished(self) -> bool:
    """Whether patience has run out."""
    if self._patience is None:
      return False
    if self.best_step is None:
      # Where a value stands, the weights that it belongs to were lost.
      in_vain = all(value is None for _, value in self.evaluations)
      return in_vain and len(self.evaluations) >= self._patience
    since = [step for step, _ in self.evaluations if step > self.best_step]
    return len(since) >= self._patience

  def knows(self, step: int) -> bool:
    """Whether the evaluation after that many updates is in the history."""
    return step in dict(self.evaluations)

  def add(
    self,
    step: int,
    results: Mapping[str, float],
    weights: Mapping[str, tf.Tensor | tf.Variable],
  ) -> bool:
    """Takes in an evaluation, and writes the weights if it is the best so far.

    Args:
      step: number of updates made; later evaluations are dropped.
      results: as `Estimator.evaluate` returns them.
      weights: dict from name to variable.

    Returns:
      Whether to stop, for patience has run out.

    Raises:
      ValueError: the metric is not among the results.
    """
    name = self._name_among(results)
    value = float(results[name])
    value = value if math.isfinite(value) else None
    self.evaluations = [e for e in self.evaluations if e[0] < step]
    self.evaluations.append((step, value))
    if self.best_step is not None and self.best_step >= step:
      self.best_step = self.best_value = None
    if self._is_better(name, value):
      # The weights come first: what the history names as best is then there.
      checkpoints.write_checkpoint(
        self._prefix, {**weights, "global_step": np.int64(step)}
      )
      self.best_step, self.best_value = step, value
    self._write_history(name)
    self._log(name)
    return self.is_finished

  def _name_among(self, results):
    for name in (self._metric, f"eval_{self._metric}"):
      if name in results:
        return name
    names = ", ".join(sorted(results.keys() - {"global_step"}))
    raise UserError(
      f"there is no metric {self._metric} to choose the best checkpoint by; "
      f"pass one of {names}"
    )

  def _is_better(self, name, value):
    if value is None or self.best_value is None:
      return value is not None
    if metrics.is_lower_better(name):
      return value < self.best_value
    return value > self.best_value

  def _read_history(self, last_step):
    if not tf.io.gfile.exists(self._path):
      return []
    with tf.io.gfile.GFile(self._path, "rb") as reader:
      content = reader.read()
    try:
      history = json.loads(content)
      metric = history["metric"]
      evaluations = [
        (step, value)
        for step, value in history["evaluations"]
        if step <= last_step
      ]
    except (ValueError, TypeError, KeyError) as error:
      raise UserError(
        f"{self._path} is damaged; delete it to start its history anew"
      ) from error
    if evaluations and metric not in (self._metric, f"eval_{self._metric}"):
      raise UserError(
        f"{self._path} has evaluations by {metric}, and {self._metric} is "
        f"asked for; pass {metric}, or another folder"
      )
    return evaluations

  def _step_on_disk(self):
    """Step of the weights in `best_model.ckpt`, or None if it is not whole."""
    if not tf.io.gfile.exists(self._prefix + ".index"):
      return None
    try:
      return int(checkpoints.Checkpoint(self._prefix)["global_step"])
    except ValueError:
      return None

  def _write_history(self, name):
    history = {
      "metric": name,
      "best_step": self.best_step,
      "best_value": self.best_value,
      "evaluations": self.evaluations,
    }
    files.write_file(self._path, json.dumps(history) + "\n")

  def _log(self, name):
    step, value = self.evaluations[-1]
    if step == self.best_step:
      logging.info("step %d: %s %.4f, the best so far", step, name, value)
      return
    logging.info(
      "step %d: %s %s; the best is %s of step %s",
      step,
      name,
      "no number" if value is None else f"{value:.4f}",
      "none" if self.best_value is None else f"{self.best_value:.4f}",
      self.best_step,
    )


def train(
  model: estimator.Estimator,
  input_fn: Callable[[Mapping], tf.data.Dataset],
  batch_size: int,
  num_train_steps: int,
  evaluate_at: Callable[[int], bool] | None,
  eval_steps: int,
  keeper: BestCheckpoint | None,
  release_files: Mapping[str, str | bytes],
) -> None:
  """Trains, and makes the model's folder a release, of the best weights.

  Args:
    model: an Estimator.
    input_fn, batch_size, num_train_steps, evaluate_at, eval_steps: as
      `Estimator.train` takes them.
    keeper: what keeps the best weights, or None to leave the last ones.
    release_files: see `checkpoints.write_release`.
  """
  if not keeper:
    forget(model.model_dir)
  model.train(input_fn, batch_size, num_train_steps, evaluate_at, eval_steps)
  if keeper and keeper.checkpoint:
    model.use(keeper.checkpoint)
  checkpoints.write_release(model.model_dir, model.weights, release_files)
  logging.info("The trained model is in %s", model.model_dir)


def forget(model_dir: str) -> None:
  """Deletes the history of a run that goes on without; the weights stay."""
  path = os.path.join(model_dir, checkpoints.HISTORY_NAME)
  if tf.io.gfile.exists(path):
    tf.io.gfile.remove(path)
