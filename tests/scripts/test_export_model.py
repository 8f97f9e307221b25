"""What is wrong with flags and folders is one line, and leaves nothing."""

import json
import shutil

import pytest
import scripts

BAD = {
  "no output": ({"output_dir": None}, ["--output_dir is required"]),
  "no model": (
    {"model_dir": "FILES"},
    ["FILES contains no bert_config.json", "pass the folder"],
  ),
  "a misspelt release": (
    {"model_dir": "uncased_L-2_H-128_A-4"},
    ["there is no folder uncased", "did you mean 'uncased_L-2_H-128_A-2'?"],
  ),
  "an output that is there": (
    {"output_dir": "FILES/model"},
    ["error: FILES/model is not an empty folder; pass the path of a new one"],
  ),
  "an output below a file": (
    {"output_dir": "FILES/model/vocab.txt/out"},
    ["--output_dir=FILES/model/vocab.txt/out", "is not a writable folder"],
  ),
  "integers in a SavedModel": (
    {"quantize": "dynamic"},
    ["--quantize=dynamic: --format=saved_model has none"],
  ),
  "half precision in ONNX": (
    {"quantize": "float16", "format": "onnx"},
    ["--quantize=float16: --format=onnx has none or dynamic"],
  ),
  "an encoder in LiteRT": (
    {"part": "encoder", "format": "tflite"},
    ["--part=encoder: --format=tflite has task; pass that"],
  ),
  "too long rows": (
    {"part": "preprocess", "max_seq_length": 999},
    ["--max_seq_length=999", "128 positions", "lower it"],
  ),
  "a damaged task": (
    {"model_dir": "FILES/damaged"},
    ["FILES/damaged/task.json is damaged", "copy it again"],
  ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A release, and folders of tasks."""
  folder = tmp_path_factory.mktemp("files")
  shutil.copytree(goldens / "model", folder / "model")
  shutil.copy(goldens / "vocab.txt", folder / "model")
  for name, fields in (
    ("damaged", {"task": "squad", "max_seq_length": "long"}),
  ):
    shutil.copytree(folder / "model", folder / name)
    (folder / name / "task.json").write_text(json.dumps(fields))
  return folder


@pytest.mark.parametrize("part", ["task", "encoder"])
def test_a_saved_model_has_its_configuration(files, tmp_path, part):
  """Its variables tell neither the activation nor, in this case, the heads."""
  model = tmp_path / "model"
  shutil.copytree(files / "model", model)
  fields = json.loads((model / "bert_config.json").read_text())
  wanted = {**fields, "hidden_act": "relu", "do_lower_case": False}
  (model / "bert_config.json").write_text(json.dumps(wanted))
  what = "the model" if part == "task" else "the part encoder"
  for script, flag, source, target, line in (
    ("export_model.py", f"--part={part}", "model", "saved", what),
    ("convert_checkpoint.py", "--to=tensorflow", "saved", "back", tmp_path),
  ):
    _, log = scripts.fork(
      script,
      flag,
      f"--model_dir={tmp_path / source}",
      f"--output_dir={tmp_path / target}",
    )
    assert f"Wrote {line}" in log
  found = json.loads((tmp_path / "back" / "bert_config.json").read_text())
  assert found == wanted
  vocabulary = tmp_path / "saved" / "assets.extra" / "vocab.txt"
  assert vocabulary.exists() == (part == "task")  # For rows.


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(files, tmp_path, name):
  changes, wanted = BAD[name]
  values = {"model_dir": "FILES/model", "output_dir": tmp_path / "out/new"}
  command = [
    f"--{flag}={value}".replace("FILES", str(files))
    for flag, value in {**values, **changes}.items()
    if value is not None
  ]
  before = scripts.tree(files)
  _, error = scripts.fork("export_model.py", *command, status=2)
  line = error.splitlines()[-1]
  assert line.startswith(("error: ", "FATAL Flags parsing error"))
  for text in wanted:
    assert text.replace("FILES", str(files)) in line
  assert scripts.tree(files) == before
  assert scripts.tree(tmp_path) == {}
