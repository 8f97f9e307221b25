"""Unpacks zip archives, which may be damaged or lead out of their folder."""

import errno
import os
import re
import shutil
import stat
import zipfile

from bert.errors import UserError, first_line, shortened
from bert.data import files

# Limits of an archive: ours have five files, the largest of 1.3 GB.
_MAX_FILES = 1000
_MAX_BYTES = 2**34

# The errors of a disk, which are no fault of the archive. All other errors are:
# zipfile raises a dozen kinds of them for damaged archives.
_OF_DISK = (*files.FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)


def unpack(archive: str, folder: str) -> None:
  """Unpacks a zip archive, without the folder that contains everything.

  Args:
    archive: path of the archive.
    folder: the folder to create; appears when it is complete.
  """
  partial = folder + files.PARTIAL
  shutil.rmtree(partial, ignore_errors=True)
  try:
    try:
      with files.full_disk_named(folder):
        _extract(archive, partial)
    except UserError:
      raise
    except Exception as error:
      if isinstance(error, OSError) and error.errno in _OF_DISK:
        raise
      reason = getattr(error, "strerror", None) or first_line(error)
      raise UserError(
        f"{archive} is not a complete zip archive ({reason}); download it again"
      ) from error
    os.makedirs(partial, exist_ok=True)
    os.rename(partial, folder)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def _extract(archive, folder):
  """Writes the files of an archive into a new folder."""
  with zipfile.ZipFile(archive) as reader:
    members = [m for m in reader.infolist() if not _is_ignored(m)]
    _check_members(archive, members)
    for member, name in zip(members, _without_top(members), strict=True):
      path = os.path.join(folder, *name.split("/"))
      os.makedirs(os.path.dirname(path), exist_ok=True)
      with reader.open(member) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)


def _is_ignored(member):
  """Whether a member is a folder, or what macOS adds to archives."""
  name = member.filename
  return name.endswith("/") or name.startswith("__MACOSX/")


def _check_members(archive, members):
  """Raises UserError if an archive is too large or contains unsafe paths."""
  size = sum(member.file_size for member in members)
  if len(members) > _MAX_FILES or size > _MAX_BYTES:
    raise UserError(
      f"{archive} has {len(members):,} files and {size:,} bytes, more than any "
      f"model; do not use it"
    )
  for member in members:
    parts = re.split(r"[/\\]", member.filename)
    is_link = stat.S_ISLNK(member.external_attr >> 16)
    if is_link or ":" in parts[0] or {"", ".", ".."} & set(parts):
      raise UserError(
        f"{archive} contains {shortened(member.filename)!r}, which leads out "
        f"of its folder; do not use it"
      )


def _without_top(members):
  """The names of files, without the one folder that contains them all."""
  names = [member.filename for member in members]
  tops = {name.partition("/")[0] for name in names}
  if len(tops) == 1 and all("/" in name for name in names):
    return [name.partition("/")[2] for name in names]
  return names
