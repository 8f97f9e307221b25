"""The script of a task whose examples are in a file for each split."""

import collections
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from absl import logging

from bert import metrics
from bert.contract.task import Task
from bert.data import files, folder_lock, text_files
from bert.flags import flag_table
from bert.flags.flag_table import wanted_splits
from bert.flags.values import PATH, Flag, Flags, Table, table
from bert.models import model_folder, run_record, task_file
from bert.models.resolve import Model
from bert.scripts import startup
from bert.scripts.experiment import Experiment
from bert.scripts.run_one import run_one
from bert.scripts.settings import (
  RunSettings,
  check_fine_tuning,
  check_questions,
  engine_options,
  load_model,
)

# fmt: off
_FLAGS = (
  Flag("train_file", None, "Examples to train on.", used="train", kind=PATH),
  Flag("dev_file", None, "Examples to evaluate on.", used="dev", kind=PATH),
  Flag("test_file", None, "Examples to predict.", used="test", kind=PATH),
  Flag("interactive", False, "Ask for inputs and answer them.",
       affects_weights=False),
)
# fmt: on


def flags_of(task: type[Task], rows: Iterable[Flag] = ()) -> Table:
  """The flags of a task: those of every training, its settings, and `rows`."""
  metric = task.metrics[0] if task.metrics else "loss"
  shared = table(flag_table.fine_tuning(f"{metric} or loss", metric), _FLAGS)
  settings = [
    shared[field.name].but(default=field.default)
    if field.name in shared
    else Flag(
      field.name, field.default, "Setting of the task.", fixed_by="task"
    )
    for field in task.Settings.flag_fields()
  ]
  return table(shared.values(), settings, rows)


def with_initial_defaults(flags: Flags, task: type[Task], *names: str) -> Flags:
  """Flags with the defaults of an initial model.

  --max_seq_length defaults to the length of a model of the same task, or else
  of the teacher, and --encoding to that of the model's tables. `names` are
  further settings to take with the length.
  """
  if not flags.do_train:
    return flags
  initial, encoding = model_folder.folder_of(flags.init_checkpoint), None
  if initial and "encoding" in flags and "encoding" not in flags.given:
    encoding = run_record.recorded_flags(initial).get("encoding")
  if encoding not in (None, flags.get("encoding")):
    flags = Flags(flags.rows, {"encoding": encoding, **flags.given})
    text = "--encoding=%s by default, as in the training of %s"
    logging.info(text, encoding, flags.init_checkpoint)
  if "max_seq_length" in flags.given:
    return flags
  for path in filter(None, (flags.init_checkpoint, flags.teacher)):
    folder = model_folder.folder_of(path)
    kind, fields = task_file.read(folder)
    if kind == task.kind and "max_seq_length" in fields:
      trained = task_file.load(task, folder)
      defaults = {n: getattr(trained, n) for n in ("max_seq_length", *names)}
      shown = " ".join(f"--{name}={value}" for name, value in defaults.items())
      logging.info("%s by default, as in the training of %s", shown, path)
      return Flags(flags.rows, {**defaults, **flags.given})
  return flags


def experiment(
  flags: Flags,
  task: Task,
  model: Model,
  splits: Iterable[str] | None = None,
  **changes,
) -> Experiment:
  """The Experiment of a task; `changes` override values of flags."""
  model.check_length(task.settings.max_seq_length)
  splits = wanted_splits(flags) if splits is None else splits
  changes = {**model.flags(), **changes}
  settings = RunSettings(
    flags, splits, init_checkpoint=model.init_checkpoint, **changes
  )
  return Experiment(task, model, settings)


class Planned(NamedTuple):
  """One of several runs of a command."""

  name: str  # of the task
  seed: int
  make: Callable[[], Experiment]
  trains: bool = True  # False: uses the model of another run


