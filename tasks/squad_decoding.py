"""From SQuAD's logits to answers, and the files of answers.

    for example, answer in answer_all(examples, features, results, settings):
      print(example.question_text, answer.text)

The decoding is the original's, to the last digit; what it leaves out, and the
cases in which it crashed, are said at `answer_question`.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tokenization
from errors import UserError
from pipeline import files
from tasks.squad import InputFeatures, SquadExample

# The odds of no answer where there is nothing else to say. JSON has no
# infinity, and no two logits come near this.
NULL_FOR_SURE = 1e6

# What the original answers, in SQuAD 1.1, where no span is allowed.
NOTHING_ALLOWED = "empty"

# Pads the logits of shorter windows. Two of them do not overflow.
_LEAST_LOGIT = float(np.finfo(np.float32).min)

# Begins the pieces of a SentencePiece model that begin a word.
_WORD_START = "\u2581"


class RawResult(NamedTuple):
  """What the model says of one window.

  Attributes:
    unique_id: the window's.
    start_logits, end_logits: float [S], lists or arrays, where S is no less
      than the number of the window's tokens.
  """

  unique_id: int
  start_logits: Sequence[float] | np.ndarray
  end_logits: Sequence[float] | np.ndarray


class Candidate(NamedTuple):
  """An answer of the n best; its fields are the keys of the JSON file."""

  text: str
  probability: float
  start_logit: float
  end_logit: float


class Answer(NamedTuple):
  """What is answered to a question.

  Attributes:
    text: the answer; "" says that there is none.
    nbest: list of Candidate, the best first.
    best_text: text of the best candidate that has one, whatever the odds.
    null_odds: by how much no answer beats `best_text`, in logits; None in
      SQuAD 1.1, where each question has an answer.
    place: where `best_text` stands: the number of the window among the
      question's, and the positions of its first and last token; None if it is
      not from a window.
  """

  text: str
  nbest: list[Candidate]
  best_text: str
  null_odds: float | None = None
  place: tuple[int, int, int] | None = None


@dataclasses.dataclass(frozen=True)
class DecodingSettings:
  """How answers are found in logits.

  Attributes:
    n_best_size: how many starts and ends of each window are tried, and how
      many answers are listed.
    max_answer_length: in word pieces.
    do_lower_case: whether the tokenizer lower-cased.
    version_2_with_negative: whether questions may have no answer.
    null_score_diff_threshold: no answer is given where its odds are larger.
    exact_text: function of (example, feature, start, end) to the text from
      token `start` to token `end` of a window; None for the original's way.

  Raises:
    ValueError: a size is not positive.
  """

  n_best_size: int = 20
  max_answer_length: int = 30
  do_lower_case: bool = True
  version_2_with_negative: bool = False
  null_score_diff_threshold: float = 0.0
  exact_text: Callable[[SquadExample, InputFeatures, int, int], str] | None = (
    None
  )

  def __post_init__(self):
    for name in ("n_best_size", "max_answer_length"):
      if getattr(self, name) < 1:
        raise UserError(
          f"--{name}={getattr(self, name)} is less than 1; no answer could "
          f"be given"
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
  """The answer to one question, from all its windows (paper section 4.2, 4.3).

  The original crashes if questions may have no answer and no span of this one
  is allowed; here the answer is "", with NULL_FOR_SURE as its odds. Without
  such questions the answer is NOTHING_ALLOWED, as in the original.

  Args:
    example: has `doc_tokens`, the words of the context.
    features: the question's windows.
    results: the windows' logits, in the same order.
    settings: a DecodingSettings.

  Raises:
    ValueError: there are fewer logits than tokens, or one is not finite.
  """
  starts = _logits(features, [result.start_logits for result in results])
  ends = _logits(features, [result.end_logits for result in results])
  spans = _ranked_spans(features, starts, ends, settings)
  null = None
  if settings.version_2_with_negative:
    null = _least_null(starts, ends)
    spans = _with_null(spans, null)
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
  span = found.get(best.text)
  place = span and (span.window, span.start, span.end)
  if null is None:
    return Answer(best.text, nbest, best.text, place=place)
  null_odds = null.score - best.start_logit - best.end_logit
  is_null = null_odds > settings.null_score_diff_threshold
  text = "" if is_null else best.text
  return Answer(text, nbest, best.text, null_odds, place)


def _logits(features, rows):
  """A question's logits, float [W, S], with W windows, padded at the end."""
  rows = [np.asarray(row) for row in rows]
  dtype = np.result_type(np.float32, *rows)
  logits = np.full(
    [len(rows), max(map(len, rows), default=0)], _LEAST_LOGIT, dtype
  )
  for window, (feature, row) in enumerate(zip(features, rows, strict=True)):
    logits[window, : len(row)] = row
    if len(row) < len(feature.tokens):
      raise UserError(
        f"window {feature.unique_id} has {len(feature.tokens)} tokens, but "
        f"only {len(row)} logits"
      )
  finite = np.isfinite(logits)
  if not finite.all():
    window = np.flatnonzero(~finite.all(axis=1))[0]
    raise UserError(
      f"window {features[window].unique_id} has logits that are not finite; "
      f"was the model trained with too high a --learning_rate?"
    )
  return logits


