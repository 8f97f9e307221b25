"""The models that a command of run_classifier.py trains or uses, one for each
task and seed.
"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

import tokenization
from bert.errors import UserError
from bert.flags.values import Flags
from bert.models import (
  checkpoints,
  model_folder,
  run_record,
  run_weights,
  task_file,
)
from bert.flags.flag_table import wanted_splits
from bert.tasks.classification import (
  few_shot,
  glue,
  label_types,
  tabular,
  task as classification,
)
from bert.tasks.classification.examples import DataProcessor
from bert.tasks.classification.seen_rows import NO_ROWS, SeenRows
from bert.tasks.classification.task import ClassifierSettings

# The name of the task for the user's own tables.
CUSTOM = "custom"


# Flags that default to their values in training if a trained model is used.
RECALLED = (
  *("task_name", "text_a_column", "text_b_column", "label_column"),
  *("id_column", "header", "delimiter", "encoding"),
)


@dataclasses.dataclass(frozen=True)
class Run:
  """The training or use of one model. The flags describe the rest."""

  task: str  # key of its processor
  name: str  # of the task in GLUE's spelling, or else its key
  data_dir: str | None
  output_dir: str
  submission_dir: str  # of the files for GLUE's leaderboard
  seed: int
  init_checkpoint: str | None
  splits: tuple[str, ...]  # to read


def make_runs(flags: Flags) -> list[Run]:
  """The runs of a command, in order, seed by seed.

  With several seeds, results are in `seed-N/` below `output_dir`; with several
  tasks, in one subfolder per task.
  """
  tasks = find_tasks(flags.task_name)
  # A task follows the task whose model predicts it.
  tasks.sort(key=lambda t: bool(t in glue.TASKS and glue.TASKS[t].model_of))
  runs = []
  for seed in range(flags.seed, flags.seed + flags.num_seeds):
    folder = flags.output_dir
    if flags.num_seeds > 1:
      folder = os.path.join(folder, f"seed-{seed}")
    runs += [_make_run(flags, tasks, task, folder, seed) for task in tasks]
  return [run for run in runs if run.splits]


def find_tasks(names: Sequence[str]) -> list[str]:
  """The keys of the tasks that a user named, each once."""
  names = [
    task
    for name in names
    for task in (glue.GLUE_TASKS if name.lower() == "all" else [name])
  ]
  processors = {**glue.PROCESSORS, CUSTOM: tabular.TableProcessor}
  return list(dict.fromkeys(glue.find_key(name, processors) for name in names))


def _make_run(flags, tasks, task, folder, seed):
  """The Run of one of several tasks; `folder` has the results of all."""
  data_dir, output_dir = flags.data_dir, folder
  row = glue.TASKS.get(task)
  name = row.name if row else task
  if len(tasks) > 1:
    output_dir = os.path.join(folder, name)
    data_dir = (
      glue.task_folder(data_dir, row) if row else os.path.join(data_dir, name)
    )
  init_checkpoint = flags.init_checkpoint
  splits = tuple(wanted_splits(flags))
  if row and row.model_of and glue.find_key(row.model_of) in tasks:
    # The model of another task in this command predicts this task.
    own = os.path.join(folder, row.model_of, checkpoints.RELEASE_NAME)
    is_there = checkpoints.exists(own)
    if "train" in splits or is_there or not init_checkpoint:
      init_checkpoint = own
    splits = tuple(split for split in splits if split == "test")
  if "train" not in splits:
    init_checkpoint = run_weights.trained_weights(output_dir, init_checkpoint)
  return Run(
    task=task,
    name=name,
    data_dir=data_dir,
    output_dir=output_dir,
    submission_dir=os.path.join(folder, "glue_submission"),
    seed=seed,
    init_checkpoint=init_checkpoint,
    splits=splits,
  )


def check_examples(flags: Flags, run: Run) -> None:
  """Raises UserError if the data of a run are wrong."""
  processor = _make_processor(flags, run)
  for split in run.splits:
    processor.get_example_sets(run.data_dir, split)


def make_task(
  flags: Flags, run: Run, tokenizer: tokenization.FullTokenizer
) -> classification.ClassificationTask:
  """The task of a Run; a trained model determines how texts are read."""
  folder = run_weights.weights_folder(run.output_dir, run.init_checkpoint)
  trained = read_trained(folder)
  trains = "train" in run.splits
  used = None if trains else trained
  if folder and not trains and (kind := task_file.read(folder)[0]):
    task_file.check_kind(folder, kind, classification.ClassificationTask.kind)
  initial = used
  if trains:  # Earlier steps of this training do not count.
    initial = read_trained(model_folder.folder_of(run.init_checkpoint))
  seen = initial.seen() if initial else NO_ROWS
  processor = _make_processor(flags, run, used, seen)
  settings = (used or ClassifierSettings()).with_seen(seen)
  label_type = _make_label_type(processor, used and used.label_type())
  continues = bool(checkpoints.training_checkpoints(run.output_dir))
  if trained and (continues or not trains):
    _check_labels(flags, label_type, trained, folder)
    # Another update drops the temperatures.
    settings = dataclasses.replace(settings, temperatures=trained.temperatures)
  task = getattr(processor, "task", None)
  if trains and flags.few_shot:
    if not label_type.labels:
      raise UserError(f"--few_shot: {run.name} has no labels; omit it")
    pooling = few_shot.pooling_of(run.init_checkpoint)
    settings = dataclasses.replace(settings, pooling=pooling)
  names = getattr(task, "metrics", label_type.default_metrics)
  read = ("max_seq_length", "long_text")
  values = {n: flags[n] for n in read} if flags.do_train else {}
  settings = dataclasses.replace(
    settings.with_label_type(label_type), **values | flags.given_of(read)
  )
  return classification.ClassificationTask(
    settings,
    tokenizer,
    run.name,
    processor,
    data_dir=run.data_dir,
    metric_names=names,
    balances_labels=flags.class_weights == "balanced" and trains,
    submission_dir=run.submission_dir,
  )


def recall_flags(output_dir: str | None, init_checkpoint: str | None) -> dict:
  """The RECALLED flags in the flags.json of a trained classifier."""
  folder = output_dir
  if not (folder and model_folder.is_finished(folder)):
    folder = run_weights.weights_folder(folder, init_checkpoint)
  if not (folder and read_trained(folder)):
    return {}
  flags = run_record.recorded_flags(folder)
  recalled = {name: flags[name] for name in RECALLED if name in flags}
  if "task_name" in recalled:
    recalled["task_name"] = [recalled["task_name"]]
  return recalled


def read_trained(folder: str | None) -> ClassifierSettings | None:
  """The settings of the classifier in a folder; None without one."""
  kind, _ = task_file.read(folder) if folder else (None, {})
  if kind != "classification":
    return None
  return task_file.load(classification.ClassificationTask, folder)


def _make_processor(
  flags: Flags,
  run: Run,
  trained: ClassifierSettings | None = None,
  seen: SeenRows | None = NO_ROWS,
) -> DataProcessor:
  """The processor of a run's task; its model has seen the rows `seen`."""
  if run.task != CUSTOM:
    maker = glue.PROCESSORS[run.task]
    language = flags.xnli_language
    return maker(language) if maker is glue.XnliProcessor else maker()
  kind = "multilabel" if flags.multilabel else "classification"
  kind = "regression" if flags.regression else kind
  if trained:
    kind = trained.kind
  names = (field.name for field in dataclasses.fields(tabular.TableProcessor))
  table = {name: flags[name] for name in names if name in flags.values}
  return tabular.TableProcessor(
    **table | {"data_dir": run.data_dir},
    needs_ids=bool(flags.given_of(["id_column"])),
    kind=kind,
    split_seed=flags.seed,  # All seeds share one split.
    labels=trained.labels if trained else None,
    seen=seen,
  )


