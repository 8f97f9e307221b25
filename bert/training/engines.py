"""Other runtimes than TensorFlow for the encoder of a trained model.

    before = fingerprint(model)
    weights = ...  # Read after that.
    engine = load_engine(
      "openvino", model, weights, ["pooled_output"], None, before
    )
    engine(features)["pooled_output"]  # float32 [B, H]

The encoder, which takes nearly all of the time, is written once as an ONNX file
into the folder `onnx` beside the checkpoint. The output layer of the task stays
in TensorFlow, see `EncodedBatch`. The packages of the runtimes are optional.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging as python_logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
from bert import variables
from bert.errors import UserError, import_optional, shortened
from bert.data import files, records
from bert.training import (
  checkpoints,
  model_folder,
  onnx_graph,
  quantization,
  runtimes,
)

# Folder of the ONNX files beside a checkpoint.
FOLDER = "onnx"

# Raised when `onnx_graph.encoder` changes, so that older files are not used.
_VERSION = 2

Engine = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


class EncodedBatch:
  """Outputs of an engine, read by the getters of a BertModel.

  Args:
    config: the BertConfig.
    outputs: dict from the names in `output_shapes` to tensors.

  Attributes:
    read: the names of the outputs that were read.
  """

  def __init__(
    self, config: modeling.BertConfig, outputs: Mapping[str, tf.Tensor]
  ):
    self._count = config.num_hidden_layers
    self._table_shape = [config.vocab_size, config.embedding_width]
    self._outputs = outputs
    self.read = set()

  def _get(self, name):
    self.read.add(name)
    return self._outputs[name]

  def get_pooled_output(self) -> tf.Tensor:
    """float [B, H]: [CLS] transformed."""
    return self._get(onnx_graph.POOLED)

  def get_sequence_output(self) -> tf.Tensor:
    """float [B, S, H]: the output of the last layer."""
    return self._get(onnx_graph.layer_name(self._count - 1))

  def get_all_encoder_layers(self) -> onnx_graph.Layers:
    """float [B, S, H] of each layer, lowest first."""
    return onnx_graph.Layers(self._get, self._count)

  def get_embedding_table(self) -> tf.Variable:
    """float [V, E]: the word embeddings, a variable."""
    with variables.variable_scope("bert/embeddings"):
      return variables.get_variable("word_embeddings", self._table_shape)


def output_shapes(config: modeling.BertConfig) -> dict[str, list[int | None]]:
  """Name and shape of every output that an engine can have."""
  size = config.hidden_size
  layers = map(onnx_graph.layer_name, range(config.num_hidden_layers))
  shapes = {name: [None, None, size] for name in layers}
  return {onnx_graph.POOLED: [None, size], **shapes}


def load_engine(
  runtime: str,
  model: model_folder.Model,
  weights: checkpoints.Checkpoint,
  wanted: Sequence[str],
  precision: str | None,
  before: str,
  length: int,
) -> Engine:
  """A function that computes the encoder.

  Args:
    runtime: "onnxruntime" or "openvino".
    model: the model's files.
    weights: its checkpoint.
    wanted: the outputs to compute, of `output_shapes`.
    precision: "float32" or "int8"; by OpenVINO also "bfloat16". None is that
      if the processor supports it, else float32.
    before: the `fingerprint` of the model before the checkpoint was opened.
    length: the positions of a row.

  Returns:
    From the three sequences, integer [B, S], to a dict of float32 arrays. It
    may be called from several threads.
  """
  runtimes.check_runtime(runtime, precision)
  handlers = list(python_logging.root.handlers)
  flag = f"--runtime={runtime}"
  package = import_optional(runtime, flag, runtimes.REQUIREMENTS)
  python_logging.root.handlers[:] = handlers  # OpenVINO removes them.
  wanted, lock = sorted(wanted), threading.Lock()

  def export(**options):
    path = _exported_encoder(model, weights, wanted, before, **options)
    if precision != runtimes.INT8:
      return path
    return _quantized_encoder(path, runtime, model, weights, length, **options)

  encoder = export()
  load = _load_openvino if runtime == "openvino" else _load_onnxruntime
  try:
    compute = load(package, encoder, precision)
  except Exception as error:  # Each runtime has its own.
    if isinstance(encoder, bytes):
      raise
    reason = shortened(" ".join(str(error).split()))
    logging.warning("%s is damaged (%s); exporting it again", encoder, reason)
    encoder = export(reuses=False)
    compute = load(package, encoder, precision)

  def run(features):
    inputs = {}
    for name in records.SEQUENCES:
      ids = np.asarray(features[name], np.int64)
      inputs[name] = ids.reshape(-1, ids.shape[-1])  # Each sequence is a row.
    with lock:  # One batch uses all cores.
      outputs = compute(inputs)
    return dict(zip(wanted, outputs, strict=True))

  return run


def _load_onnxruntime(package, encoder, precision):
  options = package.SessionOptions()
  options.log_severity_level = 3
  session = package.InferenceSession(
    encoder, options, providers=["CPUExecutionProvider"]
  )
  return lambda inputs: session.run(None, inputs)


def _load_openvino(package, encoder, precision):
  core = package.Core()
  if precision is None:
    known = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precision = "bfloat16" if "BF16" in known else "float32"
  hint = "bf16" if precision == "bfloat16" else "f32"
  compiled = core.compile_model(
    core.read_model(encoder),
    "CPU",
    {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY"},
  )
  logging.info("OpenVINO computes in %s", precision)
  return lambda inputs: list(compiled(inputs).values())


def _exported_encoder(model, weights, wanted, before, reuses=True):
  """The path of an ONNX file with these outputs, or its content.

  The file is written if there is none for these weights, or not `reuses`. If
  the folder cannot be written to, or another training replaces the checkpoint
  meanwhile, the content is returned.
  """
  folder = os.path.join(os.path.dirname(weights.prefix), FOLDER)
  kind = "+".join(wanted)
  path = os.path.join(folder, f"{kind}-{before}.onnx")
  is_local = not files.is_remote(path)
  found = reuses and is_local and files.exists(path)
  if found and fingerprint(model) == before:
    return path
  start = time.monotonic()
  graph = onnx_graph.OnnxGraph(weights)
  sequences = onnx_graph.sequence_inputs(graph)
  outputs = onnx_graph.encoder(graph, model.config, sequences, wanted)
  for name in wanted:
    axes = [axis or "length" for axis in output_shapes(model.config)[name]]
    graph.output(name, outputs[name], ["batch", *axes[1:]])
  content = graph.to_bytes()
  if fingerprint(model) != before:
    logging.warning(
      "%s was replaced while it was read; the next start exports it again",
      weights.prefix,
    )
    return content
  if is_local:
    with contextlib.suppress(UserError, OSError):
      files.makedirs(folder)
      files.write_file(path, content)
      for name in files.listdir(folder):
        if name.startswith(f"{kind}-") and name != os.path.basename(path):
          files.remove(os.path.join(folder, name))
      seconds = time.monotonic() - start
      logging.info("Exported the encoder to %s in %.1f s", path, seconds)
      return path
  logging.warning("%s cannot be written; the next start exports again", path)
  return content


def _quantized_encoder(encoder, runtime, model, weights, length, reuses=True):
  """The path of the encoder in int8, or its content, given those in float32.

  The file is written if there is none, or not `reuses`.
  """
  is_file = not isinstance(encoder, bytes)
  if is_file:
    path = encoder.replace(".onnx", f"-int8-{runtime}.onnx")
    if reuses and files.exists(path):
      return path
  start = time.monotonic()
  content = files.read_bytes(encoder) if is_file else encoder
  flag = f"--precision={runtimes.INT8}"
  if runtime == "openvino":
    vocab, special = model.tokenizer.vocab, model.tokenizer.special
    batches = quantization.calibration_batches(
      os.path.dirname(weights.prefix),
      model.config.vocab_size,
      (vocab[special.cls], vocab[special.sep]),
      length,
    )
    content = quantization.static(content, batches, flag)
  else:
    content = quantization.dynamic(content, flag)
  if is_file:
    with contextlib.suppress(UserError, OSError):
      files.write_file(path, content)
      seconds = time.monotonic() - start
      logging.info("Quantized the encoder to %s in %.1f s", path, seconds)
      return path
  return content


def fingerprint(model: model_folder.Model) -> str:
  """A hash of all that the encoder of a model depends on."""
  fields = json.dumps(model.config.to_dict(), sort_keys=True, default=repr)
  found = hashlib.sha256(f"{_VERSION} {fields}".encode())
  prefix = checkpoints.find_checkpoint(model.checkpoint)
  for path in checkpoints.checkpoint_files(prefix):
    if path.endswith(".index"):  # It holds a checksum of each variable.
      found.update(files.read_bytes(path))
    elif not files.exists(prefix + ".index"):
      stat = tf.io.gfile.stat(path)
      found.update(f"{stat.length} {stat.mtime_nsec}".encode())
  return found.hexdigest()[:16]
