"""BERT: a Transformer encoder (Devlin et al. 2019, arXiv:1810.04805).

Shapes are written [B, S, H] with B batch, S sequence, H hidden, N heads, D size
per head, V vocabulary; F and T are the sequences attended from and to.

    config = BertConfig.from_json_file("bert_config.json")
    model = BertModel(config, is_training=False, input_ids=input_ids,
                      input_mask=input_mask, token_type_ids=segment_ids)
    vectors = model.get_sequence_output()  # [B, S, H]

The same lines run eagerly, inside `tf.function`, and in a v1 graph.
"""

import copy
import functools
import json
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

import variables

# LayerNorm's epsilon in the released models; float32 still resolves it,
# since variances of activations lie far above.
LAYER_NORM_EPSILON = 1e-12

# Added to the score of a masked position: after softmax its weight is exactly
# 0 in float32, so padding never changes a number.
MASKED_SCORE = -10000.0


class BertConfig:
  """The size and shape of a model: what `bert_config.json` holds.

  Args:
    vocab_size: number of word pieces, V.
    hidden_size: width of every layer, H; a multiple of `num_attention_heads`.
    num_hidden_layers: number of Transformer blocks.
    num_attention_heads: attention heads in each block, N.
    intermediate_size: width inside each block's feed-forward part.
    hidden_act: its activation, by name or as a function.
    hidden_dropout_prob: dropout of embeddings and of each sub-layer's output.
    attention_probs_dropout_prob: dropout of attention probabilities.
    max_position_embeddings: the longest sequence the model can read.
    type_vocab_size: number of segment types.
    initializer_range: standard deviation of fresh weights.

  Raises:
    ValueError: a size is not a positive whole number, a probability does not
      lie in [0, 1), or the width cannot be shared out among the heads.
  """

  def __init__(
    self,
    vocab_size: int,
    hidden_size: int = 768,
    num_hidden_layers: int = 12,
    num_attention_heads: int = 12,
    intermediate_size: int = 3072,
    hidden_act: str | Callable[[tf.Tensor], tf.Tensor] | None = "gelu",
    hidden_dropout_prob: float = 0.1,
    attention_probs_dropout_prob: float = 0.1,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 16,
    initializer_range: float = 0.02,
  ):
    self.vocab_size = vocab_size
    self.hidden_size = hidden_size
    self.num_hidden_layers = num_hidden_layers
    self.num_attention_heads = num_attention_heads
    self.intermediate_size = intermediate_size
    self.hidden_act = hidden_act
    self.hidden_dropout_prob = hidden_dropout_prob
    self.attention_probs_dropout_prob = attention_probs_dropout_prob
    self.max_position_embeddings = max_position_embeddings
    self.type_vocab_size = type_vocab_size
    self.initializer_range = initializer_range
    self._validate()

  def _validate(self):
    for key in (
      "vocab_size",
      "hidden_size",
      "num_hidden_layers",
      "num_attention_heads",
      "intermediate_size",
      "max_position_embeddings",
      "type_vocab_size",
    ):
      value = getattr(self, key)
      whole = isinstance(value, numbers.Integral) and value is not True
      if not whole or value < 1:
        raise ValueError(f"{key}={value!r} is not a positive whole number")
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
      value = getattr(self, key)
      if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{key}={value!r} is not a probability below 1")
    deviation = self.initializer_range
    if not isinstance(deviation, numbers.Real) or not deviation >= 0:
      raise ValueError(f"initializer_range={deviation!r} is not 0 or more")
    if self.hidden_size % self.num_attention_heads:
      raise ValueError(
        f"hidden_size={self.hidden_size} is not a multiple of "
        f"num_attention_heads={self.num_attention_heads}"
      )
    if not callable(get_activation(self.hidden_act) or tf.identity):
      raise ValueError(f"hidden_act={self.hidden_act!r} is no activation")

  @classmethod
  def from_dict(cls, json_object: Mapping[str, object]) -> "BertConfig":
    """The configuration that a dictionary describes.

    Keys that BERT itself has no use for, such as `directionality`, are kept
    as attributes, so that `to_dict` gives them back.

    Raises:
      ValueError: `vocab_size` is missing or a value makes no sense.
    """
    known = cls(vocab_size=1).__dict__.keys()
    if "vocab_size" not in json_object:
      raise ValueError("vocab_size is missing")
    config = cls(**{k: v for k, v in json_object.items() if k in known})
    for key in json_object.keys() - known:
      setattr(config, key, json_object[key])
    return config

  @classmethod
  def from_json_file(cls, json_file: str) -> "BertConfig":
    """The configuration in a file; errors name the file."""
    with tf.io.gfile.GFile(json_file, "rb") as reader:
      content = reader.read()
    try:
      fields = json.loads(content)
    except ValueError as error:
      raise ValueError(
        f"{json_file} is not JSON ({error}); pass the bert_config.json that "
        f"came with the model"
      ) from error
    try:
      if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
      return cls.from_dict(fields)
    except ValueError as error:
      raise ValueError(f"{json_file}: {error}") from error

  def to_dict(self) -> dict:
    """A deep copy of all fields, extra keys included."""
    return copy.deepcopy(self.__dict__)

  def to_json_string(self) -> str:
    """The fields as JSON, keys sorted, indented by 2, newline at the end."""
    return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


