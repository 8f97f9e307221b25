"""A trained model as an ONNX file: rows of numbers in, predictions out.

    write_onnx("/tmp/mrpc_output", "/tmp/mrpc.onnx", "none")

The inputs are input_ids, input_mask and segment_ids, int64 [batch, length], or
[batch, choices, length] for multiple choice. The outputs have the names of the
task's predictions:
- classification: logits and probabilities [batch, labels]; for a regression,
  probabilities are the numbers
- SQuAD: start_logits and end_logits [batch, length]
- labeled words: labels, int64, and probabilities [batch, length]
- multiple choice: probabilities [batch, choices]
- a model without a task: sequence_output [batch, length, H] and pooled_output
  [batch, H], which is missing if the checkpoint has no pooler
"""

import logging
import os
import tempfile
from typing import NamedTuple

import numpy as np

from bert import layers
import modeling
from bert.errors import import_optional
from bert.data import downloads, files, records
from bert.tasks import classification
from bert.tasks.find_task import find_task, head_shapes
from bert.training import checkpoints, model_folder
from bert.training.onnx_graph import (
  POOLED,
  OnnxGraph,
  encoder,
  layer_name,
  sequence_inputs,
)

_REQUIREMENTS = "requirements-export.txt"


def write_onnx(model_dir: str, path: str, quantize: str) -> None:
  """Writes the model in a folder as an ONNX file.

  Args:
    model_dir: a release, or the `output_dir` of a finished training.
    path: the file to write.
    quantize: "none"; or "dynamic" for weights in int8, and products of int8
      with activations that are quantized when they are known.

  Raises:
    UserError: the folder holds no model, the file cannot be written, or a
      package is missing.
  """
  quantizer = None
  if quantize == "dynamic":
    quantizer = import_optional(
      "onnxruntime.quantization", f"--quantize={quantize}", _REQUIREMENTS
    )
  content = task_graph(model_dir).to_bytes()
  if quantizer:
    content = _quantized(quantizer, content)
  files.write_file(path, content)


def _quantized(quantizer, content):
  """The content of an ONNX file with weights in int8."""
  # The package reads and writes local files only.
  with tempfile.TemporaryDirectory() as folder:
    full, small = (os.path.join(folder, name) for name in ("full", "small"))
    files.write_file(full, content)
    logging.disable(logging.WARNING)  # Advice on models with convolutions.
    try:
      quantizer.quantize_dynamic(full, small, per_channel=True)
    finally:
      logging.disable(logging.NOTSET)
    return files.read_bytes(small)


class _Folder(NamedTuple):
  """What the head of a task is built from."""

  path: str
  config: modeling.BertConfig
  weights: checkpoints.Checkpoint


def task_graph(model_dir: str) -> OnnxGraph:
  """The graph of the model in a folder, with the head of its task.

  Raises:
    UserError: the folder holds no model, or onnx is missing.
  """
  model_dir = downloads.local_path(model_dir)
  config = model_folder.load_config(model_dir)
  prefix = checkpoints.find_checkpoint(model_dir)
  add_head = _HEADS[find_task(model_dir)]
  wanted = modeling.variable_shapes(config) | head_shapes(model_dir, config)
  needs_pooler = add_head in (_classifier, _choices)
  optional = () if needs_pooler else checkpoints.POOLER
  weights = checkpoints.load_weights(prefix, wanted, optional)
  graph = OnnxGraph(weights)
  add_head(graph, _Folder(model_dir, config, weights))
  return graph


def _sequence_output(graph, folder, sequences):
  """The output of the highest layer, [batch, length, H]."""
  last = layer_name(folder.config.num_hidden_layers - 1)
  return encoder(graph, folder.config, sequences, {last})[last]


def _pooled_output(graph, folder, sequences):
  return encoder(graph, folder.config, sequences, {POOLED})[POOLED]


def _no_head(graph, folder):
  last = layer_name(folder.config.num_hidden_layers - 1)
  has_pooler = checkpoints.POOLER[0] in folder.weights
  wanted = [last, POOLED] if has_pooler else [last]
  outputs = encoder(graph, folder.config, sequence_inputs(graph), wanted)
  size = folder.config.hidden_size
  graph.output("sequence_output", outputs[last], ["batch", "length", size])
  if has_pooler:
    graph.output(POOLED, outputs[POOLED], ["batch", size])


def _classifier(graph, folder):
  label_type, _ = classification.read_assets(folder.path)
  pooled = _pooled_output(graph, folder, sequence_inputs(graph))
  logits = graph.output_layer(pooled)
  if label_type.kind == "classification":
    probabilities = graph.add("Softmax", logits, axis=-1)
  elif label_type.kind == "multilabel":
    probabilities = graph.add("Sigmoid", logits)
  else:
    deviation = graph.number(label_type.deviation)
    probabilities = graph.add("Mul", logits, deviation)
    probabilities = graph.add(
      "Add", probabilities, graph.number(label_type.mean)
    )
  axes = ["batch", label_type.num_outputs]
  graph.output("logits", logits, axes)
  graph.output("probabilities", probabilities, axes)


def _squad(graph, folder):
  sequences = sequence_inputs(graph)
  output = _sequence_output(graph, folder, sequences)
  logits = graph.output_layer(output, "cls/squad/")  # [batch, length, 2]
  mask = graph.add("Cast", sequences[1], to=graph.float_kind)
  padding = graph.add("Sub", graph.number(1.0), mask)
  padding = graph.add("Mul", padding, graph.number(layers.MASKED_SCORE))
  for index, name in enumerate(("start_logits", "end_logits")):
    part = graph.add("Gather", logits, graph.constant(np.int64(index)), axis=2)
    part = graph.add("Add", part, padding)
    graph.output(name, part, ["batch", "length"])


def _tagger(graph, folder):
  output = _sequence_output(graph, folder, sequence_inputs(graph))
  logits = graph.output_layer(output)
  labels = graph.add("ArgMax", logits, axis=-1, keepdims=0)
  probabilities = graph.add("Softmax", logits, axis=-1)
  highest = graph.add(
    "ReduceMax", probabilities, graph.integers(-1), keepdims=0
  )
  graph.output("labels", labels, ["batch", "length"], "INT64")
  graph.output("probabilities", highest, ["batch", "length"])


def _choices(graph, folder):
  axes = ("batch", "choices", "length")
  inputs = [graph.input(name, axes) for name in records.SEQUENCES]
  length = graph.add("Shape", inputs[0], start=2)
  rows = graph.add("Concat", graph.integers(-1), length, axis=0)
  sequences = [graph.add("Reshape", name, rows) for name in inputs]
  scores = graph.output_layer(_pooled_output(graph, folder, sequences))
  shape = graph.add("Shape", inputs[0], end=2)
  scores = graph.add("Reshape", scores, shape)
  # The padding of a row with fewer choices gets no probability.
  first = graph.add("Gather", inputs[1], graph.constant(np.int64(0)), axis=2)
  is_choice = graph.add("Cast", first, to=graph.float_kind)
  padding = graph.add("Sub", is_choice, graph.number(1.0))
  padding = graph.add("Mul", padding, graph.number(1e9))
  scores = graph.add("Add", scores, padding)
  probabilities = graph.add("Softmax", scores, axis=-1)
  graph.output("probabilities", probabilities, ["batch", "choices"])


# From a task to the function that adds its part of the model to the graph.
_HEADS = {
  "squad": _squad,
  "tagging": _tagger,
  "multiple choice": _choices,
  "classification": _classifier,
  None: _no_head,
}
