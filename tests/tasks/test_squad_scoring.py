"""Scores of SQuAD's answers: definitions and arithmetic."""

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from bert.tasks.squad import (
  data as squad,
  decoding as squad_decoding,
  scores as squad_scoring,
)
from bert.tasks.squad.data import ReadingSettings

SMALL = ReadingSettings(max_seq_length=32, doc_stride=8, max_query_length=8)

# Words of one piece each.
CONTEXT = "The north city and\n\nthe north time"


@pytest.fixture
def asked(tokenizer):
  """A function from logits of words, and from truths, to (example, answer)."""

  def ask(starts, ends, version_2=False, context=CONTEXT, **truth):
    """`starts` and `ends`: dict from a word's place, or -1, to its logit."""
    paragraph = squad.Paragraph.of(context, "Colors")
    example = squad.SquadExample(
      "id", "which ?", paragraph.doc_tokens, paragraph=paragraph, **truth
    )
    (window,) = squad.WindowMaker(tokenizer, SMALL)(example, False)
    position = {w: p for p, w in window.token_to_orig_map.items()} | {-1: 0}
    logits = np.full([2, 32], -9.0, np.float32)
    for row, given in zip(logits, (starts, ends), strict=True):
      for word, logit in given.items():
        row[position[word]] = logit
    result = squad_decoding.RawResult(window.unique_id, *logits)
    settings = squad_decoding.DecodingSettings(
      n_best_size=4, version_2_with_negative=version_2
    )
    answer = squad_decoding.answer_question(
      example, [window], [result], settings
    )
    return example, answer

  return ask


def page_question(asked, text=None):
  """The question of the page, with another prediction."""
  example, answer = asked
  if text is not None:
    answer = answer._replace(text=text)
  is_v2 = answer.null_odds is not None
  return squad_scoring.answered_question(example, answer, is_v2)


class TestAnsweredQuestion:
  def test_span_of_an_answer_over_two_lines(self, asked):
    question = page_question(asked({3: 5}, {4: 5}, answers=("x",)))
    assert question.prediction == "and the"
    assert CONTEXT[slice(*question.prediction_span)] == "and\n\nthe"

  def test_probability_of_correct_candidates(self, asked):
    # Two starts and two ends.
    found = asked({1: 3, 5: 2}, {1: 3, 6: 1}, answers=("the North!", "none"))
    sums = {c.text: c.start_logit + c.end_logit for c in found[1].nbest}
    weights = np.exp(list(sums.values()))
    expected = np.exp(sums["north"]) / weights.sum()
    question = page_question(found)
    assert question.loss == pytest.approx(-math.log(expected))
    assert question.probability == pytest.approx(expected)
    assert (question.exact, question.f1) == (1, 1)
    assert question.golds == [("the North!", None), ("none", None)]
    assert (question.title, question.context) == ("Colors", CONTEXT)

  def test_golds_have_the_offsets_of_the_file(self, asked):
    second = CONTEXT.rindex("north")
    texts, starts = ("north", "north", "time"), (second, second, None)
    found = asked({1: 3}, {1: 3}, answers=texts, answer_starts=starts)
    assert page_question(found).golds == [("north", second), ("time", None)]

  @pytest.mark.parametrize(
    ("version_2", "golds", "prediction", "exact", "f1"),
    [
      # In 1.1, an answer without words has F1 0.
      (False, ("the",), "a", 1, 0),
      (False, ("the", "North"), "north", 1, 1),
      # In 2.0, it is ignored beside one that has words.
      (True, ("the north", "The"), "", 0, 0),
      (True, ("The",), "", 1, 1),
      (True, (), "", 1, 1),
      (True, (), "north", 0, 0),
    ],
  )
  def test_the_page_scores_as_the_whole_set(
    self, asked, version_2, golds, prediction, exact, f1
  ):
    found = asked({1: 3, -1: 0}, {1: 3, -1: 0}, version_2, answers=golds)
    question = page_question(found, prediction)
    assert (question.exact, question.f1) == (exact, f1)
    run = {"id": golds}, {"id": prediction}
    if version_2:
      results = squad_scoring.evaluate_v2(*run, {"id": found[1].null_odds})
    else:
      results = squad_scoring.evaluate_v1(*run)
    key = "exact" if version_2 else "exact_match"
    assert (results[key], results["f1"]) == (100 * exact, 100 * f1)

  def test_nothing_right_among_the_candidates(self, asked):
    question = page_question(asked({1: 3}, {1: 3}, answers=("green",)))
    assert (question.loss, question.exact) == (math.inf, 0)

  def test_no_answer_is_right(self, asked):
    found = asked({1: 3, -1: 1}, {1: 3, -1: 2}, True, is_impossible=True)
    _, answer = found
    assert answer.null_odds == pytest.approx(-3)
    texts = [answer.at_threshold(t).text for t in (-4, -3.5, -3, 0)]
    assert texts == ["", "", "north", "north"]
    null = next(c for c in answer.nbest if not c.text)
    question = page_question(found, "")
    assert question.loss == pytest.approx(-math.log(null.probability))
    assert (question.golds, question.exact) == ([], 1)
    assert question.prediction_span is None
    assert question.null_odds == pytest.approx(-3)


