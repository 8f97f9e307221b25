"""New folders, whose files appear when all of them are written."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

from bert.data import files, folder_lock
from bert.errors import UserError

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
  """Raises UserError unless a path is missing, or an unused empty folder."""
  if not files.exists(path):
    return
  names = files.listdir(path) if files.isdir(path) else [""]
  if folder_lock.LOCK_NAME in names:
    with folder_lock.lock_folder(path):
      names.remove(folder_lock.LOCK_NAME)
  if not all(name.startswith(_PARTIAL) for name in names):
    raise UserError(
      f"{path} is not an empty folder; pass the path of a new one"
    )


@contextlib.contextmanager
def new_folder(target: str) -> Iterator[str]:
  """Yields a temporary folder, whose files are moved to `target` at the end.

  Only one process at a time writes to `target`. An existing `target` is kept,
  because it may be a mount point. A remote `target` is yielded itself.
  """
  if files.is_remote(target):
    files.makedirs(target)
    yield target
    return
  was_there = os.path.isdir(target)
  files.makedirs(target)
  try:
    with folder_lock.lock_folder(target):
      check_is_new(target)
      for name in os.listdir(target):
        if name.startswith(_PARTIAL):  # A killed process has left it.
          files.remove_tree(os.path.join(target, name))
      with tempfile.TemporaryDirectory(dir=target, prefix=_PARTIAL) as folder:
        yield folder
        for name in sorted(os.listdir(folder), key=_MODEL_FILES.__contains__):
          files.rename(os.path.join(folder, name), os.path.join(target, name))
  except BaseException:
    if not was_there:
      with contextlib.suppress(OSError):  # Others may have written there.
        os.rmdir(target)
    raise
