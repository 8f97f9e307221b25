"""Each format of a model of BERT's family has the same numbers and answers."""

import contextlib
import json
import threading
import urllib.request

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from safetensors import numpy as safetensors

import bert
import families
from bert.data import records
from bert.export import huggingface, onnx_model, server, task_graph
from bert.training.huggingface_names import DECODERS

INPUTS = {
  "Model": ["The old bridge", "Who wrote it?"],
  "ForMaskedLM": ["The old [MASK] over the [MASK].", ("one", "two [MASK]")],
  "ForSequenceClassification": ["The old bridge", ("Who closed it?", "one")],
  "ForTokenClassification": ["The old bridge was closed.", "one two"],
  "ForQuestionAnswering": [
    ("Who closed the bridge?", "The old bridge was closed by the city. " * 5),
    ("What?", "one"),
  ],
  "ForMultipleChoice": [{"context": "one", "choices": ["two", "the bridge"]}],
}

pytestmark = pytest.mark.families

FAMILIES = pytest.mark.parametrize("family", families.FAMILIES)
HEADS = pytest.mark.parametrize("head", families.HEADS)
TASK_HEADS = pytest.mark.parametrize("head", families.HEADS[2:])


def _load(folder, head):
  return bert.load(folder, "fill_mask" if head == "ForMaskedLM" else None)


def _close(found, wanted):
  """Whether answers are equal, apart from rounding."""
  if isinstance(wanted, dict):
    assert found.keys() == wanted.keys()
    found, wanted = (list(answer.values()) for answer in (found, wanted))
  if isinstance(wanted, list | tuple):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
      _close(ours, theirs)
  elif isinstance(wanted, float | np.ndarray):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
  else:
    assert found == wanted


@HEADS
@FAMILIES
def test_answers_after_a_conversion_and_back(tmp_path, family, head):
  theirs = families.path(family, head)
  ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
  huggingface.to_tensorflow(theirs, ours)
  architecture = huggingface.to_huggingface(ours, back)
  assert architecture.endswith(head)
  first, *others = (
    _load(folder, head)(INPUTS[head]) for folder in (theirs, ours, back)
  )
  for answers in others:
    np.testing.assert_equal(answers, first)
  before, after = (
    safetensors.load_file(f"{folder}/model.safetensors")
    for folder in (theirs, back)
  )
  assert before.keys() - DECODERS == after.keys()
  for name, value in after.items():
    np.testing.assert_array_equal(value, before[name])


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
@TASK_HEADS
@FAMILIES
def test_numbers_of_exported_models(tmp_path, family, head, make):
  model = _load(families.path(family, head), head)
  examples = [model.task.example(*model.parse(i)) for i in INPUTS[head]]
  groups = model.task.features(examples, False)
  rows = [row for group in groups for row in group]
  wanted = model.predictor(rows)
  run = make(model, str(tmp_path))
  for index, row in enumerate(rows):
    found = run({n: np.array([row[n]], np.int64) for n in records.SEQUENCES})
    for output, values in wanted.items():
      cut = tuple(map(slice, values[index].shape))  # Without padding.
      part = np.asarray(found[output])[0][cut]
      np.testing.assert_allclose(part, values[index], rtol=1e-4, atol=1e-4)


@HEADS
@FAMILIES
def test_answers_by_another_runtime(tmp_path, family, head):
  folder = str(tmp_path / "model")
  huggingface.to_tensorflow(families.path(family, head), folder)
  task = "fill_mask" if head == "ForMaskedLM" else None
  ours, theirs = (
    bert.load(folder, task, runtime=runtime)(INPUTS[head])
    for runtime in ("tensorflow", "onnxruntime")
  )
  _close(theirs, ours)


@contextlib.contextmanager
def _served(model):
  """A function that sends inputs to a server, and returns its answers."""
  limits = server.Limits(
    max_batch=4,
    max_wait_ms=1,
    max_queue=8,
    max_texts=8,
    max_text_chars=10_000,
    max_body_bytes=100_000,
    timeout_s=60.0,
  )
  listener = server.open_socket("127.0.0.1", 0)
  http_server = server.http_server(server.make_app(model, "m", limits), 60.0)
  thread = threading.Thread(
    target=http_server.run, kwargs={"sockets": [listener]}
  )
  thread.start()

  def ask(inputs):
    names = [field.name for field in model.fields]
    instances = [
      dict(zip(names, model.parse(value), strict=True)) for value in inputs
    ]
    request = urllib.request.Request(
      f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models/m:predict",
      json.dumps({"instances": instances}).encode(),
      {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
      return json.load(response)["predictions"]

  try:
    yield ask
  finally:
    http_server.should_exit = True
    thread.join(60)


@TASK_HEADS
@FAMILIES
def test_answers_of_the_server(family, head):
  model = bert.load(families.path(family, head))
  with _served(model) as ask:
    found = ask(INPUTS[head])
  wanted = model(INPUTS[head])
  if head == "ForTokenClassification":
    wanted = [answer["entities"] for answer in wanted]
  for ours, served in zip(wanted, found, strict=True):
    if isinstance(ours, dict) and not isinstance(served, dict):
      (ours,) = ours.values()
    _close(json.loads(json.dumps(served)), json.loads(json.dumps(ours)))
