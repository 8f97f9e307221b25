"""LiteRT files give the classifier's numbers, as near as weights allow."""

import numpy as np
import pytest
import task_folders
from golden_classifier import sequences
from scipy import special

from bert.export import lite, task_graph
from bert.data import records
from bert.tasks.classifier import Classifier

interpreters = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, golden, goldens):
  folder = tmp_path_factory.mktemp("classifier")
  task_folders.write(folder, "classification", golden, goldens)
  return Classifier(str(folder))


def test_numbers_and_sizes(tmp_path, golden, classifier):
  graph = task_graph.ClassifierGraph(classifier, None)
  batch = [part.astype(np.int32) for part in sequences(golden)]
  rows = [
    dict(zip(records.SEQUENCES, row, strict=True))
    for row in zip(*batch, strict=True)
  ]
  known = classifier.predictor(rows)["logits"]
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
