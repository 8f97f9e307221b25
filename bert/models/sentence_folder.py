"""What a folder of sentence-transformers says about the vectors of texts.

    read("all-MiniLM-L6-v2")  # {"pooling": "mean", "normalize": True, ...}

`modules.json` lists the parts of such a model: the encoder, the pooling, and
perhaps a scaling to length 1. A dense layer is read if it is the pooler of the
encoder, as in LaBSE. Any other part is an error, because the vectors would
differ without it.
"""

import glob
import json
import os
import re
from collections.abc import Mapping

import numpy as np
from safetensors import numpy as safetensors

import modeling
from bert import strict_json
from bert.data import downloads, files
from bert.errors import UserError, listing, shortened
from bert.models import huggingface_config, huggingface_weights, model_folder

MODULES = "modules.json"
_CONFIG = "config_sentence_transformers.json"
_TRANSFORMER = "sentence_bert_config.json"

# Theirs have the same names, except that some end in "_token" or "_tokens".
_POOLINGS = ("cls", "mean", "max", "mean_sqrt_len")

# Settings of vectors that theirs do not have, with what they do.
_FIXED = {
  "layers": ((-1,), ()),
  "layer_combination": ("last",),
  "exclude_special": (False,),
  "long_text": ("head",),
}

# A dense layer behind the pooling, and its tensors if it is the pooler.
_DENSE = "Dense"
_POOLER = {
  "bert/pooler/dense/kernel": "linear.weight",
  "bert/pooler/dense/bias": "linear.bias",
}

_TANH = "torch.nn.modules.activation.Tanh"

# Begins the names of the older settings, which are true or false.
_MODE = "pooling_mode_"

# The keys of all files that are read below or do not change vectors, and the
# values of others that are supported.
_KNOWN = {
  *("idx", "name", "path", "type", "kwargs", "__version__", "requirements"),
  *("prompts", "default_prompt_name", "truncate_dim"),
  *("max_seq_length", "do_lower_case", "unpad_inputs"),
  *("pooling_mode", "include_prompt"),
  *("embedding_dimension", "word_embedding_dimension"),
  *("in_features", "out_features", "bias"),
}
_OUTPUT = {"method": "forward", "method_output_name": "last_hidden_state"}
_SUPPORTED = {
  "similarity_fn_name": ("cosine", "dot"),
  "model_type": ("SentenceTransformer",),
  "transformer_task": ("feature-extraction",),
  "modality_config": ({"text": _OUTPUT},),
  "module_input_name": ("sentence_embedding",),
  "module_output_name": ("sentence_embedding", "token_embeddings"),
  "activation_function": (_TANH,),
}


def read(folder: str) -> dict | None:
  """The fields of `features.VectorSettings`; None without a modules.json."""
  root = folder
  if os.path.basename(folder) == downloads.ENCODER_FOLDER:
    root = os.path.dirname(folder)
  path = os.path.join(root, MODULES)
  modules = files.read_json(path, list)
  if modules is None:
    return None
  files.check_types(path, {"its content": modules}, {"its content": list[dict]})
  try:
    for module in modules:
      files.check_types(path, module, {"type": str, "path": str})
      _check_keys(path, module)
    kinds = [m["type"].rpartition(".")[2] for m in modules]
    known = f"Transformer Pooling( {_DENSE})?( Normalize)?"
    if not re.fullmatch(known, " ".join(kinds)):
      raise ValueError(
        f"it has the parts {listing(kinds)}; only a Transformer, a Pooling and "
        f"perhaps a {_DENSE} and a Normalize are supported"
      )
    paths = {
      kind: os.path.join(root, m["path"])
      for kind, m in zip(kinds, modules, strict=True)
    }
    fields = _read_config(os.path.join(root, _CONFIG))
    for kind in kinds[1:]:
      config = os.path.join(paths[kind], huggingface_config.CONFIG_NAME)
      _check_keys(config, files.read_json(config, dict) or {})
    config = os.path.join(paths["Pooling"], huggingface_config.CONFIG_NAME)
    pooling = _read_pooling(config, fields["prompts"])
    if _DENSE in kinds:
      if pooling != "cls" or not _is_pooler(folder, paths[_DENSE]):
        raise ValueError(f"its {_DENSE} is not the pooler of the encoder")
      pooling = "pooled"
    return {
      "pooling": pooling,
      "normalize": "Normalize" in kinds,
      "max_seq_length": _read_length(folder),
      **fields,
    }
  except UserError:
    raise
  except (KeyError, ValueError) as error:
    raise UserError(f"{path}: {error}; pass another model") from error


def _check_keys(path, fields):
  """Raises UserError for a key or a value that would change vectors."""
  for name, value in fields.items():
    is_known = name in _KNOWN or name.startswith(_MODE)
    if value and not is_known and value not in _SUPPORTED.get(name, ()):
      shown = f"{name}={shortened(json.dumps(value))}"
      raise UserError(f"{path}: {shown} is not supported; pass another model")


def _read_pooling(path, prompts):
  known = {"pooling_mode": str | list[str], "include_prompt": bool}
  fields = files.read_json(path, dict, known)
  if fields is None:
    raise ValueError(f"the folder lacks {path}")
  found = fields.get("pooling_mode")
  if found is None:
    found = [n.removeprefix(_MODE) for n in fields if n.startswith(_MODE)]
    found = [name for name in found if fields[_MODE + name]]
  names = [found] if isinstance(found, str) else found
  shortest = [re.sub("_tokens?$", "", name) for name in names]
  if len(shortest) != 1 or shortest[0] not in _POOLINGS:
    raise ValueError(
      f"the pooling {shortened(json.dumps(found))} is not supported, but "
      f"{', '.join(_POOLINGS)}"
    )
  if fields.get("include_prompt") is False and prompts:
    raise ValueError("pooling without the prompts is not supported")
  return shortest[0]


