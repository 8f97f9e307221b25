"""Feature vectors of texts from the layers of a trained encoder.

extract = FeatureExtractor("uncased_L-12_H-768_A-12")
found = extract(["Jim Henson was a puppeteer", ("Who?", "Jim Henson")])
found[0].tokens  # ["[CLS]", "jim", "henson", "was", ...]
found[0].values  # float32 [tokens, layers, H]

extract = FeatureExtractor("uncased_L-12_H-768_A-12", pooling="mean")
extract.vectors(["a text", "another"])  # float32 [texts, H]
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tokenization
from bert.errors import UserError
from bert.data import records, sequences
from bert.tasks.examples import least_length
from bert.training import checkpoints, inputs, model_folder, predictor

LAYERS = (-1, -2, -3, -4)
POOLINGS = ("none", "cls", "pooled", "mean", "max", "mean_sqrt_len")
LAYER_COMBINATIONS = ("last", "concat", "mean")
LONG_TEXT = ("head", "mean_windows")
DTYPES = ("float32", "float16")

# The poolings over all tokens, which can exclude [CLS] and [SEP].
_OVER_TOKENS = ("mean", "max", "mean_sqrt_len")

# Size limit of a window's values and rows: `inputs.SORTED_ROWS` texts would
# need gigabytes with a large model, or if they are long.
_WINDOW_BYTES = 2**27

# About the size of a word piece in a row of the model's input: its string, its
# id, and their places in lists.
_PIECE_BYTES = 128

# Control characters that `str.split` treats as separators. Tokenizers drop them
# instead, which joins the text on both sides.
_DROPPED_SEPARATORS = re.compile("[\v\f\x1c-\x1f\x85]")

# A text, or a pair of texts.
Text = str | tuple[str, str]


def parse_layers(text: str) -> tuple[int, ...]:
  """The layers in the value of a flag, such as -1,-2,-3,-4."""
  try:
    return tuple(int(part) for part in text.split(","))
  except ValueError as error:
    raise UserError(
      f"--layers={text} is not a list of whole numbers, such as -1,-2"
    ) from error


@dataclasses.dataclass(frozen=True)
class Features:
  """The features of a text.

  Attributes:
    tokens: its word pieces, with [CLS] and [SEP].
    orig_to_tok_map: for each word of the text (or of both texts of a pair), the
      index in `tokens` of its first piece. It is -1 if the word was cut off, or
      consists of characters that the tokenizer drops. White space separates
      words; control characters do not.
    values: [tokens, layers, H] in the extractor's dtype; None if pooled.
    vector: [H], or [layers * H] for concatenated layers; None if not pooled.
    was_cut: whether the text was longer than `max_seq_length`.
  """

  tokens: list[str]
  orig_to_tok_map: list[int]
  values: np.ndarray | None
  vector: np.ndarray | None
  was_cut: bool


class FeatureExtractor:
  """A trained encoder, loaded once.

  Args:
    model: the folder of a model, see `model_folder.find_model`, or a Model.
    layers: indices of layers: -1 is the highest, 0 the lowest. Default: the
      four highest, or all layers of a smaller model.
    pooling: "none" gives a vector of each token and layer. The others give one
      vector of the text: "cls", of the token [CLS]; "pooled", the pooler's
      output for [CLS], without regard to `layers`; "mean" or "max" of all
      tokens; "mean_sqrt_len", their sum divided by the square root of their
      number.
    layer_combination: how pooling combines the layers of a token: "last" takes
      the highest, "concat" concatenates them in the order of `layers`, "mean"
      takes their mean.
    normalize: with pooling, scale vectors to length 1; zero vectors stay zero.
    exclude_special: exclude [CLS] and [SEP] from mean, max and mean_sqrt_len. A
      text without other tokens gets a zero vector.
    max_seq_length: maximum number of tokens that the model reads at once.
      Default: 128, or the model's positions if there are fewer.
    long_text: "head" cuts longer texts. "mean_windows" reads them in
      overlapping windows: a token has the vector of the window that shows most
      around it, a text the mean of its windows' vectors. The texts of a pair
      share the windows as in `sequences.share_room`.
    batch_size: texts per batch.
    precision, use_one_hot_embeddings, strategy, pad_to_max_length, runtime: see
      `predictor.Predictor`.
    dtype: "float32", "float16" or "float64", or such a NumPy type: that of
      the results; `precision` is that of the computation.

  Attributes:
    config, tokenizer: those of the model.
    layers: the chosen layers; empty with pooling="pooled".
    is_pooled: whether a text has a single vector.
    predictor: computes the vectors.
    vector_shape: of a token's values, (layers, H), or of a text's vector.

  Raises:
    UserError: an argument is wrong, or the checkpoint does not fit.
  """

  def __init__(
    self,
    model: str | os.PathLike | model_folder.Model,
    layers: Sequence[int] | None = None,
    pooling: str = "none",
    layer_combination: str = "last",
    normalize: bool = False,
    exclude_special: bool = False,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    precision: str | None = None,
    use_one_hot_embeddings: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    pad_to_max_length: bool = False,
    dtype: npt.DTypeLike = "float32",
    long_text: str = "head",
    runtime: str = "tensorflow",
  ):
    _check_options(
      pooling, layer_combination, normalize, exclude_special, long_text
    )
    if pooling == "pooled" and layers is not None:
      raise UserError(
        "--layers has no effect with --pooling=pooled; omit one of them"
      )
    if not isinstance(model, model_folder.Model):
      model = model_folder.find_model(os.fspath(model))
    if max_seq_length is None:
      max_seq_length = min(128, model.config.max_position_embeddings)
    least = least_length(long_text)
    if max_seq_length < least:
      raise UserError(
        f"--max_seq_length={max_seq_length} is too short for --long_text="
        f"{long_text}; pass {least} or more"
      )
    self.config, self.tokenizer = model.config, model.tokenizer
    self.is_pooled = pooling != "none"
    self.max_seq_length = max_seq_length
    self._reads_windows = long_text == "mean_windows"
    self.dtype = _dtype_name(dtype)
    self._pooling = pooling
    self._layer_combination = layer_combination
    self._normalize = normalize
    self._exclude_special = exclude_special
    defaults = LAYERS[: self.config.num_hidden_layers]
    self.layers = () if pooling == "pooled" else tuple(layers or defaults)
    self._indices = layer_indices(self.layers, self.config.num_hidden_layers)
    self.predictor = predictor.Predictor(
      model,
      self._compute,
      optional=() if pooling == "pooled" else checkpoints.POOLER,
      spec=records.sequence_spec(max_seq_length),
      output_axes={} if self.is_pooled else {"vectors": ("position",)},
      batch_size=batch_size,
      strategy=strategy,
      pad_to_max_length=pad_to_max_length,
      precision=precision,
      use_one_hot_embeddings=use_one_hot_embeddings,
      runtime=runtime,
    )

  @property
  def vector_shape(self) -> tuple[int, ...]:
    size = self.config.hidden_size
    if not self.is_pooled:
      return (len(self.layers), size)
    joins = self._layer_combination == "concat"
    return (size * len(self.layers) if joins else size,)

  def __call__(self, texts: Sequence[Text]) -> list[Features]:
    """The features of each text, or pair of texts.

    Args:
      texts: a sequence of texts and pairs: `("a", "b")` are two texts,
        `[("a", "b")]` is a pair.

    Raises:
      UserError: an item is neither a text nor a pair, or a vector is not
        finite.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
      raise UserError(f"expected a list of texts, got {texts!r:.80}")
    return [found for window in self.windows([texts]) for found in window]

  def vectors(self, texts: Sequence[Text]) -> np.ndarray:
    """The vector of each text, [texts, H*], in the extractor's dtype.

    Raises:
      UserError: `pooling` is "none", or as above.
    """
    if not self.is_pooled:
      raise UserError(
        'pooling="none" gives a vector of each token; pass FeatureExtractor '
        'another, such as "mean"'
      )
    rows = [features.vector for features in self(texts)]
    return np.reshape(rows, [len(rows), *self.vector_shape]).astype(self.dtype)

  def windows(
    self,
    blocks: Iterable[Iterable[Text]],
    progress: Callable[[int], object] = lambda count: None,
  ) -> Iterator[list[Features]]:
    """Yields the features of any number of texts, in order, in bounded memory.

    Texts of similar length within a window share a batch. A window ends with
    its block, so all features of a block are yielded before the next block is
    requested. See `__call__` for errors.

    Args:
      blocks: the texts, in blocks as they arrive.
      progress: called after each batch with the number of its texts.
    """
    vector_bytes = 4 * int(np.prod(self.vector_shape))
    for block in blocks:
      rows, size = [], 0
      for text in block:
        rows.append(self._tokenize(text))
        _, text_rows, _ = rows[-1]
        pieces = sum(len(row["input_ids"]) for row in text_rows)
        vectors = len(text_rows) if self.is_pooled else pieces
        size += vectors * vector_bytes + pieces * _PIECE_BYTES
        if len(rows) == inputs.SORTED_ROWS or size >= _WINDOW_BYTES:
          yield self._run(rows, progress)
          rows, size = [], 0
      if rows:
        yield self._run(rows, progress)

  def _tokenize(self, text):
    """A text's Features without numbers, its rows, and their sources."""
    pair = (text,) if isinstance(text, str) else text
    is_pair = isinstance(pair, tuple | list) and len(pair) in (1, 2)
    if not is_pair or not all(isinstance(part, str) for part in pair):
      raise UserError(f"expected a text or a pair of texts, got {text!r:.80}")
    aligned = [
      align(self.tokenizer, part) for part in (pair[0], "".join(pair[1:]))
    ]
    texts = [pieces for pieces, _ in aligned]
    room = self.max_seq_length - (3 if texts[1] else 2)
    shares = sequences.share_room(*map(len, texts), room)
    was_cut = not self._reads_windows and sum(map(len, texts)) > room
    if was_cut:
      texts = [text[:share] for text, share in zip(texts, shares, strict=True)]
    words = [
      start + offset if 0 <= start < len(text) else -1
      for (_, starts), text, offset in zip(
        aligned, texts, (1, len(texts[0]) + 2), strict=True
      )
      for start in starts
    ]
    if not texts[1]:
      texts, shares = texts[:1], shares[:1]
    tokens, _ = sequences.join_texts(*texts)
    rows, sources = self._rows(texts, shares)
    return Features(tokens, words, None, None, was_cut), rows, sources

  def _rows(self, texts, shares):
    """The rows that show a text, or both texts of a pair, in windows.

    A pair has as many rows as its text with more windows; those of the other
    text are repeated.

    Returns:
      rows: the model's inputs.
      sources: the (row, start, end) of the tokens that, joined, are those of
        the whole texts. A repeated window counts in its first row.
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
    for share, own in zip(shares, windows, strict=True):
      for index, window in enumerate(own):
        row = math.ceil(index * count / len(own))
        start = offset - window.start
        sources.append((row, start + window.first, start + window.last))
      offset += share + 1
      sources.append((count - 1, offset - 1, offset))  # [SEP]
    return rows, sources

  def _run(self, texts, progress):
    """Computes the numbers of texts, which are from `_tokenize`."""
    flat = [row for _, rows, _ in texts for row in rows]
    arrays = self.predictor(flat, progress)["vectors"]
    parts_of = sequences.groups_of(arrays, (len(rows) for _, rows, _ in texts))
    field = "vector" if self.is_pooled else "values"
    results = []
    for (found, _, sources), parts in zip(texts, parts_of, strict=True):
      array = parts[0] if len(parts) == 1 else self._joined(parts, sources)
      results.append(
        dataclasses.replace(found, **{field: self._converted(array)})
      )
    return results

  def _joined(self, parts, sources):
    """The values [tokens, L, H], or the vector [H*], of texts in windows."""
    if self.is_pooled:
      mean = np.mean(parts, axis=0)
      length = np.linalg.norm(mean)
      return mean / length if self._normalize and length else mean
    return np.concatenate(
      [parts[row][start:end] for row, start, end in sources]
    )

  def _converted(self, array):
    """An array in `dtype`, and no view, which would keep the whole window."""
    try:
      with np.errstate(over="raise"):
        return array.astype(self.dtype, copy=array.base is not None)
    except FloatingPointError as error:
      raise UserError(
        f"--dtype={self.dtype}: a number is larger than "
        f"{np.finfo(self.dtype).max:.0f}, the largest float16; pass "
        f"--dtype=float32"
      ) from error

  def _compute(self, bert, features):
    """Vectors of each token [B, S, L, H], or of each text [B, H*]."""
    layers = bert.get_all_encoder_layers()
    if not self.is_pooled:
      return {"vectors": tf.stack([layers[i] for i in self._indices], axis=2)}
    if self._pooling == "pooled":
      vectors = bert.get_pooled_output()
    else:
      tokens = _combine(layers, self._indices, self._layer_combination)
      vectors = _pool(tokens, self._counted(features), self._pooling)
    if self._normalize:
      length = tf.norm(vectors, axis=-1, keepdims=True)
      vectors = tf.math.divide_no_nan(vectors, length)
    return {"vectors": vectors}

  def _counted(self, features):
    """Float [B, S], 1 for the tokens that pooling counts."""
    counted = features["input_mask"] > 0
    if self._exclude_special:
      for special in ("[CLS]", "[SEP]"):
        counted &= features["input_ids"] != self.tokenizer.vocab[special]
    return tf.cast(counted, tf.float32)


def align(
  tokenizer: tokenization.FullTokenizer, text: str
) -> tuple[list[str], list[int]]:
  """The word pieces of a text, and the index of each word's first piece.

  Returns:
    pieces: the tokenizer's output for the text.
    starts: for each word, the index of its first piece, or -1 if it has none.
      A SentencePiece model may split a word differently within the text than
      alone; that word and all after it get -1.
  """
  pieces = tokenizer.tokenize(text)
  starts, end = [], 0
  for word in _DROPPED_SEPARATORS.sub("", text).split():
    part = tokenizer.tokenize(word)
    if part and pieces[end : end + len(part)] == part:
      starts.append(end)
      end += len(part)
    else:
      starts.append(-1)
      end += len(pieces) if part else 0  # After a mismatch, nothing matches.
  return pieces, starts


def _check_options(
  pooling, layer_combination, normalize, exclude_special, long_text
):
  """Raises UserError for unknown values, and options without effect."""
  for name, value, known in (
    ("pooling", pooling, POOLINGS),
    ("layer_combination", layer_combination, LAYER_COMBINATIONS),
    ("long_text", long_text, LONG_TEXT),
  ):
    if value not in known:
      raise UserError(f"--{name}={value} is not one of {', '.join(known)}")
  for name, is_set, poolings in (
    ("layer_combination", layer_combination != "last", ("cls", *_OVER_TOKENS)),
    ("normalize", normalize, POOLINGS[1:]),
    ("exclude_special", exclude_special, _OVER_TOKENS),
  ):
    if is_set and pooling not in poolings:
      raise UserError(
        f"--{name} has no effect with --pooling={pooling}; omit it, or pass "
        f"--pooling=mean"
      )


def _dtype_name(dtype):
  """The name of a type, which must be one of `DTYPES` or float64."""
  known = (*DTYPES, "float64")
  try:
    name = np.dtype(dtype).name
  except (TypeError, ValueError):
    name = None
  if dtype is None or name not in known:  # NumPy takes None for float64.
    raise UserError(f"--dtype={dtype} is not one of {', '.join(known)}")
  return name


def layer_indices(layers: Sequence[int], num_layers: int) -> list[int]:
  """The layers, counted from 0, in a model of `num_layers`.

  Args:
    layers: different ones; -1 is the highest, 0 the lowest.
    num_layers: the number of layers of the model.

  Raises:
    UserError: the model has no such layer, or one is given twice.
  """
  indices = [layer % num_layers for layer in layers]
  in_range = all(-num_layers <= layer < num_layers for layer in layers)
  if not in_range or len(set(indices)) < len(indices):
    raise UserError(
      f"--layers={','.join(map(str, layers))} must be different layers from "
      f"-1 (highest) to -{num_layers} (lowest)"
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


def _pool(tokens, counted, how):
  """One vector per text [B, H*] from tokens [B, S, H*]; `counted` is [B, S]."""
  if how == "cls":
    return tokens[:, 0, :]
  number = tf.reduce_sum(counted, axis=1, keepdims=True)  # [B, 1]
  weights = counted[:, :, tf.newaxis]
  if how == "max":
    lowest = tf.where(weights > 0, tokens, tokens.dtype.min)
    return tf.where(number > 0, tf.reduce_max(lowest, axis=1), 0.0)
  if how == "mean_sqrt_len":
    number = tf.sqrt(number)
  # Padding rows and empty texts count no token.
  return tf.math.divide_no_nan(tf.reduce_sum(tokens * weights, axis=1), number)
