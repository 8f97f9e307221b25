"""The encoder as an ONNX graph, which other runtimes compute.

The graph is the twin of `modeling.BertModel` in inference, made of
operators that runtimes can fuse. tests/engine/test_onnx_graph.py compares
them for random models and inputs. onnx is an optional package.
"""

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

import modeling
from bert import variables
from bert.data import records
from bert.errors import UserError, import_optional
from bert.layers import MASKED_SCORE, SMALLEST_NORM

# The first version with Gelu; LayerNormalization is older.
_OPSET = 20
_IR_VERSION = 10

# A file of ONNX is one message of Protocol Buffers.
_MAX_BYTES = 2**31 - 1

POOLED = "pooled_output"

# Rounding accounts for 2e-6, and the other form of Gelu differs by 3e-4.
_TOLERANCE = 1e-4

# As in `layers.get_activation`: functions of `OnnxGraph.add` and a tensor.
_ACTIVATIONS = {
  "linear": lambda add, x: add("Identity", x),
  "relu": lambda add, x: add("Relu", x),
  "gelu": lambda add, x: add("Gelu", x, approximate="tanh"),
  "gelu_exact": lambda add, x: add("Gelu", x, approximate="none"),
  "tanh": lambda add, x: add("Tanh", x),
}


def layer_name(index: int) -> str:
  """The name of the output of a layer, counted from 0."""
  return f"layer_{index}"


