"""Which models a command trains or uses: one for each task and seed."""

import collections
import dataclasses
import os
from collections.abc import Mapping, Sequence

from pipeline import files
from tasks import glue
from training import checkpoints, metrics, model_folder


@dataclasses.dataclass(frozen=True)
class Run:
  """One training or use of one model.

  Attributes:
    task: key of its processor.
    data_dir: folder of its files.
    output_dir: folder of its results.
    submission_dir: folder of what goes to GLUE's leaderboard.
    seed: its seed.
    init_checkpoint: where weights start from, or None.
    sets: types of the sets that it needs, of "train", "dev" and "test".
  """

  task: str
  data_dir: str | None
  output_dir: str
  submission_dir: str
  seed: int
  init_checkpoint: str | None
  sets: tuple[str, ...]


def plan(
  tasks: Sequence[str],
  seeds: Sequence[int],
  sets: Sequence[str],
  data_dir: str | None,
  output_dir: str,
  init_checkpoint: str | None,
) -> list[Run]:
  """The runs of a command, in order.

  Several tasks have folders of their own in `data_dir` and `output_dir`, and
  several seeds in `output_dir`, around those of the tasks.

  Args:
    tasks: keys of processors.
    seeds: seeds.
    sets: types of the sets that the command needs.
    data_dir, output_dir, init_checkpoint: as for one task.
  """
  runs = []
  for seed in seeds:
    folder = output_dir
    if len(seeds) > 1:
      folder = os.path.join(output_dir, f"seed-{seed}")
    for task in tasks:
      run = Run(
        task,
        data_dir,
        folder,
        os.path.join(folder, "glue_submission"),
        seed,
        init_checkpoint,
        tuple(sets),
      )
      runs.append(_among(tasks, run))
  return [run for run in runs if run.sets]


def _among(tasks, run):
  """A Run in the folders that it has beside those of other tasks.

  One that does not train starts from the model in its folder, if it is given
  no other.
  """
  changes = {}
  if len(tasks) > 1:
    own = folder_of(run.task)
    changes["output_dir"] = os.path.join(run.output_dir, own)
    changes["data_dir"] = os.path.join(run.data_dir, own)
    if run.task in glue.TASKS:
      task = glue.TASKS[run.task]
      changes["data_dir"] = glue.task_folder(run.data_dir, task)
  model = _model_of(run.task)
  if model in tasks:
    # The release, which is the best checkpoint, where one was to be kept.
    changes["init_checkpoint"] = os.path.join(
      run.output_dir, folder_of(model), checkpoints.RELEASE_NAME
    )
    changes["sets"] = tuple(name for name in run.sets if name == "test")
  run = dataclasses.replace(run, **changes)
  if "train" in run.sets:
    return run
  weights = model_folder.initial_weights(run.output_dir, run.init_checkpoint)
  return dataclasses.replace(run, init_checkpoint=weights)


def folder_of(task: str) -> str:
  """The name of a task's folder: as GLUE writes it, or else its key."""
  return glue.TASKS[task].name if task in glue.TASKS else task


def _model_of(task):
  """The task whose model predicts this one, or None for its own."""
  name = task in glue.TASKS and glue.TASKS[task].model_of
  return glue.find_task(name) if name else None


def write_results(
  output_dir: str, runs: Sequence[Run], results: Sequence[Mapping[str, float]]
) -> str:
  """Writes `results.tsv`, each task's metrics over its seeds.

  Args:
    output_dir: where to.
    runs: Runs.
    results: metrics of each.

  Returns:
    The same table for people.
  """
  found = collections.defaultdict(dict)
  for run, metrics_of_run in zip(runs, results, strict=True):
    found[folder_of(run.task)][run.seed] = metrics_of_run
  rows = metrics.summarize(found)
  files.write_file(
    os.path.join(output_dir, "results.tsv"),
    "".join("\t".join(row) + "\n" for row in rows),
  )
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return "\n".join(
    "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
  )
