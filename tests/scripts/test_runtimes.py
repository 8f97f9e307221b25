"""--do_eval and --do_predict with another runtime than TensorFlow."""

import json

import pytest
import scripts
import task_folders
import tiny_task

from bert.tasks.features import VectorSettings
from bert.training import task_file

DATA = scripts.ROOT / "sample_data"
TEXTS = ["Jim Henson was a puppeteer", "the mountains of the north", "city"]
COLORS = ("red", "green", "blue")


def _write_tables(folder):
  """Development and test sets for the models of `task_folders`."""
  rows = [f"{text}\t{color}" for text, color in zip(TEXTS, COLORS, strict=True)]
  tiny_task.write_lines(folder / "texts.tsv", ["text\tlabel", *rows])


CASES = {
  "run_classifier.py": (
    "classification",
    "openvino",
    "texts.tsv",
    ["--task_name=custom", "--text_a_column=text", "--label_column=label"],
  ),
  "run_embeddings.py": (
    "",
    "onnxruntime",
    DATA / "embeddings/dev.csv",
    ["--text_a_column=question", "--text_b_column=answer"],
  ),
}


def _results(folder):
  return json.loads((folder / "eval_results.json").read_text())["results"]


def _check_loss(folder, runtime, full):
  """The file of the loss has the metrics of TensorFlow, and those of int8."""
  (path,) = (folder / "onnx").glob(f"int8-{runtime}-*.json")
  found = json.loads(path.read_text())
  assert found["float32"]
  for name, value in found["float32"].items():
    assert value == pytest.approx(full[name], abs=1e-3)
  small = _results(folder)
  assert found["int8"].items() <= small.items()
  assert "global_step" not in found["int8"]


@pytest.mark.parametrize("script", CASES)
def test_an_evaluation_tells_what_eight_bits_cost(
  tmp_path, golden, goldens, script
):
  kind, runtime, dev, more = CASES[script]
  _write_tables(tmp_path)
  folder = tmp_path / "model"
  folder.mkdir()
  task_folders.write(folder, kind, golden, goldens)
  if not kind:
    content = task_file.content("vectors", VectorSettings(32))
    (folder / task_file.NAME).write_text(content)
  command = [script, f"--output_dir={folder}", *more]
  command += [f"--{split}_file={tmp_path / dev}" for split in ("dev", "test")]
  command += ["--do_eval", "--do_predict"]
  scripts.fork(*command)
  full = _results(folder)
  _, log = scripts.fork(*command, f"--runtime={runtime}", "--precision=int8")
  assert "int8: eval_" in log
  _check_loss(folder, runtime, full)
  # It is not measured again.
  _, log = scripts.fork(*command, f"--runtime={runtime}", "--precision=int8")
  assert "int8: eval_" not in log


def test_answers_to_questions(tmp_path, golden, goldens):
  """run_squad.py scores predictions."""
  folder = tmp_path / "model"
  folder.mkdir()
  task_folders.write(folder, "squad", golden, goldens)
  squad = json.loads((goldens / "squad_v1.json").read_text())
  del squad["data"][0]["paragraphs"][2:]
  (tmp_path / "squad.json").write_text(json.dumps(squad))
  command = [
    *("run_squad.py", f"--output_dir={folder}", "--do_predict"),
    f"--predict_file={tmp_path / 'squad.json'}",
  ]
  scripts.fork(*command)
  full = _results(folder)
  scripts.fork(*command, "--runtime=onnxruntime", "--precision=int8")
  _check_loss(folder, "onnxruntime", full)
