"""Classifiers and vectors as graphs: answers, signatures, serialized rows."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from golden_classifier import LABEL_TYPES, LABELS, golden_values

from bert.export import task_graph, text_graph
from bert.data import records
from bert.tasks import classification, examples
from bert.tasks import labels as label_types
from bert.tasks.classifier import Classifier
from bert.tasks.features import FeatureExtractor
from bert.training import checkpoints

# Shorter than a row, longer than several, without words, and a long one with a
# short one.
TEXTS = ["the city", "many years , before this " * 6, " ", "Émile's a"]
PAIRS = list(itertools.product(TEXTS, [*TEXTS, ""]))


# Far from 0 and close together.
TIMES = label_types.Regression(1.7e9, 10.0)


def _loader(folder, golden, goldens):
  """A function that makes what a training leaves, and loads it."""

  def make(kind, long_text, is_pair):
    label_type = {**LABEL_TYPES, "times": TIMES}[kind]
    reading = classification.Reading(12, long_text, is_pair)
    files = {
      "bert_config.json": golden.config.to_json_string(),
      "vocab.txt": (goldens / "vocab.txt").read_bytes(),
      **classification.assets(label_type, reading),
    }
    values = golden_values(golden, label_type.num_outputs)
    checkpoints.write_release(str(folder), values, files)
    return Classifier(str(folder))

  return make


@pytest.fixture
def load(tmp_path, golden, goldens):
  """Makes the folder that a training leaves; returns the Classifier."""
  return _loader(tmp_path, golden, goldens)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, golden, goldens):
  """A Classifier, and the folder of its SavedModel."""
  folder = tmp_path_factory.mktemp("classifier")
  load = _loader(folder, golden, goldens)
  classifier = load("classification", "head", False)
  graph = _graph(classifier)
  tf.saved_model.save(graph, str(folder / "saved"), graph.serving())
  return classifier, str(folder / "saved")


def _graph(classifier):
  tokenizer = text_graph.GraphTokenizer(classifier.tokenizer)
  return task_graph.ClassifierGraph(classifier, tokenizer)


@pytest.mark.parametrize(
  ("kind", "long_text", "is_pair"),
  [
    ("classification", "head", True),
    ("classification", "mean_windows", True),
    ("multilabel", "head_tail", False),
    ("multilabel", "mean_windows", False),
    ("regression", "head_tail", True),
    ("times", "head", False),
  ],
)
def test_answers_are_the_classifiers(load, kind, long_text, is_pair):
  classifier = load(kind, long_text, is_pair)
  texts = PAIRS if is_pair else [(text,) for text in TEXTS]
  wanted = classifier(texts)
  columns = map(tf.constant, zip(*texts, strict=True))
  found = {k: v.numpy() for k, v in _graph(classifier).answer(*columns).items()}
  if not classifier.label_type.labels:
    assert found.keys() == {"value"}
    mean = classifier.label_type.mean
    values = [prediction.label - mean for prediction in wanted]
    assert np.ptp(values) > 0.01
    np.testing.assert_allclose(found["value"] - mean, values, 1e-4, 1e-5)
    return
  assert [label.decode() for label in found["label"]] == [
    prediction.label for prediction in wanted
  ]
  assert found["labels"].tolist() == [[n.encode() for n in LABELS]] * len(texts)
  np.testing.assert_allclose(
    found["probabilities"],
    [list(prediction.probabilities.values()) for prediction in wanted],
    rtol=1e-4,
    atol=1e-5,
  )


def test_a_saved_model_reads_texts_and_rows(saved):
  classifier, folder = saved
  loaded = tf.saved_model.load(folder)
  wanted = classifier.probabilities(TEXTS)
  texts = tf.constant(TEXTS)
  found = [loaded(texts), loaded.signatures["serving_default"](text=texts)]
  rows = [
    examples.convert_single_example(
      0,
      examples.InputExample("", text, None, LABELS[0]),
      classifier.label_type,
      12,
      classifier.tokenizer,
    )
    for text in TEXTS
  ]
  spec = examples.feature_spec(12, classifier.label_type)
  rows = [records.encode_row(examples.feature_row(r), spec) for r in rows]
  found.append(loaded.signatures["serve_examples"](tf.constant(rows)))
  for answers in found:
    probabilities = answers["probabilities"].numpy()
    np.testing.assert_allclose(probabilities, wanted, rtol=1e-4, atol=1e-5)
    labels = np.array(LABELS)[np.argmax(wanted, axis=1)]
    assert [n.decode() for n in answers["label"].numpy()] == labels.tolist()


# Prints the answers to texts, in a process that cannot import this project.
_ALONE = """
import importlib.util, json, sys
import tensorflow as tf
assert importlib.util.find_spec("modeling") is None
folder, texts = sys.argv[1], json.loads(sys.argv[2])
serve = tf.saved_model.load(folder).signatures["serving_default"]
answers = {k: v.numpy() for k, v in serve(text=tf.constant(texts)).items()}
assert "tensorflow_text" not in sys.modules
print(
  json.dumps(
    {
      "label": [label.decode() for label in answers["label"]],
      "probabilities": answers["probabilities"].tolist(),
    }
  )
)
"""


def test_a_saved_model_needs_tensorflow_alone(saved, tmp_path):
  classifier, folder = saved
  command = [sys.executable, "-I", "-c", _ALONE, folder, json.dumps(TEXTS)]
  done = subprocess.run(
    command, cwd=tmp_path, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  found, wanted = json.loads(done.stdout), classifier(TEXTS)
  assert found["label"] == [prediction.label for prediction in wanted]
  np.testing.assert_allclose(
    found["probabilities"],
    [list(prediction.probabilities.values()) for prediction in wanted],
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize("pooling", ["mean", "pooled"])
def test_vectors_are_those_of_the_extractor(load, tmp_path, pooling):
  load("classification", "head", False)
  extractor = FeatureExtractor(
    str(tmp_path), None, pooling, normalize=True, max_seq_length=10
  )
  graph = task_graph.VectorGraph(
    extractor, text_graph.GraphTokenizer(extractor.tokenizer)
  )
  np.testing.assert_allclose(
    graph.answer(tf.constant(TEXTS))["vector"],
    extractor.vectors(TEXTS),
    rtol=1e-4,
    atol=1e-5,
  )
