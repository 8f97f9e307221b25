"""This model and another one on the same rows, by arithmetic."""

import numpy as np
import pytest
import task_folders
from sklearn import metrics

import bert
from bert.contract.task import RowSet
from bert.reports import comparison as pages
from bert.scripts import comparison
from bert.tasks.classification import label_types
from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.seen_rows import NO_ROWS
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
  Prediction,
)
from web_page import Page

TEXTS = ["Jim Henson", "the north of", "made puppets", "the city", "is it"] * 3
LABELS = task_folders.TASKS["classification"].labels


@pytest.fixture(scope="module")
def load(tmp_path_factory, golden, goldens):
  """A function from a kind of labels to a model."""

  def load(kind):
    folder = tmp_path_factory.mktemp(kind)
    return bert.load(task_folders.write(folder, kind, golden, goldens))

  return load


def compare(other, label_type, metric, labels, logits, texts=TEXTS):
  """The Comparison of made-up answers with those of another model."""
  settings = ClassifierSettings(task_folders.LENGTH).with_label_type(label_type)
  task = ClassificationTask(settings, metric_names=[metric])
  examples = [
    InputExample(str(i), *(text if isinstance(text, tuple) else (text,)))
    for i, text in enumerate(texts)
  ]
  for example, label in zip(examples, labels, strict=True):
    example.label = label
  kept = comparison.Kept()
  for label, row in zip(labels, logits, strict=True):
    label = label_type.encode(label)
    kept.answers.append(Prediction(np.float32(row), label))
  rows = RowSet("dev", "", examples, len(examples))
  return comparison.compare_with(other, task, rows, kept)


def test_labels_are_compared_by_name(load):
  other = load("classification")
  # Other labels, in another order; the first is new.
  names = ["new", *LABELS[::-1][:2]]
  given = [names[i % 3] for i in range(len(TEXTS))]
  ours = np.eye(3)[[2] * len(TEXTS)]  # Always the last label.
  found = compare(
    other, label_types.Classification(names), "accuracy", given, ours
  )
  kept = [i for i, label in enumerate(given) if label != "new"]
  assert found.num_left_out == len(TEXTS) - len(kept) == 5
  assert found.difference.value == 0.5
  among = [label for label in LABELS if label in names]
  choices = [
    max(among, key=lambda n: answer["probabilities"][LABELS.index(n)])
    for answer in other(TEXTS)
  ]
  right = [choices[i] == given[i] for i in kept]
  assert found.difference.other == pytest.approx(np.mean(right))
  changed = [i for i in kept if choices[i] != names[2]]
  assert found.num_changed == len(changed)
  assert [(c.answer, c.other) for c in found.changed] == [
    (names[2], choices[i]) for i in changed
  ]
  assert {c.texts for c in found.changed} <= {(text,) for text in TEXTS}


def test_several_labels(load):
  other = load("multilabel")
  pairs = [(text, "Henson") for text in TEXTS]
  answers = other(pairs)
  names = [*answers[0]["labels"][::-1], "new"]
  given = ["|".join(names[i % 2 : 2]) for i in range(len(TEXTS))]
  given[0] += "|new"
  logits = np.full([len(TEXTS), len(names)], -1.0)
  found = compare(
    other, label_types.Multilabel(names), "f1_micro", given, logits, pairs
  )
  assert found.num_left_out == 1
  truth, theirs = (
    [[name in row.split("|") for name in names] for row in rows[1:]]
    for rows in (given, [answer["label"] for answer in answers])
  )
  wanted = metrics.f1_score(truth, theirs, average="micro", zero_division=0)
  assert found.difference.other == pytest.approx(wanted)
  assert found.difference.value == 0.0  # No label at all.


def test_numbers(load):
  other = load("regression")  # Of another scale.
  values = [answer["value"] for answer in other(TEXTS)]
  truth = [str(number) for number in np.arange(len(TEXTS)) ** 2]
  label_type = label_types.Regression(100.0, 50.0)
  logits = [[label_type.encode(number)] for number in truth]
  found = compare(other, label_type, "pearson", truth, logits)
  assert found.difference.value == pytest.approx(1)
  wanted = np.corrcoef(values, np.arange(len(TEXTS)) ** 2)[0, 1]
  assert found.difference.other == pytest.approx(wanted, abs=1e-5)
  assert found.num_changed == found.num_left_out == 0


def test_rows_that_the_other_model_was_trained_on_are_left_out(load):
  other = load("classification")
  examples = [InputExample("", text) for text in TEXTS[:2]]
  settings = other.task.settings
  other.task.settings = settings.with_seen(NO_ROWS.adding(trained_on=examples))
  given = [LABELS[0]] * len(TEXTS)
  logits = np.eye(len(LABELS))[[0] * len(TEXTS)]
  label_type = label_types.Classification(LABELS)
  found = compare(other, label_type, "accuracy", given, logits)
  assert found.num_left_out == 6  # Each text occurs three times.
  kept = [a["label"] == LABELS[0] for a in other(TEXTS[2:5])]
  assert found.difference.other == pytest.approx(np.mean(kept))


@pytest.mark.parametrize(
  ("kind", "label_type"),
  [
    ("classification", label_types.Classification(["x", "y"])),
    ("multilabel", label_types.Classification(LABELS)),
  ],
)
def test_models_of_other_labels_are_not_compared(load, kind, label_type):
  given = [label_type.labels[0]] * len(TEXTS)
  logits = np.zeros([len(TEXTS), len(label_type.labels)])
  assert not compare(load(kind), label_type, "accuracy", given, logits)


def test_the_section_escapes_texts():
  changed = [pages.Changed("row 1", ("<b>a</b>",), "<i>", "good")]
  scores = {"eval_f1": (0.625, 0.5)}
  found = pages.Comparison(
    "/tmp/<x>", 0, 20, scores, None, changed, 7, {"logits": 0.25}
  )
  page = Page(pages.section(found))
  scores, table = page.tables.values()
  assert scores[1] == ["F1", "0.62", "0.50"]
  assert table == [
    ["example", "this model", "the other model", "text"],
    ["row 1", "<i>", "good", "<b>a</b>"],
  ]
  text = "".join(page.text)
  assert "Comparison with /tmp/<x>" in text
  assert "7 answers differ; largest difference of outputs: logits 0.25" in text
