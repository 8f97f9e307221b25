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
  """The fields of `features.VectorSettings`; None without a modules.json."""
  path = os.path.join(folder, MODULES)
  modules = files.read_json(path, list)
  if modules is None:
    return None
  try:
    parts = [(m["type"].rpartition(".")[2], m["path"]) for m in modules]
    kinds = [kind for kind, _ in parts]
    known = ["Transformer", "Pooling", "Normalize"]
    if kinds not in (known, known[:2]):
      raise ValueError(
        f"it has the parts {listing(kinds)}; only a Transformer, a Pooling and "
        f"perhaps a Normalize are supported"
      )
    prompts = _read_prompts(os.path.join(folder, _PROMPTS))
    config = os.path.join(folder, parts[1][1], huggingface_config.CONFIG_NAME)
    return {
      "pooling": _read_pooling(config, prompts["prompts"]),
      "normalize": "Normalize" in kinds,
      "max_seq_length": _read_length(folder),
      **prompts,
    }
  except UserError:
    raise
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise UserError(f"{path}: {error}; pass another model") from error


def _read_pooling(path, prompts):
  fields = files.read_json(path, dict)
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


def _read_length(folder):
  """The most word pieces of a text, with [CLS] and [SEP]."""
  fields = files.read_json(os.path.join(folder, _TRANSFORMER), dict) or {}
  config = model_folder.load_config(folder)
  if fields.get("do_lower_case") and not getattr(config, "do_lower_case", True):
    raise ValueError("do_lower_case with a cased tokenizer is not supported")
  length = fields.get("max_seq_length")
  if length is None:
    path = os.path.join(folder, huggingface_config.TOKENIZER_NAME)
    length = (files.read_json(path, dict) or {}).get("model_max_length")
  most = config.max_position_embeddings
  # Without a limit, their tokenizers have one of 1e30.
  return most if length is None else int(min(length, most))


def _read_prompts(path):
  """`prompts` and `prompt`: the texts by name, and the name of the default."""
  fields = files.read_json(path, dict) or {}
  prompts = fields.get("prompts") or {}
  default = fields.get("default_prompt_name") or ""
  if default and default not in prompts:
    raise ValueError(f"there is no prompt {default!r}")
  used = {name: text for name, text in prompts.items() if text}
  return {
    "prompts": tuple(used.items()),
    "prompt": default if default in used else "",
  }


def contents(settings: Mapping, config: modeling.BertConfig) -> dict[str, str]:
  """The files of a folder for fields of `features.VectorSettings`, by path."""
  for name, known in {**_FIXED, "pooling": _POOLINGS}.items():
    if settings[name] not in known:
      raise UserError(
        f"{name}={settings[name]} of task.json is unknown to "
        f"sentence-transformers; it needs {listing(known)}"
      )
  kinds = ["Transformer", "Pooling"]
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
