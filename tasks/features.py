"""Fixed vectors of texts, from the layers of a trained encoder.

    extractor = FeatureExtractor("uncased_L-12_H-768_A-12")
    found = extractor(["Jim Henson was a puppeteer", ("Who?", "Jim Henson")])
    found[0].tokens  # ["[CLS]", "jim", "henson", "was", ...]
    found[0].values  # float32 [tokens, layers, H]

    extractor = FeatureExtractor("uncased_L-12_H-768_A-12", pooling="mean")
    extractor.vectors(["a text", "another"])  # float32 [texts, H]

Texts are computed in order of length and given back in their own order.
"""

import dataclasses
import functools
import numbers
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

import modeling
import tokenization
from errors import UserError
from pipeline import records, sequences
from training import inputs, model_folder, predictor

POOLINGS = ("none", "cls", "pooled", "mean", "max", "mean_sqrt_len")
LAYER_COMBINATIONS = ("last", "concat", "mean")
LAYERS = (-1, -2, -3, -4)
PRECISIONS = ("float32", "bfloat16")
DTYPES = ("float32", "float16")

# Poolings over the tokens, of which some may be left out.
_OVER_TOKENS = ("mean", "max", "mean_sqrt_len")

_POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")

# The most that a window's values may take: those of a large model's layers
# are too many for `inputs.SORTED_ROWS` texts.
_WINDOW_BYTES = 2**27

# A text, or a pair of texts.
Text = str | tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Choice:
  """What to take of the encoder's output.

  Attributes:
    layers: which layers, by the places that they have in a list: -1 is the
      highest, 0 the lowest.
    pooling: "none" for a vector of each token and layer; or how these become
      one of the text: "cls", that of [CLS]; "mean" or "max" over all tokens;
      "mean_sqrt_len", their sum, divided by the root of their number; or
      "pooled", the pooler's transformed [CLS], which has nothing to do with
      layers.
    layer_combination: how a token's vectors of these layers become one before
      pooling: "last", that of the highest; "concat", all, in the order of
      `layers`; or "mean".
    normalize: scale vectors to length 1; one of zeros stays.
    exclude_special: leave [CLS] and [SEP] out of mean, max and mean_sqrt_len;
      a text without other tokens has a vector of zeros.

  Raises:
    ValueError: they do not go together, or there is no such way.
  """

  layers: tuple[int, ...] = LAYERS
  pooling: str = "none"
  layer_combination: str = "last"
  normalize: bool = False
  exclude_special: bool = False

  def __post_init__(self):
    for name, known in (
      ("pooling", POOLINGS),
      ("layer_combination", LAYER_COMBINATIONS),
    ):
      if getattr(self, name) not in known:
        raise UserError(
          f"--{name}={getattr(self, name)} is not one of {', '.join(known)}"
        )
    if self.exclude_special and self.pooling not in _OVER_TOKENS:
      raise UserError(
        f"--exclude_special means nothing with --pooling={self.pooling}; leave "
        f"it out, or pass --pooling={_OVER_TOKENS[0]}"
      )
    for name, without in (
      ("normalize", ["none"]),
      ("layer_combination", ["none", "pooled"]),
    ):
      default = Choice.__dataclass_fields__[name].default
      if self.pooling in without and getattr(self, name) != default:
        raise UserError(
          f"--{name} means nothing with --pooling={self.pooling}; leave it "
          f"out, or pass --pooling=mean"
        )

  @property
  def is_pooled(self) -> bool:
    """Whether a text has one vector."""
    return self.pooling != "none"

  def indices(self, num_layers: int) -> list[int]:
    """The layers, counted from 0, of a model that has so many.

    Raises:
      ValueError: a layer is not there, or comes twice.
    """
    shown = f"--layers={','.join(map(str, self.layers))}"
    found = []
    for layer in self.layers:
      if not -num_layers <= layer < num_layers:
        raise UserError(
          f"{shown}: there is no layer {layer}; the model has -1, the highest, "
          f"to -{num_layers}, the lowest"
        )
      if layer % num_layers in found:
        raise UserError(f"{shown}: layer {layer} comes twice; name it once")
      found.append(layer % num_layers)
    if not found:
      raise UserError("--layers is empty; pass some, such as -1,-2")
    return found

  def shape(self, hidden_size: int) -> tuple[int, ...]:
    """The shape of a token's values [layers, H], or of a text's vector [H*]."""
    if not self.is_pooled:
      return (len(self.layers), hidden_size)
    joins = self.layer_combination == "concat" and self.pooling != "pooled"
    return (hidden_size * (len(self.layers) if joins else 1),)


