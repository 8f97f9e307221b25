"""The graph of a model for multiple choice answers as its Chooser."""

import numpy as np
import pytest
import task_folders
import tensorflow as tf

from bert.errors import UserError
from bert.export import chooser_graph, text_graph
from bert.data import records
from bert.tasks import multiple_choice
from bert.tasks.chooser import Chooser
from bert.tasks.choices import Example

GROUPS = [
  ("He opens the door.", ["He goes in.", "It is red.", "the the"], ""),
  ("The Game" * 9, ["in the " * 30, "of"], "What was it?"),
  ("The Game", ["the man", "of"], "What was it? " * 30),
  ("The Game" * 9, ["in the " * 30, "of"], "What was it? " * 30),
  ("", ["one", "Two!"], "It was"),
]
# A row without choices has no answer.
NOTHING = ("He opens the door.", [], "")


@pytest.fixture(scope="module")
def chooser(tmp_path_factory, golden, goldens):
  folder = tmp_path_factory.mktemp("chooser")
  return Chooser(task_folders.write(folder, "multiple choice", golden, goldens))


def test_choices_come_in_any_iterable(chooser):
  context, choices, question = GROUPS[0]
  wanted = chooser(context, choices, question)
  assert chooser(context, iter(choices), question) == wanted
  assert chooser(context, dict.fromkeys(choices), question) == wanted


@pytest.mark.parametrize(
  ("group", "problem"),
  [
    (("He", "either or", ""), "pass the choices as a list"),
    (("He", 5, ""), "pass the choices as a list"),
    (("He", ["only"], ""), "pass two choices or more"),
    (("He", ["a", 5], ""), "as str"),
    (("He", ["a", "b"], None), "as str"),
    (("He", ["a", "b"]), "pass groups of context, choices and question"),
    ("He!", "pass groups of context, choices and question"),
  ],
)
def test_wrong_choices_are_refused(chooser, group, problem):
  with pytest.raises(UserError, match=problem):
    chooser.compare([group])


@pytest.fixture(scope="module")
def saved(tmp_path_factory, chooser):
  tokenizer = text_graph.GraphTokenizer(chooser.tokenizer)
  graph = chooser_graph.ChooserGraph(chooser, tokenizer)
  folder = str(tmp_path_factory.mktemp("saved"))
  tf.saved_model.save(graph, folder, graph.serving())
  return tf.saved_model.load(folder).signatures


def assert_choices(found, wanted):
  """Compares outputs with lists of probabilities, one for each row."""
  choice, probabilities = found["choice"], found["probabilities"].numpy()
  for row, known in enumerate(wanted):
    np.testing.assert_allclose(
      probabilities[row, : len(known)], known, rtol=1e-4
    )
    assert not probabilities[row, len(known) :].any()
    assert choice[row] == np.argmax(known)


def test_answers_are_the_choosers(chooser, saved):
  contexts, choices, questions = zip(*GROUPS, NOTHING, strict=True)
  found = saved["serving_default"](
    context=tf.constant(contexts),
    question=tf.constant(questions),
    choices=tf.ragged.constant(choices).to_tensor(),
  )
  wanted = chooser.compare(GROUPS)
  assert np.ptp(wanted[0]) > 0.01
  assert_choices(found, wanted)
  assert found["choice"][-1] == -1
  assert not found["probabilities"][-1].numpy().any()


def test_groups_may_come_from_a_generator(chooser):
  assert chooser.compare(iter(GROUPS)) == chooser.compare(GROUPS)
  assert chooser.compare(iter([])) == []


@pytest.mark.parametrize("count", [0, 2])
def test_no_row_has_choices(saved, count):
  """Not even empty strings."""
  texts = tf.constant(["He opens the door."] * count, tf.string)
  found = saved["serving_default"](
    context=texts, question=texts, choices=tf.zeros([count, 0], tf.string)
  )
  assert found["choice"].numpy().tolist() == [-1] * count
  assert found["probabilities"].shape == [count, 0]


def test_rows_of_a_training_are_answered(chooser, saved):
  groups = [("a", ["in", "of the"], ""), ("The game", ["was", "is"], "It")]
  length = chooser.max_seq_length
  spec = multiple_choice.feature_spec(2, length)
  rows = [
    multiple_choice.make_row(
      Example("", context, question, choices), chooser.tokenizer, length
    )
    for context, choices, question in groups
  ]
  encoded = [
    records.encode_row({name: row[name] for name in spec}, spec) for row in rows
  ]
  found = saved["serve_examples"](examples=tf.constant(encoded))
  assert_choices(found, chooser.compare(groups))
