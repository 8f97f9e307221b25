"""SQuAD's questions, and the windows in which a model reads their paragraphs.

A paragraph is split into words at white space, and each word into pieces. A
window holds a question and as much of its paragraph as fits. A longer paragraph
is read in several overlapping windows (Devlin et al. 2019, sections 4.2 and
4.3).
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from absl import logging

import tokenization
from bert import strict_json
from bert.data import files, records, tables, text_files
from bert.errors import UserError, plural, shortened

FIRST_UNIQUE_ID = 1_000_000_000

# The original splits words at these characters only.
BLANKS = " \t\r\n\u202f"
_WORD = re.compile(f"[^{BLANKS}]+")

# The original trains on all pieces of the answer's words if the answer's own
# pieces are not among them. Words rarely have more pieces than this.
_MOST_PIECES = 16

# Number of words whose pieces are cached, about 100 MB.
_MAX_CACHED_WORDS = 2**18


@dataclasses.dataclass(frozen=True)
class ReadingSettings:
  """How questions and paragraphs are read; lengths are in pieces."""

  max_seq_length: int = 384  # of a window, S
  # Distance between the starts of two windows, at most the room in a window.
  doc_stride: int = 128
  max_query_length: int = 64  # longer questions are truncated
  version_2_with_negative: bool = False  # whether questions may have no answer

  def room_for_text(self, query_length: int, num_special: int = 3) -> int:
    """Number of pieces of a paragraph that fit beside a question."""
    room = self.max_seq_length - query_length - num_special
    if room < 2:
      raise UserError(
        f"--max_seq_length={self.max_seq_length} leaves no room for text "
        f"beside a question of {plural(query_length, 'piece')} and "
        f"{num_special} special tokens; raise it or lower --max_query_length"
      )
    return room


def join_words(text: str) -> str:
  """The words of a text, with one blank between them."""
  return " ".join(_WORD.findall(text))


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """A text that questions refer to, its words, and their offsets in it."""

  context: str
  doc_tokens: list[str]
  char_starts: list[int]
  title: str = ""

  @classmethod
  def of(cls, context: str, title: str = "") -> Paragraph:
    """Splits a text at blanks, tabs, newlines and U+202F."""
    words = list(_WORD.finditer(context))
    return cls(
      context, [word[0] for word in words], [w.start() for w in words], title
    )


@dataclasses.dataclass(eq=False)
class SquadExample:
  """A question on a paragraph."""

  qas_id: str  # unique in its file
  question_text: str
  doc_tokens: list[str] = dataclasses.field(repr=False)  # of the paragraph
  # The answer to train on; "" and -1 without one.
  orig_answer_text: str | None = None
  start_position: int | None = None  # index of its first word
  end_position: int | None = None  # index of its last word
  is_impossible: bool = False  # whether the paragraph does not answer it
  _: dataclasses.KW_ONLY
  # Shared by its questions. Default: the words, separated by blanks.
  paragraph: Paragraph | None = dataclasses.field(default=None, repr=False)
  answers: Sequence[str] = ()  # all reference answers
  answer_starts: Sequence[int | None] = ()  # in the paragraph, if known

  def __post_init__(self):
    if self.paragraph is None:
      self.paragraph = Paragraph.of(" ".join(self.doc_tokens))


@dataclasses.dataclass
class InputFeatures:
  """A window: [CLS] question [SEP] part of the paragraph [SEP]."""

  unique_id: int  # from FIRST_UNIQUE_ID
  example_index: int
  doc_span_index: int  # among the windows of the question
  tokens: list[str]
  # Position of each piece of the paragraph -> index of its word, and whether no
  # other window shows more context of the piece.
  token_to_orig_map: dict[int, int]
  token_is_max_context: dict[int, bool]
  input_ids: list[int]  # [S], padded with 0
  input_mask: list[int]  # [S], 1 for pieces and 0 for padding
  segment_ids: list[int]  # [S], 0 for the question and 1 for the paragraph
  # Positions of the answer's first and last piece; 0 unless the window has all
  # of it, None for prediction.
  start_position: int | None = None
  end_position: int | None = None
  is_impossible: bool | None = None
  # The Pieces of the paragraph, if known, and the index of the window's first.
  pieces: Pieces | None = dataclasses.field(
    default=None, repr=False, compare=False
  )
  first_piece: int = dataclasses.field(default=0, compare=False)

  def char_span(self, start: int, end: int) -> tuple[int, int]:
    """Start and end of the pieces at two positions in the paragraph's text."""
    before = len(self.tokens) - 1 - len(self.token_to_orig_map)
    offset = self.first_piece - before
    return tuple(
      self.pieces.offsets[position + offset][side]
      for side, position in enumerate((start, end))
    )


# Reading files.


