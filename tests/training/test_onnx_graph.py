"""Parts of ONNX graphs; tests/export/test_onnx_model.py has whole models."""

import numpy as np
import onnxruntime
import pytest
from scipy import special

from bert.errors import UserError
from bert.training import onnx_graph
from bert.training.onnx_graph import OnnxGraph

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


def test_a_file_has_a_limit(monkeypatch):
  monkeypatch.setattr(onnx_graph, "_MAX_BYTES", 3)
  graph = OnnxGraph({})
  graph.output("y", graph.number(1.0), [])
  with pytest.raises(UserError, match="use --runtime=tensorflow"):
    graph.to_bytes()
