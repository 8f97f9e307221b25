"""What README.md says can be done can be done."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scripts

from tasks import glue
from tasks import labels as label_types

# What stands before the flags of a script that has several commands.
_COMMANDS = {"visualize.py": ["attention"]}
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
  flags = {"help", "v", "logdir"}  # Of absl's, and of TensorBoard's.
  flags |= {"project", "region", "temp_location"}  # Of Beam's.
  for path in scripts.ROOT.glob("*.py"):
    if "startup.run(" in path.read_text("utf-8"):
      # Of what a file defines, be it there or on a floor below.
      flags |= _flags_of(path.name)
  named = set(re.findall(r"--([a-z]\w*)", README))
  assert len(named) > 15
  assert named <= flags


def _flags_of(script):
  """The flags that a script's help lists."""
  known, _ = scripts.fork(
    script, *_COMMANDS.get(script, []), "--helpfull", status=1
  )
  return set(re.findall(r"--(?:\[no\])?(\w+)", known))


def test_its_tables_name_every_task():
  rows = re.findall(r"^\| `([A-Z][\w-]+)` \| (.*) \|$", _section("Tasks"), re.M)
  described = {name: cells for name, cells in rows if cells.count("|") == 3}
  assert described.keys() == {task.name for task in glue.TASKS.values()}
  for task in glue.TASKS.values():
    cells = described[task.name]
    for name in (task.submission or {}).values():
      assert f"`{name}`" in cells
    if task.dev:
      head = label_types.make_head(task.kind, task.labels)
      listed = re.sub(r"\W", "", cells.split("|")[2]).lower()
      for metric in {*task.metrics, *head.default_metrics}:
        assert metric in listed


def test_its_picture_is_there():
  for path in re.findall(r"!\[[^]]+\]\((.*?)\)", README):
    content = (scripts.ROOT / path).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 200_000


def _section(heading):
  return README.split(f"# {heading}\n")[1].split("\n#")[0]


def _blocks(heading):
  """The indented blocks of a section, each as one text."""
  found = re.findall(r"(?:^    .*\n(?:\n(?=    ))*)+", _section(heading), re.M)
  return [textwrap.dedent(block) for block in found]


def _code(heading):
  """The indented lines of a section, without those of a shell."""
  lines = _section(heading).splitlines()
  code = [line[4:] for line in lines if line.startswith("    ") or not line]
  return "\n".join(code)


def _copy_model(goldens, folder):
  for path in (*(goldens / "model").iterdir(), goldens / "vocab.txt"):
    shutil.copy(path, folder)


def test_its_task_of_ones_own_runs(goldens, tmp_path):
  _copy_model(goldens, tmp_path)
  (tmp_path / "mood.py").write_text(_code("A processor of your own"))
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


# In place of Python: leaves what a command gives it for a fork, which need not
# import TensorFlow first.
_RECORDER = """
python() {
  printf '%s\\n' "$@" > arguments
  cat > input
}
"""


def _run_block(block, folder, stdin):
  """Runs a block of shell in a folder; returns what its script printed."""
  subprocess.run(
    ["bash", "-e", "-c", _RECORDER + block],
    check=True,
    cwd=folder,
    env={**os.environ, "BERT_BASE_DIR": str(folder)},
    input=stdin,
    text=True,
  )
  if "python " not in block:
    return ""
  script, *arguments = (folder / "arguments").read_text().splitlines()
  stdin = (folder / "input").read_text()
  out, _ = scripts.fork(script, *arguments, stdin=stdin)
  return out


