"""Tables of mistakes: commands that end with one line, and write nothing.

A mistake has two lines: the flags that differ from those of a good command, and
the parts of the line that names it, with three dots between them.

  --max_seq_length=129 --vocab_file=
    --max_seq_length=129 ... 128 positions ... lower it

A flag without "=" is true, and one with nothing behind it is left out.
"""

import shlex

import pytest
import scripts


def each_of(*tables):
  """Parametrizes a test over the mistakes of tables, as `mistake`."""
  lines = [line for t in tables for line in t.splitlines() if line.strip()]
  assert all(map(str.startswith, lines[1::2], ["  "] * len(lines)))
  rows = list(zip(lines[::2], lines[1::2], strict=True))
  return pytest.mark.parametrize("mistake", rows, ids=lines[::2])


def check(mistake, script, folder, good=(), cwd=None, **names):
  """Asserts that a command with a mistake ends with its line.

  Args:
    mistake: two lines, see above.
    script: path of the script, or None if the mistake is the whole command.
    folder: a folder, in which nothing may change.
    good: flags of a good command, as a dict, or as options like "--a=b".
    cwd: the folder to run it in.
    **names: texts in place of these names, in both lines.
  """
  flags, parts = mistake
  for name, text in names.items():
    flags, parts = (x.replace(name, str(text)) for x in (flags, parts))
  command = shlex.split(flags)
  if script:
    options = [word for word in command if word.startswith("--")]
    values = (_values(good) | _values(options)).items()
    command = [script, *(word for word in command if word not in options)]
    command += [f"--{k}={v}" for k, v in values if v not in ("", None)]
  before = scripts.tree(folder)
  _, log = scripts.fork(*command, status=2, cwd=cwd or scripts.ROOT)
  line = log.splitlines()[-1]
  assert line.startswith("error: ")
  assert "Traceback" not in log
  for part in parts.strip().split(" ... "):
    assert part in line, line
  assert scripts.tree(folder) == before


def _values(flags):
  """The values of flags by their names."""
  if isinstance(flags, dict):
    return flags
  parts = (flag.removeprefix("--").partition("=") for flag in flags)
  return {name: value if given else True for name, given, value in parts}
