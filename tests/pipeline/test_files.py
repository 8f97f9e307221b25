"""Files of a process that may change one folder only."""

import pytest

from pipeline import files


@pytest.fixture
def own(tmp_path):
  """The only folder that this process changes."""
  folder = tmp_path / "own"
  folder.mkdir()
  files.write_only_in(folder)
  yield folder
  files.write_only_in(None)


def test_other_folders_stay_as_they_are(own, tmp_path):
  (tmp_path / "old").write_text("old")
  (tmp_path / "own-not").mkdir()
  before = sorted(tmp_path.rglob("*"))
  files.write_file(tmp_path / "new", "new")
  files.write_file(tmp_path / "own-not" / "new", "new")
  files.write_file("gs://bucket/new", "new")
  files.makedirs(tmp_path / "folder")
  files.remove(tmp_path / "old")
  files.rename(tmp_path / "old", tmp_path / "moved")
  files.remove_tree(tmp_path / "own-not")
  assert sorted(tmp_path.rglob("*")) == before
  assert files.read_bytes(tmp_path / "old") == b"old"
  assert not files.writes(tmp_path)
  assert files.writable_folder(str(tmp_path)) == str(own.resolve())


def test_its_own_folder_is_written(own):
  files.makedirs(own / "folder")
  files.write_file(own / "folder" / "new", "new")
  assert files.read_bytes(own / "folder" / "new") == b"new"
  files.remove_tree(own / "folder")
  assert not files.exists(own / "folder")
  assert files.writable_folder(str(own / "folder")) == str(own / "folder")


def test_the_restriction_ends(own, tmp_path):
  files.write_only_in(None)
  files.write_file(tmp_path / "new", "new")
  assert files.read_bytes(tmp_path / "new") == b"new"
  assert files.writable_folder(str(tmp_path)) == str(tmp_path)
