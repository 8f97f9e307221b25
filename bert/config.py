"""The sizes of a model: the content of `bert_config.json`."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
import numbers
from collections.abc import Mapping

from bert import strict_json
from bert.errors import UserError
from bert.layers import (
  LAYER_NORM_EPSILON,
  Activation,
  gelu,
  get_activation,
  is_activation,
)
from tokenization import read_file


@dataclasses.dataclass(eq=False)
class BertConfig:
  """Sizes of a model: the content of `bert_config.json`.

  Values are checked when a model is built or a file is read.
  """

  vocab_size: int  # V
  hidden_size: int = 768  # H, a multiple of num_attention_heads
  num_hidden_layers: int = 12  # L
  num_attention_heads: int = 12  # N
  intermediate_size: int = 3072  # width of the feed-forward layers
  hidden_act: str | Activation = "gelu"  # their activation, see get_activation
  hidden_dropout_prob: float = 0.1  # of embeddings and of sub-layers' outputs
  attention_probs_dropout_prob: float = 0.1
  max_position_embeddings: int = 512  # length of the longest sequence
  type_vocab_size: int = 16  # number of segment types
  initializer_range: float = 0.02  # standard deviation of new weights

  # How other models of BERT's family differ.
  family: str = "bert"  # whose names Hugging Face's format has
  layer_norm_eps: float = LAYER_NORM_EPSILON
  embedding_size: int | None = None  # E, projected to H; H itself if None
  num_hidden_groups: int | None = None  # layers of a group share weights
  position_offset: int = 0  # rows of the position table before the first
  pooler_act: str | Activation = "tanh"

  @classmethod
  def from_dict(cls, json_object: Mapping[str, object]) -> BertConfig:
    """Returns the configuration in a dictionary; keeps unknown keys."""
    config = cls(vocab_size=None)
    config.__dict__.update(json_object)
    return config

  @classmethod
  def from_json_file(cls, json_file: str) -> BertConfig:
    """Returns the configuration in a file."""
    try:
      fields = strict_json.loads(read_file(json_file))
      if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
      config = cls.from_dict(fields)
      config.check()
    except ValueError as error:
      raise UserError(
        f"{json_file} is not a valid model configuration: {error}; pass the "
        f"bert_config.json that came with the model"
      ) from error
    return config

  def to_dict(self) -> dict:
    """A deep copy of the fields, including unknown keys.

    Those of `_FAMILY` are omitted where they are BERT's.
    """
    same = {k for k, v in _FAMILY.items() if self.__dict__.get(k) == v}
    kept = {k: v for k, v in self.__dict__.items() if k not in same}
    return copy.deepcopy(kept)

  def to_json_string(self) -> str:
    """The fields as JSON with sorted keys, indented by 2 spaces."""
    return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

  @property
  def embedding_width(self) -> int:
    """E, the width of the embeddings."""
    return self.embedding_size or self.hidden_size

  @property
  def num_blocks(self) -> int:
    """Number of layers with weights of their own."""
    return self.num_hidden_groups or self.num_hidden_layers

  def check(self) -> None:
    """Raises ValueError unless a model of these sizes can be built."""
    for field in dataclasses.fields(BertConfig):
      value = getattr(self, field.name)
      if value is None and field.default is None:
        continue
      if field.type.startswith("int"):
        least = 0 if field.name in _MAY_BE_0 else 1
        limit = 10**4 if field.name == "num_hidden_layers" else 2**31
        valid = isinstance(value, numbers.Integral) and least <= value < limit
        kind = "a positive integer" if least else "an integer of at least 0"
        wanted = f"{kind} below {limit}"
      elif field.type == "float":
        limit = 1 if "dropout" in field.name else math.inf
        valid = isinstance(value, numbers.Real) and 0 <= value < limit
        wanted = "a finite number of at least 0" + " and below 1" * (limit == 1)
      elif field.type == "str":
        valid, wanted = isinstance(value, str), "a name"
      else:
        # Known names are not resolved, which would load TensorFlow.
        known = is_activation(value)
        valid = known or callable(get_activation(value) or gelu)
        wanted = "an activation"
      if not valid or isinstance(value, bool):
        raise ValueError(f"{field.name}={value!r} is not {wanted}")
    if self.hidden_size % self.num_attention_heads:
      raise ValueError(
        f"hidden_size={self.hidden_size} is not a multiple of "
        f"num_attention_heads={self.num_attention_heads}"
      )
    groups = self.num_hidden_groups or 1
    if self.num_hidden_layers % groups:
      raise ValueError(
        f"num_hidden_layers={self.num_hidden_layers} is not a multiple of "
        f"num_hidden_groups={groups}"
      )


_MAY_BE_0 = ("type_vocab_size", "position_offset")

# The fields that only other models of the family need, and BERT's values.
_FAMILY = {
  field.name: field.default
  for field in itertools.dropwhile(
    lambda field: field.name != "family", dataclasses.fields(BertConfig)
  )
}
