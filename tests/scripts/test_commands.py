"""The package: its modules, its commands, and imports without side effects."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv

import pytest
import scripts
from source_modules import ALIASES, MODULES

ROOT = scripts.ROOT
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r'^(bert-[\w-]+) = "([\w.:]+)"$', PROJECT, re.M))

# Names of ours that a user's own files, beside his script, may have.
GENERIC = ["errors", "layers", "tasks", "training", "serve", "data", "utils"]

# Prints the flags that are defined once everything is imported.
IMPORT_ALL = """
import importlib, json, sys
from absl import flags

for name in json.loads(sys.argv[1]):
  importlib.import_module(name)
by_module = flags.FLAGS.flags_by_module_dict()
print([m for m in by_module if not m.startswith(("absl", "tensorflow"))])
"""

# A user's script, which uses ours beside modules of his own.
USES_OURS = """
import errors, layers, tasks, training, serve, data, utils
import pathlib

from bert.tokenization import FullTokenizer
import tokenization
import create_pretraining_data
from bert import run_classifier
import run_classifier as at_the_root

if __name__ == "__main__":
  assert FullTokenizer is tokenization.FullTokenizer
  assert run_classifier is at_the_root
  here = pathlib.Path(__file__).parent
  for module in (errors, layers, tasks, training, serve, data, utils):
    assert module.__file__.startswith(str(here)), module.__file__
  import sys
  sys.argv[1:] = [
    f"--input_file={here}/text.txt", f"--output_file={here}/out.tfrecord",
    f"--vocab_file={here}/vocab.txt", "--num_workers=2", "--dupe_factor=2",
  ]
  create_pretraining_data.command()
"""


def test_modules_of_the_root_are_those_of_the_package():
  listed = re.search(r"^py-modules = \[(.*?)\]", PROJECT, re.M | re.S)[1]
  assert sorted(re.findall(r"\w+", listed)) == sorted(ALIASES)
  for name in ALIASES:
    ours = importlib.import_module(f"bert.{name}")
    assert ours is importlib.import_module(name)


def test_every_script_is_a_command():
  listed = {target.removesuffix(":command") for target in COMMANDS.values()}
  made = {
    name
    for name, (folder, _) in MODULES.items()
    if name.startswith("bert.commands.")
    or (folder == "commands" and name in ALIASES)
  }
  assert listed == made
  launchers = {path.stem for path in ROOT.glob("*.py")} - {*ALIASES}
  assert {f"bert.commands.{name}" for name in launchers} <= listed


def test_imports_define_no_flag(tmp_path):
  path = tmp_path / "import_all.py"
  path.write_text(IMPORT_ALL, encoding="utf-8")
  out, _ = scripts.fork(path, json.dumps(sorted(MODULES)))
  assert out == "[]\n"


@pytest.mark.parametrize(
  ("flags", "status", "text"),
  [
    ([], 2, "error: --model_dir is required"),
    (["--help"], 1, "    bert-fill-mask --model_dir="),
  ],
)
def test_a_command_runs_its_script(tmp_path, flags, status, text):
  """As pip makes it: a file of that name, which calls the function."""
  path = tmp_path / "bert-fill-mask"
  module, function = COMMANDS["bert-fill-mask"].split(":")
  path.write_text(f"from {module} import {function}\n{function}()\n")
  assert text in "".join(scripts.fork(path, *flags, status=status))


def _write_users_folder(folder):
  """A folder with a script, and modules with names that ours have, too."""
  for name in GENERIC:
    path = folder / name / "__init__.py"
    if name in ("errors", "layers", "serve"):
      path = folder / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
  (folder / "script.py").write_text(USES_OURS)
  shutil.copy(ROOT / "tests/goldens/vocab.txt", folder)
  text = (
    "One line of text.\nAnd the next one.\n\nA second document.\nIts end.\n"
  )
  (folder / "text.txt").write_text(text)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
  """Folders of site-packages: of an editable install, and of a wheel."""
  folder = tmp_path_factory.mktemp("installed")
  clone = folder / "clone"
  clone.mkdir()
  for name in (*sorted(f"{n}.py" for n in ALIASES), "pyproject.toml", "bert"):
    copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
    copy(ROOT / name, clone / name)
  for path in (*ROOT.glob("requirements*.txt"), ROOT / "README.md"):
    shutil.copy(path, clone)
  sites = {}
  for kind in ("editable", "wheel"):
    venv.create(folder / kind, with_pip=False)
    (site,) = (folder / kind).glob("lib/*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    pip += ["--disable-pip-version-check", "--target", str(site)]
    pip += ["-e", "."] if kind == "editable" else ["."]
    done = subprocess.run(pip, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sites[kind] = site
  return sites


def test_a_wheel_installs_nothing_generic(installed):
  found = {
    path.stem if path.suffix == ".py" else path.name
    for path in installed["wheel"].iterdir()
    if not path.name.endswith(("-info", "__pycache__")) and path.name != "bin"
  }
  assert found == {"bert", *ALIASES}


@pytest.mark.parametrize("kind", ["clone", "editable", "wheel"])
def test_a_users_own_modules_do_no_harm(tmp_path, kind, installed):
  _write_users_folder(tmp_path)
  site = ROOT if kind == "clone" else installed[kind]
  # An editable install is a .pth file, which only a site folder reads.
  code = (
    f"import site, sys, runpy; site.addsitedir({str(site)!r}); "
    f"sys.path[0] = {str(tmp_path)!r}; "
    f"sys.argv = [{str(tmp_path / 'script.py')!r}]; "
    f"runpy.run_path(sys.argv[0], run_name='__main__')"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  assert (tmp_path / "out.tfrecord").stat().st_size > 0


def test_a_script_is_called_from_another_folder(tmp_path):
  _write_users_folder(tmp_path)
  flags = ["--input_file=text.txt", "--output_file=out", "--vocab_file="]
  flags[2] += "vocab.txt"
  scripts.run("create_pretraining_data.py", *flags, cwd=tmp_path)
  assert (tmp_path / "out").exists()
  text = scripts.start("serve.py", "--helpshort", cwd=tmp_path)
  output, _ = text.communicate()
  assert "--model_dir" in output


@pytest.mark.parametrize("installs_a_part", [False, True])
def test_an_install_that_failed_is_not_recorded(tmp_path, installs_a_part):
  """Also in a shell that continues after errors; .venv may still be whole."""
  shutil.copy(ROOT / "setup_venv.sh", tmp_path)
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
