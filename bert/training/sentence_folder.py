"""What a folder of sentence-transformers says about the vectors of texts.

    read("all-MiniLM-L6-v2")  # {"pooling": "mean", "normalize": True, ...}

`modules.json` lists the parts of such a model: the encoder, the pooling, and
perhaps a scaling to length 1. Any other part is an error, because the vectors
would differ without it.
"""

import json
import os
import re
from collections.abc import Mapping

import modeling
from bert.errors import UserError, listing, shortened
from bert.data import files
from bert.training import huggingface_config, model_folder

MODULES = "modules.json"
_PROMPTS = "config_sentence_transformers.json"
_TRANSFORMER = "sentence_bert_config.json"

# Theirs have the same names, except that some end in "_token" or "_tokens".
_POOLINGS = ("cls", "mean", "max", "mean_sqrt_len")

# Settings of vectors that theirs do not have, with what they do.
_FIXED = {
  "layers": ((-1,),),
  "layer_combination": ("last",),
  "exclude_special": (False,),
  "long_text": ("head",),
}

# Begins the names of the older settings, which are true or false.
_MODE = "pooling_mode_"


def read(folder: str) -> dict | None:
  """The settings of vectors in a folder; None if it has no modules.json.

  They are `pooling`, `normalize`, `max_seq_length`, `prompts` and `prompt` of
  `features.VectorSettings`.

  Raises:
    UserError: a file is damaged, or the model has parts that are unknown here.
  """
  path = os.path.join(folder, MODULES)
  modules = files.read_json(path, list)
  if modules is None:
    return None
  try:
    parts = [(m["type"].rpartition(".")[2], m["path"]) for m in modules]
    if not all(isinstance(place, str) for _, place in parts):
      raise TypeError("path is no text")
  except (AttributeError, KeyError, TypeError) as error:
    raise UserError(files.damaged(path, "a type or path is wrong")) from error
  kinds = [kind for kind, _ in parts]
  if kinds not in (
    ["Transformer", "Pooling"],
    ["Transformer", "Pooling", "Normalize"],
  ):
    raise UserError(
      f"{path} has the parts {listing(kinds)}; only a Transformer, a Pooling "
      f"and perhaps a Normalize are supported: pass another model"
    )
  if parts[0][1]:
    raise UserError(
      f"{path}: the Transformer in {parts[0][1]} is not supported; save the "
      f"model again with sentence-transformers"
    )
  prompts = _read_prompts(os.path.join(folder, _PROMPTS))
  config = os.path.join(folder, parts[1][1], huggingface_config.CONFIG_NAME)
  return {
    "pooling": _read_pooling(config, prompts["prompts"]),
    "normalize": "Normalize" in kinds,
    "max_seq_length": _read_length(folder),
    **prompts,
  }


def _read_pooling(path, prompts):
  """The name of the pooling in its config.json."""
  fields = files.read_json(path, dict)
  if fields is None:
    raise UserError(f"{path} is missing; copy the whole folder of the model")
  found = fields.get("pooling_mode")
  if found is None:
    found = [n.removeprefix(_MODE) for n in fields if n.startswith(_MODE)]
    found = [name for name in found if fields[_MODE + name]]
  names = [found] if isinstance(found, str) else found
  shortest = [re.sub("_tokens?$", "", str(name)) for name in names or ()]
  if len(shortest) != 1 or shortest[0] not in _POOLINGS:
    raise UserError(
      f"{path}: the pooling {shortened(json.dumps(found))} is not supported; "
      f"pass a model with one of {', '.join(_POOLINGS)}"
    )
  if fields.get("include_prompt") is False and prompts:
    raise UserError(
      f"{path}: include_prompt=false, which leaves the prompts out of the "
      f"pooling, is not supported; pass another model"
    )
  return shortest[0]


def _read_length(folder):
  """The most word pieces of a text, with [CLS] and [SEP]."""
  path = os.path.join(folder, _TRANSFORMER)
  fields = files.read_json(path, dict) or {}
  config = model_folder.load_config(folder)
  if fields.get("do_lower_case") and not getattr(config, "do_lower_case", True):
    raise UserError(
      f"{path}: do_lower_case=true with a cased tokenizer is not supported; "
      f"pass another model"
    )
  length = fields.get("max_seq_length")
  if length is None:
    path = os.path.join(folder, huggingface_config.TOKENIZER_NAME)
    length = (files.read_json(path, dict) or {}).get("model_max_length")
  most = config.max_position_embeddings
  if length is None:
    return most
  # Without a limit, their tokenizers have one of 1e30.
  if type(length) not in (int, float) or not length >= 3:
    raise UserError(
      files.damaged(path, f"the maximum length is {shortened(repr(length))}")
    )
  return int(min(length, most))


def _read_prompts(path):
  """`prompts` and `prompt`: the texts by name, and the name of the default."""
  fields = files.read_json(path, dict) or {}
  prompts = fields.get("prompts") or {}
  default = fields.get("default_prompt_name") or ""
  is_right = isinstance(prompts, dict) and isinstance(default, str)
  if not is_right or not all(isinstance(x, str) for x in prompts.values()):
    raise UserError(files.damaged(path, "the prompts are no texts by name"))
  if default and default not in prompts:
    raise UserError(files.damaged(path, f"there is no prompt {default!r}"))
  used = tuple((name, text) for name, text in prompts.items() if text)
  return {"prompts": used, "prompt": default if dict(used).get(default) else ""}


def contents(settings: Mapping, config: modeling.BertConfig) -> dict[str, str]:
  """The files that make a folder one of sentence-transformers, by their paths.

  Args:
    settings: those of `features.VectorSettings`.
    config: sizes of the model.

  Raises:
    UserError: sentence-transformers has no such vectors.
  """
  for name, known in {**_FIXED, "pooling": _POOLINGS}.items():
    if settings[name] not in known:
      raise UserError(
        f"{name}={settings[name]} of task.json is unknown to "
        f"sentence-transformers; it needs {listing(known)}"
      )
  modules = ["Transformer", "Pooling"]
  modules += ["Normalize"] if settings["normalize"] else []
  places = [f"{n}_{kind}" if n else "" for n, kind in enumerate(modules)]
  pooling = {
    f"{_MODE}{name}_token{'s' if name != 'cls' else ''}": name
    == settings["pooling"]
    for name in _POOLINGS
  }
  found = {
    MODULES: [
      {
        "idx": index,
        "name": str(index),
        "path": places[index],
        # All of their versions know these names.
        "type": f"sentence_transformers.models.{kind}",
      }
      for index, kind in enumerate(modules)
    ],
    f"{places[1]}/{huggingface_config.CONFIG_NAME}": {
      "word_embedding_dimension": config.hidden_size,
      **pooling,
    },
    _TRANSFORMER: {
      "max_seq_length": settings["max_seq_length"],
      "do_lower_case": False,
    },
    _PROMPTS: {
      "prompts": dict(settings["prompts"]),
      "default_prompt_name": settings["prompt"] or None,
      "similarity_fn_name": "cosine",
    },
  }
  return {
    name: json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    for name, content in found.items()
  }
