"""Classifiers and vectors as graphs: answers, signatures, serialized rows."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from golden_classifier import LABEL_TYPES, LABELS, golden_values

import bert
import families
from bert.data import records
from bert.export import task_graph
from bert.models import checkpoints, task_file
from bert.tasks.classification import label_types
from bert.tasks.classification.task import ClassifierSettings

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
    settings = ClassifierSettings(12, long_text=long_text, is_pair=is_pair)
    settings = settings.with_label_type(label_type)
    files = {
      "bert_config.json": golden.config.to_json_string(),
      "vocab.txt": (goldens / "vocab.txt").read_bytes(),
      task_file.NAME: task_file.content("classification", settings),
    }
    values = golden_values(golden, label_type.num_outputs)
    checkpoints.write_release(str(folder), values, files)
    return bert.load(folder)

  return make


@pytest.fixture
def load(tmp_path, golden, goldens):
  """Makes the folder that a training leaves; returns the model."""
  return _loader(tmp_path, golden, goldens)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, golden, goldens):
  """A classifier, and the folder of its SavedModel."""
  folder = tmp_path_factory.mktemp("classifier")
  load = _loader(folder, golden, goldens)
  classifier = load("classification", "head", False)
  graph = task_graph.make_graph(classifier, reads_text=True)
  tf.saved_model.save(graph, str(folder / "saved"), graph.serving())
  return classifier, str(folder / "saved")


@pytest.mark.parametrize(
  ("kind", "long_text", "is_pair"),
  [
    ("classification", "head", True),
    ("classification", "mean_windows", True),
    ("multilabel", "head_tail", False),
    ("times", "head", False),
  ],
)
def test_answers_are_the_classifiers(load, kind, long_text, is_pair):
  classifier = load(kind, long_text, is_pair)
  texts = PAIRS if is_pair else [(text,) for text in TEXTS]
  wanted = classifier(texts)
  columns = map(tf.constant, zip(*texts, strict=True))
  graph = task_graph.make_graph(classifier, reads_text=True)
  found = {k: v.numpy() for k, v in graph(*columns).items()}
  if not classifier.labels:
    assert found.keys() == {"value"}
    mean = classifier.task.settings.mean
    values = [answer["value"] - mean for answer in wanted]
    assert np.ptp(values) > 0.01
    np.testing.assert_allclose(found["value"] - mean, values, 1e-4, 1e-5)
    return
  assert [label.decode() for label in found["label"]] == [
    answer["label"] for answer in wanted
  ]
  assert found["labels"].tolist() == [[n.encode() for n in LABELS]] * len(texts)
  np.testing.assert_allclose(
    found["probabilities"],
    [answer["probabilities"] for answer in wanted],
    rtol=1e-4,
    atol=1e-5,
  )


def test_a_saved_model_reads_texts_and_rows(saved):
  classifier, folder = saved
  loaded = tf.saved_model.load(folder)
  wanted = np.array([a["probabilities"] for a in classifier(TEXTS)])
  texts = tf.constant(TEXTS)
  found = [loaded(texts), loaded.signatures["serving_default"](text=texts)]
  spec = classifier.task.feature_spec(False)
  groups = classifier.task.features(map(classifier.task.example, TEXTS), False)
  rows = [records.encode_row(row, spec) for (row,) in groups]
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
  assert found["label"] == [answer["label"] for answer in wanted]
  np.testing.assert_allclose(
    found["probabilities"],
    [answer["probabilities"] for answer in wanted],
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification"])
def test_other_tokenizers_than_wordpiece_stay_outside(head, caplog):
  model = bert.load(families.path("roberta", head))
  graph = task_graph.make_graph(model, reads_text=True)
  assert "reads rows, not text" in caplog.text
  ids = tf.constant([[0, 5, 6, 2]])
  ones = tf.ones_like(ids)
  (signature,) = graph.serving().values()
  found = signature(input_ids=ids, input_mask=ones, segment_ids=ones - 1)
  assert found.keys() == model.task.output_axes().keys()
