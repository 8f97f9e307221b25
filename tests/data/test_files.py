"""Files of a process that may change one folder only, or that is killed."""

import errno
import os

import pytest

from bert.data import corpus_workers, files
from bert.errors import UserError


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


@pytest.mark.parametrize(
  ("name", "reason"),
  [("file/folder", "Not a directory"), ("n" * 300, "File name too long")],
)
def test_a_folder_that_cannot_be_created(tmp_path, name, reason):
  (tmp_path / "file").touch()
  wanted = rf"^folder .*{name} cannot be created \({reason}\); pass another"
  with pytest.raises(UserError, match=wanted):
    files.makedirs(tmp_path / name)


@pytest.mark.parametrize(
  "open_outputs",
  [
    lambda path: files.open_atomic(path),
    lambda path: files.atomic_writes([path]),
    lambda path: corpus_workers.workspace([path]),
  ],
  ids=["one file", "several files", "a corpus"],
)
def test_a_full_disk_is_named(tmp_path, open_outputs):
  path = str(tmp_path / "a")
  message = rf"\[Errno 28\] No space left on device: '{path}'$"
  with pytest.raises(OSError, match=message), open_outputs(path):
    raise OSError(errno.ENOSPC, "No space left on device")
  assert not list(tmp_path.iterdir())


def _contents(folder):
  return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("count", range(5))
def test_no_new_file_is_beside_an_old_one(tmp_path, monkeypatch, count):
  """Whatever number of deletions and renamings a killed process has made."""
  changes = []

  def dies_after_some(function):
    def change(*arguments):
      if len(changes) == count:
        raise KeyboardInterrupt
      changes.append(arguments)
      return function(*arguments)

    return change

  old, new = ({n: f"{age} {n}" for n in "ab"} for age in ("old", "new"))
  for name, text in old.items():
    (tmp_path / name).write_text(text)
  paths = {str(tmp_path / name): text for name, text in new.items()}
  for name in ("remove", "replace"):
    monkeypatch.setattr(os, name, dies_after_some(getattr(os, name)))
  if count < 4:
    with pytest.raises(KeyboardInterrupt):
      files.write_files(paths)
  else:
    files.write_files(paths)
  monkeypatch.undo()
  left = {n: t for n, t in _contents(tmp_path).items() if n in new}
  assert left.items() <= old.items() or left.items() <= new.items()
  wanted = [old, {"b": "old b"}, {}, {"b": "new b"}, new]
  assert left == wanted[count]


def test_files_that_cannot_be_written_leave_the_old_ones(tmp_path):
  link, target = tmp_path / "link", tmp_path / "target"
  link.symlink_to(target)
  old = {str(link): "a", str(tmp_path / "b"): "b"}
  files.write_files(old)
  assert link.is_symlink()
  assert _contents(tmp_path) == {"link": "a", "target": "a", "b": "b"}
  with pytest.raises(AttributeError):
    files.write_files({str(link): "new", str(tmp_path / "b"): None})
  assert _contents(tmp_path) == {"link": "a", "target": "a", "b": "b"}
  files.write_files(dict.fromkeys(old, "new"))
  assert link.is_symlink()
  assert set(_contents(tmp_path).values()) == {"new"}


def test_an_open_file_appears_when_it_is_complete(tmp_path):
  path = tmp_path / "file"
  with files.open_atomic(path, "w") as writer:
    writer.write("text")
    assert not path.exists()
  assert path.read_text() == "text"
  with pytest.raises(TypeError), files.open_atomic(path) as writer:
    writer.writelines([b"other", "no bytes"])
  assert path.read_text() == "text"
  assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_place_of_a_temporary_file_is_not_followed(tmp_path):
  other, path = tmp_path / "diary.txt", tmp_path / "vocab.txt"
  other.write_text("mine")
  (tmp_path / "vocab.txt.partial").symlink_to(other)
  with pytest.raises(UserError, match=r"vocab.txt.partial is a symbolic link"):
    files.write_file(path, "a")
  assert other.read_text() == "mine"
  assert not path.exists()


def test_two_processes_do_not_write_one_file(tmp_path):
  path = str(tmp_path / "labels.txt")
  with files.atomic_write(path) as partial:
    with open(partial, "w") as file:
      file.write("first")
    with pytest.raises(ValueError, match="another process is writing"):
      files.write_file(path, "second")
  with open(path) as file:
    assert file.read() == "first"
  files.write_file(path, "third")
  assert os.listdir(tmp_path) == ["labels.txt"]


def test_what_a_killed_process_left_is_no_hindrance(tmp_path):
  path = tmp_path / "labels.txt"
  (tmp_path / "labels.txt.partial").write_text("half of a longer text")
  files.write_file(str(path), "whole")
  assert os.listdir(tmp_path) == ["labels.txt"]
  assert path.read_text() == "whole"


def test_a_file_without_locks_is_written(tmp_path, monkeypatch):
  def flock(file, how):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr("fcntl.flock", flock)
  files.write_file(str(tmp_path / "labels.txt"), "a")
  assert (tmp_path / "labels.txt").read_text() == "a"


def test_an_error_names_the_file_and_not_its_other_name(tmp_path):
  path = tmp_path / "nowhere" / "labels.txt"
  with pytest.raises(ValueError, match=f"^{path} cannot be written: No such"):
    files.write_file(str(path), "a")
  (tmp_path / "labels.txt").mkdir()
  with pytest.raises(OSError, match="Is a directory"):
    files.write_file(str(tmp_path / "labels.txt"), "a")
  assert os.listdir(tmp_path) == ["labels.txt"]
