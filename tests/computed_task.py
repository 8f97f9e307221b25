"""A task whose numbers a function computes."""

import numpy as np

from bert.contract.task import Task
from bert.data import records


class ComputedTask(Task):
  """Not more than what a Predictor needs.

  Args:
    compute: from a BERT and the features of a batch to outputs.
    axes: the axes of each output.
    spec: the features; default: sequences of 128 pieces.
    shapes: those of the variables that it adds.
    optional: names of variables that a checkpoint may lack.
  """

  def __init__(self, compute, axes, spec=None, shapes=None, optional=()):
    super().__init__()
    self._compute, self._axes, self._shapes = compute, axes, shapes or {}
    self._spec = spec or records.sequence_spec(128)
    self._optional = optional

  def feature_spec(self, is_training):
    return self._spec

  def head_shapes(self, config):
    return self._shapes

  def optional_variables(self):
    return self._optional

  def head(self, ops, bert, features):
    return self._compute(bert, features)

  def output_axes(self):
    return self._axes


def columns(rows):
  """The outputs of rows by name: an array, or a list if their shapes differ."""
  found = {}
  for row in rows:
    for name, value in row.items():
      found.setdefault(name, []).append(value)
  return {
    name: np.stack(values) if len(set(map(np.shape, values))) == 1 else values
    for name, values in found.items()
  }
