"""Converts SQuAD's logits to answers, and writes the files of answers.

    answer = answer_question(example, windows, results, settings)
    print(example.question_text, answer.text)

The answers equal the original's. `answer_question` describes the cases in which
the original crashes.
"""

import collections
import dataclasses
import functools
import heapq
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import tokenization
from bert.data import files
from bert.tasks.squad import data
from bert.tasks.squad.data import InputFeatures, SquadExample

# The null odds of a question without any candidate: more than any difference of
# logits. JSON has no infinity.
NULL_FOR_SURE = 1e6

# The original's answer in SQuAD 1.1 if no span is allowed.
NOTHING_ALLOWED = "empty"

# Pads the logits of shorter windows. The sum of two does not overflow.
_LEAST_LOGIT = float(np.finfo(np.float32).min)


class RawResult(NamedTuple):
  """The logits of a window, each float [S] for its tokens or more."""

  unique_id: int
  start_logits: Sequence[float] | np.ndarray
  end_logits: Sequence[float] | np.ndarray


class Candidate(NamedTuple):
  """One of the n best answers; the fields are keys of the JSON file."""

  text: str
  probability: float
  start_logit: float
  end_logit: float


class Answer(NamedTuple):
  """The answer to a question."""

  text: str  # "" for no answer
  nbest: list[Candidate]  # best first
  best_text: str  # of the best candidate that is not ""
  # Score of no answer minus score of `best_text`, in logits; None in SQuAD 1.1.
  null_odds: float | None = None
  # Characters of `best_text` in the paragraph; None if it is not in there.
  span: tuple[int, int] | None = None

  @property
  def probability(self) -> float:
    """The probability of `text`; 0 if it is not a candidate."""
    return next((c.probability for c in self.nbest if c.text == self.text), 0.0)

  def at_threshold(self, threshold: float) -> "Answer":
    """The Answer with the text "" if the null odds exceed a threshold."""
    is_null = self.null_odds is not None and self.null_odds > threshold
    return self._replace(text="" if is_null else self.best_text)


@dataclasses.dataclass(frozen=True)
class DecodingSettings:
  """How logits become answers."""

  # Number of starts and of ends to try per window, and of candidates to list.
  n_best_size: int = 20
  max_answer_length: int = 30  # in word pieces
  version_2_with_negative: bool = False  # whether questions may have no answer


class _Span(NamedTuple):
  """Tokens `start` to `end` of a window; both are 0 for no answer."""

  score: float  # the sum of the logits
  window: int
  start: int
  end: int
  start_logit: float
  end_logit: float


def answer_question(
  example: SquadExample,
  features: Sequence[InputFeatures],
  results: Sequence[RawResult],
  settings: DecodingSettings,
  do_lower_case: bool = True,
) -> Answer:
  """The answer to a question from all its windows (paper sections 4.2, 4.3).

  If no span is allowed, the answer in SQuAD 1.1 is NOTHING_ALLOWED, as in the
  original. In SQuAD 2.0, where the original crashes, it is "", with the odds
  NULL_FOR_SURE. `results` are in the order of the windows, `features`.
  `do_lower_case` is for windows without pieces. `text` ignores the null odds.
  """
  logits = _logits(features, results)
  spans = _ranked_spans(features, logits, settings)
  null = None
  if settings.version_2_with_negative:
    null = _least_null(logits)
    # If scores are equal, no answer comes last.
    spans = heapq.merge(spans, [null], key=lambda span: -span.score)
  text_of = _text_finder(example, features, do_lower_case)
  span_of = {}
  for span in spans:
    span_of.setdefault("" if span is null else text_of(span), span)
    if len(span_of) == settings.n_best_size:
      break
  if null is not None:
    span_of.setdefault("", null)
  if not span_of:
    only = Candidate(NOTHING_ALLOWED, 1.0, 0.0, 0.0)
    return Answer(only.text, [only], only.text)
  nbest = _candidates(span_of)
  best = next((entry for entry in nbest if entry.text), None)
  if best is None:
    return Answer("", nbest, "", NULL_FOR_SURE)
  null_odds = None
  if null is not None:
    null_odds = null.score - best.start_logit - best.end_logit
  offsets = _char_span(features, span_of[best.text])
  return Answer(best.text, nbest, best.text, null_odds, offsets)


def _logits(features, results):
  """Logits of starts and ends, float [2, W, S] for W windows, padded."""
  rows = [(result.start_logits, result.end_logits) for result in results]
  size = max((len(row) for pair in rows for row in pair), default=0)
  logits = np.full([2, len(rows), size], _LEAST_LOGIT)
  for window, pair in enumerate(rows):
    for kind, row in enumerate(pair):
      logits[kind, window, : len(row)] = row
  return logits


def _least_null(logits):
  """The span of no answer, with the lowest score of all windows.

  An answer is in few windows; the others correctly score no answer high.
  """
  if not logits.size:
    return _Span(0.0, 0, 0, 0, 0.0, 0.0)
  starts, ends = logits[:, :, 0].tolist()
  scores = list(map(operator.add, starts, ends))
  window = scores.index(min(scores))
  return _Span(scores[window], 0, 0, 0, starts[window], ends[window])