class BertModel:
  """One forward pass of the encoder; its outputs are read off by getters.

  Args:
    config: a BertConfig.
    is_training: bool; without it both dropout probabilities count as 0.
    input_ids: integer [B, S], word piece ids.
    input_mask: integer [B, S], 1 for a real token and 0 for padding; all real
      when None.
    token_type_ids: integer [B, S], segment of each token; all 0 when None.
    use_one_hot_embeddings: look words up by a matrix product, which suits a
      TPU, instead of a gather.
    scope: name before all variables; "bert" when None.
    precision: "float32", or "bfloat16" for the products and activations of
      the layers. Weights, LayerNorm, softmax and all outputs are float32
      either way.

  Raises:
    ValueError: a rank is not 2, or S is more than the model's positions.
  """

  def __init__(
    self,
    config: BertConfig,
    is_training: bool,
    input_ids: tf.Tensor,
    input_mask: tf.Tensor | None = None,
    token_type_ids: tf.Tensor | None = None,
    use_one_hot_embeddings: bool = False,
    scope: str | None = None,
    precision: str = "float32",
  ):
    keep = 1.0 if is_training else 0.0
    hidden_dropout = config.hidden_dropout_prob * keep
    attention_dropout = config.attention_probs_dropout_prob * keep
    input_ids = tf.convert_to_tensor(input_ids)
    shape = get_shape_list(input_ids, expected_rank=2)
    if input_mask is None:
      input_mask = tf.ones(shape, tf.int32)
    if token_type_ids is None:
      token_type_ids = tf.zeros(shape, tf.int32)
    input_mask = tf.convert_to_tensor(input_mask)
    token_type_ids = tf.convert_to_tensor(token_type_ids)

    with variables.variable_scope(scope, default_name="bert"):
      self.embedding_output, self.embedding_table = _embed(
        config,
        input_ids,
        token_type_ids,
        hidden_dropout,
        use_one_hot_embeddings,
      )
      attention_mask = create_attention_mask_from_input_mask(
        input_ids, input_mask
      )
      settings = [
        config.num_attention_heads,
        config.intermediate_size,
        get_activation(config.hidden_act),
        hidden_dropout,
        attention_dropout,
        config.initializer_range,
      ]
      first, layers, self._attention_probs = _encode(
        tf.cast(self.embedding_output, precision),
        attention_mask,
        config.num_hidden_layers,
        settings,
      )
      self.all_encoder_layers = [tf.cast(x, tf.float32) for x in layers]
      self.sequence_output = self.all_encoder_layers[-1]
      # The paper's C (section 3.1): the vector of [CLS] stands for the whole.
      with variables.variable_scope("pooler"):
        self.pooled_output = dense(
          tf.cast(first, tf.float32),
          config.hidden_size,
          tf.tanh,
          create_initializer(config.initializer_range),
        )

  def get_pooled_output(self) -> tf.Tensor:
    """float [B, H]: the transformed [CLS] vector."""
    return self.pooled_output

  def get_sequence_output(self) -> tf.Tensor:
    """float [B, S, H]: the last layer's vector of each token."""
    return self.sequence_output

  def get_all_encoder_layers(self) -> list[tf.Tensor]:
    """A list, lowest layer first, of float [B, S, H]."""
    return self.all_encoder_layers

  def get_all_attention_probs(self) -> list[tf.Tensor]:
    """A list, lowest layer first, of float [B, N, S, S]: who attends to whom.

    Each row holds what a head of a position gives to all positions, as softmax
    leaves it, before dropout. In a graph it costs nothing unless it is used.
    Eagerly nothing is kept for it: each call computes queries, keys and softmax
    again, from the inputs and weights of the forward pass.
    """
    return [probs() for probs in self._attention_probs]

  def get_embedding_output(self) -> tf.Tensor:
    """float [B, S, H]: what enters the first layer."""
    return self.embedding_output

  def get_embedding_table(self) -> tf.Variable:
    """float [V, H]: the word embeddings, a variable."""
    return self.embedding_table


