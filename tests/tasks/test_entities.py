"""Entities in labels: equal to what seqeval finds and scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics as seqeval_metrics
from seqeval.metrics.sequence_labeling import get_entities

from reports import tagging as tagging_report
from tasks import entities

LABELS = ["O", *(f"{p}-{k}" for p in "IBES" for k in ("PER", "LOC"))]
SEQUENCES = st.lists(st.sampled_from(LABELS), min_size=1, max_size=12)


@given(SEQUENCES)
def test_entities_are_those_of_seqeval(labels):
  found = [(e.type, e.start, e.end - 1) for e in entities.entities(labels)]
  assert found == get_entities(labels)


def test_labels_without_a_prefix_mark_no_entity():
  labels = ["[CLS]", "B-A", "X", "I-A", "I-A", "[SEP]", "-A", "B-", "O"]
  found = list(entities.entities(labels))
  assert found == [("A", 1, 2), ("A", 3, 5)]


# seqeval takes means over no type.
@pytest.mark.filterwarnings("ignore:Mean of empty slice|invalid value")
@given(st.lists(st.tuples(SEQUENCES, st.randoms()), min_size=1, max_size=5))
def test_scores_are_those_of_seqeval(rows):
  truth = [labels for labels, _ in rows]
  predicted = [rng.choices(LABELS, k=len(labels)) for labels, rng in rows]
  scores = entities.entity_scores(
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
  expected[entities.ALL] = expected.pop("micro avg")
  assert scores.keys() == expected.keys()
  for name, values in expected.items():
    assert scores[name]["precision"] == pytest.approx(values["precision"])
    assert scores[name]["recall"] == pytest.approx(values["recall"])
    assert scores[name]["f1"] == pytest.approx(values["f1-score"])
    assert scores[name]["support"] == values["support"]


def test_a_type_may_be_called_all():
  true = [entities.Entity("all", 0, 1), entities.Entity("A", 1, 2)]
  scores = entities.entity_scores([true], [true[:1]])
  assert list(scores) == [entities.ALL, "A", "all (type)"]
  found = [(s["precision"], s["recall"], s["support"]) for s in scores.values()]
  assert found == [(1, 0.5, 2), (0, 0, 1), (1, 1, 1)]


@pytest.mark.parametrize(
  ("labels", "scheme"),
  [
    ("B-A I-A O B-B B-B", "IOB2"),
    ("I-A I-A O I-B B-B", "IOB1"),
    ("I-A O I-B", "IOB1"),
    ("B-A E-A O S-B", "IOBES"),
    ("B-A O B-B", "IOB2"),
    ("DT NN VB", None),
    ("O O", None),
    ("B- O", None),
    ("X-A O", None),
  ],
)
def test_the_scheme_of_labels_is_recognized(labels, scheme):
  assert entities.find_scheme([labels.split()]) == scheme


def test_confusion_counts_entities_of_equal_words():
  truth, predicted = ["B-A O B-B I-B B-A"], ["B-B O B-B I-B O"]
  counts = entities.type_confusion(
    *(
      [list(entities.entities(row.split())) for row in rows]
      for rows in (truth, predicted)
    )
  )
  assert counts == {"A": {"B": 1, "": 1}, "B": {"B": 1}}


def test_a_found_entity_has_the_probability_of_all_its_words():
  text, spans = "Jim Henson spoke", [(0, 3), (4, 10), (11, 16)]
  labels = ["B-PER", "I-PER", "O"]
  found = entities.found_entities(text, spans, labels, [0.5, 0.5, 1], "IOB2")
  assert found == [("Jim Henson", "PER", 0, 10, 0.25)]


def test_without_a_scheme_each_word_is_found_with_its_label():
  found = entities.found_entities("a b", [(0, 1), (2, 3)], "XY", [1, 0.5], None)
  assert found == [("a", "X", 0, 1, 1), ("b", "Y", 2, 3, 0.5)]


@pytest.mark.parametrize(("scheme", "wrong"), [("IOB1", 1), (None, 2)])
def test_sentences_with_errors_are_those_of_the_report(scheme, wrong):
  sentence = entities.TaggedSentence
  scored = entities.TaggedSet(
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


def test_results_of_a_set():
  sentence = entities.TaggedSentence
  scored = entities.TaggedSet(
    "dev set",
    [
      sentence("f:1", ["a", "b"], ["B-A", "O"], ["B-A", "B-A"], 1.5),
      sentence("f:4", ["c"], ["O"], ["O"], 0.0),
    ],
    ["B-A", "O"],
    "IOB2",
  )
  assert scored.results == {
    "eval_accuracy": pytest.approx(2 / 3),
    "eval_loss": 0.5,
    "loss": 0.5,
    "eval_precision": 0.5,
    "eval_recall": 1.0,
    "eval_f1": pytest.approx(2 / 3),
  }
