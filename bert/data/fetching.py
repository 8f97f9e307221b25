"""Downloads public files and archives, once, with `pooch`.

fetch("https://example.org/a.txt", "data/a.txt")
fetch_archive("https://example.org/a.zip", "data/a")
"""

import os
import shutil

from bert.data import files, progress
from bert.errors import UserError, first_line

_RETRIES = 3
_TIMEOUT = 60  # Seconds without data.


def fetch(
  url: str, path: str, offline: bool = False, sha256: str | None = None
) -> str:
  """The path of a local file, which is downloaded unless it exists.

  `sha256`, in hexadecimal digits, is verified in both cases.
  """
  if not files.exists(path):
    _check_online(url, path, offline)
    _download(url, path, sha256)
  elif sha256:
    import pooch

    # The file may be the user's, so it stays.
    if pooch.file_hash(path) != sha256:
      raise UserError(
        f"{path} differs from {url}: its sha256 is not {sha256}; rename or "
        f"delete it, and run the same command again"
      )
  return path


def fetch_archive(
  url: str, folder: str, offline: bool = False, sha256: str | None = None
) -> str:
  """A folder with the content of a zip archive; see `fetch`.

  A single folder that contains everything is left out.
  """
  if _has_content(folder):
    return folder
  _check_online(url, folder, offline)
  files.make_local_folder(os.path.dirname(folder) or ".")
  lock, partial = folder + ".lock", folder + files.PARTIAL
  with files.locked(lock, folder, waits=True):
    try:
      if not _has_content(folder):  # Another process may just have finished.
        os.rename(_download_archive(url, partial, sha256), folder)
    finally:
      shutil.rmtree(partial, ignore_errors=True)
      os.remove(lock)
  return folder


def _has_content(path):
  """Whether a path exists; an empty folder may have been made by hand."""
  return bool(files.listdir(path)) if files.isdir(path) else files.exists(path)


def _check_online(url, path, offline):
  if offline:
    raise UserError(
      f"{path} does not exist, and --offline forbids downloading {url}; omit "
      f"--offline"
    )


def _download_archive(url, partial, sha256):
  """Unpacks an archive below the folder `partial`; returns the content."""
  import pooch

  shutil.rmtree(partial, ignore_errors=True)  # A killed run may have left it.
  content = os.path.join(partial, "content")
  archive = os.path.join(partial, os.path.basename(url))
  _download(url, archive, sha256, pooch.Unzip(extract_dir="content"))
  names = [name for name in os.listdir(content) if name != "__MACOSX"]
  inner = os.path.join(content, *names[:1])
  return inner if len(names) == 1 and os.path.isdir(inner) else content


def _download(url, path, sha256, processor=None):
  """Downloads a file, which appears under its name when it is complete."""
  import pooch
  import requests

  folder, name = os.path.split(path)
  files.make_local_folder(folder or ".")
  pooch.get_logger().setLevel("WARNING")
  source = pooch.create(
    folder,
    "",
    registry={name: sha256},
    urls={name: url},
    retry_if_failed=_RETRIES,
  )
  bar = progress.bar(desc=name, total=1, unit="B", unit_scale=True)
  download = pooch.HTTPDownloader(bar, chunk_size=2**20, timeout=_TIMEOUT)
  try:
    with bar, files.full_disk_named(path):
      source.fetch(name, processor, download)
  except Exception as error:  # zipfile raises a dozen kinds.
    is_network = isinstance(error, requests.RequestException)
    if isinstance(error, OSError) and not is_network:
      raise
    raise UserError(
      f"{url} cannot be downloaded: {first_line(error).rstrip('.')}; check the "
      f"address and the network, and run the same command again"
    ) from error
  os.chmod(path, 0o644)  # pooch lets only its user read the file.
