"""Encoders in eight bits: near float32, quantized once, measured."""

import json
import logging
import os
import shutil

import numpy as np
import onnx
import pytest
import scripts
import task_folders
import tiny_task

import bert
from bert import runtimes
from bert.errors import UserError

RUNTIMES = runtimes.RUNTIMES[1:]
TEXTS = ["Jim Henson was a puppeteer", "the mountains of the north", "city"]


def _int8_files(folder):
  return sorted((folder / "onnx").glob("*int8*.onnx"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_vectors_are_near(golden, goldens, tmp_path, runtime, caplog):
  folder = task_folders.write(tmp_path, "", golden, goldens)
  full = bert.load(folder, runtime=runtime, precision="float32")(TEXTS)
  small = bert.load(folder, runtime=runtime, precision="int8")(TEXTS)
  for a, b in zip(full, small, strict=True):
    a, b = a["vector"], b["vector"]
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert 0.999 < cosine < 1 - 1e-7  # Some bits are gone.
  (path,) = _int8_files(tmp_path)
  types = {
    tensor.data_type: tensor
    for tensor in onnx.load(path).graph.initializer
    if len(tensor.dims) == 2
  }
  assert {onnx.TensorProto.INT8, onnx.TensorProto.UINT8} & types.keys()
  # The second time, the file is read.
  before = path.stat().st_mtime_ns
  caplog.clear()
  with caplog.at_level(logging.INFO):
    model = bert.load(folder, runtime=runtime, precision="int8")
  assert "Quantized" not in caplog.text
  assert path.stat().st_mtime_ns == before
  again = model(TEXTS)
  np.testing.assert_array_equal(again[0]["vector"], small[0]["vector"])
  if runtime == "openvino":  # Other texts of the batch change nothing.
    alone = model(TEXTS[0])["vector"]
    np.testing.assert_allclose(alone, small[0]["vector"], atol=1e-4)
  # A damaged file in float32 is not quantized, but replaced.
  path.unlink()
  (full_path,) = (tmp_path / "onnx").glob("*.onnx")
  os.truncate(full_path, 1000)
  again = bert.load(folder, runtime=runtime, precision="int8")(TEXTS)
  np.testing.assert_array_equal(again[0]["vector"], small[0]["vector"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory, goldens):
  """The folder of a training with a development set."""
  files = tiny_task.make_files(tmp_path_factory.mktemp("files"), goldens)
  command = tiny_task.flags(
    files, files / "out", num_train_epochs=1, **tiny_task.HEAD_ONLY
  )
  scripts.fork("run_classifier.py", *command, "--do_train", "--do_eval")
  return files / "out"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_loss_of_accuracy_is_written(trained, tmp_path, runtime):
  folder = tmp_path / "out"
  shutil.copytree(trained, folder)
  bert.load(folder, runtime=runtime, precision="int8")
  (path,) = (folder / "onnx").glob(f"int8-{runtime}-*.json")
  found = json.loads(path.read_text())
  results = json.loads((trained / "eval_results.json").read_text())["results"]
  for name in ("eval_accuracy", "eval_loss"):
    assert found["float32"][name] == pytest.approx(results[name], abs=1e-3)
    assert found["int8"][name] == pytest.approx(results[name], abs=0.2)
  assert found["int8"]["eval_loss"] != found["float32"]["eval_loss"]
  # Rows of another length say nothing, but the model answers.
  path.unlink()
  model = bert.load(
    folder, runtime=runtime, precision="int8", max_seq_length=32
  )
  assert model(("the city", "Jim"))["label"]
  assert not path.exists()


def test_the_runtime_must_have_eight_bits(golden, goldens, tmp_path):
  folder = task_folders.write(tmp_path, "", golden, goldens)
  with pytest.raises(UserError, match="pass one, or --runtime=onnxruntime"):
    bert.load(folder, precision="int8")


@pytest.mark.parametrize("flag", ["--precision=int8", "--runtime=onnxruntime"])
def test_a_training_has_no_such_runtime(tmp_path, flag):
  _, log = scripts.fork(
    "run_classifier.py",
    "--task_name=MRPC",
    f"--output_dir={tmp_path / 'out'}",
    "--do_train",
    flag,
    status=2,
  )
  assert f"error: {flag} is for a trained model; omit it, or --do_train" in log
