"""Downloads from servers that fail and lie."""

import base64
import errno
import hashlib
import http.client
import io
import os
import random
import struct
import time
import urllib.request
import urllib.response
import zipfile
from concurrent import futures

import google_crc32c
import pytest

from bert.errors import UserError
from loopback import Answer, serve
from bert.data import fetching

BODY = random.Random(1).randbytes(100_000)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
  monkeypatch.setattr(fetching, "_WAITS", (0, 0, 0, 0))


@pytest.fixture
def server():
  """A server without files, which tests add."""
  with serve({}) as server:
    yield server


def _fetch(server, folder, *answers, **kwargs):
  """Fetches /file into a folder of its own; returns its content."""
  server.answers["/file"] = list(answers)
  path = folder / "new" / "file"
  found = fetching.fetch(f"{server.url}/file", str(path), **kwargs)
  assert found == str(path)
  return path.read_bytes()


def _names(folder):
  return sorted(path.name for path in (folder / "new").glob("*"))


def test_a_file_is_downloaded_once(server, tmp_path):
  for _ in range(2):
    assert _fetch(server, tmp_path, Answer(BODY)) == BODY
  assert server.requests == [("GET", "/file", None)]
  assert _names(tmp_path) == ["file"]


def test_an_interrupted_download_continues(server, tmp_path):
  cuts = (Answer(BODY, cut=cut) for cut in (30_000, 20_000))
  assert _fetch(server, tmp_path, *cuts, Answer(BODY)) == BODY
  ranges = [wanted for _, _, wanted in server.requests]
  assert ranges == [None, "bytes=30000-", "bytes=50000-"]
  assert _names(tmp_path) == ["file"]


def test_the_next_run_continues(server, tmp_path):
  first = Answer(BODY, cut=30_000)
  with pytest.raises(UserError, match=r"30,000 bytes .* again"):
    _fetch(server, tmp_path, first, Answer(status=503))
  assert _names(tmp_path) == ["file.download"]
  server.requests.clear()
  assert _fetch(server, tmp_path, Answer(BODY)) == BODY
  assert server.requests == [("GET", "/file", "bytes=30000-")]
  assert _names(tmp_path) == ["file"]


def test_a_complete_download_is_checked(server, tmp_path):
  """Its program was killed before it had checked the last byte."""
  (tmp_path / "new").mkdir()
  for body in (BODY, BODY[::-1]):
    (tmp_path / "new" / "file.download").write_bytes(body)
    server.requests.clear()
    answer = Answer(BODY, headers=_checksums(BODY))
    if body == BODY:
      assert _fetch(server, tmp_path, answer) == BODY
      (tmp_path / "new" / "file").unlink()
    else:
      with pytest.raises(UserError, match="damaged: its crc32c is not"):
        _fetch(server, tmp_path, answer)
    assert server.requests == [("GET", "/file", "bytes=100000-")]


def test_redirects_do_not_leave_https(server, tmp_path, monkeypatch):
  def redirect(handler, request):
    headers = http.client.HTTPMessage()
    headers["Location"] = f"{server.url}/file"
    found = urllib.response.addinfourl(io.BytesIO(), headers, "", 302)
    found.msg = "Found"
    return found

  handler = urllib.request.HTTPSHandler
  monkeypatch.setattr(handler, "https_open", redirect)
  path = str(tmp_path / "file")
  server.answers["/file"] = [Answer(BODY)]
  with pytest.raises(UserError, match=r"leads to http:.* not encrypted"):
    fetching.fetch("https://127.0.0.1/file", path)
  assert list(tmp_path.iterdir()) == []
  headers = {"Location": f"{server.url}/file"}
  server.answers["/moved"] = [Answer(status=302, headers=headers)]
  fetching.fetch(f"{server.url}/moved", path)
  assert (tmp_path / "file").read_bytes() == BODY


def test_a_server_that_sends_the_whole_starts_again(server, tmp_path):
  first = Answer(BODY[::-1], cut=30_000)
  assert (
    _fetch(server, tmp_path, first, Answer(BODY, ignores_range=True)) == BODY
  )


def test_another_part_than_asked_for_is_an_error(server, tmp_path):
  first = Answer(BODY, cut=30_000)
  wrong = {"Content-Range": "bytes 0-99999/100000"}
  with pytest.raises(UserError, match="not the rest of the file"):
    _fetch(server, tmp_path, first, Answer(BODY, headers=wrong))
  path = tmp_path / "new" / "file.download"
  assert path.read_bytes() == BODY[:30_000]


def _checksums(body):
  digest = google_crc32c.Checksum(body).digest()
  md5 = hashlib.md5(body).digest()
  shown = [base64.b64encode(found).decode() for found in (digest, md5)]
  return {"x-goog-hash": f"crc32c={shown[0]},md5={shown[1]}"}


