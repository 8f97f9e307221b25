"""Downloads files over HTTPS; an interrupted download continues.

    fetch("https://example.org/a.zip", "/tmp/a.zip")

What has arrived is in `/tmp/a.zip.download`, until it is complete.
"""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import time
import urllib.error
import urllib.request

from bert import strict_json
from bert.errors import UserError
from bert.data import archives, files, progress

# A server that stops sending is asked again, after these seconds.
_WAITS = (1, 2, 4, 8)
_TIMEOUT = 60


def fetch_archive(
  url: str,
  folder: str,
  offline: bool = False,
  sha256: str | None = None,
  holds: str = "",
) -> str:
  """A folder with the content of a zip archive; downloads it if needed.

  Args:
    url: address of the archive.
    folder: where to unpack it; appears when it is complete.
    offline: whether the network is forbidden.
    sha256: its checksum, in hexadecimal digits, or None.
    holds: a file that it has.
  """
  if _is_unpacked(folder, holds):
    return folder
  if offline:
    raise _missing(url, folder)
  # Not FOLDER.zip, which may be the user's.
  partial = folder + ".zip.download"
  with _folder_of(partial), files.locked(partial, folder, waits=True):
    # Another process may just have finished.
    if not _is_unpacked(folder, holds):
      _download_verified(url, partial, sha256)
      _unpack(partial, folder)
    _remove(partial, partial + ".json")
  return folder


@contextlib.contextmanager
def _folder_of(path):
  """Creates the folder of a file; deletes it if it is new and stays empty."""
  folder = pathlib.Path(path).absolute().parent
  new = [f for f in (folder, *folder.parents) if not f.exists()]
  files.make_local_folder(folder)
  try:
    yield
  finally:
    with contextlib.suppress(OSError):  # It is not empty.
      for folder in new:
        folder.rmdir()


def _is_unpacked(folder, holds):
  """Whether a folder has content; an empty one may have been made by hand."""
  if not files.isdir(folder) or not files.listdir(folder):
    return False
  if not files.exists(os.path.join(folder, holds)):
    raise UserError(
      f"{folder} has files, but no {holds}; rename or delete the folder, and "
      f"run the same command again"
    )
  return True


def _unpack(archive, folder):
  """Unpacks a downloaded archive; deletes it if it is damaged."""
  try:
    archives.unpack(archive, folder)
  except UserError:
    _remove(archive, archive + ".json")  # The next attempt starts again.
    raise


def fetch(
  url: str, path: str, offline: bool = False, sha256: str | None = None
) -> str:
  """A local file; downloads it, or the rest of it, if needed.

  Checksums that the server sends, as Google's does, are verified.

  Args:
    url: its address.
    path: where to store it; appears when it is complete.
    offline: whether the network is forbidden.
    sha256: its checksum, in hexadecimal digits, or None. A file that exists
      must have it, too.
  """
  if files.exists(path):
    return _verified(url, path, sha256)
  if offline:
    raise _missing(url, path)
  partial = path + ".download"
  with _folder_of(partial), files.locked(partial, path, waits=True):
    if files.exists(path):  # Another process has just finished.
      _remove(partial)
      return _verified(url, path, sha256)
    _download_verified(url, partial, sha256)
    _remove(partial + ".json")
    os.replace(partial, path)
  return path


def _missing(url, path):
  return UserError(
    f"{path} does not exist, and --offline forbids downloading {url}; omit "
    f"--offline"
  )


def _verified(url, path, sha256):
  """The path of an existing file, whose checksum is compared if it is known."""
  if sha256 and _digest(path, "sha256").hex() != sha256:
    # The file may be the user's, so it stays.
    raise UserError(
      f"{path} differs from {url}: its sha256 is not {sha256}; rename or "
      f"delete it, and run the same command again"
    )
  return path


def _download_verified(url, partial, sha256):
  """Completes a partial file, and compares its checksums."""
  try:
    sums = _download(url, partial)
    if sha256:
      digest = bytes.fromhex(sha256)
      sums["sha256"] = base64.b64encode(digest).decode()
    _check(url, partial, sums)
  except UserError:
    if not files.exists(partial) or not os.path.getsize(partial):
      _remove(partial, partial + ".json")
    raise


def _remove(*paths):
  """Deletes files, if they exist."""
  for path in paths:
    with contextlib.suppress(FileNotFoundError):
      os.remove(path)


def _download(url, partial):
  """Completes a partial file; returns the checksums that the server sends."""
  waits = iter(_WAITS)
  while True:
    there = os.path.getsize(partial)
    try:
      with files.full_disk_named(partial):
        return _continue_download(url, partial)
    except (OSError, http.client.HTTPException) as error:
      if os.path.getsize(partial) > there:
        waits = iter(_WAITS)  # The server may send the file in parts.
      wait = next(waits, None)
      _raise_unless_temporary(error, url, partial, is_last=wait is None)
    time.sleep(wait)