def variable_shapes(config: BertConfig) -> dict[str, list[int]]:
  """Name and shape of every variable of a BertModel, none of them made.

  Args:
    config: a BertConfig.

  Returns:
    Dict from name to list of ints.
  """
  hidden, wide = config.hidden_size, config.intermediate_size

  def dense_shapes(name, inputs, outputs):
    return {f"{name}/kernel": [inputs, outputs], f"{name}/bias": [outputs]}

  def norm_shapes(name):
    return {f"{name}/LayerNorm/{part}": [hidden] for part in ("beta", "gamma")}

  shapes = {
    "bert/embeddings/word_embeddings": [config.vocab_size, hidden],
    "bert/embeddings/token_type_embeddings": [config.type_vocab_size, hidden],
    "bert/embeddings/position_embeddings": [
      config.max_position_embeddings,
      hidden,
    ],
    **norm_shapes("bert/embeddings"),
  }
  for index in range(config.num_hidden_layers):
    layer = f"bert/encoder/layer_{index}"
    for part in ("query", "key", "value"):
      shapes |= dense_shapes(f"{layer}/attention/self/{part}", hidden, hidden)
    shapes |= dense_shapes(f"{layer}/attention/output/dense", hidden, hidden)
    shapes |= norm_shapes(f"{layer}/attention/output")
    shapes |= dense_shapes(f"{layer}/intermediate/dense", hidden, wide)
    shapes |= dense_shapes(f"{layer}/output/dense", wide, hidden)
    shapes |= norm_shapes(f"{layer}/output")
  return shapes | dense_shapes("bert/pooler/dense", hidden, hidden)


@tf.custom_gradient
def gelu(x: tf.Tensor) -> tf.Tensor:
  """Gaussian error linear unit, by the tanh form (Hendrycks & Gimpel 2016).

  x (1 + tanh u) / 2 is written as x sigmoid(2 u), and its derivative by hand,
  which takes two thirds of the passes that TensorFlow makes by itself.
  """
  slope = 2.0 * math.sqrt(2.0 / math.pi)
  sigmoid = tf.sigmoid(x * (slope + 0.044715 * slope * tf.square(x)))

  def gradient(upstream):
    inner = slope + 3 * 0.044715 * slope * tf.square(x)
    # SigmoidGrad(s, x) is x s (1 - s).
    sloped = tf.raw_ops.SigmoidGrad(y=sigmoid, dy=x) * inner
    return upstream * (sigmoid + sloped)

  return x * sigmoid, gradient


def get_activation(
  activation_string: str | Callable[[tf.Tensor], tf.Tensor] | None,
) -> Callable[[tf.Tensor], tf.Tensor] | None:
  """The function of that name; None for "linear" or None.

  What is not a string is returned as it is, so a function may be passed.

  Raises:
    ValueError: no activation has that name.
  """
  if activation_string is None:
    return None
  if not isinstance(activation_string, str):
    return activation_string
  known = {"linear": None, "relu": tf.nn.relu, "gelu": gelu, "tanh": tf.tanh}
  try:
    return known[activation_string.lower()]
  except KeyError:
    raise ValueError(
      f"hidden_act={activation_string!r} is not one of "
      f"{', '.join(sorted(known))}"
    ) from None


def get_assignment_map_from_checkpoint(
  tvars: Iterable[tf.Variable], init_checkpoint: str
) -> tuple[dict[str, str], dict[str, int]]:
  """What a checkpoint holds of some variables, for `init_from_checkpoint`.

  Args:
    tvars: variables.
    init_checkpoint: checkpoint prefix.

  Returns:
    assignment_map: dict from name to the same name.
    initialized_variable_names: dict with the keys `name` and `name:0`, and
      the value 1, for each of them.
  """
  # A variable's name may end in the number of its tensor.
  wanted = {re.sub(r":\d+$", "", v.name) for v in tvars}
  names = [
    name
    for name, _ in tf.train.list_variables(init_checkpoint)
    if name in wanted
  ]
  assignment_map = {name: name for name in names}
  initialized = {n: 1 for name in names for n in (name, name + ":0")}
  return assignment_map, initialized


