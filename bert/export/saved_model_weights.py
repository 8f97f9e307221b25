"""Reads the encoder's variables of SavedModels from TF-Hub and Keras.

    write_release("bert_en_uncased_L-12_H-768_A-12_4", "uncased")

No function of the SavedModel is loaded or run. The names are those of BERT on
TF-Hub, of TensorFlow's model garden, and the original's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import numpy as np
from absl import logging

import modeling
from bert.data import files
from bert.errors import UserError, plural
from bert.export.new_folder import new_folder
from bert.models import checkpoints, huggingface_names, model_folder, resolve

_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_CASE_KEY = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"

# How Keras' optimizers mark the names of their own variables.
_SLOT = re.compile(r"(?:^|/)(?:m|v|vhat|momentum|velocity|accumulator)/")

# Patterns for the ends of their names -> our names.
_TABLE = r"(?:^|/){}/embeddings$"
_NORM = r"(gamma|beta)$"
_DENSE = r"(kernel|bias)$"
_LAYER = r"(?:^|/)(?:transformer|encoder)/layer_(\d+)/"
_OURS = "bert/encoder/layer_{}/"
_NAMES = {
  _TABLE.format("word_embeddings"): "bert/embeddings/word_embeddings",
  _TABLE.format("position_embedding"): "bert/embeddings/position_embeddings",
  _TABLE.format("type_embeddings"): "bert/embeddings/token_type_embeddings",
  r"embedding_postprocessor/position_embeddings$": (
    "bert/embeddings/position_embeddings"
  ),
  r"embedding_postprocessor/type_embeddings$": (
    "bert/embeddings/token_type_embeddings"
  ),
  rf"(?:embeddings|embedding_postprocessor)/layer_norm/{_NORM}": (
    "bert/embeddings/LayerNorm/{}"
  ),
  rf"{_LAYER}self_attention/(query|key|value)/{_DENSE}": (
    f"{_OURS}attention/self/{{}}/{{}}"
  ),
  rf"{_LAYER}self_attention(?:_output|/attention_output)/{_DENSE}": (
    f"{_OURS}attention/output/dense/{{}}"
  ),
  rf"{_LAYER}self_attention_layer_norm/{_NORM}": (
    f"{_OURS}attention/output/LayerNorm/{{}}"
  ),
  rf"{_LAYER}intermediate/{_DENSE}": f"{_OURS}intermediate/dense/{{}}",
  rf"{_LAYER}output/{_DENSE}": f"{_OURS}output/dense/{{}}",
  rf"{_LAYER}output_layer_norm/{_NORM}": f"{_OURS}output/LayerNorm/{{}}",
  rf"(?:^|/)pooler_transform/{_DENSE}": "bert/pooler/dense/{}",
}


def is_saved_model(folder: str) -> bool:
  """Whether a folder contains a SavedModel."""
  return files.isfile(os.path.join(folder, "saved_model.pb"))


def write_release(folder: str, output_dir: str) -> str:
  """Writes the encoder of a SavedModel in the format of a release.

  The configuration follows from the shapes, unless there is a bert_config.json.
  The casing is that of the variable `do_lower_case`, of bert_config.json, or of
  the folder's name. Returns the number of tensors as text.
  """
  try:
    values, do_lower_case, num_heads = _read(folder)
    config = _find_config(folder, values, num_heads)
    for name, shape in modeling.variable_shapes(config).items():
      if name not in values or list(values[name].shape) != list(shape):
        raise ValueError(f"no {name} {list(shape)}")
  except ValueError as error:
    raise UserError(
      f"{folder} has not all variables of one BERT encoder under known names "
      f"({error}); pass another SavedModel"
    ) from error
  contents = {}
  vocab = os.path.join(folder, "assets", "vocab.txt")
  if files.exists(vocab):
    contents["vocab.txt"] = files.read_bytes(vocab)
  else:
    logging.warning(
      "%s has no assets/vocab.txt; copy the model's vocab.txt to the result",
      folder,
    )
  if do_lower_case is None:
    vocab = vocab if "vocab.txt" in contents else None
    do_lower_case = resolve.find_casing(folder, config, vocab)
  config.do_lower_case = do_lower_case
  contents["bert_config.json"] = config.to_json_string()
  with new_folder(output_dir) as new:
    checkpoints.write_release(new, values, contents)
  return plural(len(values), "tensor")


def _read(folder):
  """Our variables by name; whether text is lower-cased, or None; heads."""
  prefix = os.path.join(folder, "variables", "variables")
  checkpoint = checkpoints.Checkpoint(prefix)
  names = _names_by_key(checkpoint)
  known = set(names.values())
  values, num_heads, sources = {}, None, {}
  for key, name in names.items():
    ours = _our_name(name)
    is_slot = any(name[m.end() :] in known for m in _SLOT.finditer(name))
    if ours and not is_slot and not checkpoints.is_training_state(ours):
      if ours in sources:
        raise ValueError(f"two for {ours}: {sources[ours]} and {name}")
      sources[ours] = name
      value = checkpoint[key]
      if ours.endswith("self/query/kernel") and value.ndim == 3:
        num_heads = value.shape[1]
      values[ours] = _without_heads(ours, value)
  has_casing = _CASE_KEY in checkpoint
  return values, bool(checkpoint[_CASE_KEY]) if has_casing else None, num_heads


def _names_by_key(checkpoint) -> Mapping[str, str]:
  if _GRAPH_KEY not in checkpoint:
    return {name: name for name in checkpoint.shapes}
  from tensorflow.core.protobuf import trackable_object_graph_pb2

  graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
    checkpoint[_GRAPH_KEY]
  )
  return {
    attribute.checkpoint_key: attribute.full_name
    for node in graph.nodes
    for attribute in node.attributes
    if attribute.checkpoint_key in checkpoint
  }


def _our_name(name):
  if huggingface_names.tensor_name(name):
    return name
  for pattern, ours in _NAMES.items():
    match = re.search(pattern, name)
    if match:
      return ours.format(*match.groups())
  return None


def _without_heads(name, value):
  """A value in our shape: the axes of heads and of their size are one."""
  if name.endswith("bias") and value.ndim == 2:
    return value.reshape(-1)
  if name.endswith("/kernel") and value.ndim == 3:
    is_output = "attention/output" in name
    size = value.shape[-1] if is_output else value.shape[0]
    return value.reshape((-1, size) if is_output else (size, -1))
  return value


def _find_config(folder, values, num_heads):
  """The BertConfig beside a SavedModel, or else from its variables' shapes."""
  path = os.path.join(folder, "bert_config.json")
  if files.exists(path):
    return model_folder.load_config(folder)
  tables = [
    values.get(f"bert/embeddings/{name}_embeddings", np.zeros([0, 0]))
    for name in ("word", "position", "token_type")
  ]
  wide = values.get("bert/encoder/layer_0/intermediate/dense/bias", ())
  layers = {name.split("/")[2] for name in values if "/layer_" in name}
  hidden = tables[0].shape[1]
  if num_heads is None:
    # Not visible in variables of two axes; heads of released models have 64.
    num_heads = max(hidden // 64, 1)
    logging.warning(
      "%s does not contain the number of attention heads; if it is not %d, "
      "correct bert_config.json",
      folder,
      num_heads,
    )
  config = modeling.BertConfig(
    vocab_size=len(tables[0]),
    hidden_size=hidden,
    num_hidden_layers=len(layers),
    num_attention_heads=num_heads,
    intermediate_size=len(wide),
    max_position_embeddings=len(tables[1]),
    type_vocab_size=len(tables[2]),
  )
  logging.warning(
    "%s does not contain the activation; assuming hidden_act=%s; if it is "
    "another, put the model's bert_config.json there, and convert it again",
    folder,
    config.hidden_act,
  )
  config.check()
  return config
