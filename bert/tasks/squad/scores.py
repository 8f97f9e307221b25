"""Exact match and F1 of answers, by the rules of SQuAD 1.1 and 2.0.

    evaluate_v1({e.qas_id: e.answers for e in examples}, predictions)

The numbers equal those of the official evaluation scripts.
"""

import collections
import math
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

from bert.reports import verdict
from bert.tasks.squad.data import SquadExample
from bert.tasks.squad.decoding import Answer
from bert.tasks.squad.page import AnsweredQuestion

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
  """Normalizes a text, to compare answers.

  Lower-cases it, removes ASCII punctuation, then the words a, an and the, and
  separates words by one blank.
  """
  text = text.lower().translate(_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answer: str) -> float:
  """1 if both are equal after normalization, else 0."""
  return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
  """Harmonic mean of precision and recall of the normalized answer's words.

  A word that occurs twice must be predicted twice. If one side has no words, F1
  is 1 if the other has none either, and 0 otherwise, as in SQuAD 2.0.
  """
  predicted = normalize_answer(prediction).split()
  expected = normalize_answer(answer).split()
  if not predicted or not expected:
    return float(predicted == expected)
  shared = collections.Counter(predicted) & collections.Counter(expected)
  return 2 * shared.total() / (len(predicted) + len(expected))


def _f1_v1(prediction, answer):
  """Like `f1`, but 0 for an answer without words, such as "the"."""
  return f1(prediction, answer) if normalize_answer(answer) else 0.0


def _best_score(score, prediction, references):
  return max(score(prediction, reference) for reference in references)


def _with_words(references):
  """The references that have words; [""] if there are none."""
  return [text for text in references if normalize_answer(text)] or [""]


def score(
  prediction: str, references: Sequence[str], version_2_with_negative: bool
) -> tuple[float, float]:
  """Exact match and F1 of one answer, each from 0 to 1.

  The rules of SQuAD 2.0 ignore references without words.
  """
  rule = _f1_v1
  if version_2_with_negative:
    references, rule = _with_words(references), f1
  return (
    _best_score(exact_match, prediction, references),
    _best_score(rule, prediction, references),
  )


def sample(
  golds: Mapping[str, Sequence[str]], texts: Mapping[str, str], is_v2: bool
) -> verdict.Sample:
  """The questions, by id, behind the mean F1 in percent."""

  def scores(answers):
    pairs = ((answers.get(key, ""), golds[key]) for key in texts)
    return np.array([100 * score(*pair, is_v2)[1] for pair in pairs])

  f1s = scores(texts)
  return verdict.Sample(
    "f1",
    len(f1s),
    lambda rows: float(f1s[rows].mean()),
    unit="question",
    baseline=("no answer", float(scores({}).mean())) if is_v2 else None,
  )


def evaluate_v1(
  answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, float]:
  """`exact_match` and `f1` by the rules of SQuAD 1.1, in percent."""
  scores = [score(predictions[name], answers[name], False) for name in answers]
  exact, f1_mean = (100.0 * sum(s) / len(s) for s in zip(*scores, strict=True))
  return {"exact_match": exact, "f1": f1_mean}


def evaluate_v2(
  answers: Mapping[str, Sequence[str]],
  predictions: Mapping[str, str],
  null_odds: Mapping[str, float],
) -> dict[str, float]:
  """Scores by the rules of SQuAD 2.0, in percent.

  As in the official script, `best_exact` and `best_f1` are the scores at the
  best threshold on the null odds; a prediction of no answer does not depend on
  the threshold, and questions of equal odds may be split. A best threshold of 0
  may also mean that no question should be answered.

  All arguments are dicts by question: the reference answers, if any; the
  predicted text, "" for no answer; and the odds of no answer. The prefixes
  `HasAns_` and `NoAns_` are for questions with and without an answer.
  """
  pairs = {
    name: score(predictions[name], answers[name], True) for name in answers
  }
  groups = {
    "": list(answers),
    "HasAns_": [name for name in answers if answers[name]],
    "NoAns_": [name for name in answers if not answers[name]],
  }
  results = {}
  for prefix, names in groups.items():
    if names:
      for i, key in enumerate(("exact", "f1")):
        total = sum(pairs[name][i] for name in names)
        results[prefix + key] = 100.0 * total / len(names)
      results[prefix + "total"] = len(names)
  by_odds = sorted(answers, key=null_odds.get)
  for i, key in enumerate(("exact", "f1")):
    gains = [
      pairs[name][i] if answers[name] else -float(bool(predictions[name]))
      for name in by_odds
    ]
    sums = np.cumsum([float(len(groups["NoAns_"])), *gains])
    best = int(np.argmax(sums))
    results[f"best_{key}"] = 100.0 * float(sums[best]) / len(answers)
    threshold = null_odds[by_odds[best - 1]] if best else 0.0
    results[f"best_{key}_thresh"] = float(threshold)
  return results


def best_threshold(
  answers: Mapping[str, Sequence[str]],
  best_texts: Mapping[str, str],
  null_odds: Mapping[str, float],
) -> float:
  """The lowest `null_score_diff_threshold` with the best F1.

  `best_texts` are the best texts other than "", regardless of the odds. See
  `evaluate_v2` for the other arguments.
  """
  names = sorted(answers, key=null_odds.get)
  gains = []
  for name in names:
    references = _with_words(answers[name])
    answered, unanswered = (
      _best_score(f1, text, references) for text in (best_texts[name], "")
    )
    gains.append(answered - unanswered)
  odds = np.array([null_odds[name] for name in names], np.float64)
  # Questions of equal odds are answered together.
  is_last = np.append(odds[1:] != odds[:-1], True)
  sums = np.append(0.0, np.cumsum(gains)[is_last])
  below_all = np.nextafter(odds[0], -np.inf)
  return float(np.append(below_all, odds[is_last])[np.argmax(sums)])


def has_answers(
  examples: Sequence[SquadExample], version_2_with_negative: bool
) -> bool:
  """Whether the answers to a file's questions are known."""
  if version_2_with_negative:
    # A file without its answers still says which questions are impossible.
    return any(e.answers for e in examples) or all(
      e.is_impossible for e in examples
    )
  return all(e.answers for e in examples)


def answered_question(
  example: SquadExample, answer: Answer, version_2_with_negative: bool
) -> AnsweredQuestion:
  """A question with its Answer and scores, for `page.write_page`."""
  starts = example.answer_starts or [None] * len(example.answers)
  exact, f1_score = score(answer.text, example.answers, version_2_with_negative)
  correct = set(map(normalize_answer, example.answers or [""]))
  correct_probability = sum(
    candidate.probability
    for candidate in answer.nbest
    if normalize_answer(candidate.text) in correct
  )
  loss = math.inf
  if correct_probability:
    # The sum may exceed 1 because of rounding.
    loss = -math.log(min(correct_probability, 1.0))
  return AnsweredQuestion(
    qas_id=example.qas_id,
    title=example.paragraph.title,
    question=example.question_text,
    context=example.paragraph.context,
    prediction=answer.text,
    prediction_span=answer.span if answer.text else None,
    golds=list(dict.fromkeys(zip(example.answers, starts, strict=True))),
    exact=exact,
    f1=f1_score,
    probability=answer.probability,
    loss=loss,
    null_odds=answer.null_odds,
    nbest=[(c.text, c.probability) for c in answer.nbest],
  )
