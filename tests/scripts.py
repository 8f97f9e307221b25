"""Runs scripts as a user does: in a process of their own."""

import atexit
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

# Imports a script once and forks for each command, which spares all but the
# first TensorFlow's start-up. A command is a line of JSON; the answers are the
# fork's process id and, at its end, its exit status.
_SERVER = """
import json, os, signal, sys, traceback
sys.path.insert(0, {root!r})
from training import startup
import {script} as script

def run(argv, cwd, streams):
  signal.alarm(300)  # What hangs dies, and fails its test.
  os.chdir(cwd)
  for stream, path in enumerate(streams):
    os.dup2(os.open(path, os.O_RDWR), stream)
  sys.argv = ["{script}.py", *argv]
  startup.run(script.main, script.define_flags)

for line in sys.stdin:
  child = os.fork()
  if not child:
    status = 1
    try:
      run(**json.loads(line))
    except SystemExit as stop:
      status = stop.code or 0
    except BaseException:
      traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking down the interpreter would copy most of what is shared with us.
    os._exit(status)
  print(child, flush=True)
  status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  print(status, flush=True)
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
def _server(script):
  name = script.removesuffix(".py")
  server = subprocess.Popen(
    [sys.executable, "-c", _SERVER.format(root=str(ROOT), script=name)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  atexit.register(server.communicate)  # The end of its input is its end.
  return server


class Fork:
  """A script at work in a fork of a process that has imported it already.

  Args:
    script: its file's name.
    *flags: of its command.
    cwd: the folder to run it in.
    stdin: what it reads there.

  Attributes:
    pid: id of its process.
  """

  def __init__(self, script, *flags, cwd=ROOT, stdin=""):
    self._server = _server(script)
    self._folder = tempfile.TemporaryDirectory()
    self._streams = [
      pathlib.Path(self._folder.name, name) for name in ("in", "out", "err")
    ]
    for path, text in zip(self._streams, (stdin, "", ""), strict=True):
      path.write_text(text, encoding="utf-8")
    command = {"argv": flags, "cwd": cwd, "streams": self._streams}
    print(json.dumps(command, default=str), file=self._server.stdin, flush=True)
    self.pid = int(self._server.stdout.readline())

  def wait(self):
    """Its exit status, and what it wrote to each stream."""
    status = int(self._server.stdout.readline())
    texts = [path.read_text(encoding="utf-8") for path in self._streams[1:]]
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


def kill_when(path, script, *flags):
  """Starts a script, kills it as soon as `path` is there; returns its log."""
  process = Fork(script, *flags)
  deadline = time.monotonic() + 120
  while not path.exists() and time.monotonic() < deadline:
    time.sleep(0.005)
  os.kill(process.pid, signal.SIGKILL)
  status, _, log = process.wait()
  assert status == -signal.SIGKILL, log
  return log


def tree(folder):
  """Every path below a folder with its size."""
  return {
    os.path.join(base, name): os.path.getsize(os.path.join(base, name))
    for base, _, names in os.walk(folder)
    for name in names
  }
