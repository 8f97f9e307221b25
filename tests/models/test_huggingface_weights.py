"""Weights in safetensors files: all their variants, and damaged ones."""

import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors import numpy as safetensors

import modeling
from bert.errors import UserError
from bert.models import checkpoints
from bert.models.huggingface_names import tensor_name, variable_name
from bert.models.huggingface_weights import Weights
from bert.tasks.pretraining import task as pretraining

# Their names of the tensors of a model with one layer and pre-training heads,
# with the shapes for H = 4, 8 wide, 9 words, 6 positions and 2 types.
TENSORS = {
  "bert.embeddings.word_embeddings.weight": [9, 4],
  "bert.embeddings.position_embeddings.weight": [6, 4],
  "bert.embeddings.token_type_embeddings.weight": [2, 4],
  "bert.embeddings.LayerNorm.weight": [4],
  "bert.embeddings.LayerNorm.bias": [4],
  "bert.encoder.layer.0.attention.self.query.weight": [4, 4],
  "bert.encoder.layer.0.attention.self.query.bias": [4],
  "bert.encoder.layer.0.attention.self.key.weight": [4, 4],
  "bert.encoder.layer.0.attention.self.key.bias": [4],
  "bert.encoder.layer.0.attention.self.value.weight": [4, 4],
  "bert.encoder.layer.0.attention.self.value.bias": [4],
  "bert.encoder.layer.0.attention.output.dense.weight": [4, 4],
  "bert.encoder.layer.0.attention.output.dense.bias": [4],
  "bert.encoder.layer.0.attention.output.LayerNorm.weight": [4],
  "bert.encoder.layer.0.attention.output.LayerNorm.bias": [4],
  "bert.encoder.layer.0.intermediate.dense.weight": [8, 4],
  "bert.encoder.layer.0.intermediate.dense.bias": [8],
  "bert.encoder.layer.0.output.dense.weight": [4, 8],
  "bert.encoder.layer.0.output.dense.bias": [4],
  "bert.encoder.layer.0.output.LayerNorm.weight": [4],
  "bert.encoder.layer.0.output.LayerNorm.bias": [4],
  "bert.pooler.dense.weight": [4, 4],
  "bert.pooler.dense.bias": [4],
  "cls.predictions.bias": [9],
  "cls.predictions.transform.dense.weight": [4, 4],
  "cls.predictions.transform.dense.bias": [4],
  "cls.predictions.transform.LayerNorm.weight": [4],
  "cls.predictions.transform.LayerNorm.bias": [4],
  "cls.seq_relationship.weight": [2, 4],
  "cls.seq_relationship.bias": [2],
}
CONFIG = modeling.BertConfig(9, 4, 1, 2, 8, "gelu", 0, 0, 6, 2)


@pytest.fixture(scope="module")
def values():
  """Dict from the name of each tensor to its value."""
  rng = np.random.default_rng(1)
  return {
    name: rng.normal(size=shape).astype(np.float32)
    for name, shape in TENSORS.items()
  }


def _write(path, values):
  path.write_bytes(safetensors.save(values))
  return str(path)


def _check(path, values):
  """The file holds these values, under our names and in our shapes."""
  checkpoint = checkpoints.Checkpoint(path)
  wanted = modeling.variable_shapes(CONFIG)
  wanted |= pretraining.variable_shapes(CONFIG)
  assert checkpoint.shapes == wanted
  for name, shape in wanted.items():
    found, theirs = checkpoint[name], values[tensor_name(name)]
    assert found.dtype == np.float32
    assert list(found.shape) == shape
    if name.endswith("/kernel"):
      theirs = theirs.T
    np.testing.assert_array_equal(found, theirs)


def test_every_name_has_a_counterpart():
  variables = {variable_name(name) for name in TENSORS}
  wanted = modeling.variable_shapes(CONFIG)
  wanted |= pretraining.variable_shapes(CONFIG)
  assert variables == wanted.keys()
  assert {tensor_name(name) for name in variables} == TENSORS.keys()
  for ours, theirs in {
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
  }.items():
    assert tensor_name(ours) == theirs
    assert variable_name(theirs) == ours
  for other in ("gpt2.pooler.dense.weight", "weight", "mlm_head.bias"):
    assert variable_name(other) is None
  for other in ("global_step", "albert/pooler/dense/kernel", "output"):
    assert tensor_name(other) is None


