"""SQuAD's questions, and the windows in which a model reads their paragraphs.

A paragraph is split into words at white space, and each word into pieces. A
window holds a question and as much of its paragraph as fits. A longer paragraph
is read in several overlapping windows (Devlin et al. 2019, sections 4.2 and
4.3).
"""

import bisect
import contextlib
import dataclasses
import gzip
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

import tokenization
from errors import UserError, plural, shortened
from pipeline import files, records, text_files

FIRST_UNIQUE_ID = 1_000_000_000

# The original splits words at these characters only.
_WORD = re.compile("[^ \t\r\n\u202f]+")

# JSON types in error messages.
_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string"}
_TYPE_NAMES |= {int: "a whole number", bool: "true or false"}

# Words whose pieces are cached, about 100 MB.
_MAX_CACHED_WORDS = 2**18

# SentencePiece marks the start of a word with it.
WORD_START = "\u2581"


@dataclasses.dataclass(frozen=True)
class ReadingSettings:
  """How questions and paragraphs are read.

  Attributes:
    max_seq_length: length of a window in pieces, S.
    doc_stride: number of pieces between the starts of two windows.
    max_query_length: longer questions are truncated to as many pieces.
    version_2_with_negative: whether questions may have no answer.

  Raises:
    UserError: the windows of a long question would not overlap.
  """

  max_seq_length: int = 384
  doc_stride: int = 128
  max_query_length: int = 64
  version_2_with_negative: bool = False

  def __post_init__(self):
    _room_for_text(self.max_seq_length, self.doc_stride, self.max_query_length)

  def windows(
    self, examples: Iterable["SquadExample"], tokenizer, is_training: bool
  ) -> Iterator[list["InputFeatures"]]:
    """Yields the windows of each question; see `iterate_windows`."""
    return iterate_windows(
      examples,
      tokenizer,
      self.max_seq_length,
      self.doc_stride,
      self.max_query_length,
      is_training,
    )


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """A text that questions refer to.

  Attributes:
    context: the text.
    doc_tokens: its words.
    char_starts: the offset of each word in the text.
    title: the title of its article.
  """

  context: str
  doc_tokens: list[str]
  char_starts: list[int]
  title: str = ""

  @classmethod
  def of(cls, context: str, title: str = "") -> "Paragraph":
    """Splits a text at blanks, tabs, newlines and U+202F."""
    words = list(_WORD.finditer(context))
    return cls(
      context, [word[0] for word in words], [w.start() for w in words], title
    )


@dataclasses.dataclass
class SquadExample:
  """A question on a paragraph.

  Attributes:
    qas_id: id of the question, unique in its file.
    question_text: the question.
    doc_tokens: the words of the paragraph.
    orig_answer_text: the answer, "" if there is none; None for prediction.
    start_position: index of the answer's first word, -1 if there is no answer;
      None for prediction.
    end_position: index of its last word, likewise.
    is_impossible: whether the paragraph does not answer the question.
    paragraph: the paragraph, shared by its questions. Default: the words with
      blanks between them.
    answers: the texts of all reference answers.
    answer_starts: their offsets in the paragraph, or None where unknown.
  """

  qas_id: str
  question_text: str
  doc_tokens: list[str] = dataclasses.field(repr=False)
  orig_answer_text: str | None = None
  start_position: int | None = None
  end_position: int | None = None
  is_impossible: bool = False
  _: dataclasses.KW_ONLY
  paragraph: Paragraph | None = dataclasses.field(default=None, repr=False)
  answers: Sequence[str] = ()
  answer_starts: Sequence[int | None] = ()

  def __post_init__(self):
    if self.paragraph is None:
      self.paragraph = Paragraph.of(" ".join(self.doc_tokens))


