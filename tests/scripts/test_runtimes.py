"""--do_eval and --do_predict with another runtime than TensorFlow."""

import json

import pytest
import scripts
import task_folders
import tiny_task


TEXTS = ["Jim Henson was a puppeteer", "the mountains of the north", "city"]
COLORS = ("red", "green", "blue")


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


def test_an_evaluation_tells_what_eight_bits_cost(tmp_path, golden, goldens):
  table, folder = tmp_path / "texts.tsv", tmp_path / "model"
  rows = [f"{text}\t{color}" for text, color in zip(TEXTS, COLORS, strict=True)]
  tiny_task.write_lines(table, ["text\tlabel", *rows])
  folder.mkdir()
  task_folders.write(folder, "classification", golden, goldens)
  command = ["run_classifier.py", "--task_name=custom", "--do_eval"]
  command += ["--do_predict", f"--dev_file={table}", f"--test_file={table}"]
  command += [f"--output_dir={folder}"]
  scripts.fork(*command)
  full = _results(folder)
  small = [*command, "--runtime=openvino", "--precision=int8"]
  _, log = scripts.fork(*small)
  assert "int8: eval_" in log
  _check_loss(folder, "openvino", full)
  # It is not measured again.
  _, log = scripts.fork(*small)
  assert "int8: eval_" not in log
