"""Each format has the numbers and the answers of each task."""

import numpy as np
import onnxruntime
import pytest
import task_folders
import tensorflow as tf

import bert
from bert.data import records
from bert.export import huggingface, onnx_model, task_graph


def _saved_model(model, folder):
  graph = task_graph.make_graph(model, reads_text=False)
  tf.saved_model.save(graph, folder, graph.serving())
  serve = tf.saved_model.load(folder).signatures["serving_default"]
  return lambda row: serve(
    **{name: tf.constant(value, tf.int32) for name, value in row.items()}
  )


def _onnx(model, folder):
  onnx_model.write_onnx(model.folder, f"{folder}/model.onnx", "none")
  session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
  names = [output.name for output in session.get_outputs()]
  return lambda row: dict(zip(names, session.run(None, row), strict=True))


@pytest.mark.parametrize("make", [_saved_model, _onnx])
@pytest.mark.parametrize("name", task_folders.TASKS)
def test_numbers(tmp_path, golden, goldens, name, make):
  (tmp_path / "out").mkdir()
  model = bert.load(task_folders.write(tmp_path, name, golden, goldens))
  inputs = map(model.parse, task_folders.INPUTS[name])
  examples = [model.task.example(*texts) for texts in inputs]
  groups = model.task.features(examples, False)
  rows = [row for group in groups for row in group]
  wanted = model.predictor(rows)
  run = make(model, str(tmp_path / "out"))
  for index, row in enumerate(rows):
    found = run({n: np.array([row[n]], np.int64) for n in records.SEQUENCES})
    assert found.keys() == wanted.keys() == model.task.output_axes().keys()
    for output, values in wanted.items():
      cut = tuple(map(slice, values[index].shape))  # Without padding.
      part = np.asarray(found[output])[0][cut]
      np.testing.assert_allclose(part, values[index], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", task_folders.INPUTS)
def test_answers_after_a_conversion_and_back(tmp_path, golden, goldens, name):
  ours = task_folders.write(tmp_path, name, golden, goldens)
  theirs, back = str(tmp_path / "theirs"), str(tmp_path / "back")
  huggingface.to_huggingface(ours, theirs)
  huggingface.to_tensorflow(theirs, back)
  first, *others = (
    bert.load(folder)(task_folders.INPUTS[name])
    for folder in (ours, theirs, back)
  )
  for answers in others:
    np.testing.assert_equal(answers, first)