def test_its_recipe_for_own_data_runs(goldens, tmp_path, capsys):
  _copy_model(goldens, tmp_path)
  here = str(tmp_path / "reviews")
  train, ask = (
    [block.replace("/tmp/reviews", here) for block in _blocks(heading)]
    for heading in ("Your own data", "Ask the trained model")
  )
  for block in train:
    _run_block(block, tmp_path, "")
  results = json.loads(
    (tmp_path / "reviews/output/eval_results.json").read_text()
  )
  assert results["labels"].keys() == {"bad", "good"}
  assert np.sum(results["confusion_matrix"]) == 10
  assert (tmp_path / "reviews/output/report.html").exists()

  of_file, of_pipe, asked = (
    _run_block(block, tmp_path, "A text.\n") for block in ask[:3]
  )
  rows = [line.split("\t")[0] for line in of_file.splitlines()]
  assert rows == ["id", "0", "1"]
  assert of_file.startswith("id\tlabel\tbad\tgood\n")
  assert len(of_pipe.splitlines()) == 2
  assert re.match(r"> (bad|good) +\((bad|good) \d", asked)

  exec(compile(ask[3], "README.md", "exec"), {})
  label, probability = capsys.readouterr().out.split()
  assert label == ("good" if float(probability) > 0.5 else "bad")

  _run_block(ask[4], tmp_path, "")
  table = (tmp_path / "reviews/predictions/test_predictions.tsv").read_text()
  assert [row.split("\t")[0] for row in table.split("\n")] == [
    "id",
    "A1",
    "A2",
    "",
  ]


def test_its_pre_training_runs(goldens, tmp_path):
  _copy_model(goldens, tmp_path)
  shutil.copy(scripts.ROOT / "sample_text.txt", tmp_path)
  for block in _blocks("Pre-train BERT"):
    block = block.replace("/tmp", str(tmp_path))
    _run_block(block.replace("./", f"{tmp_path}/"), tmp_path, "")
  lines = (tmp_path / "pretraining_output/eval_results.txt").read_text()
  assert lines.startswith("global_step = 20\nloss = ")


def test_its_features_and_pages(goldens, tmp_path, monkeypatch):
  _copy_model(goldens, tmp_path)
  monkeypatch.chdir(tmp_path)
  (tmp_path / "uncased_L-12_H-768_A-12").symlink_to(tmp_path)
  shutil.copy(scripts.ROOT / "sample_text.txt", tmp_path)
  command, code = _blocks("Extract features")
  # The tiny model has two layers.
  command = command.replace("--layers=-1,-2,-3,-4", "--layers=-1,-2")
  pages = _blocks("See what a model does")
  for block in (command, *pages):
    _run_block(block.replace("/tmp", str(tmp_path)), tmp_path, "")
  assert (tmp_path / "output.jsonl").read_text().startswith('{"linex_index"')
  assert (tmp_path / "attention.html").exists()
  assert (tmp_path / "map/embeddings.png").exists()
  names = {}
  exec(compile(code, "README.md", "exec"), names)
  assert names["found"][0].tokens[0] == "[CLS]"


def test_its_questions_are_answered(goldens, tmp_path):
  _copy_model(goldens, tmp_path)
  for name in ("train", "dev"):
    shutil.copy(goldens / "squad_v1.json", tmp_path / f"{name}-v1.1.json")
  train, _, ask, code = _blocks("Answer questions: SQuAD")
  block = train.replace("/tmp", str(tmp_path)).replace("=384", "=128")
  block = block.replace("=128 --output", "=32 --output")  # The stride.
  block = block.replace("num_train_epochs=2.0", "num_train_epochs=0.25")
  _run_block(f"SQUAD_DIR={tmp_path}\n{block}", tmp_path, "")
  assert (tmp_path / "squad_base/answer.html").exists()
  (tmp_path / "text.txt").write_text("Jim Henson made puppets.")
  ask = ask.replace("/tmp", str(tmp_path))
  ask = ask.replace("text.txt", str(tmp_path / "text.txt"))
  assert re.search(r"^ +\d+\.\d%  ", _run_block(ask, tmp_path, ""), re.M)
  names = {}
  exec(compile(code.replace("/tmp", str(tmp_path)), "README.md", "exec"), names)
  assert names["best"].text


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
