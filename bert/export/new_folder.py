"""Folders that get their files when all of them are written."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

from bert.errors import UserError
from bert.data import files

# Prefix of the temporary folder.
_PARTIAL = ".export-"

# A folder with one of these files counts as a model, so they appear last.
_MODEL_FILES = (
  "bert_model.ckpt.index",
  "config.json",
  "model.onnx",
  "model.tflite",
  "saved_model.pb",
)


def check_is_new(path: str) -> None:
  """Raises UserError unless --output_dir is missing, or an empty folder."""
  if not files.exists(path):
    return
  found = files.listdir(path) if files.isdir(path) else [""]
  # A process that was killed has left what begins with the prefix.
  if not all(name.startswith(_PARTIAL) for name in found):
    raise UserError(
      f"--output_dir={path} is not an empty folder; delete what is there, or "
      f"pass another path"
    )


@contextlib.contextmanager
def new_folder(target: str) -> Iterator[str]:
  """Yields a folder whose content `target` gets when it is complete.

  An empty `target` stays, as it may be a mount point or the current folder. A
  remote `target` is itself the folder.
  """
  if files.is_remote(target):
    files.makedirs(target)
    yield target
    return
  target = os.path.realpath(target)
  is_there = os.path.isdir(target)
  parent = target if is_there else os.path.dirname(target)
  files.makedirs(parent)
  if is_there:
    for name in os.listdir(target):
      if name.startswith(_PARTIAL):  # A killed process has left it.
        files.remove_tree(os.path.join(target, name))
  with tempfile.TemporaryDirectory(dir=parent, prefix=_PARTIAL) as temporary:
    folder = os.path.join(temporary, "model")
    os.mkdir(folder)
    yield folder
    if is_there:
      for name in sorted(os.listdir(folder), key=_MODEL_FILES.__contains__):
        files.rename(os.path.join(folder, name), os.path.join(target, name))
    else:
      files.rename(folder, target)
