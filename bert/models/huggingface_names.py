"""Names of BERT's family in Hugging Face's format, and ours.

    variable_name("roberta.pooler.dense.weight")  # "bert/pooler/dense/kernel"
    tensor_name("bert/pooler/dense/kernel", "roberta", "ForMaskedLM")

All models of the family have the variables of BERT, under other names. A dense
layer that a task puts before its output layer is our pooler.
"""

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

# The parts of a layer, as BERT's checkpoints name them.
_PARTS = (
  "attention/self/query",
  "attention/self/key",
  "attention/self/value",
  "attention/output/dense",
  "attention/output/LayerNorm",
  "intermediate/dense",
  "output/dense",
  "output/LayerNorm",
)
_TRANSFORM = "cls/predictions/transform/"


class Family(NamedTuple):
  """Names of a model type. A module's name stands for its variables."""

  name: str  # the beginning of the names of architectures, such as "Bert"
  prefix: str  # what the names of the encoder begin with
  layer: str = "encoder.layer.{}."  # of a layer; {} is its number
  # Those of the `_PARTS` of a layer.
  parts: tuple[str, ...] = tuple(part.replace("/", ".") for part in _PARTS)
  # Theirs by ours of the other modules that differ from BERT's.
  modules: Mapping[str, str] = {}
  # The dense layer, LayerNorm and bias of the head of masked words, and the
  # tensor of its output weights, which are the word embeddings.
  masked_words: tuple[str, ...] = ()
  decoder: str = ""
  # More `modules` by the architecture, without `name`.
  heads: Mapping[str, Mapping[str, str]] = {}


_LM_HEAD = ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")

# Of models whose head is a dense layer and an output layer.
_TWO_LAYERS = {
  "bert/pooler/dense": "classifier.dense",
  "output": "classifier.out_proj",
}


def _roberta(name):
  return Family(
    name,
    "roberta.",
    masked_words=_LM_HEAD,
    decoder="lm_head.decoder.weight",
    heads={"ForSequenceClassification": _TWO_LAYERS},
  )


