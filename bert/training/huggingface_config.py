"""Reads `config.json` of models in Hugging Face's format.

    config = read_config("folder/config.json")

The activation `gelu` is the exact form there, which is `gelu_exact` here. The
original's `gelu` is called `gelu_new` there.
"""

import dataclasses
import json
import os
from typing import NamedTuple

from absl import logging

from bert import layers
import modeling
import tokenization
from bert.errors import UserError, shortened
from bert.data import files

CONFIG_NAME = "config.json"
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
  "model_type": "bert",
  "position_embedding_type": "absolute",
  "is_decoder": False,
  "add_cross_attention": False,
  "tie_word_embeddings": True,
  "layer_norm_eps": layers.LAYER_NORM_EPSILON,
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
}

# Classes without settings of their own, which do what tokenizer.json says.
_GENERIC_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")

# Parts of a normalizer that change nothing but case, accents and code points.
_NORMALIZERS = {
  *("Sequence", "BertNormalizer", "Lowercase", "StripAccents", "Strip"),
  *("NFC", "NFD", "NFKC", "NFKD"),
}

# More labels than any task has; each gets a name.
_MAX_LABELS = 2**20

# Their defaults where ours differ.
_DEFAULTS = {"vocab_size": 30522, "hidden_act": "gelu", "type_vocab_size": 2}


def is_config(fields: object) -> bool:
  """Whether the content of a JSON file is a configuration of theirs."""
  names = {"model_type", "architectures", "transformers_version"}
  return isinstance(fields, dict) and not names.isdisjoint(fields)


def read_config(path: str) -> modeling.BertConfig:
  """The BertConfig of their config.json, or of an original bert_config.json.

  A file of the name config.json is theirs, whatever it contains. A tokenizer
  beside their file adds `do_lower_case`.

  Raises:
    UserError: the file is damaged, the model is no BERT, or its tokenizer
      splits text otherwise.
  """
  try:
    fields = json.loads(files.read_bytes(path))
  except (ValueError, RecursionError):
    fields = None
  is_named = isinstance(fields, dict) and os.path.basename(path) == CONFIG_NAME
  if not is_named and not is_config(fields):
    return modeling.BertConfig.from_json_file(path)
  for name, value in _FIXED.items():
    if fields.get(name) not in (None, value):
      raise UserError(
        f"{path}: {name}={fields[name]!r} is not supported; pass a BERT model "
        f"with {name}={value!r}"
      )
  fields = {**_DEFAULTS, **fields}
  theirs = fields["hidden_act"]
  ours = [name for name, names in ACTIVATIONS.items() if theirs in names]
  if not ours:
    known = sorted(name for names in ACTIVATIONS.values() for name in names)
    raise UserError(
      f"{path}: hidden_act={theirs!r} is not one of {', '.join(known)}"
    )
  fields["hidden_act"] = ours[0]
  names = {field.name for field in dataclasses.fields(modeling.BertConfig)}
  config = modeling.BertConfig.from_dict(
    {k: v for k, v in fields.items() if k in names or _is_extra(k)}
  )
  try:
    config.check()
  except ValueError as error:
    raise UserError(f"{path} is damaged: {error}; copy it again") from error
  _check_tokenizer(path, fields)
  do_lower_case = _read_casing(
    os.path.dirname(path), fields.get("tokenizer_class")
  )
  if do_lower_case is not None:
    config.do_lower_case = do_lower_case
  _check_added_tokens(os.path.dirname(path))
  return config


def _check_added_tokens(folder):
  """Raises UserError if the tokenizer in a folder has tokens unknown here.

  The tokenizers of Hugging Face do not split such tokens.
  """
  of_json, vocabulary, of_txt = (
    os.path.join(folder, name)
    for name in ("tokenizer.json", "vocab.txt", "added_tokens.json")
  )
  added = (files.read_json(of_json, dict) or {}).get("added_tokens") or []
  try:
    found = [(of_json, entry["content"]) for entry in added]
    if not _are_texts(token for _, token in found):
      raise TypeError("content is no text")
  except (KeyError, TypeError) as error:
    raise _damaged(of_json, "added_tokens", added) from error
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


def _is_extra(name):
  """Whether some of the released configurations have a key, without effect."""
  return name == "directionality" or name.startswith("pooler_")


def _check_tokenizer(path, fields):
  """Raises UserError if the fields of a file name another tokenizer."""
  for name, known in _TOKENIZERS.items():
    value = fields.get(name)
    if value is not None and str(value).removesuffix("Fast") not in known:
      raise UserError(
        f"{path}: {name}={value!r} is not supported; pass a model with "
        f"{name}={known[0]}"
      )


