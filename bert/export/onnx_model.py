"""A trained model as an ONNX file: rows of numbers in, predictions out.

    write_onnx("/tmp/mrpc_output", "/tmp/mrpc.onnx", "none")

The inputs are input_ids, input_mask and segment_ids, int64 [batch, length], or
[batch, choices, length] for multiple choice. The outputs are the predictions of
the task, or `sequence_output` and `pooled_output`; see docs/export.md.
"""

import contextlib

import modeling
from bert import runtimes
from bert.data import downloads, files, records
from bert.engine import loaded_model, quantization
from bert.engine.onnx_graph import (
  POOLED,
  EncoderOutputs,
  OnnxGraph,
  OnnxOps,
  encoder,
  layer_name,
  sequence_inputs,
)
from bert.errors import UserError, first_line, require_package
from bert.layers import POOLER
from bert.models import checkpoints, task_file
from bert.tasks.multiple_choice.task import CHOICE


def write_onnx(model_dir: str, path: str, quantize: str) -> None:
  """Writes the model in a folder as an ONNX file, by a value of --quantize."""
  flag = f"--quantize={quantize}"
  if quantize == "dynamic":
    require_package("onnxruntime", flag, runtimes.REQUIREMENTS)
  content = task_graph(model_dir).to_bytes()
  if quantize == "dynamic":
    content = quantization.dynamic(content, flag)
  files.write_file(path, content)


def task_graph(model_dir: str) -> OnnxGraph:
  """The graph of the model in a folder, with the head of its task."""
  model_dir = downloads.local_path(model_dir)
  task, model = loaded_model.find_task(model_dir)
  wanted = modeling.variable_shapes(model.config)
  if task_file.read(model_dir)[0] is None:
    weights = checkpoints.load_weights(model.checkpoint, wanted, POOLER)
    return _encoder_graph(weights, model.config)
  weights = checkpoints.load_weights(
    model.checkpoint,
    wanted | task.head_shapes(model.config),
    task.optional_variables(),
  )
  # Settings of vectors that ONNX files do not support.
  known_settings = {"layer_combination": "last", "exclude_special": False}
  for name, known in known_settings.items():
    if (value := getattr(task.settings, name, known)) != known:
      raise UserError(
        f"the model has {name}={value}, which ONNX files cannot have; export a "
        f"SavedModel"
      )
  graph, scratch, read = OnnxGraph(weights), OnnxGraph(weights), set()
  cut_axes = task.feature_spec(False)["input_ids"].cut_axes
  axes = ["batch", *map(_axis_name, cut_axes)]
  for made in (graph, scratch):
    features = {name: made.input(name, axes) for name in records.SEQUENCES}

  def note(name):
    read.add(name)
    return scratch.input(name, ())

  with _only_ops(task):  # A scratch graph shows what the head reads.
    bert = EncoderOutputs(model.config, note)
    task.head(OnnxOps(scratch), bert, features)
  sequences = list(features.values())
  if len(axes) > 2:  # Each sequence of an example is a row of the encoder.
    length = graph.add("Shape", sequences[0], start=-1)
    rows = graph.add("Concat", graph.integers(-1), length, axis=0)
    sequences = [graph.add("Reshape", name, rows) for name in sequences]
  encoded = encoder(graph, model.config, sequences, read)
  bert = EncoderOutputs(model.config, encoded.__getitem__)
  ops = OnnxOps(graph)
  with _only_ops(task):
    outputs = task.head(ops, bert, features)
    for name, axes in task.output_axes().items():
      kind = "INT64" if outputs[name] in ops.integers else "FLOAT"
      axes = ["batch", *map(_axis_name, axes)]
      graph.output(name, outputs[name], axes, kind)
  return graph


@contextlib.contextmanager
def _only_ops(task):
  """Explains errors of a head that works in training."""
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    raise UserError(
      f"`head` of the task {task.kind!r} cannot be written as ONNX: "
      f"{first_line(error)}; compute with the operations of `ops` only, not "
      f"with TensorFlow's or Python's, or export a SavedModel"
    ) from error


def _axis_name(axis):
  """The name of an axis in the file, or its size."""
  return {records.POSITION: "length", CHOICE: "choices"}.get(axis, axis)


def _encoder_graph(weights, config):
  graph = OnnxGraph(weights)
  last = layer_name(config.num_hidden_layers - 1)
  has_pooler = POOLER[0] in weights
  wanted = [last, POOLED] if has_pooler else [last]
  outputs = encoder(graph, config, sequence_inputs(graph), wanted)
  axes = ["batch", "length", config.hidden_size]
  graph.output("sequence_output", outputs[last], axes)
  if has_pooler:
    graph.output(POOLED, outputs[POOLED], ["batch", config.hidden_size])
  return graph
