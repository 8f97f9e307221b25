"""The training of an experiment: its update, its input and its output."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

import optimization
from bert.contract.task import RowSet
from bert.data import files
from bert.engine import inputs, runner
from bert.engine.inputs import InputFn
from bert.engine.programs import ModelFn
from bert.errors import UserError, plural
from bert.models import checkpoints, task_file
from bert.scripts.evaluation import Evaluator
from bert.scripts.experiment import Experiment
from bert.scripts.rows import RowSets
from bert.training import summaries
from bert.training.estimator import Estimator
from bert.training.model_fn import ModelOptions, build_model_fn

if TYPE_CHECKING:
  from bert.engine.graph_encoder import GraphEncoder


def make_update(
  experiment: Experiment, row_sets: RowSets
) -> optimization.Optimization | None:
  """The Optimization of a training; None without --do_train."""
  settings, task = experiment.settings, experiment.task
  if not settings.do_train:
    return None
  (rows,) = row_sets["train"]
  count = rows.num_rows
  if not task.epoch_counts_rows:
    count = len(rows.examples) + len(experiment.unlabeled)
  settings.check_num_steps(count, task.epoch_counts_rows)
  return settings.make_optimization(
    settings.num_steps(count), experiment.config.num_blocks
  )


def model_fn_maker(
  experiment: Experiment,
  update: optimization.Optimization | None,
  encoder: GraphEncoder | None = None,
) -> Callable[[], ModelFn]:
  """A picklable function that makes the `model_fn`."""
  settings = experiment.settings
  return functools.partial(
    build_model_fn,
    experiment.task,
    experiment.config,
    settings.init_checkpoint,
    update,
    ModelOptions(
      settings.use_tpu,
      settings.precision,
      settings.gradient_checkpointing,
      experiment.kept_rows,
      settings.use_xla != "true" and not settings.use_tpu,
      encoder,
    ),
  )


def train_input_fn(experiment: Experiment, rows: RowSet) -> InputFn:
  """The `input_fn` of a training, with the parameters that its task needs."""
  changes, task = {}, experiment.task
  input_fn = inputs.input_fn_from_rows(
    rows.read, True, transform=rows.transform
  )
  if experiment.settings.pad_to_max_length is None and task.pads_training:
    changes["pad_to_max_length"] = True
  if task.spans_batch:  # The loss compares rows of all lengths.
    changes["by_length"] = False
  if groups := task.row_groups(rows.num_rows):
    changes["groups"] = groups
  return with_params(input_fn, **changes)


def with_params(input_fn: InputFn, **changes) -> InputFn:
  """An `input_fn` with changed params."""
  return lambda params: input_fn({**params, **changes})


def train(
  experiment: Experiment,
  model: Estimator,
  row_sets: RowSets,
  update: optimization.Optimization,
  evaluator: Evaluator,
  record: Mapping,
) -> None:
  """Trains, and turns `output_dir` into a model folder.

  `record` is the content of the folder's flags.json.
  """
  settings, best = experiment.settings, experiment.best
  steps, size = update.num_train_steps, settings.train_batch_size
  _check_best_is_wanted(experiment, model, steps)
  # Write this first: a checkpoint is useless without it.
  task_file.write(settings.output_dir, experiment.task)
  evaluate_at, eval_steps = None, settings.eval_steps
  if settings.evaluates_in_training:
    evaluate_at = functools.partial(
      _evaluate_at, experiment, model, row_sets["dev"], evaluator
    )
    epochs = settings.num_train_epochs or 1
    eval_steps = eval_steps or math.ceil(steps / epochs)
  (rows,) = row_sets["train"]
  _log_training(experiment, rows, steps)
  input_fn = train_input_fn(experiment, rows)
  before = functools.partial(_before_updates, experiment, model, record)
  fits = experiment.task.fits_head
  fit = functools.partial(evaluator.fit_head, rows) if fits else None
  model.train(input_fn, size, steps, evaluate_at, eval_steps, before, fit)
  if best and best.checkpoint:
    model.use(best.checkpoint)
  if not (settings.do_eval or settings.evaluates_in_training):
    # Without an evaluation, only this shows that the training diverged.
    runner.check_finite(
      model.outputs_of_a_row(input_fn),
      f"the model of step {model.global_step}",
      "its training diverged: lower --learning_rate, and pass another folder",
    )
  weights = {**model.weights, "global_step": np.int64(model.global_step)}
  checkpoints.write_release(settings.output_dir, weights, experiment.contents)
  logging.info("The trained model is in %s", settings.output_dir)
  if files.writes(settings.output_dir):
    experiment.record.note_weights(settings.output_dir, record)


def _check_best_is_wanted(experiment, model, steps):
  """Raises UserError if the last weights would replace the best ones."""
  folder = experiment.settings.output_dir
  # A training with early stopping has made fewer steps.
  release = os.path.join(folder, checkpoints.RELEASE_NAME)
  is_done = model.global_step >= steps or checkpoints.exists(release)
  if is_done and not experiment.best and checkpoints.best_checkpoint(folder):
    raise UserError(
      f"--output_dir={folder} holds the best weights of a finished training; "
      f"omit --do_train to use them, or pass the same --keep_best or "
      f"--early_stopping_patience"
    )


def _log_training(experiment, rows, steps):
  settings, size = experiment.settings, experiment.settings.train_batch_size
  logging.info(
    "Training for %s of %s, %.3g epochs of %s",
    plural(steps, "step"),
    plural(size, "row"),
    steps * size / rows.num_rows,
    plural(rows.num_rows, "row"),
  )
  if settings.freeze_layers is None:
    return
  sizes = {name: math.prod(shape) for name, shape in experiment.shapes.items()}
  rates = settings.layer_rates(experiment.config.num_blocks)
  unread = experiment.task.optional_variables()
  trained = [n for k, n in sizes.items() if rates(k) and k not in unread]
  counts = (f"{sum(numbers):,}" for numbers in (trained, sizes.values()))
  logging.info("Training %s of %s parameters", *counts)


def _before_updates(experiment, model, record):
  """Records changed flags, and deletes files that describe other weights."""
  folder = experiment.settings.output_dir
  experiment.record.note_changes(folder, record, model.global_step)
  experiment.task.before_updates(folder)
  model.retrace()  # An evaluation of the last step used earlier settings.
  obsolete = [summaries.FAILED_BATCH]
  # Otherwise the history belongs to this training.
  if not experiment.best or not model.global_step:
    obsolete.append(checkpoints.HISTORY_NAME)
  for name in obsolete:
    if files.exists(path := os.path.join(folder, name)):
      files.remove(path)
  if not model.global_step:
    summaries.delete_curves(folder)


def _evaluate_at(experiment, model, dev_sets, evaluator, step):
  """Evaluates after `step` updates; returns a reason to stop, or None."""
  best, task = experiment.best, experiment.task
  if best:
    if best.has_evaluated(step):
      return best.stop_reason
    # The trained model may change, even if no update is left to make.
    task.before_updates(experiment.settings.output_dir)
  first = None
  for rows in dev_sets:
    results = evaluator.evaluate(rows).results
    first = first or results
    step = results.pop("global_step")
    model.summaries.write(
      step, {f"dev/{n}{rows.suffix}": v for n, v in results.items()}
    )
    shown = sorted(results.keys() - {"loss"})
    if metrics := task.metrics:
      main_metrics = (*metrics, "loss")
      shown = [
        name for name in shown if name.removeprefix("eval_") in main_metrics
      ]
    logging.info(
      "step %d, %s: %s",
      step,
      rows.name,
      ", ".join(f"{name} {results[name]:.4f}" for name in shown),
    )
  model.summaries.flush()
  return best and best.add(step, first, model.weights)