class OnnxGraph:
  """A graph under construction. Its tensors are identified by names."""

  def __init__(self, weights: Mapping[str, np.ndarray]):
    self._onnx = import_optional("onnx", "ONNX", "requirements-export.txt")
    self._weights = weights
    self._constants = {}
    self._inputs, self._nodes, self._outputs = [], [], []
    self._tensors = set()  # Names of all tensors.
    self.float_kind = self._onnx.TensorProto.FLOAT

  def add(self, operator: str, *inputs: str, **attributes) -> str:
    """Adds an operator; returns its (first) output."""
    self._check(*inputs)
    output = self._known(f"{operator}_{len(self._nodes)}")
    node = self._onnx.helper.make_node(
      operator, inputs, [output], name=output, **attributes
    )
    self._nodes.append(node)
    return output

  def top_k(self, x: str, count: int) -> tuple[str, str]:
    """The largest values over the last axis, in descending order, and where."""
    values = self.add("TopK", x, self.integers(count), axis=-1)
    self._nodes[-1].output.append(self._known(f"{values}_indices"))
    return values, f"{values}_indices"

  def _known(self, name):
    self._tensors.add(name)
    return name

  def _check(self, *names):
    for name in names:
      if name not in self._tensors:
        raise ValueError(f"{name!r} is not a tensor of the graph")

  def constant(self, value: np.ndarray, name: str | None = None) -> str:
    """A constant tensor."""
    name = name or f"constant_{len(self._constants)}"
    if name not in self._constants:
      array = np.asarray(value, order="C")
      self._constants[name] = self._onnx.numpy_helper.from_array(array, name)
    return self._known(name)

  def integers(self, *values: int) -> str:
    """A constant int64 vector, such as a shape or axes."""
    return self.constant(np.array(values, np.int64))

  def number(self, value) -> str:
    """A constant float32 scalar, or a vector for a list."""
    return self.constant(np.array(value, np.float32))

  def weight(self, name: str, transposed: bool = False) -> str:
    """A variable as a constant of the same name."""
    value = self._weights[name]
    return self.constant(value.T if transposed else value, name)

  def dense(self, x: str, scope: str) -> str:
    """x W + b with the variables of `layers.dense_weights`."""
    product = self.add("MatMul", x, self.weight(f"{scope}/kernel"))
    return self.add("Add", product, self.weight(f"{scope}/bias"))

  def layer_norm(self, x: str, scope: str, epsilon: float) -> str:
    """LayerNorm over the last axis with the variables in a scope."""
    parts = (self.weight(f"{scope}/LayerNorm/{n}") for n in ("gamma", "beta"))
    return self.add("LayerNormalization", x, *parts, axis=-1, epsilon=epsilon)

  def activation(self, x: str, name: str) -> str:
    """The activation of that name, see `layers.get_activation`."""
    name = (name or "linear").lower()
    if name not in _ACTIVATIONS:
      raise UserError(
        f"the activation {name!r} has no operators of ONNX; add them to "
        f"_ACTIVATIONS in bert/engine/onnx_graph.py"
      )
    return _ACTIVATIONS[name](self.add, x)

  def input(self, name: str, axes: Sequence[str | int]) -> str:
    """Declares an int64 input with these axes, names or sizes."""
    helper, kind = self._onnx.helper, self._onnx.TensorProto.INT64
    self._inputs.append(helper.make_tensor_value_info(name, kind, axes))
    return self._known(name)

  def output(
    self, name: str, value: str, axes: Sequence[str | int], kind: str = "FLOAT"
  ) -> None:
    """Declares a tensor as an output, and gives it that name."""
    self._check(value)
    kind = getattr(self._onnx.TensorProto, kind)
    output = self._onnx.helper.make_tensor_value_info(name, kind, axes)
    self._outputs.append(output)
    # Rename the tensor: runtimes remove an Identity, and its name with it.
    for node in self._nodes:
      for names in (node.input, node.output):
        names[:] = [name if other == value else other for other in names]

  def to_bytes(self) -> bytes:
    """The model as the content of an .onnx file."""
    size = sum(len(tensor.raw_data) for tensor in self._constants.values())
    if size > _MAX_BYTES:
      raise UserError(
        f"the model has {size / 2**30:.1f} GiB of weights, and an ONNX file "
        f"holds at most 2; use --runtime=tensorflow, or export a SavedModel"
      )
    helper = self._onnx.helper
    tensors = list(self._constants.values())
    graph = helper.make_graph(
      self._nodes, "bert", self._inputs, self._outputs, tensors
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(
      graph, opset_imports=opsets, ir_version=_IR_VERSION
    )
    return model.SerializeToString()


class OnnxOps:
  """The operations of `ops.TensorOps` on the tensors of a graph."""

  def __init__(self, graph: OnnxGraph):
    self.graph = graph
    self.integers = set()  # The tensors that are not floats.

  def output_layer(
    self, x: str, size: int, scope: str = "", dropout: bool = True
  ) -> str:
    del size, dropout
    graph = self.graph
    weights = graph.weight(f"{scope}output_weights", transposed=True)
    product = graph.add("MatMul", x, weights)
    return graph.add("Add", product, graph.weight(f"{scope}output_bias"))

  def softmax(self, x: str) -> str:
    return self.graph.add("Softmax", x, axis=-1)

  def sigmoid(self, x: str) -> str:
    return self.graph.add("Sigmoid", x)

  def largest(self, x: str) -> str:
    axis = self.graph.integers(-1)
    return self.graph.add("ReduceMax", x, axis, keepdims=0)

  def index_of_largest(self, x: str) -> str:
    indices = self.graph.add("ArgMax", x, axis=-1, keepdims=0)
    self.integers.add(indices)
    return indices

  def take(self, x: str, index: int) -> str:
    index = self.graph.constant(np.int64(index))
    return self.graph.add("Gather", x, index, axis=-1)

  def first(self, x: str, size: int) -> str:
    ends = (self.graph.integers(n) for n in (0, size, -1))
    return self.graph.add("Slice", x, *ends)

  def linear(self, x: str, factor, offset: float) -> str:
    product = self.graph.add("Mul", x, self.graph.number(factor))
    return self.graph.add("Add", product, self.graph.number(offset))

  def masked(self, x: str, mask: str, value: float) -> str:
    graph = self.graph
    mask = graph.add("Cast", mask, to=graph.float_kind)
    padding = graph.add("Sub", graph.number(1.0), mask)
    padding = graph.add("Mul", padding, graph.number(value))
    return graph.add("Add", x, padding)

  def reshaped(self, x: str, like: str) -> str:
    return self.graph.add("Reshape", x, self.graph.add("Shape", like))

  def pool(self, x: str, mask: str, how: str) -> str:
    add, graph = self.graph.add, self.graph
    if how == "cls":
      return add("Gather", x, graph.constant(np.int64(0)), axis=1)
    positions = graph.integers(1)
    mask = add("Cast", mask, to=graph.float_kind)
    number = add("ReduceSum", mask, positions, keepdims=1)
    weights = add("Unsqueeze", mask, graph.integers(2))
    if how == "max":
      zero = graph.number(0.0)
      lowest = graph.number(np.finfo(np.float32).min)
      counted = add("Where", add("Greater", weights, zero), x, lowest)
      largest = add("ReduceMax", counted, positions, keepdims=0)
      return add("Where", add("Greater", number, zero), largest, zero)
    number = add("Max", number, graph.number(1.0))
    if how == "mean_sqrt_len":
      number = add("Sqrt", number)
    total = add("ReduceSum", add("Mul", x, weights), positions, keepdims=0)
    return add("Div", total, number)

  def unit_length(self, x: str) -> str:
    norm = self.graph.add("ReduceL2", x, self.graph.integers(-1), keepdims=1)
    least = self.graph.number(SMALLEST_NORM)
    return self.graph.add("Div", x, self.graph.add("Max", norm, least))


def masked_words(
  ops: OnnxOps, bert, features: Mapping, config: modeling.BertConfig, count: int
) -> dict[str, str]:
  """The outputs of `MaskTask.head` for one position of each row.

  `count` is the number of pieces in `ids` and `probabilities`.
  """
  graph, scope = ops.graph, "cls/predictions"
  positions, labels = (
    features[f"masked_lm_{name}"] for name in ("positions", "ids")
  )
  x = bert.get_sequence_output()
  x = graph.add("GatherND", x, positions, batch_dims=1)  # [B, H]
  x = graph.dense(x, f"{scope}/transform/dense")
  x = graph.activation(x, config.hidden_act)
  x = graph.layer_norm(x, f"{scope}/transform", config.layer_norm_eps)
  table = graph.weight("bert/embeddings/word_embeddings")
  bias = graph.weight(f"{scope}/output_bias")
  logits = graph.add("Gemm", x, table, bias, transB=1)  # [B, V]
  log_probs = graph.add("LogSoftmax", logits, axis=-1)
  best, ids = graph.top_k(log_probs, count)
  ops.integers.add(ids)
  of_labels = graph.add("GatherElements", log_probs, labels, axis=1)
  return {
    "ids": ids,
    "probabilities": graph.add("Exp", best),
    "log_prob": graph.add("Squeeze", of_labels, graph.integers(1)),
  }


class Layers:
  """The layers of an encoder by index, read on access."""

  def __init__(self, get: Callable[[str], object], count: int):
    self._get, self._count = get, count

  def __len__(self) -> int:
    return self._count

  def __getitem__(self, index: int):
    return self._get(layer_name(index))


class EncoderOutputs:
  """Outputs of the encoder, with the getters of BertModel that heads use.

  `get` returns the tensor for POOLED, or for a name by `layer_name`.
  """

  def __init__(self, config: modeling.BertConfig, get: Callable[[str], object]):
    self._config, self._get = config, get

  def get_pooled_output(self):
    """float [B, H]: [CLS] transformed."""
    return self._get(POOLED)

  def get_sequence_output(self):
    """float [B, S, H]: the output of the last layer."""
    return self._get(layer_name(self._config.num_hidden_layers - 1))

  def get_all_encoder_layers(self) -> Layers:
    """float [B, S, H] of each layer, lowest first."""
    return Layers(self._get, self._config.num_hidden_layers)


def sequence_inputs(graph: OnnxGraph) -> list[str]:
  """The three sequences, int64 [batch, length], as inputs of the graph."""
  axes = ("batch", "length")
  return [graph.input(name, axes) for name in records.SEQUENCES]


def encoder(
  graph: OnnxGraph,
  config: modeling.BertConfig,
  sequences: Sequence[str],
  wanted: Collection[str],
) -> dict[str, str]:
  """Adds the encoder to a graph; returns the tensors of the outputs by name.

  The sequences are integer [B, S]. `wanted` names the outputs: POOLED, or
  names by `layer_name`. Unless it has the highest layer, that layer is computed
  for the first position only.
  """
  _compare(config, wanted)
  return _encoder(graph, config, sequences, wanted)


def _encoder(graph, config, sequences, wanted):
  input_ids, input_mask, segment_ids = sequences
  x = _embeddings(graph, config, input_ids, segment_ids)
  mask = graph.add("Cast", input_mask, to=graph.float_kind)
  mask = graph.add("Unsqueeze", mask, graph.integers(1, 2))  # [B, 1, 1, S]
  mask = graph.add("Sub", graph.number(1.0), mask)
  mask = graph.add("Mul", mask, graph.number(MASKED_SCORE))
  last = config.num_hidden_layers - 1
  outputs = {}
  for index in range(config.num_hidden_layers):
    is_first_only = index == last and layer_name(last) not in wanted
    x = _block(graph, config, x, mask, index, is_first_only)
    outputs[layer_name(index)] = x
  if POOLED in wanted:
    first = graph.add("Gather", x, graph.constant(np.int64(0)), axis=1)
    pooled = graph.dense(first, "bert/pooler/dense")
    outputs[POOLED] = graph.activation(pooled, config.pooler_act)
  return {name: outputs[name] for name in wanted}


def _compare(config, wanted):
  """Raises UserError unless a graph computes the outputs of a BertModel.

  It compares narrow models, so a wide one takes no longer. All weights are
  random, because variables that a user added might start from 0.
  """
  from onnx import reference

  config = copy.copy(config)
  config.hidden_size = 4 * config.num_attention_heads
  config.vocab_size = config.intermediate_size = 16
  config.embedding_size = config.embedding_size and 4
  config.max_position_embeddings = 8
  draw, store = np.random.default_rng(0), variables.VariableStore()
  ids, segments = (draw.integers(size, size=[3, 8]) for size in (16, 2))
  sequences = ids, np.int64(np.arange(8) < [[8], [6], [3]]), segments

  def compute():
    bert = modeling.BertModel(config, False, *sequences)
    layers = enumerate(bert.get_all_encoder_layers())
    outputs = {layer_name(index): output for index, output in layers}
    return {**outputs, POOLED: bert.get_pooled_output()}

  with tf.init_scope(), tf.device("CPU"), store:  # Others may round more.
    compute()  # It creates the variables.
    for _, variable in store.items():
      variable.assign(draw.normal(scale=0.5, size=variable.shape))
    expected = {name: output.numpy() for name, output in compute().items()}
    graph = OnnxGraph({name: v.numpy() for name, v in store.items()})
  outputs = _encoder(graph, config, sequence_inputs(graph), wanted)
  for name, output in outputs.items():
    graph.output(name, output, [None] * expected[name].ndim)
  run = reference.ReferenceEvaluator(graph.to_bytes()).run
  feed = dict(zip(records.SEQUENCES, sequences, strict=True))
  for name, output in zip(outputs, run(list(outputs), feed), strict=True):
    if not np.allclose(output, expected[name], rtol=0, atol=_TOLERANCE):
      raise UserError(
        f"modeling.py or bert/layers.py computes another {name} than "
        f"bert/engine/onnx_graph.py, which makes ONNX files and serves other "
        f"runtimes; change that file, too, or use --runtime=tensorflow or "
        f"--format=saved_model"
      )


def _embeddings(graph, config, input_ids, segment_ids):
  """The sum of the three embeddings, normalized: [B, S, H]."""
  scope = "bert/embeddings"
  words = graph.weight(f"{scope}/word_embeddings")
  positions = graph.weight(f"{scope}/position_embeddings")
  x = graph.add("Gather", words, input_ids)
  if config.type_vocab_size:
    types = graph.weight(f"{scope}/token_type_embeddings")
    if config.type_vocab_size > 1:  # A single type belongs to both texts.
      types = graph.add("Gather", types, segment_ids)
    x = graph.add("Add", x, types)
  end = graph.add("Shape", input_ids, start=1, end=2)
  offset = graph.integers(config.position_offset)
  if config.position_offset:
    end = graph.add("Add", end, offset)
  first = graph.add("Slice", positions, offset, end)  # [S, E]
  x = graph.layer_norm(graph.add("Add", x, first), scope, config.layer_norm_eps)
  if config.embedding_size is None:
    return x
  return graph.dense(x, "bert/embeddings_project")


def _block(graph, config, x, mask, index, is_first_only):
  """One block, [B, S, H], or [B, 1, H] of the first position only."""
  group = index * config.num_blocks // config.num_hidden_layers
  scope = f"bert/encoder/layer_{group}"
  queries_of = x
  if is_first_only:
    queries_of = graph.add(
      "Slice", x, graph.integers(0), graph.integers(1), graph.integers(1)
    )
  size = config.hidden_size // config.num_attention_heads

  def heads(tensor, name, order):
    projected = graph.dense(tensor, f"{scope}/attention/self/{name}")
    shape = graph.integers(0, 0, config.num_attention_heads, size)
    projected = graph.add("Reshape", projected, shape)
    return graph.add("Transpose", projected, perm=order)

  query = heads(queries_of, "query", [0, 2, 1, 3])  # [B, N, F, D]
  key = heads(x, "key", [0, 2, 3, 1])  # [B, N, D, S]
  value = heads(x, "value", [0, 2, 1, 3])  # [B, N, S, D]
  scores = graph.add("MatMul", query, key)
  scores = graph.add("Div", scores, graph.number(math.sqrt(size)))
  probs = graph.add("Softmax", graph.add("Add", scores, mask), axis=-1)
  context = graph.add("MatMul", probs, value)
  context = graph.add("Transpose", context, perm=[0, 2, 1, 3])
  shape = graph.integers(0, 0, config.hidden_size)
  context = graph.add("Reshape", context, shape)
  output = graph.dense(context, f"{scope}/attention/output/dense")
  y = graph.add("Add", output, queries_of)
  epsilon = config.layer_norm_eps
  y = graph.layer_norm(y, f"{scope}/attention/output", epsilon)
  wide = graph.dense(y, f"{scope}/intermediate/dense")
  wide = graph.activation(wide, config.hidden_act)
  output = graph.dense(wide, f"{scope}/output/dense")
  y = graph.add("Add", output, y)
  return graph.layer_norm(y, f"{scope}/output", epsilon)