def test_what_can_be_scored():
  unknown, known, null = (
    squad.SquadExample("id", "which ?", ["north"], **truth)
    for truth in ({}, {"answers": ("north",)}, {"is_impossible": True})
  )
  for examples, is_v2, expected in (
    ([known], False, True),
    ([known, unknown], False, False),
    ([unknown, null], True, False),
    ([null, null], True, True),
    ([known, null], True, True),
    ([unknown], True, False),
  ):
    assert squad_scoring.has_answers(examples, is_v2) == expected


class TestTextScores:
  @pytest.mark.parametrize(
    ("text", "expected"),
    [
      ("The  U.S.-based,\tan apple ", "usbased apple"),
      ("a.an.the", "aanthe"),  # Punctuation goes before the articles do.
      ("theatre Ann an", "theatre ann"),
      ("“The” É", "“ ” é"),  # Only ASCII's punctuation goes.
      ("the", ""),
      ("$5 + _x_", "5 x"),
    ],
  )
  def test_normalized(self, text, expected):
    assert squad_scoring.normalize_answer(text) == expected

  @pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
      ("the Denver Broncos", "Denver Broncos!", 1.0),
      # Precision 2/3, recall 2/2.
      ("Denver Broncos team", "The Denver Broncos", 0.8),
      ("b b", "b", 2 * (1 / 2) * 1 / (1 / 2 + 1)),
      ("b c", "c b", 1.0),
      ("x", "y", 0.0),
      ("", "y", 0.0),
      ("y", "the", 0.0),
      ("a", "the", 1.0),
      ("", "", 1.0),
    ],
  )
  def test_f1(self, prediction, answer, expected):
    assert squad_scoring.f1(prediction, answer) == pytest.approx(expected)
    assert squad_scoring.f1(answer, prediction) == pytest.approx(expected)

  def test_exact_match(self):
    assert squad_scoring.exact_match("The cat.", "cat") == 1.0
    assert squad_scoring.exact_match("b c", "c b") == 0.0


class TestVersion1:
  def test_by_hand(self):
    answers = {
      "1": ["Denver Broncos", "The Broncos"],
      "2": ["Santa Clara, California", "Santa Clara"],
      "3": ["gold"],
      "4": ["the"],
    }
    predictions = {
      "1": "Broncos",  # Exact for the second reference.
      "2": "Clara California",  # Against three words 4/5, against two 1/2.
      "3": "golden",
      "4": "a",  # Both are nothing: equal, but no word is found.
    }
    assert squad_scoring.evaluate_v1(answers, predictions) == {
      "exact_match": pytest.approx(100 * 2 / 4),
      "f1": pytest.approx(100 * (1 + 4 / 5) / 4),
    }


