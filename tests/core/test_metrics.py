"""Metrics, against arithmetic by hand."""

import json
import math

import numpy as np
import pytest

from bert import metrics

# Label 1: 3 rows have it and 2 of them are found; 1 row is taken for it.
LABELS = np.array([1, 1, 1, 0, 0, 0, 0, 0])
GUESSES = np.array([1, 1, 0, 1, 0, 0, 0, 0])

# Two labels for each row. First column: tp 1, fp 1, fn 0, tn 1; second: tp 1,
# fp 0, fn 1, tn 1.
LABEL_SETS = np.array([[1, 1], [0, 1], [0, 0]])
GUESSED_SETS = np.array([[1, 1], [1, 0], [0, 0]])


NOTHING = np.zeros([3, 2], np.int64)
NUMBERS = np.array([0.5, 3.75, 5.0], np.float32)
CORRELATIONS = ("matthews", "pearson", "spearman")


@pytest.mark.parametrize(
  ("name", "labels", "guesses", "expected"),
  [
    ("accuracy", LABELS, GUESSES, 6 / 8),
    ("f1", LABELS, GUESSES, 2 / 3),  # Precision and recall are both 2/3.
    ("f1_micro", LABELS, GUESSES, 6 / 8),
    ("f1_macro", LABELS, GUESSES, (2 / 3 + 4 / 5) / 2),
    ("matthews", LABELS, GUESSES, (2 * 4 - 1 * 1) / math.sqrt(3 * 3 * 5 * 5)),
    ("mse", LABELS, GUESSES, 2 / 8),
    ("accuracy", LABEL_SETS, GUESSED_SETS, 2 / 3),
    # A row with one right label of two is wrong.
    ("accuracy", LABEL_SETS, [[1, 0], [0, 1], [1, 0]], 1 / 3),
    ("f1_micro", LABEL_SETS, GUESSED_SETS, 2 * 2 / (2 * 2 + 1 + 1)),
    # 2 / (2 + 1) in both columns.
    ("f1_macro", LABEL_SETS, GUESSED_SETS, 2 / 3),
    ("f1", NOTHING[:, 0], NOTHING[:, 0], 0),
    ("f1_micro", NOTHING, NOTHING, 0),
    ("f1_macro", NOTHING, NOTHING, 0),
    # Deviations -1, 0, 1 and -4/3, -1/3, 5/3.
    ("pearson", [1, 2, 3], [1, 2, 4], 3 / math.sqrt(2 * 42 / 9)),
    ("spearman", [1.0, 2.0, 3.0], [0.1, 0.2, 40.0], 1),
    # 1 - 6 (1 + 1) / (3 (9 - 1)).
    ("spearman", [1, 2, 3], [2, 1, 3], 1 / 2),
    ("mse", NUMBERS, NUMBERS + np.float32(0.5), 0.25),
    ("pearson", NUMBERS, 2 * NUMBERS, 1),
    # A constant has no correlation, and what is no number none that is known.
    *((name, [0, 1, 1], [1, 1, 1], 0) for name in CORRELATIONS),
    *((name, [1, 1, 1], [0, 1, 1], 0) for name in CORRELATIONS),
    *((name, [0, 1, 1], np.full(3, np.nan), np.nan) for name in CORRELATIONS),
  ],
)
def test_a_metric(name, labels, guesses, expected):
  value = metrics.METRICS[name](labels, guesses)
  assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)
  assert isinstance(value, float)


class TestLabelReport:
  def test_one_label_each(self):
    report = metrics.label_report([0, 0, 1, 1, 1], [0, 1, 1, 1, 0], ["a", 7])
    assert report["confusion_matrix"] == [[1, 1], [1, 2]]
    assert report["labels"]["a"] == {
      "precision": 1 / 2,
      "recall": 1 / 2,
      "f1": 1 / 2,
      "support": 2,
    }
    assert report["labels"]["7"] == pytest.approx(
      {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "support": 3}
    )
    assert json.loads(json.dumps(report)) == report

  def test_sets_of_labels(self):
    report = metrics.label_report(LABEL_SETS, GUESSED_SETS, ["x", "y"])
    assert report["confusion_matrices"] == {
      "x": [[1, 1], [0, 1]],
      "y": [[1, 0], [1, 1]],
    }
    assert report["labels"]["x"] == pytest.approx(
      {"precision": 1 / 2, "recall": 1, "f1": 2 / 3, "support": 1}
    )
    assert report["labels"]["y"] == pytest.approx(
      {"precision": 1, "recall": 1 / 2, "f1": 2 / 3, "support": 2}
    )
    assert json.loads(json.dumps(report)) == report


class TestCalibration:
  def test_by_hand(self):
    result = metrics.calibration(
      [0.6, 0.7, 0.9, 1.0], [True, False, True, True], bins=4
    )
    assert result["edges"] == [0, 0.25, 0.5, 0.75, 1]
    assert result["count"] == [0, 0, 2, 2]
    assert result["accuracy"] == [None, None, 0.5, 1]
    assert result["mean_confidence"][:2] == [None, None]
    assert result["mean_confidence"][2:] == pytest.approx([0.65, 0.95])
    # Half of the rows are off by 0.15, the other half by 0.05.
    assert result["expected_calibration_error"] == pytest.approx(0.1)
    assert json.loads(json.dumps(result)) == result

  def test_float32_a_little_above_1(self):
    above = np.nextafter(np.float32(1), np.float32(2))
    result = metrics.calibration(np.array([above]), np.array([True]))
    assert result["count"] == [0] * 9 + [1]


class TestSummarize:
  def test_one_seed_has_no_deviation(self):
    _, row = metrics.summarize({"data": {4: {"loss": 2.0}}})
    assert row == ["data", "loss", "2.0000", "", "2.0000", "2.0000", "4", "1"]

  def test_small_errors_keep_their_digits(self):
    results = {1: {"eval_mse": 1.25e-8}, 2: {"eval_mse": 3.75e-8}}
    _, row = metrics.summarize({"data": results})
    # The deviation is 1.25e-8 sqrt(2).
    shown = ["2.500e-08", "1.768e-08", "1.250e-08", "3.750e-08", "1", "2"]
    assert row == ["data", "eval_mse", *shown]


def test_losses_and_errors_are_better_if_lower():
  names = ["loss", "eval_loss", *metrics.METRICS, "eval_mse_mm"]
  found = list(filter(metrics.is_lower_better, names))
  assert found == ["loss", "eval_loss", "mse", "eval_mse_mm"]
