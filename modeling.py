"""BERT: a Transformer encoder (Devlin et al. 2019, arXiv:1810.04805).

Shapes are written [B, S, H] with B batch, S sequence, H hidden, N heads, D size
per head, V vocabulary, L layers, P positions, F queries, T keys and values.

    config = BertConfig.from_json_file("bert_config.json")
    model = BertModel(config, False, input_ids, input_mask, segment_ids)
    vectors = model.get_sequence_output()  # [B, S, H]

The same code runs eagerly, inside `tf.function` and in a v1 graph.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from bert import variables  # First: it imports quiet_start.
import tensorflow as tf

from bert.config import BertConfig
from bert.layers import LAYER_NORM_EPSILON, Activation, DenseWeights
from bert.layers import NormWeights
from bert.layers import affine, assert_rank, dense_weights, dropout, gelu
from bert.layers import create_attention_mask_from_input_mask
from bert.layers import create_initializer, get_activation, get_shape_list
from bert.layers import dense, layer_norm  # noqa: F401  Names of the original.
from bert.layers import layer_norm_and_dropout, masked_softmax, merge_heads
from bert.layers import norm_weights, normalize, recomputed, reshape_from_matrix
from bert.layers import reshape_to_matrix, split_heads, traced_once
from bert.variables import get_assignment_map_from_checkpoint  # noqa: F401


_T = TypeVar("_T")


def _kept(build: Callable[[BertModel], _T]) -> functools.cached_property[_T]:
  """A property that is computed once, in the graph where the model was built.

  So eager mode computes, and a graph contains, only what is read.
  """

  @functools.wraps(build)
  def get(model):
    with contextlib.ExitStack() as stack:
      if model._graph is not None:
        stack.enter_context(model._graph.as_default())
        stack.enter_context(tf.device(model._embeddings.device))
      return build(model)

  return functools.cached_property(get)


class BertModel:
  """The encoder applied to a batch. Outputs are computed when they are read.

  Args:
    config: a BertConfig.
    is_training: whether to apply dropout.
    input_ids: integer [B, S], ids of word pieces.
    input_mask: integer [B, S], 1 for tokens and 0 for padding; all 1 if None.
    token_type_ids: integer [B, S], segment of each token; all 0 if None.
    use_one_hot_embeddings: whether to look up words by a matrix product, which
      is faster on a TPU, instead of a gather.
    scope: prefix of all variable names; "bert" if None.
    precision: "float32"; or "bfloat16" or "float16" for the products and
      activations of the layers. Trained weights, LayerNorm, softmax and all
      outputs are always float32.
    gradient_checkpointing: whether training keeps the input of each layer only,
      and computes the layer again in the backward pass. Not in a v1 graph.

  Raises:
    ValueError: `config` is not valid, a rank is not 2, or S is more than
      `max_position_embeddings`.
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
    gradient_checkpointing: bool = False,
  ):
    config.check()
    self._config = config = copy.copy(config)
    if not is_training:
      config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    input_ids = tf.convert_to_tensor(input_ids)
    assert_rank(input_ids, 2, "input_ids")
    if input_mask is None:
      input_mask = tf.ones_like(input_ids)
    if token_type_ids is None:
      token_type_ids = tf.zeros_like(input_ids)
    with variables.variable_scope(scope, default_name="bert"):
      self._embeddings = self._embed(
        input_ids, token_type_ids, use_one_hot_embeddings
      )
      with variables.variable_scope("encoder"):
        self.blocks = stack_weights(config, precision)
      shape = [config.hidden_size] * 2
      initializer = create_initializer(config.initializer_range)
      self._pooler = dense_weights("pooler/dense", shape, initializer)
    self._mask = create_attention_mask_from_input_mask(
      self._embeddings, tf.convert_to_tensor(input_mask)
    )
    is_eager = tf.executing_eagerly()
    self._graph = None if is_eager else tf.compat.v1.get_default_graph()
    recomputes = gradient_checkpointing and is_training
    self._wrap = recomputed if recomputes else traced_once
    block = self._block()
    x = tf.cast(self._embeddings, precision)
    self.inputs, self._probs = [x], []  # Of each block, float [B, S, H].
    for weights, seed in self.blocks[:-1]:
      x, probs = block(x, self._mask, weights, seed)
      self.inputs.append(x)
      # Kept eagerly, probabilities take more memory than everything else.
      self._probs.append(None if is_eager else probs)

  def _embed(self, input_ids, token_type_ids, use_one_hot_embeddings):
    """float [B, S, H]: the sum of the embeddings, projected if E is not H."""
    config = self._config
    with variables.variable_scope("embeddings"):
      words, self.embedding_table = embedding_lookup(
        input_ids,
        config.vocab_size,
        config.embedding_width,
        config.initializer_range,
        use_one_hot_embeddings=use_one_hot_embeddings,
      )
      x = embedding_postprocessor(
        words,
        use_token_type=config.type_vocab_size > 0,
        token_type_ids=token_type_ids,
        token_type_vocab_size=config.type_vocab_size,
        initializer_range=config.initializer_range,
        max_position_embeddings=config.max_position_embeddings,
        dropout_prob=config.hidden_dropout_prob,
        position_offset=config.position_offset,
        layer_norm_eps=config.layer_norm_eps,
      )
    if config.embedding_size is None:
      return x
    shape = [config.embedding_size, config.hidden_size]
    initializer = create_initializer(config.initializer_range)
    weights = dense_weights("embeddings_project", shape, initializer)
    projected = affine(reshape_to_matrix(x), weights)
    return reshape_from_matrix(projected, get_shape_list(x))

  def _block(self, select=None):
    """`transformer_block` as a function of x, mask, weights and seed."""
    config = self._config
    return self._wrap(
      lambda x, m, w, seed: transformer_block(x, m, w, seed, config, select)
    )

  def _last_block(self, select=None, draw=0):
    """The output of the last block, float32, and its probabilities.

    See `transformer_block` for `select`. `draw` tells the dropout masks of
    several calls apart.
    """
    weights, seed = self.blocks[-1]
    seed = _seed_at(seed, draw * len(_Dropout))
    x, probs = self._block(select)(self.inputs[-1], self._mask, weights, seed)
    return tf.cast(x, tf.float32), probs

  @_kept
  def _everywhere(self):
    """float [B, S, H]: the last layer, and its probabilities."""
    return self._last_block()

  @_kept
  def _first(self):
    """float [B, 1, H]: the last layer at the first position."""
    return self._last_block(lambda x: x[:, :1], draw=1)[0]

  @_kept
  def pooled_output(self) -> tf.Tensor:
    """float [B, H]: the vector C of section 3.1, [CLS] transformed."""
    x = affine(reshape_to_matrix(self._first), self._pooler)
    return (get_activation(self._config.pooler_act) or tf.identity)(x)

  @_kept
  def sequence_output(self) -> tf.Tensor:
    """float [B, S, H]: the output of the last layer."""
    x, _ = self._everywhere
    # The first position has the same dropout in all outputs.
    return tf.concat([self._first, x[:, 1:]], axis=1)

  def sequence_output_at(self, positions: tf.Tensor) -> tf.Tensor:
    """float [B, P, H]: the last layer, computed only at positions [B, P]."""
    return self._last_block(
      lambda x: tf.gather(x, positions, batch_dims=1), draw=2
    )[0]

  @_kept
  def all_encoder_layers(self) -> list[tf.Tensor]:
    """The outputs of all layers, L times float [B, S, H], lowest first."""
    lower = [tf.cast(x, tf.float32) for x in self.inputs[1:]]
    return [*lower, self.sequence_output]

  @property
  def embedding_output(self) -> tf.Tensor:
    """float [B, S, H]: the first layer's input."""
    return self._embeddings

  def get_all_attention_probs(self) -> list[tf.Tensor]:
    """L times float [B, N, S, S], before dropout, lowest layer first."""
    if self._graph is not None and self._wrap is not recomputed:
      return [*self._probs, self._everywhere[1]]
    heads = self._config.num_attention_heads
    return [
      attention(x, x, self._mask, block.attention, heads)[1]
      for x, (block, _) in zip(self.inputs, self.blocks, strict=True)
    ]

  def get_pooled_output(self) -> tf.Tensor:
    """See `pooled_output`."""
    return self.pooled_output

  def get_sequence_output(self) -> tf.Tensor:
    """See `sequence_output`."""
    return self.sequence_output

  def get_all_encoder_layers(self) -> list[tf.Tensor]:
    """See `all_encoder_layers`."""
    return self.all_encoder_layers

  def get_embedding_output(self) -> tf.Tensor:
    """See `embedding_output`."""
    return self.embedding_output

  def get_embedding_table(self) -> tf.Variable:
    """float [V, E]: the word embeddings, a variable; E is H in BERT."""
    return self.embedding_table