ANSWERS = {"a": ["red car", "The"], "b": ["dog"], "c": [], "d": []}
TEXTS = {"a": "red", "b": "dog", "c": "x", "d": ""}
ODDS = {"a": -2.0, "b": 2.0, "c": 0.0, "d": 5.0}


class TestVersion2:
  def test_by_hand(self):
    scores = squad_scoring.evaluate_v2(ANSWERS, TEXTS, ODDS)
    # The reference "The" has no words and is dropped: F1 of a is 2/3.
    assert scores == {
      "exact": 50.0,
      "f1": pytest.approx(100 * (2 / 3 + 1 + 0 + 1) / 4),
      "total": 4,
      "HasAns_exact": 50.0,
      "HasAns_f1": pytest.approx(100 * (2 / 3 + 1) / 2),
      "HasAns_total": 2,
      "NoAns_exact": 50.0,
      "NoAns_f1": 50.0,
      "NoAns_total": 2,
      # Answering nothing: 2 of 4; a (+0), c (-1), b (+1) never exceed it.
      "best_exact": 50.0,
      "best_exact_thresh": 0.0,
      # a brings 2/3; then c takes 1 and b gives it back.
      "best_f1": pytest.approx(100 * (2 + 2 / 3) / 4),
      "best_f1_thresh": -2.0,
    }
    assert list(scores)[:3] == ["exact", "f1", "total"]

  def test_only_one_kind(self):
    scores = squad_scoring.evaluate_v2({"a": ["x"]}, {"a": "x"}, {"a": 0.0})
    assert list(scores)[:6] == [
      *("exact", "f1", "total"),
      *("HasAns_exact", "HasAns_f1", "HasAns_total"),
    ]
    assert "NoAns_total" not in scores


WORDS = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3).map(" ".join)


@st.composite
def runs(draw, odds):
  """Reference answers, texts, all different odds."""
  names = [str(n) for n in range(draw(st.integers(1, 6)))]
  numbers = draw(
    st.lists(odds, min_size=len(names), max_size=len(names), unique=True)
  )
  answers = {name: draw(st.lists(WORDS, max_size=3)) for name in names}
  texts = {name: draw(WORDS | st.just("")) for name in names}
  return answers, texts, dict(zip(names, numbers, strict=True))


class TestVersion2Properties:
  @hypothesis.given(runs(st.integers(-3, 3).map(float)), st.integers(1, 3))
  def test_best_threshold(self, run, copies):
    answers, texts, odds = (
      {f"{name}-{n}": part[name] for name in part for n in range(copies)}
      for part in run
    )
    for name in texts:  # Questions of equal odds with different texts.
      texts[name] += " y" * name.endswith("-1")

    def f1_at(threshold):
      decided = {
        name: "" if odds[name] > threshold else text
        for name, text in texts.items()
      }
      return squad_scoring.evaluate_v2(answers, decided, odds)["f1"]

    best = squad_scoring.best_threshold(answers, texts, odds)
    tried = [f1_at(threshold) for threshold in (-10, *odds.values())]
    assert f1_at(best) == pytest.approx(max(tried))
    assert best <= max(odds.values())


class TestBestThreshold:
  def test_nothing_is_worth_an_answer(self):
    threshold = squad_scoring.best_threshold(
      {"a": [], "b": []}, {"a": "x", "b": "x"}, {"a": -1.5, "b": 0.0}
    )
    assert threshold == pytest.approx(-1.5)
    assert threshold < -1.5

  def test_questions_without_text_do_not_move_it(self):
    answers = {"a": ["x"], "b": ["y"], "c": []}
    odds = {"a": 1.0, "b": squad_decoding.NULL_FOR_SURE, "c": 3.0}
    texts = {"a": "x", "b": "", "c": "z"}
    assert squad_scoring.best_threshold(answers, texts, odds) == 1.0
