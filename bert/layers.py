"""The pieces that a Transformer is made of, and helpers for shapes.

Dense layers, LayerNorm, activations, softmax and dropout. `modeling` exports
those that the original has under their original names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bert import variables  # First: `bert` makes TensorFlow load late.
import tensorflow as tf

from bert import kernels

Activation = Callable[["tf.Tensor"], "tf.Tensor"] | None

# LayerNorm's epsilon in the released models.
LAYER_NORM_EPSILON = 1e-12

# Variables that models for the vectors of words may lack.
POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")

# Added to the attention score of a masked position. After softmax its weight is
# exactly 0 in float32, so padding never changes an output.
MASKED_SCORE = -10000.0

# Vectors are divided by their norm, or by this.
SMALLEST_NORM = 1e-12


class DenseWeights(NamedTuple):
  """Kernel [inputs, outputs] and bias [outputs] of a dense layer."""

  kernel: tf.Tensor
  bias: tf.Tensor


class NormWeights(NamedTuple):
  """Offset and scale of a LayerNorm, float32 [width]."""

  beta: tf.Tensor
  gamma: tf.Tensor


def gelu(x: tf.Tensor) -> tf.Tensor:
  """Gaussian error linear unit, tanh form (Hendrycks & Gimpel 2016)."""
  if not variables.in_v1_graph():
    return kernels.gelu(x)
  # (1 + tanh u) / 2 is sigmoid(2 u), which is exact where it is almost 0.
  return x * tf.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))


def gelu_exact(x: tf.Tensor) -> tf.Tensor:
  """Gaussian error linear unit, x (1 + erf(x / sqrt 2)) / 2."""
  return tf.nn.gelu(x, approximate=False)


# From a name to a function that returns the activation, because TensorFlow is
# not loaded yet when a configuration is checked.
_ACTIVATIONS = {
  "": lambda: None,
  "linear": lambda: None,
  "relu": lambda: tf.nn.relu,
  "gelu": lambda: gelu,
  "gelu_exact": lambda: gelu_exact,
  "tanh": lambda: tf.tanh,
}


def is_activation(name: str) -> bool:
  """Whether there is an activation of that name; does not load TensorFlow."""
  return isinstance(name, str) and name.lower() in _ACTIVATIONS


def get_activation(activation_string: str | Activation) -> Activation:
  """The activation function of that name; None for "linear" or "".

  Any other object, such as a function, is returned as it is.

  Raises:
    ValueError: the name is unknown.
  """
  if not isinstance(activation_string, str):
    return activation_string
  if not is_activation(activation_string):
    raise ValueError(
      f"hidden_act={activation_string!r} is not one of "
      f"{', '.join(sorted(filter(None, _ACTIVATIONS)))}"
    )
  return _ACTIVATIONS[activation_string.lower()]()


def create_attention_mask_from_input_mask(
  from_tensor: tf.Tensor, to_mask: tf.Tensor
) -> tf.Tensor:
  """A mask that lets all positions attend to tokens but not to padding.

  Args:
    from_tensor: [B, F] or [B, F, H].
    to_mask: integer [B, T], 1 for tokens and 0 for padding.

  Returns:
    float [B, F, T] of 1 and 0.
  """
  batch, from_seq = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
  to_seq = get_shape_list(to_mask, expected_rank=2)[1]
  mask = tf.cast(to_mask[:, tf.newaxis, :], tf.float32)
  return tf.broadcast_to(mask, [batch, from_seq, to_seq])


def masked_softmax(
  scores: tf.Tensor, mask: tf.Tensor | None, scale: float
) -> tf.Tensor:
  """float32 softmax(scale * scores) over the positions that a mask allows.

  `scores` is [B, N, F, T]. `mask` is [B, F, T], 1 for allowed positions and 0
  for others, or None.
  """
  scores = tf.cast(scores, tf.float32) * scale
  if mask is not None:
    blocked = 1.0 - tf.cast(tf.expand_dims(mask, axis=1), tf.float32)
    scores += blocked * MASKED_SCORE
  return tf.nn.softmax(scores)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
  """The loss of each label, float [...]; 0 for labels that are not classes.

  Users of the original mark what has no label with -1, whose one-hot vector is
  0 there.

  Args:
    logits: float [..., C].
    labels: integer [...], from 0 to C - 1.
  """
  logits, labels = map(tf.convert_to_tensor, (logits, labels))
  num_classes = tf.cast(get_shape_list(logits)[-1], labels.dtype)
  is_class = (labels >= 0) & (labels < num_classes)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=tf.where(is_class, labels, 0), logits=logits
  )
  return losses * tf.cast(is_class, losses.dtype)


def dropout(
  input_tensor: tf.Tensor,
  dropout_prob: float | None,
  seed: tf.Tensor | None = None,
) -> tf.Tensor:
  """Sets elements to 0 with probability `dropout_prob` and scales up the rest.

  Outside v1 graphs, which use `tf.nn.dropout`, the mask is a function of the
  seed, and the probability is rounded to a multiple of 2**-16.

  The seed, int32 [2], is by default the next `variables.dropout_seed()` of the
  current scope.
  """
  if not dropout_prob:
    return input_tensor
  if variables.in_v1_graph():
    return tf.nn.dropout(input_tensor, rate=dropout_prob)
  if seed is None:
    seed = variables.dropout_seed()
  # Drawing random bits is most of the cost. 16 bits decide one element, so each
  # 32-bit word serves two.
  shape, size = tf.shape(input_tensor), tf.size(input_tensor)
  words = tf.random.stateless_uniform(
    [(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32
  )
  bits = tf.reshape(tf.bitcast(words, tf.int16), [-1])
  bits = tf.reshape(bits[:size], shape)
  dropped = round(dropout_prob * 2**16)  # of the 2**16 values of int16
  scale = 2**16 / (2**16 - dropped)
  keep = tf.cast(bits >= dropped - 2**15, input_tensor.dtype)
  return input_tensor * (keep * scale)


def recomputed(function: Callable) -> Callable:
  """The function, which the backward pass computes again to save memory.

  Between the passes, only its arguments stay in memory (Chen et al. 2016,
  arXiv:1604.06174). It must depend on nothing else, and draw random numbers
  from seeds that are arguments. Gradients are those of `tf.gradients`, inside
  `tf.function`.

  Args:
    function: from tensors, nested tuples of tensors, or None, to a tensor.

  Raises:
    ValueError: a v1 graph is being built.
  """
  if variables.in_v1_graph():
    raise ValueError("a v1 graph does not support gradient checkpointing")

  def call(*args):
    flat = tf.nest.flatten(args)

    def compute(tensors):
      left = iter(tensors)
      filled = (arg if arg is None else next(left) for arg in flat)
      return function(*tf.nest.pack_sequence_as(args, list(filled)))

    @tf.custom_gradient
    def result(*tensors):
      def gradient(upstream):
        # Nothing may be computed again before the backward pass gets here. XLA
        # ignores control dependencies, so the arguments depend on the gradient.
        element = tf.reshape(upstream, [-1])[0]
        zero = tf.where(element == element, 0.0, math.nan)
        later = [x + tf.cast(zero, x.dtype) for x in tensors]
        return tf.gradients(compute(later), later, upstream)

      return compute(tensors), gradient

    return result(*(arg for arg in flat if arg is not None))

  return call


def traced_once(function: Callable) -> Callable:
  """The function, traced only once for all its calls in a graph.

  TensorFlow builds the graph of a deep model faster from calls of one function
  for all layers. It must depend only on its arguments, as for `recomputed`.
  """
  if tf.executing_eagerly() or variables.in_v1_graph():
    return function
  return tf.function(function, autograph=False)


def dense_weights(
  name: str,
  shape: Sequence[int],
  initializer_range: float,
  precision: str | tf.DType = "float32",
) -> DenseWeights:
  """The weights of a dense layer of `shape`, cast to `precision`.

  New kernels have that standard deviation; new biases are 0.
  """
  initializer = create_initializer(initializer_range)
  dtype = variables.storage_dtype(precision)
  with variables.variable_scope(name):
    kernel = variables.get_variable("kernel", shape, initializer, dtype)
    bias = variables.get_variable("bias", shape[1:], dtype=dtype)
  return DenseWeights(_value_of(kernel, precision), _value_of(bias, precision))


def affine(
  x: tf.Tensor, weights: DenseWeights, activation: Activation = None
) -> tf.Tensor:
  """activation(x W + b) of a matrix; activations are computed in float32."""
  kernel, bias = weights
  output = tf.matmul(x, kernel)
  add_bias = tf.nn.bias_add if variables.in_v1_graph() else kernels.add_bias
  output = add_bias(output, bias)
  if activation is None:
    return output
  if kernels.combines(x):
    # TensorFlow recognizes its own GELU behind a product.
    own = functools.partial(tf.nn.gelu, approximate=True)
    return (own if activation is gelu else activation)(output)
  return kernels.activate(activation, output)


def output_layer(
  x: tf.Tensor, num_outputs: int, initializer_range: float = 0.02
) -> tf.Tensor:
  """Logits [..., C]: a task's linear layer on vectors [..., H].

  The variables are `output_weights` [C, H] and `output_bias` [C].
  """
  weights = variables.get_variable(
    "output_weights",
    [num_outputs, x.shape[-1]],
    create_initializer(initializer_range),
  )
  bias = variables.get_variable("output_bias", [num_outputs])
  logits = tf.matmul(reshape_to_matrix(x), weights, transpose_b=True)
  logits = tf.nn.bias_add(logits, bias)
  return reshape_from_matrix(logits, get_shape_list(x))


def task_logits(x: tf.Tensor, num_outputs: int, is_training: bool) -> tf.Tensor:
  """The `output_layer` of a task, in training after dropout of 0.1."""
  return output_layer(dropout(x, 0.1) if is_training else x, num_outputs)


def output_shapes(
  hidden_size: int, num_outputs: int, scope: str = ""
) -> dict[str, list[int]]:
  """Name and shape of the variables of an `output_layer` in a scope, `a/`."""
  return {
    f"{scope}output_weights": [num_outputs, hidden_size],
    f"{scope}output_bias": [num_outputs],
  }


def layer_norm(
  input_tensor: tf.Tensor,
  name: str | None = None,
  epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
  """Layer normalization over the last axis (Ba et al. 2016), in float32."""
  weights = norm_weights(name, input_tensor.shape[-1])
  return normalize(input_tensor, weights, epsilon)


def norm_weights(name: str | None, width: int) -> NormWeights:
  """The weights of a LayerNorm over vectors of `width`."""
  with variables.variable_scope(name, default_name="LayerNorm"):
    beta = variables.get_variable("beta", [width])
    gamma = variables.get_variable(
      "gamma", [width], tf.compat.v1.ones_initializer()
    )
  return NormWeights(_value_of(beta), _value_of(gamma))


def normalize(
  x: tf.Tensor, weights: NormWeights, epsilon: float = LAYER_NORM_EPSILON
) -> tf.Tensor:
  """LayerNorm with the given beta and gamma, computed in float32."""
  if not variables.in_v1_graph():
    return kernels.normalize(x, *weights, epsilon)
  wide = tf.cast(x, tf.float32)
  mean, variance = tf.nn.moments(wide, axes=[-1], keepdims=True)
  normalized = (wide - mean) * tf.math.rsqrt(variance + epsilon)
  return tf.cast(normalized * weights.gamma + weights.beta, x.dtype)


def layer_norm_and_dropout(
  input_tensor: tf.Tensor,
  dropout_prob: float | None,
  name: str | None = None,
  epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
  """`layer_norm`, then `dropout`."""
  return dropout(layer_norm(input_tensor, name, epsilon), dropout_prob)


def create_initializer(
  initializer_range: float = 0.02,
) -> Callable[..., tf.Tensor]:
  """A truncated normal initializer with that standard deviation."""

  def initializer(shape, dtype=tf.float32, partition_info=None):
    del partition_info  # An argument that v1's get_variable passes.
    seed = variables.initial_seed()
    if seed is None:
      return tf.random.truncated_normal(
        shape, stddev=initializer_range, dtype=dtype
      )
    return tf.random.stateless_truncated_normal(
      shape, seed, stddev=initializer_range, dtype=dtype
    )

  return initializer


def _value_of(variable, precision="float32"):
  """The value of a variable at this point, whatever updates follow.

  A v1 graph has no such point, so the variable itself is returned there. It is
  read where it is used, and not at all if it is not.
  """
  if not variables.in_v1_graph():
    variable = tf.convert_to_tensor(variable)
  return tf.cast(variable, precision)


def get_shape_list(
  tensor: tf.Tensor,
  expected_rank: int | Sequence[int] | None = None,
  name: str | None = None,
) -> list[Any]:
  """The shape as a list: an int where it is static, else a scalar tensor.

  Raises:
    ValueError: the rank is not `expected_rank`, or one of several.
  """
  if expected_rank is not None:
    assert_rank(tensor, expected_rank, name)
  static = tensor.shape.as_list()
  if None not in static:
    return static
  dynamic = tf.unstack(tf.shape(tensor))
  return [
    size if known is None else known
    for known, size in zip(static, dynamic, strict=True)
  ]


def reshape_to_matrix(input_tensor: tf.Tensor) -> tf.Tensor:
  """[..., H] as [rows, H].

  Raises:
    ValueError: the tensor is a scalar or a vector.
  """
  if input_tensor.shape.rank < 2:
    raise ValueError(f"a tensor of shape {input_tensor.shape} has no rows")
  if input_tensor.shape.rank == 2:
    return input_tensor
  return tf.reshape(input_tensor, [-1, input_tensor.shape[-1]])


def reshape_from_matrix(
  output_tensor: tf.Tensor, orig_shape_list: Sequence[int | tf.Tensor]
) -> tf.Tensor:
  """[rows, H] as [..., H], with the leading axes of `orig_shape_list`."""
  if len(orig_shape_list) == 2:
    return output_tensor
  shape = [*orig_shape_list[:-1], output_tensor.shape[-1]]
  return tf.reshape(output_tensor, shape)


def split_heads(x: tf.Tensor, like: tf.Tensor, num_heads: int) -> tf.Tensor:
  """[B * S, N * D] as [B, N, S, D], where `like` is [B, S, H]."""
  shape = [*get_shape_list(like)[:2], num_heads, x.shape[-1] // num_heads]
  return tf.transpose(tf.reshape(x, shape), [0, 2, 1, 3])


def merge_heads(x: tf.Tensor) -> tf.Tensor:
  """[B, N, S, D] as [B * S, N * D]."""
  x = tf.transpose(x, [0, 2, 1, 3])  # [B, S, N, D]
  return tf.reshape(x, [-1, x.shape[2] * x.shape[3]])


def assert_rank(
  tensor: tf.Tensor, expected_rank: int | Sequence[int], name: str | None = None
) -> None:
  """Raises ValueError unless the rank is `expected_rank`, or one of several."""
  ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
  if tensor.shape.rank not in ranks:
    raise ValueError(
      f"{name or getattr(tensor, 'name', 'tensor')} has rank "
      f"{tensor.shape.rank} and shape {tensor.shape}; expected rank "
      f"{' or '.join(map(str, ranks))}"
    )
