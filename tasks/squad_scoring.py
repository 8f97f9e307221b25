"""Exact match and F1 of answers, by the rules of SQuAD 1.1 and 2.0.

    evaluate_v1({e.qas_id: e.answers for e in examples}, predictions)

The numbers are those of the official scripts.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

from errors import UserError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
  """`text` as answers are compared.

  Lower-cased, without ASCII punctuation, then without the words a, an and the,
  one blank between words.
  """
  text = text.lower().translate(_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answer: str) -> float:
  """1 if the two are the same when normalized, else 0."""
  return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
  """Harmonic mean of precision and recall of the normalized answer's words.

  A word that occurs twice must be found twice. If one side has no word, it is
  1 where the other has none either, else 0, as SQuAD 2.0 scores it.
  """
  found = normalize_answer(prediction).split()
  wanted = normalize_answer(answer).split()
  if not found or not wanted:
    return float(found == wanted)
  both = collections.Counter(found) & collections.Counter(wanted)
  return 2 * both.total() / (len(found) + len(wanted))


def _f1_v1(prediction, answer):
  """As `f1`, but an answer without words, such as "the", is never found."""
  return f1(prediction, answer) if normalize_answer(answer) else 0.0


def _best_score(score, prediction, references):
  return max(score(prediction, reference) for reference in references)


def score(
  prediction: str, references: Sequence[str], version_2_with_negative: bool
) -> tuple[float, float]:
  """Exact match and F1 of one answer, each from 0 to 1.

  Args:
    prediction: the answer; "" for none.
    references: the right answers; in SQuAD 2.0 none if there is no answer.
    version_2_with_negative: whether the rules of SQuAD 2.0 hold, which pass
      over references without words.
  """
  if version_2_with_negative:
    references, f1_rule = _references(references), f1
  else:
    f1_rule = _f1_v1
  return (
    _best_score(exact_match, prediction, references),
    _best_score(f1_rule, prediction, references),
  )


def evaluate_v1(
  answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, float]:
  """Scores by the rules of SQuAD 1.1, in percent of all questions.

  Args:
    answers: from each question's id to its reference answers.
    predictions: from ids to texts.

  Returns:
    Dict with `exact_match` and `f1`; and, if there are any, `missing`, the
    number of questions without prediction, which score 0.

  Raises:
    ValueError: there is no question, or one without a reference answer.
  """
  _check_questions(answers)
  for name, references in answers.items():
    if not references:
      raise UserError(
        f"question {name} has no answer, which SQuAD 1.1 does not know; pass "
        f"--version_2_with_negative"
      )
  scores = _scores(answers, predictions, False)
  means = (
    100.0 * sum(of_name.values()) / len(answers) for of_name in scores.values()
  )
  return dict(zip(("exact_match", "f1"), means, strict=True)) | _missing(
    answers, predictions
  )


def _scores(answers, predictions, version_2_with_negative):
  """Dicts from "exact" and "f1" to those of each question, 0 if missing."""
  pairs = {
    name: score(predictions[name], references, version_2_with_negative)
    if name in predictions
    else (0.0, 0.0)
    for name, references in answers.items()
  }
  return {
    key: {name: pair[place] for name, pair in pairs.items()}
    for place, key in enumerate(("exact", "f1"))
  }


def _check_questions(answers):
  if not answers:
    raise UserError("there is no question to evaluate")


def _missing(answers, predictions):
  missing = sum(name not in predictions for name in answers)
  return {"missing": missing} if missing else {}


def evaluate_v2(
  answers: Mapping[str, Sequence[str]],
  predictions: Mapping[str, str],
  null_odds: Mapping[str, float] | None = None,
  na_threshold: float = 1.0,
) -> dict[str, float]:
  """Scores by the rules of SQuAD 2.0, in percent.

  As the official script does, it also takes a prediction for "no answer" if
  its odds are larger than `na_threshold`, which was thought for probabilities;
  and as there, `best_exact` and `best_f1` are what the predictions would score
  at the best threshold, where one without text stays without, and among equal
  odds any number may count as below it. A best threshold of 0 also stands for
  "answer nothing". Other than there, a missing prediction is no error: the
  question scores 0.

  Args:
    answers: from each question's id to its reference answers; none if it has
      no answer.
    predictions: from ids to texts; "" for no answer.
    null_odds: from ids to the odds of no answer, of all predictions.
    na_threshold: see above.

  Returns:
    Dict with `exact`, `f1`, `total`; the same with the prefix `HasAns_` and
    `NoAns_` of questions with and without answer, if there are such; given
    `null_odds`, `best_exact`, `best_exact_thresh`, `best_f1` and
    `best_f1_thresh`; if there are any, `missing`, the number of questions
    without prediction.

  Raises:
    ValueError: there is no question, or a prediction has no odds.
  """
  _check_questions(answers)
  raw = _scores(answers, predictions, True)
  if null_odds is None:
    return _means_v2(raw, answers) | _missing(answers, predictions)
  result = _means_v2(
    {
      key: _thresholded(scores, answers, predictions, null_odds, na_threshold)
      for key, scores in raw.items()
    },
    answers,
  )
  for key, scores in raw.items():
    best = _best_of_thresholds(scores, answers, predictions, null_odds)
    result[f"best_{key}"], result[f"best_{key}_thresh"] = best
  return result | _missing(answers, predictions)


def _means_v2(scores, answers):
  """The means over all questions, over those with and without an answer."""
  groups = (
    ("", list(answers)),
    ("HasAns_", [name for name in answers if answers[name]]),
    ("NoAns_", [name for name in answers if not answers[name]]),
  )
  result = {}
  for prefix, names in groups:
    if names:
      for key, of_name in scores.items():
        total = sum(of_name[name] for name in names)
        result[prefix + key] = 100.0 * total / len(names)
      result[prefix + "total"] = len(names)
  return result


def _references(texts):
  """The references that have words; [""] if there are none."""
  return [text for text in texts if normalize_answer(text)] or [""]


def _thresholded(scores, answers, predictions, null_odds, threshold):
  """The scores, where those with large odds of no answer predict none."""
  result = dict(scores)
  for name in scores.keys() & predictions.keys():
    if name not in null_odds:
      raise UserError(
        f"question {name} has a prediction, but no odds of no answer; give the "
        f"null_odds.json of the same run"
      )
    if null_odds[name] > threshold:
      result[name] = float(not answers[name])
  return result


def _best_of_thresholds(scores, answers, predictions, null_odds):
  """The best mean score, in percent, and the odds up to which it answers."""
  names = [name for name in null_odds if name in scores and name in predictions]
  names.sort(key=null_odds.get)
  gains = [
    scores[name] if answers[name] else -float(bool(predictions[name]))
    for name in names
  ]
  silent = sum(not answers[name] for name in scores if name in predictions)
  sums = np.cumsum([float(silent), *gains])
  best = int(np.argmax(sums))
  threshold = null_odds[names[best - 1]] if best else 0.0
  return 100.0 * float(sums[best]) / len(scores), float(threshold)


def best_threshold(
  answers: Mapping[str, Sequence[str]],
  best_texts: Mapping[str, str],
  null_odds: Mapping[str, float],
) -> float:
  """The `null_score_diff_threshold` with the best F1; the least if several are.

  Args:
    answers: from each question's id to its reference answers; none if it has
      no answer.
    best_texts: from ids to the best text other than "", whatever the odds.
    null_odds: from ids to the odds of no answer.

  Raises:
    ValueError: there is no question that has a text and odds.
  """
  names = [name for name in answers if name in best_texts and name in null_odds]
  if not names:
    raise UserError("no question has an answer and odds to choose a threshold")
  names.sort(key=null_odds.get)
  gains = []
  for name in names:
    references = _references(answers[name])
    answered, silent = (
      _best_score(f1, text, references) for text in (best_texts[name], "")
    )
    gains.append(answered - silent)
  odds = np.array([null_odds[name] for name in names], np.float64)
  # Questions of equal odds are answered together.
  is_last = np.append(odds[1:] != odds[:-1], True)
  sums = np.append(0.0, np.cumsum(gains)[is_last])
  silent = np.nextafter(odds[0], -np.inf)
  return float(np.append(silent, odds[is_last])[np.argmax(sums)])
