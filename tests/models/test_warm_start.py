"""Which outputs of an initial model a training keeps."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import modeling
from bert import layers, variables
from bert.models import checkpoints, task_file, warm_start
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)
from bert.tasks.multiple_choice.task import MultipleChoiceTask
from bert.tasks.tagging.task import TaggerSettings, TaggingTask

CONFIG = modeling.BertConfig(vocab_size=5, hidden_size=4)


def classifier(*labels, kind="classification"):
  return ClassificationTask(ClassifierSettings(kind=kind, labels=labels))


def tagger(*labels):
  return TaggingTask(TaggerSettings(labels=labels))


def write_model(folder, task):
  """A model of a task: row i of its output layer has the value i + 1."""
  shapes = task.head_shapes(CONFIG)
  weights = {
    name: np.ones(shape, np.float32)
    * np.arange(1, shape[0] + 1).reshape([-1] + [1] * (len(shape) - 1))
    for name, shape in shapes.items()
  }
  checkpoints.write_checkpoint(f"{folder}/bert_model.ckpt", weights)
  content = task_file.content(task.kind, task.settings)
  (folder / "task.json").write_text(content)


def start(folder, task):
  """The first weights of the output layer of a training, [C, H], and bias."""
  rows = warm_start.kept_rows(task, CONFIG, f"{folder}/bert_model.ckpt")
  shapes = task.head_shapes(CONFIG)
  with variables.VariableStore(seed=3) as store:
    checkpoints.initialize_from(str(folder), shapes, shapes, rows)
    layers.output_layer(tf.zeros([1, 4]), shapes["output_bias"][0])
  checkpoints.log_initialization(store)
  return store["output_weights"].numpy(), store["output_bias"].numpy()


def check(folder, initial, task, rows):
  """The rows are those of the initial model, or fresh where they are None."""
  write_model(folder, initial)
  weights, bias = start(folder, task)
  with variables.VariableStore(seed=3) as store:
    layers.output_layer(tf.zeros([1, 4]), len(rows))
  fresh = store["output_weights"].numpy()
  assert np.all(abs(fresh) < 0.05)
  for index, row in enumerate(rows):
    wanted = fresh[index] if row is None else np.full([4], row)
    np.testing.assert_array_equal(weights[index], wanted)
    assert bias[index] == (row or 0)


@pytest.mark.parametrize("make", [classifier, tagger])
@pytest.mark.parametrize(
  ("before", "after", "rows", "message"),
  [
    ("abc", "abc", [1, 2, 3], "keeps the outputs of {} for all labels"),
    ("abc", "cab", [3, 1, 2], "keeps the outputs of {} for all labels"),
    ("abc", "ca", [3, 1], "keeps the outputs of {} for all labels"),
    (
      "abc",
      "bde",
      [2, None, None],
      "keeps the outputs of {} for 'b' and starts fresh for 'd', 'e'",
    ),
    (
      "ab",
      "abcd",
      [1, 2, None, None],
      "keeps the outputs of {} for 'a', 'b' and starts fresh for 'c', 'd'",
    ),
    ("abc", "def", [None] * 3, "starts fresh, as {} has other labels"),
  ],
)
def test_outputs_of_equal_labels_are_kept(
  tmp_path, caplog, make, before, after, rows, message
):
  with caplog.at_level(logging.INFO, "absl"):
    check(tmp_path, make(*before), make(*after), rows)
  assert f"The output layer {message.format(tmp_path)}" in caplog.text


@pytest.mark.parametrize("make", [classifier, tagger])
def test_labels_in_another_case_are_warned_of(tmp_path, caplog, make):
  check(tmp_path, make("bad", "good"), make("Bad", "GOOD", "new"), [None] * 3)
  message = f"only in case from those of {tmp_path}: 'Bad', 'GOOD'; write"
  assert message in caplog.text
  caplog.clear()
  check(tmp_path, make("a", "A"), make("a", "A", "b"), [1, 2, None])
  assert "only in case" not in caplog.text


def test_several_labels_are_compared_as_well(tmp_path):
  after = classifier("b", "a", kind="multilabel")
  check(tmp_path, classifier("a", "b"), after, [2, 1])


def test_numbers_are_no_labels(tmp_path):
  number = ClassificationTask(ClassifierSettings(kind="regression"))
  one = classifier("a", kind="multilabel")
  check(tmp_path, number, number, [1])
  check(tmp_path, number, one, [None])
  check(tmp_path, one, number, [None])


def test_the_output_of_another_task_starts_fresh(tmp_path, caplog):
  number = ClassificationTask(ClassifierSettings(kind="regression"))
  with caplog.at_level(logging.INFO, "absl"):
    check(tmp_path, MultipleChoiceTask(), number, [None])
    check(tmp_path, number, MultipleChoiceTask(), [None])
    check(tmp_path, tagger("a", "b"), classifier("a", "b"), [None, None])
  assert f"{tmp_path} holds a model of another task (tagging)" in caplog.text


def test_unknown_labels_are_warned_of(tmp_path, caplog):
  write_model(tmp_path, classifier("a", "b"))
  (tmp_path / "task.json").unlink()
  weights, _ = start(tmp_path, classifier("c", "d"))
  np.testing.assert_array_equal(weights[:, 0], [1, 2])
  assert "it is used as if they were 'c', 'd'" in caplog.text
  caplog.clear()
  start(tmp_path, classifier("c", "d", "e"))
  assert "it is used as if" not in caplog.text


def test_nothing_is_kept_without_an_initial_model():
  assert warm_start.kept_rows(classifier("a", "b"), CONFIG, None) == {}
