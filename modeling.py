"""BERT: a Transformer encoder (Devlin et al. 2019, arXiv:1810.04805).

    config = BertConfig.from_json_file("bert_config.json")
    model = BertModel(config, False, input_ids, input_mask, segment_ids)
    vectors = model.get_sequence_output()  # [B, S, H]

In the order of the papers: sizes, embeddings, attention, a block, the stack of
blocks, and the model. The same code runs eagerly, inside `tf.function` and in a
v1 graph.

Shapes are written [B, S, H] with B batch, S sequence, H hidden, N heads, D size
per head, V vocabulary, L layers, P positions, F queries, T keys and values.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from bert import variables  # First: `bert` makes TensorFlow load late.
import tensorflow as tf

from bert.config import BertConfig
from bert.layers import LAYER_NORM_EPSILON, Activation, DenseWeights
from bert.layers import NormWeights
from bert.layers import affine, assert_rank, dense_weights, dropout, gelu
from bert.layers import create_attention_mask_from_input_mask
from bert.layers import create_initializer, get_activation, get_shape_list
from bert.layers import layer_norm  # noqa: F401  A name of the original.
from bert.layers import layer_norm_and_dropout, masked_softmax, merge_heads
from bert.layers import norm_weights, normalize, recomputed, reshape_from_matrix
from bert.layers import reshape_to_matrix, split_heads, traced_once
from bert.variables import get_assignment_map_from_checkpoint  # noqa: F401


def _block_shapes(config):
  """The shape of each matrix and LayerNorm of a block, in the order of use."""
  hidden, wide = config.hidden_size, config.intermediate_size
  return {
    "attention/self/query": [hidden, hidden],
    "attention/self/key": [hidden, hidden],
    "attention/self/value": [hidden, hidden],
    "attention/output/dense": [hidden, hidden],
    "attention/output/LayerNorm": [hidden],
    "intermediate/dense": [hidden, wide],
    "output/dense": [wide, hidden],
    "output/LayerNorm": [hidden],
  }


def variable_shapes(config: BertConfig) -> dict[str, list[int]]:
  """Name and shape of each variable of a BertModel; creates none."""
  width, hidden = config.embedding_width, config.hidden_size
  positions = config.position_offset + config.max_position_embeddings
  shapes = {
    "bert/embeddings/word_embeddings": [config.vocab_size, width],
    "bert/embeddings/position_embeddings": [positions, width],
  }
  if types := config.type_vocab_size:
    shapes["bert/embeddings/token_type_embeddings"] = [types, width]
  parts = {"embeddings/LayerNorm": [width], "pooler/dense": [hidden, hidden]}
  if config.embedding_size is not None:
    parts["embeddings_project"] = [width, hidden]
  for index in range(config.num_blocks):
    for name, shape in _block_shapes(config).items():
      parts[f"encoder/layer_{index}/{name}"] = shape
  for name, shape in parts.items():
    scale, shift = ("kernel", "bias") if shape[1:] else ("gamma", "beta")
    shapes[f"bert/{name}/{scale}"] = shape
    shapes[f"bert/{name}/{shift}"] = shape[-1:]
  return shapes


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
    use_one_hot_embeddings: see BertModel.

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
    token_type_ids: integer [B, S].
    token_type_vocab_size, max_position_embeddings: lengths of the tables.
    position_offset: number of rows of the table before the first position.
    others: see BertConfig.

  Raises:
    ValueError: `token_type_ids` is missing, or a static S is more than
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


def embed(
  config: BertConfig,
  input_ids: tf.Tensor,
  token_type_ids: tf.Tensor,
  use_one_hot_embeddings: bool = False,
) -> tuple[tf.Tensor, tf.Variable]:
  """The first block's input, float [B, S, H], and the table of words [V, E].

  Where E is not H, the sum is projected (Lan et al. 2020, section 3.1).
  """
  with variables.variable_scope("embeddings"):
    words, table = embedding_lookup(
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
    return x, table
  shape = [config.embedding_size, config.hidden_size]
  weights = dense_weights("embeddings_project", shape, config.initializer_range)
  projected = affine(reshape_to_matrix(x), weights)
  return reshape_from_matrix(projected, get_shape_list(x)), table


def projections(
  queries_of: tf.Tensor,
  values_of: tf.Tensor,
  weights: Sequence[DenseWeights],
  num_heads: int,
  activations: Sequence[Activation] = (None, None, None),
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Q [B, N, F, D] of [B, F, H], and K and V [B, N, T, D] of [B, T, H].

  The weights project vectors to N * D, for queries, keys and values.
  """
  inputs = queries_of, values_of, values_of
  query, key, value = (
    split_heads(affine(reshape_to_matrix(x), pair, activation), x, num_heads)
    for x, pair, activation in zip(inputs, weights, activations, strict=True)
  )
  return query, key, value