def run_each(flags: Flags, planned: Sequence[Planned]) -> list[dict]:
  """The results of several experiments, whose folders are in --output_dir."""
  if flags.dry_run:
    for run in planned[: len(planned) // flags.num_seeds]:  # One seed suffices.
      if run.trains:
        run_one(run.make())
    if flags.num_seeds > 1:
      print(f"Each of the {flags.num_seeds} seeds takes that time.")
    return []
  files.makedirs(flags.output_dir)
  with folder_lock.lock_folder(flags.output_dir):
    results = [run_one(run.make()) for run in planned]
    if any(results):
      print(_write_summary(flags.output_dir, planned, results))
  return [
    {"task": run.name, "seed": run.seed, **run_results}
    for run, run_results in zip(planned, results, strict=True)
  ]


def _write_summary(folder, planned, results):
  """Writes results.tsv, each task's metrics over its seeds; returns a table."""
  by_task = collections.defaultdict(dict)
  for run, metrics_of_run in zip(planned, results, strict=True):
    by_task[run.name][run.seed] = metrics_of_run
  rows = metrics.summarize(by_task)
  files.write_file(
    os.path.join(folder, "results.tsv"),
    "".join("\t".join(row) + "\n" for row in rows),
  )
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return "\n".join(
    "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
  )


def run_seeds(
  flags: Flags, plan: Callable[[Flags], Experiment]
) -> dict[str, float] | list[dict]:
  """Plans and runs an experiment for each of --num_seeds seeds."""
  if flags.num_seeds == 1:
    return run_one(plan(flags))
  refuse_pipes(flags)
  planned = []
  for seed in range(flags.seed, flags.seed + flags.num_seeds):
    folder = os.path.join(flags.output_dir, f"seed-{seed}")
    make = functools.partial(plan, flags.changed(seed=seed, output_dir=folder))
    name = make().name  # Validate all runs before training any.
    planned.append(Planned(name, seed, make))
  return run_each(flags, planned)


def refuse_pipes(flags: Flags) -> None:
  """Raises UserError if a file that each run reads is a pipe."""
  for row in flags.rows.values():
    if row.kind is PATH:
      flags.refuse_pipes(row.name, filter(None, [flags[row.name]]))


def ask(
  flags: Flags, kind: str, answer_lines: Callable[..., object] | None = None
) -> None:
  """Answers what the user types, or the lines of --predict_file.

  `answer_lines` is called with the model, a reader, and the reader's name.
  """
  from bert.engine import loaded_model
  from bert.scripts import terminal

  names = ("predict_file", "interactive") if answer_lines else ("interactive",)
  check_questions(flags, *names)
  model = loaded_model.load_trained(
    flags.output_dir, kind, **engine_options(flags)
  )
  flags.warn_of_trained("model", "task")
  if flags.interactive:
    terminal.converse(model)
    return
  with text_files.open_input(flags.predict_file) as (reader, name):
    answer_lines(model, reader, name)


def plan(flags: Flags, task: type[Task]) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  model = load_model(flags)
  return experiment(flags, task.from_flags(flags, model), model)


def main(flags: Flags, task: type[Task]) -> dict[str, float] | list[dict]:
  if flags.interactive:
    ask(flags, task.kind)
    return {}
  check_fine_tuning(flags, ["interactive"])
  for split in wanted_splits(flags):
    flags.require(f"{split}_file")
    flags.require_file(f"{split}_file")
  flags = with_initial_defaults(flags, task)
  return run_seeds(flags, lambda flags: plan(flags, task))


def make(
  task: type[Task], rows: Iterable[Flag] = (), module: str | None = None
) -> tuple[Callable[..., dict], Callable[[], None]]:
  """The script of a task; see `startup.script`.

  `rows` are flags that replace or extend those of every task. --help shows the
  docstring of `module`, by default the task's.
  """

  def run_main(flags):
    return main(flags, task)

  run_main.__module__ = module or task.__module__
  return startup.script(run_main, flags_of(task, rows))