def _make_label_type(processor, trained):
  """The label type of a task; the numbers of tables are standardized."""
  kind = getattr(
    getattr(processor, "task", processor), "kind", "classification"
  )
  if kind != label_types.Regression.kind:
    labels = processor.get_labels()
    if fault := label_types.fault_of(labels):
      raise ValueError(f"get_labels of {type(processor).__name__}: {fault}")
    return label_types.KINDS[kind](labels)
  # The outputs of the model have their own scale, regardless of the task.
  if trained and trained.kind == kind:
    return trained
  if not isinstance(processor, tabular.TableProcessor):
    return label_types.Regression()
  numbers = [float(example.label) for example in processor.get_train_examples()]
  # Due to rounding, the deviation of equal numbers may not be 0, and that of
  # others may be 0.
  are_equal = len(set(numbers)) < 2
  deviation = 1.0 if are_equal else np.std(numbers).item() or 1.0
  return label_types.Regression(np.mean(numbers).item(), deviation)


def _check_labels(flags, label_type, trained, folder):
  """Raises UserError if the model in `folder` was trained on other labels."""
  trained_labels, task_labels = (
    f"the labels {', '.join(map(str, t.labels))} ({t.kind})"
    if t.labels
    else "numbers (regression)"
    for t in (trained, label_type)
  )
  if trained_labels != task_labels:
    raise UserError(
      f"{os.path.join(folder, task_file.NAME)} has "
      f"{trained_labels}, but --task_name={','.join(flags.task_name)} has "
      f"{task_labels}; pass the task that the model was trained on, or "
      f"another --output_dir"
    )
