"""What README.md says can be done can be done."""

import re
import shutil
import subprocess
import sys

import pytest
import scripts

import variables

README = (scripts.ROOT / "README.md").read_text(encoding="utf-8")


def test_files_that_it_names_are_there():
  named = re.findall(r"`([\w/]+\.(?:py|sh|md|txt))`", README)
  ours = {name for name in named if name.endswith((".py", ".sh", ".md"))}
  assert {"modeling.py", "quickstart.sh", "CONTRIBUTING.md"} <= ours
  for name in ours:
    assert (scripts.ROOT / name).exists(), name
  modules = {path.name for path in scripts.ROOT.glob("*.py")}
  assert modules <= ours


def test_flags_that_it_names_are_there():
  command = [sys.executable, str(scripts.ROOT / "run_classifier.py"), "--help"]
  known = subprocess.run(command, capture_output=True, text=True).stdout
  named = set(re.findall(r"--([a-z]\w*)", README))
  assert len(named) > 15
  for flag in named:
    assert re.search(rf"--(\[no\])?{flag}\b", known) or flag == "v", flag


def test_its_python_runs(goldens, tmp_path, monkeypatch):
  section = README.split("## In Python")[1].split("\n## ")[0]
  code = "\n".join(
    line[4:] for line in section.splitlines() if line.startswith("    ")
  )
  for path in (goldens / "model").iterdir():
    shutil.copy(path, tmp_path)
  shutil.copy(goldens / "vocab.txt", tmp_path)
  monkeypatch.chdir(tmp_path)
  names = {}
  exec(compile(code, "README.md", "exec"), names)
  length = len(names["tokens"])
  model = names["model"]
  assert model.get_sequence_output().shape == [1, length, 32]
  assert model.get_pooled_output().shape == [1, 32]
  # The weights are the checkpoint's, not fresh ones.
  table = names["weights"]["bert/embeddings/word_embeddings"]
  assert model.get_embedding_table().numpy() == pytest.approx(table)
  assert variables.current_store().items() == []
