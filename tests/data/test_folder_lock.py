"""One process at a time runs in a folder."""

import errno
import importlib
import os
import signal
import socket
import time

import pytest

from bert.data import folder_lock
from bert.errors import UserError
from bert.models import checkpoints


def in_a_fork(function):
  """What a function returns, or the message that it raises, in a process."""
  reader, writer = os.pipe()
  child = os.fork()
  if child == 0:
    try:
      text = str(function())
    except BaseException as error:
      text = f"{type(error).__name__}: {error}"
    os.write(writer, text.encode())
    os._exit(0)
  os.close(writer)
  os.waitpid(child, 0)
  with open(reader, "rb") as file:
    return file.read().decode()


class TestLockFolder:
  def lock(self, folder):
    with folder_lock.lock_folder(str(folder)):
      return sorted(os.listdir(folder))

  def test_the_second_process_is_told_of_the_first(self, tmp_path):
    with folder_lock.lock_folder(str(tmp_path)):
      told = in_a_fork(
        # Another process does not know what this one has locked.
        lambda: importlib.reload(folder_lock) and self.lock(tmp_path)
      )
      assert told.startswith(f"UserError: {tmp_path} ")
      for part in (str(os.getpid()), socket.gethostname(), "another folder"):
        assert part in told
      # The lock nests, and is the folder's, however it is named.
      assert self.lock(f"{tmp_path}/") == ["run.lock"]
      (tmp_path / "other").mkdir()
      assert in_a_fork(lambda: self.lock(tmp_path / "other")) == "['run.lock']"
    assert os.listdir(tmp_path) == ["other"]
    assert in_a_fork(lambda: self.lock(tmp_path)) == "['other', 'run.lock']"

  def test_a_dead_process_holds_no_lock(self, tmp_path):
    def die():
      with folder_lock.lock_folder(str(tmp_path)):
        os.kill(os.getpid(), signal.SIGKILL)

    in_a_fork(die)
    assert os.listdir(tmp_path) == ["run.lock"]
    assert self.lock(tmp_path) == ["run.lock"]
    assert os.listdir(tmp_path) == []

  def test_a_link_is_not_followed(self, tmp_path):
    other = tmp_path / "diary.txt"
    other.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.lock").symlink_to(other)
    with pytest.raises(UserError, match=r"run.lock is a symbolic link; delete"):
      self.lock(run)
    assert other.read_text() == "mine"
    (run / "run.lock").unlink()
    assert self.lock(run) == ["run.lock"]

  @pytest.mark.parametrize("is_replaced", [False, True])
  def test_a_folder_that_is_moved(self, tmp_path, is_replaced):
    """TensorFlow would write the next checkpoint into a new folder."""
    run, moved = tmp_path / "run", tmp_path / "moved"
    run.mkdir()
    message = f"{run} was moved or deleted while this process used it"

    def write():
      with folder_lock.lock_folder(str(run)):
        prefix = str(run / "model.ckpt")
        checkpoints.write_checkpoint(f"{prefix}-1", {"a": [1.0]})
        run.rename(moved)
        if is_replaced:
          run.mkdir()
        checkpoints.write_checkpoint(f"{prefix}-2", {"a": [2.0]})

    with pytest.raises(UserError, match=message):
      write()
    assert run.exists() == is_replaced
    assert not (is_replaced and os.listdir(run))
    names = ["model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]
    assert sorted(os.listdir(moved)) == names

  def test_a_worker_that_outlives_its_run_holds_no_lock(self, tmp_path):
    def die_before_its_worker():
      with folder_lock.lock_folder(str(tmp_path)):
        worker = os.fork()
        if worker == 0:
          time.sleep(30)
        (tmp_path / "worker").write_text(str(worker))
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
      die_before_its_worker()
    os.waitpid(child, 0)
    try:
      assert self.lock(tmp_path) == ["run.lock", "worker"]
    finally:
      os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)

  def test_a_file_system_without_locks(self, tmp_path, monkeypatch):
    def lockf(file, how):
      raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.lockf", lockf)
    assert self.lock(tmp_path) == ["run.lock"]

  def test_a_remote_folder_is_not_locked(self):
    with folder_lock.lock_folder("gs://bucket/run"):
      pass