@dataclasses.dataclass
class InputFeatures:
  """A window: [CLS] question [SEP] part of the paragraph [SEP].

  Attributes:
    unique_id: its number, from FIRST_UNIQUE_ID.
    example_index: index of its question.
    doc_span_index: its index among the windows of the question.
    tokens: the word pieces.
    token_to_orig_map: dict from each position of a paragraph's piece to the
      index of the piece's word.
    token_is_max_context: dict from each of these positions to whether no other
      window shows more context of the piece.
    input_ids: ids of the pieces [S], padded with 0.
    input_mask: [S], 1 for pieces and 0 for padding.
    segment_ids: [S], 0 for the question and 1 for the paragraph.
    start_position: position of the answer's first piece, 0 if the window does
      not contain the whole answer; None for prediction.
    end_position: position of its last piece, likewise.
    is_impossible: whether the paragraph does not answer the question.
    cut_pieces: number of pieces of the window's first word that come before
      the window.
  """

  unique_id: int
  example_index: int
  doc_span_index: int
  tokens: list[str]
  token_to_orig_map: dict[int, int]
  token_is_max_context: dict[int, bool]
  input_ids: list[int]
  input_mask: list[int]
  segment_ids: list[int]
  start_position: int | None = None
  end_position: int | None = None
  is_impossible: bool | None = None
  cut_pieces: int = 0


# Reading files.


def read_squad_examples(
  input_file: str, is_training: bool, version_2_with_negative: bool = False
) -> list[SquadExample]:
  """Reads the questions of a file, in order.

  Training uses the first answer of a question. As in the original, it leaves
  out a question whose answer is empty or not found at its `answer_start`; a
  warning gives the number of such questions. Prediction keeps all questions.

  Args:
    input_file: JSON in the layout of SQuAD 1.1 or 2.0, plain or gzipped (.gz).
    is_training: whether answers are needed.
    version_2_with_negative: whether questions may have no answer.

  Raises:
    UserError: the file is missing, has another layout or the same id twice, or
      the last argument does not suit it.
  """
  parser = _Parser(input_file, is_training, version_2_with_negative)
  examples = list(parser.examples(_read_json(input_file)))
  parser.report(examples)
  return examples


def _read_json(path):
  if not files.isfile(path):
    raise UserError(f"{path}: no such file; check the path")
  content = files.read_bytes(path)
  if path.lower().endswith(".gz"):
    try:
      content = gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
      raise UserError(
        f"{path} is not a complete gzip file: {error}; download it again"
      ) from error
  text = text_files.decode_utf8(path, content)
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as error:
    where, problem = path, str(error)
    if isinstance(error, json.JSONDecodeError):
      where = f"{path}:{error.lineno}"
      problem = f"{error.msg} (column {error.colno})"
    raise UserError(
      f"{where}: invalid JSON: {problem}; pass a file in SQuAD's layout"
    ) from error


