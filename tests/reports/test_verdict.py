"""Ranges, baselines and advice, by arithmetic."""

import numpy as np
import pytest

from web_page import Page

from bert.reports import training_page, verdict
from bert.tasks.classification import label_types, page as classification
from bert.tasks.classification.examples import InputExample
from bert.tasks.multiple_choice.data import Example
from bert.tasks.multiple_choice.task import ScoredChoices
from bert.tasks.squad import scores as squad_scoring
from bert.tasks.tagging.scores import TaggedSentence, TaggedSet


def shares(right, **fields):
  """A Sample of the share of right rows."""
  right = np.asarray(right, np.float64)
  return verdict.Sample(
    "accuracy", len(right), lambda rows: right[rows].mean(), **fields
  )


def test_the_range_of_a_share_is_that_of_its_standard_error():
  judged = verdict.judge(shares([1] * 320 + [0] * 80))
  deviation = (0.8 * 0.2 / 400) ** 0.5  # 0.02
  assert judged.value == 0.8
  assert judged.low == pytest.approx(0.8 - 1.96 * deviation, abs=0.006)
  assert judged.high == pytest.approx(0.8 + 1.96 * deviation, abs=0.006)
  assert judged == verdict.judge(judged.sample)
  assert str(judged).startswith("accuracy 0.800 (95 % range 0.7")
  assert str(judged).endswith(", 400 rows)")
  assert judged.advice == []


@pytest.mark.parametrize(("count", "is_wide"), [(10, True), (400, False)])
def test_rows_that_are_all_alike_have_an_exact_range(count, is_wide):
  judged = verdict.judge(shares([1] * count))
  # So low a share would give only right rows in 2.5 % of cases.
  assert judged.low == pytest.approx(0.025 ** (1 / count))
  assert judged.high == 1
  assert any("range is wide" in line for line in judged.advice) == is_wide
  wrong = verdict.judge(shares([0] * count))
  assert wrong.low == 0
  assert wrong.high == pytest.approx(1 - judged.low)


def test_few_rows_that_are_as_good_as_the_baseline():
  judged = verdict.judge(
    shares([1] * 7 + [0] * 3, baseline=("always 'a'", 0.7), advice=("Sleep.",))
  )
  assert str(judged).endswith(", 10 rows); always 'a' gives 0.70")
  baseline, rows, last = judged.advice
  assert "not clearly better than the baseline" in baseline
  assert "more than 10 rows" in rows
  assert last == "Sleep."


def classified(label_ids, predicted, labels, **results):
  predicted = np.asarray(predicted)
  probabilities = np.eye(len(labels))[predicted]
  return classification.ClassifiedSet(
    "dev set",
    label_types.Classification(labels),
    results or {"eval_accuracy": 0.5},
    label_ids,
    probabilities,
    np.zeros(len(predicted)),
    [InputExample(str(i), "x", None, "") for i in range(len(predicted))],
  )


def test_a_classifier_is_compared_with_the_usual_label():
  truth = [0] * 6 + [1] * 2 + [2] * 2
  sample = classified(
    truth, [0] * 6 + [1, 1] + [0, 0], ["a", "b", "c"]
  ).sample()
  assert (sample.metric, sample.count) == ("accuracy", 10)
  assert sample.baseline == ("always 'a'", 0.6)
  assert sample.score(np.arange(10)) == 0.8
  assert sample.score(np.array([8, 9, 9, 0])) == 0.25
  (advice,) = sample.advice
  assert advice.startswith("The label 'c' has an F1 of 0.00 (2 rows here): add")
  assert classified([0], [0], ["a", "b"], eval_loss=1.0).sample() is None
  f1 = classified([1, 1, 0], [1, 0, 0], ["0", "1"], eval_f1=0.0).sample()
  # Always "1": precision 2/3, recall 1.
  assert f1.baseline == ("always '1'", pytest.approx(0.8))


@pytest.mark.parametrize(
  ("step", "rare", "can_balance", "wanted"),
  [
    (30, 4, True, "train for more epochs; if that does not help, add rows"),
    (900, 1, True, "pass --class_weights=balanced; if that does not help, add"),
    (30, 1, True, "more epochs and pass --class_weights=balanced; if that"),
    (30, 1, False, "train for more epochs; if that does not help, add rows"),
    (900, 4, True, "add rows of it to the training set, and check"),
  ],
)
def test_what_costs_nothing_comes_first(step, rare, can_balance, wanted):
  truth = [0] * 6 + [1] * 6 + [2] * rare
  found = classified(truth, [0] * 6 + [1] * 6 + [0] * rare, ["a", "b", "c"])
  found.results = {"eval_accuracy": 0.5, "global_step": step}
  found.can_balance = can_balance
  (advice,) = found.sample().advice
  assert wanted in advice
  assert advice.count(".") == 2  # That of 0.00, and the last.


