"""Downloads files over HTTPS; an interrupted download continues.

    fetch("https://example.org/a.zip", "/tmp/a.zip")

What has arrived is in `/tmp/a.zip.download`, until it is complete.
"""

import base64
import contextlib
import errno
import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
import zipfile

from bert.data import files, progress
from bert.errors import UserError, first_line

# A server that stops sending is asked again, after these seconds.
_WAITS = (1, 2, 4, 8)
_TIMEOUT = 60

# The errors of an address, also of that of a proxy.
_MALFORMED = (ValueError, http.client.InvalidURL)

# The errors of a disk, which are no fault of an archive.
_OF_DISK = (*files.FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)


def fetch(
  url: str, path: str, offline: bool = False, sha256: str | None = None
) -> str:
  """A local file; downloads it, or the rest of it, unless it is there.

  It appears under its name when it is complete. Its checksums are verified:
  `sha256` in hexadecimal digits, also of a file that is there, and those that
  the server sends, as Google's does.
  """
  if not files.exists(path):
    _make(url, path, path + ".download", offline, sha256, os.replace)
  elif sha256:
    # The file may be the user's, so it stays.
    problem = f"{path} differs from {url}"
    _check(path, {"sha256": sha256}, problem, "rename or delete it, and ")
  return path


def fetch_archive(
  url: str, folder: str, offline: bool = False, sha256: str | None = None
) -> str:
  """A folder with the content of a zip archive; see `fetch`."""
  if not _has_content(folder):
    # Not FOLDER.zip, which may be the user's.
    _make(url, folder, folder + ".zip.download", offline, sha256, _unpack)
  return folder


def _has_content(path):
  """Whether a path exists; an empty folder may have been made by hand."""
  return bool(files.listdir(path)) if files.isdir(path) else files.exists(path)


def _make(url, path, partial, offline, sha256, finish):
  """Downloads a partial file, which `finish` makes a file or folder of."""
  if offline:
    raise UserError(
      f"{path} does not exist, and --offline forbids downloading {url}; omit "
      f"--offline"
    )
  files.make_local_folder(os.path.dirname(path) or ".")
  with files.locked(partial, path, waits=True):
    try:
      if not _has_content(path):  # Another process may just have finished.
        sums = _download(url, partial)
        sums |= {"sha256": sha256} if sha256 else {}
        try:
          _check(partial, sums, f"{url} arrived damaged")
        except UserError:
          os.remove(partial)
          raise
        finish(partial, path)
    finally:
      with contextlib.suppress(FileNotFoundError):
        if not os.path.getsize(partial):
          os.remove(partial)


def _unpack(archive, folder):
  """Makes a folder of an archive, without the folder around everything."""
  partial = folder + files.PARTIAL
  shutil.rmtree(partial, ignore_errors=True)
  try:
    with files.full_disk_named(folder), zipfile.ZipFile(archive) as reader:
      # It writes nothing outside of the folder, whatever the names are.
      reader.extractall(partial)
    names = [name for name in os.listdir(partial) if name != "__MACOSX"]
    inner = os.path.join(partial, names[0])
    is_around = len(names) == 1 and os.path.isdir(inner)
    os.rename(inner if is_around else partial, folder)
  except Exception as error:  # zipfile raises a dozen kinds.
    if getattr(error, "errno", None) in _OF_DISK:
      raise
    os.remove(archive)  # The next attempt starts again.
    raise UserError(
      f"{archive} is not a complete zip archive ({first_line(error)}); "
      f"download it again"
    ) from error
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  os.remove(archive)


def _download(url, partial):
  """Completes a partial file; returns the checksums that the server sends."""
  waits = iter(_WAITS)
  while True:
    there = os.path.getsize(partial)
    try:
      with files.full_disk_named(partial):
        return _continue_download(url, partial)
    except (OSError, ValueError, http.client.HTTPException) as error:
      if getattr(error, "errno", None) in files.FULL:
        raise
      size = os.path.getsize(partial)
      if size > there:
        waits = iter(_WAITS)  # The server may send the file in parts.
      wait = next(waits, None)
      if not _is_temporary(error) or wait is None:
        reason = error
        if isinstance(error, _MALFORMED):  # It may show a password.
          reason = "its address, or that of a proxy, is malformed"
        raise UserError(
          f"{url} cannot be downloaded: {reason}; {size:,} bytes are saved; "
          f"check the address and the network, and run the same command again "
          f"to continue"
        ) from error
    time.sleep(wait)


def _is_temporary(error):
  """Whether it may help to ask the server again."""
  if isinstance(error, urllib.error.HTTPError):
    error.close()
    # 408 and 429 ask to wait; after 416, the download starts again.
    return error.code >= 500 or error.code in (408, 416, 429)
  return not isinstance(error, _MALFORMED)


def _continue_download(url, partial):
  """Downloads what a partial file lacks; returns the checksums of the whole.

  They tell if the file has changed since the download began.
  """
  start = os.path.getsize(partial)
  request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
  if start:
    request.add_header("Range", f"bytes={start}-")
  try:
    # It reads the variables of proxies each time, unlike urlopen.
    response = urllib.request.build_opener().open(request, timeout=_TIMEOUT)
  except urllib.error.HTTPError as error:
    if error.code == 416:  # No bytes are left.
      if error.headers["Content-Range"] == f"bytes */{start}":
        error.close()
        return _checksums(error.headers)
      os.truncate(partial, 0)  # The file has become shorter.
    raise
  with response:
    if url.startswith("https:") and not response.url.startswith("https:"):
      raise OSError(f"it leads to {response.url}, which is not encrypted")
    total = response.length
    if response.status == 206:
      sent = response.headers.get("Content-Range", "")
      whole = re.fullmatch(rf"bytes {start}-\d+/(\d+)", sent)
      if not whole:
        raise OSError(f"the server sends {sent!r}, not the rest of the file")
      total = int(whole[1])  # The server may send less than the rest.
    else:
      start = 0
      os.truncate(partial, 0)
    _copy(response, partial, start, total)
  found = os.path.getsize(partial)
  if total not in (None, found):
    raise OSError(f"{found:,} of {total:,} bytes arrived")
  return _checksums(response.headers)


def _copy(response, partial, start, total):
  name = os.path.basename(partial).removesuffix(".download")
  with (
    open(partial, "ab") as writer,
    progress.bar(
      desc=name, total=total, initial=start, unit="B", unit_scale=True
    ) as bar,
  ):
    while block := response.read(2**20):
      writer.write(block)
      bar.update(len(block))


def _checksums(headers):
  """The checksums that Google's servers send, by algorithm."""
  text = ",".join(headers.get_all("x-goog-hash") or ())
  return dict(re.findall(r"(crc32c|md5)=([\w+/]+=*)", text))


def _check(path, checksums, problem, remedy=""):
  for algorithm, wanted in checksums.items():
    digest = _digest(path, algorithm)
    is_hex = algorithm == "sha256"
    found = digest.hex() if is_hex else base64.b64encode(digest).decode()
    if found != wanted:
      raise UserError(
        f"{problem}: its {algorithm} is not {wanted}; {remedy}run the same "
        f"command again"
      )


def _digest(path, algorithm):
  if algorithm == "crc32c":
    import google_crc32c

    digest = google_crc32c.Checksum()
  else:
    digest = hashlib.new(algorithm, usedforsecurity=False)
  with open(path, "rb") as reader:
    while block := reader.read(2**20):
      digest.update(block)
  return digest.digest()
