"""ONNX files, run by onnxruntime or OpenVINO.

    session = Session("openvino", "bfloat16", "folder/model.onnx")
    outputs = session({"input_ids": ids, ...})  # arrays in `session.outputs`

Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import logging as python_logging
import os
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
from absl import logging

from bert import runtimes
from bert.data import files
from bert.engine import quantization
from bert.errors import UserError, import_optional


class Session:
  """An ONNX file in memory; calls may come from several threads.

  Args:
    runtime, precision: see `graph_encoder.GraphEncoder`.
    graph: the path of the file, or its content.

  Attributes:
    inputs, outputs: their names.
  """

  def __init__(self, runtime: str, precision: str | None, graph: str | bytes):
    handlers = list(python_logging.root.handlers)
    flag = f"--runtime={runtime}"
    package = import_optional(runtime, flag, runtimes.REQUIREMENTS)
    python_logging.root.handlers[:] = handlers  # OpenVINO removes them.
    load = _load_openvino if runtime == "openvino" else _load_onnxruntime
    self.inputs, self.outputs, self._compute = load(package, graph, precision)
    self._lock = threading.Lock()

  def __call__(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    with self._lock:  # One batch uses all cores.
      return self._compute(inputs)


def _names(values) -> tuple[str, ...]:
  return tuple(value.name for value in values)


def _load_onnxruntime(package, graph, precision):
  del precision  # int8 is a matter of the file.
  options = package.SessionOptions()
  options.log_severity_level = 4  # An exception says the same.
  options.intra_op_num_threads = runtimes.num_threads()
  options.enable_mem_pattern = False  # It keeps memory for each new shape.
  # Without VNNI, sums of two 8-bit products overflow 16 bits.
  options.add_session_config_entry("session.x64quantprecision", "1")
  session = package.InferenceSession(
    graph, options, providers=["CPUExecutionProvider"]
  )
  names = _names(session.get_inputs()), _names(session.get_outputs())
  return *names, lambda inputs: session.run(None, inputs)


def _load_openvino(package, graph, precision):
  core = package.Core()
  if precision is None:
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precision = "bfloat16" if "BF16" in capabilities else "float32"
  hint = "bf16" if precision == "bfloat16" else "f32"
  compiled = core.compile_model(
    core.read_model(graph),
    "CPU",
    {
      "INFERENCE_PRECISION_HINT": hint,
      "PERFORMANCE_HINT": "LATENCY",
      "INFERENCE_NUM_THREADS": runtimes.num_threads(),
      # Number of activations that share a scale, if weights are int8.
      "DYNAMIC_QUANTIZATION_GROUP_SIZE": 128,
    },
  )
  logging.info("OpenVINO computes in %s", precision)
  names = (
    tuple(port.any_name for port in ports)
    for ports in (compiled.inputs, compiled.outputs)
  )
  return *names, lambda inputs: list(compiled(inputs).values())


def write_graph(path: str, content: bytes, what: str, start: float) -> bool:
  """Writes and logs a file begun at `start`; returns whether that succeeded."""
  with contextlib.suppress(UserError, OSError):
    files.makedirs(os.path.dirname(path))
    files.write_file(path, content)
    seconds = time.monotonic() - start
    logging.info("%s the graph to %s in %.1f s", what, path, seconds)
    return True
  return False


_QUANTIZE: Mapping[str, Callable[[bytes, str], bytes]] = {
  "onnxruntime": quantization.dynamic,
  "openvino": quantization.weights_in_int8,
}


def quantized(
  graph: str | bytes, path: str | None, runtime: str, reuses: bool = True
) -> str | bytes:
  """The int8 form of a graph, for a runtime: a path, or the content.

  It is written to `path` unless it is there and `reuses`.
  """
  if path and reuses and files.exists(path):
    return path
  start = time.monotonic()
  content = graph if isinstance(graph, bytes) else files.read_bytes(graph)
  content = _QUANTIZE[runtime](content, f"--precision={runtimes.INT8}")
  is_written = path and write_graph(path, content, "Quantized", start)
  return path if is_written else content
