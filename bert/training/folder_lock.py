"""A lock on the output folder of a run.

    with lock_folder(output_dir):
      ...  # No other process runs in this folder.

The system releases the lock of a process that dies.
"""

import contextlib
import os
import socket
from collections.abc import Iterator

from bert.errors import UserError
from bert.data import files
from bert.data.files import fcntl  # None on Windows.
from bert.training.checkpoints import user_errors

LOCK_NAME = "run.lock"

# Folders that this process has locked.
_locked = set()


@contextlib.contextmanager
def lock_folder(folder: str) -> Iterator[None]:
  """Allows only one process at a time to run in an existing local folder.

  Calls can be nested within a process. Remote folders are not locked.

  Raises:
    UserError: another process has locked the folder, or it is not writable.
  """
  path = os.path.join(os.path.realpath(folder), LOCK_NAME)
  can_lock = fcntl and not files.is_remote(folder) and files.writes(folder)
  if not can_lock or path in _locked:
    yield
    return
  with _lock_file(path, folder) as file:
    _locked.add(path)
    try:
      with user_errors(path):
        file.truncate(0)
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        os.write(file.fileno(), owner.encode())
      yield
    finally:
      _locked.remove(path)
      with contextlib.suppress(OSError):
        os.remove(path)


def _lock_file(path, folder):
  """Opens and locks a file, which the process before may be deleting."""
  while True:
    with user_errors(path):
      file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    try:
      # Unlike flock's, this lock is not inherited by forked workers.
      fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
      with file:
        file.seek(0)
        owner = file.read() or "another process"
      raise UserError(
        f"{folder} is in use by {owner}; wait for it to end, or pass another "
        f"folder"
      ) from error
    except OSError:
      return file  # Some file systems have no locks.
    with contextlib.suppress(FileNotFoundError):
      if os.path.samefile(path, file.fileno()):
        return file
    file.close()
