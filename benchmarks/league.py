"""The same jobs here and with other libraries: the tables of docs/speed.md.

    python benchmarks/league.py [--rows=NAME,...] [--rounds=3] [--small]
        [--model=FOLDER] [--data=DIR] [--cache=DIR] [--clone=DIR]

Each job is a row of `league_rows.py`. All sides of a row read the same model
and texts, and each round runs every side in a process of its own, because the
speed of a shared machine changes. The first round also compares the results; a
side whose results differ, or that does not run, is listed with the reason, and
the exit status is 1. The table has the median and the range of the rounds, and
the median of the ratios to the first side of the row.

Other libraries are installed by pip into environments in the cache
(~/.cache/bert-league), about 8 GB. Variables of pip are respected, such as
PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu, which avoids CUDA.

--model is a folder of sentence-transformers, or a name for hf://; its default
is all-MiniLM-L6-v2. --data has glue/MRPC, conll2003 and text/*.txt as they are
distributed; MRPC is downloaded if it is missing. --small takes a tiny model,
the repository's own texts, and one round. --clone is another clone of this
repository, which runs as a further side of each row.
"""

import argparse
import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv

import machine
from league_inputs import make_inputs
from league_rows import Side, Unequal, make_rows

from bert.errors import UserError

ENVIRONMENTS = {
  "torch": ("sentence-transformers", "fastapi", "uvicorn"),
  "openvino": ("sentence-transformers[openvino]", "datasets"),
  "fastembed": ("fastembed",),
  "setfit": ("setfit==1.2.0",),
}

# What the table names the versions of.
PACKAGES = (
  *("tensorflow", "onnxruntime", "openvino", "torch", "transformers"),
  *("sentence-transformers", "fastembed", "setfit", "tokenizers", "fastapi"),
)


class Failed(Exception):
  """A side, or its environment, does not run; the text says why."""


class Run:
  """A finished process: its folder, seconds, peak in MiB, and numbers."""

  def __init__(self, folder, seconds, mebibytes):
    self.folder, self.mebibytes = folder, mebibytes
    self.numbers = {}
    for path in (f"{folder}.stdout", f"{folder}/eval_results.txt"):
      if os.path.exists(path):
        with open(path, encoding="utf-8") as reader:
          self._read(reader.read())
    self.seconds = self.numbers.get("seconds", seconds)

  def _read(self, text):
    """Takes `name = value` lines, and lines of JSON."""
    for name, value in re.findall(r"^(\w+) = ([-\d.e]+)$", text, re.MULTILINE):
      self.numbers[name] = float(value)
    for line in re.findall(r'^{".*}$', text, re.MULTILINE):
      self.numbers |= json.loads(line)


