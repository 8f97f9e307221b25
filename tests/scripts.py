"""Runs scripts as a user does: in a process of their own."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent

# Loads TensorFlow and every module once, and forks for each command: a script
# then starts within milliseconds. A command is a line of JSON; the answer is
# the process id of the fork. Its exit status goes to a pipe of its own, so that
# several commands can run at once.
_SERVER = """
import gc, json, os, runpy, signal, sys, tempfile, traceback
sys.path.insert(0, {root!r})
import extract_features, run_classifier, run_pretraining, run_squad
from bert.commands import visualize
from bert.reports import charts
import sklearn.metrics, tqdm  # Scripts load these on use.
charts.render((1, 1), lambda figure: figure.add_subplot(), format="svg")
import tensorflow
tensorflow.constant  # Loads it.
gc.freeze()  # A fork that collects garbage would copy what is shared.

def run(argv, cwd, streams, folder, cores):
  signal.alarm(300)  # A script that hangs fails its test.
  if cores:
    os.sched_setaffinity(0, cores)
  # Nothing that runs at a normal exit deletes temporary files.
  os.environ["TMPDIR"] = tempfile.tempdir = folder
  os.chdir(cwd)
  modes = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
  for stream, (path, mode) in enumerate(zip(streams, modes)):
    os.dup2(os.open(path, mode), stream)
  sys.argv = argv
  sys.path.insert(0, os.path.dirname(argv[0]))
  runpy.run_path(argv[0], run_name="__main__")

def supervise(status_pipe, **command):
  signal.signal(signal.SIGCHLD, signal.SIG_DFL)
  child = os.fork()
  if child:
    print(child, flush=True)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(status_pipe, "w") as pipe:
      pipe.write(str(status))
    return
  status = 1
  try:
    run(**command)
    status = 0
  except SystemExit as stop:
    status = stop.code or 0
  except BaseException:
    traceback.print_exc()
  sys.stdout.flush()
  sys.stderr.flush()
  # Shutting the interpreter down would copy most of the shared memory.
  os._exit(status)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for supervisors.
for line in sys.stdin:
  if not os.fork():
    supervise(**json.loads(line))
    os._exit(0)
"""


def start(script, *flags, **kwargs):
  """A running script; its output is piped, both streams as one."""
  return subprocess.Popen(
    [sys.executable, str(ROOT / script), *flags],
    **{
      "stdout": subprocess.PIPE,
      "stderr": subprocess.STDOUT,
      "text": True,
      **kwargs,
    },
  )


def run(script, *flags, **kwargs):
  """Runs a script that must succeed; returns what it printed."""
  process = start(script, *flags, **kwargs)
  output, _ = process.communicate()
  assert process.returncode == 0, output
  return output


@functools.cache
def _server():
  server = subprocess.Popen(
    [sys.executable, "-c", _SERVER.format(root=str(ROOT))],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    # Scripts buffer their output, as they do for a user.
    env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
  )
  atexit.register(server.communicate)  # Closing its input ends it.
  return server


class Fork:
  """A running script, in a fork of a process that has loaded TensorFlow.

  Args:
    script: path of a file, relative to the root.
    *flags: its arguments.
    cwd: the folder to run it in.
    stdin: text of its standard input.
    pipes: paths of named pipes for its standard input and output, instead.
    cores: numbers of the processor cores that it may use; None for all.

  Attributes:
    pid: process id.
  """

  def __init__(self, script, *flags, cwd=ROOT, stdin="", pipes=(), cores=None):
    self._folder = tempfile.TemporaryDirectory()
    self._pipe = os.path.join(self._folder.name, "status")
    os.mkfifo(self._pipe)
    self._streams = [
      pathlib.Path(self._folder.name, name) for name in ("in", "out", "err")
    ]
    for path, text in zip(self._streams, (stdin, "", ""), strict=True):
      path.write_text(text, encoding="utf-8")
    self._streams[: len(pipes)] = pipes
    command = {
      "argv": [ROOT / script, *flags],
      "cwd": cwd,
      "streams": self._streams,
      "status_pipe": self._pipe,
      "folder": self._folder.name,
      "cores": cores,
    }
    print(json.dumps(command, default=str), file=_server().stdin, flush=True)
    self.pid = int(_server().stdout.readline())

  def wait(self):
    """Its exit status, and what it wrote to each stream but named pipes."""
    status = int(pathlib.Path(self._pipe).read_text())
    texts = [
      path.read_text(encoding="utf-8") if path.is_file() else ""
      for path in self._streams[1:]
    ]
    self._folder.cleanup()
    return status, *texts


def fork(script, *flags, status=0, **kwargs):
  """Runs a script that must end with that status, see Fork.

  Returns:
    What it wrote to standard output, and to standard error.
  """
  found, out, err = Fork(script, *flags, **kwargs).wait()
  assert found == status, out + err
  return out, err


def kill_when(path, script, *flags, number=signal.SIGKILL, **kwargs):
  """Starts a script, signals it as soon as `path` is there; returns its log.

  SIGKILL must end it, SIGTERM with status 0, and Ctrl-C with status 130.
  """
  process = Fork(script, *flags, **kwargs)
  deadline = time.monotonic() + 120
  with contextlib.suppress(ProcessLookupError):  # Its log tells why it ended.
    while not path.exists() and time.monotonic() < deadline:
      time.sleep(0.005)
      os.kill(process.pid, 0)
    os.kill(process.pid, number)
  status, _, log = process.wait()
  saved = {signal.SIGTERM: 0, signal.SIGINT: 130}
  assert status == saved.get(number, -number), log
  return log


def tree(folder):
  """Every path below a folder with its size."""
  return {
    os.path.join(base, name): os.path.getsize(os.path.join(base, name))
    for base, _, names in os.walk(folder)
    for name in names
  }
