"""From SQuAD's logits to answers, and the files of answers.

    answer = answer_question(example, windows, results, settings)
    print(example.question_text, answer.text)

The answers equal the original's. `answer_question` describes the cases in which
the original crashes.
"""

import contextlib
import dataclasses
import functools
import heapq
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

import tokenization
from errors import UserError
from pipeline import files
from tasks.squad import (
  WORD_START,
  InputFeatures,
  ReadingSettings,
  SquadExample,
  exact_text,
)

# The null odds of a question without any candidate. JSON has no infinity, and
# no two logits differ by as much.
NULL_FOR_SURE = 1e6

# The original's answer in SQuAD 1.1 if no span is allowed.
NOTHING_ALLOWED = "empty"

# Pads the logits of shorter windows. The sum of two does not overflow.
_LEAST_LOGIT = float(np.finfo(np.float32).min)


class RawResult(NamedTuple):
  """The logits of a window.

  Attributes:
    unique_id: the window's.
    start_logits, end_logits: float [S], lists or arrays; S is at least the
      number of the window's tokens.
  """

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
  """The answer to a question.

  Attributes:
    text: the answer; "" for no answer.
    nbest: the candidates, best first.
    best_text: text of the best candidate that is not "".
    null_odds: score of no answer minus score of `best_text`, in logits; None in
      SQuAD 1.1, where each question has an answer.
    words: indices of the first and last word of `best_text` in the paragraph;
      None if it is not part of the paragraph.
  """

  text: str
  nbest: list[Candidate]
  best_text: str
  null_odds: float | None = None
  words: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class DecodingSettings:
  """How logits become answers.

  Attributes:
    n_best_size: number of starts and of ends tried in each window, and number
      of candidates listed; at least 1.
    max_answer_length: maximum length of an answer in word pieces.
    do_lower_case: whether the tokenizer lower-cases.
    version_2_with_negative: whether questions may have no answer.
    null_score_diff_threshold: null odds above which there is no answer.
    exact_text: function of (example, feature, start, end) to the text from
      token `start` to token `end` of a window. Default: the original's search
      for the pieces among the words.
  """

  n_best_size: int = 20
  max_answer_length: int = 30
  do_lower_case: bool = True
  version_2_with_negative: bool = False
  null_score_diff_threshold: float = 0.0
  exact_text: Callable[[SquadExample, InputFeatures, int, int], str] | None = (
    None
  )

  @classmethod
  def of(
    cls,
    tokenizer: tokenization.FullTokenizer,
    reading: ReadingSettings,
    exact_answer_text: bool = False,
    **fields,
  ) -> "DecodingSettings":
    """The settings for a tokenizer and ReadingSettings."""
    exact = functools.partial(exact_text, tokenizer=tokenizer)
    return cls(
      do_lower_case=tokenizer.basic_tokenizer.do_lower_case,
      version_2_with_negative=reading.version_2_with_negative,
      exact_text=exact if exact_answer_text else None,
      **fields,
    )


class _Span(NamedTuple):
  """Tokens `start` to `end` of a window; both are 0 for no answer."""

  window: int
  start: int
  end: int
  start_logit: float
  end_logit: float

  @property
  def score(self):
    return self.start_logit + self.end_logit


