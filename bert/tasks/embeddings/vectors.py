"""Feature vectors of texts from the layers of a trained encoder.

model = bert.load("uncased_L-12_H-768_A-12", task="vectors", pooling="none")
(features,) = model.answers(["Jim Henson was a puppeteer"])
features.tokens  # ["[CLS]", "jim", "henson", "was", ...]
features.values  # float32 [tokens, layers, H]
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.contract.ops import unit_length
from bert.contract.task import Field, Settings, Task
from bert.data import records, sequences
from bert.errors import UserError, check_known

LAYERS = (-1, -2, -3, -4)
POOLINGS = ("none", "cls", "pooled", "mean", "max", "mean_sqrt_len")
LAYER_COMBINATIONS = ("last", "concat", "mean")
LONG_TEXT = ("head", "mean_windows")
DTYPES = ("float32", "float16")
SIMILARITIES = ("cosine", "dot")

# Names of the prompts of queries, and of documents, by preference.
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")

# Control characters that `str.split` treats as separators are in words: the
# tokenizer drops them, which joins the text on both sides.
_WORD = re.compile("[\v\f\x1c-\x1f\x85]*\\S[\\S\v\f\x1c-\x1f\x85]*")


def parse_layers(text: str, num_layers: int) -> tuple[int, ...]:
  """Parses the value of --layers, such as "-1,-2"."""
  parts = [part.strip() for part in text.split(",")]
  layer_indices(parts, num_layers)
  return tuple(map(int, parts))


@dataclasses.dataclass(frozen=True)
class Features:
  """The features of a text, or a pair."""

  tokens: list[str]  # its word pieces, with [CLS] and [SEP]
  # The index of the first piece of each word between white space; -1 for a word
  # that was cut off, or of characters that the tokenizer drops.
  orig_to_tok_map: list[int]
  values: np.ndarray | None  # [tokens, layers, H]; None if pooled
  # [H], or [layers * H] for concatenated layers; None if not pooled.
  vector: np.ndarray | None
  was_cut: bool  # whether it was longer than `max_seq_length`


@dataclasses.dataclass(frozen=True)
class VectorSettings(Settings):
  """How texts become vectors; see docs/features.md."""

  layers: tuple[int, ...] = (-1,)  # -1 is the highest, 0 the lowest
  # "none": a vector per token and layer; the others: one per text. "pooled"
  # ignores `layers`.
  pooling: str = "mean"
  # How pooling combines the layers of a token. "concat" keeps their order.
  layer_combination: str = "last"
  normalize: bool = False  # with pooling, to length 1; zeros stay zeros
  # A pooled vector is cut to this size after normalization; 0: it is not cut.
  truncate_dim: int = 0
  similarity: str = "cosine"  # of pooled vectors, in search
  # from mean, max and mean_sqrt_len; a text without other tokens gets zeros
  exclude_special: bool = False
  # With "mean_windows", the vector of a token is from the window with most
  # context around it, and that of a text is the mean over its windows.
  long_text: str = "head"
  dtype: str = "float32"  # of the results, not of the computation
  # Names and texts of the model's prompts, such as ("query", "query: ").
  prompts: tuple[tuple[str, str], ...] = ()
  prompt: str = ""  # name of the default prompt, if any
  in_graph = (
    *("layers", "pooling", "layer_combination", "normalize"),
    "exclude_special",
  )

  def check(self) -> None:
    super().check()
    for name, choices in (
      ("pooling", POOLINGS),
      ("layer_combination", LAYER_COMBINATIONS),
      ("long_text", LONG_TEXT),
      ("dtype", (*DTYPES, "float64")),
      ("similarity", SIMILARITIES),
    ):
      value = getattr(self, name)
      check_known(f"--{name}={value}", value, choices)
    if self.truncate_dim < 0:
      raise ValueError(f"truncate_dim is {self.truncate_dim}")
    self.prompt_text()

  @property
  def has_prompts(self) -> bool:
    """Whether any prompt has a text."""
    return any(dict(self.prompts).values())

  def prompt_text(self, name: str = "") -> str:
    """The text of a prompt; without a name, that of `prompt`."""
    name, prompts = name or self.prompt, dict(self.prompts)
    if name:
      check_known(f"prompt={name!r}", name, prompts)
    return prompts.get(name, "")

  def prompt_of(self, *names: str) -> str:
    """The first of these names that is a prompt of the model, or `prompt`."""
    prompts = dict(self.prompts)
    return next((name for name in names if name in prompts), self.prompt)


class _Read(NamedTuple):
  """A text as the model reads it."""

  features: Features  # without numbers
  rows: list[dict]  # of its windows
  sources: list[tuple[int, int, int]]  # row, start and end of all its tokens


class VectorTask(Task):
  """Vectors of texts and pairs, from an encoder without a head."""

  kind = "vectors"
  Settings = VectorSettings
  inputs = (Field("text"), Field("text_b", default=""))
  output_types = (("vector", "DT_FLOAT"),)

  def __init__(self, settings=None, tokenizer=None, paths=None):
    super().__init__(settings, tokenizer, paths)
    self.settings.check()
    self.is_pooled = self.settings.pooling != "none"
    self.needs_pooler = self.settings.pooling == "pooled"
    if self.needs_pooler:
      self.settings = dataclasses.replace(self.settings, layers=())
    if self.settings.has_prompts:
      self.inputs = (*self.inputs, Field("prompt", default=""))

  def vector_shape(self, config: modeling.BertConfig) -> tuple[int, ...]:
    """The shape of a token's values, (layers, H), or of a text's vector."""
    size, count = config.hidden_size, len(self.settings.layers)
    if not self.is_pooled:
      return (count, size)
    if self.settings.layer_combination == "concat":
      size *= count
    return (min(size, self.settings.truncate_dim or size),)

  def example(self, text: str, text_b: str = "", prompt: str = "") -> _Read:
    """The example of a text or a pair, after the text of a prompt by name."""
    text = self.settings.prompt_text(prompt) + text
    aligned = [align(self.tokenizer, part) for part in (text, text_b)]
    texts = [pieces for pieces, _ in aligned]
    special = self.tokenizer.special
    count = special.count(2 if texts[1] else 1)
    room = self.settings.max_seq_length - count
    shares = sequences.share_room(*map(len, texts), room)
    was_cut = self.settings.long_text == "head" and sum(map(len, texts)) > room
    if was_cut:
      texts = [text[:share] for text, share in zip(texts, shares, strict=True)]
    words = [
      start + offset if 0 <= start < len(text) else -1
      for (_, starts), text, offset in zip(
        aligned, texts, (1, len(texts[0]) + 1 + special.between), strict=True
      )
      for start in starts
    ]
    if not texts[1]:
      texts, shares = texts[:1], shares[:1]
    tokens, _ = sequences.join_texts(special, *texts)
    rows, sources = self._windows(texts, shares)
    return _Read(Features(tokens, words, None, None, was_cut), rows, sources)

  def _windows(self, texts, shares):
    """The rows of a text or a pair, in windows.

    A pair has as many rows as its text with more windows; windows of the other
    text are repeated. Also returns (row, start, end) of the token ranges that
    make up the whole texts; repeated windows count once.
    """
    windows = [
      sequences.overlapping_windows(len(text), share, share // 2 or 1)
      for text, share in zip(texts, shares, strict=True)
    ]
    count = max(map(len, windows))
    rows = []
    for row in range(count):
      shown = [own[row * len(own) // count] for own in windows]
      parts = (
        text[w.start : w.end] for text, w in zip(texts, shown, strict=True)
      )
      rows.append(sequences.input_row(self.tokenizer, *parts))
    sources, offset = [(0, 0, 1)], 1  # [CLS]
    between = self.tokenizer.special.between
    ends = [between, 1] if len(texts) > 1 else [1]
    for share, own, end in zip(shares, windows, ends, strict=True):
      for index, window in enumerate(own):
        row = math.ceil(index * count / len(own))
        start = offset - window.start
        sources.append((row, start + window.first, start + window.last))
      offset += share + end
      sources.append((count - 1, offset - end, offset))  # [SEP]
    return rows, sources

  def rows(self, example: _Read, is_training: bool) -> list[dict]:
    return example.rows

  def feature_spec(self, is_training: bool) -> records.Spec:
    return records.sequence_spec(self.settings.max_seq_length)

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    return {}

  def head(self, ops, bert, features: Mapping) -> dict:
    """Vectors of each token [B, S, L, H], or of each text [B, H*]."""
    settings = self.settings
    if settings.pooling == "pooled":
      vectors = bert.get_pooled_output()
    else:
      layers = bert.get_all_encoder_layers()
      indices = layer_indices(settings.layers, len(layers))
      if not self.is_pooled:
        return {"vectors": tf.stack([layers[i] for i in indices], axis=2)}
      tokens = _combine(layers, indices, settings.layer_combination)
      vectors = ops.pool(tokens, self._counted(features), settings.pooling)
    if settings.normalize:
      vectors = ops.unit_length(vectors)
    if settings.truncate_dim:
      vectors = ops.first(vectors, settings.truncate_dim)
    return {"vectors": vectors}

  def _counted(self, features):
    """Integer [B, S], 1 for the tokens that pooling counts."""
    counted = features["input_mask"]
    if self.settings.exclude_special:
      for piece in self.tokenizer.special[:2]:
        others = features["input_ids"] != self.tokenizer.vocab[piece]
        counted *= tf.cast(others, counted.dtype)
    return counted

  def output_axes(self) -> dict[str, Sequence[str | None]]:
    tokens = (records.POSITION, None, None)
    return {"vectors": (None,) if self.is_pooled else tokens}

  def answer(self, example: _Read, predictions: Sequence[Mapping]) -> Features:
    parts = [row["vectors"] for row in predictions]
    array = parts[0] if len(parts) == 1 else self._join(parts, example.sources)
    field = "vector" if self.is_pooled else "values"
    fields = {field: self._converted(array)}
    return dataclasses.replace(example.features, **fields)

  def _join(self, parts, sources):
    """The values [tokens, L, H], or the vector [H*], of texts in windows."""
    if self.is_pooled:
      mean = np.mean(parts, axis=0)
      length = np.linalg.norm(mean)
      return mean / length if self.settings.normalize and length else mean
    return np.concatenate(
      [parts[row][start:end] for row, start, end in sources]
    )

  def _converted(self, array):
    """An array in `dtype`; not a view, which would keep the whole batch."""
    dtype = self.settings.dtype
    with np.errstate(over="raise"):  # Do not return infinite numbers.
      return array.astype(dtype, copy=array.base is not None)

  def public(self, answer: Features) -> dict:
    """The `vector`, or the `tokens` and their `vectors`."""
    if self.is_pooled:
      return {"vector": answer.vector}
    return {"tokens": answer.tokens, "vectors": answer.values}


def comparable(vectors: np.ndarray, settings: Settings) -> np.ndarray:
  """The vectors, scaled so that products are similarities by the settings."""
  is_dot = getattr(settings, "similarity", None) == "dot"
  return vectors if is_dot else unit_length(vectors)


def align(
  tokenizer: tokenization.FullTokenizer, text: str
) -> tuple[list[str], list[int]]:
  """The word pieces of a text, and the index of each word's first, or -1."""
  pieces, starts = [], []
  if tokenizer.splits_words:
    for word in _WORD.findall(text):
      of_word = tokenizer.tokenize(word)
      starts.append(len(pieces) if of_word else -1)
      pieces += of_word
    return pieces, starts
  pieces, spans = tokenizer.tokenize(text), tokenizer.offsets(text)
  begins = [start for start, _ in spans]
  for word in _WORD.finditer(text):
    first = bisect.bisect_left(begins, word.start())
    while first < len(spans) and spans[first][0] == spans[first][1]:
      first += 1  # A blank.
    is_inside = first < len(spans) and begins[first] < word.end()
    starts.append(first if is_inside else -1)
  return pieces, starts


def layer_indices(layers: Sequence[int | str], num_layers: int) -> list[int]:
  """Converts layers, where -1 is the highest, to indices from 0."""
  by_name = {str(i): i % num_layers for i in range(-num_layers, num_layers)}
  indices = [by_name.get(str(layer)) for layer in layers]
  if None in indices or len(set(indices)) < len(indices):
    raise UserError(
      f"--layers={','.join(map(str, layers))} must be different layers from "
      f"-1 (highest) to -{num_layers} (lowest), or from 0 (lowest) to "
      f"{num_layers - 1} (highest)"
    )
  return indices


def _combine(layers, indices, how):
  """One vector per token [B, S, H*] from the layers [B, S, H] at `indices`."""
  if how == "last":
    return layers[max(indices)]
  chosen = [layers[i] for i in indices]
  if how == "concat":
    return tf.concat(chosen, axis=-1)
  return tf.add_n(chosen) / len(chosen)
