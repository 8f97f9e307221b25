"""Label types, against arithmetic by hand, scikit-learn and SciPy."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

from bert.tasks.classification import label_types

THREE = ["red", "green", "blue"]
# Within what `log_loss` takes as it is: it clips at float64's epsilon.
LOGITS = hnp.arrays(
  np.float32,
  st.tuples(st.integers(1, 6), st.just(3)),
  elements=st.floats(-15, 15, width=32),
)

# exp(logit) is 1, 2, 5 and 4, 4, 8.
TWO_ROWS = np.log([[1.0, 2.0, 5.0], [4.0, 4.0, 8.0]]).astype(np.float32)


class TestClassification:
  label_type = label_types.Classification(THREE)

  @pytest.mark.parametrize("label", ["", "Red", "red|blue", None])
  def test_unknown_label(self, label):
    with pytest.raises(
      ValueError, match="is not one of 'red', 'green', 'blue'"
    ):
      self.label_type.encode(label)

  @pytest.mark.parametrize(
    ("labels", "label", "problem"),
    [
      ([0, 1], "1", "label '1' is not one of 0, 1; did you mean 1"),
      (["0", "1"], 1, "label 1 is not one of '0', '1'; did you mean '1'"),
    ],
  )
  def test_numbers_are_not_texts(self, labels, label, problem):
    with pytest.raises(ValueError, match=problem):
      label_types.Classification(labels).encode(label)

  @pytest.mark.parametrize("weights", [None, [3.0, 1.0, 0.5]])
  def test_ids_that_are_no_labels_have_no_loss(self, weights):
    logits = tf.constant(TWO_ROWS[[0, 1, 0]])
    with tf.GradientTape() as tape:
      tape.watch(logits)
      loss = self.label_type.per_example_loss(logits, [-1, 0, 3], weights)
    factor = weights[0] if weights else 1
    np.testing.assert_allclose(loss, [0, factor * math.log(4), 0], rtol=1e-6)
    # The probabilities less 1 for the label.
    slope = factor * np.array([1 / 4 - 1, 1 / 4, 1 / 2])
    np.testing.assert_allclose(
      tape.gradient(loss, logits), [[0] * 3, slope, [0] * 3], rtol=1e-6
    )

  @given(LOGITS, st.integers(0, 2))
  def test_as_scikit_learn(self, logits, label):
    label_ids = (np.arange(len(logits)) + label) % 3
    exact = special.softmax(logits.astype(np.float64), axis=-1)
    np.testing.assert_allclose(
      self.label_type.probabilities(logits), exact, rtol=1e-5, atol=1e-7
    )
    loss = np.mean(self.label_type.per_example_loss(logits, label_ids))
    expected = metrics.log_loss(label_ids, exact, labels=range(3))
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-6)

  @given(st.lists(st.integers(0, 2)).map(lambda rows: [0, 1, 2, *rows]))
  def test_balanced_weights_are_scikit_learns(self, label_ids):
    expected = compute_class_weight(
      "balanced", classes=np.arange(3), y=label_ids
    )
    np.testing.assert_allclose(
      self.label_type.balanced_weights(np.array(label_ids)), expected
    )

  def test_a_label_that_no_row_has(self):
    weights = self.label_type.balanced_weights(np.array([0, 0, 1]))
    assert weights == [3 / 6, 3 / 3, 3 / 3]


class TestMultilabel:
  label_type = label_types.Multilabel(THREE)

  @pytest.mark.parametrize(
    ("label", "encoded", "answer"),
    [
      ("", [0, 0, 0], ""),
      ("green", [0, 1, 0], "green"),
      ("blue|red", [1, 0, 1], "red|blue"),
      (" blue | red |", [1, 0, 1], "red|blue"),
      ("blue|blue", [0, 0, 1], "blue"),
    ],
  )
  def test_encode_and_answer(self, label, encoded, answer):
    assert self.label_type.encode(label) == encoded
    assert self.label_type.answer(encoded) == answer
    assert self.label_type.encode(answer) == encoded

  def test_unknown_label(self):
    with pytest.raises(ValueError, match="label 'x' is not one of 'red', 'gr"):
      self.label_type.encode("red|x")

  def test_weights_are_of_labels_that_are_given(self):
    loss = self.label_type.per_example_loss(
      TWO_ROWS[:1], [[0, 1, 1]], [100.0, 3.0, 0.5]
    )
    expected = (math.log(2) + 3 * math.log(3 / 2) + 0.5 * math.log(6 / 5)) / 3
    np.testing.assert_allclose(loss, [expected], rtol=1e-6)

  @given(LOGITS)
  def test_loss_is_scikit_learns(self, logits):
    label_ids = (np.arange(logits.size).reshape(logits.shape) % 2).astype(int)
    exact = special.expit(logits.astype(np.float64))
    np.testing.assert_allclose(
      self.label_type.per_example_loss(logits, label_ids),
      [
        metrics.log_loss(ids, row, labels=[0, 1])
        for ids, row in zip(label_ids, exact, strict=True)
      ],
      rtol=1e-5,
      atol=1e-6,
    )

  def test_predictions_are_more_probable_than_not(self):
    probabilities = np.array([[0.5, 0.5000001, 0.1], [0.9, 0.0, 1.0]])
    predictions = self.label_type.predictions(probabilities)
    assert predictions.tolist() == [[0, 1, 0], [1, 0, 1]]

  def test_balanced_weights_by_hand(self):
    label_ids = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]])
    # Of a label that all have or none has, there is nothing to balance.
    assert self.label_type.balanced_weights(label_ids) == [3.0, 1.0, 1.0]

  @given(st.lists(st.integers(0, 1)).map(lambda rows: [0, 1, *rows]))
  def test_balanced_weights_are_scikit_learns(self, column):
    without, with_it = compute_class_weight(
      "balanced", classes=np.arange(2), y=column
    )
    (weight,) = label_types.Multilabel(["a"]).balanced_weights(
      np.array(column)[:, np.newaxis]
    )
    assert weight == pytest.approx(with_it / without)


class TestRegression:
  label_type = label_types.Regression()

  @pytest.mark.parametrize(
    ("label", "number"), [("2.5", 2.5), ("-1e3", -1000.0), (" 4 ", 4.0)]
  )
  def test_encode(self, label, number):
    assert self.label_type.encode(label) == number

  @pytest.mark.parametrize("label", ["", "nan", "inf", "-inf", "two", None])
  def test_no_number(self, label):
    with pytest.raises(ValueError, match=f"label {label!r} is not a number"):
      self.label_type.encode(label)

  @pytest.mark.parametrize(
    ("mean", "deviation", "encoded", "number", "text"),
    [
      (1.7e9, 5.0, 0.6, 1_700_000_003, "1700000003"),
      (1.7e9, 5.0, 0.65, 1_700_000_003.25, "1700000003.25"),
      (100_000, 0.05, 1.4, 100_000.07, "100000.07"),
      (0, 1e6, 1.5, 1.5e6, "1500000"),
      (3e9, 1e9, -3.0, 0.0, "0"),
    ],
  )
  def test_numbers_far_from_zero(self, mean, deviation, encoded, number, text):
    label_type = label_types.Regression(mean, deviation)
    logits = np.array([[encoded]], np.float32)
    (found,) = label_type.predictions(label_type.probabilities(logits))
    assert found == pytest.approx(number, abs=deviation * 1e-6)
    assert label_type.answer(found) == text
    assert label_type.truth(logits[:, 0]) == found

  @pytest.mark.parametrize("deviation", [1e-200, 1e200])
  def test_any_deviation_keeps_numbers(self, deviation):
    label_type = label_types.Regression(0.0, deviation)
    numbers = label_type.probabilities(np.array([[1.5]], np.float32))
    assert numbers / deviation == pytest.approx(1.5)

  @pytest.mark.parametrize(
    ("number", "text"),
    [
      (np.float32(2 / 3), "0.666667"),
      (np.float32(1.5e-7), "1.5e-07"),
      (np.float32(12345.6), "12345.6"),
      (np.float32(0.1), "0.1"),
      (np.float32(1234567), "1234567"),
      (np.float32(np.inf), "inf"),
    ],
  )
  def test_answers_have_six_digits_at_any_scale(self, number, text):
    assert self.label_type.answer(number) == text


class TestLabelTypes:
  def test_a_list_of_labels_is_a_classification(self):
    several = label_types.Multilabel(THREE)
    assert label_types.as_label_type(several) is several
    label_type = label_types.as_label_type(("no", "yes"))
    assert isinstance(label_type, label_types.Classification)
    assert label_type.encode("yes") == 1

  @pytest.mark.parametrize(
    ("text", "labels"),
    [("", []), ("|", []), ("a", ["a"]), (" a |b c||", ["a", "b c"])],
  )
  def test_split_labels(self, text, labels):
    assert label_types.split_labels(text) == labels