def execute(command, folder):
  """Runs a command, which may write to the new folder; returns its Run."""
  os.makedirs(folder)
  caches = {name: os.path.dirname(folder) for name in ("BERT_CACHE", "HF_HOME")}
  environment = {**os.environ, **caches, "HF_HUB_OFFLINE": "1"}
  # Our scripts would take this setting for that of the user.
  environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
  python, *_ = command
  command = [
    part.replace("{output}", folder).replace("{python}", python)
    for part in command
  ]
  with (
    open(f"{folder}.stdout", "w") as stdout,
    open(f"{folder}.stderr", "w") as stderr,
  ):
    start = time.perf_counter()
    process = subprocess.Popen(
      command, stdout=stdout, stderr=stderr, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
  if status:
    raise Failed(last_line(f"{folder}.stderr"))
  return Run(folder, seconds, usage.ru_maxrss / 1024)


def last_line(path):
  """The last line of a log: of an error, its message."""
  with open(path, encoding="utf-8", errors="replace") as reader:
    lines = [line.strip() for line in reader if line.strip()]
  return lines[-1] if lines else "no message"


class League:
  """What all rows share: environments, prepared files, and the turns."""

  def __init__(self, cache, work, rounds):
    self._cache, self._work, self._rounds = cache, work, rounds
    self._count, self._made, self.failures = 0, {}, 0
    self.used = {sys.executable: ""}

  def _once(self, key, make):
    """What `make` returned, or how it failed, the first time."""
    if key not in self._made:
      try:
        self._made[key] = make()
      except Failed as error:
        self._made[key] = error
    if isinstance(self._made[key], Failed):
      raise self._made[key]
    return self._made[key]

  def python(self, name):
    """The Python of an environment, which is made if it is missing."""
    return self._once(name, lambda: self._make_environment(name))

  def _make_environment(self, name):
    if not name:
      return sys.executable
    folder = os.path.join(self._cache, name)
    python, complete = f"{folder}/bin/python", f"{folder}/complete"
    if not os.path.exists(complete):
      log(f"installing {', '.join(ENVIRONMENTS[name])}")
      venv.create(folder, clear=True, with_pip=True)
      pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
      self.execute([*pip, *ENVIRONMENTS[name]])
      # Unless it fits the build of PyTorch, transformers is not imported.
      self.execute([*pip[:3], "uninstall", "--yes", "torchvision"])
      open(complete, "w").close()
    self.used[python] = name
    return python

  def execute(self, command):
    """Runs a command in a new folder."""
    self._count += 1
    return execute(command, f"{self._work}/{self._count}")

  def start(self, side, number):
    """Runs a side; returns its Run."""
    for environment, *command in side.prepare:
      prepare = (self.python(environment), *command)
      self._once(prepare, functools.partial(self.execute, prepare))
    command = [part.replace("{round}", f"{number}") for part in side.command]
    return self.execute([self.python(side.environment), *command])

  def measure(self, name, row):
    """Lists of Runs of the sides that work, and remarks about all sides."""
    sides = [side for side in row.sides if not side.absent]
    remarks = {x.name: f"not measured: {x.absent}" for x in row.sides}
    runs = {side.name: [] for side in sides}
    for number in range(1, self._rounds + 1):
      for side in [*sides]:
        try:
          own = self.start(side, number)
          log(f"{name}: {side.name}: {own.seconds:.1f} s")
          runs[side.name].append(own)
          if number == 1:
            first, check = runs[sides[0].name][0], side.check
            is_compared = check and own is not first
            remarks[side.name] = check(self, first, own) if is_compared else ""
        except (Failed, Unequal) as error:
          self.failures += 1
          log(f"{name}: {side.name}: {error}")
          remarks[side.name] = f"not measured: {error}"
          del runs[side.name]
          if side is sides[0]:
            return {}, remarks  # There is nothing to compare with.
          sides.remove(side)
      if number > 1:
        for found in runs.values():
          shutil.rmtree(found[-1].folder)
    return runs, remarks


def log(line):
  print(line, file=sys.stderr, flush=True)


def spread(values, form):
  """The median, and the range if there are several values."""
  text = format(statistics.median(values), form)
  if len(values) > 1:
    text += f" ({min(values):{form}} to {max(values):{form}})"
  return text


def lines_of(row, runs, remarks):
  """The Markdown of a row: a line for each side."""
  job = row.title
  for side in row.sides:
    found, remark = runs.get(side.name), remarks[side.name]
    cells = [job, side.name, "", "", "", remark]
    if found:
      first = runs[row.sides[0].name]
      pairs = zip(found, first, strict=True)
      ratios = [own.seconds / ours.seconds for own, ours in pairs]
      metrics = [
        f"{label} {spread([run.numbers[name] for run in found], '.3g')}"
        for name, label in row.metrics.items()
        if name in found[0].numbers
      ]
      memory = statistics.median(run.mebibytes for run in found)
      cells[2] = spread([run.seconds for run in found], ".3g")
      cells[3] = "" if found is first else f"{statistics.median(ratios):.2f}"
      cells[4] = f"{memory:,.0f}"
      cells[5] = "; ".join(filter(None, [*metrics, remark]))
    yield f"| {' | '.join(cells)} |"
    job = ""


def versions(python):
  """The versions of PACKAGES that an environment has, in one line."""
  program = (
    "import importlib.metadata as m, sys\n"
    "found = {d.name.lower().replace('_', '-'): d.version"
    " for d in m.distributions()}\n"
    "print(', '.join(f'{n} {found[n]}' for n in sys.argv[1:] if n in found))"
  )
  command = [python, "-c", program, *PACKAGES]
  return subprocess.check_output(command, text=True).strip()


def parse_flags():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("--rows", default="")
  parser.add_argument("--rounds", type=int)
  parser.add_argument("--small", action="store_true")
  default = "hf://sentence-transformers/all-MiniLM-L6-v2"
  parser.add_argument("--model", default=default)
  parser.add_argument("--data", default="")
  parser.add_argument("--clone", default="")
  cache = os.path.expanduser("~/.cache/bert-league")
  parser.add_argument("--cache", default=cache)
  return parser.parse_args()


def with_clone(row, clone):
  """The row with the other clone as its second side."""
  first, *others = row.sides
  command = [part.replace(machine.ROOT, clone) for part in first.command]
  side = Side(clone, command, prepare=first.prepare)
  return row._replace(sides=[first, side, *others])


def main():
  flags = parse_flags()
  start = time.perf_counter()
  with tempfile.TemporaryDirectory() as work:
    rounds = flags.rounds or (1 if flags.small else 3)
    league = League(os.path.abspath(flags.cache), work, rounds)
    inputs = make_inputs(flags, f"{work}/inputs")
    rows = make_rows(inputs)
    names = flags.rows.split(",") if flags.rows else list(rows)
    if unknown := [name for name in names if name not in rows]:
      known = ", ".join(rows)
      raise UserError(f"--rows={unknown[0]}: no such row; pass some of {known}")
    print("| job | side | seconds | ratio | memory, MiB | results |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in names:
      row = with_clone(rows[name], flags.clone) if flags.clone else rows[name]
      print(*lines_of(row, *league.measure(name, row)), sep="\n", flush=True)
  print(f"\n{machine.describe()}")
  for python, name in league.used.items():
    print(f"{name or 'here'}: {versions(python)}")
  log(f"{(time.perf_counter() - start) / 60:.0f} minutes")
  if league.failures:
    raise Failed("not all sides ran with equal results")


if __name__ == "__main__":
  try:
    main()
  except (Failed, UserError) as error:
    sys.exit(f"error: {error}")