class _Parser:
  """Turns the JSON of a file into examples.

  Attributes:
    locations: dict from the id of each question to its location in the file.
    not_found: (id, answer) of each question that is left out because its answer
      is not in the paragraph.
    misplaced: (id, answer) of each other question whose answer does not start
      at `answer_start`.
    has_impossible: whether any question has the key "is_impossible".
  """

  def __init__(self, path, is_training, version_2_with_negative):
    self.path = path
    self.is_training = is_training
    self.version_2_with_negative = version_2_with_negative
    self.locations = {}
    self.not_found = []
    self.misplaced = []
    self.has_impossible = False

  def examples(self, content):
    """Yields the SquadExamples of the file's content."""
    for i, article in enumerate(self.get("the file", content, "data", list)):
      paragraphs = self.get(f"data[{i}]", article, "paragraphs", list)
      title = article.get("title")
      for j, parent in enumerate(paragraphs):
        where = f"data[{i}].paragraphs[{j}]"
        paragraph = Paragraph.of(
          self.get(where, parent, "context", str),
          title if isinstance(title, str) else "",
        )
        for k, question in enumerate(self.get(where, parent, "qas", list)):
          example = self.example(f"{where}.qas[{k}]", question, paragraph)
          if self.is_usable(example):
            yield example

  def example(self, where, question, paragraph):
    """The SquadExample of a question."""
    example = SquadExample(
      self.unique_id(where, question),
      self.get(where, question, "question", str),
      paragraph.doc_tokens,
      is_impossible=self.is_impossible(where, question),
      paragraph=paragraph,
    )
    answers = []
    if "answers" in question:
      answers = self.get(where, question, "answers", list)
    example.answers = tuple(
      self.get(f"{where}.answers[{i}]", answer, "text", str)
      for i, answer in enumerate(answers)
    )
    starts = [answer.get("answer_start") for answer in answers]
    example.answer_starts = tuple(
      start if type(start) is int else None for start in starts
    )
    if self.is_training and example.is_impossible:
      example.orig_answer_text = ""
      example.start_position = example.end_position = -1
    elif self.is_training:
      self.locate_answer(where, example, answers)
    return example

  def locate_answer(self, where, example, answers):
    """Sets the answer to train on, and the words that it spans."""
    if not answers:
      self.fail(
        f"{where} has no answer to train on; add one, or set "
        f'"is_impossible": true and pass --version_2_with_negative'
      )
    where = f"{where}.answers[0]"
    start = self.get(where, answers[0], "answer_start", int)
    paragraph = example.paragraph
    size = len(paragraph.context)
    if not 0 <= start < size:
      self.fail(
        f'{where}: "answer_start" is {start} in a context of '
        f"{plural(size, 'character')}; count from 0"
      )
    example.orig_answer_text = example.answers[0]
    end = min(start + len(example.answers[0]), size)
    example.start_position, example.end_position = (
      bisect.bisect_right(paragraph.char_starts, offset) - 1
      for offset in (start, end - 1)
    )

  def is_usable(self, example):
    """Whether to keep an example; notes answers that are not in their place."""
    answers = example.answers
    if self.is_training:
      if example.is_impossible:
        return True
      answers = answers[:1]
      span = slice(example.start_position, example.end_position + 1)
      words = tokenization.whitespace_tokenize(answers[0])
      found = " ".join(example.doc_tokens[span])
      if not words or " ".join(words) not in found:
        self.not_found.append((example.qas_id, answers[0]))
        return False
    context = example.paragraph.context
    for answer, start in zip(answers, example.answer_starts, strict=False):
      if start is not None and (
        start < 0 or not context.startswith(answer, start)
      ):
        self.misplaced.append((example.qas_id, answer))
        break
    return True

  def unique_id(self, where, question):
    """The id of a question; a number, as some tools write, becomes a string."""
    found = str(self.get(where, question, "id", str, int))
    if found in self.locations:
      self.fail(
        f"{self.locations[found]} and {where} have the same id "
        f"{shortened(found)!r}; change one"
      )
    self.locations[found] = where
    return found

  def is_impossible(self, where, question):
    """The value of "is_impossible"; False if it is missing."""
    if "is_impossible" not in question:
      return False
    self.has_impossible = True
    answer = self.get(where, question, "is_impossible", bool)
    if answer and not self.version_2_with_negative:
      self.fail(
        f'{where} has "is_impossible": true; pass --version_2_with_negative'
      )
    return answer

  def get(self, where, parent, key, *types):
    """The value of a key, which must have one of the types, in an object."""
    if not isinstance(parent, dict):
      self.fail(
        f"{where} is {_describe(parent)}, not {_TYPE_NAMES[dict]} with "
        f'"{key}"; pass a file in SQuAD\'s layout'
      )
    if key not in parent:
      self.fail(f'{where} has no "{key}"; pass a file in SQuAD\'s layout')
    value = parent[key]
    # isinstance would accept a bool as an int.
    if type(value) not in types:
      self.fail(
        f'{where}: "{key}" is {_describe(value)}, not {_TYPE_NAMES[types[0]]}'
      )
    if isinstance(value, str):
      try:
        value.encode()
      except UnicodeEncodeError as error:
        self.fail(
          f'{where}: "{key}" contains half of a surrogate pair, '
          f"\\u{ord(value[error.start]):04x}; remove it"
        )
    return value

  def fail(self, problem):
    raise UserError(f"{self.path}: {problem}")

  def report(self, examples):
    """Logs what was read; raises UserError if it cannot be used."""
    if not self.locations:
      self.fail('no questions under "data"; pass a file with questions')
    # A file to predict may lack both answers and "is_impossible".
    has_answers = self.is_training or any(e.answers for e in examples)
    if self.version_2_with_negative and has_answers and not self.has_impossible:
      self.fail(
        'no question has "is_impossible", as in SQuAD 1.1; pass '
        "--version_2_with_negative=False"
      )
    self.warn("leaving out", self.not_found, "is not found")
    self.warn("keeping", self.misplaced, "does not start")
    if not examples:
      self.fail(
        "no question is left to train on, because no answer is found at its "
        "answer_start; correct these"
      )
    logging.info("%s: %s", self.path, plural(len(examples), "question"))

  def warn(self, verb, questions, problem):
    if questions:
      qas_id, answer = questions[0]
      logging.warning(
        "%s: %s %s whose answer %s at its answer_start; the first is %s, "
        "answer %r",
        self.path,
        verb,
        plural(len(questions), "question"),
        problem,
        qas_id,
        shortened(answer),
      )