def attention(
  query: tf.Tensor,
  key: tf.Tensor,
  value: tf.Tensor,
  mask: tf.Tensor | None,
  dropout_prob: float = 0.0,
  seed: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
  """softmax(Q K' / sqrt(D)) V per head: equation 1 of Vaswani et al. (2017).

  The arguments are the `projections`; `mask` [B, F, T] is 0 where attention is
  not allowed. Returns float [B * F, N * D], and the probabilities before
  dropout, float32 [B, N, F, T].
  """
  scores = tf.matmul(query, key, transpose_b=True)  # [B, N, F, T]
  scale = 1 / math.sqrt(cast(int, query.shape[-1]))
  probs = masked_softmax(scores, mask, scale)
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
  weights = [
    dense_weights(name, [cast(int, x.shape[-1]), width], initializer_range)
    for name, x in inputs.items()
  ]
  activations = query_act, key_act, value_act
  heads = projections(
    from_tensor, to_tensor, weights, num_attention_heads, activations
  )
  context, _ = attention(*heads, attention_mask, attention_probs_dropout_prob)
  if do_return_2d_tensor:
    return context
  return reshape_from_matrix(context, get_shape_list(from_tensor))


class BlockWeights(NamedTuple):
  """Weights of a block in the order of their use."""

  attention: Sequence[DenseWeights]  # Of queries, keys and values.
  attention_output: DenseWeights
  attention_norm: NormWeights
  intermediate: DenseWeights
  output: DenseWeights
  output_norm: NormWeights


def block_weights(
  config: BertConfig, precision: str = "float32"
) -> BlockWeights:
  """Requests a block's variables; casts kernels and biases to `precision`."""
  weights: list[Any] = [
    dense_weights(name, shape, config.initializer_range, precision)
    if shape[1:]
    else norm_weights(name, *shape)
    for name, shape in _block_shapes(config).items()
  ]
  return BlockWeights(weights[:3], *weights[3:])


def self_attention(
  queries_of: tf.Tensor,
  x: tf.Tensor,
  mask: tf.Tensor | None,
  weights: BlockWeights,
  config: BertConfig,
  seed: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
  """`attention` of the positions `queries_of` [B, F, H] over `x` [B, T, H].

  Blocks and `BertModel.get_all_attention_probs` both call this function, so a
  change here, or below, is in the maps of attention, too.
  """
  heads = projections(
    queries_of, x, weights.attention, config.num_attention_heads
  )
  return attention(*heads, mask, config.attention_probs_dropout_prob, seed)


# Dropout masks of a block: for the attention probabilities, the output of
# attention, and the output of the feed-forward layer.
_DROPOUT_MASKS = 3


def _mask_seed(seed, index):
  """The seed of one of several dropout masks."""
  return None if seed is None else seed + tf.constant([index, 0])


def transformer_block(
  x: tf.Tensor,
  mask: tf.Tensor | None,
  weights: BlockWeights,
  seed: tf.Tensor | None,
  config: BertConfig,
  select: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.Tensor:
  """Attention and a feed-forward layer, each with residual and LayerNorm.

  Args:
    x: float [B, S, H].
    mask: [B, S, S], 0 where attention is not allowed.
    weights, config: of this block.
    seed: see `variables.dropout_seed`; None without dropout.
    select: function that selects the positions to compute, [B, F, H] of
      [B, S, H]; None for all. Keys and values are those of all positions.

  Returns:
    float [B, S, H]; with `select`, [B, F, H].
  """
  probs_seed, attention_seed, output_seed = (
    _mask_seed(seed, index) for index in range(_DROPOUT_MASKS)
  )

  def add_and_norm(sublayer, residual, norm, seed):
    output = dropout(sublayer, config.hidden_dropout_prob, seed)
    return normalize(output + residual, norm, config.layer_norm_eps)

  queries_of = x
  if select is not None:
    queries_of, mask = select(x), None if mask is None else select(mask)
  context, _ = self_attention(queries_of, x, mask, weights, config, probs_seed)
  y = reshape_to_matrix(queries_of)  # On a TPU a reshape is not free.
  output = affine(context, weights.attention_output)
  y = add_and_norm(output, y, weights.attention_norm, attention_seed)
  wide = affine(y, weights.intermediate, get_activation(config.hidden_act))
  output = affine(wide, weights.output)
  y = add_and_norm(output, y, weights.output_norm, output_seed)
  return reshape_from_matrix(y, get_shape_list(queries_of))


def stack_weights(
  config: BertConfig, precision: str = "float32"
) -> list[tuple[BlockWeights, tf.Tensor | None]]:
  """Weights and dropout seed of each block, lowest first.

  The layers of a group have the same weights (Lan et al. 2020, section 3.1).
  """
  drops = config.hidden_dropout_prob or config.attention_probs_dropout_prob
  num_layers, num_groups = config.num_hidden_layers, config.num_blocks
  groups, blocks = [], []
  for index in range(num_layers):
    with variables.variable_scope(f"layer_{index}"):
      seed = variables.dropout_seed("block") if drops else None
      if index < num_groups:
        groups.append(block_weights(config, precision))
    blocks.append((groups[index * num_groups // num_layers], seed))
  return blocks


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
    others: see BertConfig.

  Returns:
    float [B, S, H]; or the outputs of all blocks, lowest first.
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
    x = outputs[-1]
    outputs.append(transformer_block(x, attention_mask, weights, seed, config))
  return outputs[1:] if do_return_all_layers else outputs[-1]


_T = TypeVar("_T")


def _kept(build: Callable[[BertModel], _T]) -> Callable[[BertModel], _T]:
  """A method that computes once, in the graph where the model was built.

  So eager mode computes, and a graph contains, only what is read.
  """

  @functools.wraps(build)
  def get(model):
    if build not in model._outputs:
      graph = model._graph
      with graph.as_default() if graph else contextlib.nullcontext():
        model._outputs[build] = build(model)
    return model._outputs[build]

  return get


class BertModel:
  """The encoder applied to a batch. Outputs are computed when they are read.

  Its twin in ONNX is bert/engine/onnx_graph.py; tests/engine/test_onnx_graph.py
  compares them.

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
    ValueError: `config` is not valid, a rank is not 2, or a static S is more
      than `max_position_embeddings`.
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
    if token_type_ids is None or config.type_vocab_size < 2:
      token_type_ids = tf.zeros_like(input_ids)
    with variables.variable_scope(scope, default_name="bert"):
      self.embedding_output, self.embedding_table = embed(
        config, input_ids, token_type_ids, use_one_hot_embeddings
      )
      with variables.variable_scope("encoder"):
        self.blocks = stack_weights(config, precision)
      shape = [config.hidden_size] * 2
      self._pooler = dense_weights(
        "pooler/dense", shape, config.initializer_range
      )
    self._mask = create_attention_mask_from_input_mask(
      self.embedding_output, tf.convert_to_tensor(input_mask)
    )
    is_eager = tf.executing_eagerly()
    self._graph = None if is_eager else tf.compat.v1.get_default_graph()
    self._outputs = {}
    recomputes = gradient_checkpointing and is_training
    self._wrap = recomputed if recomputes else traced_once
    block = self._block()
    self.inputs = [tf.cast(self.embedding_output, precision)]  # Of each block.
    for weights, seed in self.blocks[:-1]:
      self.inputs.append(block(self.inputs[-1], self._mask, weights, seed))

  def _block(self, select=None):
    """`transformer_block` as a function of x, mask, weights and seed."""
    config = self._config
    return self._wrap(
      lambda x, m, w, seed: transformer_block(x, m, w, seed, config, select)
    )

  def _last_block(self, select=None, draw=0):
    """The output of the last block, float32; see `transformer_block`.

    `draw` tells the dropout masks of several calls apart.
    """
    weights, seed = self.blocks[-1]
    seed = _mask_seed(seed, draw * _DROPOUT_MASKS)
    x = self._block(select)(self.inputs[-1], self._mask, weights, seed)
    return tf.cast(x, tf.float32)

  @_kept
  def _first(self):
    """float [B, 1, H]: the last layer at the first position."""
    return self._last_block(lambda x: x[:, :1], draw=1)

  @_kept
  def get_pooled_output(self) -> tf.Tensor:
    """float [B, H]: the vector C of section 3.1, [CLS] transformed."""
    x = affine(reshape_to_matrix(self._first()), self._pooler)
    return (get_activation(self._config.pooler_act) or tf.identity)(x)

  @_kept
  def get_sequence_output(self) -> tf.Tensor:
    """float [B, S, H]: the output of the last layer."""
    x = self._last_block()
    # The first position has the same dropout in all outputs.
    return tf.concat([self._first(), x[:, 1:]], axis=1)

  def sequence_output_at(self, positions: tf.Tensor) -> tf.Tensor:
    """float [B, P, H]: the last layer, computed only at positions [B, P]."""
    return self._last_block(
      lambda x: tf.gather(x, positions, batch_dims=1), draw=2
    )

  @_kept
  def get_all_encoder_layers(self) -> list[tf.Tensor]:
    """The outputs of all layers, L times float [B, S, H], lowest first."""
    lower = [tf.cast(x, tf.float32) for x in self.inputs[1:]]
    return [*lower, self.get_sequence_output()]

  @_kept
  def get_all_attention_probs(self) -> list[tf.Tensor]:
    """L times float [B, N, S, S], before dropout, lowest layer first."""
    # Computed again: kept, they would take most of the memory.
    return [
      self_attention(x, x, self._mask, weights, self._config, seed)[1]
      for x, (weights, seed) in zip(self.inputs, self.blocks, strict=True)
    ]

  def get_embedding_output(self) -> tf.Tensor:
    """float [B, S, H]: the first layer's input."""
    return self.embedding_output

  def get_embedding_table(self) -> tf.Variable:
    """float [V, E]: the word embeddings, a variable; E is H in BERT."""
    return self.embedding_table

  # The original's attributes.
  pooled_output = property(get_pooled_output)
  sequence_output = property(get_sequence_output)
  all_encoder_layers = property(get_all_encoder_layers)