def test_several_labels_and_numbers():
  truth = np.array([[1, 0], [1, 0], [0, 0]])
  several = classification.ClassifiedSet(
    "dev set",
    label_types.Multilabel(["a", "b"]),
    {"eval_accuracy": 1.0},
    truth,
    truth.astype(float),
    np.zeros(3),
    [None] * 3,
  ).sample()
  assert several.baseline == (
    "predicting the usual labels",
    pytest.approx(2 / 3),
  )
  numbers = classification.ClassifiedSet(
    "dev set",
    label_types.Regression(),
    {"eval_pearson": 1.0},
    np.array([1.0, 2.0, 3.0]),
    np.array([[1.0], [2.0], [3.0]]),
    np.zeros(3),
    [None] * 3,
  ).sample()
  assert numbers.baseline is None
  assert numbers.score(np.arange(3)) == pytest.approx(1)


def test_sentences_of_labeled_words():
  def sentence(true, predicted):
    words = ["w"] * len(true.split())
    return TaggedSentence("1", words, true.split(), predicted.split(), 0.0)

  sentences = [
    sentence("B-X I-X O", "B-X I-X O"),
    sentence("B-Y O", "O O"),
    sentence("O B-X", "B-X B-X"),
  ]
  labels = ["O", "B-X", "I-X", "B-Y"]
  sample = TaggedSet("dev set", sentences, labels, "IOB2").sample()
  # 2 of 3 true entities are found, with 1 more: F1 is 2 * 2 / (3 + 3).
  assert sample.score(np.arange(3)) == pytest.approx(2 / 3)
  assert sample.score(np.array([1, 1])) == 0
  assert "type 'Y' have an F1 of 0.00 (1 here)" in sample.advice[0]
  short = TaggedSet("dev set", sentences, labels, "IOB2")
  short.results["global_step"] = 60
  (advice,) = short.sample().advice
  assert "(1 here): train for more epochs; if that does not help, add" in advice
  plain = TaggedSet("dev set", sentences, labels, None).sample()
  assert plain.score(np.arange(3)) == pytest.approx(5 / 7)
  assert plain.baseline == ("always 'O'", pytest.approx(3 / 7))


def test_questions_and_choices():
  golds, texts = {"1": ["red"], "2": []}, {"1": "red car", "2": "x"}
  sample = squad_scoring.sample(golds, texts, True)
  assert sample.score(np.array([0])) == pytest.approx(100 * 2 / 3)
  assert sample.score(np.array([1])) == 0
  assert sample.baseline == ("no answer", 50)
  assert squad_scoring.sample({"1": ["red"]}, texts_of(texts), False).count == 1
  answers = [
    (Example("1", "", "", ("a", "b"), 0), [0.9, 0.1], 0.1),
    (Example("2", "", "", ("a", "b"), 1), [0.9, 0.1], 0.1),
  ]
  choices = ScoredChoices("dev set", answers).sample()
  assert choices.score(np.arange(2)) == 0.5
  assert choices.baseline == ("a random choice", 0.5)


def texts_of(texts):
  return {"1": texts["1"]}


def test_the_page_begins_with_the_result(tmp_path):
  path = tmp_path / "report.html"
  evaluation = classified([0, 0, 1], [0, 0, 0], ["a", "b"], eval_accuracy=2 / 3)
  judged = verdict.judge(evaluation.sample())
  training_page.write(
    str(tmp_path),
    "A run",
    [evaluation],
    classification.section,
    {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "dev/eval_accuracy": [(2, 2 / 3)]},
    {},
    verdicts={"dev set": judged},
    warnings=["2 of the 3 <rows> are also in the training set"],
  )
  text = path.read_text("utf-8")
  order = (
    "3 rows); always &#x27;a&#x27; gives 0.67",
    "2 of the 3 &lt;rows&gt;",
    "What to try next</h2>",
    "Metrics</h2>",
    "Learning curves</h2>",
    "Flags and versions</h2>",
  )
  places = [text.index(part) for part in order]
  assert places == sorted(places)
  # A curve of one point is a row of a table.
  assert text.count("<figure") == 2  # The loss and the calibration.
  assert Page(text).tables["Short curves"][1:] == [
    ["Development: accuracy", "development", "2", "0.6667"]
  ]


def test_a_difference_has_the_range_of_the_rows_that_changed():
  # Of 400 rows, this model has 30 right that the other has wrong, and 10 the
  # other way round; 300 are right in both.
  own = [1] * 300 + [1] * 30 + [0] * 10 + [0] * 60
  other = [1] * 300 + [0] * 30 + [1] * 10 + [0] * 60
  found = verdict.compare(shares(own), shares(other))
  assert (found.value, found.other) == (330 / 400, 310 / 400)
  # The deviation of the mean of 30 times 1, 10 times -1 and 360 times 0.
  deviation = ((40 / 400 - 0.05**2) / 400) ** 0.5
  assert found.low == pytest.approx(0.05 - 1.96 * deviation, abs=0.004)
  assert found.high == pytest.approx(0.05 + 1.96 * deviation, abs=0.004)
  assert "difference +0.050 (95 % range +0.0" in str(found)
  same = verdict.compare(shares(own), shares(own))
  assert (same.low, same.high) == (0, 0)
