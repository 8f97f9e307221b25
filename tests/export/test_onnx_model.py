"""ONNX files: onnxruntime and OpenVINO compute the predictions of the tasks."""

import sys

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import task_folders
import tensorflow as tf

import bert
from bert.data import files, records
from bert.errors import UserError
from bert.export import onnx_model
from bert.tasks.classification.task import ClassificationTask


@pytest.fixture(scope="module")
def folders(tmp_path_factory, golden, goldens):
  return {
    name: task_folders.write(
      tmp_path_factory.mktemp("folder"), name, golden, goldens
    )
    for name in ("", *task_folders.TASKS)
  }


def run_onnxruntime(content, inputs):
  session = onnxruntime.InferenceSession(
    content, providers=["CPUExecutionProvider"]
  )
  names = [output.name for output in session.get_outputs()]
  return dict(zip(names, session.run(None, inputs), strict=True))


def run_openvino(content, inputs):
  core = openvino.Core()
  model = core.compile_model(
    core.read_model(content), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
  )
  found = model(inputs)
  # OpenVINO leaves operators out, and their names pass to their inputs.
  names = [
    output.name for output in onnx.load_from_string(content).graph.output
  ]
  return {name: found[index] for index, name in enumerate(names)}


RUNTIMES = {"onnxruntime": run_onnxruntime, "openvino": run_openvino}


def inputs_of(golden, name):
  """The golden batch; for multiple choice, two choices of each row."""
  inputs = {n: golden.inputs[n].astype(np.int64) for n in records.SEQUENCES}
  if name != "multiple choice":
    return inputs
  paired = {n: np.stack([x, x[::-1]], axis=1) for n, x in inputs.items()}
  for values in paired.values():
    values[0, 1] = 0  # A row with one choice.
  return paired


# test_every_task.py has the other tasks by onnxruntime.
@pytest.mark.parametrize(
  ("name", "runtime"),
  [
    *((name, "openvino") for name in task_folders.TASKS),
    ("multiple choice", "onnxruntime"),
  ],
)
def test_predictions_are_those_of_the_task(golden, folders, name, runtime):
  inputs = inputs_of(golden, name)
  content = onnx_model.task_graph(folders[name]).to_bytes()
  onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
  found = RUNTIMES[runtime](content, inputs)
  features = {n: tf.constant(x, tf.int32) for n, x in inputs.items()}
  expected = bert.load(folders[name]).predictor.compute(features)
  assert found.keys() == expected.keys()
  assert found
  for output, values in found.items():
    np.testing.assert_allclose(
      values, expected[output], rtol=1e-6, atol=1e-4, err_msg=output
    )
  if name == "multiple choice":
    assert found["probabilities"][0].tolist() == [1, 0]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_encoder_is_the_originals(golden, folders, runtime):
  content = onnx_model.task_graph(folders[""]).to_bytes()
  found = RUNTIMES[runtime](content, inputs_of(golden, ""))
  is_token = golden.inputs["input_mask"][..., np.newaxis]
  expected = golden.arrays["forward/encoder_layer_1"]
  np.testing.assert_allclose(
    found["sequence_output"] * is_token, expected * is_token, atol=1e-4
  )
  np.testing.assert_allclose(
    found["pooled_output"], golden.arrays["forward/pooled_output"], atol=1e-4
  )


def test_int8_is_smaller_and_near(golden, folders, tmp_path, caplog):
  paths = {name: str(tmp_path / f"{name}.onnx") for name in ("full", "small")}
  for name, path in paths.items():
    is_int8 = name == "small"
    onnx_model.write_onnx(folders["classification"], path, is_int8)
  inputs = inputs_of(golden, "")
  content = {name: (tmp_path / f"{name}.onnx").read_bytes() for name in paths}
  assert len(content["small"]) < 0.5 * len(content["full"])
  full, small = (
    run_onnxruntime(content[name], inputs)["probabilities"] for name in paths
  )
  assert np.abs(full - small).max() < 0.1
  assert not caplog.records
  assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
    f"{name}.onnx" for name in paths
  )


def test_int8_in_a_remote_folder(golden, folders):
  """TensorFlow keeps those of ram:// in memory."""
  onnx_model.write_onnx(folders[""], "ram://onnx/model.onnx", is_int8=True)
  content = files.read_bytes("ram://onnx/model.onnx")
  assert run_onnxruntime(content, inputs_of(golden, ""))


@pytest.mark.parametrize(
  "compute",
  [tf.nn.relu, lambda x: x[:, 0], lambda x: x + x, lambda x: tf.zeros([2])],
)
@pytest.mark.parametrize("is_output", [False, True])
def test_a_head_needs_the_operations_of_ops(
  folders, monkeypatch, compute, is_output
):
  def head(self, ops, bert, features):
    if is_output:
      return {"logits": compute(bert.get_pooled_output())}
    return {"logits": ops.output_layer(compute(bert.get_pooled_output()), 3)}

  monkeypatch.setattr(ClassificationTask, "head", head)
  with pytest.raises(
    UserError, match=r"'classification' .* operations of `ops"
  ):
    onnx_model.task_graph(folders["classification"])


def test_what_cannot_be_written(folders, tmp_path, monkeypatch):
  path = str(tmp_path / "a.onnx")
  monkeypatch.setitem(sys.modules, "onnx", None)
  message = "needs the package onnx .*; run pip install -r requirements-export"
  with pytest.raises(UserError, match=message):
    onnx_model.write_onnx(folders[""], path)
  assert not list(tmp_path.iterdir())
