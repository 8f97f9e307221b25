"""The original checkpoints of ALBERT and ELECTRA, by their variables' names.

The weights are those of goldens/variants, written under these names.
"""

import json
import re

import numpy as np
import pytest

import bert
import families
from bert.errors import UserError
from bert.export import huggingface
from bert.models import checkpoints, model_folder

GROUP = "bert/encoder/transformer/group_0/inner_group_0"

# The names of a layer, beside kernels and biases, and of what is around it.
ALBERT = {
  "bert/embeddings_project": "bert/encoder/embedding_hidden_mapping_in",
  "bert/encoder/layer_0/attention/self": f"{GROUP}/attention_1/self",
  "bert/encoder/layer_0/attention/output/dense": (
    f"{GROUP}/attention_1/output/dense"
  ),
  "bert/encoder/layer_0/attention/output/LayerNorm": f"{GROUP}/LayerNorm",
  "bert/encoder/layer_0/intermediate/dense": (
    f"{GROUP}/ffn_1/intermediate/dense"
  ),
  "bert/encoder/layer_0/output/dense": (
    f"{GROUP}/ffn_1/intermediate/output/dense"
  ),
  "bert/encoder/layer_0/output/LayerNorm": f"{GROUP}/LayerNorm_1",
}
DISCRIMINATOR = {"bert": "electra"}
GENERATOR = {
  "bert/embeddings": "electra/embeddings",
  "bert": "generator",
  "cls/predictions/output_bias": "generator_predictions/output_bias",
  "cls/predictions/transform": "generator_predictions",
}


def _renamed(name, names):
  for ours, theirs in names.items():
    if name == ours or name.startswith(f"{ours}/"):
      return theirs + name[len(ours) :]
  return name


@pytest.fixture
def write(tmp_path):
  """A function: the original's folder of a golden model."""

  def write(family, head, names, prefix="", **more):
    ours = tmp_path / "ours"
    huggingface.to_tensorflow(families.path(family, head), str(ours))
    weights = checkpoints.Checkpoint(str(ours / "bert_model.ckpt"))
    values = {
      prefix + _renamed(name, names): weights[name] for name in weights.shapes
    }
    for name in list(values):
      values[f"{name}/adam_m"] = np.zeros_like(values[name])
    values |= more
    folder = tmp_path / "original"
    checkpoints.write_release(str(folder), values, {})
    for path in ours.iterdir():
      if path.suffix in (".json", ".txt"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder

  return write


def test_albert(write):
  folder = write("albert", "ForMaskedLM", ALBERT, "module/")
  # Its configuration has another name, and its family is not in it.
  fields = json.loads((folder / "bert_config.json").read_text())
  del fields["family"]
  (folder / "bert_config.json").unlink()
  fields |= {"net_structure_type": 0, "inner_group_num": 1}
  (folder / "albert_config.json").write_text(json.dumps(fields))
  text = "The old [MASK] was closed."
  ours, theirs = (
    bert.load(path, "fill_mask")(text)
    for path in (folder, families.path("albert", "ForMaskedLM"))
  )
  assert ours == theirs
  assert model_folder.load_config(str(folder)).family == "albert"


def test_electras_discriminator(write):
  head = {"output_weights": "classifier/output_weights"}
  folder = write(
    "electra",
    "Model",
    DISCRIMINATOR | head,
    **{
      "generator/encoder/layer_0/output/dense/bias": np.zeros([8], np.float32),
      "discriminator_predictions/dense/bias": np.zeros([32], np.float32),
    },
  )
  texts = ["The old bridge", "one"]
  ours, theirs = (
    bert.load(path)(texts) for path in (folder, families.path("electra"))
  )
  np.testing.assert_equal(ours, theirs)
  with pytest.raises(UserError, match="not a pre-trained model with its heads"):
    bert.load(folder, "fill_mask")


def test_electras_generator(write):
  folder = write("electra", "ForMaskedLM", GENERATOR)
  names = checkpoints.Checkpoint(str(folder / "bert_model.ckpt")).shapes
  others = [name for name in names if not re.match("bert/|cls/", name)]
  assert not others
  text = "The old [MASK] was closed."
  ours, theirs = (
    bert.load(path, "fill_mask")(text)
    for path in (folder, families.path("electra", "ForMaskedLM"))
  )
  assert ours == theirs


def test_names_of_bert_stay(golden):
  shapes = checkpoints.Checkpoint(golden.checkpoint).shapes
  assert "bert/encoder/layer_1/output/dense/kernel" in shapes