def answer_question(
  example: SquadExample,
  features: Sequence[InputFeatures],
  results: Sequence[RawResult],
  settings: DecodingSettings,
) -> Answer:
  """The answer to a question from all its windows (paper sections 4.2, 4.3).

  If no span is allowed, the answer in SQuAD 1.1 is NOTHING_ALLOWED, as in the
  original. In SQuAD 2.0, where the original crashes, it is "", with the odds
  NULL_FOR_SURE.

  Args:
    example: the question; only its `doc_tokens` are used.
    features: its windows.
    results: their logits, in the same order.
    settings: DecodingSettings.

  Raises:
    UserError: a logit is not finite.
  """
  starts = _logits(features, [result.start_logits for result in results])
  ends = _logits(features, [result.end_logits for result in results])
  spans = _ranked_spans(features, starts, ends, settings)
  null = None
  if settings.version_2_with_negative:
    null = _least_null(starts, ends)
    # Of equal scores, no answer comes last.
    spans = heapq.merge(spans, [null], key=lambda span: -span.score)
  text_of = _text_finder(example, features, settings)
  found = {}
  for span in spans:
    text = text_of(span) if span is not null else ""
    if text or span is null:
      found.setdefault(text, span)
    if len(found) == settings.n_best_size:
      break
  if null is not None:
    found.setdefault("", null)
  nbest = _candidates(found or {NOTHING_ALLOWED: _Span(0, 0, 0, 0.0, 0.0)})
  best = next((entry for entry in nbest if entry.text), None)
  if best is None:
    return Answer("", nbest, "", NULL_FOR_SURE)
  words = None
  if best.text in found:
    span = found[best.text]
    word_of = features[span.window].token_to_orig_map
    words = word_of[span.start], word_of[span.end]
  if null is None:
    return Answer(best.text, nbest, best.text, words=words)
  null_odds = null.score - best.start_logit - best.end_logit
  is_null = null_odds > settings.null_score_diff_threshold
  text = "" if is_null else best.text
  return Answer(text, nbest, best.text, null_odds, words)


def _logits(features, rows):
  """A question's logits, float [W, S] for W windows, padded at the end."""
  rows = [np.asarray(row) for row in rows]
  dtype = np.result_type(np.float32, *rows)
  logits = np.full(
    [len(rows), max(map(len, rows), default=0)], _LEAST_LOGIT, dtype
  )
  for window, (feature, row) in enumerate(zip(features, rows, strict=True)):
    logits[window, : len(row)] = row
    if len(row) < len(feature.tokens):
      raise ValueError(
        f"window {feature.unique_id} has {len(feature.tokens)} tokens, but "
        f"only {len(row)} logits"
      )
  finite = np.isfinite(logits)
  if not finite.all():
    window = np.flatnonzero(~finite.all(axis=1))[0]
    raise UserError(
      f"window {features[window].unique_id} has logits that are not finite; "
      f"train again with a lower --learning_rate"
    )
  return logits


def _least_null(starts, ends):
  """No answer, with the lowest score of all windows.

  An answer is in few windows; the others correctly score no answer high.
  """
  if not len(starts):
    return _Span(0, 0, 0, 0.0, 0.0)
  starts, ends = (logits[:, 0].astype(np.float64) for logits in (starts, ends))
  window = int(np.argmin(starts + ends))
  return _Span(window, 0, 0, float(starts[window]), float(ends[window]))


def _ranked_spans(features, starts, ends, settings):
  """Yields the allowed spans of a question, best first.

  Ties are broken by window, then by the rank of the start and of the end in
  the window; equal logits rank from left to right.

  Args:
    features: the W windows.
    starts, ends: float [W, S], logits.
    settings: DecodingSettings.
  """
  rows = np.arange(len(features))[:, np.newaxis]
  start_positions = np.argsort(-starts, axis=1, kind="stable")
  start_positions = start_positions[:, : settings.n_best_size]
  end_positions = np.argsort(-ends, axis=1, kind="stable")
  end_positions = end_positions[:, : settings.n_best_size]
  starts = starts[rows, start_positions].astype(np.float64)
  ends = ends[rows, end_positions].astype(np.float64)
  may_start = _look_up(
    [feature.token_is_max_context.get for feature in features], start_positions
  )
  may_end = _look_up(
    [feature.token_to_orig_map.__contains__ for feature in features],
    end_positions,
  )
  length = 1 + end_positions[:, np.newaxis] - start_positions[:, :, np.newaxis]
  allowed = (length >= 1) & (length <= settings.max_answer_length)
  allowed &= may_start[:, :, np.newaxis] & may_end[:, np.newaxis]
  scores = starts[:, :, np.newaxis] + ends[:, np.newaxis]
  ranked = np.flatnonzero(allowed)
  ranked = ranked[np.argsort(-scores.ravel()[ranked], kind="stable")]
  # Callers rarely need more than the first of these groups.
  for first in range(0, len(ranked), 2 * settings.n_best_size):
    window, start, end = np.unravel_index(
      ranked[first : first + 2 * settings.n_best_size], scores.shape
    )
    columns = (
      window,
      start_positions[window, start],
      end_positions[window, end],
      starts[window, start],
      ends[window, end],
    )
    yield from map(_Span, *(column.tolist() for column in columns))


