"""The weights and products of an ONNX graph in eight bits.

Weights have one scale per channel, a column of a matrix. The runtimes find the
ranges of activations in each batch: onnxruntime per tensor, OpenVINO per group
of values.
"""

import logging
import os
import tempfile

import numpy as np

from bert import runtimes
from bert.data import files
from bert.errors import import_optional


def dynamic(content: bytes, flag: str) -> bytes:
  """The ONNX file with int8 weights and dynamically quantized activations.

  `flag` is named in the error if onnxruntime is missing.
  """
  package = import_optional(
    "onnxruntime.quantization", flag, runtimes.REQUIREMENTS
  )
  # The package reads and writes local files only.
  with tempfile.TemporaryDirectory() as folder:
    full, small = (os.path.join(folder, name) for name in ("full", "small"))
    files.write_file(full, content)
    logging.disable(logging.WARNING)  # Hides advice on convolutions.
    try:
      package.quantize_dynamic(full, small, per_channel=True)
    finally:
      logging.disable(logging.NOTSET)
    return files.read_bytes(small)


def weights_in_int8(content: bytes, flag: str) -> bytes:
  """The ONNX file with the weights of its products in int8.

  OpenVINO quantizes the activations of such products, if configured to.
  """
  onnx = import_optional("onnx", flag, runtimes.REQUIREMENTS)
  model = onnx.load_from_string(content)
  graph = model.graph
  tensors = {tensor.name: tensor for tensor in graph.initializer}
  names = {node.input[1] for node in graph.node if node.op_type == "MatMul"}
  for name in sorted(tensors.keys() & names):
    value = onnx.numpy_helper.to_array(tensors[name])
    scale = np.maximum(np.abs(value).max(axis=0), np.float32(1e-30)) / 127
    integers = np.rint(value / scale).astype(np.int8)
    parts = [f"{name}/int8", f"{name}/scale"]
    graph.initializer.remove(tensors[name])
    graph.initializer.extend(
      map(onnx.numpy_helper.from_array, (integers, scale), parts)
    )
    node = onnx.helper.make_node("DequantizeLinear", parts, [name], axis=1)
    graph.node.insert(0, node)
  return model.SerializeToString()
