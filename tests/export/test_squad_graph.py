"""The graph's answers to questions are those of the Reader."""

import json
import re

import numpy as np
import pytest
import task_folders
import tensorflow as tf

from bert.export import load_task, served_model, squad_graph, text_graph
from bert.tasks import squad_model
from bert.tasks.squad import ReadingSettings
from bert.tasks.squad_decoding import DecodingSettings
from bert.tasks.squad_reader import Reader

# Dropped characters, characters that become two, and words without pieces.
TEXTS = [
  (
    "who was it ?",
    "Many  years\tbefore\u00a0this \x00 was\nÉtats-Unis ﬁn (1895-1943).",
  ),
  ("Σ what", "the \u0301 ΑΣ city \ufffd of\u202fthe 中国 İstanbul ¼ was X" * 3),
  ("how many", "1 , 2 , 3 , 4 , 5 , 6 ! " * 8),
  ("what is", "word"),
]


NO_WORDS = [("what ?", ""), ("what ?", " \n")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory, golden, goldens):
  """A Reader of the golden model, with answers that tell texts apart."""
  folder = tmp_path_factory.mktemp("squad")
  task_folders.write(folder, "squad", golden, goldens)
  return Reader(str(folder), settings=ReadingSettings(48, 16, 12))


@pytest.fixture(scope="module")
def questions(goldens):
  """Pairs of question and context."""
  content = json.loads((goldens / "squad_v2.json").read_text("utf-8"))
  return TEXTS + [
    (question["question"], paragraph["context"])
    for article in content["data"]
    for paragraph in article["paragraphs"]
    for question in paragraph["qas"][:2]
  ]


@pytest.mark.parametrize(
  ("is_v2", "stride"), [(False, 16), (True, 16), (False, 40)]
)
def test_answers_are_the_readers(reader, questions, is_v2, stride, monkeypatch):
  # Beside a long question, a window is shorter than 40 pieces.
  settings = ReadingSettings(48, stride, 12)
  monkeypatch.setattr(reader, "settings", settings)
  reader.decoding = DecodingSettings(version_2_with_negative=is_v2)
  wanted = reader.answer_all(questions)
  if is_v2:
    threshold = float(np.median([answer.null_odds for answer in wanted]))
    wanted = [answer.at_threshold(threshold) for answer in wanted]
    reader.decoding = DecodingSettings(20, 30, True, True, threshold)
  graph = squad_graph.ReaderGraph(
    reader, text_graph.GraphTokenizer(reader.tokenizer)
  )
  asked = [*questions, *NO_WORDS]
  texts = [list(column) for column in zip(*asked, strict=True)]
  found = {
    n: v.numpy() for n, v in graph.answer(*map(tf.constant, texts)).items()
  }
  answers = [text.decode() for text in found["answer"]]
  assert answers == [answer.text for answer in wanted] + [""] * len(NO_WORDS)
  assert len(set(answers)) > 5
  assert ("" in answers[: len(wanted)]) == is_v2
  np.testing.assert_allclose(
    found["probability"][: len(wanted)],
    [dict(c[:2] for c in a.nbest)[a.text] for a in wanted],
    rtol=1e-3,
  )
  offsets = zip(found["start"], found["end"], strict=True)
  for (_, context), answer, (start, end) in zip(
    asked, answers, offsets, strict=True
  ):
    words = re.split("[ \t\r\n\u202f]+", context[start:end])
    assert " ".join(words) == answer
    assert (start == end == -1) == (answer == "")
  nothing = tf.constant([], tf.string)
  assert graph.answer(nothing, nothing)["answer"].shape == [0]


@pytest.mark.parametrize(
  "contexts", [["     the city was old", "the"], ["  the", ""]]
)
def test_a_short_text_beside_one_that_begins_with_blanks(reader, contexts):
  """Its offsets are none of the other's, however few spans it has."""
  reader.decoding = DecodingSettings()
  graph = squad_graph.ReaderGraph(
    reader, text_graph.GraphTokenizer(reader.tokenizer)
  )
  asked = tf.constant(["what ?"] * len(contexts))
  found = graph.answer(asked, tf.constant(contexts))["answer"].numpy()
  wanted = [
    reader.answer("what ?", context).text if context else ""
    for context in contexts
  ]
  assert [text.decode() for text in found] == wanted


def test_the_stored_threshold_decides(reader, tmp_path, golden, goldens):
  """In Python, in the graph and in the server; far beyond any odds, here."""
  folder = task_folders.write(tmp_path, "squad", golden, goldens)
  (tmp_path / "squad.json").write_text(
    json.dumps({**vars(reader.settings), "version_2_with_negative": True})
  )
  question, context = TEXTS[0]
  for threshold, has_answer in ((-1e9, False), (1e9, True)):
    squad_model.write_threshold(folder, threshold)
    graph = load_task.load_task(
      folder, text_graph.GraphTokenizer(reader.tokenizer)
    )
    (text,) = graph.answer(tf.constant([question]), tf.constant([context]))[
      "answer"
    ].numpy()
    served = served_model.load(folder).answer([(question, context)])[0]
    assert bool(text) == bool(served["answer"]) == has_answer
    assert bool(Reader(folder).answer(question, context).text) == has_answer
    given = Reader(folder, decoding={"null_score_diff_threshold": 1e9})
    assert given.answer(question, context).text
