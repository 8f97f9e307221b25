"""Rows of labeled words: each word is labeled once, where most is around."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from bert import layers, variables
from bert.contract import batch_means
from bert.contract.ops import TensorOps
from bert.contract.task import RowSet
from bert.models import task_file
from bert.tasks.tagging import rows as tagged_rows
from bert.tasks.tagging.data import Sentence
from bert.tasks.tagging.task import TaggerSettings, TaggingTask

LABELS = {"O": 0, "X": 1}
WORDS = ["unaffable", "the", "reading", "\x00", "mountains", "of"]


def sentence(words, labels=None, document=0):
  return Sentence("f:1", list(words), labels, list(words), document)


def make_task(labels=("B-A", "O"), scheme="IOB2", tokenizer=None):
  return TaggingTask(TaggerSettings(128, labels, scheme), tokenizer)


def answer(task, sentence, **predictions):
  """The answer to a sentence from the predictions of its row."""
  predictions = {name: np.array(row) for name, row in predictions.items()}
  return task.answer(sentence, [predictions])


def rows_of(sentences, tokenizer, is_training=False, **settings):
  made = tagged_rows.make_rows(
    sentences, LABELS, tokenizer, TaggerSettings(**settings), is_training
  )
  return list(made)


def test_the_first_piece_has_the_label(tokenizer):
  words = ["the", "unaffable", "reading"]
  sizes = [len(tokenizer.tokenize(word)) for word in words]
  assert sizes[1] > 1
  labeled = sentence(words, ["O", "X", "O"])
  ((row,),) = rows_of([labeled], tokenizer, max_seq_length=20)
  pieces = [p for word in words for p in tokenizer.tokenize(word)]
  ids = tokenizer.convert_tokens_to_ids(["[CLS]", *pieces, "[SEP]"])
  padding = [0] * (20 - len(ids))
  marks = [0, 1, 2, *[0] * (sizes[1] - 1), 1, *[0] * (sizes[2] - 1), 0]
  assert row == {
    "input_ids": ids + padding,
    "input_mask": [1] * len(ids) + padding,
    "segment_ids": [0] * 20,
    "label_ids": marks + padding,
  }
  settings = {"max_seq_length": 20, "label_all_tokens": True}
  ((row,),) = rows_of([labeled], tokenizer, True, **settings)
  everywhere = [0, 1, *[2] * sizes[1], *[1] * sizes[2], 0]
  assert row["label_ids"] == everywhere + padding
  # Only training labels all pieces.
  ((row,),) = rows_of([labeled], tokenizer, **settings)
  assert row["label_ids"] == marks + padding


@given(
  st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from("OX")), min_size=1
  ),
  st.integers(3, 24),
)
def test_every_word_has_one_label_in_order(tokenizer, pairs, max_seq_length):
  words, labels = zip(*pairs, strict=True)
  (rows,) = rows_of(
    [sentence(words, list(labels))], tokenizer, max_seq_length=max_seq_length
  )
  marks = [mark for row in rows for mark in row["label_ids"] if mark]
  assert marks == [1 + LABELS[label] for label in labels]
  assert all(len(row["input_ids"]) == max_seq_length for row in rows)


def test_context_is_from_the_same_document_and_unlabeled(tokenizer):
  sentences = [
    sentence(["the", "of"], document=1),
    sentence(["of", "of"], document=2),
    sentence(["the"], document=2),
    sentence(["of"] * 9, document=2),
  ]
  rows = rows_of(sentences, tokenizer, max_seq_length=9, max_context=True)
  the, of = tokenizer.convert_tokens_to_ids(["the", "of"])
  ((first,), _, (third,), windows) = rows
  assert first["input_ids"][1:4] == [the, of, tokenizer.vocab["[SEP]"]]
  # Six pieces of context for "the": two before, and four of nine after.
  assert third["input_ids"][1:8] == [of, of, the, of, of, of, of]
  assert third["label_ids"] == [0, 0, 0, 1, 0, 0, 0, 0, 0]
  # A sentence that fills the row alone is read in windows.
  assert len(windows) == 2
  assert [sum(row["label_ids"]) for row in windows] == [4, 5]


def test_windows_are_joined_in_the_order_of_words():
  group = [
    {"label_ids": np.array([0, 1, 2, 0]), "labels": np.array([9, 1, 2, 9])},
    {"label_ids": np.array([0, 0, 1]), "labels": np.array([9, 9, 3])},
  ]
  assert tagged_rows.join_windows(group)["labels"].tolist() == [1, 2, 3]


def test_predictions_keep_the_columns(tmp_path, tokenizer):
  starts = ["-DOCSTART-", "-DOCSTART- -X- O"]
  sentences = [
    Sentence("f:1", ["Jim", "H"], None, ["Jim\tN", "H\tN"], 2, starts, "\t"),
    Sentence("f:4", ["of"], None, ["of\tIN"], 2),
  ]
  task = make_task(tokenizer=tokenizer)
  answers = (
    answer(
      task,
      sentences[0],
      label_ids=[0, 1, 1, 0],
      labels=[1, 0, 1, 1],
      probabilities=[0.1, 0.75, 0.5, 0.1],
    ),
    answer(
      task,
      sentences[1],
      label_ids=[0, 1],
      labels=[0, 1],
      probabilities=[0.1, 0.5],
    ),
  )
  rows = RowSet("test", "", sentences, 2)
  for name in ("test_predictions.txt", "entities.jsonl"):
    (tmp_path / name).write_text("old")
  task.write(str(tmp_path), rows, iter(answers))
  assert (tmp_path / "test_predictions.txt").read_text() == (
    "-DOCSTART-\tO\n\n-DOCSTART- -X- O\tO\n\n"
    "Jim\tN\tB-A\nH\tN\tO\n\nof\tIN\tO\n\n"
  )
  lines = (tmp_path / "entities.jsonl").read_text().splitlines()
  assert [json.loads(line) for line in lines] == [
    {
      "text": "Jim H",
      "entities": [
        {"text": "Jim", "type": "A", "start": 0, "end": 3, "probability": 0.75}
      ],
    },
    {"text": "of", "entities": []},
  ]


def test_the_loss_is_the_mean_over_words(tokenizer):
  sentences = [sentence(["a", "b"], ["O", "B-A"]), sentence(["c"], ["B-A"])]
  task = make_task(tokenizer=tokenizer)
  ones = np.ones(3)
  answers = (
    answer(
      task,
      sentences[0],
      label_ids=[0, 2, 1],
      labels=[1, 1, 0],
      losses=[9.0, 1.0, 2.0],
      probabilities=ones,
    ),
    answer(
      task,
      sentences[1],
      label_ids=[0, 1, 0],
      labels=[1, 1, 1],
      losses=[9.0, 3.0, 9.0],
      probabilities=ones,
    ),
  )
  rows = types.SimpleNamespace(examples=sentences, name="dev set")
  results = task.score(rows, iter(answers)).results
  assert results["eval_loss"] == 2.0
  assert results["eval_accuracy"] == pytest.approx(2 / 3)
  assert results["eval_precision"] == 1.0
  assert results["eval_recall"] == 0.5


def test_the_training_loss_is_the_mean_over_marked_words(monkeypatch):
  monkeypatch.setattr(layers, "dropout", lambda x, rate: x)
  normal = np.random.default_rng(0).normal
  vectors, weights = normal(size=[2, 5, 4]), normal(size=[3, 4])
  bias = np.array([1.0, 0.0, 2.0])
  # 0 marks no word, and n marks a word with label n - 1.
  marks = np.array([[0, 1, 3, 2, 0], [0, 0, 2, 0, 0]])
  bert = types.SimpleNamespace(
    get_sequence_output=lambda: tf.constant(vectors, tf.float32)
  )
  task = make_task(("A", "B", "C"), None)
  values = {"output_weights": weights, "output_bias": bias}
  with variables.VariableStore(initial_values=values):
    features = {"label_ids": tf.constant(marks, tf.int32)}
    outputs = task.head(TensorOps(), bert, features)
    loss = batch_means.mean(task.loss(outputs, features))
  words = marks > 0
  scores = special.log_softmax(vectors[words] @ weights.T + bias, axis=1)
  wanted = -scores[range(4), marks[words] - 1]
  # `weighted_mean` adds 1e-5 to the number of words.
  assert float(loss) == pytest.approx(wanted.sum() / (4 + 1e-5), rel=1e-6)


@pytest.mark.parametrize(
  ("labels", "scheme", "odd"),
  [
    (["B-A", "I-A", "O", "o"], None, "'o'"),
    (["0", "B-A", "B_A"], None, "'0', 'B_A'"),
    (["B-A", "I-A", "L-A", "O", "U-A"], None, "'L-A', 'U-A'"),
    (["B_A", "I_A", "O"], None, "'B_A', 'I_A'"),
    (["O", "b-a", "i-a"], None, "'b-a', 'i-a'"),
    (["DT", "I", "NN"], None, None),
    (["B-A", "O", "X"], "IOB2", None),  # Labels of no word, see `settings_of`.
  ],
)
def test_a_label_that_hides_the_scheme_is_named(caplog, labels, scheme, odd):
  task = make_task(tuple(labels), scheme)
  with caplog.at_level("WARNING", "absl"):
    task.log_data({})
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == bool(odd)
  assert all(f"no scheme has these labels: {odd}; " in m for m in messages)


def load(folder):
  return task_file.load(TaggingTask, str(folder))


def test_a_hugging_face_tagger_needs_no_files_of_ours(tmp_path):
  config = {
    "model_type": "bert",
    "architectures": ["BertForTokenClassification"],
    "id2label": {"0": "O", "1": "B-A"},
    "vocab_size": 9,
    "max_position_embeddings": 64,
  }
  (tmp_path / "config.json").write_text(json.dumps(config))
  assert load(tmp_path) == TaggerSettings(64, ("O", "B-A"), "IOB2")
  (tmp_path / "labels.json").write_text('["O", "B-B"]')
  assert load(tmp_path).labels == ("O", "B-A")
  settings = TaggerSettings(16, ("O", "B-B"), "IOB2")
  (tmp_path / "task.json").write_text(task_file.content("tagging", settings))
  assert load(tmp_path) == settings


def test_labels_of_no_word_do_not_hide_the_scheme(tmp_path):
  labels = ["O", "B-PER", "I-PER", "[PAD]", "[CLS]", "[SEP]", "X"]
  config = {
    "model_type": "bert",
    "architectures": ["BertForTokenClassification"],
    "id2label": dict(enumerate(labels)),
  }
  (tmp_path / "config.json").write_text(json.dumps(config))
  found = load(tmp_path)
  assert (found.labels, found.scheme) == (tuple(labels), "IOB2")