def _read_casing(folder, tokenizer_class):
  """Whether the tokenizer in a folder lower-cases text; None if unknown."""
  path = os.path.join(folder, TOKENIZER_NAME)
  settings = files.read_json(path, dict) or {}
  _check_tokenizer(path, settings)
  tokenizer_class = settings.get("tokenizer_class") or tokenizer_class
  is_generic = tokenizer_class in _GENERIC_TOKENIZERS
  found = [(path, settings)]
  lower_cases = settings.get("do_lower_case")
  if not isinstance(lower_cases, bool):
    lower_cases = None
  if is_generic or lower_cases is None:
    file = os.path.join(folder, "tokenizer.json")
    tokenizer = files.read_json(file, dict)
    if tokenizer is not None:
      parts = list(_normalizers(file, tokenizer.get("normalizer")))
      if is_generic:
        _check_generic(file, tokenizer, parts)
        found = []  # Its class ignores the settings.
      lower_cases = any(part["lowercase"] for part in parts)
      found += [(file, part) for part in parts]
  for file, fields in found:
    for name, value in (
      ("strip_accents", lower_cases),
      ("tokenize_chinese_chars", True),
      ("handle_chinese_chars", True),  # Its name in tokenizer.json.
    ):
      if fields.get(name) not in (None, value):
        logging.warning(
          "%s: %s=%s is not supported; some texts get other word pieces",
          file,
          name,
          fields[name],
        )
  return lower_cases


def _check_generic(path, tokenizer, parts):
  """Raises UserError unless a tokenizer.json says to split text as BERT does.

  Args:
    path: the file.
    tokenizer: its content.
    parts: its `_normalizers`.
  """
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
      raise UserError(
        f"{path}: {name}={shortened(repr(value))} is not supported; pass a "
        f"model with {wanted}"
      )


def _strips_accents(part):
  """Whether a part of a normalizer does."""
  if part.get("type") != "BertNormalizer":
    return part.get("type") == "StripAccents"
  strips = part.get("strip_accents")
  return part["lowercase"] if strips is None else strips


def _normalizers(path, normalizer):
  """Yields a normalizer and those of its sequence, each with `lowercase`."""
  if normalizer is None:
    return
  parts = lower_cases = kind = None
  if isinstance(normalizer, dict):
    parts = normalizer.get("normalizers", [])
    kind = normalizer.get("type", "")
    is_lower = kind == "Lowercase"
    lower_cases = normalizer.get("lowercase", is_lower)
  found = (lower_cases, parts, kind)
  if not all(map(isinstance, found, (bool, list, str))):
    raise _damaged(path, "normalizer", normalizer)
  yield {**normalizer, "lowercase": lower_cases}
  for part in parts:
    yield from _normalizers(path, part)


class Head(NamedTuple):
  """What a config.json says about the task of its model.

  Attributes:
    architecture: such as "BertForSequenceClassification"; "" if unknown.
    labels: the labels, in the order of the outputs.
    problem_type: such as "regression", or None.
  """

  architecture: str
  labels: list[str]
  problem_type: str | None


def read_head(folder: str) -> Head:
  """The Head of the model in a folder; empty for other folders.

  Raises:
    UserError: the file is damaged.
  """
  path = os.path.join(folder, CONFIG_NAME)
  fields = files.read_json(path, dict) or {}
  if not is_config(fields):
    return Head("", [], None)
  labels = fields.get("id2label") or {}
  architectures = fields.get("architectures") or [""]
  problem_type = fields.get("problem_type")
  if not isinstance(architectures, list) or not _are_texts(architectures):
    raise _damaged(path, "architectures", architectures)
  if problem_type is not None and not isinstance(problem_type, str):
    raise _damaged(path, "problem_type", problem_type)
  try:
    labels = [labels[str(index)] for index in range(len(labels))]
    labels = [str(x) if type(x) is int else x for x in labels]
    if not labels:
      count = fields.get("num_labels", 2)
      if type(count) is not int or not 0 <= count <= _MAX_LABELS:
        raise _damaged(path, "num_labels", count)
      labels = [f"LABEL_{index}" for index in range(count)]
  except (KeyError, TypeError) as error:
    raise _damaged(path, "id2label", fields.get("id2label")) from error
  if not _are_texts(labels):
    raise _damaged(path, "id2label", fields["id2label"])
  return Head(architectures[0], labels, problem_type)


def _are_texts(values):
  return all(isinstance(value, str) for value in values)


def _damaged(path, name, value):
  """The error about a field of a file."""
  shown = shortened(repr(value))
  return UserError(f"{path} is damaged: {name}={shown}; copy it again")
