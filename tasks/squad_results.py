"""What becomes of SQuAD's answers: predictions, scores and their page.

    answered = list(answer_questions(examples, features, results, settings))
    evaluate(answered, {a.example.qas_id: a.prediction(0.0) for a in answered})

Which answers stand is decided when all are known, by a threshold.
"""

import collections
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reports import squad as squad_report
from tasks import squad, squad_decoding, squad_scoring

# Candidates that are kept of each question's, once their file is written.
_KEPT_CANDIDATES = 5


class Answered(NamedTuple):
  """A question and what the model says.

  Attributes:
    example: the question.
    answer: the answer, with the first of its candidates and those that it may
      come to.
    place: (start, end) of `best_text` in the context, in characters, or None.
    right_probability: the probability of all candidates that are right; None
      if no right answer is known.
  """

  example: squad.SquadExample
  answer: squad_decoding.Answer
  place: tuple[int, int] | None
  right_probability: float | None

  def prediction(self, threshold: float) -> str:
    """The answer; "" where the odds of no answer are above the threshold."""
    odds = self.answer.null_odds
    is_null = odds is not None and odds > threshold
    return "" if is_null else self.answer.best_text


def has_answers(
  examples: Sequence[squad.SquadExample], version_2_with_negative: bool
) -> bool:
  """Whether all questions can be scored."""
  if version_2_with_negative:
    # A question without an answer counts, but not a whole file of them.
    return any(e.answers or e.is_impossible for e in examples)
  return all(e.answers for e in examples)


def answer_questions(
  examples: Iterable[squad.SquadExample],
  features: Iterable[squad.InputFeatures],
  results: Iterable[squad_decoding.RawResult],
  settings: squad_decoding.DecodingSettings,
  write: Callable[[str, squad_decoding.Answer], object] | None = None,
) -> Iterator[Answered]:
  """Yields each question's answer, see `squad_answers.answer_all`.

  Args:
    examples: the questions.
    features: their windows, in the same order.
    results: the logits of the windows.
    settings: how they are decoded.
    write: called with the id and the whole answer of each, or None.
  """
  windows = collections.defaultdict(list)

  def noted_features():
    for feature in features:
      windows[feature.example_index].append(feature)
      yield feature

  answers = squad_decoding.answer_all(
    examples, noted_features(), results, settings
  )
  for index, (example, answer) in enumerate(answers):
    if write:
      write(example.qas_id, answer)
    yield Answered(
      example,
      answer._replace(nbest=_kept(answer)),
      _place(example, windows.pop(index, ()), answer),
      _right_probability(example, answer, settings),
    )


def _kept(answer):
  """The candidates that are still needed when all questions are answered."""
  return [
    candidate
    for rank, candidate in enumerate(answer.nbest)
    if rank < _KEPT_CANDIDATES or candidate.text in ("", answer.best_text)
  ]


def _right_probability(example, answer, settings):
  references = example.answers
  if not (references or settings.version_2_with_negative):
    return None
  normalized = set(map(squad_scoring.normalize_answer, references or [""]))
  return sum(
    candidate.probability
    for candidate in answer.nbest
    if squad_scoring.normalize_answer(candidate.text) in normalized
  )


def _place(example, windows, answer):
  """Where in the context the best text stands, which may hold it twice."""
  if answer.place is None:
    return None
  window, start, end = answer.place
  words, paragraph = windows[window].token_to_orig_map, example.paragraph
  first, last = words[start], words[end]
  begin = paragraph.char_starts[first]
  end = paragraph.char_starts[last] + len(paragraph.doc_tokens[last])
  found = paragraph.context.find(answer.best_text, begin, end)
  # The original's words have one blank between them, whatever there was.
  return (found, found + len(answer.best_text)) if found >= 0 else (begin, end)


def best_threshold(answered: Sequence[Answered]) -> float:
  """The threshold with the best F1, see `squad_scores.best_threshold`."""
  return squad_scoring.best_threshold(
    {a.example.qas_id: a.example.answers for a in answered},
    {a.example.qas_id: a.answer.best_text for a in answered},
    {a.example.qas_id: a.answer.null_odds for a in answered},
  )


def evaluate(
  answered: Sequence[Answered], predictions: Mapping[str, str]
) -> dict[str, float]:
  """Exact match and F1 by the rules of SQuAD, in percent.

  Of SQuAD 2.0, `exact` and `f1` are of the predictions as they are; the rest is
  as the official script says it, given the odds.

  Args:
    answered: the questions.
    predictions: from their ids to texts.
  """
  references = {a.example.qas_id: a.example.answers for a in answered}
  odds = {a.example.qas_id: a.answer.null_odds for a in answered}
  if None in odds.values():
    return squad_scoring.evaluate_v1(references, predictions)
  return squad_scoring.evaluate_v2(
    references, predictions, odds, na_threshold=math.inf
  )


def on_the_page(
  answered: Answered, prediction: str
) -> squad_report.AnsweredQuestion:
  """A question as `squad_report.write_page` takes it.

  Args:
    answered: the question.
    prediction: its answer.
  """
  example, answer = answered.example, answered.answer
  starts = example.answer_starts or [None] * len(example.answers)
  golds = dict.fromkeys(zip(example.answers, starts, strict=True))
  context = example.paragraph.context
  exact, f1 = squad_scoring.score(
    prediction, example.answers, answer.null_odds is not None
  )
  probabilities = {c.text: c.probability for c in answer.nbest}
  right = answered.right_probability
  return squad_report.AnsweredQuestion(
    qas_id=example.qas_id,
    title=example.paragraph.title,
    question=example.question_text,
    context=context,
    prediction=prediction,
    prediction_span=answered.place if prediction else None,
    golds=[(text, _gold_place(context, text, at)) for text, at in golds],
    exact=exact,
    f1=f1,
    probability=probabilities.get(prediction, 0.0),
    # A sum of shares may exceed 1 in the last digit.
    loss=-math.log(min(right, 1.0)) if right else math.inf,
    null_odds=answer.null_odds,
    nbest=[(c.text, c.probability) for c in answer.nbest],
  )


def _gold_place(context, text, start):
  """Where a text stands; None if the file is wrong and it is not clear."""
  if start is not None and start >= 0 and context.startswith(text, start):
    return start
  return context.find(text) if context.count(text) == 1 else None
