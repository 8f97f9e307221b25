"""Converts the examples of an experiment to rows, and writes them to files."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
from absl import logging

from bert.contract.task import RowSet
from bert.data import files
from bert.engine import devices, inputs
from bert.errors import plural
from bert.scripts.experiment import Experiment
from bert.training import data_checks

# Data sets by split: "train", "dev" and "test".
RowSets = dict[str, list[RowSet]]

# Names of the files of rows, by split.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


def make_rows(experiment: Experiment) -> RowSets:
  """The rows of all data sets; also writes them as the original's records."""
  settings = experiment.settings
  uses_dev = settings.do_eval or settings.evaluates_in_training
  row_sets = {
    split: rows for split, rows in experiment.row_sets.items() if rows
  }
  for split, examples in experiment.examples.items():
    row_sets[split] = [
      _write_rows(experiment, row_sets, split, suffix, examples[suffix])
      for suffix in examples
      if split != "dev" or uses_dev
    ]
  return row_sets


def check_rows(experiment: Experiment, row_sets: RowSets) -> list[str]:
  """Logs warnings about the data, and returns them for the report."""
  with data_checks.collected_warnings() as warnings:
    experiment.task.log_data(row_sets)
    for rows in row_sets.get("train") or row_sets.get("dev", ()):
      data_checks.log_data_checks(rows, experiment.task)
    for rows in row_sets.get("train", ()):
      for dev in row_sets.get("dev", ()):
        data_checks.log_overlap(experiment.task, rows, dev)
  return warnings


def _write_rows(experiment, row_sets, split, suffix, examples):
  task, settings = experiment.task, experiment.settings
  is_training = split == "train"
  for rows in row_sets.get("dev", ()):
    if split == "test" and rows.examples is examples:
      return dataclasses.replace(rows, split=split)
  path = os.path.join(
    files.writable_folder(settings.output_dir),
    f"{_RECORD_NAMES[split]}{suffix}.tf_record",
  )
  spec = task.feature_spec(is_training)
  groups = task.features(examples, is_training)
  if is_training and (teacher := experiment.teacher):
    spec = teacher.spec()
    groups = teacher.rows(examples, os.path.dirname(path))
  counts = []

  def rows():
    for rows_of_example in groups:
      counts.append(len(rows_of_example))
      yield from rows_of_example

  num_rows, read = inputs.write_rows(path, rows(), spec)
  devices.check_hosts_agree(
    settings.strategy,
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
    num_rows=num_rows,
    rows_per_example=None if has_one_each else np.array(counts, np.int64),
    read=read,
  )
