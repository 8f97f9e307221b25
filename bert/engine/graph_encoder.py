"""Other runtimes than TensorFlow for the encoder of a trained model.

    encoder = GraphEncoder("openvino", "int8", model)
    with store:  # In a tf.function.
      vectors = encoder(features, lambda bert: bert.get_pooled_output())

The encoder, which takes nearly all the time, is exported once to an ONNX file
in the folder `onnx` beside the checkpoint. The output layer of the task stays
in TensorFlow, see `EncodedBatch`. The packages of the runtimes are optional.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
from bert import kernels, layers, runtimes, variables
from bert.data import files, records
from bert.engine import onnx_graph, quantization, sessions
from bert.errors import UserError, shortened
from bert.models import checkpoints
from bert.models.resolve import Model

_T = TypeVar("_T")

# Folder of the ONNX files beside a checkpoint.
FOLDER = "onnx"

# A change of one of these modules invalidates the files.
_CODE = (modeling, kernels, layers, onnx_graph, quantization)


class EncodedBatch(onnx_graph.EncoderOutputs):
  """Outputs of an engine for a batch, by their names in `output_shapes`."""

  def get_embedding_table(self) -> tf.Variable:
    """float [V, E]: the word embeddings, a variable."""
    shape = [self._config.vocab_size, self._config.embedding_width]
    with variables.variable_scope("bert/embeddings"):
      return variables.get_variable("word_embeddings", shape)


def output_shapes(config: modeling.BertConfig) -> dict[str, list[int | None]]:
  """Name and shape of every output that an engine can have."""
  size = config.hidden_size
  layers = map(onnx_graph.layer_name, range(config.num_hidden_layers))
  shapes = {name: [None, None, size] for name in layers}
  return {onnx_graph.POOLED: [None, size], **shapes}


class GraphEncoder:
  """The encoder of another runtime, called from a graph of TensorFlow.

  Args:
    runtime: "onnxruntime" or "openvino".
    precision: "float32" or "int8"; with OpenVINO also "bfloat16". None:
      bfloat16 if OpenVINO and the processor support it, else float32. The
      attribute may be changed.
    model: if it has no checkpoint yet, that of the variable store is used.
  """

  def __init__(self, runtime: str, precision: str | None, model: Model):
    self.model, self.precision = model, precision
    self._runtime = runtime
    # The fingerprint before the checkpoint is opened.
    self._before = fingerprint(model) if model.checkpoint else None
    self._engines = {}

  def __call__(
    self, features: Mapping[str, tf.Tensor], head: Callable[[EncodedBatch], _T]
  ) -> _T:
    """Applies `head` to an encoded batch [B, ..., S], in a tf.function."""
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
      runtime = f"--runtime={self._runtime}"
      raise UserError(f"{runtime} runs on one device, not on several")
    self._weights = variables.current_store().initial_values
    self.model = self.model._replace(checkpoint=self._weights.prefix)
    self._before = self._before or fingerprint(self.model)
    config, used_names = self.model.config, set()
    shapes = output_shapes(config)

    def note(name):
      used_names.add(name)
      return tf.compat.v1.placeholder(tf.float32, shapes[name])

    def trace():  # A graph, never run, to find the outputs that `head` reads.
      head(EncodedBatch(config, note))

    tf.function(trace, autograph=False).get_concrete_function()
    names = sorted(used_names)
    self._engine(names)

    def call(*sequences):
      return self._engine(names)(sequences)

    sequences = [features[name] for name in records.SEQUENCES]
    outputs = tf.numpy_function(call, sequences, [tf.float32] * len(names))
    tensors = dict(zip(names, outputs, strict=True))
    return head(
      EncodedBatch(config, lambda n: tf.ensure_shape(tensors[n], shapes[n]))
    )

  def _engine(self, wanted):
    """The function from sequences to outputs, in the current precision."""
    key = self.precision, *wanted
    if key not in self._engines:
      self._engines[key] = self._load(*key)
    return self._engines[key]

  def _load(self, precision, *wanted):
    """A thread-safe function that computes the outputs `wanted`."""

    def make(reuses=True):
      encoder = _exported_encoder(
        self.model, self._weights, wanted, self._before, reuses
      )
      if precision == runtimes.INT8:
        path = None  # The encoder itself could not be written.
        if not isinstance(encoder, bytes):
          path = encoder.replace(".onnx", f"-int8-{self._runtime}.onnx")
        encoder = sessions.quantized(encoder, path, self._runtime, reuses)
      return sessions.Session(self._runtime, precision, encoder)

    try:
      compute = make()
    except (UserError, OSError):
      raise
    except Exception as error:  # Each package has its own exceptions.
      folder = os.path.dirname(self._weights.prefix)
      reason = shortened(" ".join(str(error).split()))
      logging.warning(
        "%s/%s cannot be used (%s); exporting again", folder, FOLDER, reason
      )
      compute = make(reuses=False)

    def run(sequences):
      inputs = {}
      for name, ids in zip(records.SEQUENCES, sequences, strict=True):
        # Each sequence is a row.
        inputs[name] = ids.astype(np.int64).reshape(-1, ids.shape[-1])
      return compute(inputs)

    return run


def _exported_encoder(model, weights, wanted, before, reuses=True):
  """The path of an ONNX file with these outputs, or its content.

  The file is written unless `reuses` and it exists for these weights.
  """
  folder = os.path.join(os.path.dirname(weights.prefix), FOLDER)
  kind = "+".join(wanted)
  path = os.path.join(folder, f"{kind}-{before}.onnx")
  is_local = not files.is_remote(path)
  exists = reuses and is_local and files.exists(path)
  if exists and fingerprint(model) == before:
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
  if is_local and sessions.write_graph(path, content, "Exported", start):
    with contextlib.suppress(OSError):  # Of older weights.
      for name in files.listdir(folder):
        if name.startswith((f"{kind}-", "int8-")) and before not in name:
          files.remove(os.path.join(folder, name))
    return path
  logging.warning("%s cannot be written; the next start exports again", path)
  return content


def fingerprint(model: Model) -> str:
  """A hash of all that the encoder of a model depends on."""
  fields = json.dumps(model.config.to_dict(), sort_keys=True, default=repr)
  digest = hashlib.sha256(fields.encode())
  for module in _CODE:
    digest.update(files.read_bytes(module.__file__))
  digest.update(checkpoints.hash_of_weights(model.checkpoint).encode())
  return digest.hexdigest()[:16]