def embedding_lookup(
  input_ids: tf.Tensor,
  vocab_size: int,
  embedding_size: int = 128,
  initializer_range: float = 0.02,
  word_embedding_name: str = "word_embeddings",
  use_one_hot_embeddings: bool = False,
) -> tuple[tf.Tensor, tf.Variable]:
  """The embeddings of word pieces, and their table `word_embedding_name`.

  Args:
    input_ids: integer [B, S], or [B, S, n] to concatenate n embeddings.
    vocab_size, embedding_size: V, H.
    initializer_range: standard deviation of a new table.
    use_one_hot_embeddings: whether to look up by a matrix product.

  Returns:
    float [B, S, n * H], and the table [V, H].
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
  *outer, count = get_shape_list(input_ids)
  return tf.reshape(output, [*outer, count * embedding_size]), table


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
  position_offset: int = 0,
  layer_norm_eps: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
  """Adds segment and position embeddings (figure 2); LayerNorm and dropout.

  Args:
    input_tensor: float [B, S, H], word embeddings; the result has this shape.
    use_token_type, use_position_embeddings: what to add.
    token_type_ids: integer [B, S].
    token_type_vocab_size, max_position_embeddings: lengths of the tables.
    token_type_embedding_name, position_embedding_name: their names.
    initializer_range: standard deviation of new tables.
    dropout_prob: dropout of the result.
    position_offset: number of rows of the table before the first position.
    layer_norm_eps: epsilon of the LayerNorm.

  Raises:
    ValueError: `token_type_ids` is missing, or S is more than
      `max_position_embeddings`.
  """
  _, seq, width = get_shape_list(input_tensor, expected_rank=3)
  initializer = create_initializer(initializer_range)
  output = input_tensor
  if use_token_type:
    if token_type_ids is None:
      raise ValueError("use_token_type=True needs token_type_ids")
    types = variables.get_variable(
      token_type_embedding_name, [token_type_vocab_size, width], initializer
    )
    # With few types, a product is faster than a gather on every device.
    one_hot = tf.one_hot(token_type_ids, token_type_vocab_size)
    output += tf.tensordot(one_hot, types, 1)
  if use_position_embeddings:
    if isinstance(seq, int) and seq > max_position_embeddings:
      raise ValueError(
        f"sequence length {seq} is more than the "
        f"{max_position_embeddings} positions of the model"
      )
    shape = [position_offset + max_position_embeddings, width]
    positions = variables.get_variable(
      position_embedding_name, shape, initializer
    )
    first = [position_offset, 0]
    output += tf.slice(positions, first, [seq, -1])  # It may be partitioned.
  return layer_norm_and_dropout(output, dropout_prob, None, layer_norm_eps)


class AttentionWeights(NamedTuple):
  """The projections of vectors to N * D."""

  query: DenseWeights
  key: DenseWeights
  value: DenseWeights


def attention(
  queries_of: tf.Tensor,
  values_of: tf.Tensor,
  mask: tf.Tensor | None,
  weights: AttentionWeights,
  num_heads: int,
  dropout_prob: float = 0.0,
  seed: tf.Tensor | None = None,
  activations: Sequence[Activation] = (None, None, None),
) -> tuple[tf.Tensor, tf.Tensor]:
  """softmax(Q K' / sqrt(D)) V per head: equation 1 of Vaswani et al. (2017).

  Q is a projection of [B, F, H]; K and V are projections of [B, T, H]. `mask`
  [B, F, T] is 0 where attention is not allowed. Returns float [B * F, N * D],
  and the probabilities before dropout, float32 [B, N, F, T].
  """
  inputs = queries_of, values_of, values_of
  query, key, value = (  # [B, N, F, D], [B, N, T, D], [B, N, T, D]
    split_heads(affine(reshape_to_matrix(x), pair, activation), x, num_heads)
    for x, pair, activation in zip(inputs, weights, activations, strict=True)
  )
  scores = tf.matmul(query, key, transpose_b=True)  # [B, N, F, T]
  probs = masked_softmax(
    scores, mask, scale=1 / math.sqrt(cast(int, query.shape[-1]))
  )
  used = dropout(tf.cast(probs, value.dtype), dropout_prob, seed)
  return merge_heads(tf.matmul(used, value)), probs


def attention_layer(
  from_tensor: tf.Tensor,
  to_tensor: tf.Tensor,
  attention_mask: tf.Tensor | None = None,
  num_attention_heads: int = 1,
  size_per_head: int = 512,
  query_act: Activation = None,
  key_act: Activation = None,
  value_act: Activation = None,
  attention_probs_dropout_prob: float = 0.0,
  initializer_range: float = 0.02,
  do_return_2d_tensor: bool = False,
  batch_size: int | tf.Tensor | None = None,
  from_seq_length: int | tf.Tensor | None = None,
  to_seq_length: int | tf.Tensor | None = None,
) -> tf.Tensor:
  """Multi-head attention with its variables (Vaswani et al. 2017, 3.2.2).

  Args:
    from_tensor, to_tensor: float [B, F, H] and [B, T, H]; or [B * F, H] and
      [B * T, H], with `batch_size`, `from_seq_length` and `to_seq_length`.
    attention_mask: [B, F, T], 0 where attention is not allowed.
    num_attention_heads, size_per_head: N and D.
    query_act, key_act, value_act: activations of the projections.
    attention_probs_dropout_prob: dropout of the attention probabilities.
    initializer_range: standard deviation of new weights.
    do_return_2d_tensor: whether to return [B * F, N * D], not [B, F, N * D].
  """
  assert_rank(from_tensor, [2, 3])
  assert_rank(to_tensor, from_tensor.shape.rank)
  if from_tensor.shape.rank == 2:
    if None in (batch_size, from_seq_length, to_seq_length):
      raise ValueError("matrices need batch_size and both lengths")
    shape = [batch_size, from_seq_length, None]
    from_tensor = reshape_from_matrix(from_tensor, shape)
    shape = [batch_size, to_seq_length, None]
    to_tensor = reshape_from_matrix(to_tensor, shape)
  width = num_attention_heads * size_per_head
  inputs = {"query": from_tensor, "key": to_tensor, "value": to_tensor}
  initializer = create_initializer(initializer_range)
  weights = [
    dense_weights(name, [cast(int, x.shape[-1]), width], initializer)
    for name, x in inputs.items()
  ]
  context, _ = attention(
    from_tensor,
    to_tensor,
    attention_mask,
    AttentionWeights(*weights),
    num_attention_heads,
    attention_probs_dropout_prob,
    activations=(query_act, key_act, value_act),
  )
  if do_return_2d_tensor:
    return context
  return reshape_from_matrix(context, get_shape_list(from_tensor))


class BlockWeights(NamedTuple):
  """Weights of a block in the order of their use."""

  attention: AttentionWeights
  attention_output: DenseWeights
  attention_norm: NormWeights
  intermediate: DenseWeights
  output: DenseWeights
  output_norm: NormWeights


def block_weights(
  config: BertConfig, precision: str = "float32"
) -> BlockWeights:
  """Requests a block's variables; casts kernels and biases to `precision`."""
  hidden, wide = config.hidden_size, config.intermediate_size
  initializer = create_initializer(config.initializer_range)

  def weights(name, inputs, outputs):
    return dense_weights(name, [inputs, outputs], initializer, precision)

  return BlockWeights(
    attention=AttentionWeights(
      query=weights("attention/self/query", hidden, hidden),
      key=weights("attention/self/key", hidden, hidden),
      value=weights("attention/self/value", hidden, hidden),
    ),
    attention_output=weights("attention/output/dense", hidden, hidden),
    attention_norm=norm_weights("attention/output/LayerNorm", hidden),
    intermediate=weights("intermediate/dense", hidden, wide),
    output=weights("output/dense", wide, hidden),
    output_norm=norm_weights("output/LayerNorm", hidden),
  )


class _Dropout(enum.IntEnum):
  """The dropout masks that a block draws."""

  PROBABILITIES = 0
  ATTENTION = 1
  OUTPUT = 2


def _seed_at(seed, number):
  """The seed of one of several masks."""
  return None if seed is None else seed + tf.constant([number, 0])


def transformer_block(
  x: tf.Tensor,
  mask: tf.Tensor | None,
  weights: BlockWeights,
  seed: tf.Tensor | None,
  config: BertConfig,
  select: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Attention and a feed-forward layer, each with residual and LayerNorm.

  Args:
    x: float [B, S, H].
    mask: [B, S, S], 0 where attention is not allowed.
    weights: of this block.
    seed: see `variables.dropout_seed`; None without dropout.
    config: its sizes.
    select: function that selects the positions to compute, [B, F, H] of
      [B, S, H]; None for all. Keys and values are those of all positions.

  Returns:
    float [B, S, H], and attention probabilities [B, N, S, S]; with `select`,
    F in place of the first S.
  """

  def add_and_norm(sublayer, residual, norm, site):
    output = dropout(sublayer, config.hidden_dropout_prob, _seed_at(seed, site))
    return normalize(output + residual, norm, config.layer_norm_eps)

  queries_of = x
  if select is not None:
    queries_of, mask = select(x), None if mask is None else select(mask)
  context, probs = attention(
    queries_of,
    x,
    mask,
    weights.attention,
    config.num_attention_heads,
    config.attention_probs_dropout_prob,
    _seed_at(seed, _Dropout.PROBABILITIES),
  )
  y = reshape_to_matrix(queries_of)  # On a TPU a reshape is not free.
  output = affine(context, weights.attention_output)
  y = add_and_norm(output, y, weights.attention_norm, _Dropout.ATTENTION)
  wide = affine(y, weights.intermediate, get_activation(config.hidden_act))
  output = affine(wide, weights.output)
  y = add_and_norm(output, y, weights.output_norm, _Dropout.OUTPUT)
  return reshape_from_matrix(y, get_shape_list(queries_of)), probs


def stack_weights(
  config: BertConfig, precision: str = "float32"
) -> list[tuple[BlockWeights, tf.Tensor | None]]:
  """Weights and dropout seed of each block, lowest first.

  The layers of a group have the same weights (Lan et al. 2020, section 3.1).
  """
  drops = config.hidden_dropout_prob or config.attention_probs_dropout_prob
  num_layers, num_groups = config.num_hidden_layers, config.num_blocks
  groups, seeds = [], []
  for index in range(num_layers):
    with variables.variable_scope(f"layer_{index}"):
      seeds.append(variables.dropout_seed("block") if drops else None)
      if index < num_groups:
        groups.append(block_weights(config, precision))
  shared = [groups[i * num_groups // num_layers] for i in range(num_layers)]
  return list(zip(shared, seeds, strict=True))


def transformer_model(
  input_tensor: tf.Tensor,
  attention_mask: tf.Tensor | None = None,
  hidden_size: int = 768,
  num_hidden_layers: int = 12,
  num_attention_heads: int = 12,
  intermediate_size: int = 3072,
  intermediate_act_fn: Activation = gelu,
  hidden_dropout_prob: float = 0.1,
  attention_probs_dropout_prob: float = 0.1,
  initializer_range: float = 0.02,
  do_return_all_layers: bool = False,
) -> tf.Tensor | list[tf.Tensor]:
  """A stack of blocks with its variables (Vaswani et al. 2017, figure 1, left).

  Args:
    input_tensor: float [B, S, H].
    attention_mask: [B, S, S], 0 where attention is not allowed.
    intermediate_act_fn: activation of the feed-forward layers.
    do_return_all_layers: whether to return the outputs of all blocks.
    others: see BertConfig.

  Returns:
    float [B, S, H], or a list of them, lowest block first.
  """
  if get_shape_list(input_tensor, expected_rank=3)[-1] != hidden_size:
    raise ValueError(f"the width of {input_tensor.shape} is not {hidden_size}")
  config = BertConfig(
    vocab_size=1,
    hidden_size=hidden_size,
    num_hidden_layers=num_hidden_layers,
    num_attention_heads=num_attention_heads,
    intermediate_size=intermediate_size,
    hidden_act=intermediate_act_fn,
    hidden_dropout_prob=hidden_dropout_prob,
    attention_probs_dropout_prob=attention_probs_dropout_prob,
    initializer_range=initializer_range,
  )
  config.check()
  outputs = [input_tensor]
  for weights, seed in stack_weights(config):
    x, _ = transformer_block(outputs[-1], attention_mask, weights, seed, config)
    outputs.append(x)
  return outputs[1:] if do_return_all_layers else outputs[-1]


def variable_shapes(config: BertConfig) -> dict[str, list[int]]:
  """Name and shape of each variable of a BertModel; creates none."""
  hidden, wide = config.hidden_size, config.intermediate_size
  width, norms = config.embedding_width, []
  kernels = {"bert/pooler/dense": [hidden, hidden]}
  if config.embedding_size is not None:
    kernels["bert/embeddings_project"] = [width, hidden]
  positions = config.position_offset + config.max_position_embeddings
  tables = {
    "bert/embeddings/word": config.vocab_size,
    "bert/embeddings/token_type": config.type_vocab_size,
    "bert/embeddings/position": positions,
  }
  for index in range(config.num_blocks):
    layer = f"bert/encoder/layer_{index}"
    for part in ("self/query", "self/key", "self/value", "output/dense"):
      kernels[f"{layer}/attention/{part}"] = [hidden, hidden]
    kernels[f"{layer}/intermediate/dense"] = [hidden, wide]
    kernels[f"{layer}/output/dense"] = [wide, hidden]
    norms += [f"{layer}/attention/output", f"{layer}/output"]
  shapes = {f"{n}_embeddings": [v, width] for n, v in tables.items() if v}
  for name, shape in kernels.items():
    shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
  sizes = {"bert/embeddings": width, **dict.fromkeys(norms, hidden)}
  for name, size in sizes.items():
    shapes |= {f"{name}/LayerNorm/{n}": [size] for n in ("beta", "gamma")}
  return shapes
