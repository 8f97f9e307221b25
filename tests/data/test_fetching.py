"""Downloads from servers that fail and lie."""

import errno
import gc
import hashlib
import io
import os
import random
import time
import zipfile
from concurrent import futures

import pooch
import pytest

from bert.errors import UserError
from loopback import Answer, serve
from bert.data import fetching, files

BODY = random.Random(1).randbytes(100_000)
SHA256 = hashlib.sha256(BODY).hexdigest()

# pooch leaves the connection of a failed download open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
  monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
  yield
  gc.collect()  # Closes connections before the next test.


@pytest.fixture
def server():
  """A server without files, which tests add."""
  with serve({}) as server:
    yield server


def _fetch(server, folder, *answers, **kwargs):
  """Fetches /file into a folder of its own; returns its content."""
  server.answers["/file"] = list(answers)
  path = folder / "new" / "file"
  assert fetching.fetch(f"{server.url}/file", str(path), **kwargs) == str(path)
  return path.read_bytes()


def _names(folder):
  return sorted(path.name for path in (folder / "new").glob("*"))


def test_a_file_is_downloaded_once(server, tmp_path):
  for _ in range(2):
    assert _fetch(server, tmp_path, Answer(BODY), sha256=SHA256) == BODY
  assert server.requests == [("GET", "/file")]
  assert _names(tmp_path) == ["file"]
  assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
  "failure",
  [
    Answer(BODY, cut=30_000),
    Answer(BODY[:-1]),  # Its checksum is wrong.
    Answer(status=503),
  ],
)
def test_a_server_that_fails_is_asked_again(server, tmp_path, failure):
  answers = failure, failure, Answer(BODY)
  assert _fetch(server, tmp_path, *answers, sha256=SHA256) == BODY
  assert len(server.requests) == 3
  assert _names(tmp_path) == ["file"]


@pytest.mark.parametrize(
  ("failure", "words"),
  [
    (Answer(BODY, cut=30_000), "30000 bytes read"),
    (Answer(BODY[::-1]), f"does not match the known hash: expected {SHA256}"),
    (Answer(status=404), "404"),
  ],
)
def test_the_next_run_works_after_a_failure(server, tmp_path, failure, words):
  with pytest.raises(UserError, match=f"/file .*{words}.* again") as error:
    _fetch(server, tmp_path, failure, sha256=SHA256)
  assert "\n" not in str(error.value)
  assert _names(tmp_path) == []
  assert _fetch(server, tmp_path, Answer(BODY), sha256=SHA256) == BODY


@pytest.mark.parametrize("offline", [False, True])
def test_an_existing_file_must_have_the_known_checksum(tmp_path, offline):
  path, url = tmp_path / "file", "http://127.0.0.1:9/file"
  path.write_bytes(BODY)
  for sha256 in (SHA256, None):
    assert fetching.fetch(url, str(path), offline, sha256) == str(path)
  path.write_bytes(BODY[:-1])
  words = f"^{path} differs from {url}: .* {SHA256}; rename or delete it, and"
  with pytest.raises(UserError, match=words):
    fetching.fetch(url, str(path), offline, SHA256)
  assert path.read_bytes() == BODY[:-1]
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fetch", [fetching.fetch, fetching.fetch_archive])
def test_offline_nothing_is_downloaded(tmp_path, fetch):
  path = tmp_path / "file"
  with pytest.raises(UserError, match=r"--offline forbids .* omit --offline"):
    fetch("http://127.0.0.1:9/file", str(path), offline=True)
  assert list(tmp_path.iterdir()) == []


def _fail_to_write(*_, **__):
  raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _zip(names):
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, "w") as archive:
    for name in names:
      archive.writestr(name, name)
  return stream.getvalue()


@pytest.mark.parametrize(
  ("names", "wanted"),
  [
    (["x", "y/z"], ["x", "y/z"]),
    (["top/", "top/x", "top/y/z", "__MACOSX/top/._x"], ["x", "y/z"]),
    (["a/x", "b/x"], ["a/x", "b/x"]),
    (["../x", "/y", "top/../../z"], ["top/z", "x", "y"]),
  ],
)
def test_an_archive_is_unpacked_once(server, tmp_path, names, wanted):
  """Also by hosts that write no results."""
  files.write_only_in(str(tmp_path / "own"))
  server.answers["/a.zip"] = [Answer(_zip(names))]
  folder = tmp_path / "cache" / "a"
  for _ in range(2):
    fetching.fetch_archive(f"{server.url}/a.zip", str(folder))
  files.write_only_in(None)
  paths = [path for path in tmp_path.rglob("*") if path.is_file()]
  assert sorted(paths) == [folder / name for name in wanted]
  assert len(server.requests) == 1


def test_a_damaged_archive_is_downloaded_again(server, tmp_path, monkeypatch):
  content = _zip(["x"])
  altered = content.replace(b"x", b"y", 2)  # The name and the content.
  folder, url = tmp_path / "a", f"{server.url}/a.zip"
  for damaged in (content[:-30], altered, b"<html>"):
    server.answers["/a.zip"] = [Answer(damaged)]
    with pytest.raises(UserError, match=r"/a\.zip cannot .* again"):
      fetching.fetch_archive(url, str(folder))
    assert list(tmp_path.iterdir()) == []
  server.answers["/a.zip"] = [Answer(content)]
  with monkeypatch.context() as patch:
    patch.setattr(zipfile.shutil, "copyfileobj", _fail_to_write)
    with pytest.raises(OSError, match=f"No space left.*: '{folder}"):
      fetching.fetch_archive(url, str(folder))
  assert list(tmp_path.iterdir()) == []
  (tmp_path / "a.partial").mkdir()  # A killed run has left it.
  (tmp_path / "a.partial" / "a.zip").write_bytes(b"half")
  fetching.fetch_archive(url, str(folder))
  assert (folder / "x").read_text() == "x"
  assert list(tmp_path.iterdir()) == [folder]


def test_others_wait_for_the_first(server, tmp_path, monkeypatch, caplog):
  """Threads here, whose locks exclude each other as those of processes."""
  server.answers["/a.zip"] = [Answer(_zip(["x"]))]
  caplog.set_level("INFO", "absl")
  args, others = (f"{server.url}/a.zip", str(tmp_path / "a")), []
  unzip = pooch.Unzip.__call__

  def slow_unzip(*rest):
    others.extend(pool.submit(fetching.fetch_archive, *args) for _ in range(3))
    deadline = time.monotonic() + 20
    while len(caplog.records) < 3 and time.monotonic() < deadline:
      os.sched_yield()
    return unzip(*rest)

  monkeypatch.setattr(pooch.Unzip, "__call__", slow_unzip)
  with futures.ThreadPoolExecutor(3) as pool:
    paths = [fetching.fetch_archive(*args)]
    paths += [other.result(20) for other in others]
  assert paths == [args[1]] * 4
  message = f"Another process is writing {args[1]}; waiting for it"
  assert caplog.messages == [message] * 3
  assert server.requests == [("GET", "/a.zip")]
  assert os.listdir(tmp_path) == ["a"]
