"""Data sets: which files are fetched, and what is made of them."""

import pytest

from bert.data import datasets, fetching
from bert.errors import UserError

HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
TRAIN = [
  '1\t11\t12\tA " quoted\tB one\r\n',
  "0\t21\t22\tA two\tB two\r\n",
  "1\t31\t32\tA three\tB three\r\n",
]


@pytest.fixture
def fetched(monkeypatch):
  """(URL, target, checksum) of what is fetched; files by the ends of URLs."""
  calls, contents = [], {}

  def fetch(url, path, offline=False, sha256=None):
    calls.append((url, path, sha256))
    with open(path, "w", encoding="utf-8", newline="") as writer:
      writer.write(contents.get(url.rpartition("/")[2], ""))

  def fetch_archive(url, folder, offline=False, sha256=None):
    calls.append((url, folder, sha256))

  monkeypatch.setattr(fetching, "fetch", fetch)
  monkeypatch.setattr(fetching, "fetch_archive", fetch_archive)
  return calls, contents


def test_mrpc_is_divided_as_glue_does(fetched, tmp_path):
  calls, contents = fetched
  contents |= {
    "msr_paraphrase_train.txt": HEADER + "".join(TRAIN),
    "msr_paraphrase_test.txt": HEADER + "1\t41\t42\tA four\tB four\r\n",
    # As in the published file, the first row is not a header.
    "mrpc_dev_ids.tsv": "21\t22\n99\t98\n",
  }
  folder = tmp_path / "MRPC"
  folder.mkdir()
  for _ in range(2):
    assert datasets.fetch_glue("MRPC", str(tmp_path)) == str(folder)
  rows = [line.replace("\r", "") for line in (HEADER, *TRAIN)]
  texts = {
    name: (folder / f"{name}.tsv").read_bytes().decode()
    for name in ("train", "dev", "test")
  }
  assert texts == {
    "train": rows[0] + rows[1] + rows[3],
    "dev": rows[0] + rows[2],
    "test": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "0\t41\t42\tA four\tB four\n",
  }
  assert len(calls) == 3
  assert all(sha256 for *_, sha256 in calls)
  # One that the user has changed is not overwritten.
  (folder / "train.tsv").write_text("own")
  (folder / "test.tsv").unlink()
  datasets.fetch_glue("MRPC", str(tmp_path))
  assert (folder / "train.tsv").read_text() == "own"


def test_files_are_fetched_with_their_checksums(fetched, tmp_path):
  calls, _ = fetched
  (tmp_path / "AX").mkdir()
  for name in ("RTE", "AX"):
    datasets.fetch_glue(name, str(tmp_path))
  datasets.fetch_squad(str(tmp_path))
  urls, targets, checksums = zip(*calls, strict=True)
  assert [url.rpartition("/")[2] for url in urls[:2]] == ["RTE.zip", "AX.tsv"]
  assert targets == (
    str(tmp_path / "RTE"),
    str(tmp_path / "AX" / "diagnostic.tsv"),
    *(
      str(tmp_path / f"{split}-v{version}.json")
      for version in ("1.1", "2.0")
      for split in ("train", "dev")
    ),
  )
  # None is published for the diagnostic set.
  assert [bool(x) for x in checksums] == [True, False, True, True, True, True]


def test_every_task_of_glue_is_known():
  from bert.tasks.classification import glue

  for name, task in glue.TASKS.items():
    is_glue = task.submission is not None
    assert is_glue == (task.name in datasets.GLUE), name
  assert datasets.find_glue("mrpc") == "MRPC"
  with pytest.raises(UserError, match=r"'MPRC' is not .* did you mean 'MRPC'"):
    datasets.find_glue("MPRC")
