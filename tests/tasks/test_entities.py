"""Entities in labels: equal to what seqeval finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from bert.tasks.tagging import entities

# Entities may have no type; in seqeval, it is then "_".
LABELS = ["O", *"IBES", *(f"{p}-{k}" for p in "IBES" for k in ("PER", "LOC"))]
SEQUENCES = st.lists(st.sampled_from(LABELS), min_size=1, max_size=12)


@given(SEQUENCES)
def test_entities_are_those_of_seqeval(labels):
  found = [(e.type, e.start, e.end - 1) for e in entities.entities(labels)]
  assert found == get_entities(labels)


def test_labels_without_a_prefix_mark_no_entity():
  labels = ["[CLS]", "B-A", "X", "I-A", "I-A", "[SEP]", "-A", "B-", "O"]
  found = list(entities.entities(labels))
  assert found == [("A", 1, 2), ("A", 3, 5)]


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
    ("B I O B B", "IOB2"),
    ("I I O I B", "IOB1"),
    ("B E O S", "IOBES"),
    ("B I B-A I-A", "IOB2"),
    ("I NN S", None),
    ("X-A O", None),
  ],
)
def test_the_scheme_of_labels_is_recognized(labels, scheme):
  assert entities.find_scheme([labels.split()]) == scheme


def test_a_found_entity_has_the_probability_of_all_its_words():
  text, spans = "Jim Henson spoke", [(0, 3), (4, 10), (11, 16)]
  labels = ["B-PER", "I-PER", "O"]
  found = entities.found_entities(text, spans, labels, [0.5, 0.5, 1], "IOB2")
  assert found == [("Jim Henson", "PER", 0, 10, 0.25)]


def test_without_a_scheme_each_word_is_found_with_its_label():
  found = entities.found_entities("a b", [(0, 1), (2, 3)], "XY", [1, 0.5], None)
  assert found == [("a", "X", 0, 1, 1), ("b", "Y", 2, 3, 0.5)]
