"""A lock on the output folder of a training, an export or a conversion.

    with lock_folder(output_dir):
      ...  # No other process writes to this folder.

The system releases the lock of a process that dies.
"""

import contextlib
import os
import socket
from collections.abc import Iterator

from bert.data import files
from bert.errors import UserError
from bert.data.files import fcntl  # None on Windows.

LOCK_NAME = "run.lock"

# Folder that this process has locked -> its `os.stat` at that time.
_locked = {}


@contextlib.contextmanager
def lock_folder(folder: str) -> Iterator[None]:
  """Allows only one process at a time to write to an existing local folder.

  Calls can be nested within a process. Remote folders are not locked.
  """
  real = os.path.realpath(folder)
  can_lock = fcntl and not files.is_remote(folder) and files.writes(folder)
  if not can_lock or real in _locked:
    yield
    return
  path = os.path.join(real, LOCK_NAME)
  with _lock_file(path, folder) as file, contextlib.ExitStack() as stack:
    folder_number = os.open(real, os.O_RDONLY)
    stack.callback(os.close, folder_number)
    _locked[real] = os.fstat(folder_number)
    try:
      file.truncate(0)
      owner = f"process {os.getpid()} on {socket.gethostname()}"
      os.write(file.fileno(), owner.encode())
      yield
      check_not_moved(folder)
    except (UserError, OSError):
      check_not_moved(folder)  # The more useful error.
      raise
    finally:
      del _locked[real]
      with contextlib.suppress(OSError):
        os.remove(LOCK_NAME, dir_fd=folder_number)  # It may have been moved.


def check_not_moved(folder: str) -> None:
  """Raises UserError if a folder that this process locked was moved.

  TensorFlow would create the folder again, without the earlier files.
  """
  locked = _locked.get(os.path.realpath(folder))
  if not locked:
    return
  with contextlib.suppress(FileNotFoundError, NotADirectoryError):
    if os.path.samestat(locked, os.stat(folder)):
      return
  raise UserError(
    f"{folder} was moved or deleted while this process used it; move it back, "
    f"and run the same command again"
  )


def _lock_file(path, folder):
  """Opens and locks a file that its previous owner may be deleting."""
  while True:
    file = files.open_to_lock(path, folder)
    try:
      # Unlike flock's, this lock is not inherited by forked workers.
      fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
      with file:
        file.seek(0)
        owner = file.read().decode(errors="replace") or "another process"
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