def _raise_unless_temporary(error, url, partial, is_last):
  """Raises UserError unless it may help to ask the server again."""
  if isinstance(error, urllib.error.HTTPError):
    error.close()
    # 408 and 429 ask to wait; after 416, the download starts again.
    if 400 <= error.code < 500 and error.code not in (408, 416, 429):
      raise UserError(
        f"{url} cannot be downloaded: the server answers {error.code} "
        f"{error.reason}; check the address"
      ) from error
  elif getattr(error, "errno", None) in files.FULL:
    raise error
  if is_last:
    there = os.path.getsize(partial)
    raise UserError(
      f"{url} cannot be downloaded: {error}; {there:,} bytes are saved; run "
      f"the same command again to continue"
    ) from error


def _continue_download(url, partial):
  """Downloads what a partial file lacks; returns the checksums of the whole.

  Raises:
    OSError, HTTPException: the connection failed, or ended early.
  """
  start, version = os.path.getsize(partial), _read_version(partial)
  request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
  if start and version:
    # Another version of the file is sent from its start.
    request.add_header("Range", f"bytes={start}-")
    request.add_header("If-Range", version)
  try:
    response = _open(request)
  except urllib.error.HTTPError as error:
    if error.code == 416:  # No bytes are left.
      is_same = _version(error.headers) in (None, version)
      if is_same and error.headers["Content-Range"] == f"bytes */{start}":
        error.close()
        return _checksums(error.headers)
      os.truncate(partial, 0)  # The file has become shorter.
    raise
  with response:
    size = _body_size(response.headers)
    sent = response.headers.get("Content-Range", "")
    if response.status != 206 or not sent.startswith(f"bytes {start}-"):
      if response.status == 206:
        raise OSError(f"the server sends {sent!r}, not the rest of the file")
      start = 0
      os.truncate(partial, 0)
      _write_version(partial, response.headers)
    elif start and _version(response.headers) not in (None, version):
      os.truncate(partial, 0)
      raise OSError("the file on the server has changed")
    total = None if size is None else start + size
    if whole := re.fullmatch(r"bytes \d+-\d+/(\d+)", sent if start else ""):
      total = int(whole[1])  # The server may send less than the rest.
    _copy(response, partial, start, total)
  found = os.path.getsize(partial)
  if total is not None and found != total:
    raise OSError(f"{found:,} of {total:,} bytes arrived")
  return _checksums(response.headers)


def _open(request):
  """The answer to a request, which a proxy may pass on."""
  variable = f"{request.type}_proxy"
  opener = urllib.request.build_opener(_EncryptedRedirects)
  try:
    return opener.open(request, timeout=_TIMEOUT)
  except UserError:
    raise
  except (ValueError, http.client.InvalidURL) as error:
    # The address of a proxy is not shown, because it may have a password.
    names = sorted(name for name in os.environ if name.lower() == variable)
    if not names:
      raise
    raise UserError(
      f"{request.full_url} cannot be downloaded: the variable "
      f"{' or '.join(names)} has no address of a proxy; set it to "
      f"http://host:port, or unset it"
    ) from error


class _EncryptedRedirects(urllib.request.HTTPRedirectHandler):
  """Follows no redirect from HTTPS to another protocol."""

  def redirect_request(self, req, fp, code, msg, headers, newurl):
    if req.type == "https" and not newurl.startswith("https:"):
      fp.close()
      raise UserError(
        f"{req.full_url} leads to {newurl}, which is not encrypted; do not use "
        f"it"
      )
    return super().redirect_request(req, fp, code, msg, headers, newurl)


def _body_size(headers):
  """The bytes that an answer claims to have; None if it does not say."""
  size = headers.get("Content-Length")
  if size is None:
    return None
  if not re.fullmatch("[0-9]+", size):
    raise OSError(f"the server sends Content-Length: {size!r}")
  return int(size)


def _copy(response, partial, start, total):
  """Appends the body of a response to a file."""
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


def _read_version(partial):
  """What identifies the version of the file that a download began; or None."""
  try:
    return strict_json.loads(files.read_bytes(partial + ".json"))["version"]
  except (OSError, ValueError, KeyError):
    return None


def _version(headers):
  """What identifies the version of a file; or None."""
  return headers.get("ETag") or headers.get("Last-Modified")


def _write_version(partial, headers):
  version = _version(headers)
  if version and version.startswith("W/"):
    version = None  # A weak one does not promise the same bytes.
  files.write_file(partial + ".json", json.dumps({"version": version}))


def _checksums(headers):
  """Dict from algorithm to the checksum that Google's servers send."""
  text = ",".join(headers.get_all("x-goog-hash") or ())
  return dict(re.findall(r"(crc32c|md5)=([\w+/]+=*)", text))


def _check(url, partial, checksums):
  """Raises UserError, and deletes the file, if a checksum does not match."""
  for algorithm, wanted in checksums.items():
    if base64.b64encode(_digest(partial, algorithm)).decode() != wanted:
      os.remove(partial)
      raise UserError(
        f"{url} arrived damaged: its {algorithm} is not {wanted}; run the same "
        f"command again"
      )


def _digest(path, algorithm):
  """The checksum of a file, in bytes."""
  if algorithm == "crc32c":
    import google_crc32c

    digest = google_crc32c.Checksum()
  else:
    digest = hashlib.new(algorithm, usedforsecurity=False)
  with open(path, "rb") as reader:
    while block := reader.read(2**20):
      digest.update(block)
  return digest.digest()