def dropout(input_tensor: tf.Tensor, dropout_prob: float | None) -> tf.Tensor:
  """Zeroes each element with that probability and scales up the rest.

  Outside v1 graphs the mask is a function of seed, step and place in the
  model (`variables.dropout_seed`), so a repeated step repeats it. The
  probability is rounded to a multiple of 2**-16 there.
  """
  if not dropout_prob:
    return input_tensor
  if variables.in_v1_graph():
    return tf.nn.dropout(input_tensor, rate=dropout_prob)
  # Random bits are what dropout costs, and 16 of them are enough to decide,
  # so each 32-bit word serves two elements.
  shape = tf.shape(input_tensor)
  words = tf.random.stateless_uniform(
    [(tf.size(input_tensor) + 1) // 2],
    variables.dropout_seed(),
    minval=None,
    maxval=None,
    dtype=tf.int32,
  )
  bits = tf.reshape(tf.bitcast(words, tf.int16), [-1])
  bits = tf.reshape(bits[: tf.size(input_tensor)], shape)
  dropped = round(dropout_prob * 2**16)  # of the 2**16 values of int16
  scale = 2**16 / (2**16 - dropped)
  keep = tf.cast(bits >= dropped - 2**15, input_tensor.dtype)
  return input_tensor * (keep * scale)


def layer_norm(input_tensor: tf.Tensor, name: str | None = None) -> tf.Tensor:
  """Layer normalisation over the last axis (Ba et al. 2016), in float32."""
  width = get_shape_list(input_tensor)[-1]
  with variables.variable_scope(name, default_name="LayerNorm"):
    beta = variables.get_variable(
      "beta", [width], tf.compat.v1.zeros_initializer()
    )
    gamma = variables.get_variable(
      "gamma", [width], tf.compat.v1.ones_initializer()
    )
  x = tf.cast(input_tensor, tf.float32)
  mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
  normalised = tf.nn.batch_normalization(
    x, mean, variance, beta, gamma, LAYER_NORM_EPSILON
  )
  return tf.cast(normalised, input_tensor.dtype)


def layer_norm_and_dropout(
  input_tensor: tf.Tensor, dropout_prob: float | None, name: str | None = None
) -> tf.Tensor:
  """`layer_norm`, then `dropout`."""
  return dropout(layer_norm(input_tensor, name), dropout_prob)


def create_initializer(
  initializer_range: float = 0.02,
) -> Callable[..., tf.Tensor]:
  """An initializer: normal of that deviation, redrawn beyond two of them."""

  def initializer(shape, dtype=tf.float32, partition_info=None):
    del partition_info  # What v1's get_variable passes.
    seed = variables.initial_seed()
    if seed is None:
      return tf.random.truncated_normal(
        shape, stddev=initializer_range, dtype=dtype
      )
    return tf.random.stateless_truncated_normal(
      shape, seed, stddev=initializer_range, dtype=dtype
    )

  return initializer


def dense(
  input_tensor: tf.Tensor,
  units: int,
  activation: Callable[[tf.Tensor], tf.Tensor] | None,
  initializer: Callable[..., tf.Tensor],
  name: str = "dense",
) -> tf.Tensor:
  """activation(x W + b), with variables `name/kernel` and `name/bias`.

  Variables and activation are float32; the product is made in the input's
  precision.

  Args:
    input_tensor: float [rows, width].
    units: width of the result.
    activation: function, or None for none.
    initializer: initializer of the kernel; the bias starts at 0.
    name: scope of the variables.

  Returns:
    float [rows, units].
  """
  assert_rank(input_tensor, 2)
  weights = _kernel_and_bias(input_tensor, units, initializer, name)
  return _affine(input_tensor, *weights, activation)


def _affine(input_tensor, kernel, bias, activation):
  output = tf.nn.bias_add(tf.matmul(input_tensor, kernel), bias)
  if activation is None:
    return output
  return tf.cast(activation(tf.cast(output, tf.float32)), output.dtype)


def _kernel_and_bias(input_tensor, units, initializer, name):
  """The variables of a dense layer, in the precision of its input."""
  width = input_tensor.shape[-1]
  with variables.variable_scope(name):
    kernel = variables.get_variable("kernel", [width, units], initializer)
    bias = variables.get_variable(
      "bias", [units], tf.compat.v1.zeros_initializer()
    )
  return tf.cast(kernel, input_tensor.dtype), tf.cast(bias, input_tensor.dtype)


def embedding_lookup(
  input_ids: tf.Tensor,
  vocab_size: int,
  embedding_size: int = 128,
  initializer_range: float = 0.02,
  word_embedding_name: str = "word_embeddings",
  use_one_hot_embeddings: bool = False,
) -> tuple[tf.Tensor, tf.Variable]:
  """The embedding of each word piece.

  Args:
    input_ids: integer [B, S]; [B, S, n] looks n up and joins them.
    vocab_size: V.
    embedding_size: width of an embedding, H.
    initializer_range: deviation of a fresh table.
    word_embedding_name: name of the table's variable.
    use_one_hot_embeddings: look up by a matrix product.

  Returns:
    float [B, S, H], and the table [V, H].
  """
  if input_ids.shape.rank == 2:
    input_ids = tf.expand_dims(input_ids, axis=-1)
  table = variables.get_variable(
    word_embedding_name,
    [vocab_size, embedding_size],
    create_initializer(initializer_range),
  )
  flat_ids = tf.reshape(input_ids, [-1])
  if use_one_hot_embeddings:
    output = tf.matmul(tf.one_hot(flat_ids, depth=vocab_size), table)
  else:
    output = tf.gather(table, flat_ids)
  *outer, joined = get_shape_list(input_ids)
  return tf.reshape(output, [*outer, joined * embedding_size]), table


def embedding_postprocessor(
  input_tensor: tf.Tensor,
  use_token_type: bool = False,
  token_type_ids: tf.Tensor | None = None,
  token_type_vocab_size: int = 16,
  token_type_embedding_name: str = "token_type_embeddings",
  use_position_embeddings: bool = True,
  position_embedding_name: str = "position_embeddings",
  initializer_range: float = 0.02,
  max_position_embeddings: int = 512,
  dropout_prob: float = 0.1,
) -> tf.Tensor:
  """Adds segment and position embeddings, normalises, drops out (figure 2).

  Args:
    input_tensor: float [B, S, H], word embeddings.
    use_token_type: whether to add the embedding of `token_type_ids`.
    token_type_ids: integer [B, S].
    token_type_vocab_size: number of segment types.
    token_type_embedding_name: name of their variable.
    use_position_embeddings: whether to add the embedding of each position.
    position_embedding_name: name of their variable.
    initializer_range: deviation of fresh tables.
    max_position_embeddings: rows of the position table.
    dropout_prob: dropout of the result.

  Returns:
    float [B, S, H].

  Raises:
    ValueError: `token_type_ids` is wanted and None, or S is more than
      `max_position_embeddings`.
  """
  batch, seq, width = get_shape_list(input_tensor, expected_rank=3)
  initializer = create_initializer(initializer_range)
  output = input_tensor
  if use_token_type:
    if token_type_ids is None:
      raise ValueError("use_token_type=True needs token_type_ids")
    types = variables.get_variable(
      token_type_embedding_name, [token_type_vocab_size, width], initializer
    )
    # Few types: a product with one-hot rows beats a gather on every device.
    one_hot = tf.one_hot(
      tf.reshape(token_type_ids, [-1]),
      depth=token_type_vocab_size,
      dtype=output.dtype,
    )
    output += tf.reshape(tf.matmul(one_hot, types), [batch, seq, width])
  if use_position_embeddings:
    if isinstance(seq, int) and seq > max_position_embeddings:
      raise ValueError(
        f"sequence length {seq} is more than the "
        f"{max_position_embeddings} positions of the model"
      )
    positions = variables.get_variable(
      position_embedding_name, [max_position_embeddings, width], initializer
    )
    output += positions[:seq]
  return layer_norm_and_dropout(output, dropout_prob)


def create_attention_mask_from_input_mask(
  from_tensor: tf.Tensor, to_mask: tf.Tensor
) -> tf.Tensor:
  """Which positions may attend to which: every one to each unmasked one.

  Args:
    from_tensor: [B, F] or [B, F, H].
    to_mask: integer [B, T].

  Returns:
    float [B, F, T] of 1 and 0.
  """
  batch, from_seq = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
  to_seq = get_shape_list(to_mask, expected_rank=2)[1]
  mask = tf.cast(tf.reshape(to_mask, [batch, 1, to_seq]), tf.float32)
  return tf.broadcast_to(mask, [batch, from_seq, to_seq])


def attention_layer(
  from_tensor: tf.Tensor,
  to_tensor: tf.Tensor,
  attention_mask: tf.Tensor | None = None,
  num_attention_heads: int = 1,
  size_per_head: int = 512,
  query_act: Callable[[tf.Tensor], tf.Tensor] | None = None,
  key_act: Callable[[tf.Tensor], tf.Tensor] | None = None,
  value_act: Callable[[tf.Tensor], tf.Tensor] | None = None,
  attention_probs_dropout_prob: float = 0.0,
  initializer_range: float = 0.02,
  do_return_2d_tensor: bool = False,
  batch_size: int | tf.Tensor | None = None,
  from_seq_length: int | tf.Tensor | None = None,
  to_seq_length: int | tf.Tensor | None = None,
) -> tf.Tensor:
  """Multi-head scaled dot-product attention (Vaswani et al. 2017, 3.2).

  Args:
    from_tensor: float [B, F, H] or [B * F, H], the queries' side.
    to_tensor: float [B, T, H] or [B * T, H], the keys' and values' side.
    attention_mask: [B, F, T], 1 where attention is allowed and 0 elsewhere;
      allowed everywhere when None.
    num_attention_heads, size_per_head: N and D.
    query_act, key_act, value_act: activations of the projections.
    attention_probs_dropout_prob: dropout of the attention probabilities.
    initializer_range: deviation of fresh weights.
    do_return_2d_tensor: return [B * F, N * D].
    batch_size, from_seq_length, to_seq_length: B, F, T; needed if the inputs
      are matrices.

  Returns:
    float [B, F, N * D], or [B * F, N * D] if asked for.

  Raises:
    ValueError: the ranks differ, or matrices come without B, F and T.
  """
  from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
  to_shape = get_shape_list(to_tensor, expected_rank=len(from_shape))
  if len(from_shape) == 3:
    batch_size, from_seq_length = from_shape[:2]
    to_seq_length = to_shape[1]
  if None in (batch_size, from_seq_length, to_seq_length):
    raise ValueError("matrices need batch_size, from_seq_length, to_seq_length")
  context, _ = _attention(
    from_tensor,
    to_tensor,
    attention_mask,
    (batch_size, from_seq_length, to_seq_length),
    (num_attention_heads, size_per_head),
    (query_act, key_act, value_act),
    attention_probs_dropout_prob,
    initializer_range,
  )
  rows = [-1] if do_return_2d_tensor else [batch_size, from_seq_length]
  return tf.reshape(context, [*rows, num_attention_heads * size_per_head])


def _attention(
  from_tensor,
  to_tensor,
  attention_mask,
  lengths,
  heads,
  activations,
  dropout_prob,
  initializer_range,
):
  """softmax(Q K' / sqrt(D)) V, equation 1 of Vaswani et al. (2017).

  `lengths` are B, F and T, `heads` are N and D, and `activations` those of the
  three projections; the rest is as in `attention_layer`.

  Returns:
    float [B, F, N, D], and a function that gives the probabilities, see
    `_probs_on_demand`.
  """
  batch, from_seq, to_seq = lengths
  initializer = create_initializer(initializer_range)
  if attention_mask is not None:
    attention_mask = tf.expand_dims(attention_mask, axis=1)

  def projection(tensor, seq, activation, name):
    x = reshape_to_matrix(tensor)
    weights = _kernel_and_bias(x, math.prod(heads), initializer, name)
    weights = [tf.convert_to_tensor(w) for w in weights]  # As they are now.

    def project():
      y = tf.reshape(_affine(x, *weights, activation), [batch, seq, *heads])
      return tf.transpose(y, [0, 2, 1, 3])  # [B, N, S, D]

    return project

  query_act, key_act, value_act = activations
  query = projection(from_tensor, from_seq, query_act, "query")
  key = projection(to_tensor, to_seq, key_act, "key")
  value = projection(to_tensor, to_seq, value_act, "value")

  def attention_probs():
    scores = tf.matmul(query(), key(), transpose_b=True)  # [B, N, F, T]
    return _attention_probs(scores, heads[1], attention_mask)

  probs = attention_probs()
  used = dropout(tf.cast(probs, from_tensor.dtype), dropout_prob)
  context = tf.transpose(tf.matmul(used, value()), [0, 2, 1, 3])
  return context, _probs_on_demand(probs, attention_probs)


def _probs_on_demand(probs, attention_probs):
  """A function that gives the attention probabilities `probs`.

  A graph drops what is not used, so in one they are at hand for nothing. Held
  eagerly they would take more memory than all else, so there they are computed
  again, as `attention_probs` did, from what else is held: a layer's input, and
  the weights as they were, which TensorFlow copies only once they change.
  """
  return attention_probs if tf.executing_eagerly() else lambda: probs


def _attention_probs(scores, size_per_head, mask):
  """Softmax of scores / sqrt(D) where the mask allows, in float32."""
  scaled = tf.cast(scores, tf.float32) * (1.0 / math.sqrt(size_per_head))
  if mask is not None:
    scaled += (1.0 - tf.cast(mask, tf.float32)) * MASKED_SCORE
  return tf.nn.softmax(scaled)


def _attend_from_all(
  shape, attention_mask, num_attention_heads, dropout_prob, initializer_range, x
):
  """Attention of a sequence to itself.

  `shape` is B, S and H, and `x` is [B * S, H]; the rest is as in
  `attention_layer`.

  Returns:
    float [B * S, H], and a function that gives the probabilities [B, N, S, S].
  """
  batch, seq, hidden = shape
  context, probs = _attention(
    x,
    x,
    attention_mask,
    (batch, seq, seq),
    (num_attention_heads, hidden // num_attention_heads),
    (None, None, None),
    dropout_prob,
    initializer_range,
  )
  return tf.reshape(context, [-1, hidden]), probs


def _attend_from_one(
  sequence,
  attention_mask,
  num_attention_heads,
  dropout_prob,
  initializer_range,
  position,
):
  """`attention_layer` from a single position, at a fraction of its cost.

  A score q'(K x + k) is (K'q)'x + q'k, and a mean of values V x + v is V times
  the mean of x, and v. So the one query is projected to the space of the
  inputs, and their mean from there, in place of all inputs to keys and values.

  Args:
    sequence: float [B, T, H].
    attention_mask: [B, 1, T], or None.
    num_attention_heads: N.
    dropout_prob: dropout of the attention probabilities.
    initializer_range: deviation of fresh weights.
    position: float [B, H].

  Returns:
    float [B, H], and a function that gives the probabilities [B, N, T].
  """
  hidden = sequence.shape[-1]
  heads = [num_attention_heads, hidden // num_attention_heads]  # N, D
  initializer = create_initializer(initializer_range)

  def by_head(name):
    kernel, bias = _kernel_and_bias(sequence, hidden, initializer, name)
    return tf.reshape(kernel, [hidden, *heads]), tf.reshape(bias, heads)

  query = dense(position, hidden, None, initializer, "query")
  query = tf.reshape(query, [-1, *heads])
  key_kernel, key_bias = by_head("key")

  def attention_probs():
    scores = tf.matmul(
      tf.einsum("bnd,hnd->bnh", query, key_kernel), sequence, transpose_b=True
    )  # [B, N, T]
    scores += tf.reduce_sum(query * key_bias, axis=-1, keepdims=True)
    return _attention_probs(scores, heads[1], attention_mask)

  probs = attention_probs()
  used = dropout(tf.cast(probs, sequence.dtype), dropout_prob)
  kernel, bias = by_head("value")
  means = tf.matmul(used, sequence)  # [B, N, H]
  context = tf.einsum("bnh,hnd->bnd", means, kernel)
  # With dropout the probabilities do not add up to 1.
  context += tf.reduce_sum(used, axis=-1, keepdims=True) * bias
  context = tf.reshape(context, [-1, hidden])
  return context, _probs_on_demand(probs, attention_probs)


def transformer_model(
  input_tensor: tf.Tensor,
  attention_mask: tf.Tensor | None = None,
  hidden_size: int = 768,
  num_hidden_layers: int = 12,
  num_attention_heads: int = 12,
  intermediate_size: int = 3072,
  intermediate_act_fn: Callable[[tf.Tensor], tf.Tensor] | None = gelu,
  hidden_dropout_prob: float = 0.1,
  attention_probs_dropout_prob: float = 0.1,
  initializer_range: float = 0.02,
  do_return_all_layers: bool = False,
) -> tf.Tensor | list[tf.Tensor]:
  """The encoder's stack of blocks (Vaswani et al. 2017, figure 1, left).

  Args:
    input_tensor, attention_mask: float [B, S, H], and [B, S, S] or None.
    hidden_size, num_hidden_layers, num_attention_heads, intermediate_size: as
      in BertConfig.
    intermediate_act_fn: a function, or None.
    hidden_dropout_prob, attention_probs_dropout_prob: dropout of each
      sub-layer's output, and of attention probabilities.
    initializer_range: deviation of fresh weights.
    do_return_all_layers: return the list of all blocks' outputs.

  Returns:
    float [B, S, H], or a list of them, lowest first.

  Raises:
    ValueError: H is not N times a whole number, or not the input's width.
  """
  width = get_shape_list(input_tensor, expected_rank=3)[-1]
  if hidden_size % num_attention_heads or hidden_size != width:
    raise ValueError(
      f"hidden_size={hidden_size} is not a multiple of num_attention_heads="
      f"{num_attention_heads}, or not the input's width {width}"
    )
  outputs, _ = _transformer(
    input_tensor,
    attention_mask,
    num_hidden_layers,
    num_attention_heads,
    intermediate_size,
    intermediate_act_fn,
    hidden_dropout_prob,
    attention_probs_dropout_prob,
    initializer_range,
  )
  return outputs if do_return_all_layers else outputs[-1]


def _transformer(
  input_tensor,
  attention_mask,
  num_hidden_layers,
  num_attention_heads,
  intermediate_size,
  intermediate_act_fn,
  hidden_dropout_prob,
  attention_probs_dropout_prob,
  initializer_range,
):
  """All blocks' outputs, and functions that give their probabilities.

  The arguments are those of `transformer_model`; both are lists, lowest first,
  of [B, S, H] and of functions that give [B, N, S, S].
  """
  shape = get_shape_list(input_tensor)
  x = reshape_to_matrix(input_tensor)  # On a TPU a reshape is not free.
  attend = functools.partial(
    _attend_from_all,
    shape,
    attention_mask,
    num_attention_heads,
    attention_probs_dropout_prob,
    initializer_range,
  )
  outputs, probs = [], []
  for index in range(num_hidden_layers):
    with variables.variable_scope(f"layer_{index}"):
      x, layer_probs = _transformer_block(
        x,
        attend,
        intermediate_size,
        intermediate_act_fn,
        hidden_dropout_prob,
        initializer_range,
      )
    outputs.append(reshape_from_matrix(x, shape))
    probs.append(layer_probs)
  return outputs, probs


def _embed(
  config, input_ids, token_type_ids, dropout_prob, use_one_hot_embeddings
):
  """What enters the first layer [B, S, H], and the table of words [V, H]."""
  with variables.variable_scope("embeddings"):
    words, table = embedding_lookup(
      input_ids,
      config.vocab_size,
      config.hidden_size,
      config.initializer_range,
      use_one_hot_embeddings=use_one_hot_embeddings,
    )
    output = embedding_postprocessor(
      words,
      use_token_type=True,
      token_type_ids=token_type_ids,
      token_type_vocab_size=config.type_vocab_size,
      initializer_range=config.initializer_range,
      max_position_embeddings=config.max_position_embeddings,
      dropout_prob=dropout_prob,
    )
  return output, table


def _encode(encoder_input, attention_mask, num_hidden_layers, settings):
  """Runs all layers.

  Returns:
    The last layer's first position [B, H]; a list of all layers [B, S, H]; and
    one of functions that give their attention probabilities [B, N, S, S].
  """
  with variables.variable_scope("encoder"):
    layers, probs = _transformer(
      encoder_input, attention_mask, num_hidden_layers, *settings
    )
    if variables.in_v1_graph():
      return layers[-1][:, 0, :], layers, probs
    first, first_probs = _split_off_first(
      [encoder_input, *layers][-2], attention_mask, num_hidden_layers, settings
    )
  others, other_probs = layers[-1][:, 1:, :], probs[-1]
  layers[-1] = tf.concat([first[:, tf.newaxis, :], others], axis=1)
  probs[-1] = lambda: tf.concat(
    [first_probs()[:, :, tf.newaxis, :], other_probs()[:, :, 1:, :]], axis=2
  )
  return first, layers, probs


def _split_off_first(below, attention_mask, num_hidden_layers, settings):
  """Computes the last layer's first position by itself.

  A position of the last layer depends on the layer below alone, and the
  pooler reads the first one only. Computed apart, it leaves the others
  unused in a classifier, and TensorFlow drops from a graph what is not
  used: nearly one layer of work. Where they are used, the first position
  of the sequence is this one, so that all outputs share its dropout.

  Args:
    below: [B, S, H], what the last layer reads.
    attention_mask: [B, S, S].
    num_hidden_layers, settings: as in `_encode`.

  Returns:
    [B, H], and a function that gives its attention probabilities [B, N, S].
  """
  num_attention_heads, *block_settings, attention_dropout, deviation = settings
  attend = functools.partial(
    _attend_from_one,
    below,
    attention_mask[:, :1, :],
    num_attention_heads,
    attention_dropout,
    deviation,
  )
  with variables.variable_scope(f"layer_{num_hidden_layers - 1}"):
    return _transformer_block(
      below[:, 0, :], attend, *block_settings, deviation
    )


def _transformer_block(
  x,
  attend,
  intermediate_size,
  intermediate_act_fn,
  hidden_dropout_prob,
  initializer_range,
):
  """Attention, then feed-forward, each added to its input and normalised.

  Args:
    x: float [rows, H], the positions to compute.
    attend: function of them that returns what they attend to, [rows, H], and
      a function that gives the probabilities.
    intermediate_size, intermediate_act_fn, hidden_dropout_prob,
    initializer_range: see `transformer_model`.

  Returns:
    float [rows, H], and that function.
  """
  hidden = x.shape[-1]
  initializer = create_initializer(initializer_range)

  def project_and_add(sub_layer, residual):
    sub_layer = dense(sub_layer, hidden, None, initializer)
    return layer_norm(dropout(sub_layer, hidden_dropout_prob) + residual)

  with variables.variable_scope("attention"):
    with variables.variable_scope("self"):
      attended, probs = attend(x)
    with variables.variable_scope("output"):
      x = project_and_add(attended, x)
  with variables.variable_scope("intermediate"):
    wide = dense(x, intermediate_size, intermediate_act_fn, initializer)
  with variables.variable_scope("output"):
    return project_and_add(wide, x), probs


def get_shape_list(
  tensor: tf.Tensor,
  expected_rank: int | Sequence[int] | None = None,
  name: str | None = None,
) -> list[int | tf.Tensor]:
  """A tensor's shape as a list: an int where static, a scalar tensor if not.

  Raises:
    ValueError: its rank is not `expected_rank` (an int or a list of them).
  """
  if expected_rank is not None:
    assert_rank(tensor, expected_rank, name)
  static = tensor.shape.as_list()
  if None not in static:
    return static
  dynamic = tf.shape(tensor)
  return [dynamic[i] if size is None else size for i, size in enumerate(static)]


def reshape_to_matrix(input_tensor: tf.Tensor) -> tf.Tensor:
  """[..., H] as [rows, H].

  Raises:
    ValueError: the tensor is a scalar or a vector.
  """
  rank = input_tensor.shape.rank
  if rank < 2:
    raise ValueError(f"a tensor of shape {input_tensor.shape} has no rows")
  if rank == 2:
    return input_tensor
  return tf.reshape(input_tensor, [-1, input_tensor.shape[-1]])


def reshape_from_matrix(
  output_tensor: tf.Tensor, orig_shape_list: Sequence[int | tf.Tensor]
) -> tf.Tensor:
  """[rows, H] back in the shape that `reshape_to_matrix` was given."""
  if len(orig_shape_list) == 2:
    return output_tensor
  width = get_shape_list(output_tensor, expected_rank=2)[-1]
  return tf.reshape(output_tensor, [*orig_shape_list[:-1], width])


def assert_rank(
  tensor: tf.Tensor, expected_rank: int | Sequence[int], name: str | None = None
) -> None:
  """Raises ValueError unless the rank is (one of) `expected_rank`."""
  allowed = (
    [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
  )
  if tensor.shape.rank not in allowed:
    raise ValueError(
      f"{name or getattr(tensor, 'name', 'tensor')}: rank "
      f"{tensor.shape.rank}, shape {tensor.shape}, where rank "
      f"{' or '.join(map(str, allowed))} is expected"
    )
