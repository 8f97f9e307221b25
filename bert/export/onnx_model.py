"""A trained model as an ONNX file: rows of numbers in, predictions out.

    write_onnx("/tmp/mrpc_output", "/tmp/mrpc.onnx")

The inputs are input_ids, input_mask and segment_ids, int64 [batch, length], or
[batch, choices, length] for multiple choice. The outputs are the predictions of
the task. A release has vectors, `sequence_output` and `pooled_output`; see
docs/export.md.
"""

import contextlib

import modeling
from bert.data import downloads, files, records
from bert.engine import loaded_model, quantization
from bert.engine.onnx_graph import (
  POOLED,
  EncoderOutputs,
  OnnxGraph,
  OnnxOps,
  encoder,
  layer_name,
)
from bert.errors import UserError, first_line
from bert.layers import POOLER
from bert.models import checkpoints, task_file
from bert.tasks.multiple_choice.task import CHOICE


def write_onnx(
  model_dir: str,
  path: str,
  is_int8: bool = False,
  kind: str | None = None,
  **settings,
) -> None:
  """Writes the model in a folder as an ONNX file, in float32 or int8.

  `kind` and `settings` are arguments of `loaded_model.find_task`.
  """
  content = task_graph(model_dir, kind, **settings).to_bytes()
  if is_int8:
    content = quantization.dynamic(content, "--precision=int8")
  files.write_file(path, content)


def task_graph(
  model_dir: str, kind: str | None = None, **settings
) -> OnnxGraph:
  """The graph of the model in a folder, with the head of its task."""
  model_dir = downloads.local_path(model_dir)
  task, model = loaded_model.find_task(model_dir, kind, **settings)
  is_release = kind is None and task_file.read(model_dir)[0] is None
  weights = checkpoints.load_weights(
    model.checkpoint,
    modeling.variable_shapes(model.config) | task.head_shapes(model.config),
    POOLER if is_release else task.optional_variables(),
  )
  # Settings of vectors that ONNX files do not support.
  known_settings = {"layer_combination": "last", "exclude_special": False}
  for name, known in known_settings.items():
    if (value := getattr(task.settings, name, known)) != known:
      raise UserError(
        f"the model has {name}={value}, which ONNX files cannot have; export a "
        f"SavedModel"
      )
  graph, scratch = OnnxGraph(weights), OnnxGraph(weights)
  extras = _encoder_outputs(task, model.config, weights) if is_release else {}
  spec, read = task.feature_spec(False), set(extras.values())
  features = _Features(graph, spec)

  def note(name):
    read.add(name)
    return scratch.input(name, ())

  with _only_ops(task):  # A scratch graph shows what the head reads.
    bert = EncoderOutputs(model.config, note)
    task.head(OnnxOps(scratch), bert, _Features(scratch, spec))
  sequences = [features[name] for name in records.SEQUENCES]
  if len(spec["input_ids"].cut_axes) > 1:
    # Each sequence of an example is a row of the encoder.
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
  for name, source in extras.items():
    axes = ["length"] if name != POOLED else []
    axes = ["batch", *axes, model.config.hidden_size]
    graph.output(name, encoded[source], axes)
  return graph


class _Features(dict):
  """The features of a batch, declared as inputs of a graph when they are read.

  The three sequences are inputs whether they are read or not.
  """

  def __init__(self, graph, spec):
    super().__init__()
    self._graph, self._spec = graph, spec
    for name in records.SEQUENCES:
      self[name]

  def __missing__(self, name):
    feature = self._spec[name]
    axes = feature.cut_axes or feature.shape
    self[name] = self._graph.input(name, ["batch", *map(_axis_name, axes)])
    return self[name]


def _encoder_outputs(task, config, weights):
  """The outputs of a release beside its vectors, as the encoder names them."""
  names = {"sequence_output": layer_name(config.num_hidden_layers - 1)}
  # With --pooling=pooled, that output is the vectors.
  if POOLER[0] in weights and not task.needs_pooler:
    names[POOLED] = POOLED
  return names


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