def _least_null(starts, ends):
  """No answer, scored by the window that is least for it."""
  if not len(starts):
    return _Span(0, 0, 0, 0.0, 0.0)
  # An answer stands in one window; the others rightly say that they have none.
  starts, ends = (logits[:, 0].astype(np.float64) for logits in (starts, ends))
  window = int(np.argmin(starts + ends))
  return _Span(window, 0, 0, float(starts[window]), float(ends[window]))


def _with_null(spans, null):
  """The spans with `null` behind all that are no worse."""
  is_due = True
  for span in spans:
    if is_due and span.score < null.score:
      yield null
      is_due = False
    yield span
  if is_due:
    yield null


def _ranked_spans(features, starts, ends, settings):
  """Yields the allowed spans of a question, the best first.

  Of equal spans the earlier window's is first, then that of the better start
  and the better end, and of equal ones these, the one further left.

  Args:
    features: the W windows.
    starts, ends: float [W, S], logits.
    settings: a DecodingSettings.
  """
  rows = np.arange(len(features))[:, np.newaxis]
  start_places = np.argsort(-starts, axis=1, kind="stable")
  start_places = start_places[:, : settings.n_best_size]
  end_places = np.argsort(-ends, axis=1, kind="stable")
  end_places = end_places[:, : settings.n_best_size]
  starts = starts[rows, start_places].astype(np.float64)
  ends = ends[rows, end_places].astype(np.float64)
  may_start = _look_up(
    [feature.token_is_max_context.get for feature in features], start_places
  )
  may_end = _look_up(
    [feature.token_to_orig_map.__contains__ for feature in features], end_places
  )
  length = 1 + end_places[:, np.newaxis] - start_places[:, :, np.newaxis]
  allowed = (length >= 1) & (length <= settings.max_answer_length)
  allowed &= may_start[:, :, np.newaxis] & may_end[:, np.newaxis]
  scores = starts[:, :, np.newaxis] + ends[:, np.newaxis]
  ranked = np.flatnonzero(allowed)
  ranked = ranked[np.argsort(-scores.ravel()[ranked], kind="stable")]
  # Most are never looked at, so they are made Spans a few at a time.
  for first in range(0, len(ranked), 2 * settings.n_best_size):
    window, start, end = np.unravel_index(
      ranked[first : first + 2 * settings.n_best_size], scores.shape
    )
    columns = (
      window,
      start_places[window, start],
      end_places[window, end],
      starts[window, start],
      ends[window, end],
    )
    yield from map(_Span, *(column.tolist() for column in columns))


def _look_up(questions, places):
  """What each window's function says of its places, bool [W, n]."""
  answers = [
    list(map(question, row))
    for question, row in zip(questions, places.tolist(), strict=True)
  ]
  return np.array(answers, bool).reshape(places.shape)


def _candidates(found):
  """List of Candidate of a dict from text to span; softmax of the scores."""
  scores = [span.score for span in found.values()]
  best = max(scores)
  weights = [math.exp(score - best) for score in scores]
  total = sum(weights)
  return [
    Candidate(text, weight / total, span.start_logit, span.end_logit)
    for (text, span), weight in zip(found.items(), weights, strict=True)
  ]


def _text_finder(example, features, settings):
  """A function from a span that is an answer to its text."""
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
      text = "".join(pieces).replace(_WORD_START, " ")
      text = _basic_text(text, settings.do_lower_case)
    else:
      text = " ".join(pieces).replace(" ##", "").replace("##", "")
      text = " ".join(text.split())
    first = feature.token_to_orig_map[span.start]
    behind = feature.token_to_orig_map[span.end] + 1
    return _realigned(text, words[first:behind], basic_words[first:behind])

  return find


def _is_sentencepiece(features):
  """Whether the question and the context begin as SentencePiece has it."""
  return bool(features) and all(
    features[0].tokens[place].startswith(_WORD_START)
    for place in (1, next(iter(features[0].token_to_orig_map), 1))
  )


@functools.lru_cache(maxsize=2**14)
def _basic_text(text, do_lower_case):
  """What the basic tokenizer makes of a text, with blanks between."""
  return " ".join(tokenization.BasicTokenizer(do_lower_case).tokenize(text))


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
  """The part of a text that the tokenizer turned into `pred_text`.

  The two are matched by counting characters other than blanks. Where that
  fails, because a character vanished or became two, or a piece is unknown, it
  is the whole text.

  Args:
    pred_text: words of the basic tokenizer, with blanks between.
    orig_text: words of the context, with blanks between.
    do_lower_case: whether the tokenizer lower-cased.
  """
  words = orig_text.split(" ")
  basic_words = [_basic_text(word, do_lower_case) for word in words]
  return _realigned(pred_text, words, basic_words)


