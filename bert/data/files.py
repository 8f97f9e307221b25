"""Opens, lists and atomically writes files, local or remote.

Local paths need only Python. Paths with a scheme, such as `gs://bucket/file`,
load TensorFlow for its file systems.
"""

import contextlib
import errno
import glob
import hashlib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, BinaryIO

from absl import logging

from bert import strict_json
from bert.errors import UserError

try:
  import fcntl
except ImportError:  # Windows has none.
  fcntl = None

PARTIAL = ".partial"

# On Linux, writing 2 GB takes 0.8 s of processor time with this buffer; with
# Python's default of 8 KiB 3 s, and with 1 MiB 1.8 s.
WRITE_BYTES = 2**17

# A full disk, an exceeded quota, and a file larger than the limit.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# The only folder that this process changes; None if it may change any.
_only_folder = None


def write_only_in(folder: str | None) -> None:
  """Ignores later calls that would change files outside of a folder.

  In a training on several hosts, only the first host writes files.
  """
  global _only_folder
  _only_folder = folder and os.path.realpath(folder)


def writes(path: str | os.PathLike) -> bool:
  """Whether this process may change a path; see `write_only_in`."""
  if _only_folder is None:
    return True
  folder = os.path.join(_only_folder, "")
  path = os.fspath(path)
  return not is_remote(path) and os.path.realpath(path).startswith(folder)


def writable_folder(folder: str) -> str:
  """`folder`, or the scratch folder of a process that must not write there."""
  return folder if writes(folder) else _only_folder


def is_remote(path: str | os.PathLike) -> bool:
  """Whether a path has a scheme, such as gs://."""
  return "://" in os.fspath(path)


def _system(path, local):
  """The file functions of TensorFlow for a remote path, else those given."""
  return _remote() if is_remote(path) else local


def _remote():
  import tensorflow as tf

  return tf.io.gfile


def open_file(path: str | os.PathLike, mode: str = "rb") -> BinaryIO:
  """Opens a file in a binary mode or, as UTF-8 text, for writing ("w")."""
  if is_remote(path):
    return _remote().GFile(os.fspath(path), mode)
  buffering = -1 if mode.startswith("r") else WRITE_BYTES
  encoding = None if "b" in mode else "utf-8"
  return open(path, mode, buffering, encoding=encoding)


def exists(path: str | os.PathLike) -> bool:
  """Whether the path is a file or folder."""
  return _system(path, os.path).exists(path)


def isdir(path: str | os.PathLike) -> bool:
  """Whether the path is a folder."""
  return _system(path, os.path).isdir(path)


def isfile(path: str | os.PathLike) -> bool:
  """Whether the path exists and is not a folder: a file, or a pipe."""
  return exists(path) and not isdir(path)


def check_is_file(
  path: str | os.PathLike,
  name: str | None = None,
  remedy: str = "check the path",
) -> None:
  """Raises UserError unless a path is a file or a pipe."""
  if not isfile(path):
    what = "it is a folder" if isdir(path) else "no such file"
    raise UserError(f"{name or path}: {what}; {remedy}")


def check_is_folder(path: str, name: str) -> None:
  """Raises UserError unless a path is a folder; `name` is for the message."""
  if not isdir(path):
    what = "it is a file" if exists(path) else "no such folder"
    raise UserError(f"{name}: {what}; check the path")


def check_holds(
  content: object, path: str, what: str, remedy: str | None = None
) -> None:
  """Raises UserError for a file without the content that it must have."""
  if not content:
    remedy = remedy or f"pass a file with {what}"
    raise UserError(f"{path} has no {what}; {remedy}")


def size(path: str | os.PathLike) -> int:
  """The length of a file in bytes."""
  if is_remote(path):
    return _remote().stat(path).length
  return os.path.getsize(path)


def is_pipe(path: str | os.PathLike) -> bool:
  """Whether a path is a pipe or a device, which can only be read once."""
  return not is_remote(path) and isfile(path) and not os.path.isfile(path)


