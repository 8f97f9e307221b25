"""The file with the rows of a batch whose loss or gradient is not finite."""

import json
import os
from collections.abc import Mapping

import numpy as np

from bert.data import files

FILE_NAME = "failed_batch.json"


def write_failed_batch(
  folder: str, scalars: Mapping[str, float], features: Mapping[str, np.ndarray]
) -> str:
  """Writes FILE_NAME, with one line per row, and returns its path.

  Args:
    folder: an existing folder.
    scalars: what is known of the update, such as its step.
    features: dict of the features [B, ...] of the batch.
  """
  known = [f'"{name}": {_to_json(value)}' for name, value in scalars.items()]
  columns = {name: np.asarray(value) for name, value in features.items()}
  rows = [
    _to_json({name: column[row].tolist() for name, column in columns.items()})
    for row in range(len(next(iter(columns.values()))))
  ]
  text = ",\n".join([*known, '"rows": [\n' + ",\n".join(rows) + "\n]"])
  path = os.path.join(folder, FILE_NAME)
  files.write_file(path, "{\n" + text + "\n}\n")
  return path


def delete_failed_batch(folder: str) -> None:
  """Deletes the file, if there is one."""
  path = os.path.join(folder, FILE_NAME)
  if files.exists(path):
    files.remove(path)


def _to_json(value):
  return json.dumps(_plain(value))


def _plain(value):
  """A number, or what contains some, with strings for NaN, which JSON lacks."""
  if isinstance(value, dict):
    return {name: _plain(part) for name, part in value.items()}
  if isinstance(value, list):
    return list(map(_plain, value))
  return value if np.isfinite(value) else str(value)
