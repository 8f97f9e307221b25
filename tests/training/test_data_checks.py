"""bert/training/data_checks.py: warnings about rows made by hand."""

import functools
import logging
import types

import numpy as np
import pytest

from bert.contract.task import RowSet, Task
from bert.data import records
from bert.engine import inputs
from bert.training import data_checks

LENGTH = 4
SEQUENCES = records.sequence_spec(LENGTH)
TOKENIZER = types.SimpleNamespace(unk_token="[UNK]", vocab={"[UNK]": 1})


def row_set(ids, labels=None, feature=None, split="train", **changes):
  """A RowSet of rows with these word piece ids, and these labels."""
  feature = feature or records.Feature()
  spec = {**SEQUENCES, "label_ids": feature} if labels else SEQUENCES
  padded = [row + [0] * (LENGTH - len(row)) for row in ids]
  rows = inputs.Rows(
    [
      {
        "input_ids": row,
        "input_mask": np.array(row) > 0,
        "segment_ids": [0] * LENGTH,
        "label_ids": label,
      }
      for row, label in zip(padded, labels or [0] * len(ids), strict=True)
    ],
    spec,
  )
  return RowSet(split, "", ids, len(ids), read=lambda: rows, **changes)


def task(**attributes):
  """A task with these attributes."""
  return type("Some", (Task,), attributes)(tokenizer=TOKENIZER)


@pytest.fixture
def warnings(caplog):
  """A function that returns the warnings about rows."""

  def log(rows, **attributes):
    caplog.clear()
    with caplog.at_level(logging.INFO, "absl"):
      data_checks.log_data_checks(rows, task(**attributes))
    # What to do follows a semicolon.
    return [r.getMessage().partition(";")[0] for r in caplog.records]

  return log


WORDS = [[3, 3, 3]] * 100


@pytest.mark.parametrize(
  ("rows", "expected"),
  [
    (functools.partial(row_set, WORDS), None),
    # 3 and 4 of 300 pieces.
    (functools.partial(row_set, [[1, 1, 1], *WORDS[1:]]), None),
    (
      functools.partial(row_set, [[1, 1, 1], [1, 3, 3], *WORDS[2:]]),
      "1.3% of the word pieces are unknown",
    ),
    (functools.partial(row_set, WORDS, [0, 1] * 50), None),
    (
      functools.partial(row_set, WORDS, [0] * 9 + [1] * 91),
      "91.0% of the rows have the label 1",
    ),
    (functools.partial(row_set, WORDS, [0] * 10 + [1] * 90), None),
    (functools.partial(row_set, [[3] * 4] * 5 + WORDS[5:]), None),
    (
      functools.partial(row_set, [[3] * 4] * 6 + WORDS[6:]),
      "6.0% of the rows have the full --max_seq_length",
    ),
  ],
)
def test_what_is_warned_of(warnings, rows, expected):
  found = [f"train set: {expected}"] if expected else []
  assert warnings(rows()) == found


def test_only_rows_that_lose_text_are_warned_of(warnings):
  long = row_set([[3] * 4] * 100)
  assert len(warnings(long)) == 1
  windows = np.array([2] * 50)
  assert warnings(row_set([[3] * 4] * 100, rows_per_example=windows)) == []
  assert warnings(long, truncates=False) == []


def test_skewed_labels_of_words(warnings):
  """1 + the label of a word, and 0 at the positions of no word."""
  feature = records.sequence_feature(LENGTH)
  even = [[0, 1, 2, 0]] * 100
  assert warnings(row_set(WORDS, even, feature)) == []
  skewed = [[0, 1, 2, 0]] * 5 + [[0, 2, 2, 0]] * 95
  assert warnings(row_set(WORDS, skewed, feature)) == [
    "train set: 97.5% of the words have the label 1"
  ]
  assert warnings(row_set(WORDS, skewed, feature), labels=["O", "NN"]) == [
    "train set: 97.5% of the words have the label 'NN'"
  ]
  names = ["B-A", "O"]  # Few words are in entities.
  assert warnings(row_set(WORDS, skewed, feature), labels=names) == []


def test_a_skewed_label_of_rows_has_a_name(warnings):
  rows = row_set(WORDS, [0] * 9 + [1] * 91)
  assert warnings(rows, labels=["bad", "O"]) == [
    "train set: 91.0% of the rows have the label 'O'"
  ]


def test_skewed_labels_of_which_a_row_may_have_several(warnings):
  feature = records.Feature((3,))
  assert warnings(row_set(WORDS, [[1, 0, 1], [0, 0, 1]] * 50, feature)) == [
    "train set: 100.0% of the rows have the label 2"
  ]
  assert warnings(row_set(WORDS, [[1, 0, 0], [0, 0, 1]] * 50, feature)) == []


def test_examples_in_both_sets(caplog):
  """Their texts are compared, whatever labels and white space they have."""
  texts = [["a b", "a", "b"], ["a  b ", "c", "b", "A"], ["c"]]
  train, dev, other = (
    RowSet(split, "", [{"text": t, "label": n} for n, t in enumerate(of)], 0)
    for split, of in zip(("train", "dev", "dev"), texts, strict=True)
  )
  named = task(name="Some")
  with caplog.at_level(logging.INFO, "absl"):
    data_checks.log_overlap(named, train, dev)
    data_checks.log_overlap(named, train, other)
  assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
    (
      "WARNING",
      "Some: 2 of the 4 development examples (50.0 %) are also in the training "
      "set, starting with example 0; the metrics are too optimistic",
    ),
    (
      "INFO",
      "Some: 0 of the 1 development example (0.0 %) are also in the training "
      "set",
    ),
  ]


def test_labels_of_a_regression_are_no_classes(warnings):
  number = records.Feature(dtype="float32")
  assert warnings(row_set(WORDS, [0.5] * 100, number)) == []