def _describe(value):
  name = _TYPE_NAMES[type(value)] if isinstance(value, dict | list) else None
  return name or shortened(json.dumps(value))


# Windows.


class _Pieces:
  """The word pieces of a paragraph.

  Attributes:
    tokens: the pieces.
    ids: their ids.
    words: index of each piece's word.
    starts: index of each word's first piece; for a word without pieces, of the
      next piece.
  """

  def __init__(self, doc_tokens, tokenizer, pieces_of):
    self.tokens, self.words, self.starts = [], [], []
    for index, word in enumerate(doc_tokens):
      pieces = pieces_of.get(word)
      if pieces is None:
        pieces = pieces_of[word] = tokenizer.tokenize(word)
      self.starts.append(len(self.tokens))
      self.tokens += pieces
      self.words += [index] * len(pieces)
    self.ids = tokenizer.convert_tokens_to_ids(self.tokens)


def iterate_windows(
  examples: Iterable[SquadExample],
  tokenizer,
  max_seq_length: int,
  doc_stride: int,
  max_query_length: int,
  is_training: bool,
) -> Iterator[list[InputFeatures]]:
  """Yields the windows of each question.

  Consecutive questions that share their `doc_tokens` share the tokenization.

  Args:
    examples: SquadExamples; for training, each with an answer or impossible.
    tokenizer: a FullTokenizer.
    max_seq_length, doc_stride, max_query_length: see ReadingSettings.
    is_training: whether to set the positions of the answer.

  Raises:
    UserError: the windows of a question would not overlap.
  """
  doc_tokens, pieces, pieces_of = None, None, {}
  unique_ids = itertools.count(FIRST_UNIQUE_ID)
  for index, example in enumerate(examples):
    if example.doc_tokens is not doc_tokens:
      doc_tokens = example.doc_tokens
      if len(pieces_of) > _MAX_CACHED_WORDS:
        pieces_of.clear()
      pieces = _Pieces(doc_tokens, tokenizer, pieces_of)
    query = tokenizer.tokenize(example.question_text)[:max_query_length]
    question = ["[CLS]", *query, "[SEP]"]
    windows = _windows(
      pieces,
      question,
      tokenizer.convert_tokens_to_ids(question),
      max_seq_length,
      doc_stride,
    )
    answer = None
    if is_training and not example.is_impossible:
      answer = _answer_span(example, pieces, tokenizer)
    for start, features in windows:
      features.unique_id = next(unique_ids)
      features.example_index = index
      features.is_impossible = example.is_impossible
      if is_training:
        _set_answer(features, answer, start, len(question))
    yield [features for _, features in windows]


def _answer_span(example, pieces, tokenizer):
  """Indices of the first and the last piece of the answer.

  Its words may contain more than the answer: "(1895-1943)." contains "1895". If
  the answer's own pieces occur among those of its words, they are the span.
  """
  first = pieces.starts[example.start_position]
  last = len(pieces.tokens) - 1
  if example.end_position + 1 < len(pieces.starts):
    last = pieces.starts[example.end_position + 1] - 1
  answer = tokenizer.tokenize(example.orig_answer_text)
  if not answer:
    return first, last
  tokens, size = pieces.tokens, len(answer)
  for start in range(first, last - size + 2):
    if tokens[start] == answer[0] and tokens[start : start + size] == answer:
      return start, start + size - 1
  return first, last


