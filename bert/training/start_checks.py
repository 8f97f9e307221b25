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

# The variables of the pre-training heads, which released models have.
_HEADS = ("cls/predictions/", "cls/seq_relationship/")


def check_init_checkpoint(
  config: modeling.BertConfig,
  head_shapes: Mapping[str, list[int]],
  init_checkpoint: str | None,
  is_used: bool = True,
) -> bool:
  """Whether a checkpoint has the variables of `head_shapes`.

  `is_used` is False if the run already has weights. Raises UserError unless the
  checkpoint fits the model and is finite.
  """
  if init_checkpoint is None:
    return False
  shapes = {**modeling.variable_shapes(config), **head_shapes}
  optional = {*head_shapes, *POOLER}
  weights = checkpoints.load_weights(init_checkpoint, shapes, optional)
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
  # Reading finds damage; infinite numbers would look like divergence later.
  # Sorted names are in the order of the file, so a remote one is read fastest.
  for name in sorted(filter(weights.__contains__, shapes)):
    values = {name: weights[name]}
    runner.check_finite(values, f"checkpoint {weights.prefix}")
  return skipped.isdisjoint(head_shapes)


def check_output_dir(
  shapes: Mapping[str, list[int]], output_dir: str, do_train: bool
) -> bool:
  """Whether an output folder has a checkpoint.

  Raises UserError if its shapes differ, or training would overwrite a model."""
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


def _difference(expected, shapes):
  """Describes the first variable with another shape than expected, or None."""
  for name, shape in expected.items():
    actual = shapes.get(name)
    if actual is None:
      return f"{name} is missing"
    if actual != list(shape):
      return f"{name} has shape {actual} there, and {list(shape)} in this model"
  return None
