"""An experiment: a task, its model and its settings, read and checked.

A script's `plan` makes an Experiment from the flags, and `run_one` runs it.
"""

from __future__ import annotations

import functools

from absl import logging

import modeling
from bert.contract.distillation import Distillation
from bert.contract.task import Task
from bert.data import files, folder_lock
from bert.engine import devices
from bert.errors import UserError, plural
from bert.models import (
  checkpoints,
  model_folder,
  run_record,
  run_weights,
  warm_start,
)
from bert.models.resolve import Model
from bert.scripts import comparison
from bert.scripts.settings import RunSettings, no_trained_model
from bert.training import best_checkpoint, start_checks


class Experiment:
  """The training, evaluation or use of one model in one folder.

  The constructor reads and checks all inputs. It writes no files.

  Attributes:
    task, settings: as given.
    config: the BertConfig of the model.
    contents: the model's files beside the weights, by name.
    examples: dict from split to a dict from suffix to examples.
    row_sets: dict from split to its existing rows, or None.
    teacher: the Teacher of a training, or None.
    is_trained: whether the folder has a checkpoint of this model.
    best: the BestCheckpoint of a training that keeps one, or None.
    kept_rows: see `warm_start.kept_rows`.
    compared_with: the model to compare with in the evaluation, or None.
  """

  def __init__(self, task: Task, model: Model, settings: RunSettings):
    self.task = task
    self.config, self.contents = model.config, model.contents()
    self.settings = settings
    if settings.calibrate and "dev" in settings.splits and not task.labels:
      raise UserError(f"--calibrate: {task.name} has no labels; omit it")
    if settings.init_checkpoint is not None:
      checkpoints.find_checkpoint(settings.init_checkpoint)
    if settings.do_train:
      settings.layer_rates(model.config.num_blocks)
    if files.isdir(settings.output_dir):
      with folder_lock.lock_folder(settings.output_dir):
        pass  # Fail before reading the data if another process uses it.
    self.row_sets = {split: task.row_sets(split) for split in settings.splits}
    self.examples = {
      split: task.examples(split)
      for split, row_sets in self.row_sets.items()
      if row_sets is None
    }
    self.compared_with = None
    if settings.do_eval and "dev" in self.examples:
      self.compared_with = comparison.find_other(task, settings)
    self.read_output_dir()  # The size of the head may depend on them.
    self.teacher = self._load_teacher()
    for examples in self.examples.get("train", {}).values():
      self._check_training_set(examples)
    # These checks take longer, because TensorFlow loads.
    self._check_init_checkpoint()
    self.kept_rows = {}
    settings.check_batch_sizes()
    if settings.do_train and self.is_trained:
      self.record.check(settings.output_dir)
    elif settings.do_train:
      self.kept_rows = warm_start.kept_rows(
        task, model.config, settings.init_checkpoint
      )

  @property
  def name(self) -> str:
    """The name of its task."""
    return self.task.name

  def _load_teacher(self):
    settings, task = self.settings, self.task
    if not (settings.teacher and "train" in self.examples):
      return None
    from bert.training import teacher

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
    settings, task = self.settings, self.task
    has_heads = start_checks.check_init_checkpoint(
      self.config,
      task.head_shapes(self.config),
      settings.init_checkpoint,
      is_used=not self.is_trained,
    )
    if not (settings.do_train or has_heads or self.is_trained):
      raise no_trained_model(settings.output_dir, settings.init_checkpoint)
    folder = run_weights.weights_folder(
      settings.output_dir, settings.init_checkpoint
    )
    if self.is_trained and not settings.do_train:
      is_stopped = not model_folder.is_finished(folder)
      if is_stopped:
        self.record.check_vocabulary(folder)

  @functools.cached_property
  def record(self) -> run_record.RunRecord:
    """The content of flags.json."""
    settings, task = self.settings, self.task
    # do_train is False for a test set that another task's model predicts.
    flags = settings.flags
    fixed = {  # The data may have replaced some of the values that were given.
      name: value
      for name, value in vars(task.settings).items()
      if name in flags and flags.rows[name].fixed_by == "task"
    }
    used = flags.changed(
      **fixed,
      task_name=task.name,
      do_train=settings.do_train,
      threads=settings.threads or devices.num_threads(),
    )
    hashes = dict(task.data_hashes())
    if self.teacher:
      hashes["teacher"] = self.teacher.hash
      if path := settings.unlabeled_file:  # Its rows are trained on, too.
        hashes["unlabeled_file"] = files.hash_of(path)
    counts = {
      split + suffix: len(examples)
      for split, sets in self.examples.items()
      for suffix, examples in sets.items()
    }
    for split, row_sets in self.row_sets.items():
      if row_sets:
        counts[split] = sum(rows.num_rows for rows in row_sets)
    return run_record.RunRecord(used, hashes, counts)

  @property
  def shapes(self) -> dict[str, list[int]]:
    """Name and shape of the variables of the model."""
    heads = self.task.head_shapes(self.config)
    return modeling.variable_shapes(self.config) | heads

  def read_output_dir(self) -> None:
    """Checks what an earlier run left in the folder."""
    settings = self.settings
    self.is_trained = start_checks.check_output_dir(
      self.shapes, settings.output_dir, settings.do_train
    )
    self.best = self._make_best_checkpoint()

  def _make_best_checkpoint(self):
    settings, task = self.settings, self.task
    metric = (settings.keep_best or "").removeprefix("eval_")
    metric_names = [*task.metrics, *(["loss"] if task.has_eval_loss else [])]
    if settings.keep_best and metric not in metric_names:
      raise UserError(
        f"--keep_best={settings.keep_best} is not a metric of {task.name}; "
        f"pass one of {', '.join(metric_names)}"
      )
    keeps = metric or settings.early_stopping_patience
    if not (keeps and settings.do_train):
      return None
    return best_checkpoint.BestCheckpoint(
      settings.output_dir,
      metric or task.metrics[0],
      settings.early_stopping_patience,
    )

  def _check_training_set(self, examples):
    count = len(examples) + len(self.unlabeled)
    if self.task.epoch_counts_rows and not self.settings.num_steps(count):
      # Convert the examples only if needed: each may have several rows.
      sets = (examples, True), (self.unlabeled, False)
      count = sum(len(rows) for s in sets for rows in self.task.features(*s))
    self.settings.check_num_steps(count, self.task.epoch_counts_rows)

  @property
  def unlabeled(self):
    """Examples without labels that the training uses, too."""
    return self.teacher.unlabeled if self.teacher else ()
