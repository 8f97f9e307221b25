"""What README.md says can be done can be done."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import scripts


README = (scripts.ROOT / "README.md").read_text(encoding="utf-8")


def test_files_that_it_names_are_there():
  named = re.findall(r"`([\w/]+\.(?:py|sh|md|txt))`", README)
  ours = {name for name in named if name.endswith((".py", ".sh", ".md"))}
  ours.remove("mood.py")  # The reader writes it.
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


def _code(heading):
  """The indented lines of a section, without those of a shell."""
  section = README.split(f"# {heading}\n")[1].split("\n#")[0]
  lines = section.splitlines()
  code = [line[4:] for line in lines if line.startswith("    ") or not line]
  return "\n".join(code)


def _copy_model(goldens, folder):
  for path in (*(goldens / "model").iterdir(), goldens / "vocab.txt"):
    shutil.copy(path, folder)


def test_its_task_of_ones_own_runs(goldens, tmp_path):
  _copy_model(goldens, tmp_path)
  (tmp_path / "mood.py").write_text(_code("Tasks"))
  for name in ("train", "dev"):
    lines = [f"I feel {mood} .\t{mood}" for mood in ("sad", "glad")] * 4
    (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
  flags = [
    "--task_name=mood",
    "--data_dir=.",
    "--vocab_file=vocab.txt",
    "--bert_config_file=bert_config.json",
    "--init_checkpoint=bert_model.ckpt",
    "--max_seq_length=16",
    "--train_batch_size=4",
    "--output_dir=out",
  ]
  subprocess.run(
    [sys.executable, "mood.py", *flags, "--do_train", "--do_eval"],
    check=True,
    capture_output=True,
    cwd=tmp_path,
    env={**os.environ, "PYTHONPATH": str(scripts.ROOT)},
  )
  assert "eval_accuracy" in (tmp_path / "out" / "eval_results.txt").read_text()


def test_its_python_runs(goldens, tmp_path, monkeypatch):
  code = _code("In Python")
  _copy_model(goldens, tmp_path)
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