def test_checksums_of_the_server_are_verified(server, tmp_path):
  right = Answer(BODY, headers=_checksums(BODY))
  assert _fetch(server, tmp_path / "right", right) == BODY
  for name, answer in {
    "altered": Answer(BODY[::-1], headers=_checksums(BODY)),
    "shortened": Answer(BODY, headers=_checksums(BODY), length=50_000),
  }.items():
    with pytest.raises(UserError, match=r"damaged: its crc32c is not .* again"):
      _fetch(server, tmp_path / name, answer)
    assert _names(tmp_path / name) == []


def test_parts_of_two_versions_are_damaged(server, tmp_path):
  first = Answer(BODY[::-1], headers=_checksums(BODY[::-1]), cut=30_000)
  second = Answer(BODY, headers=_checksums(BODY))
  with pytest.raises(UserError, match="damaged: its crc32c is not"):
    _fetch(server, tmp_path, first, second)
  assert _names(tmp_path) == []


def test_a_known_checksum_is_verified(server, tmp_path):
  sha256 = hashlib.sha256(BODY).hexdigest()
  assert _fetch(server, tmp_path, Answer(BODY), sha256=sha256) == BODY
  with pytest.raises(UserError, match="its sha256 is not"):
    _fetch(server, tmp_path / "2", Answer(BODY[:-1]), sha256=sha256)


@pytest.mark.parametrize("offline", [False, True])
def test_an_existing_file_must_have_the_known_checksum(
  server, tmp_path, offline
):
  sha256 = hashlib.sha256(BODY).hexdigest()
  path, url = tmp_path / "file", f"{server.url}/file"
  path.write_bytes(BODY)
  found = fetching.fetch(url, str(path), offline, sha256)
  assert found == str(path)
  path.write_bytes(BODY[:-1])
  wanted = f"^{path} differs from {url}: .* {sha256}; rename or delete it, and"
  with pytest.raises(UserError, match=wanted):
    fetching.fetch(url, str(path), offline, sha256)
  assert path.read_bytes() == BODY[:-1]
  assert list(tmp_path.iterdir()) == [path]
  assert server.requests == []


def test_a_missing_file_is_an_error(server, tmp_path):
  with pytest.raises(UserError, match=r"/file .* 404: .* address"):
    _fetch(server, tmp_path, Answer(status=404))
  assert len(server.requests) == 1
  assert _names(tmp_path) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
  busy = [Answer(status=status) for status in (503, 429, 500, 408)]
  assert _fetch(server, tmp_path, *busy, Answer(BODY)) == BODY
  assert len(server.requests) == 5


def test_a_full_disk_is_not_tried_again(server, tmp_path, monkeypatch):
  number = errno.ENOSPC

  def fail(response, partial, start, total):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(fetching, "_copy", fail)
  with pytest.raises(OSError, match=os.strerror(number)) as caught:
    _fetch(server, tmp_path, Answer(BODY))
  assert caught.value.errno == number
  assert caught.value.filename.startswith(str(tmp_path))
  assert len(server.requests) == 1


@pytest.mark.parametrize(
  "value", ["http:/user:secret@proxy:3128", "http://proxy:secret"]
)
def test_a_malformed_proxy_is_an_error(tmp_path, monkeypatch, value):
  for other in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
    monkeypatch.delenv(other, raising=False)
  monkeypatch.setenv("http_proxy", value)
  url, path = "http://127.0.0.1:9/file", str(tmp_path / "file")
  with pytest.raises(UserError, match="is malformed; 0 bytes") as error:
    fetching.fetch(url, path)
  assert "\n" not in str(error.value)
  assert "secret" not in str(error.value)
  assert list(tmp_path.iterdir()) == []
  monkeypatch.delenv("http_proxy")
  with pytest.raises(UserError, match=r"refused.*again to continue"):
    fetching.fetch(url, path)


def test_offline_uses_what_is_there(tmp_path):
  path = tmp_path / "file"
  with pytest.raises(UserError, match=r"--offline forbids .* omit --offline"):
    fetching.fetch("http://127.0.0.1:9/file", str(path), offline=True)
  path.write_bytes(BODY)
  url = "http://127.0.0.1:9/file"
  assert fetching.fetch(url, str(path), offline=True) == str(path)


def _zip(names):
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, "w") as archive:
    for name in names:
      archive.writestr(name, name)
  return stream.getvalue()


