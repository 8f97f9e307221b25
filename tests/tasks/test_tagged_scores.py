"""Scores of labeled words: equal to those of seqeval."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics as seqeval_metrics

from bert.tasks.tagging import (
  entities,
  page as tagging_report,
  scores as tagged_scores,
)

LABELS = ["O", *(f"{p}-{k}" for p in "IBES" for k in ("PER", "LOC"))]
SEQUENCES = st.lists(st.sampled_from(LABELS), min_size=1, max_size=12)


# seqeval takes means over no type.
@pytest.mark.filterwarnings("ignore:Mean of empty slice|invalid value")
@given(st.lists(st.tuples(SEQUENCES, st.randoms()), min_size=1, max_size=5))
def test_scores_are_those_of_seqeval(rows):
  truth = [labels for labels, _ in rows]
  predicted = [rng.choices(LABELS, k=len(labels)) for labels, rng in rows]
  scores = tagged_scores.entity_scores(
    [list(entities.entities(labels)) for labels in truth],
    [list(entities.entities(labels)) for labels in predicted],
  )
  report = seqeval_metrics.classification_report(
    truth, predicted, output_dict=True, zero_division=0
  )
  expected = {
    name: values
    for name, values in report.items()
    if name not in ("macro avg", "weighted avg")
  }
  expected[tagged_scores.ALL] = expected.pop("micro avg")
  assert scores.keys() == expected.keys()
  for name, values in expected.items():
    assert scores[name]["precision"] == pytest.approx(values["precision"])
    assert scores[name]["recall"] == pytest.approx(values["recall"])
    assert scores[name]["f1"] == pytest.approx(values["f1-score"])
    assert scores[name]["support"] == values["support"]


def test_a_type_may_be_called_all():
  true = [entities.Entity("all", 0, 1), entities.Entity("A", 1, 2)]
  scores = tagged_scores.entity_scores([true], [true[:1]])
  assert list(scores) == [tagged_scores.ALL, "A", "all (type)"]
  found = [(s["precision"], s["recall"], s["support"]) for s in scores.values()]
  assert found == [(1, 0.5, 2), (0, 0, 1), (1, 1, 1)]


def test_confusion_counts_entities_of_equal_words():
  truth, predicted = ["B-A O B-B I-B B-A"], ["B-B O B-B I-B O"]
  counts = tagged_scores.type_confusion(
    *(
      [list(entities.entities(row.split())) for row in rows]
      for rows in (truth, predicted)
    )
  )
  assert counts == {"A": {"B": 1, "": 1}, "B": {"B": 1}}


@pytest.mark.parametrize(("scheme", "wrong"), [("IOB1", 1), (None, 2)])
def test_sentences_with_errors_are_those_of_the_report(scheme, wrong):
  sentence = tagged_scores.TaggedSentence
  scored = tagged_scores.TaggedSet(
    "dev set",
    [
      sentence("f:1", ["a"], ["B-A"], ["I-A"], 1.5),  # The same entity.
      sentence("f:3", ["b"], ["B-A"], ["O"], 1.0),
      sentence("f:5", ["c"], ["O"], ["O"], 0.0),
    ],
    ["B-A", "I-A", "O"],
    scheme,
  )
  assert scored.counts == {"sentences": 3, "with errors": wrong}
  page = tagging_report.section("", scored)
  assert f"{wrong} of 3 sentences have an error" in page