def parse_layers(text: str) -> tuple[int, ...]:
  """Layers as a flag writes them: -1,-2,-3,-4.

  Raises:
    ValueError: there is none, or one is no whole number.
  """
  parts = [part.strip() for part in text.split(",")]
  for part in parts:
    if not re.fullmatch(r"[+-]?[0-9]{1,6}", part):
      raise UserError(
        f"--layers={text}: {part!r} is not a whole number; pass some, "
        f"separated by commas, such as -1,-2"
      )
  return tuple(map(int, parts))


@dataclasses.dataclass(frozen=True)
class Features:
  """What the model makes of a text.

  Attributes:
    tokens: its word pieces, [CLS] and [SEP] among them.
    orig_to_tok_map: for each word of the text, which white space parts, the
      place of its first piece in `tokens`; of a pair the words of the first
      text come first. -1 for a word that has no piece there: it was cut off, or
      is of characters that the tokenizer drops. (Control characters do not part
      words. A SentencePiece model may read a text in another way than its
      words; those from there on have -1.) None if pooled.
    values: [tokens, layers, H], float32 or as the extractor's `dtype` is; None
      if pooled.
    vector: [H], or [layers * H] where layers are joined, likewise; None if not
      pooled.
    is_cut: whether the text was longer than `max_seq_length` allows.
  """

  tokens: list[str]
  orig_to_tok_map: list[int] | None
  values: np.ndarray | None
  vector: np.ndarray | None
  is_cut: bool