def _windows(pieces, question, question_ids, max_seq_length, doc_stride):
  """A list of (index of the first piece, InputFeatures) without the answer."""
  room = _room_for_text(max_seq_length, doc_stride, len(question) - 2)
  size, first = len(pieces.tokens), len(question)
  starts = range(0, max(size - room, 0) + doc_stride, doc_stride)[:size]
  owners = _owners(size, room, starts) if len(starts) > 1 else None
  windows = []
  for span, start in enumerate(starts):
    end = min(start + room, size)
    last = first + end - start  # Position of the second [SEP].
    padding = [0] * (max_seq_length - last - 1)
    words = dict(zip(range(first, last), pieces.words[start:end], strict=True))
    if owners is None:
      is_max_context = dict.fromkeys(words, True)
    else:
      is_owner = (owners[start:end] == span).tolist()
      is_max_context = dict(zip(words, is_owner, strict=True))
    features = InputFeatures(
      0,
      0,
      span,
      [*question, *pieces.tokens[start:end], "[SEP]"],
      words,
      is_max_context,
      [*question_ids, *pieces.ids[start:end], question_ids[-1], *padding],
      [1] * (last + 1) + padding,
      [0] * first + [1] * (end - start + 1) + padding,
      cut_pieces=start - pieces.starts[words[first]],
    )
    windows.append((start, features))
  return windows


def _room_for_text(max_seq_length, doc_stride, query_length):
  """Number of pieces beside a question; UserError unless windows overlap."""
  room = max_seq_length - query_length - 3
  if room < 2:
    raise UserError(
      f"--max_seq_length={max_seq_length} leaves no room for text beside a "
      f"question of {plural(query_length, 'piece')} and 3 special tokens; "
      f"raise it or lower --max_query_length"
    )
  if not 0 < doc_stride < room:
    raise UserError(
      f"--doc_stride={doc_stride} is not between 1 and {room - 1}: windows "
      f"with {room} pieces of text, as --max_seq_length={max_seq_length} "
      f"leaves beside a question of {query_length}, would not overlap"
    )
  return room


def _owners(size, room, starts):
  """Index of the window in which each piece has most context, int [size].

  As in the original, the context is the smaller of those to both sides, plus a
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


def _set_answer(features, answer, start, first):
  """Sets the answer's positions in a window on the pieces from `start` on.

  Args:
    features: InputFeatures.
    answer: indices of the answer's first and last piece, or None.
    start: index of the window's first piece.
    first: its position in the window.
  """
  features.start_position = features.end_position = 0
  if answer:
    begin, end = first + answer[0] - start, first + answer[1] - start
    if first <= begin and end < first + len(features.token_to_orig_map):
      features.start_position, features.end_position = begin, end


def convert_examples_to_features(
  examples: Iterable[SquadExample],
  tokenizer,
  max_seq_length: int,
  doc_stride: int,
  max_query_length: int,
  is_training: bool,
  output_fn: Callable[[InputFeatures], object],
) -> None:
  """Calls `output_fn` with each window; see `iterate_windows`."""
  for windows in iterate_windows(
    examples,
    tokenizer,
    max_seq_length,
    doc_stride,
    max_query_length,
    is_training,
  ):
    for features in windows:
      output_fn(features)


# Rows.


def feature_spec(max_seq_length: int, is_training: bool) -> records.Spec:
  """The spec of a window's row."""
  spec = {"unique_ids": records.Feature()}
  for name in records.SEQUENCES:
    spec[name] = records.sequence_feature(max_seq_length)
  if is_training:
    for name in ("start_positions", "end_positions", "is_impossible"):
      spec[name] = records.Feature()
  return spec


def feature_row(features: InputFeatures) -> Mapping[str, list[int]]:
  """The row of a window, by feature name."""
  return {
    "unique_ids": [features.unique_id],
    "input_ids": features.input_ids,
    "input_mask": features.input_mask,
    "segment_ids": features.segment_ids,
    "start_positions": [features.start_position],
    "end_positions": [features.end_position],
    "is_impossible": [int(bool(features.is_impossible))],
  }