# By model_type.
FAMILIES = {
  "bert": Family(
    "Bert",
    "bert.",
    masked_words=(
      "cls.predictions.transform.dense",
      "cls.predictions.transform.LayerNorm",
      "cls.predictions.bias",
    ),
    decoder="cls.predictions.decoder.weight",
  ),
  "distilbert": Family(
    "DistilBert",
    "distilbert.",
    layer="transformer.layer.{}.",
    parts=(
      *("attention.q_lin", "attention.k_lin", "attention.v_lin"),
      *("attention.out_lin", "sa_layer_norm"),
      *("ffn.lin1", "ffn.lin2", "output_layer_norm"),
    ),
    modules={"bert/pooler/dense": "pre_classifier"},
    masked_words=(
      *("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ),
    decoder="vocab_projector.weight",
  ),
  "roberta": _roberta("Roberta"),
  "xlm-roberta": _roberta("XLMRoberta"),
  "camembert": _roberta("Camembert"),
  "electra": Family(
    "Electra",
    "electra.",
    modules={"bert/pooler/dense": "sequence_summary.summary"},
    masked_words=(
      "generator_predictions.dense",
      "generator_predictions.LayerNorm",
      "generator_lm_head.bias",
    ),
    decoder="generator_lm_head.weight",
    heads={"ForSequenceClassification": _TWO_LAYERS},
  ),
  "albert": Family(
    "Albert",
    "albert.",
    layer="encoder.albert_layer_groups.{}.albert_layers.0.",
    parts=(
      *("attention.query", "attention.key", "attention.value"),
      *("attention.dense", "attention.LayerNorm"),
      *("ffn", "ffn_output", "full_layer_layer_norm"),
    ),
    modules={
      "bert/pooler/dense": "pooler",
      "bert/embeddings_project": "encoder.embedding_hidden_mapping_in",
      "cls/seq_relationship/output": "sop_classifier.classifier",
    },
    masked_words=(
      *("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
    ),
    decoder="predictions.decoder.weight",
  ),
}

# What the names of an encoder may begin with.
_PREFIX = "|".join(re.escape(family.prefix) for family in FAMILIES.values())

# The tensors of output weights that are the word embeddings, and the other
# names of their bias.
DECODERS = {family.decoder for family in FAMILIES.values()}
DECODER_BIASES = {
  name.replace("weight", "bias") for name in DECODERS if ".decoder." in name
}


def split_architecture(architecture: str) -> tuple[str | None, str]:
  """The model type, None if unknown, and the head, such as "ForMaskedLM"."""
  for model_type, family in FAMILIES.items():
    head = architecture.removeprefix(family.name)
    if head != architecture and re.match("For|Model|$", head):
      return model_type, head
  return None, architecture


# The head of each kind of task in Hugging Face's format.
_heads = {
  "classification": "ForSequenceClassification",
  "tagging": "ForTokenClassification",
  "squad": "ForQuestionAnswering",
  "multiple choice": "ForMultipleChoice",
}


def kind_of(architecture: str) -> str | None:
  """The kind of task of an architecture of Hugging Face; None for others."""
  model_type, head = split_architecture(architecture)
  kinds = {head: kind for kind, head in _heads.items()}
  return kinds.get(head) if model_type else None


def head_of(kind: str) -> str | None:
  """The inverse of `kind_of`: an architecture without the name of the model."""
  return _heads.get(kind)


def variable_name(tensor: str) -> str | None:
  """The name of our variable for a tensor of theirs; None for other tensors."""
  name, last = re.sub(f"^(?:{_PREFIX})", "", tensor), tensor.split(".")[-1]
  if last in ("gamma", "beta"):  # Of old files.
    name = name[: -len(last)] + {"gamma": "weight", "beta": "bias"}[last]
  number = re.search(r"\.(\d+)\.", name)
  if number:
    name = name[: number.start(1)] + "{}" + name[number.end(1) :]
  ours = _variables().get(name)
  return ours and ours.format(*number.groups() if number else ())


def name_without_tensorflow(tensor: str) -> str:
  """The name of their tensor for that which their TensorFlow classes write."""
  name = re.sub(r"[^/]*___([^/]*)/", r"\1/", tensor.removesuffix(":0"))
  name = name.replace("_._", "/").replace("/", ".")
  return re.sub(r"\.(kernel|embeddings)$", ".weight", name)


def tensor_name(
  variable: str, model_type: str = "bert", head: str = ""
) -> str | None:
  """The inverse of `variable_name`, for a head such as "ForMaskedLM"."""
  number = re.search(r"/layer_(\d+)/", variable)
  if number:
    variable = variable[: number.start(1)] + "{}" + variable[number.end(1) :]
  theirs = _tensors(model_type, head).get(variable)
  return theirs and theirs.format(*number.groups() if number else ())


@functools.cache
def _variables():
  """Ours by their names without the encoder's prefix, with {} for a layer."""
  found = {}
  for model_type, family in FAMILIES.items():
    for head in ("", *family.heads):
      for ours, theirs in _tensors(model_type, head).items():
        name = theirs.removeprefix(family.prefix)
        assert found.setdefault(name, ours) == ours  # Of several families.
  return found


@functools.cache
def _tensors(model_type, head):
  """Theirs by our variables, with {} for the number of a layer."""
  family = FAMILIES[model_type]
  dense, norm, bias = family.masked_words
  tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
  modules = {
    **{f"bert/embeddings/{name}": f"embeddings.{name}" for name in tables},
    "bert/embeddings/LayerNorm": "embeddings.LayerNorm",
    "bert/embeddings_project": "embeddings_project",
    "bert/pooler/dense": "pooler.dense",
    **{
      f"bert/encoder/layer_{{}}/{ours}": family.layer + theirs
      for ours, theirs in zip(_PARTS, family.parts, strict=True)
    },
    f"{_TRANSFORM}dense": dense,
    f"{_TRANSFORM}LayerNorm": norm,
    "cls/seq_relationship/output": "cls.seq_relationship",
    "cls/squad/output": "qa_outputs",
    "output": "classifier",
    **family.modules,
    **family.heads.get(head, {}),
  }
  names = {"cls/predictions/output_bias": bias}
  for ours, theirs in modules.items():
    is_of_encoder = re.match("embeddings|encoder|transformer|pooler", theirs)
    prefix = family.prefix if is_of_encoder else ""
    names |= {o: f"{prefix}{theirs}.{t}" for o, t in _of_module(ours)}
  return names


def _of_module(ours):
  """The variables of a module, and the last part of their tensors' names."""
  if ours.endswith("_embeddings"):
    return [(ours, "weight")]
  names = {"LayerNorm": ("/gamma", "/beta"), "output": ("_weights", "_bias")}
  last = names.get(ours.split("/")[-1], ("/kernel", "/bias"))
  return list(zip((ours + n for n in last), ("weight", "bias"), strict=True))
