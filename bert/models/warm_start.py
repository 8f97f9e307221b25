"""Which outputs of an initial model a training keeps: those of equal labels."""

from __future__ import annotations

from absl import logging

import modeling
from bert.contract.task import Task
from bert.errors import listing
from bert.models import checkpoints, model_folder, task_file

# For each variable of an output layer, where its rows are in the checkpoint;
# None for a row that starts from its initializer.
KeptRows = dict[str, list[int | None]]


def kept_rows(
  task: Task, config: modeling.BertConfig, init_checkpoint: str | None
) -> KeptRows:
  """The rows of output layers that a training of `task` keeps; logs them.

  A variable that is not among them is kept as a whole.
  """
  folder = model_folder.folder_of(init_checkpoint)
  shapes = task.head_shapes(config)
  if not (folder and shapes and task.kind):
    return {}
  fresh = {name: [None] * shape[0] for name, shape in shapes.items()}
  if task.fits_head:
    return fresh
  kind, _ = task_file.read(folder)
  if kind is None:
    _warn_of_unknown_labels(task, config, init_checkpoint)
    return {}
  if kind != task.kind:
    logging.info(
      "%s holds a model of another task (%s), so the output layer starts fresh",
      folder,
      kind,
    )
    return fresh
  initial = type(task)(task_file.load(type(task), folder))
  if initial.fits_head:  # It reads other vectors.
    return fresh
  known, wanted = initial.output_labels(), task.output_labels()
  for pair in dict.fromkeys((known.get(n, ()), wanted[n]) for n in wanted):
    _log_labels(folder, *pair)
  rows = {n: {label: i for i, label in enumerate(k)} for n, k in known.items()}
  return {
    name: [rows.get(name, {}).get(label) for label in labels]
    for name, labels in wanted.items()
  }


def _log_labels(folder, earlier, labels):
  kept = [label for label in labels if label in earlier]
  new = [label for label in labels if label not in earlier]
  if not kept:
    found = f"starts fresh, as {folder} has other labels"
  elif new:
    found = (
      f"keeps the outputs of {folder} for {listing(kept)} and starts fresh for "
      f"{listing(new)}"
    )
  else:
    found = f"keeps the outputs of {folder} for all labels"
  logging.info("The output layer %s", found)
  known = {label.casefold() for label in earlier}
  if alike := [label for label in new if label.casefold() in known]:
    text = (
      "labels that differ only in case from those of %s: %s; write them alike"
    )
    logging.warning(text, folder, listing(alike))


def _warn_of_unknown_labels(task, config, init_checkpoint):
  """Warns if an output layer is used whose labels are not known."""
  found = checkpoints.Checkpoint(checkpoints.find_checkpoint(init_checkpoint))
  shapes = task.head_shapes(config)
  names = [
    name
    for name in task.output_labels().keys() & shapes.keys()
    if found.shapes.get(name) == shapes[name]
  ]
  if names:
    logging.warning(
      "%s has %s, but no task.json with its labels; it is used as if they were "
      "%s",
      found.prefix,
      names[0],
      listing(task.output_labels()[names[0]]),
    )
