"""The package: its modules, its commands, and imports without side effects."""

import json
import os
import re
import shutil
import subprocess

import pytest
import scripts

from training import commands

PROJECT = (scripts.ROOT / "pyproject.toml").read_text(encoding="utf-8")
MODULES = sorted(path.stem for path in scripts.ROOT.glob("*.py"))
FOLDERS = ["pipeline", "training", "reports", "tasks", "export"]

# Prints the flags that are defined once everything is imported.
IMPORT_ALL = """
import importlib, json, sys
from absl import flags

for name in json.loads(sys.argv[1]):
  importlib.import_module(name)
by_module = flags.FLAGS.flags_by_module_dict()
print([m for m in by_module if not m.startswith(("absl", "tensorflow"))])
"""


def _listed(key):
  (block,) = re.findall(rf"^{key} = \[(.*?)\]", PROJECT, re.M | re.S)
  return re.findall(r'"([\w.]+)"', block)


def test_all_modules_are_installed():
  assert _listed("py-modules") == MODULES
  assert _listed("packages") == FOLDERS


def test_every_script_is_a_command():
  is_script = '__name__ == "__main__"'
  assert sorted(commands.COMMANDS.values()) == [
    name
    for name in MODULES
    if is_script in (scripts.ROOT / f"{name}.py").read_text(encoding="utf-8")
  ]
  listed = re.findall(r'^([\w-]+) = "training\.commands:main"$', PROJECT, re.M)
  assert listed == sorted(commands.COMMANDS)


def test_imports_define_no_flag(tmp_path):
  path = tmp_path / "import_all.py"
  path.write_text(IMPORT_ALL, encoding="utf-8")
  names = [
    f"{folder}.{found.stem}"
    for folder in FOLDERS
    for found in (scripts.ROOT / folder).glob("*.py")
  ]
  out, _ = scripts.fork(path, json.dumps([*MODULES, *names]))
  assert out == "[]\n"


@pytest.mark.parametrize("name", sorted(commands.COMMANDS.values()))
def test_help_lists_the_shared_flags(name):
  script = f"{name}.py"
  everything, _ = scripts.fork(script, "--helpfull", status=1)
  shared = re.search(r"^training\.common_flags:\n((  .*\n)+)", everything, re.M)
  wanted = set(re.findall(r"^  (--\S+):", shared[1], re.M))
  text, _ = scripts.fork(script, "--help", status=1)
  assert wanted <= set(re.findall(r"^  (--\S+):", text, re.M))


@pytest.mark.parametrize(
  ("flags", "status", "text"),
  [
    ([], 2, "error: --model_dir is required"),
    (["--help"], 1, "--top_k: Number of pieces listed"),
  ],
)
def test_a_command_runs_its_script(tmp_path, flags, status, text):
  """As pip makes it: a file of that name, which calls `main`."""
  path = tmp_path / "bert-fill-mask"
  path.write_text("from training import commands\ncommands.main()\n")
  assert text in "".join(scripts.fork(path, *flags, status=status))


@pytest.mark.parametrize("installs_a_part", [False, True])
def test_an_install_that_failed_is_not_recorded(tmp_path, installs_a_part):
  """Also in a shell that continues after errors; .venv may still be whole."""
  shutil.copy(scripts.ROOT / "setup_venv.sh", tmp_path)
  (tmp_path / "requirements.txt").touch()
  packages = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
  packages.mkdir(parents=True)
  python = tmp_path / ".venv" / "bin" / "python"
  python.parent.mkdir(parents=True)
  install = f"sleep 0.1; touch {packages}/part" if installs_a_part else ":"
  python.write_text(
    f'#!/bin/sh\necho 3 11 0\n[ "$3" != install ] || {{ {install}; exit 1; }}\n'
  )
  python.chmod(0o755)
  done = subprocess.run(
    ["bash", "-c", "source ./setup_venv.sh; setup_venv requirements.txt"],
    cwd=tmp_path,
    env={**os.environ, "PYTHON": ""},
  )
  assert done.returncode == 1
  left = sorted(path.name for path in (tmp_path / ".venv").iterdir())
  assert left == ["bin", *["installing"] * installs_a_part, "lib"]