def test_an_archive_is_downloaded_and_unpacked_once(server, tmp_path):
  server.answers["/a.zip"] = [Answer(_zip(["top/x", "top/y/z"]))]
  folder = tmp_path / "cache" / "a"
  for _ in range(2):
    fetching.fetch_archive(f"{server.url}/a.zip", str(folder))
  assert (folder / "x").read_text() == "top/x"
  assert (folder / "y" / "z").read_text() == "top/y/z"
  assert [path.name for path in folder.parent.iterdir()] == ["a"]
  assert len(server.requests) == 1


@pytest.mark.parametrize(
  ("names", "wanted"),
  [
    (["x", "y/z"], ["x", "y/z"]),
    (["top/", "top/x", "__MACOSX/top/._x"], ["x"]),
    (["a/x", "b/x"], ["a/x", "b/x"]),
    (["../x", "/y", "top/../../z"], ["top/z", "x", "y"]),
  ],
)
def test_all_files_are_in_the_folder(server, tmp_path, names, wanted):
  server.answers["/a.zip"] = [Answer(_zip(names))]
  folder = tmp_path / "cache" / "a"
  fetching.fetch_archive(f"{server.url}/a.zip", str(folder))
  found = [path for path in tmp_path.rglob("*") if path.is_file()]
  assert sorted(found) == [folder / name for name in wanted]


def test_an_archive_of_the_user_stays(server, tmp_path):
  """It has the name of an older download, and other content."""
  content, own = _zip(["x"]), _zip(["other"])
  server.answers["/a.zip"] = [Answer(content)]
  folder, archive = tmp_path / "a", tmp_path / "a.zip"
  archive.write_bytes(own)
  url, sha256 = f"{server.url}/a.zip", hashlib.sha256(content).hexdigest()
  with pytest.raises(UserError, match=f"^{folder} does not exist, and --off"):
    fetching.fetch_archive(url, str(folder), True, sha256)
  fetching.fetch_archive(url, str(folder), False, sha256)
  assert [path.name for path in folder.iterdir()] == ["x"]
  assert archive.read_bytes() == own
  assert sorted(tmp_path.iterdir()) == [folder, archive]


def test_an_archive_without_room_is_kept(server, tmp_path, monkeypatch):
  content = _zip(["x"])
  server.answers["/a.zip"] = [Answer(content)]
  folder, url = tmp_path / "a", f"{server.url}/a.zip"

  def fail(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with monkeypatch.context() as patch:
    patch.setattr(zipfile.shutil, "copyfileobj", fail)
    with pytest.raises(OSError, match=f"No space left.*: '{folder}'$"):
      fetching.fetch_archive(url, str(folder))
  fetching.fetch_archive(url, str(folder))
  assert server.requests[1:] == [("GET", "/a.zip", f"bytes={len(content)}-")]
  assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_damaged_archive_is_downloaded_again(server, tmp_path):
  content = _zip(["x"])
  altered = content.replace(b"x", b"y", 2)  # The name and the content.
  folder = tmp_path / "a"
  nameless = _zip(["?", "x"]).replace(b"?", b"\0")
  offset = content[:-6] + struct.pack("<I", 2**32 - 1) + content[-2:]
  archives = content[:-30], altered, b"<html>", _zip(["n" * 300])
  for damaged in (*archives, nameless, offset):
    server.answers["/a.zip"] = [Answer(damaged), Answer(content)]
    with pytest.raises(UserError, match=r"not a complete zip archive .* again"):
      fetching.fetch_archive(f"{server.url}/a.zip", str(folder))
    assert list(tmp_path.iterdir()) == []
  fetching.fetch_archive(f"{server.url}/a.zip", str(folder))
  assert (folder / "x").read_text() == "x"


@pytest.mark.parametrize("is_archive", [True, False])
def test_others_wait_for_the_first(
  server, tmp_path, monkeypatch, caplog, is_archive
):
  """Threads here, whose locks exclude each other as those of processes."""
  server.answers["/a.zip"] = [Answer(_zip(["x"]))]
  caplog.set_level("INFO", "absl")
  fetch = fetching.fetch_archive if is_archive else fetching.fetch
  url, path = f"{server.url}/a.zip", tmp_path / "a"
  check, others = fetching._check, []

  def slow_check(*args):
    others.extend(pool.submit(fetch, url, str(path)) for _ in range(3))
    deadline = time.monotonic() + 20
    while len(caplog.records) < 3 and time.monotonic() < deadline:
      time.sleep(0.01)
    check(*args)

  monkeypatch.setattr(fetching, "_check", slow_check)
  with futures.ThreadPoolExecutor(3) as pool:
    found = [fetch(url, str(path)), *(other.result(20) for other in others)]
  assert found == [str(path)] * 4
  wanted = f"Another process is writing {path}; waiting for it"
  assert caplog.messages == [wanted] * 3
  assert server.requests == [("GET", "/a.zip", None)]
  assert list(tmp_path.iterdir()) == [path]
