"""Reads `config.json` of models in Hugging Face's format.

The activation `gelu` is the exact form there, which is `gelu_exact` here. The
original's `gelu` is called `gelu_new` there.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

import modeling
import tokenization
from bert import strict_json
from bert.data import downloads, files
from bert.errors import UserError, unsupported

CONFIG_NAME = "config.json"

# The original ALBERT's, which has our names.
ALBERT_NAME = "albert_config.json"
TOKENIZER_NAME = "tokenizer_config.json"

# Their activations by ours, the name that is written first.
ACTIVATIONS = {
  "gelu": ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast"),
  "gelu_exact": ("gelu", "gelu_python"),
  "relu": ("relu",),
  "tanh": ("tanh",),
  "linear": ("linear",),
}

# Settings of theirs that change the model, with the only value it has here.
_FIXED = {
  "position_embedding_type": "absolute",
  "is_decoder": False,
  "add_cross_attention": False,
  "tie_word_embeddings": True,
  "inner_group_num": 1,
}

# Our names of DistilBERT's settings.
_DISTILBERT = {
  "activation": "hidden_act",
  "attention_dropout": "attention_probs_dropout_prob",
  "dim": "hidden_size",
  "dropout": "hidden_dropout_prob",
  "hidden_dim": "intermediate_size",
  "n_heads": "num_attention_heads",
  "n_layers": "num_hidden_layers",
}

# Settings of Hugging Face's tokenizers, and the values, without the suffix
# "Fast", for which they split text as it is split here.
_TOKENIZERS = {
  "tokenizer_class": (
    *("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"),
    *("PreTrainedTokenizer", "TokenizersBackend"),
    "AlbertTokenizer",  # Of a SentencePiece model.
  ),
  "word_tokenizer_type": ("basic",),
  "do_basic_tokenize": ("True",),
  "truncation_side": ("right",),
  "padding_side": ("right",),
}

# Classes without settings of their own, which do what tokenizer.json says.
_GENERIC_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")

# Parts of a normalizer that change nothing but case, accents and code points.
_NORMALIZERS = {
  *("Sequence", "BertNormalizer", "Lowercase", "StripAccents", "Strip"),
  *("NFC", "NFD", "NFKC", "NFKD"),
}

# Types of the keys that are read, in config.json, tokenizer_config.json, and
# tokenizer.json and its normalizers.
_POSITION_TYPES = {"pad_token_id": int, "max_position_embeddings": int}
_SETTINGS_TYPES = {"do_lower_case": bool | None}
_TOKENIZER_TYPES = {
  "added_tokens": list[dict] | None,
  "normalizer": dict | None,
  "pre_tokenizer": dict | None,
}
_NORMALIZER_TYPES = {"type": str, "lowercase": bool, "normalizers": list[dict]}

# Those of the head in config.json.
_HEAD_TYPES = {
  "architectures": list[str] | None,
  "id2label": dict | None,
  "num_labels": int,
  "problem_type": str | None,
}
_MOST_LABELS = 10**6

# Settings of ours that only some of their models have.
_OURS = {
  *("family", "embedding_size", "num_hidden_groups", "position_offset"),
  "pooler_act",
}

# Their defaults where ours differ, by model type.
_OF_BERT = {"vocab_size": 30522, "hidden_act": "gelu", "type_vocab_size": 2}
_OF_ROBERTA = {**_OF_BERT, "vocab_size": 50265, "pad_token_id": 1}
_DEFAULTS = {
  "bert": _OF_BERT,
  "distilbert": {
    **_OF_BERT,
    "num_hidden_layers": 6,
    "type_vocab_size": 0,
    "pooler_act": "relu",
  },
  "roberta": _OF_ROBERTA,
  "xlm-roberta": {**_OF_ROBERTA, "vocab_size": 30522},
  "camembert": {**_OF_ROBERTA, "vocab_size": 30522},
  "electra": {
    **_OF_BERT,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "pooler_act": "gelu_exact",
  },
  "albert": {
    **_OF_BERT,
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
  },
}


def is_config(fields: object) -> bool:
  """Whether the content of a JSON file is a configuration of theirs."""
  names = {"model_type", "architectures", "transformers_version"}
  return isinstance(fields, dict) and not names.isdisjoint(fields)


def read_config(path: str) -> modeling.BertConfig:
  """The BertConfig of their config.json, or of an original bert_config.json.

  A file of the name config.json is theirs, whatever it contains. A tokenizer
  beside their file adds `do_lower_case`.
  """
  try:
    fields = strict_json.loads(files.read_bytes(path), allows_nan=True)
  except ValueError:
    fields = None
  is_named = isinstance(fields, dict) and os.path.basename(path) == CONFIG_NAME
  if not is_named and not is_config(fields):
    config = modeling.BertConfig.from_json_file(path)
    if os.path.basename(path) == ALBERT_NAME:
      config.family = "albert"
    return config
  fields = _with_our_names(path, fields)
  theirs = fields["hidden_act"]
  ours = [name for name, names in ACTIVATIONS.items() if theirs in names]
  if not ours:
    known = (name for names in ACTIVATIONS.values() for name in names)
    raise unsupported(path, "hidden_act", theirs, *sorted(known))
  fields["hidden_act"] = ours[0]
  names = {field.name for field in dataclasses.fields(modeling.BertConfig)}
  # Some of the released configurations have these, without effect.
  names |= {n for n in fields if n.startswith(("directionality", "pooler_"))}
  config = modeling.BertConfig.from_dict(
    {k: v for k, v in fields.items() if k in names}
  )
  try:
    config.check()
  except ValueError as error:
    raise files.damaged(path, error) from error
  folder = os.path.dirname(path)
  vocabulary, tokenizer = (
    os.path.join(folder, name) for name in ("vocab.txt", "tokenizer.json")
  )
  is_json = files.exists(tokenizer) and not files.exists(vocabulary)
  if is_json and not tokenization.has_word_pieces(tokenizer):
    return config
  _check_tokenizer(path, fields)
  do_lower_case = _read_casing(folder, fields.get("tokenizer_class"))
  if do_lower_case is not None:
    config.do_lower_case = do_lower_case
  _check_added_tokens(folder)
  return config


def _with_our_names(path, fields):
  """The fields of a file and their defaults, under our names."""
  family = downloads.check_model_type(path, fields)
  for name, value in _FIXED.items():
    if fields.get(name) not in (None, value):
      raise unsupported(path, name, fields[name], value)
  if family == "distilbert":
    fields = {_DISTILBERT.get(name, name): v for name, v in fields.items()}
  defaults = _DEFAULTS[family]
  of_others = _OURS - defaults.keys()
  fields = {k: v for k, v in fields.items() if k not in of_others}
  fields = {**defaults, **fields, "family": family}
  if "pad_token_id" in defaults:
    files.check_types(path, fields, _POSITION_TYPES)
    # The position of a token is its index and that of the padding, and 1.
    padding = fields["pad_token_id"]
    count = fields.get("max_position_embeddings", 512)
    fields["position_offset"] = padding + 1
    fields["max_position_embeddings"] = count - padding - 1
  if family == "electra" and fields["embedding_size"] == fields["hidden_size"]:
    del fields["embedding_size"]
  return fields


def their_fields(config: modeling.BertConfig) -> dict:
  """The inverse of `read_config`, without the casing."""
  fields = dict(vars(config))
  fields.pop("do_lower_case", None)
  activation = (config.hidden_act or "linear").lower()
  if activation not in ACTIVATIONS:
    raise UserError(
      f"the activation {activation!r} has no name in Hugging Face's format; "
      f"add it to ACTIVATIONS in bert/models/huggingface_config.py"
    )
  fields["hidden_act"] = ACTIVATIONS[activation][0]
  family = fields["model_type"] = fields.pop("family")
  defaults = _DEFAULTS.get(family, {})
  offset = fields.pop("position_offset")
  if "pad_token_id" in defaults:
    fields["pad_token_id"] = offset - 1
    fields["max_position_embeddings"] += offset
  of_others = _OURS - defaults.keys()
  written = {k: v for k, v in fields.items() if k not in of_others}
  if family == "electra":
    written["embedding_size"] = config.embedding_width
  read = family in downloads.MODEL_TYPES and _with_our_names("", dict(written))
  wanted = {name: getattr(config, name) for name in _OURS}
  if not read or any(read.get(k, v) != v for k, v in wanted.items()):
    raise UserError(
      f"family={family!r} has no such configuration in Hugging Face's format; "
      f"correct bert_config.json: the family is one of "
      f"{', '.join(downloads.MODEL_TYPES)}"
    )
  written.pop("pooler_act", None)
  if family == "distilbert":
    theirs = {ours: theirs for theirs, ours in _DISTILBERT.items()}
    written = {theirs.get(name, name): v for name, v in written.items()}
    del written["type_vocab_size"], written["layer_norm_eps"]
  return written


def _check_added_tokens(folder):
  """Raises UserError if the tokenizer in a folder has tokens unknown here."""
  of_json, vocabulary, of_txt = (
    os.path.join(folder, name)
    for name in ("tokenizer.json", "vocab.txt", "added_tokens.json")
  )
  tokenizer = files.read_json(of_json, dict, _TOKENIZER_TYPES) or {}
  found = []
  for entry in tokenizer.get("added_tokens") or []:
    files.check_types(of_json, entry, {"content": str})
    found.append((of_json, entry.get("content")))
  found += [(of_txt, token) for token in files.read_json(of_txt, dict) or ()]
  if not files.exists(vocabulary):
    vocabulary = of_json
  if not (found and files.exists(vocabulary)):
    return
  vocab = tokenization.load_vocab(vocabulary)
  for path, token in found:
    if token not in vocab:
      raise UserError(
        f"{path}: the added token {token!r} is not in the vocabulary, and "
        f"would be split; train the model again without it or, if it is a "
        f"word, with it in place of an [unused...] line of vocab.txt"
      )


def _check_tokenizer(path, fields):
  for name, known in _TOKENIZERS.items():
    value = fields.get(name)
    if value is not None and str(value).removesuffix("Fast") not in known:
      raise unsupported(path, name, value, known[0])


def _read_casing(folder, tokenizer_class):
  """Whether the tokenizer in a folder lower-cases text; None if unknown."""
  path = os.path.join(folder, TOKENIZER_NAME)
  settings = files.read_json(path, dict, _SETTINGS_TYPES) or {}
  _check_tokenizer(path, settings)
  tokenizer_class = settings.get("tokenizer_class") or tokenizer_class
  is_generic = tokenizer_class in _GENERIC_TOKENIZERS
  found = [(path, settings)]
  lower_cases = settings.get("do_lower_case")
  if is_generic or lower_cases is None:
    file = os.path.join(folder, "tokenizer.json")
    tokenizer = files.read_json(file, dict, _TOKENIZER_TYPES)
    if tokenizer is not None:
      parts = list(_normalizers(file, tokenizer.get("normalizer")))
      if is_generic:
        _check_generic(file, tokenizer, parts)
        found = []  # Its class ignores the settings.
      lower_cases = any(part["lowercase"] for part in parts)
      found += [(file, part) for part in parts]
  # The last two are one setting, which has another name in tokenizer.json.
  names = ("strip_accents", "tokenize_chinese_chars", "handle_chinese_chars")
  wanted = dict(zip(names, (lower_cases, True, True), strict=True))
  for file, fields in found:
    for name, value in wanted.items():
      if fields.get(name) not in (None, value):  # It gives other word pieces.
        raise unsupported(file, name, fields[name], value)
  return lower_cases


def _check_generic(path, tokenizer, parts):
  """Raises UserError unless a tokenizer.json splits text as BERT does."""
  types = [part.get("type") for part in parts]
  is_known = types[:1] == ["BertNormalizer"]
  if types[:1] == ["Sequence"]:
    strips = [_strips_accents(part) for part in parts]
    lower_cases = any(part["lowercase"] for part in parts)
    is_known = any(strips) == lower_cases and _NORMALIZERS.issuperset(types)
  pre_tokenizer, model = tokenizer.get("pre_tokenizer"), tokenizer.get("model")
  prefix = "##"
  if isinstance(model, dict):
    prefix = model.get("continuing_subword_prefix", prefix)
  kind = "BertPreTokenizer"
  for name, value, is_as_ours, wanted in (
    ("pre_tokenizer", pre_tokenizer, pre_tokenizer == {"type": kind}, kind),
    ("normalizer", tokenizer.get("normalizer"), is_known, "BertNormalizer"),
    ("continuing_subword_prefix", prefix, prefix == "##", "'##'"),
  ):
    if not is_as_ours:
      raise unsupported(path, name, value, wanted)


def _strips_accents(part):
  if part.get("type") != "BertNormalizer":
    return part.get("type") == "StripAccents"
  strips = part.get("strip_accents")
  return part["lowercase"] if strips is None else strips


def _normalizers(path, normalizer):
  """Yields a normalizer and those of its sequence, each with `lowercase`."""
  if normalizer is None:
    return
  files.check_types(path, normalizer, _NORMALIZER_TYPES)
  lower_cases = normalizer.get(
    "lowercase", normalizer.get("type") == "Lowercase"
  )
  yield {**normalizer, "lowercase": lower_cases}
  for part in normalizer.get("normalizers", []):
    yield from _normalizers(path, part)


class Head(NamedTuple):
  """What a config.json says about the task of its model."""

  architecture: str  # such as "BertForSequenceClassification"; "" if unknown
  labels: list[str]  # in the order of the outputs
  problem_type: str | None  # such as "regression"


def read_head(folder: str) -> Head:
  """The Head of the model in a folder; empty for other folders."""
  path = os.path.join(folder, CONFIG_NAME)
  fields = files.read_json(path, dict, allows_nan=True) or {}
  if not is_config(fields):
    return Head("", [], None)
  files.check_types(path, fields, _HEAD_TYPES)
  labels = fields.get("id2label") or {}
  architectures = fields.get("architectures") or [""]
  ids = list(map(str, range(len(labels))))
  if sorted(ids) != sorted(labels):
    raise files.damaged(path, "the keys of id2label are not 0, 1, ...")
  labels = [str(labels[index]) for index in ids]
  if not labels:
    count = fields.get("num_labels", 2)
    if not 0 < count <= _MOST_LABELS:
      raise files.damaged(path, f"num_labels is {count}")
    labels = [f"LABEL_{n}" for n in range(count)]
  return Head(architectures[0], labels, fields.get("problem_type"))


def label_fields(labels: Sequence[str]) -> dict:
  """The labels as a config.json has them."""
  return {
    "id2label": {str(index): label for index, label in enumerate(labels)},
    "label2id": {label: index for index, label in enumerate(labels)},
  }
