"""--do_eval and --do_predict with another runtime than TensorFlow."""

import json

import numpy as np
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
  words = ["Jim B-X", "Henson I-X", "made O", "", "the O", "north B-X", ""]
  tiny_task.write_lines(folder / "words.txt", words)


CASES = {
  "run_classifier.py": (
    "classification",
    "openvino",
    "texts.tsv",
    ["--task_name=custom", "--text_a_column=text", "--label_column=label"],
  ),
  "run_ner.py": ("tagging", "onnxruntime", "words.txt", []),
  "run_multiple_choice.py": (
    "multiple choice",
    "onnxruntime",
    DATA / "multiple_choice/dev.jsonl",
    [],
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
  """run_squad.py scores predictions; in float32, they are TensorFlow's."""
  folder = tmp_path / "model"
  folder.mkdir()
  task_folders.write(folder, "squad", golden, goldens)
  command = [
    *("run_squad.py", f"--output_dir={folder}", "--do_predict"),
    f"--predict_file={goldens / 'squad_v1.json'}",
  ]
  scripts.fork(*command)
  names = ("predictions.json", "nbest_predictions.json")
  first = [json.loads((folder / name).read_text()) for name in names]
  full = _results(folder)
  scripts.fork(*command, "--runtime=onnxruntime")
  assert json.loads((folder / names[0]).read_text()) == first[0]
  second = json.loads((folder / names[1]).read_text())
  for key, answers in first[1].items():
    found, wanted = (
      [answer["probability"] for answer in part]
      for part in (second[key], answers)
    )
    np.testing.assert_allclose(found, wanted, atol=1e-4)
  scripts.fork(*command, "--runtime=onnxruntime", "--precision=int8")
  _check_loss(folder, "onnxruntime", full)