def _is_pooler(folder, dense):
  """Whether the layer in a folder `dense` is the pooler of the encoder."""
  path = os.path.join(dense, huggingface_config.CONFIG_NAME)
  activation = (files.read_json(path, dict) or {}).get("activation_function")
  paths = [huggingface_weights.find_weights(path) for path in (folder, dense)]
  if None in paths or activation != _TANH:
    return False
  encoder, layer = map(huggingface_weights.Weights, paths)
  return _POOLER.keys() <= encoder.get_variable_to_shape_map().keys() and all(
    np.array_equal(
      huggingface_weights.exchanged(ours, encoder.get_tensor(ours)),
      layer.get_tensor(theirs),
    )
    for ours, theirs in _POOLER.items()
  )


def _read_length(folder):
  """The most word pieces of a text, with [CLS] and [SEP]."""
  known = {"max_seq_length": int | None, "do_lower_case": bool | None}
  # Older versions wrote sentence_roberta_config.json and others.
  pattern = os.path.join(glob.escape(folder), "sentence_*_config.json")
  path = next(iter(files.find(pattern)), "")
  fields = files.read_json(path, dict, known) or {}
  _check_keys(path, fields)
  config = model_folder.load_config(folder)
  if fields.get("do_lower_case") and not getattr(config, "do_lower_case", True):
    raise ValueError("do_lower_case with a cased tokenizer is not supported")
  length = fields.get("max_seq_length")
  if length is None:
    path = os.path.join(folder, huggingface_config.TOKENIZER_NAME)
    known = {"model_max_length": float | None}
    length = (files.read_json(path, dict, known) or {}).get("model_max_length")
  most = config.max_position_embeddings
  # Without a limit, their tokenizers have one of 1e30.
  return most if length is None else int(min(length, most))


def _read_config(path):
  """The prompts by name, the name of the default, similarity, and size."""
  known = {"prompts": dict[str, str] | None, "default_prompt_name": str | None}
  known |= {"similarity_fn_name": str | None, "truncate_dim": int | None}
  fields = files.read_json(path, dict, known) or {}
  _check_keys(path, fields)
  prompts = fields.get("prompts") or {}
  default = fields.get("default_prompt_name") or ""
  if default:  # It is not for queries and documents.
    prompts.setdefault("query", "")
    if prompts.keys().isdisjoint(("document", "passage", "corpus")):
      prompts["document"] = ""
    if default not in prompts:
      raise ValueError(f"there is no prompt {default!r}")
  return {
    "prompts": tuple(prompts.items()),
    "prompt": default,
    "similarity": fields.get("similarity_fn_name") or "cosine",
    "truncate_dim": fields.get("truncate_dim") or 0,
  }


def contents(
  settings: Mapping,
  config: modeling.BertConfig,
  weights: Mapping[str, np.ndarray],
) -> dict[str, str | bytes]:
  """The files of a folder for fields of `features.VectorSettings`, by path."""
  has_dense = settings["pooling"] == "pooled" and config.pooler_act == "tanh"
  if has_dense:
    settings = {**settings, "pooling": "cls"}
  for name, known in {**_FIXED, "pooling": _POOLINGS}.items():
    if settings[name] not in known:
      raise UserError(
        f"{name}={settings[name]} of task.json is unknown to "
        f"sentence-transformers; it needs {listing(known)}"
      )
  kinds = ["Transformer", "Pooling"]
  kinds += [_DENSE] if has_dense else []
  kinds += ["Normalize"] if settings["normalize"] else []
  pooling = {"word_embedding_dimension": config.hidden_size}
  for name in _POOLINGS:
    theirs = f"{_MODE}{name}_token" + "s" * (name != "cls")
    pooling[theirs] = name == settings["pooling"]
  # All of their versions know these names.
  types = (f"sentence_transformers.models.{kind}" for kind in kinds)
  found = {
    MODULES: [
      {"idx": n, "name": str(n), "path": f"{n}_{kind}" * (n > 0), "type": type_}
      for n, (kind, type_) in enumerate(zip(kinds, types, strict=True))
    ],
    f"1_Pooling/{huggingface_config.CONFIG_NAME}": pooling,
    _TRANSFORMER: {
      "max_seq_length": settings["max_seq_length"],
      "do_lower_case": False,
    },
    _CONFIG: {
      "prompts": dict(settings["prompts"]),
      "default_prompt_name": settings["prompt"] or None,
      "similarity_fn_name": settings["similarity"],
      "truncate_dim": settings["truncate_dim"] or None,
    },
  }
  dense = _dense_files(weights) if has_dense else {}
  texts = {name: strict_json.dumps(fields) for name, fields in found.items()}
  return {**texts, **dense}


def _dense_files(weights):
  """The files of a dense layer that is the pooler, by path."""
  tensors = {
    theirs: np.ascontiguousarray(
      huggingface_weights.exchanged(ours, weights[ours])
    )
    for ours, theirs in _POOLER.items()
  }
  size = len(tensors["linear.bias"])
  fields = {
    "in_features": size,
    "out_features": size,
    "bias": True,
    "activation_function": _TANH,
  }
  folder = f"2_{_DENSE}"
  return {
    f"{folder}/{huggingface_config.CONFIG_NAME}": strict_json.dumps(fields),
    f"{folder}/{huggingface_weights.WEIGHTS_NAME}": safetensors.save(tensors),
  }