def read_squad_examples(
  input_file: str,
  is_training: bool,
  version_2_with_negative: bool = False,
  on_text: Callable[[bytes], object] | None = None,
) -> list[SquadExample]:
  """The questions of a JSON file, plain or gzipped (.gz), in order.

  Training uses the first answer of a question. As in the original, it skips a
  question whose answer is not at its `answer_start`; unlike the original, also
  one whose answer is empty. `on_text` is called with the file's text in UTF-8.
  """
  examples, lost, locations = [], [], {}
  for where, question, paragraph in _questions(input_file, on_text):
    example = _parse_question(where, question, paragraph)
    if example.is_impossible and not version_2_with_negative:
      raise UserError(
        f'{where} has "is_impossible": true; pass --version_2_with_negative'
      )
    tables.note_id(example.qas_id, where, locations)
    if is_training and not _set_answer(where, question, example):
      lost.append(example)
    else:
      examples.append(example)
  if lost:
    logging.warning(
      "%s: skipping %s whose answer is not found at its answer_start; the "
      "first is %s, answer %r",
      input_file,
      plural(len(lost), "question"),
      lost[0].qas_id,
      shortened(lost[0].answers[0]),
    )
  remedy = "pass a file with questions"
  files.check_holds(examples, input_file, "questions to use", remedy)
  logging.info("%s: %s", input_file, plural(len(examples), "question"))
  return examples


def _questions(path, on_text):
  """Yields the location, the JSON object and the Paragraph of each question."""
  text = text_files.read_text(path)
  if on_text:
    on_text(text.encode())
  try:
    content = strict_json.loads(text)
  except ValueError as error:
    raise UserError(
      f"{path}: invalid JSON: {error}; pass a file in SQuAD's layout"
    ) from error
  for i, article in enumerate(_get(f"{path}: the file", content, "data", list)):
    where = f"{path}: data[{i}]"
    for j, parent in enumerate(_get(where, article, "paragraphs", list)):
      inner = f"{where}.paragraphs[{j}]"
      paragraph = Paragraph.of(
        _get(inner, parent, "context", str), str(article.get("title", ""))
      )
      for k, question in enumerate(_get(inner, parent, "qas", list)):
        yield f"{inner}.qas[{k}]", question, paragraph


def _get(where, parent, key, *types):
  """The value of a key in an object; UserError if it has none of the types."""
  value = parent.get(key) if isinstance(parent, dict) else None
  # isinstance would accept a bool as an int.
  if type(value) not in types:
    shown = "missing" if value is None else shortened(json.dumps(value))
    raise UserError(
      f'{where}: "{key}" is {shown}, not {strict_json.TYPE_NAMES[types[0]]}; '
      f"pass a file in SQuAD's layout"
    )
  # Half of a surrogate pair, which UTF-8 cannot represent, becomes "?".
  is_text = isinstance(value, str)
  return value.encode("utf-8", "replace").decode() if is_text else value


def _parse_question(where, question, paragraph):
  """The SquadExample of a question, without the answer to train on."""
  qas_id = str(_get(where, question, "id", str, int))
  is_impossible, answers = False, []
  if "is_impossible" in question:
    is_impossible = _get(where, question, "is_impossible", bool)
  if "answers" in question:
    answers = _get(where, question, "answers", list)
  texts = [
    _get(f"{where}.answers[{i}]", answer, "text", str)
    for i, answer in enumerate(answers)
  ]
  starts = [answer.get("answer_start") for answer in answers]
  return SquadExample(
    qas_id,
    _get(where, question, "question", str),
    paragraph.doc_tokens,
    is_impossible=is_impossible,
    paragraph=paragraph,
    answers=tuple(texts),
    answer_starts=tuple(s if type(s) is int else None for s in starts),
  )


def _set_answer(where, question, example):
  """Sets the answer to train on; returns whether it is in the paragraph."""
  if example.is_impossible:
    example.orig_answer_text = ""
    example.start_position = example.end_position = -1
    return True
  if not example.answers:
    raise UserError(
      f"{where} has no answer to train on; add one, or set "
      f'"is_impossible": true and pass --version_2_with_negative'
    )
  answer = example.orig_answer_text = example.answers[0]
  where = f"{where}.answers[0]"
  start = _get(where, question["answers"][0], "answer_start", int)
  example.start_position, example.end_position = (
    bisect.bisect_right(example.paragraph.char_starts, offset) - 1
    for offset in (start, start + len(answer) - 1)
  )
  if example.start_position < 0:  # Before the first word.
    return False
  if example.paragraph.context[start : start + len(answer)] == answer:
    return bool(answer.strip())
  span = slice(example.start_position, example.end_position + 1)
  words = tokenization.whitespace_tokenize(answer)
  return bool(words) and " ".join(words) in " ".join(example.doc_tokens[span])


# Windows.