def _look_up(functions, positions):
  """The value of each window's function at its positions, bool [W, n]."""
  values = [
    list(map(function, row))
    for function, row in zip(functions, positions.tolist(), strict=True)
  ]
  return np.array(values, bool).reshape(positions.shape)


def _candidates(found):
  """List of Candidate for a dict from text to span; softmax of the scores."""
  scores = [span.score for span in found.values()]
  best = max(scores)
  weights = [math.exp(score - best) for score in scores]
  total = sum(weights)
  return [
    Candidate(text, weight / total, span.start_logit, span.end_logit)
    for (text, span), weight in zip(found.items(), weights, strict=True)
  ]


def _text_finder(example, features, settings):
  """A function from a span, not that of no answer, to its text."""
  if settings.exact_text:
    return lambda span: settings.exact_text(
      example, features[span.window], span.start, span.end
    )
  is_sentencepiece = _is_sentencepiece(features)
  words = example.doc_tokens
  basic_words = [_basic_text(word, settings.do_lower_case) for word in words]

  def find(span):
    feature = features[span.window]
    pieces = feature.tokens[span.start : span.end + 1]
    if is_sentencepiece:
      text = "".join(pieces).replace(WORD_START, " ")
      text = _basic_text(text, settings.do_lower_case)
    else:
      text = " ".join(pieces).replace(" ##", "").replace("##", "")
      text = " ".join(text.split())
    first = feature.token_to_orig_map[span.start]
    end = feature.token_to_orig_map[span.end] + 1
    return _realigned(text, words[first:end], basic_words[first:end])

  return find


def _is_sentencepiece(features):
  """Whether question and paragraph begin with SentencePiece's mark."""
  return bool(features) and all(
    features[0].tokens[position].startswith(WORD_START)
    for position in (1, next(iter(features[0].token_to_orig_map), 1))
  )


@functools.lru_cache(maxsize=2**14)
def _basic_text(text, do_lower_case):
  """The words of the basic tokenizer, with blanks between them."""
  return " ".join(tokenization.BasicTokenizer(do_lower_case).tokenize(text))


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
  """The part of a text that the tokenizer turned into `pred_text`.

  The two are aligned by counting characters other than blanks. If the counts
  differ, because a character was dropped or became two, or a piece is unknown,
  the result is the whole text.

  Args:
    pred_text: words of the basic tokenizer, with blanks between them.
    orig_text: words of the paragraph, with blanks between them.
    do_lower_case: whether the tokenizer lower-cases.
  """
  words = orig_text.split(" ")
  basic_words = [_basic_text(word, do_lower_case) for word in words]
  return _realigned(pred_text, words, basic_words)


def _realigned(pred_text, words, basic_words):
  """`get_final_text` for words, given each word's basic tokens."""
  orig_text = " ".join(words)
  tokenized = " ".join(filter(None, basic_words))
  start = tokenized.find(pred_text)
  if start < 0 or not pred_text or " " in (pred_text[0], pred_text[-1]):
    return orig_text  # Blanks are not counted, so no end can be one.
  size = len(orig_text) - orig_text.count(" ")
  if size != len(tokenized) - tokenized.count(" "):
    return orig_text
  before = start - tokenized.count(" ", 0, start)
  inside = len(pred_text) - pred_text.count(" ")
  first = _offset_of_character(words, before)
  last = _offset_of_character(words, before + inside - 1)
  return orig_text[first : last + 1]