def _without_prefix(values):
  return {name.removeprefix("bert."): v for name, v in values.items()}


def _old_norms(values):
  return {
    name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
      "LayerNorm.bias", "LayerNorm.beta"
    ): value
    for name, value in values.items()
  }


def _with_decoder(values):
  return {
    **values,
    "cls.predictions.decoder.weight": values[
      "bert.embeddings.word_embeddings.weight"
    ],
    "cls.predictions.decoder.bias": values["cls.predictions.bias"],
    "bert.embeddings.position_ids": np.arange(6)[np.newaxis],
  }


def _with_decoder_bias_alone(values):
  values = _with_decoder(values)
  del values["cls.predictions.bias"]
  return values


@pytest.mark.parametrize(
  "change",
  [dict, _without_prefix, _old_norms, _with_decoder, _with_decoder_bias_alone],
)
def test_all_spellings_are_read(tmp_path, values, change):
  path = _write(tmp_path / "model.safetensors", change(values))
  _check(path, values)
  assert checkpoints.find_checkpoint(str(tmp_path)) == path


def _of_tensorflow(name):
  """The name that transformers' TensorFlow classes write; tried with 4.57."""
  *modules, last = name.split(".")
  if modules[0] == "cls":
    modules[0] = {"predictions": "mlm", "seq_relationship": "nsp"}[
      modules[1]
    ] + "___cls"
  is_table = modules[-1].endswith("_embeddings")
  if last == "weight" and modules[-1] != "word_embeddings":
    last = "embeddings" if is_table else "kernel"
  if modules[-1] == "LayerNorm":
    last = {"kernel": "gamma", "bias": "beta"}[last]
  return "/".join((*modules, f"{last}:0")).replace("layer/0/", "layer_._0/")


def test_what_tensorflow_classes_write_is_read(tmp_path, values):
  theirs = {_of_tensorflow(name): value for name, value in values.items()}
  assert "bert/encoder/layer_._0/output/dense/kernel:0" in theirs
  assert "mlm___cls/predictions/transform/LayerNorm/gamma:0" in theirs
  theirs = {
    name: np.ascontiguousarray(value.T) if "kernel" in name else value
    for name, value in theirs.items()
  }
  path = tmp_path / "model.safetensors"
  path.write_bytes(safetensors.save(theirs, {"format": "tf"}))
  _check(str(path), values)


def test_shards_are_read(tmp_path, values):
  names = sorted(values)
  index = {}
  for number in range(3):
    file = f"model-0000{number + 1}-of-00003.safetensors"
    part = {name: values[name] for name in names[number::3]}
    _write(tmp_path / file, part)
    index |= dict.fromkeys(part, file)
  path = tmp_path / "model.safetensors.index.json"
  path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
  _check(str(path), values)
  assert checkpoints.find_checkpoint(str(tmp_path)) == str(path)
  assert len(checkpoints.checkpoint_files(str(tmp_path))) == 4


def test_shorter_floats_are_widened(tmp_path, values):
  import ml_dtypes

  for dtype in (np.float16, np.float64, ml_dtypes.bfloat16):
    short = {name: value.astype(dtype) for name, value in values.items()}
    path = _write(tmp_path / "model.safetensors", short)
    wide = {name: value.astype(np.float32) for name, value in short.items()}
    _check(path, wide)


def test_other_tensors_keep_their_names(tmp_path, values):
  extra = {"adapter.weight": np.ones([3], np.float32)}
  path = _write(tmp_path / "model.safetensors", {**values, **extra})
  assert checkpoints.Checkpoint(path).shapes["adapter.weight"] == [3]


def test_an_untied_decoder_is_an_error(tmp_path, values):
  other = _with_decoder(values)
  other["cls.predictions.decoder.weight"] = np.zeros([9, 4], np.float32)
  path = _write(tmp_path / "model.safetensors", other)
  checkpoint = checkpoints.Checkpoint(path)
  with pytest.raises(UserError, match=r"decoder\.weight differs .* tied"):
    checkpoint.verify()