class FeatureExtractor:
  """A trained encoder, loaded once.

  Args:
    model: the folder of a model, see `releases.find_model`, or a
      Model of it.
    layers, pooling, layer_combination, normalize, exclude_special: see Choice;
      without layers, the four highest, or all of a smaller model.
    max_seq_length: most tokens of a text; a longer one is cut.
    batch_size: texts that are computed at a time.
    precision, use_one_hot_embeddings: see `modeling.BertModel`.
    strategy: a `tf.distribute.Strategy`; one device when None.
    pad_to_max_length: give all batches one static shape.
    do_lower_case: whether the model in a folder reads lower-cased text; when
      None, what the folder tells.
    dtype: "float32" or "float16", of what is given back; what is computed with
      is `precision`.

  Attributes:
    choice: what it takes of the encoder.
    config, tokenizer: the model's.
    max_seq_length, dtype: as above.

  Raises:
    ValueError: an argument is wrong, or the checkpoint does not fit.
  """

  def __init__(
    self,
    model: str | os.PathLike | model_folder.Model,
    layers: Sequence[int] | None = None,
    pooling: str = "none",
    layer_combination: str = "last",
    normalize: bool = False,
    exclude_special: bool = False,
    max_seq_length: int = 128,
    batch_size: int = 32,
    precision: str = "float32",
    use_one_hot_embeddings: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    pad_to_max_length: bool = False,
    do_lower_case: bool | None = None,
    dtype: str = "float32",
  ):
    model = _model_of(model, do_lower_case)
    self.config, self.tokenizer = model.config, model.tokenizer
    if pooling == "pooled" and layers is not None:
      raise UserError(
        "--layers means nothing with --pooling=pooled, which is of the highest "
        "layer; leave one of them out"
      )
    if layers is None:
      layers = LAYERS[: self.config.num_hidden_layers]
    self.choice = Choice(
      _whole_numbers(layers),
      pooling,
      layer_combination,
      normalize,
      exclude_special,
    )
    if dtype not in DTYPES:
      raise UserError(f"--dtype={dtype} is not one of {', '.join(DTYPES)}")
    if precision not in PRECISIONS:
      raise UserError(
        f"--precision={precision} is not one of {', '.join(PRECISIONS)}"
      )
    if not isinstance(max_seq_length, numbers.Integral) or max_seq_length < 3:
      raise UserError(
        f"--max_seq_length={max_seq_length!r} is not a whole number above 2"
      )
    self.max_seq_length = max_seq_length
    self.dtype = dtype
    self._layers = self.choice.indices(self.config.num_hidden_layers)
    # No pooling but "pooled" reads the pooler, which a checkpoint may lack.
    pooler = () if pooling == "pooled" else _POOLER
    self._predictor = predictor.Predictor(
      model,
      functools.partial(
        self._compute,
        precision=precision,
        use_one_hot_embeddings=use_one_hot_embeddings,
      ),
      optional=pooler,
      spec=dict.fromkeys(
        records.SEQUENCES, records.sequence_feature(max_seq_length)
      ),
      output_axes={} if self.choice.is_pooled else {"values": ("position",)},
      batch_size=batch_size,
      strategy=strategy,
      pad_to_max_length=pad_to_max_length,
    )

  def __call__(self, texts: Sequence[Text]) -> list[Features]:
    """The features of each text, or pair of texts.

    Args:
      texts: a list of them; `("a", "b")` are two texts, `[("a", "b")]` is a
        pair.

    Raises:
      ValueError: it is something else, such as a str; an item is neither a text
        nor a pair; or a vector is not finite.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
      raise UserError(f"pass a list of texts, not {texts!r:.80}")
    return [found for window in self.windows([texts]) for found in window]

  def vectors(self, texts: Sequence[Text]) -> np.ndarray:
    """The vector of each text, [texts, H*], float32 or as `dtype` is.

    Raises:
      ValueError: `pooling` is "none", or as above.
    """
    if not self.choice.is_pooled:
      raise UserError(
        "a text has a vector of each token; pass a pooling to FeatureExtractor,"
        " such as mean"
      )
    found = np.zeros([0, *self.choice.shape(self.config.hidden_size)])
    rows = [features.vector for features in self(texts)]
    return np.stack(rows) if rows else found.astype(self.dtype)

  def windows(
    self,
    blocks: Iterable[Iterable[Text]],
    progress: Callable[[int], object] = lambda count: None,
  ) -> Iterator[list[Features]]:
    """Yields the features of texts without end, in their order.

    A block is given back before the next is asked for. It is computed window by
    window, whose rows are sorted by length and whose values are bounded, so
    that memory is, too.

    Args:
      blocks: the texts in parts, as they come.
      progress: is called with the number of texts after each batch.

    Raises:
      ValueError: an item is neither a text nor a pair, or a vector is not
        finite.
    """
    per_token = 4 * np.prod(self.choice.shape(self.config.hidden_size))
    for block in blocks:
      rows, size = [], 0
      for text in block:
        rows.append(self._read(text))
        size += per_token * (
          1 if self.choice.is_pooled else len(rows[-1].tokens)
        )
        if len(rows) == inputs.SORTED_ROWS or size >= _WINDOW_BYTES:
          yield self._compute_window(rows, progress)
          rows, size = [], 0
      if rows:
        yield self._compute_window(rows, progress)

  def _read(self, text):
    """The _Row of a text or pair."""
    pair = (text,)
    if isinstance(text, Iterable) and not isinstance(text, str):
      pair = tuple(text)
    if not 0 < len(pair) < 3 or not all(isinstance(t, str) for t in pair):
      raise UserError(f"{text!r:.80} is neither a text nor a pair of texts")
    pieces_a, starts_a = self._align(pair[0])
    pieces_b, starts_b = self._align(pair[1]) if pair[1:] else ([], [])
    size = len(pieces_a) + len(pieces_b)
    room = self.max_seq_length - (3 if pieces_b else 2)
    sequences.truncate_pair(pieces_a, pieces_b, room)
    tokens = ["[CLS]", *pieces_a, "[SEP]"]
    places = [
      start + 1 if 0 <= start < len(pieces_a) else -1 for start in starts_a
    ]
    places += [
      start + len(tokens) if 0 <= start < len(pieces_b) else -1
      for start in starts_b
    ]
    length_a = len(tokens)
    if pieces_b:
      tokens += [*pieces_b, "[SEP]"]
    is_cut = len(pieces_a) + len(pieces_b) < size
    features = {
      "input_ids": self.tokenizer.convert_tokens_to_ids(tokens),
      "input_mask": [1] * len(tokens),
      "segment_ids": [0] * length_a + [1] * (len(tokens) - length_a),
    }
    return _Row(tokens, features, places, is_cut)

  def _align(self, text):
    """As `align`; but where nobody needs to know, no word begins anywhere."""
    if self.choice.is_pooled:
      return self.tokenizer.tokenize(text), []
    return align(self.tokenizer, text)

  def _compute_window(self, rows, progress):
    """The Features of _Rows."""
    outputs = self._predictor([row.features for row in rows], progress)
    arrays = map(self._converted, outputs["values"])
    if self.choice.is_pooled:
      return [
        Features(row.tokens, None, None, vector, row.is_cut)
        for row, vector in zip(rows, arrays, strict=True)
      ]
    return [
      Features(row.tokens, row.orig_to_tok_map, values, None, row.is_cut)
      for row, values in zip(rows, arrays, strict=True)
    ]

  def _converted(self, array):
    """An array as `dtype`; no view, which would keep the whole window."""
    try:
      with np.errstate(over="raise"):
        return array.astype(self.dtype, copy=array.base is not None)
    except FloatingPointError as error:
      raise UserError(
        f"--dtype={self.dtype}: there are numbers beyond "
        f"{np.finfo(self.dtype).max:.0f}, its largest; pass --dtype=float32"
      ) from error

  def _compute(self, config, features, precision, use_one_hot_embeddings):
    """Values [B, S, L, H] of each token, or a vector [B, H*] of each text."""
    model = modeling.BertModel(
      config,
      False,
      *(features[name] for name in records.SEQUENCES),
      use_one_hot_embeddings,
      precision=precision,
    )
    layers = model.get_all_encoder_layers()
    if not self.choice.is_pooled:
      return {"values": tf.stack([layers[i] for i in self._layers], axis=2)}
    if self.choice.pooling == "pooled":
      vectors = model.get_pooled_output()
    else:
      tokens = _combine(layers, self._layers, self.choice.layer_combination)
      vectors = _pool(tokens, self._counted(features), self.choice.pooling)
    if self.choice.normalize:
      length = tf.norm(vectors, axis=-1, keepdims=True)
      vectors = tf.math.divide_no_nan(vectors, length)
    return {"values": vectors}

  def _counted(self, features):
    """Float [B, S], 1 for the tokens that pooling counts."""
    counted = tf.cast(features["input_mask"], tf.float32)
    if self.choice.exclude_special:
      for special in ("[CLS]", "[SEP]"):
        is_other = features["input_ids"] != self.tokenizer.vocab[special]
        counted *= tf.cast(is_other, tf.float32)
    return counted


@dataclasses.dataclass(frozen=True)
class _Row:
  """A text as the model reads it."""

  tokens: list[str]
  features: dict[str, list[int]]
  orig_to_tok_map: list[int] | None
  is_cut: bool


def _model_of(model, do_lower_case):
  """The Model that a FeatureExtractor is given."""
  if isinstance(model, str | os.PathLike):
    return model_folder.find_model(os.fspath(model), do_lower_case)
  if not isinstance(model, model_folder.Model):
    raise UserError(
      f"model={model!r:.80} is neither a folder nor a Model; pass the folder "
      f"of an unzipped release"
    )
  if do_lower_case is not None:
    raise UserError(
      "--do_lower_case means nothing with a Model, which has its tokenizer; "
      "leave it out"
    )
  return model


def _whole_numbers(layers):
  """The layers that a FeatureExtractor is given, as a tuple of int."""
  is_list = isinstance(layers, Iterable) and not isinstance(layers, str)
  found = tuple(layers) if is_list else ()
  if not is_list or not all(isinstance(i, numbers.Integral) for i in found):
    raise UserError(
      f"layers={layers!r:.80} is not a list of whole numbers; pass one, such "
      f"as [-1, -2]"
    )
  return tuple(map(int, found))


def align(
  tokenizer: tokenization.FullTokenizer, text: str
) -> tuple[list[str], list[int]]:
  """The word pieces of a text, and where each of its words begins among them.

  Args:
    tokenizer: a FullTokenizer.
    text: a text; white space parts its words, control characters do not.

  Returns:
    pieces: what the tokenizer makes of the text.
    starts: for each word the place of its first piece, or -1 if it has none;
      also for all words from the first on whose pieces are others within the
      text than by themselves.
  """
  pieces = tokenizer.tokenize(text)
  starts, place = [], 0
  for word in tokenization.DROPPED_SEPARATORS.sub("", text).split():
    part = tokenizer.tokenize(word)
    if part and pieces[place : place + len(part)] == part:
      starts.append(place)
      place += len(part)
    else:
      starts.append(-1)
      place += len(pieces) if part else 0  # After a mismatch, nothing matches.
  return pieces, starts


def _combine(layers, indices, how):
  """One vector a token, [B, S, H*], of the layers [B, S, H] at `indices`."""
  if how == "last":
    return layers[max(indices)]
  chosen = [layers[i] for i in indices]
  if how == "concat":
    return tf.concat(chosen, axis=-1)
  return tf.add_n(chosen) / len(chosen)


def _pool(tokens, counted, how):
  """One vector a text, [B, H*].

  Args:
    tokens: float [B, S, H*].
    counted: float [B, S], 1 for tokens that count, else 0.
    how: "cls", "mean", "max" or "mean_sqrt_len".
  """
  if how == "cls":
    return tokens[:, 0, :]
  number = tf.reduce_sum(counted, axis=1, keepdims=True)  # [B, 1]
  weights = counted[:, :, tf.newaxis]
  if how == "max":
    lowest = tf.where(weights > 0, tokens, tokens.dtype.min)
    return tf.where(number > 0, tf.reduce_max(lowest, axis=1), 0.0)
  if how == "mean_sqrt_len":
    number = tf.sqrt(number)
  # Rows that fill up a batch, and empty texts, count no token.
  return tf.math.divide_no_nan(tf.reduce_sum(tokens * weights, axis=1), number)