def _ranked_spans(features, logits, settings):
  """Yields the allowed spans of a question, best first.

  Ties are broken by window, then by the rank of the start and of the end in
  the window; equal logits rank from left to right.
  """
  if not features:
    return
  size = settings.n_best_size
  positions = np.argsort(-logits, axis=2, kind="stable")[:, :, :size].tolist()
  values = (-np.sort(-logits, axis=2)[:, :, :size]).tolist()
  starts, ends = (  # Pairs of position and logit, W lists of n.
    [list(zip(*pair, strict=True)) for pair in zip(*kind, strict=True)]
    for kind in zip(positions, values, strict=True)
  )
  spans = []
  for window, feature in enumerate(features):
    may_start, may_end = feature.token_is_max_context, feature.token_to_orig_map
    allowed_ends = [pair for pair in ends[window] if pair[0] in may_end]
    for start, start_logit in starts[window]:
      if may_start.get(start):
        limit = start + settings.max_answer_length
        spans += [
          (start_logit + end_logit, window, start, end, start_logit, end_logit)
          for end, end_logit in allowed_ends
          if start <= end < limit
        ]
  spans.sort(key=operator.itemgetter(0), reverse=True)  # Stable.
  yield from map(_Span._make, spans)


def _candidates(span_of):
  """List of Candidate for a dict from text to span; softmax of the scores."""
  scores = [span.score for span in span_of.values()]
  best = max(scores)
  weights = [math.exp(score - best) for score in scores]
  total = sum(weights)
  return [
    Candidate(text, weight / total, span.start_logit, span.end_logit)
    for (text, span), weight in zip(span_of.items(), weights, strict=True)
  ]


def _char_span(features, span):
  """Start and end of a span in the paragraph; None if pieces are unknown."""
  feature = features[span.window]
  return feature.pieces and feature.char_span(span.start, span.end)


def _text_finder(example, features, do_lower_case):
  """A function from a span (not the one of no answer) to its text.

  Windows without pieces are aligned as in the original.
  """
  if all(feature.pieces for feature in features):
    return lambda span: data.join_words(
      example.paragraph.context[slice(*_char_span(features, span))]
    )

  def find(span):
    feature = features[span.window]
    word_of = feature.token_to_orig_map
    words = example.doc_tokens[word_of[span.start] : word_of[span.end] + 1]
    pieces = " ".join(feature.tokens[span.start : span.end + 1])
    text = " ".join(pieces.replace(" ##", "").replace("##", "").split())
    return get_final_text(text, " ".join(words), do_lower_case)

  return find


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
  """The part of a text that the tokenizer turned into `pred_text`.

  The two are aligned by counting characters other than blanks. If the counts
  differ, because a character was dropped or became two, or a piece is unknown,
  the result is the whole text. Both have one blank between words.
  """
  tokenized = _basic_text(orig_text, do_lower_case)
  start = tokenized.find(pred_text)
  if start < 0 or not pred_text or pred_text != pred_text.strip(" "):
    return orig_text  # Blanks are not counted, so no end can be a blank.
  first = start - tokenized.count(" ", 0, start)
  last = first + len(pred_text.replace(" ", "")) - 1
  return orig_text[_offset(orig_text, first) : _offset(orig_text, last) + 1]


# Many candidates of a question differ only in the pieces at their ends.
@functools.lru_cache(maxsize=2**10)
def _basic_text(text, do_lower_case):
  """The basic tokenizer's words; "" if their number of characters differs."""
  words = tokenization.BasicTokenizer(do_lower_case).tokenize(text)
  is_aligned = len(text.replace(" ", "")) == len("".join(words))
  return " ".join(words) if is_aligned else ""


def _offset(text, count):
  """The offset of the character after `count` characters other than blanks."""
  offset = count
  while offset != (further := count + text.count(" ", 0, offset + 1)):
    offset = further
  return offset


# Files of answers.


def write_predictions(
  all_examples: Iterable[SquadExample],
  all_features: Iterable[InputFeatures],
  all_results: Iterable[RawResult],
  n_best_size: int,
  max_answer_length: int,
  do_lower_case: bool,
  output_prediction_file: str,
  output_nbest_file: str,
  output_null_log_odds_file: str | None,
  version_2_with_negative: bool = False,
  null_score_diff_threshold: float = 0.0,
) -> None:
  """Writes the original's files of answers; see `write_answers`.

  The results may have any order. Null odds are written only if questions may
  have no answer. DecodingSettings describes the other arguments.
  """
  settings = DecodingSettings(
    n_best_size, max_answer_length, version_2_with_negative
  )
  result_of = {result.unique_id: result for result in all_results}
  windows_of = collections.defaultdict(list)
  for window in all_features:
    windows_of[window.example_index].append(window)
  answers = {}
  for index, example in enumerate(all_examples):
    windows = windows_of[index]
    results = [result_of[window.unique_id] for window in windows]
    answer = answer_question(example, windows, results, settings, do_lower_case)
    answers[example.qas_id] = answer.at_threshold(null_score_diff_threshold)
  if not version_2_with_negative:
    output_null_log_odds_file = None
  write_answers(
    answers,
    output_prediction_file,
    output_nbest_file,
    output_null_log_odds_file,
  )


def write_answers(
  answers: Mapping[str, Answer],
  prediction_file: str,
  nbest_file: str,
  null_odds_file: str | None,
) -> None:
  """Writes JSON files in the original's layout: dicts by a question's id."""
  contents = {
    nbest_file: {
      qas_id: [candidate._asdict() for candidate in answer.nbest]
      for qas_id, answer in answers.items()
    },
    null_odds_file: {key: a.null_odds for key, a in answers.items()},
    prediction_file: {key: a.text for key, a in answers.items()},
  }
  files.write_files(
    {
      path: json.dumps(content, indent=4) + "\n"
      for path, content in contents.items()
      if path
    }
  )