def _offset_of_character(words, count):
  """Offset in the joined words of the character after `count` others."""
  offset = 0
  for word in words:
    if count < len(word):
      break
    count -= len(word)
    offset += len(word) + 1
  return offset + count


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
  """Writes the original's files of answers; see `answer_writer`.

  Args:
    all_examples: the questions.
    all_features: their windows, in the order of the questions.
    all_results: the windows' logits, in any order; those that come early are
      held in memory.
    n_best_size, max_answer_length, do_lower_case, version_2_with_negative,
      null_score_diff_threshold: see DecodingSettings.
    output_prediction_file, output_nbest_file: paths.
    output_null_log_odds_file: path; written only if questions may have no
      answer.

  Raises:
    UserError: a logit is not finite.
    ValueError: a window has no result or no question, or comes too late.
  """
  settings = DecodingSettings(
    n_best_size=n_best_size,
    max_answer_length=max_answer_length,
    do_lower_case=do_lower_case,
    version_2_with_negative=version_2_with_negative,
    null_score_diff_threshold=null_score_diff_threshold,
  )
  take = _by_id(all_results)
  groups = itertools.groupby(all_features, lambda f: f.example_index)
  due, group = next(groups, (None, ()))
  with answer_writer(
    output_prediction_file,
    output_nbest_file,
    output_null_log_odds_file if version_2_with_negative else None,
  ) as write:
    for index, example in enumerate(all_examples):
      windows = []
      if due == index:
        windows = list(group)
        due, group = next(groups, (None, ()))
      results = [take(window.unique_id) for window in windows]
      answer = answer_question(example, windows, results, settings)
      write(example.qas_id, answer)
    if due is not None:
      raise ValueError(
        f"a window of example {due} comes after those of a later example, or "
        f"there is no such example"
      )


def _by_id(results):
  """A function that returns the result of an id, once."""
  results = iter(results)
  waiting = {}

  def take(unique_id):
    while unique_id not in waiting:
      result = next(results, None)
      if result is None:
        raise ValueError(f"window {unique_id} has no result")
      waiting[result.unique_id] = result
    return waiting.pop(unique_id)

  return take


@contextlib.contextmanager
def answer_writer(
  prediction_file: str | None,
  nbest_file: str | None,
  null_odds_file: str | None = None,
) -> Iterator[Callable[[str, Answer], None]]:
  """Yields a function that writes the answer to a question, given its id.

  The files are JSON in the original's layout. They appear at the end of the
  block, unless it raises an exception.

  Args:
    prediction_file: dict from id to text, or None not to write it.
    nbest_file: dict from id to list of candidates, or None.
    null_odds_file: dict from id to null odds, or None.
  """
  encoders = (
    (prediction_file, lambda answer: json.dumps(answer.text)),
    (nbest_file, lambda answer: _nbest_json(answer.nbest)),
    (null_odds_file, lambda answer: json.dumps(answer.null_odds)),
  )
  with contextlib.ExitStack() as stack:
    writers = [
      (stack.enter_context(_json_object(path)), encode)
      for path, encode in encoders
      if path is not None
    ]

    def write(qas_id, answer):
      for add, encode in writers:
        add(qas_id, encode(answer))

    yield write


@contextlib.contextmanager
def _json_object(path):
  """Yields a function that adds a key and a value in JSON to a file."""
  with (
    files.atomic_write(path) as partial,
    files.open_file(partial, "w") as file,
  ):
    separators = itertools.chain(["{\n"], itertools.repeat(",\n"))

    def add(key, value):
      file.write(f"{next(separators)}    {json.dumps(key)}: {value}")

    yield add
    file.write("{}\n" if next(separators) == "{\n" else "\n}\n")


def _nbest_json(nbest):
  # `json.dumps` is slow with an indent.
  entries = ",\n".join(
    f"        {{\n"
    f'            "text": {json.dumps(entry.text)},\n'
    f'            "probability": {entry.probability!r},\n'
    f'            "start_logit": {entry.start_logit!r},\n'
    f'            "end_logit": {entry.end_logit!r}\n'
    f"        }}"
    for entry in nbest
  )
  return f"[\n{entries}\n    ]"