def refuse_pipe(path: str | os.PathLike, name: str) -> None:
  """Raises UserError for a pipe or a device; `name` is for the message."""
  if is_pipe(path):
    raise UserError(
      f"{name}: {path} is a pipe or a device, which cannot be read twice; save "
      f"its content to a file"
    )


def listdir(path: str | os.PathLike) -> list[str]:
  """The names in a folder, without slashes."""
  return [name.rstrip("/") for name in _system(path, os).listdir(path)]


def is_partial(path: str | os.PathLike) -> bool:
  """Whether a file is temporary, so that only a killed run leaves it."""
  ends = r"(\.tmp-.*|\.index|\.data-.*)?"
  return bool(re.search(re.escape(PARTIAL) + ends + "$", os.fspath(path)))


def find(pattern: str) -> list[str]:
  """The paths that match a pattern such as data/*.txt, sorted."""
  return sorted(_system(pattern, glob).glob(pattern))


def makedirs(path: str | os.PathLike) -> None:
  """Creates a folder and its parents, unless they exist."""
  if is_remote(path) and writes(path):
    _remote().makedirs(path)
  elif writes(path):
    make_local_folder(path)


def make_local_folder(path: str | os.PathLike) -> None:
  """Creates a local folder, even one that `write_only_in` excludes."""
  if is_remote(path):
    raise UserError(f"{path} is remote; pass a local folder")
  try:
    os.makedirs(path, exist_ok=True)
  except OSError as error:
    raise UserError(
      f"folder {path} cannot be created ({error.strerror}); pass another"
    ) from error


def remove(path: str | os.PathLike) -> None:
  """Deletes a file."""
  if writes(path):
    _system(path, os).remove(path)


def remove_tree(path: str | os.PathLike) -> None:
  """Deletes a folder and its contents."""
  if writes(path):
    _system(path, shutil).rmtree(path)


def rename(source: str | os.PathLike, target: str | os.PathLike) -> None:
  """Renames a file, replacing a file of the new name."""
  if is_remote(target) and writes(target):
    _remote().rename(source, target, overwrite=True)
  elif writes(target):
    os.replace(source, target)


def read_bytes(path: str | os.PathLike) -> bytes:
  """The content of a file or pipe."""
  with open_file(path, "rb") as reader:
    return reader.read()


def hash_of(path: str | os.PathLike) -> str:
  """SHA-256 of the content of a file."""
  with open_file(path) as reader:
    digest = hashlib.sha256()
    while block := reader.read(2**20):
      digest.update(block)
  return digest.hexdigest()


def read_json(
  path: str,
  kind: type,
  known: Mapping[str, Any] | None = None,
  allows_nan: bool = False,
) -> Any:
  """The dict or list (`kind`) in a JSON file; None if there is no file.

  `known` has the types of keys of the object; see `strict_json.check_types`.
  """
  if not exists(path):
    return None
  try:
    content = strict_json.loads(read_bytes(path), allows_nan)
    if not isinstance(content, kind):
      raise ValueError(f"it has no {'object' if kind is dict else 'array'}")
  except ValueError as error:
    raise damaged(path, f"invalid JSON: {error}") from error
  check_types(path, content, known or {})
  return content


def check_types(
  path: str, fields: Mapping[str, object], known: Mapping[str, Any]
) -> None:
  """Raises UserError for a value of a file that has another type than known."""
  try:
    strict_json.check_types(fields, known)
  except ValueError as error:
    raise damaged(path, error) from error


def damaged(path: str, reason: object) -> UserError:
  """A UserError for a damaged file, for the caller to raise."""
  return UserError(
    f"{path} is damaged ({reason}); copy it again, or make it anew"
  )


