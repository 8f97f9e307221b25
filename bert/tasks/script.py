"""The script of a task whose examples are in a file for each split."""

from __future__ import annotations

import dataclasses

from absl import flags

from bert.tasks import loaded_model, terminal
from bert.training import (
  common_flags,
  flag_checks,
  model_flags,
  startup,
  task_file,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import Settings, find_weights
from bert.training.task import Task

FLAGS = flags.FLAGS

# Flag, default, help.
_FLAGS = (
  ("train_file", None, "Examples to train on."),
  ("dev_file", None, "Examples to evaluate on."),
  ("test_file", None, "Examples to predict."),
  ("interactive", False, "Ask for inputs and answer them."),
)


def define_flags(task: type[Task]) -> None:
  """Defines the flags: those of every training, and the task's settings."""
  common_flags.define_model_flags(task.Settings.max_seq_length)
  common_flags.define_run_flags()
  metric = task.metrics[0] if task.metrics else "loss"
  common_flags.define_fine_tuning_flags(f"{metric} or loss", metric)
  common_flags.define_device_flags()
  settings = (
    (name, default, "Setting of the task.")
    for name, default in _settings_flags(task).items()
    if name not in FLAGS
  )
  common_flags.define_from_table((*_FLAGS, *settings))


def _settings_flags(task):
  """The settings that are flags, and their defaults: all single values."""
  return {
    field.name: field.default
    for field in dataclasses.fields(task.Settings)
    if isinstance(field.default, (bool, int, float, str))
  }


def make_experiment(task: type[Task]) -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint, folder = find_weights()
  trained = task.Settings()
  if not FLAGS.do_train:
    trained = task_file.load(task, folder)
  given = {
    name: FLAGS[name].value
    for name in _settings_flags(task)
    if not FLAGS[name].using_default_value
  }
  settings = dataclasses.replace(trained, **given)
  tokenizer = model_flags.load_tokenizer()
  config = model_flags.load_config(tokenizer, settings.max_seq_length)
  splits = flag_checks.wanted_splits()
  paths = {split: FLAGS[f"{split}_file"].value for split in splits}
  return Experiment(
    task(settings, tokenizer, paths),
    ModelFiles(config, model_flags.release_files(config)),
    Settings.from_flags(
      splits,
      init_checkpoint=init_checkpoint,
      max_seq_length=settings.max_seq_length,
    ),
  )


def main(task: type[Task]) -> None:
  if FLAGS.interactive:
    flag_checks.check_question_flags("interactive")
    model = loaded_model.load_trained(
      FLAGS.output_dir,
      task.kind,
      batch_size=FLAGS.predict_batch_size,
      precision=FLAGS.precision,
    )
    flag_checks.warn_of_unused_model("max_seq_length")
    terminal.converse(model)
    return
  flag_checks.check_fine_tuning_flags("interactive")
  for split in flag_checks.wanted_splits():
    flag_checks.require(f"{split}_file")
    flag_checks.require_file(f"{split}_file")
  make_experiment(task).run()


def command(task: type[Task]) -> None:
  """Runs the script of a task with the flags of the command line."""

  def run_main():
    main(task)

  run_main.__module__ = task.__module__  # Its docstring is shown by --help.
  startup.run(run_main, lambda: define_flags(task))
