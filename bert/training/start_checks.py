"""Checks of the checkpoint and the folder of a training, before it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from absl import logging

import modeling
from bert.engine import runner
from bert.errors import UserError
from bert.flags.values import check_output_folder
from bert.layers import POOLER
from bert.models import checkpoints, task_file

# The variables of the heads for pre-training, which released models have.
_HEADS = ("cls/predictions/", "cls/seq_relationship/")


def check_init_checkpoint(
  config: modeling.BertConfig,
  head_shapes: Mapping[str, list[int]],
  init_checkpoint: str | None,
  is_used: bool = True,
) -> bool:
  """Whether a checkpoint, which must fit the model, has its `head_shapes`.

  A run that has weights of its own already does not use it.
  """
  if init_checkpoint is None:
    return False
  wanted = {**modeling.variable_shapes(config), **head_shapes}
  optional = {*head_shapes, *POOLER}
  weights = checkpoints.load_weights(init_checkpoint, wanted, optional)
  skipped = weights.skipped
  if is_used and not skipped.isdisjoint(POOLER):
    logging.warning(
      "%s has no pooler; it is initialized randomly", weights.prefix
    )
  missing = [n for n in head_shapes if n in skipped and n.startswith(_HEADS)]
  if is_used and missing:
    logging.warning(
      "%s has no %s for pre-training; they are initialized randomly",
      weights.prefix,
      " and ".join(missing),
    )
  # Reading finds damage, and training would take such numbers for divergence.
  # Sorted, as in the file: so a remote one is fastest to read.
  for name in sorted(filter(weights.__contains__, wanted)):
    found = {name: weights[name]}
    runner.check_finite(found, f"checkpoint {weights.prefix}")
  return skipped.isdisjoint(head_shapes)


def check_output_dir(
  shapes: Mapping[str, list[int]], output_dir: str, do_train: bool
) -> bool:
  """Whether an output folder has a checkpoint, which must have these shapes."""
  check_output_folder(output_dir)
  release = os.path.join(output_dir, checkpoints.RELEASE_NAME)
  newest, problem = checkpoints.latest_valid(output_dir), None
  if newest:
    if difference := _difference(shapes, newest.shapes):
      kind, _ = task_file.read(output_dir)
      of_kind = f"{kind}: " if kind else ""
      problem = f"holds another model ({of_kind}{difference})"
  elif do_train and checkpoints.exists(release):
    problem = f"holds a model, {release}, which training would overwrite"
  if problem:
    raise UserError(f"--output_dir={output_dir} {problem}; pass another folder")
  return newest is not None


def _difference(wanted, shapes):
  """The first variable whose shape is not the wanted one, in words, or None."""
  for name, shape in wanted.items():
    found = shapes.get(name)
    if found is None:
      return f"{name} is missing"
    if found != list(shape):
      return f"{name} has shape {found} there, and {list(shape)} in this model"
  return None
