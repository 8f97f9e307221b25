"""run_classifier.py on two hosts, of which one is killed or pre-empted."""

import contextlib
import json
import os
import signal
import socket
import time

import pytest
import scripts
import tiny_task

from bert.models import checkpoints

# Sets TF_CONFIG and runs a script, as a shell does on each host.
HOST = """
import os, runpy, sys
os.environ["TF_CONFIG"] = sys.argv[1]
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

STEPS = 100


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, goldens):
  """A function from an output folder to two running hosts, the chief first."""
  folder = tmp_path_factory.mktemp("hosts")
  files = tiny_task.make_files(folder, goldens)
  host = folder / "host.py"
  host.write_text(HOST)

  def start(output_dir, count=2, **more):
    with contextlib.ExitStack() as stack:
      listeners = [
        stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(2)
      ]
      names = [f"127.0.0.1:{s.getsockname()[1]}" for s in listeners]
    changes = {
      **tiny_task.HEAD_ONLY,
      "num_train_epochs": STEPS / 5,
      "save_checkpoints_steps": 5,
      "keep_checkpoint_max": 0,
      "worker_timeout": 60,
      **more,
    }
    command = [
      str(scripts.ROOT / "run_classifier.py"),
      "--do_train",
      *tiny_task.flags(files, output_dir, **changes),
    ]
    configs = [
      {"cluster": {"worker": names}, "task": {"type": "worker", "index": index}}
      for index in range(count)
    ]
    return [scripts.Fork(host, json.dumps(c), *command) for c in configs]

  return start


def _signal_when(path, process, number):
  """Signals a process as soon as a file is there, if it has not ended."""
  deadline = time.monotonic() + 60
  with contextlib.suppress(ProcessLookupError):  # Its log tells why.
    while not path.exists() and time.monotonic() < deadline:
      time.sleep(0.005)
      os.kill(process.pid, 0)
    os.kill(process.pid, number)


def _ends(running):
  """The status and the log of each host."""
  return [(status, log) for status, _, log in (p.wait() for p in running)]


def test_a_host_that_does_not_come(hosts, tmp_path):
  ((status, log),) = _ends(hosts(tmp_path / "out", 1, worker_timeout=3))
  assert status == -signal.SIGALRM
  assert "worker 0 of 2 hosts; waiting" in log
  assert not (tmp_path / "out").exists()


def test_they_continue_after_a_kill_and_a_signal(hosts, tmp_path):
  whole, out = tmp_path / "whole", tmp_path / "out"
  for status, log in _ends(hosts(whole)):
    assert status == 0, log

  running = hosts(out)
  _signal_when(out / "model.ckpt-10.index", running[1], signal.SIGKILL)
  (status, log), (killed, _) = _ends(running)
  assert killed == -signal.SIGKILL
  assert status == 75, log
  assert "worker 1 of TF_CONFIG has stopped; start the same command" in log
  assert "Traceback" not in log

  # Both stop, although the signal comes to one that is not the chief.
  step = _newest_step(out)
  assert 10 <= step < STEPS
  running = hosts(out)
  later = out / f"model.ckpt-{step + 5}.index"
  _signal_when(later, running[1], signal.SIGTERM)
  for status, log in _ends(running):
    # A host that finds the other gone ends with 75.
    assert status in (0, 75), log
    stopped = ("Resume with the same command.\n", "the newest checkpoint\n")
    assert log.endswith(stopped)
  assert step + 5 <= _newest_step(out) < STEPS

  for status, log in _ends(hosts(out)):
    assert status == 0, log
  for suffix in ("index", "data-00000-of-00001"):
    name = f"model.ckpt-{STEPS}.{suffix}"
    assert (whole / name).read_bytes() == (out / name).read_bytes()


def _newest_step(folder):
  newest = checkpoints.training_checkpoints(str(folder))[-1]
  return int(newest.rsplit("-")[-1])