class Pieces:
  """The word pieces of a paragraph, `tokens`, and their `ids`."""

  def __init__(self, paragraph, tokenize, tokenizer):
    self._paragraph, self._tokenizer = paragraph, tokenizer
    # `words` has the index of each piece's word. `starts` has the index of each
    # word's first piece, or of the next piece, and the number of pieces.
    self.tokens, self.words, self.starts = [], [], [0]
    if tokenizer.splits_words:
      self._split_words(tokenize)
    else:
      self._split_text()
    self.ids = tokenizer.convert_tokens_to_ids(self.tokens)

  def _split_words(self, tokenize):
    for index, word in enumerate(self._paragraph.doc_tokens):
      pieces = tokenize(word)
      self.tokens += pieces
      self.words += [index] * len(pieces)
      self.starts.append(len(self.tokens))

  def _split_text(self):
    """Splits a text whose pieces may contain, or be, blanks between words."""
    words = self._paragraph
    self.tokens = self._tokenizer.tokenize(words.context)
    begins = [start for start, _ in self.offsets]
    self.words = [
      max(bisect.bisect_right(words.char_starts, begin) - 1, 0)
      for begin in begins
    ]
    self.starts += [
      bisect.bisect_right(self.words, index)
      for index in range(len(words.doc_tokens))
    ]

  @functools.cached_property
  def offsets(self) -> list[tuple[int, int]]:
    """Start and end of each piece in the paragraph's text."""
    words = self._paragraph
    if not self._tokenizer.splits_words:
      return self._tokenizer.offsets(words.context)
    return [
      (start + begin, start + end)
      for word, start in zip(words.doc_tokens, words.char_starts, strict=True)
      for begin, end in self._tokenizer.offsets(word)
    ]


class WindowMaker:
  """Makes the windows of questions; one tokenization for each paragraph."""

  def __init__(
    self, tokenizer: tokenization.FullTokenizer, settings: ReadingSettings
  ):
    self._tokenizer = tokenizer
    self._settings = settings
    self._tokenize = functools.lru_cache(_MAX_CACHED_WORDS)(tokenizer.tokenize)
    self._doc_tokens = self._pieces = None
    self._indices = itertools.count()
    self._unique_ids = itertools.count(FIRST_UNIQUE_ID)

  def __call__(
    self, example: SquadExample, is_training: bool
  ) -> list[InputFeatures]:
    """The windows of a question; in training, with the answer's positions."""
    tokenizer, settings = self._tokenizer, self._settings
    if example.doc_tokens is not self._doc_tokens:
      self._doc_tokens = example.doc_tokens
      self._pieces = Pieces(example.paragraph, self._tokenize, tokenizer)
    query = tokenizer.tokenize(example.question_text)
    query = query[: settings.max_query_length]
    windows = _windows(self._pieces, query, tokenizer, settings)
    answer, index = None, next(self._indices)
    if is_training and not example.is_impossible:
      answer = _answer_span(example, self._pieces, tokenizer)
    before = 1 + tokenizer.special.between + len(query)
    for features in windows:
      features.unique_id = next(self._unique_ids)
      features.example_index = index
      features.is_impossible = example.is_impossible
      if is_training:
        _set_positions(features, answer, before - features.first_piece)
    return windows


def _answer_span(example, pieces, tokenizer):
  """Indices of the first and the last piece of the answer.

  Its words may contain more than the answer: "(1895-1943)." contains "1895". If
  the answer's own pieces occur among the pieces of its words, they are the
  span: the occurrence at the answer's offset, if known, or else the first.
  """
  first = pieces.starts[example.start_position]
  last = pieces.starts[example.end_position + 1] - 1
  answer = tokenizer.tokenize(example.orig_answer_text)
  tokens, size = pieces.tokens, len(answer)
  offset = (example.answer_starts or [None])[0]
  if offset is not None and not tokenizer.splits_words:
    return _pieces_inside(example, pieces, first, last)
  begin = first + len(tokenizer.tokenize(_text_before(example)))
  stop = last - size + 2
  for start in (*range(begin, stop), *range(first, stop)) if answer else ():
    if tokens[start] == answer[0] and tokens[start : start + size] == answer:
      return start, start + size - 1
  if offset is None or last - first < size + _MOST_PIECES:
    return first, last
  # In text without blanks, a "word" is a sentence, or the whole paragraph.
  return _pieces_inside(example, pieces, first, last)


def _pieces_inside(example, pieces, first, last):
  """The first and last piece, of these, with characters of the answer."""
  start = example.answer_starts[0]
  end = start + len(example.orig_answer_text)
  spans = pieces.offsets
  inside = [i for i in range(first, last + 1) if spans[i][1] > start]
  inside = [i for i in inside if spans[i][0] < end]
  return (inside[0], inside[-1]) if inside else (first, last)


