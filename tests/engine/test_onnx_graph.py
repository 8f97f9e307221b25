"""Parts of ONNX graphs; tests/export/test_onnx_model.py has whole models."""

import contextlib

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from scipy import special

import modeling
from bert import variables
from bert.engine import onnx_graph
from bert.engine.onnx_graph import POOLED, OnnxGraph
from bert.errors import UserError

X = np.arange(-4, 5)
# By definition (Hendrycks & Gimpel 2016), with the error function or tanh.
EXPECTED = {
  "linear": X,
  "relu": np.maximum(X, 0),
  "tanh": np.tanh(X),
  "gelu_exact": X * (1 + special.erf(X / np.sqrt(2))) / 2,
  "gelu": X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3))) / 2,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_activations(name):
  graph = OnnxGraph({})
  x = graph.add("Cast", graph.input("x", ["n"]), to=graph.float_kind)
  graph.output("y", graph.activation(x, name), ["n"])
  session = onnxruntime.InferenceSession(
    graph.to_bytes(), providers=["CPUExecutionProvider"]
  )
  (found,) = session.run(["y"], {"x": X})
  np.testing.assert_allclose(found, EXPECTED[name], atol=2e-6)


def test_an_activation_that_only_tensorflow_has():
  with pytest.raises(UserError, match=r"'silu' .* bert/engine/onnx_graph"):
    OnnxGraph({}).activation("x", "silu")


class _Pooled(modeling.BertModel):
  """With the mean of all tokens in place of the first."""

  def get_pooled_output(self):
    return tf.reduce_mean(self.get_sequence_output(), axis=1)


class _Scaled(modeling.BertModel):
  """With a new variable, from 0 on."""

  def get_sequence_output(self):
    scale = variables.get_variable("scale", [])
    return (1 + scale) * super().get_sequence_output()


CONFIGS = (
  modeling.BertConfig(30, type_vocab_size=2, num_hidden_layers=2),
  modeling.BertConfig(
    *(30, 64, 4, 4, 90, "relu"),
    type_vocab_size=1,
    embedding_size=8,
    num_hidden_groups=2,
    position_offset=2,
    layer_norm_eps=1e-5,
  ),
)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
  ("changed", "differ"), [(None, ()), (_Pooled, [POOLED]), (_Scaled, ["last"])]
)
def test_a_changed_model_is_refused(monkeypatch, config, changed, differ):
  if changed:
    monkeypatch.setattr(modeling, "BertModel", changed)
  shapes = modeling.variable_shapes(config)
  weights = {name: np.zeros(shape) for name, shape in shapes.items()}
  last = onnx_graph.layer_name(config.num_hidden_layers - 1)
  for name, output in ((POOLED, POOLED), ("last", last)):
    graph = OnnxGraph(weights)
    refusal = pytest.raises(UserError, match=f"another {output} than .*onnx_gr")
    with refusal if name in differ else contextlib.nullcontext():
      sequences = onnx_graph.sequence_inputs(graph)
      onnx_graph.encoder(graph, config, sequences, [output])


def test_a_file_has_a_limit(monkeypatch):
  monkeypatch.setattr(onnx_graph, "_MAX_BYTES", 3)
  graph = OnnxGraph({})
  graph.output("y", graph.number(1.0), [])
  with pytest.raises(UserError, match="use --runtime=tensorflow"):
    graph.to_bytes()
