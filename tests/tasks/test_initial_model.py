"""What the report says of the model that a training starts from."""

import functools

import shutil

import numpy as np
import pytest
import task_folders
from sklearn import metrics as sklearn_metrics

import bert
from bert.tasks.classification import initial_model, label_types
from bert.tasks.classification.examples import InputExample

TEXTS = ["Jim Henson", "the north of", "made puppets", "the city", "is it"] * 3
LABELS = task_folders.TASKS["classification"].labels


@pytest.fixture(scope="module")
def folders(tmp_path_factory, golden, goldens):
  """The folder of a model of each kind of labels."""
  found = {}
  for kind in ("classification", "multilabel", "regression"):
    folder = tmp_path_factory.mktemp(kind)
    found[kind] = task_folders.write(folder, kind, golden, goldens)
  return found


def test_labels_are_compared_by_name(folders):
  folder = folders["classification"]
  predicted = [answer["label"] for answer in bert.load(folder)(TEXTS)]
  # Other labels, in another order; the first is new.
  label_type = label_types.Classification(["new", *LABELS[::-1][:2]])
  truth = np.arange(len(TEXTS)) % 3
  examples = [InputExample(str(i), text) for i, text in enumerate(TEXTS)]
  ours = np.full(len(TEXTS), 2)
  ours[1] = 0  # An old label is taken for the new one.
  names = ["accuracy", "f1_macro"]
  found, num_new = initial_model.scores(
    folder, label_type, names, examples, truth, ours
  )
  given = [label_type.labels[index] for index in truth]
  # Rows with the new label are left out; of the others, ours has one half.
  pairs = [p for p in zip(given, predicted, strict=True) if p[0] != "new"]
  columns = [*zip(*pairs, strict=True)]
  wanted = sklearn_metrics.accuracy_score(*columns)
  assert found["eval_accuracy"] == (pytest.approx(wanted), 0.5)
  score = functools.partial(
    sklearn_metrics.f1_score, average="macro", zero_division=0
  )
  kept = truth > 0
  wanted = score(*columns), score(truth[kept], ours[kept], labels=[1, 2])
  assert found["eval_f1_macro"] == pytest.approx(wanted)
  assert num_new == len(TEXTS) // 3
  label_type = label_types.Classification(["new", *LABELS])
  new = np.zeros(len(TEXTS), int)
  nothing = initial_model.scores(folder, label_type, [], examples, new, new)
  assert nothing == ({}, 0)


def test_several_labels(folders):
  folder = folders["multilabel"]
  pairs = [(text, "Henson") for text in TEXTS]
  answers = bert.load(folder)(pairs)
  labels = [*answers[0]["labels"][::-1], "new"]
  label_type = label_types.Multilabel(labels)
  truth = np.array([[i % 2, 1, 0][: len(labels)] for i in range(len(TEXTS))])
  truth = np.resize(truth, [len(TEXTS), len(labels)])
  predicted = [
    [name in answer["label"].split("|") for name in labels]
    for answer in answers
  ]
  examples = [InputExample("", *pair) for pair in pairs]
  truth[:, -1] = np.arange(len(truth)) == 0
  found, num_new = initial_model.scores(
    folder, label_type, ["f1_micro"], examples, truth, truth
  )
  wanted = sklearn_metrics.f1_score(truth[1:], predicted[1:], average="micro")
  assert found == {"eval_f1_micro": (pytest.approx(wanted), 1.0)}
  assert num_new == 1


def test_numbers(folders):
  folder = folders["regression"]
  values = [answer["value"] for answer in bert.load(folder)(TEXTS)]
  truth = np.arange(len(TEXTS), dtype=np.float64)
  examples = [InputExample("", text) for text in TEXTS]
  found, _ = initial_model.scores(
    folder, label_types.Regression(), ["mse"], examples, truth, truth
  )
  wanted = np.mean(np.square(truth - values))
  assert found == {"eval_mse": (pytest.approx(wanted, rel=1e-5), 0.0)}


def test_models_of_other_labels_are_not_compared(folders):
  for kind, label_type in (
    ("classification", label_types.Classification(["x", "y"])),
    ("classification", label_types.Regression()),
    ("regression", label_types.Classification(LABELS)),
    ("multilabel", label_types.Classification(LABELS)),
  ):
    found = initial_model.scores(folders[kind], label_type, [], [], None, None)
    assert found == ({}, 0)


def test_only_the_model_of_a_folder_is_compared(folders, tmp_path):
  folder = folders["classification"]
  prefix = f"{folder}/bert_model.ckpt"
  assert initial_model.find_folder(folder) == folder
  assert initial_model.find_folder(prefix) == folder
  assert initial_model.find_folder(None) is None
  for name in ("index", "data-00000-of-00001"):
    shutil.copy(f"{prefix}.{name}", f"{folder}/model.ckpt-3.{name}")
    shutil.copy(f"{prefix}.{name}", f"{tmp_path}/bert_model.ckpt.{name}")
  assert initial_model.find_folder(f"{folder}/model.ckpt-3") is None
  assert initial_model.find_folder(str(tmp_path)) is None  # No configuration.
