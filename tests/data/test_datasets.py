"""Data sets from a server on loopback."""

import hashlib
import io
import zipfile

import pooch
import pytest

from bert.errors import UserError
from loopback import Answer, serve
from bert.data import datasets

HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
TRAIN = [
  '1\t11\t12\tA " quoted\tB one\r\n',
  "0\t21\t22\tA two\tB two\r\n",
  "1\t31\t32\tA three\tB three\r\n",
]


def _sha256(content):
  return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch):
  """A server; its files get into the tables of addresses."""
  monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)
  with serve({}) as server:
    for name in ("_GLUE_URL", "_MRPC_URL", "_SQUAD_URL"):
      monkeypatch.setattr(datasets, name, server.url)

    def add(name, content):
      server.answers[f"/{name}"] = [Answer(content)]
      return f"{server.url}/{name}", _sha256(content)

    server.add = add
    yield server


def test_mrpc_is_divided_as_glue_does(server, tmp_path, monkeypatch):
  train = (HEADER + "".join(TRAIN)).encode()
  test = (HEADER + "1\t41\t42\tA four\tB four\r\n").encode()
  # As in the published file, the first row is not a header.
  ids = b"21\t22\n99\t98\n"
  table = dict(
    server.add(name, content)
    for name, content in (("a.txt", train), ("b.txt", test), ("c.tsv", ids))
  )
  monkeypatch.setattr(datasets, "_MRPC", table)
  for _ in range(2):
    folder = datasets.fetch_glue("MRPC", str(tmp_path))
  assert folder == str(tmp_path / "MRPC")
  rows = [line.replace("\r", "") for line in (HEADER, *TRAIN)]
  texts = {
    name: (tmp_path / "MRPC" / f"{name}.tsv").read_bytes().decode()
    for name in ("train", "dev", "test")
  }
  assert texts == {
    "train": rows[0] + rows[1] + rows[3],
    "dev": rows[0] + rows[2],
    "test": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "0\t41\t42\tA four\tB four\n",
  }
  assert len(server.requests) == 3
  # One that the user has changed is not overwritten.
  (tmp_path / "MRPC" / "train.tsv").write_text("own")
  (tmp_path / "MRPC" / "test.tsv").unlink()
  datasets.fetch_glue("MRPC", str(tmp_path))
  assert (tmp_path / "MRPC" / "train.tsv").read_text() == "own"


def test_an_archive_of_glue_is_unpacked(server, tmp_path, monkeypatch):
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, "w") as archive:
    archive.writestr("RTE/train.tsv", "text")
  _, sha256 = server.add("RTE.zip", stream.getvalue())
  row = datasets.GLUE["RTE"]._replace(sha256=sha256)
  monkeypatch.setitem(datasets.GLUE, "RTE", row)
  datasets.fetch_glue("RTE", str(tmp_path))
  assert (tmp_path / "RTE" / "train.tsv").read_text() == "text"
  server.add("CoLA.zip", stream.getvalue())
  with pytest.raises(UserError, match=r"CoLA\.zip .* known hash.* again"):
    datasets.fetch_glue("CoLA", str(tmp_path))
  server.add("AX.tsv", b"index\n")
  datasets.fetch_glue("AX", str(tmp_path))
  assert (tmp_path / "AX" / "diagnostic.tsv").read_bytes() == b"index\n"


def test_squad_is_downloaded(server, tmp_path, monkeypatch):
  table = {}
  for name in datasets._SQUAD:
    _, table[name] = server.add(name, name.encode())
  monkeypatch.setattr(datasets, "_SQUAD", table)
  datasets.fetch_squad(str(tmp_path))
  for name in (
    *("train-v1.1.json", "dev-v1.1.json"),
    *("train-v2.0.json", "dev-v2.0.json"),
  ):
    assert (tmp_path / name).read_text() == name


def test_every_task_of_glue_is_known():
  from bert.tasks.classification import glue

  for name, task in glue.TASKS.items():
    is_glue = task.submission is not None
    assert is_glue == (task.name in datasets.GLUE), name
  assert datasets.find_glue("mrpc") == "MRPC"
  with pytest.raises(UserError, match=r"'MPRC' is not .* did you mean 'MRPC'"):
    datasets.find_glue("MPRC")
