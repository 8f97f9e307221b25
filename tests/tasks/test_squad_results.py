"""What becomes of SQuAD's answers: their places, probabilities and scores."""

import math

import numpy as np
import pytest

import tokenization
from tasks import squad, squad_decoding, squad_results
from tasks.squad_model import ReadingSettings

SMALL = ReadingSettings(max_seq_length=32, doc_stride=8, max_query_length=8)

# Words of one piece each.
CONTEXT = "The north city and\n\nthe north time"


@pytest.fixture
def asked(goldens):
  """A function from logits of words, and from truths, to an Answered."""

  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))

  def ask(starts, ends, version_2=False, context=CONTEXT, **truth):
    """`starts` and `ends`: dict from a word's place, or -1, to its logit."""
    paragraph = squad.Paragraph.of(context, "Colours")
    example = squad.SquadExample(
      "id", "which ?", paragraph.doc_tokens, paragraph=paragraph, **truth
    )
    windows = list(SMALL.features([example], tokenizer, False))
    (window,) = windows
    position = {w: p for p, w in window.token_to_orig_map.items()} | {-1: 0}
    logits = np.full([2, 32], -9.0, np.float32)
    for row, given in zip(logits, (starts, ends), strict=True):
      for word, logit in given.items():
        row[position[word]] = logit
    result = squad_decoding.RawResult(window.unique_id, *logits)
    settings = squad_decoding.DecodingSettings(
      n_best_size=4, version_2_with_negative=version_2
    )
    (answered,) = squad_results.answer_questions(
      [example], windows, [result], settings
    )
    return answered

  return ask


class TestAnswers:
  @pytest.mark.parametrize(("word", "place"), [(1, (4, 9)), (5, (24, 29))])
  def test_the_place_of_a_word_that_comes_twice(self, asked, word, place):
    answered = asked({word: 5}, {word: 5})
    assert answered.answer.best_text == "north"
    assert answered.place == place
    assert CONTEXT[slice(*place)] == "north"

  def test_the_place_of_an_answer_over_two_lines(self, asked):
    answered = asked({3: 5}, {4: 5})
    assert answered.answer.best_text == "and the"
    assert CONTEXT[slice(*answered.place)] == "and\n\nthe"

  def test_the_probability_of_what_is_right(self, asked):
    # Two starts and two ends.
    answered = asked({1: 3, 5: 2}, {1: 3, 6: 1}, answers=("the North!", "none"))
    sums = {c.text: c.start_logit + c.end_logit for c in answered.answer.nbest}
    weights = np.exp(list(sums.values()))
    expected = np.exp(sums["north"]) / weights.sum()
    assert answered.right_probability == pytest.approx(expected)
    question = squad_results.on_the_page(answered, "north")
    assert question.loss == pytest.approx(-math.log(expected))
    assert question.probability == pytest.approx(expected)
    assert (question.exact, question.f1) == (1, 1)
    assert question.golds == [("the North!", None), ("none", None)]
    assert (question.title, question.context) == ("Colours", CONTEXT)

  def test_a_gold_answer_that_stands_once_has_its_place(self, asked):
    answered = asked({1: 3}, {1: 3}, answers=("time", "time", "north"))
    question = squad_results.on_the_page(answered, "north")
    assert question.golds == [("time", CONTEXT.index("time")), ("north", None)]

  def test_a_gold_answer_stands_where_the_file_says(self, asked):
    second = CONTEXT.rindex("north")
    answered = asked(
      {1: 3},
      {1: 3},
      answers=("north", "north", "time"),
      answer_starts=(second, -1, 0),
    )
    question = squad_results.on_the_page(answered, "north")
    # A wrong place counts for nothing.
    time = CONTEXT.index("time")
    assert question.golds == [
      ("north", second),
      ("north", None),
      ("time", time),
    ]

  @pytest.mark.parametrize(
    ("version_2", "golds", "prediction", "exact", "f1"),
    [
      # Of 1.1, an answer without words is never found word by word.
      (False, ("the",), "a", 1, 0),
      (False, ("the", "North"), "north", 1, 1),
      # Of 2.0, it does not count beside one that has words.
      (True, ("the north", "The"), "", 0, 0),
      (True, ("The",), "", 1, 1),
      (True, (), "", 1, 1),
      (True, (), "north", 0, 0),
    ],
  )
  def test_the_page_scores_as_the_whole_set(
    self, asked, version_2, golds, prediction, exact, f1
  ):
    answered = asked({1: 3, -1: 0}, {1: 3, -1: 0}, version_2, answers=golds)
    question = squad_results.on_the_page(answered, prediction)
    assert (question.exact, question.f1) == (exact, f1)
    results = squad_results.evaluate([answered], {"id": prediction})
    key = "exact" if version_2 else "exact_match"
    assert (results[key], results["f1"]) == (100 * exact, 100 * f1)

  def test_what_has_answers_is_not_impossible(self, asked):
    # As the official script has it, whatever else the file says.
    answered = asked(
      {1: 3, -1: 0}, {1: 3, -1: 0}, True, answers=("north",), is_impossible=True
    )
    results = squad_results.evaluate([answered], {"id": "north"})
    assert (results["exact"], results["HasAns_total"]) == (100, 1)

  def test_an_example_without_its_paragraph(self, goldens):
    example = squad.SquadExample("id", "which ?", ["the", "north"])
    assert example.paragraph.context == "the north"
    assert example.paragraph.char_starts == [0, 4]

  def test_nothing_right_among_the_candidates(self, asked):
    answered = asked({1: 3}, {1: 3}, answers=("green",))
    assert answered.right_probability == 0
    question = squad_results.on_the_page(answered, "north")
    assert (question.loss, question.exact) == (math.inf, 0)

  def test_no_answer_is_right(self, asked):
    answered = asked({1: 3, -1: 1}, {1: 3, -1: 2}, True, is_impossible=True)
    assert answered.answer.null_odds == pytest.approx(-3)
    found = [answered.prediction(t) for t in (-4, -3.5, -3, 0)]
    assert found == ["", "", "north", "north"]
    null = next(c for c in answered.answer.nbest if not c.text)
    assert answered.right_probability == null.probability
    question = squad_results.on_the_page(answered, "")
    assert (question.golds, question.exact) == ([], 1)
    assert question.prediction_span is None
    assert question.null_odds == pytest.approx(-3)

  def test_what_can_be_scored(self, asked):
    unknown = asked({1: 3}, {1: 3}).example
    known = asked({1: 3}, {1: 3}, answers=("north",)).example
    null = asked({1: 3}, {1: 3}, True, is_impossible=True).example
    assert unknown.answers == ()
    assert asked({1: 3}, {1: 3}).right_probability is None
    for examples, is_v2, expected in (
      ([known], False, True),
      ([known, unknown], False, False),
      ([unknown, null], True, True),
      ([unknown], True, False),
    ):
      assert squad_results.has_answers(examples, is_v2) == expected

  def test_scores(self, asked):
    right = asked({1: 3}, {1: 3}, answers=("north",))
    results = squad_results.evaluate([right], {"id": "north city"})
    # One word of two, one of one: 2 * 1 / (2 + 1).
    assert results == {"exact_match": 0, "f1": pytest.approx(200 / 3)}
    sure = asked({1: 3, -1: 9}, {1: 3, -1: 9}, True, is_impossible=True)
    assert squad_results.best_threshold([sure]) < 12
    results = squad_results.evaluate([sure], {"id": "north"})
    assert (results["exact"], results["best_exact"]) == (0, 100)
