"""bert/export/new_folder.py: a folder is new, or has all files."""

import os
import pathlib
import signal

import pytest
import scripts

from bert.errors import UserError
from bert.export import new_folder


@pytest.mark.parametrize("target", ["new", "a/new", ".", "there", "link"])
def test_a_folder_gets_the_whole_model(tmp_path, monkeypatch, target):
  """One that exists stays: the current one, or a mount point, say.

  What a killed process has left there goes.
  """
  (tmp_path / "there").mkdir()
  (tmp_path / "link").symlink_to(tmp_path / "there")
  here = tmp_path / "here"
  here.mkdir()
  monkeypatch.chdir(here if target == "." else tmp_path)
  before = None
  if os.path.exists(target):
    before = os.stat(target).st_ino
    pathlib.Path(target, ".export-abc", "model").mkdir(parents=True)
  with new_folder.new_folder(target) as folder:
    os.mkdir(os.path.join(folder, "variables"))
    for name in ("saved_model.pb", "vocab.txt", "variables/index"):
      pathlib.Path(folder, name).write_text(name)
    assert not pathlib.Path(target, "saved_model.pb").exists()
  found = scripts.tree(target)
  names = {"saved_model.pb", "vocab.txt", "variables/index"}
  assert {os.path.relpath(path, target) for path in found} == names
  assert before in (None, os.stat(target).st_ino)
  assert not list(tmp_path.rglob(".export-*"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_failure_leaves_the_folder_new(tmp_path, is_there):
  target = tmp_path / "target"
  if is_there:
    target.mkdir()
  before = scripts.tree(tmp_path)

  def interrupted():
    with new_folder.new_folder(target) as new:
      pathlib.Path(new, "vocab.txt").write_text("a")
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    interrupted()
  assert scripts.tree(tmp_path) == before
  assert target.exists() == is_there
  new_folder.check_is_new(target)


@pytest.mark.parametrize("is_there", [False, True])
def test_the_second_of_two_is_refused(tmp_path, is_there):
  target = tmp_path / "target"
  if is_there:
    target.mkdir()
  ready, done = os.pipe(), os.pipe()
  child = os.fork()
  if child == 0:
    with new_folder.new_folder(target) as new:
      os.write(ready[1], b"1")
      os.read(done[0], 1)
      pathlib.Path(new, "vocab.txt").write_text("first")
    os._exit(0)
  os.read(ready[0], 1)
  for refuse in (new_folder.check_is_new, enter):
    with pytest.raises(UserError, match=f"is in use by process {child} on"):
      refuse(target)
  os.write(done[1], b"1")
  assert os.waitpid(child, 0)[1] == 0
  with pytest.raises(UserError, match="is not an empty folder"):
    enter(target)
  assert os.listdir(target) == ["vocab.txt"]
  assert (target / "vocab.txt").read_text() == "first"
  for number in (*ready, *done):
    os.close(number)


def enter(target):
  with new_folder.new_folder(target):
    pass


@pytest.mark.parametrize("is_there", [False, True])
def test_a_killed_one_leaves_nothing_for_good(tmp_path, is_there):
  target = tmp_path / "target"
  if is_there:
    target.mkdir()
  child = os.fork()
  if child == 0:
    with new_folder.new_folder(target) as new:
      pathlib.Path(new, "vocab.txt").write_text("killed")
      os.kill(os.getpid(), signal.SIGKILL)
  os.waitpid(child, 0)
  assert os.listdir(tmp_path) == ["target"]
  new_folder.check_is_new(target)
  with new_folder.new_folder(target) as new:
    pathlib.Path(new, "saved_model.pb").write_text("whole")
  assert os.listdir(target) == ["saved_model.pb"]


def test_what_is_new(tmp_path):
  (tmp_path / ".export-abc").mkdir()
  new_folder.check_is_new(tmp_path)
  (tmp_path / "vocab.txt").touch()
  for path in (tmp_path, tmp_path / "vocab.txt"):
    with pytest.raises(UserError, match=f"{path} is not an empty folder"):
      new_folder.check_is_new(path)