def write_file(path: str | os.PathLike, content: str | bytes) -> None:
  """Writes str, as UTF-8, or bytes; the file appears whole or not at all."""
  with open_atomic(path) as writer:
    writer.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def open_atomic(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
  """Opens a file for writing; it appears under its name at the end."""
  with atomic_write(path) as partial, open_file(partial, mode) as writer:
    yield writer


@contextlib.contextmanager
def full_disk_named(path: str | os.PathLike) -> Iterator[None]:
  """Adds a path to the error of a full disk, because the system names none."""
  try:
    yield
  except OSError as error:
    if error.errno in FULL:
      error.filename = error.filename or os.fspath(path)
    raise


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[str]:
  """Yields a temporary path, and renames it to `path` at the end.

  After an exception, `path` is unchanged. Links are followed.
  """
  path = os.fspath(path)
  if not writes(path):
    with tempfile.TemporaryDirectory() as folder:
      yield os.path.join(folder, os.path.basename(path))
    return
  target = _target(path)
  partial = target + PARTIAL
  can_lock = fcntl and not is_remote(path)
  lock = locked(partial, path) if can_lock else contextlib.nullcontext()
  with lock, full_disk_named(path):
    try:
      yield partial
      rename(partial, target)
    except BaseException:
      with contextlib.suppress(Exception):
        remove(partial)
      raise


def _target(path):
  return path if is_remote(path) else os.path.realpath(path)


@contextlib.contextmanager
def atomic_writes(paths: Iterable[str | os.PathLike]) -> Iterator[list[str]]:
  """Like `atomic_write`, for files that describe each other.

  A new file is never beside an old one: a process that is killed while renaming
  leaves only some of the new files.
  """
  paths = list(map(os.fspath, paths))
  with contextlib.ExitStack() as stack:
    yield [stack.enter_context(atomic_write(path)) for path in paths]
    for target in filter(exists, map(_target, paths)):
      remove(target)


def write_files(contents: Mapping[str, str]) -> None:
  """Writes texts by path that describe each other; see `atomic_writes`."""
  with atomic_writes(contents) as paths:
    for path, content in zip(paths, contents.values(), strict=True):
      with open_file(path, "wb") as writer:
        writer.write(content.encode())


def remove_abandoned(partial: str) -> None:
  """Deletes a temporary file of `atomic_write`, unless it is being written."""
  if not fcntl or is_remote(partial):
    remove(partial)
  else:
    with contextlib.suppress(UserError), locked(partial, partial):
      remove(partial)


@contextlib.contextmanager
def locked(partial: str, path: str, waits: bool = False) -> Iterator[None]:
  """Creates a local file if needed, and locks it against other processes.

  The system releases the lock of a process that dies. Messages name `path`, the
  file that is being written. `waits`: wait until another process releases it.
  """
  for attempt in itertools.count():
    file = open_to_lock(partial, path)
    with file:
      if not fcntl or _lock(file):
        yield
        return
      if not waits:
        raise UserError(
          f"another process is writing {path}; wait for it to end, or pass "
          f"another path"
        )
      if not attempt:
        logging.info("Another process is writing %s; waiting for it", path)
      fcntl.flock(file, fcntl.LOCK_EX)


def open_to_lock(path: str, shown: str) -> BinaryIO:
  """Opens a local file for a lock; creates it if needed, and follows no link.

  A link could make this process change any file of its user.
  """

  def opener(path, flags):
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

  try:
    return open(path, "a+b", opener=opener)
  except OSError as error:
    if error.errno == errno.ELOOP:
      reason = f"{path} is a symbolic link; delete it"
    else:
      reason = f"{error.strerror}; pass another path"
    raise UserError(f"{shown} cannot be written: {reason}") from error


def _lock(file):
  """Whether an open file is locked now, and still has its name."""
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # Another process may just have renamed or deleted the file that we opened.
    return os.path.samefile(file.name, file.fileno())
  except (BlockingIOError, FileNotFoundError):
    return False
  except OSError:
    return True  # Some file systems have no locks.
