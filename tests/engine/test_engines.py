"""Runtimes: the golden model's outputs, from a file that is written once."""

import functools
import importlib.machinery
import os
import pathlib
import shutil
import sys
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from computed_task import ComputedTask, columns

import modeling
from bert import runtimes
from bert.data import files, records
from bert.engine import graph_encoder, predictor
from bert.errors import UserError
from bert.models import checkpoints
from bert.models.resolve import Model


@pytest.fixture
def model(tmp_path, golden, goldens, tokenizer):
  shutil.copytree(goldens / "model", tmp_path / "model")
  prefix = str(tmp_path / "model" / "bert_model.ckpt")
  return Model(golden.config, tokenizer, prefix)


def encode(bert, features):
  """Both layers of each token, and the pooled [CLS]."""
  layers = bert.get_all_encoder_layers()
  return {"tokens": layers[1] + 0 * layers[0], "cls": layers[1][:, 0]}


ENCODE = ComputedTask(
  encode, {"tokens": (records.POSITION, None), "cls": (None,)}
)


def pool(bert, features):
  return {"pooled": bert.get_pooled_output()}


POOL = ComputedTask(pool, {"pooled": (None,)})


def rows_of(golden):
  columns = {name: golden.inputs[name].tolist() for name in records.SEQUENCES}
  count = len(columns["input_ids"])
  return [{n: column[i] for n, column in columns.items()} for i in range(count)]


def exported(model):
  return sorted(
    os.listdir(
      os.path.join(os.path.dirname(model.checkpoint), graph_encoder.FOLDER)
    )
  )


@pytest.mark.parametrize("runtime", runtimes.RUNTIMES[1:])
def test_outputs_are_the_originals(golden, model, runtime):
  run = predictor.Predictor(
    model, ENCODE, batch_size=3, precision="float32", runtime=runtime
  )
  outputs = columns(run(rows_of(golden)))
  expected = golden.arrays["forward/encoder_layer_1"]
  np.testing.assert_allclose(outputs["cls"], expected[:, 0], atol=1e-4)
  for row, tokens in enumerate(outputs["tokens"]):
    size = int(golden.inputs["input_mask"][row].sum())
    np.testing.assert_allclose(tokens, expected[row, :size], atol=1e-4)
  (name,) = exported(model)
  assert name.startswith("layer_0+layer_1-")


@pytest.mark.parametrize("runtime", runtimes.RUNTIMES[1:])
def test_pairs_with_one_segment_type(golden, model, runtime):
  """Both texts get it, as in RoBERTa, which is trained without segments."""
  fields = golden.config.to_dict() | {"type_vocab_size": 1}
  model = model._replace(config=modeling.BertConfig.from_dict(fields))
  old = checkpoints.Checkpoint(model.checkpoint)
  values = {name: old[name] for name in old.shapes}
  table = "bert/embeddings/token_type_embeddings"
  values[table] = values[table][:1]
  checkpoints.write_checkpoint(model.checkpoint, values)
  rows = rows_of(golden)
  assert max(map(max, (row["segment_ids"] for row in rows))) == 1
  by_tensorflow, by_engine = (
    columns(
      predictor.Predictor(model, POOL, precision="float32", runtime=name)(rows)
    )
    for name in ("tensorflow", runtime)
  )
  np.testing.assert_allclose(
    by_engine["pooled"], by_tensorflow["pooled"], atol=1e-4
  )
  rows = [row | {"segment_ids": [0] * len(row["input_ids"])} for row in rows]
  without = columns(predictor.Predictor(model, POOL, precision="float32")(rows))
  np.testing.assert_array_equal(without["pooled"], by_tensorflow["pooled"])


def test_sequences_of_choices_are_rows(golden, model):
  rows = rows_of(golden)[:2]

  def compute(bert, features):
    count = tf.shape(features["input_ids"])[1]
    return {"pooled": tf.reshape(bert.get_pooled_output(), [-1, count, 32])}

  feature = records.Feature((2, 128), cut_axes=("choice", "position"))
  spec = dict.fromkeys(records.SEQUENCES, feature)
  task = ComputedTask(compute, {"pooled": ("choice", None)}, spec)
  run = predictor.Predictor(model, task, runtime="onnxruntime")
  (found,) = run([{name: [row[name] for row in rows] for name in rows[0]}])
  expected = golden.arrays["forward/pooled_output"][:2]
  np.testing.assert_allclose(found["pooled"], expected, atol=1e-4)


@pytest.mark.parametrize(
  ("asked", "known", "hint"),
  [
    (None, ["FP32", "BF16"], "bf16"),
    (None, ["FP32"], "f32"),
    ("float32", ["FP32", "BF16"], "f32"),
    ("bfloat16", ["FP32"], "bf16"),
  ],
)
def test_the_precision_of_openvino(
  golden, model, monkeypatch, asked, known, hint
):
  found = []

  class Core:
    def get_property(self, device, name):
      return {"OPTIMIZATION_CAPABILITIES": known}[name]

    def read_model(self, path):
      return path

    def compile_model(self, model, device, settings):
      found.append(settings["INFERENCE_PRECISION_HINT"])
      compiled = mock.Mock(inputs=[], outputs=[])
      output = golden.arrays["forward/pooled_output"][:1]
      compiled.return_value = {"pooled": output}
      return compiled

  spec = importlib.machinery.ModuleSpec("openvino", None)
  package = types.SimpleNamespace(Core=Core, __spec__=spec)
  monkeypatch.setitem(sys.modules, "openvino", package)
  run = predictor.Predictor(model, POOL, precision=asked, runtime="openvino")
  columns(run(rows_of(golden)[:1]))
  assert set(found) == {hint}


