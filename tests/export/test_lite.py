"""LiteRT files give the classifier's numbers, as near as weights allow."""

import numpy as np
import pytest
import task_folders
import tensorflow as tf
from golden_classifier import sequences
from scipy import special

import bert
from bert.data import records
from bert.export import lite, task_graph

interpreters = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, golden, goldens):
  folder = tmp_path_factory.mktemp("classifier")
  task_folders.write(folder, "classification", golden, goldens)
  return bert.load(folder)


def test_numbers_and_sizes(tmp_path, golden, classifier):
  graph = task_graph.TaskGraph(classifier)
  batch = [part.astype(np.int32) for part in sequences(golden)]
  rows = [
    dict(zip(records.SEQUENCES, row, strict=True))
    for row in zip(*batch, strict=True)
  ]
  features = dict(zip(records.SEQUENCES, map(tf.constant, batch), strict=True))
  known = classifier.predictor.compute(features)["logits"]
  sizes = []
  for quantize, difference in (
    ("none", 1e-4),
    ("float16", 0.02),
    ("dynamic", 0.3),
  ):
    path = tmp_path / f"{quantize}.tflite"
    lite.write_lite(graph, str(path), batch[0].shape[1], quantize)
    run = interpreters.Interpreter(str(path)).get_signature_runner()
    found = [run(**{n: x[np.newaxis] for n, x in row.items()}) for row in rows]
    logits = np.concatenate([outputs["logits"] for outputs in found])
    assert np.abs(logits - known).max() < difference, quantize
    probabilities = np.concatenate([o["probabilities"] for o in found])
    np.testing.assert_allclose(
      probabilities, special.softmax(logits, axis=1), rtol=1e-3
    )
    sizes.append(path.stat().st_size)
  none, float16, dynamic = sizes
  assert none > 4 * 1001 * 32
  assert float16 < 0.7 * none
  assert dynamic < 0.6 * none


@pytest.mark.parametrize(
  ("name", "output"), [("multiple choice", "logits"), ("", "vectors")]
)
def test_one_row(tmp_path, golden, goldens, name, output):
  """Multiple choice has the logit of one choice."""
  model = bert.load(task_folders.write(tmp_path, name, golden, goldens))
  path = str(tmp_path / "model.tflite")
  batch = [part[:1].astype(np.int32) for part in sequences(golden)]
  length = batch[0].shape[-1]
  if name:
    batch = [part[:, np.newaxis] for part in batch]
  features = dict(zip(records.SEQUENCES, batch, strict=True))
  lite.write_lite(task_graph.TaskGraph(model), path, length, "none")
  run = interpreters.Interpreter(path).get_signature_runner()
  known = model.predictor.compute(
    {name: tf.constant(value) for name, value in features.items()}
  )
  np.testing.assert_allclose(
    run(**features)[output], known[output], rtol=1e-4, atol=1e-5
  )