@pytest.mark.parametrize("length", [0, 5, 100, 3000])
def test_a_cut_file_is_an_error(tmp_path, values, length):
  content = safetensors.save(values)
  assert length < len(content)
  path = tmp_path / "model.safetensors"
  path.write_bytes(content[:length])
  with pytest.raises(UserError, match=r"model\.safetensors is damaged .*again"):
    checkpoints.Checkpoint(str(path)).verify()


@pytest.mark.parametrize(
  "offsets",
  [
    [(0, 8), (0, 8)],
    [(0, 8), (4, 12)],
    [(0, 8), (12, 20)],
    [(4, 12), (12, 20)],
    [(0, 8), (8, 16)],
  ],
)
def test_tensors_that_overlap_or_leave_gaps_are_an_error(tmp_path, offsets):
  """The file has 20 bytes; the format's own library refuses it, too."""
  header = {
    f"tensor{number}": {"dtype": "F32", "shape": [2], "data_offsets": pair}
    for number, pair in enumerate(offsets)
  }
  text = json.dumps(header).encode()
  path = tmp_path / "model.safetensors"
  path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(20))
  with pytest.raises(SafetensorError):
    safetensors.load_file(path)
  with pytest.raises(UserError, match=r"is damaged .* copy it again"):
    Weights(str(path))


def test_an_unknown_dtype_is_an_error(tmp_path):
  values = {"bert.pooler.dense.bias": np.arange(4, dtype=np.int8)}
  path = _write(tmp_path / "model.safetensors", values)
  with pytest.raises(UserError, match=r"type I8 are not .* float32"):
    Weights(path).get_tensor("bert/pooler/dense/bias")


@pytest.mark.parametrize(
  "content",
  [
    '{"weight_map": {"a": "../model.safetensors"}}',
    '{"weight_map": {"a": "/etc/passwd"}}',
    '{"weight_map": []}',
    "{",
  ],
)
def test_a_wrong_index_is_an_error(tmp_path, content):
  path = tmp_path / "model.safetensors.index.json"
  path.write_text(content)
  with pytest.raises(UserError, match=r"index\.json is damaged .*weight_map"):
    Weights(str(path))


def test_a_pickle_is_not_opened(tmp_path):
  (tmp_path / "pytorch_model.bin").write_bytes(b"no pickle at all")
  for path in (tmp_path, tmp_path / "pytorch_model.bin"):
    with pytest.raises(UserError, match=r"is a pickle.*convert it.*torch") as e:
      checkpoints.find_checkpoint(str(path))
    assert "\n" not in str(e.value)


def test_tf_model_h5_is_named_with_the_way(tmp_path):
  for name in ("config.json", "tf_model.h5"):
    (tmp_path / name).write_text("{}")
  with pytest.raises(
    UserError,
    match=r"tf_model\.h5 has a format .* transformers 4 .*: python -c",
  ) as error:
    checkpoints.find_checkpoint(str(tmp_path))
  compile(shlex.split(str(error.value).split("python -c ")[1])[0], "", "exec")


@pytest.mark.parametrize("name", ["plain", "it's $(touch x) \"`é\\"])
def test_the_command_for_a_pickle_can_be_pasted(tmp_path, name):
  """A shell runs it with stand-ins for the two packages."""
  folder = tmp_path / name
  packages = tmp_path / "packages"
  (packages / "safetensors").mkdir(parents=True)
  (packages / "torch.py").write_text(
    "def load(path, **_):\n  open(path).close()\n  return {}\n"
  )
  (packages / "safetensors" / "__init__.py").touch()
  (packages / "safetensors" / "torch.py").write_text(
    "def save_file(tensors, path, metadata):\n  open(path, 'x').close()\n"
  )
  folder.mkdir()
  (folder / "pytorch_model.bin").touch()
  with pytest.raises(UserError) as error:
    checkpoints.find_checkpoint(str(folder))
  _, command = str(error.value).split("installed: python ")
  subprocess.run(
    f"{shlex.quote(sys.executable)} {command}",
    shell=True,
    check=True,
    cwd=tmp_path,
    env={**os.environ, "PYTHONPATH": str(packages)},
  )
  assert (folder / "model.safetensors").exists()
  assert sorted(tmp_path.iterdir()) == sorted([folder, packages])


def test_a_missing_file_is_an_error(tmp_path):
  with pytest.raises(UserError, match=r"no checkpoint .*other\.safetensors"):
    checkpoints.find_checkpoint(str(tmp_path / "other.safetensors"))
