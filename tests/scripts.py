"""Runs scripts as a user does: in a process of their own."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent

# Imports the script once and forks for each command, which spares a table of
# failing commands TensorFlow's start-up each time.
_MANY = """
import json, os, sys
sys.path.insert(0, {root!r})
import common_flags, {script} as script
for number, argv in enumerate(json.load(sys.stdin)):
  child = os.fork()
  if not child:
    for stream, name in ((1, "out"), (2, "err")):
      os.dup2(os.open(f"{{number}}.{{name}}", os.O_WRONLY | os.O_CREAT), stream)
    sys.argv = ["{script}.py", *argv]
    common_flags.run(script.main, script.define_flags)
  status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  print(status, flush=True)
"""


def start(script, *flags, **kwargs):
  """A running script; its output is piped, both streams as one."""
  return subprocess.Popen(
    [sys.executable, str(ROOT / script), *flags],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    **kwargs,
  )


def run(script, *flags, **kwargs):
  """Runs a script that must succeed; returns what it printed."""
  process = start(script, *flags, **kwargs)
  output, _ = process.communicate()
  assert process.returncode == 0, output
  return output


def run_many(script, commands, cwd):
  """Runs a script with each list of flags.

  Returns:
    A list of (exit status, standard output, standard error).
  """
  name = script.removesuffix(".py")
  statuses = subprocess.run(
    [sys.executable, "-c", _MANY.format(root=str(ROOT), script=name)],
    input=json.dumps(commands),
    stdout=subprocess.PIPE,
    cwd=cwd,
    text=True,
    check=True,
  ).stdout.split()
  streams = [
    [
      pathlib.Path(cwd, f"{i}.{stream}").read_text()
      for stream in ("out", "err")
    ]
    for i in range(len(commands))
  ]
  return [
    (int(status), *texts)
    for status, texts in zip(statuses, streams, strict=True)
  ]


def tree(folder):
  """Every path below a folder with its size."""
  return {
    os.path.join(base, name): os.path.getsize(os.path.join(base, name))
    for base, _, names in os.walk(folder)
    for name in names
  }