def _text_before(example):
  """The part of the answer's first word before the answer; "" if unknown."""
  if not example.answer_starts or example.answer_starts[0] is None:
    return ""
  offset = example.paragraph.char_starts[example.start_position]
  word = example.doc_tokens[example.start_position]
  return word[: max(example.answer_starts[0] - offset, 0)]


def _set_positions(features, answer, offset):
  """Sets the answer's positions in a window; 0 unless it contains all of it."""
  positions = [piece + offset for piece in answer or ()]
  if not answer or not set(positions) <= features.token_to_orig_map.keys():
    positions = [0, 0]
  features.start_position, features.end_position = positions


def _windows(pieces, query, tokenizer, settings):
  """The InputFeatures of a question, without its ids and its answer."""
  special = tokenizer.special
  room = settings.room_for_text(len(query), special.count(2))
  question = [special.cls, *query, *[special.sep] * special.between]
  question_ids = tokenizer.convert_tokens_to_ids(question)
  size, first = len(pieces.tokens), len(question)
  stride = min(settings.doc_stride, room)
  starts = range(0, max(size - room, 0) + stride, stride)[:size]
  owners = _owners(size, room, starts) if len(starts) > 1 else None
  windows = []
  for span, start in enumerate(starts):
    end = min(start + room, size)
    last = first + end - start  # Position of the second [SEP].
    padding = [0] * (settings.max_seq_length - last - 1)
    words = dict(zip(range(first, last), pieces.words[start:end], strict=True))
    if owners is None:
      is_max_context = dict.fromkeys(words, True)
    else:
      is_owner = (owners[start:end] == span).tolist()
      is_max_context = dict(zip(words, is_owner, strict=True))
    ids = [*question_ids, *pieces.ids[start:end], question_ids[-1]]
    features = InputFeatures(
      unique_id=0,  # Set by WindowMaker.
      example_index=0,  # Set by WindowMaker.
      doc_span_index=span,
      tokens=[*question, *pieces.tokens[start:end], special.sep],
      token_to_orig_map=words,
      token_is_max_context=is_max_context,
      input_ids=ids + padding,
      input_mask=[1] * (last + 1) + padding,
      segment_ids=[0] * first
      + [int(special.has_segments)] * (end - start + 1)
      + padding,
      pieces=pieces,
      first_piece=start,
    )
    windows.append(features)
  return windows


def _owners(size, room, starts):
  """Index of the window in which each piece has most context, int [size].

  As in the original, the context is the smaller one of both sides, plus a
  little for the length of the window. The first of equal windows wins.
  """
  best = np.full(size, -1.0)
  owners = np.zeros(size, np.int64)
  for index, start in enumerate(starts):
    end = min(start + room, size)
    offsets = np.arange(end - start)
    scores = np.minimum(offsets, offsets[::-1]) + 0.01 * (end - start)
    is_better = scores > best[start:end]
    best[start:end][is_better] = scores[is_better]
    owners[start:end][is_better] = index
  return owners


def convert_examples_to_features(
  examples: Iterable[SquadExample],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
  doc_stride: int,
  max_query_length: int,
  is_training: bool,
  output_fn: Callable[[InputFeatures], object],
) -> None:
  """Calls `output_fn` with each window; see `WindowMaker`."""
  settings = ReadingSettings(max_seq_length, doc_stride, max_query_length)
  make_windows = WindowMaker(tokenizer, settings)
  for example in examples:
    for features in make_windows(example, is_training):
      output_fn(features)


# Rows.


def feature_spec(max_seq_length: int, is_training: bool) -> records.Spec:
  """The spec of a window's row."""
  sequences = records.sequence_spec(max_seq_length)
  spec = {"unique_ids": records.Feature(), **sequences}
  if is_training:
    for name in ("start_positions", "end_positions", "is_impossible"):
      spec[name] = records.Feature()
  return spec


def feature_row(features: InputFeatures) -> Mapping[str, object]:
  """The row of a window."""
  return {
    **vars(features),
    "unique_ids": features.unique_id,
    "start_positions": features.start_position,
    "end_positions": features.end_position,
    "is_impossible": int(bool(features.is_impossible)),
  }


class FeatureWriter(contextlib.ExitStack):
  """Writes windows to a TFRecord file, and counts them as `num_features`.

  The file `filename` appears when `close` is called, or a `with` block ends.
  """

  def __init__(self, filename: str, is_training: bool):
    super().__init__()
    self.filename, self.is_training = filename, is_training
    self.num_features = 0
    self._file = self.enter_context(files.open_atomic(filename))

  def process_feature(self, feature: InputFeatures) -> None:
    spec = feature_spec(len(feature.input_ids), self.is_training)
    row = records.encode_row(feature_row(feature), spec)
    self._file.write(records.framed(row))
    self.num_features += 1