class FeatureWriter(contextlib.ExitStack):
  """Writes windows to a TFRecord file.

  The file appears when `close` is called, or when a `with` block ends without
  an exception.

  Args:
    filename: the file.
    is_training: whether to write the positions of the answers.

  Attributes:
    num_features: number of windows written.
  """

  def __init__(self, filename: str, is_training: bool):
    super().__init__()
    self.num_features = 0
    self._is_training = is_training
    partial = self.enter_context(files.atomic_write(filename))
    self._file = self.enter_context(files.open_file(partial, "wb"))

  def process_feature(self, feature: InputFeatures) -> None:
    """Writes one window."""
    spec = feature_spec(len(feature.input_ids), self._is_training)
    row = records.encode_row(feature_row(feature), spec)
    self._file.write(records.framed(row))
    self.num_features += 1


# From pieces back to the characters of the paragraph.


def exact_text(
  example: SquadExample, feature: InputFeatures, start: int, end: int, tokenizer
) -> str:
  """The characters of the paragraph from one piece to another.

  Args:
    example: the question.
    feature: one of its windows.
    start: position of the first piece, a key of `token_to_orig_map`.
    end: position of the last piece.
    tokenizer: the FullTokenizer that split the words.
  """
  paragraph = example.paragraph
  begin, _ = _piece_span(paragraph, feature, start, tokenizer)
  _, end = _piece_span(paragraph, feature, end, tokenizer)
  return paragraph.context[begin:end]


def _piece_span(paragraph, feature, position, tokenizer):
  """Offsets in the context where a piece begins and ends."""
  words = feature.token_to_orig_map
  word = words[position]
  first = position
  while words.get(first - 1) == word:
    first -= 1
  index = position - first
  if first - 1 not in words:
    index += feature.cut_pieces
  begin, end = piece_spans(paragraph.doc_tokens[word], tokenizer)[index]
  offset = paragraph.char_starts[word]
  return offset + begin, offset + end


def piece_spans(word: str, tokenizer) -> list[tuple[int, int]]:
  """Offsets in a word where each of its pieces begins and ends.

  A character that the tokenizer drops belongs to no piece, but an accent
  belongs to the piece of its letter. A character that becomes several may
  belong to several pieces. If SentencePiece changes the word beyond
  recognition, each piece spans all of it.

  Args:
    word: a text.
    tokenizer: the FullTokenizer that splits it.
  """
  text, origins = _kept_characters(word, tokenizer)
  if _is_sentencepiece(tokenizer):
    parts = [
      piece.replace(WORD_START, "") for piece in tokenizer.tokenize(word)
    ]
    if "".join(parts) != text:
      return [(0, len(word))] * len(parts)
    sizes = [len(part) for part in parts]
  else:
    tokens = tokenizer.basic_tokenizer.tokenize(word)
    cut = tokenizer.wordpiece_tokenizer
    sizes = [size for token in tokens for size in _piece_sizes(token, cut)]
  spans = []
  for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
    # An empty piece lies before the next character.
    begin = origins[end][0] if end < len(origins) else len(word)
    chars = origins[end - size : end]
    begins, ends = [c[0] for c in chars], [c[1] for c in chars]
    spans.append((min(begins, default=begin), max(ends, default=begin)))
  return spans


def _piece_sizes(token, wordpiece_tokenizer):
  """Number of characters of each piece of a token."""
  pieces = wordpiece_tokenizer.tokenize(token)
  if pieces == [wordpiece_tokenizer.unk_token]:
    return [len(token)]
  return [len(pieces[0])] + [len(piece) - len("##") for piece in pieces[1:]]


def _kept_characters(word, tokenizer):
  """The characters of a cleaned word, and for each its span in the word."""
  basic = tokenizer.basic_tokenizer
  text, origins = "", []
  newest = 0  # Index of the first one that comes from the latest character.
  for index, char in enumerate(word):
    kept = "".join(basic.tokenize(char))
    if _is_sentencepiece(tokenizer):
      kept = unicodedata.normalize("NFKC", kept).replace(" ", "")
    if kept:
      newest = len(origins)
      text += kept
      origins += [(index, index + 1)] * len(kept)
    elif basic.do_lower_case and unicodedata.category(char) == "Mn":
      origins[newest:] = [(begin, index + 1) for begin, _ in origins[newest:]]
  return text, origins


def _is_sentencepiece(tokenizer):
  return isinstance(
    tokenizer.wordpiece_tokenizer, tokenization.SentencePieceTokenizer
  )
