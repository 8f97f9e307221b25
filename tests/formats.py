"""Models in other formats, compared with what computes them here."""

import numpy as np
import onnxruntime
import tensorflow as tf

from bert.data import records
from bert.export import onnx_model, task_graph


def saved_model(model, folder):
  """A function that computes a row by a SavedModel."""
  graph = task_graph.make_graph(model, reads_text=False)
  tf.saved_model.save(graph, folder, graph.serving())
  serve = tf.saved_model.load(folder).signatures["serving_default"]
  return lambda row: serve(
    **{name: tf.constant(value, tf.int32) for name, value in row.items()}
  )


def onnx(model, folder):
  """A function that computes a row by an ONNX file."""
  onnx_model.write_onnx(model.folder, f"{folder}/model.onnx")
  session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
  names = [output.name for output in session.get_outputs()]
  return lambda row: dict(zip(names, session.run(None, row), strict=True))


def check_numbers(model, inputs, run):
  """Asserts that another format gives the numbers of the model's inputs."""
  examples = [model.task.example(*model.parse(value)) for value in inputs]
  groups = model.task.features(examples, False)
  rows = [row for group in groups for row in group]
  for row, wanted in zip(rows, model.predictor(rows), strict=True):
    found = run({n: np.array([row[n]], np.int64) for n in records.SEQUENCES})
    assert found.keys() == wanted.keys() == model.task.output_axes().keys()
    for output, values in wanted.items():
      cut = tuple(map(slice, values.shape))  # Without padding.
      part = np.asarray(found[output])[0][cut]
      np.testing.assert_allclose(part, values, rtol=1e-4, atol=1e-4)


def same(found, wanted, tolerance):
  """Whether two values agree, their numbers within a tolerance."""
  if isinstance(wanted, dict):
    return found.keys() == wanted.keys() and all(
      same(found[name], wanted[name], tolerance) for name in wanted
    )
  if isinstance(wanted, list | tuple):
    return len(found) == len(wanted) and all(
      same(a, b, tolerance) for a, b in zip(found, wanted, strict=True)
    )
  if isinstance(wanted, float | np.floating | np.ndarray):
    return np.allclose(found, wanted, rtol=tolerance, atol=tolerance)
  return found == wanted