def test_bfloat16_is_near(golden, model):
  """8 bits of precision, in the hundreds of products behind an output."""
  run = predictor.Predictor(
    model, POOL, precision="bfloat16", runtime="openvino"
  )
  found = columns(run(rows_of(golden)))["pooled"]
  expected = golden.arrays["forward/pooled_output"]
  assert np.abs(found - expected).max() < 0.05


class TestFile:
  def load(self, model):
    return predictor.Predictor(model, POOL, runtime="onnxruntime")

  def test_is_written_once(self, golden, model):
    self.load(model)
    (name,) = exported(model)
    path = os.path.join(os.path.dirname(model.checkpoint), "onnx", name)
    before = os.stat(path)
    self.load(model)
    after = os.stat(path)
    assert (before.st_ino, before.st_mtime_ns) == (
      after.st_ino,
      after.st_mtime_ns,
    )

  @pytest.mark.parametrize("runtime", runtimes.RUNTIMES[1:])
  @pytest.mark.parametrize("size", [0, 1000])
  def test_a_damaged_one_is_replaced(self, golden, model, runtime, size):
    """As a full disk or a broken copy leaves it."""
    load = functools.partial(predictor.Predictor, model, POOL, runtime=runtime)
    expected = columns(load()(rows_of(golden)))["pooled"]
    (name,) = exported(model)
    path = os.path.join(os.path.dirname(model.checkpoint), "onnx", name)
    whole = os.path.getsize(path)
    os.truncate(path, size)
    found = columns(load()(rows_of(golden)))["pooled"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert os.path.getsize(path) == whole

  def test_follows_the_code(self, model, monkeypatch, tmp_path):
    self.load(model)
    before = exported(model)
    changed = tmp_path / "modeling.py"
    changed.write_text("# Changed.")
    monkeypatch.setattr(modeling, "__file__", str(changed))
    self.load(model)
    assert len(before) == 1 == len(set(exported(model)) - set(before))

  def test_follows_the_checkpoint(self, golden, model):
    """Other weights give other outputs, and replace the file."""
    rows = rows_of(golden)[:1]
    first = columns(self.load(model)(rows))["pooled"]
    before = exported(model)
    folder = pathlib.Path(model.checkpoint).parent / graph_encoder.FOLDER
    (folder / "int8-onnxruntime-0123.json").write_text("{}")  # Of older ones.
    old = checkpoints.Checkpoint(model.checkpoint)
    weights = {name: old[name] for name in old.shapes}
    weights["bert/pooler/dense/bias"] = np.full(32, 9, np.float32)
    checkpoints.write_checkpoint(model.checkpoint, weights)
    second = columns(self.load(model)(rows))["pooled"]
    assert np.abs(first - second).max() > 0.1
    assert len(exported(model)) == 1
    assert exported(model) != before

  @pytest.mark.parametrize("is_open", [True, False])
  def test_a_checkpoint_that_is_replaced_meanwhile(
    self, golden, model, monkeypatch, caplog, is_open
  ):
    """No file has other weights than its name tells."""
    rows = rows_of(golden)[:1]
    old = columns(self.load(model)(rows))["pooled"]
    shutil.rmtree(os.path.join(os.path.dirname(model.checkpoint), "onnx"))
    name, load = "bert/pooler/dense/bias", checkpoints.load_weights

    def replace(*args):
      weights = load(*args)
      values = {known: weights[known] for known in weights.shapes}
      values[name] = np.full(32, 9, np.float32)
      checkpoints.write_checkpoint(model.checkpoint, values)
      return weights if is_open else load(*args)

    with monkeypatch.context() as patch:
      patch.setattr(checkpoints, "load_weights", replace)
      during = columns(self.load(model)(rows))["pooled"]
    assert "was replaced while it was read" in caplog.text
    new = columns(self.load(model)(rows))["pooled"]
    assert np.abs(old - new).max() > 0.1
    np.testing.assert_allclose(during, old if is_open else new, atol=1e-5)

  def test_a_folder_that_cannot_be_written(self, golden, model, monkeypatch):
    def refuse(path):
      raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "makedirs", refuse)
    found = columns(self.load(model)(rows_of(golden)))["pooled"]
    expected = golden.arrays["forward/pooled_output"]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert not os.path.exists(
      os.path.join(os.path.dirname(model.checkpoint), "onnx")
    )


@pytest.mark.parametrize(
  ("runtime", "precision", "message"),
  [
    ("onnxruntime", "bfloat16", "--precision=bfloat16 is .* float32, int8, "),
    ("openvino", "float16", "--precision=float16 .* bfloat16, int8, "),
  ],
)
def test_a_precision_it_lacks(model, runtime, precision, message):
  with pytest.raises(UserError, match=message):
    predictor.Predictor(model, POOL, precision=precision, runtime=runtime)


def test_a_runtime_that_is_unknown(model):
  message = "^--runtime=onnx is not one of tensorflow, onnxruntime, openvino"
  with pytest.raises(UserError, match=message):
    predictor.Predictor(model, POOL, runtime="onnx")


@pytest.mark.parametrize("runtime", runtimes.RUNTIMES[1:])
def test_a_package_that_is_missing(model, monkeypatch, runtime):
  monkeypatch.setitem(sys.modules, runtime, None)
  message = f"^--runtime={runtime} needs .*requirements-export.txt$"
  with pytest.raises(UserError, match=message):
    predictor.Predictor(model, POOL, runtime=runtime)