def _realigned(pred_text, words, basic_words):
  """`get_final_text` of words and of what the basic tokenizer makes of each."""
  orig_text = " ".join(words)
  tokenized = " ".join(filter(None, basic_words))
  start = tokenized.find(pred_text)
  if start < 0 or not pred_text or " " in (pred_text[0], pred_text[-1]):
    return orig_text  # Or it begins or ends at nothing that is counted.
  size = len(orig_text) - orig_text.count(" ")
  if size != len(tokenized) - tokenized.count(" "):
    return orig_text
  before = start - tokenized.count(" ", 0, start)
  inside = len(pred_text) - pred_text.count(" ")
  first = _place_of_character(words, before)
  last = _place_of_character(words, before + inside - 1)
  return orig_text[first : last + 1]


def _place_of_character(words, count):
  """Where in the joined words the character is that has `count` before it."""
  place = 0
  for word in words:
    if count < len(word):
      break
    count -= len(word)
    place += len(word) + 1
  return place + count


def answer_all(
  examples: Iterable[SquadExample],
  features: Iterable[InputFeatures],
  results: Iterable[RawResult],
  settings: DecodingSettings,
) -> Iterator[tuple[SquadExample, Answer]]:
  """Yields each example with its answer, as soon as it is known.

  Of what comes in the order of the examples, one question's is held at a time.

  Args:
    examples: the questions.
    features: their windows, in the order of the examples.
    results: the windows' logits in any order; what comes before its turn is
      held until then.
    settings: a DecodingSettings.

  Raises:
    ValueError: a window has no result, fewer logits than tokens or one that is
      not finite; the windows are not in the order of the examples.
  """
  take = _by_id(results)
  questions = itertools.groupby(features, lambda feature: feature.example_index)
  due, windows = next(questions, (None, ()))
  for index, example in enumerate(examples):
    mine = []
    if due == index:
      mine = list(windows)
      due, windows = next(questions, (None, ()))
    if due is not None and due <= index:
      raise UserError(
        f"windows of example {due} come after those of example {index}; they "
        f"must be in the order of the examples"
      )
    logits = [take(window.unique_id) for window in mine]
    yield example, answer_question(example, mine, logits, settings)
  if due is not None:
    raise UserError(f"there are windows of example {due}, but no such example")


def _by_id(results):
  """A function that gives the result of an id, once."""
  results = iter(results)
  waiting = {}

  def take(unique_id):
    while unique_id not in waiting:
      result = next(results, None)
      if result is None:
        raise UserError(f"window {unique_id} has no result")
      waiting[result.unique_id] = result
    return waiting.pop(unique_id)

  return take


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
  """Writes the original's three files; see `answer_all` and `answer_writer`.

  Args:
    all_examples, all_features, all_results: as `answer_all` takes them.
    n_best_size, max_answer_length, do_lower_case, version_2_with_negative,
      null_score_diff_threshold: see DecodingSettings.
    output_prediction_file, output_nbest_file: where to.
    output_null_log_odds_file: where to; written only if questions may have no
      answer.

  Raises:
    ValueError: see `answer_all` and DecodingSettings.
  """
  settings = DecodingSettings(
    n_best_size=n_best_size,
    max_answer_length=max_answer_length,
    do_lower_case=do_lower_case,
    version_2_with_negative=version_2_with_negative,
    null_score_diff_threshold=null_score_diff_threshold,
  )
  with answer_writer(
    output_prediction_file,
    output_nbest_file,
    output_null_log_odds_file if version_2_with_negative else None,
  ) as write:
    for example, answer in answer_all(
      all_examples, all_features, all_results, settings
    ):
      write(example.qas_id, answer)


@contextlib.contextmanager
def answer_writer(
  prediction_file: str | None,
  nbest_file: str | None,
  null_odds_file: str | None = None,
) -> Iterator[Callable[[str, Answer], None]]:
  """Yields a function that writes the answer to a question, given its id.

  The files are JSON as the original lays it out. They appear whole at the end,
  or, after an exception, not at all.

  Args:
    prediction_file: for a dict from id to text; None: not written.
    nbest_file: for a dict from id to list of candidates; None: not written.
    null_odds_file: for a dict from id to odds; None: not written.
  """
  encoders = (
    (prediction_file, lambda answer: json.dumps(answer.text)),
    (nbest_file, lambda answer: _nbest_json(answer.nbest)),
    (null_odds_file, lambda answer: json.dumps(answer.null_odds)),
  )
  with contextlib.ExitStack() as stack:
    files = [
      (stack.enter_context(_json_object(path)), encode)
      for path, encode in encoders
      if path is not None
    ]

    def write(qas_id, answer):
      for add, encode in files:
        add(qas_id, encode(answer))

    yield write


@contextlib.contextmanager
def _json_object(path):
  """Yields a function that adds a key and a value, already JSON, to a file."""
  with (
    files.atomic_write(path) as partial,
    tf.io.gfile.GFile(partial, "w") as file,
  ):
    separators = itertools.chain(["{\n"], itertools.repeat(",\n"))

    def add(key, value):
      file.write(f"{next(separators)}    {json.dumps(key)}: {value}")

    yield add
    file.write("{}\n" if next(separators) == "{\n" else "\n}\n")


def _nbest_json(nbest):
  # `json.dumps` with an indent is Python's slow encoder.
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
