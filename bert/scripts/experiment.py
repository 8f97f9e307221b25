"""Runs a task: checks the input, writes rows, trains, evaluates and predicts.

`bert/contract/task.py` defines the interface of a task.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from absl import logging

import modeling
from bert import runtimes
from bert.contract.distillation import Distillation
from bert.contract.task import RowSet, Task
from bert.data import files, folder_lock
from bert.data.sequences import groups_of
from bert.engine import (
  devices,
  graph_encoder as engines,
  inputs,
  precision_loss,
  runner,
)
from bert.errors import UserError, plural
from bert.models import (
  checkpoints,
  model_folder,
  run_record,
  task_file,
  warm_start,
)
from bert.models.resolve import Model
from bert.reports import training_page, verdict
from bert.scripts import dry_run as plan
from bert.scripts.settings import RunSettings, no_trained_model
from bert.training import (
  best_checkpoint,
  data_checks,
  estimator,
  memory,
  start_checks,
  summaries,
  teacher,
)
from bert.training.model_fn import ModelOptions, build_model_fn

# Names of the files of rows, by split.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


class ModelFiles(NamedTuple):
  """The model of an experiment."""

  config: modeling.BertConfig
  # By name, the files that, beside the weights, make a model folder.
  contents: Mapping[str, str | bytes]


class Experiment:
  """Trains, evaluates and uses one model in one folder.

  The constructor reads and checks all inputs. It writes no files.
  """

  def __init__(self, task: Task, model: ModelFiles, settings: RunSettings):
    self._task = task
    self._encoder = None
    self._model_files = model
    self._settings = settings
    if settings.calibrate and "dev" in settings.splits and not task.labels:
      raise UserError(f"--calibrate: {task.name} has no labels; omit it")
    if settings.init_checkpoint is not None:
      checkpoints.find_checkpoint(settings.init_checkpoint)
    if settings.do_train:
      settings.layer_rates(model.config.num_blocks)
    if files.isdir(settings.output_dir):
      with folder_lock.lock_folder(settings.output_dir):
        pass  # Fail before reading the data if another process uses it.
    self._row_sets = {split: task.row_sets(split) for split in settings.splits}
    self._examples = {
      split: task.examples(split)
      for split, row_sets in self._row_sets.items()
      if row_sets is None
    }
    self._read_output_dir()  # The examples may tell the size of the head.
    self._teacher = self._load_teacher()
    for examples in self._examples.get("train", {}).values():
      self._check_training_set(examples)
    # These checks take longer, because TensorFlow loads.
    self._check_init_checkpoint()
    self._kept_rows = {}
    settings.check_batch_sizes()
    if settings.do_train and self._is_trained:
      self._record.check(settings.output_dir)
    elif settings.do_train:
      self._kept_rows = warm_start.kept_rows(
        task, model.config, settings.init_checkpoint
      )

  @property
  def name(self) -> str:
    """The name of its task."""
    return self._task.name

  def _load_teacher(self):
    settings, task = self._settings, self._task
    if not (settings.teacher and "train" in self._examples):
      return None
    path, unlabeled = settings.unlabeled_file, ()
    if path:
      unlabeled = task.unlabeled(path)
      logging.info("%s: %s", path, plural(len(unlabeled), "example"))
    task.distillation = Distillation(
      settings.distill_weight, settings.distill_temperature
    )
    return teacher.Teacher(
      settings.teacher, task, unlabeled, settings.precision, settings.dry_run
    )

  def _check_init_checkpoint(self):
    settings, task = self._settings, self._task
    has_heads = start_checks.check_init_checkpoint(
      self._model_files.config,
      task.head_shapes(self._model_files.config),
      settings.init_checkpoint,
      is_used=not self._is_trained,
    )
    if not (settings.do_train or has_heads or self._is_trained):
      raise no_trained_model(settings.output_dir, settings.init_checkpoint)
    folder = model_folder.weights_folder(
      settings.output_dir, settings.init_checkpoint
    )
    if self._is_trained and not settings.do_train:
      is_stopped = not model_folder.is_finished(folder)
      if is_stopped:
        self._record.check_vocabulary(folder)

  @functools.cached_property
  def _record(self):
    settings, task = self._settings, self._task
    # False for a task whose test set the model of another one predicts.
    used = settings.flags.changed(
      task_name=task.name, do_train=settings.do_train
    )
    hashes = dict(task.data_hashes())
    if self._teacher:
      hashes["teacher"] = self._teacher.hash
      if path := settings.unlabeled_file:  # Its rows are trained on, too.
        hashes["unlabeled_file"] = run_record.hash_of(path)
    return run_record.RunRecord(used, hashes)

  def run(self) -> dict[str, float]:
    """Runs the requested steps and returns the evaluation metrics.

    With `dry_run`, it prints a Plan instead, and returns nothing.
    """
    settings, task = self._settings, self._task
    if settings.dry_run:
      logging.info(
        "--dry_run: measuring a few steps, which takes a minute or more"
      )
      with devices.hosts_end_together(settings.strategy):
        planned = self._make_plan()
      print("\n".join([task.name, *planned.lines()]))
      return {}
    files.makedirs(settings.output_dir)
    with (
      folder_lock.lock_folder(settings.output_dir),
      devices.hosts_end_together(settings.strategy),
    ):
      self._read_output_dir()  # Another process may have just left it.
      record = self._kept_record = self._record.keep(
        settings.output_dir, settings.do_train, self._is_trained
      )
      self._make_row_sets()
      if settings.runtime != runtimes.TENSORFLOW:
        # The weights are those that the Estimator loads.
        used = Model(self._model_files.config, task.tokenizer, "")
        self._encoder = engines.GraphEncoder(
          settings.runtime, settings.precision, used
        )
      model = self._build_estimator()
      self._train_or_load(model)
      if settings.calibrate and "dev" in settings.splits:
        self._calibrate(model)
      dev_sets = self._row_sets["dev"] if settings.do_eval else []
      evaluations, results = [], {}
      for rows in dev_sets:
        evaluations.append(self._evaluate(model, rows))
        self._write_results(model, rows, evaluations[-1])
        for name, value in evaluations[-1].results.items():
          results[name + rows.suffix] = value
      if evaluations or settings.do_train:
        self._report(evaluations, record)
      for rows in self._row_sets.get("test", ()):
        scored = self._predict(model, rows, record)
        results |= {name + rows.suffix: v for name, v in scored.items()}
    return results

  @property
  def _shapes(self):
    """Name and shape of the variables of the model."""
    config = self._model_files.config
    return modeling.variable_shapes(config) | self._task.head_shapes(config)

  def _read_output_dir(self):
    """Checks what an earlier run left in the folder."""
    settings = self._settings
    self._is_trained = start_checks.check_output_dir(
      self._shapes, settings.output_dir, settings.do_train
    )
    self._best = self._make_best_checkpoint()

  def _make_best_checkpoint(self):
    settings, task = self._settings, self._task
    metric = (settings.keep_best or "").removeprefix("eval_")
    known = [*task.metrics, *(["loss"] if task.has_eval_loss else [])]
    if settings.keep_best and metric not in known:
      raise UserError(
        f"--keep_best={settings.keep_best} is not a metric of {task.name}; "
        f"pass one of {', '.join(known)}"
      )
    keeps = metric or settings.early_stopping_patience
    if not (keeps and settings.do_train):
      return None
    return best_checkpoint.BestCheckpoint(
      settings.output_dir,
      metric or task.metrics[0],
      settings.early_stopping_patience,
    )

  # Rows.

  def _make_row_sets(self):
    settings = self._settings
    uses_dev = settings.do_eval or settings.evaluates_in_training
    for split, examples in self._examples.items():
      self._row_sets[split] = [
        self._write_rows(split, suffix, examples[suffix])
        for suffix in examples
        if split != "dev" or uses_dev
      ]
    with data_checks.collected_warnings() as self._data_warnings:
      self._task.log_data(self._row_sets)
      for rows in self._row_sets.get("train", ()):
        data_checks.log_data_checks(rows, self._task)
        for dev in self._row_sets.get("dev") or ():
          data_checks.log_overlap(self._task, rows, dev)

  def _write_rows(self, split, suffix, examples):
    task, is_training = self._task, split == "train"
    for rows in self._row_sets.get("dev") or ():
      if split == "test" and rows.examples is examples:
        return dataclasses.replace(rows, split=split)
    path = os.path.join(
      files.writable_folder(self._settings.output_dir),
      f"{_RECORD_NAMES[split]}{suffix}.tf_record",
    )
    spec = task.feature_spec(is_training)
    groups = task.features(examples, is_training)
    if is_training and self._teacher:
      spec = self._teacher.spec()
      groups = self._teacher.rows(examples, os.path.dirname(path))
    counts = []

    def rows():
      for rows_of_example in groups:
        counts.append(len(rows_of_example))
        yield from rows_of_example

    num_rows, read = inputs.write_rows(path, rows(), spec)
    devices.check_hosts_agree(
      self._settings.strategy,
      num_rows,
      f"{os.path.basename(path)} has different numbers of rows",
      "give all hosts the same data",
    )
    has_one_each = set(counts) <= {1}
    logging.info(
      "%s: %s of %s%s",
      path,
      plural(num_rows, "row"),
      plural(len(counts), "example"),
      "" if has_one_each else f", {sum(n > 1 for n in counts)} in windows",
    )
    return RowSet(
      split,
      suffix,
      examples,
      input_fn=inputs.input_fn_from_rows(read, is_training),
      num_rows=num_rows,
      rows_per_example=None if has_one_each else np.array(counts, np.int64),
      read=read,
    )

  # Training.

  def _check_training_set(self, examples):
    count = len(examples) + len(self._unlabeled)
    if self._task.epoch_counts_rows and not self._settings.num_steps(count):
      # Convert the examples only if needed: each may have several rows.
      sets = (examples, True), (self._unlabeled, False)
      count = sum(len(rows) for s in sets for rows in self._task.features(*s))
    self._settings.check_num_steps(count, self._task.epoch_counts_rows)

  @property
  def _unlabeled(self):
    """Examples without labels, to train on, too."""
    return self._teacher.unlabeled if self._teacher else ()

  def _build_estimator(self):
    settings = self._settings
    update = None
    if settings.do_train:
      (rows,) = self._row_sets["train"]
      counts_rows = self._task.epoch_counts_rows
      count = rows.num_rows
      if not counts_rows:
        count = len(rows.examples) + len(self._unlabeled)
      settings.check_num_steps(count, counts_rows)
      steps = self._num_train_steps = settings.num_steps(count)
      num_layers = self._model_files.config.num_blocks
      update = settings.make_optimization(steps, num_layers)
    self._make_model_fn = functools.partial(
      build_model_fn,
      self._task,
      self._model_files.config,
      settings.init_checkpoint,
      update,
      ModelOptions(
        settings.use_tpu,
        settings.precision,
        settings.gradient_checkpointing,
        self._kept_rows,
        settings.use_xla != "true" and not settings.use_tpu,
        self._encoder,
      ),
    )
    return estimator.Estimator(self._make_model_fn(), settings.run_config())

  def _train_or_load(self, model):
    """Trains, or loads the named, the finished or the best model."""
    folder, named = self._settings.output_dir, self._settings.init_checkpoint
    found = model_folder.own_checkpoint(folder, named)
    found = found or checkpoints.final_checkpoint(folder)
    if self._settings.do_train:
      self._train(model)
    elif self._is_trained and found:
      # A training that was extended may have left newer weights. But a release
      # that the training began with has no heads.
      shapes = checkpoints.Checkpoint(found).shapes
      heads = self._task.head_shapes(self._model_files.config)
      if all(shapes.get(name) == list(s) for name, s in heads.items()):
        model.use(found)

  def _check_best_is_wanted(self, model):
    """Raises UserError if the last weights would replace the best ones."""
    folder = self._settings.output_dir
    # One that stopped early has made fewer steps.
    release = os.path.join(folder, checkpoints.RELEASE_NAME)
    is_done = model.global_step >= self._num_train_steps
    is_done |= checkpoints.exists(release)
    if is_done and not self._best and checkpoints.best_checkpoint(folder):
      raise UserError(
        f"--output_dir={folder} holds the best weights of a finished training; "
        f"omit --do_train to use them, or pass the same --keep_best or "
        f"--early_stopping_patience"
      )

  def _log_trained_parameters(self):
    sizes = {name: math.prod(shape) for name, shape in self._shapes.items()}
    rates = self._settings.layer_rates(self._model_files.config.num_blocks)
    unread = self._task.optional_variables()
    trained = [n for k, n in sizes.items() if rates(k) and k not in unread]
    counts = (f"{sum(found):,}" for found in (trained, sizes.values()))
    logging.info("Training %s of %s parameters", *counts)

  def _train(self, model):
    """Trains, and turns `output_dir` into a model folder."""
    settings, best = self._settings, self._best
    steps, size = self._num_train_steps, settings.train_batch_size
    self._check_best_is_wanted(model)
    # First: without it a checkpoint cannot be used.
    task_file.write(settings.output_dir, self._task)
    evaluate_at, eval_steps = None, settings.eval_steps
    if settings.evaluates_in_training:
      evaluate_at = functools.partial(self._evaluate_at, model)
      epochs = settings.num_train_epochs or 1
      eval_steps = eval_steps or math.ceil(steps / epochs)
    (rows,) = self._row_sets["train"]
    logging.info(
      "Training for %s of %s, %.3g epochs of %s",
      plural(steps, "step"),
      plural(size, "row"),
      steps * size / rows.num_rows,
      plural(rows.num_rows, "row"),
    )
    if settings.freeze_layers is not None:
      self._log_trained_parameters()
    input_fn = self._train_input_fn()
    forget = functools.partial(self._before_updates, model)
    model.train(input_fn, size, steps, evaluate_at, eval_steps, forget)
    if best and best.checkpoint:
      model.use(best.checkpoint)
    if not (settings.do_eval or settings.evaluates_in_training):
      # Nothing else would show that the last update made the weights useless.
      runner.check_finite(
        model.outputs_of_a_row(input_fn),
        f"the model of step {model.global_step}",
        "its training diverged: lower --learning_rate, and pass another folder",
      )
    weights = {**model.weights, "global_step": np.int64(model.global_step)}
    checkpoints.write_release(
      settings.output_dir, weights, self._model_files.contents
    )
    logging.info("The trained model is in %s", settings.output_dir)

  def _before_updates(self, model):
    """Notes changed flags, and deletes what describes other weights."""
    folder = self._settings.output_dir
    self._record.note_changes(folder, self._kept_record, model.global_step)
    self._task.before_updates(folder)
    model.retrace()  # An evaluation of the last step used earlier settings.
    obsolete = [summaries.FAILED_BATCH]
    if not self._best or not model.global_step:  # Of another training.
      obsolete.append(checkpoints.HISTORY_NAME)
    for name in obsolete:
      if files.exists(path := os.path.join(folder, name)):
        files.remove(path)
    if not model.global_step:
      summaries.delete_curves(folder)

  def _train_input_fn(self):
    (rows,) = self._row_sets["train"]
    pads = self._settings.pad_to_max_length
    changes = {}
    if pads is None and self._task.pads_training:
      changes["pad_to_max_length"] = True
    if self._task.spans_batch:  # Rows of all lengths are compared.
      changes["by_length"] = False
    return _with(rows.input_fn, **changes)

  # Evaluation and prediction.

  def _evaluate_at(self, model, step):
    """Evaluates after `step` updates; returns a reason to stop, or None."""
    if self._best:
      if self._best.has_evaluated(step):
        return self._best.stop_reason
      # The trained model may change, even if no update is left to make.
      self._task.before_updates(self._settings.output_dir)
    first = None
    for rows in self._row_sets["dev"]:
      results = self._evaluate(model, rows).results
      first = first or results
      step = results.pop("global_step")
      model.summaries.write(
        step, {f"dev/{n}{rows.suffix}": v for n, v in results.items()}
      )
      shown = sorted(results.keys() - {"loss"})
      if metrics := self._task.metrics:
        known = (*metrics, "loss")
        shown = [name for name in shown if name.removeprefix("eval_") in known]
      logging.info(
        "step %d, %s: %s",
        step,
        rows.name,
        ", ".join(f"{name} {results[name]:.4f}" for name in shown),
      )
    model.summaries.flush()
    return self._best and self._best.add(step, first, model.weights)

  def _evaluate(self, model, rows):
    losses = []
    mode, size = estimator.ModeKeys.EVAL, self._settings.eval_batch_size
    if not self._task.has_eval_loss:  # The program of the prediction will do.
      mode = estimator.ModeKeys.PREDICT
    predictions = self._predictions(model, rows, size, mode)
    answers = self._answers(rows, _collect_losses(predictions, losses))
    evaluation = self._task.score(rows, answers)
    if losses and "eval_loss" not in evaluation.results:
      mean = float(np.mean(losses, dtype=np.float64))
      evaluation.results["loss"] = mean
    evaluation.results["global_step"] = model.global_step
    if not evaluation.counts and rows.examples:
      evaluation.counts = {"examples": len(rows.examples)}
    return evaluation

  def _write_results(self, model, rows, evaluation):
    """Writes metrics, and what eight bits cost, if they are used."""
    encoder, settings = self._encoder, self._settings
    stem = os.path.join(settings.output_dir, f"eval_results{rows.suffix}")
    run_record.write_results(stem, evaluation.results, evaluation.details)
    if encoder is None or settings.precision != runtimes.INT8:
      return

    def compute_full():
      encoder.precision = "float32"
      found = self._evaluate(model, rows).results
      encoder.precision = runtimes.INT8
      return found

    path = precision_loss.path_of(encoder.model, settings.runtime, rows.suffix)
    small = {n: v for n, v in evaluation.results.items() if n != "global_step"}
    precision_loss.write(path, small, compute_full)

  def _calibrate(self, model):
    rows, size = self._row_sets["dev"][0], self._settings.eval_batch_size
    predictions = self._predictions(model, rows, size)
    self._task.calibrate(self._answers(rows, predictions))
    task_file.write(self._settings.output_dir, self._task)
    model.retrace()

  def _predict(self, model, rows, record):
    """Writes the predictions; returns their metrics, if labels are known."""
    size, folder = self._settings.predict_batch_size, self._settings.output_dir
    predictions = self._predictions(model, rows, size)
    answers = self._answers(rows, predictions)
    evaluation = self._task.write(folder, rows, answers)
    if evaluation:
      evaluation.results["global_step"] = model.global_step
      self._write_results(model, rows, evaluation)
      self._report([evaluation], record)
    return evaluation.results if evaluation else {}

  def _predictions(self, model, rows, size, mode=estimator.ModeKeys.PREDICT):
    return model.predict_rows(
      inputs.EachRow(rows.read(), rows.num_rows, rows.transform),
      size,
      mode,
      self._task.output_axes(),
      # The loss of pre-training is a mean over batches, as in the original.
      in_order=rows.examples is None,
    )

  def _answers(self, rows, predictions):
    """Yields the answer to each example from the predictions of its rows."""
    is_known = rows.examples is not None
    examples = rows.examples if is_known else itertools.repeat(None)
    counts = rows.rows_per_example
    groups = ([row] for row in predictions)
    if counts is not None:
      groups = groups_of(predictions, counts)
    pairs = zip(examples, groups, strict=is_known)
    return itertools.starmap(self._task.answer, pairs)

  def _report(self, evaluations, record):
    folder, task = self._settings.output_dir, self._task
    if not task.kind:
      return
    if not self._settings.do_train:  # It may calibrate a trained model.
      flags, given = self._record.content["flags"], self._settings.flags.given
      given = {name: flags[name] for name in given}
      record = {**record, "flags": {**record["flags"], **given}}
    verdicts = {}
    for evaluation in evaluations:
      sample = evaluation.sample and evaluation.sample()
      if sample:
        verdicts[evaluation.name] = verdict.judge(sample)
    training_page.write(
      folder,
      task.name,
      evaluations,
      task.section,
      summaries.read_scalars(folder),
      record,
      task.style,
      verdicts=verdicts,
      warnings=self._data_warnings,
    )
    task.finish(folder, evaluations)
    for name, judged in verdicts.items():
      logging.info("%s: %s", name, judged)
      for line in judged.advice:
        logging.info("%s", line)

  # Planning.

  def _make_plan(self) -> plan.Plan:
    """What the training would take, with some steps of it; leaves no file."""
    with tempfile.TemporaryDirectory() as folder:
      self._settings = self._settings.changed(output_dir=folder)
      self._make_row_sets()
      (rows,) = self._row_sets["train"]
      return self._measure(rows)

  def _measure(self, rows):
    settings = self._settings
    process, available = memory.used_bytes(), memory.available_bytes()
    model = self._build_estimator()
    pads = _with(rows.input_fn, pad_to_max_length=True)
    batch = next(iter(pads({"batch_size": 8 * settings.num_replicas})))
    found = plan.Plan(
      num_steps=self._num_train_steps,
      batch_size=settings.train_batch_size,
      num_devices=settings.num_replicas,
      micro_batches=settings.gradient_accumulation_steps,
      length=batch["input_ids"].shape[-1],
      num_parameters=sum(map(math.prod, self._shapes.values())),
      peaks=plan.peaks_of_rows(
        self._make_model_fn,
        settings.run_config(),
        {name: value.numpy() for name, value in batch.items()},
        settings.train_batch_size
        // settings.num_replicas
        // settings.gradient_accumulation_steps,
      ),
      limit=None if available is None else process + available,
    )
    # All hosts make a step, or none.
    if not all(devices.exchange(settings.strategy, found.fits())):
      if found.fits():
        logging.warning("Another host lacks memory, so no step is measured")
      return found
    # The peak is that of a batch whose longest row has the full length.
    memory.reset_peak()
    earlier = memory.peak_bytes()
    size, input_fn = settings.train_batch_size, self._train_input_fn()
    model.time_steps(_with(input_fn, pad_to_max_length=True), size, 0)
    peak = memory.peak_bytes()
    seconds = model.time_steps(input_fn, size, 20)
    # That of an earlier task cannot be reset.
    peak = peak if peak > earlier else None
    return dataclasses.replace(found, seconds=tuple(seconds), peak=peak)


def _with(input_fn, **changes):
  """An `input_fn` whose params are changed."""
  return lambda params: input_fn({**params, **changes})


def _collect_losses(rows, losses):
  """Yields the rows, and appends the loss that each has to a list."""
  for row in rows:
    if "batch_loss" in row:
      losses.append(row.pop("batch_loss"))
    yield row
