"""Questions on paragraphs (SQuAD), and the windows that a model reads of them.

A paragraph is cut into words at white space and each word into pieces. A
question and as much of its paragraph as fits make a window; a longer paragraph
takes several, which overlap (Devlin et al. 2019, sections 4.2 and 4.3).

`exact_text` goes the way back, from pieces to the characters of the paragraph.
"""

import bisect
import dataclasses
import gzip
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

import tokenization
from errors import UserError, plural, shortened
from pipeline import text_files

FIRST_UNIQUE_ID = 1_000_000_000

# What the original cuts a paragraph at; other blanks are part of a word.
_WORD = re.compile("[^ \t\r\n\u202f]+")

# What messages call the types of JSON.
_KINDS = {dict: "an object", list: "a list", str: "a string"}
_KINDS |= {int: "a whole number", bool: "true or false"}

# Words whose pieces are remembered, some 100 MB; text is mostly words seen
# before, and not every tokenizer has a memory of its own.
_MAX_REMEMBERED_WORDS = 2**18

# The windows on a paragraph are remembered if there are no more, which is so
# in SQuAD: questions of one length on one paragraph share most of them.
_MAX_REMEMBERED_WINDOWS = 8

# The mark that SentencePiece puts in front of a word.
_BLANK = "\u2581"


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """A text that questions are on.

  Attributes:
    context: the text.
    doc_tokens: its words.
    char_starts: where in the text each word begins.
    title: of its article.
  """

  context: str
  doc_tokens: list[str]
  char_starts: list[int]
  title: str = ""

  @classmethod
  def of(cls, context: str, title: str = "") -> "Paragraph":
    """The paragraph of a text: cut at blanks, tabs, newlines and U+202F."""
    words = list(_WORD.finditer(context))
    return cls(
      context, [word[0] for word in words], [w.start() for w in words], title
    )


@dataclasses.dataclass
class SquadExample:
  """A question on a paragraph.

  Attributes:
    qas_id: name of the question, unique in its file.
    question_text: the question.
    doc_tokens: the paragraph's words.
    orig_answer_text: the answer, "" if there is none; None to predict.
    start_position: the answer's first word; -1 if there is none; None to
      predict.
    end_position: likewise its last word.
    is_impossible: whether the paragraph does not answer it.
    paragraph: the paragraph, which its questions share; by default, the words
      with blanks between.
    answers: the texts of all reference answers.
    answer_starts: where in the paragraph each begins; None where the file does
      not say it.
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
    example_index: the number of its question.
    doc_span_index: its number among the windows of the question.
    tokens: the word pieces.
    token_to_orig_map: dict from each position of the paragraph's pieces to
      the word that the piece is of.
    token_is_max_context: dict from each of these positions to whether no other
      window shows more of what is around the piece.
    input_ids: ids of the pieces [S], 0 behind the end.
    input_mask: [S], 1 for a piece and 0 for padding.
    segment_ids: [S], 0 for the question and 1 for the paragraph.
    start_position: position of the answer's first piece, 0 if the window does
      not hold the whole answer; None to predict.
    end_position: likewise of its last.
    is_impossible: whether the paragraph does not answer the question.
    cut_pieces: how many pieces of the window's first word are in front of it.
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


def read_squad_examples(
  input_file: str, is_training: bool, version_2_with_negative: bool = False
) -> list[SquadExample]:
  """The questions of a file, in its order.

  To train, the first answer of a question counts. A question whose answer's
  words are not where `answer_start` points is left out, as in the original, and
  so is one with an empty answer; a warning says how many. To predict, all
  questions are kept.

  Args:
    input_file: JSON in the layout of SQuAD 1.1 or 2.0, or a gzip file (.gz) of
      it.
    is_training: whether answers are needed.
    version_2_with_negative: whether questions may have no answer.

  Raises:
    ValueError: the file is not there or not such JSON, a question's id comes
      twice, or the flag does not suit the file; the message says where.
  """
  reader = _Reader(input_file, is_training, version_2_with_negative)
  examples = list(reader.examples(_read_json(input_file)))
  reader.report(examples)
  return examples


def _read_json(path):
  if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
    raise UserError(f"there is no file {path}; correct the path")
  with tf.io.gfile.GFile(path, "rb") as file:
    content = file.read()
  if path.lower().endswith(".gz"):
    try:
      content = gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
      problem = f"is not a whole gzip file: {error}"
      raise UserError(f"{path} {problem}; write it again") from error
  text = text_files.decode_utf8(path, content)
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as error:
    where, problem = path, str(error)
    if isinstance(error, json.JSONDecodeError):
      where = f"{path}:{error.lineno}"
      problem = f"{error.msg} (column {error.colno})"
    raise UserError(
      f"{where}: {problem}; give a JSON file in SQuAD's layout"
    ) from error


class _Reader:
  """Turns a file's JSON into examples and notes what is odd.

  Attributes:
    places: dict from the id of each question to where it stands.
    lost: (id, answer) of questions whose answer is not in the paragraph.
    displaced: (id, answer) of others, whose answer stands elsewhere.
    knows_impossible: whether any question says if it is impossible.
  """

  def __init__(self, path, is_training, version_2_with_negative):
    self.path = path
    self.is_training = is_training
    self.version_2_with_negative = version_2_with_negative
    self.places = {}
    self.lost = []
    self.displaced = []
    self.knows_impossible = False

  def examples(self, content):
    """Yields the SquadExamples of the file's content."""
    for i, article in enumerate(self.get("the file", content, "data", list)):
      where = f"data[{i}]"
      paragraphs = self.get(where, article, "paragraphs", list)
      title = article.get("title")
      for j, paragraph in enumerate(paragraphs):
        yield from self.questions(
          f"{where}.paragraphs[{j}]",
          paragraph,
          title if isinstance(title, str) else "",
        )

  def questions(self, where, content, title):
    """Yields the SquadExamples of a paragraph."""
    paragraph = Paragraph.of(self.text(where, content, "context"), title)
    for k, question in enumerate(self.get(where, content, "qas", list)):
      example = self.example(f"{where}.qas[{k}]", question, paragraph)
      if example:
        yield example

  def example(self, where, question, paragraph):
    """The SquadExample of a question, or None if it is left out."""
    example = SquadExample(
      self.unique_id(where, question),
      self.text(where, question, "question"),
      paragraph.doc_tokens,
      is_impossible=self.is_impossible(where, question),
      paragraph=paragraph,
    )
    answers = []
    if "answers" in question:
      answers = self.get(where, question, "answers", list)
    places = [f"{where}.answers[{i}]" for i in range(len(answers))]
    example.answers = tuple(
      self.text(place, answer, "text")
      for place, answer in zip(places, answers, strict=True)
    )
    starts = [answer.get("answer_start") for answer in answers]
    example.answer_starts = tuple(
      start if type(start) is int else None for start in starts
    )
    if not self.is_training:
      self.note_displaced(example)
      return example
    if example.is_impossible:
      example.orig_answer_text = ""
      example.start_position = example.end_position = -1
      return example
    if not answers:
      self.fail(
        f"{where} has no answer to train on; give it one, or say "
        f'"is_impossible": true and pass --version_2_with_negative'
      )
    start = self.get(places[0], answers[0], "answer_start", int)
    if not 0 <= start < len(paragraph.context):
      self.fail(
        f'{places[0]}: "answer_start" is {start} in a context of '
        f"{plural(len(paragraph.context), 'character')}; count from 0"
      )
    return example if self.locate(example, start) else None

  def locate(self, example, start):
    """Sets an example's answer; False if its words are not in the context."""
    answer = example.orig_answer_text = example.answers[0]
    paragraph = example.paragraph
    end = start + len(answer)
    first, last = (
      bisect.bisect_right(paragraph.char_starts, place) - 1
      for place in (start, min(end, len(paragraph.context)) - 1)
    )
    example.start_position, example.end_position = first, last
    words = tokenization.whitespace_tokenize(answer)
    found = " ".join(paragraph.doc_tokens[first : last + 1])
    if not words or " ".join(words) not in found:
      self.lost.append((example.qas_id, answer))
      return False
    self.note_displaced(example)
    return True

  def note_displaced(self, example):
    """Notes an answer that is not just where `answer_start` points."""
    context = example.paragraph.context
    places = zip(example.answers, example.answer_starts, strict=True)
    # Training takes the first answer alone.
    for answer, start in itertools.islice(
      places, 1 if self.is_training else None
    ):
      is_placed = start is None or (
        start >= 0 and context.startswith(answer, start)
      )
      if not is_placed:
        self.displaced.append((example.qas_id, answer))
        return

  def unique_id(self, where, question):
    """A question's id; numbers, which some tools write, become strings."""
    found = self.get(where, question, "id", (str, int))
    found = str(found) if isinstance(found, int) else found
    self.check_text(where, "id", found)
    if found in self.places:
      self.fail(
        f"{self.places[found]} and {where} have the same id "
        f"{shortened(found)!r}; change one"
      )
    self.places[found] = where
    return found

  def is_impossible(self, where, question):
    """What a question says about that; False if nothing."""
    if "is_impossible" not in question:
      return False
    self.knows_impossible = True
    answer = self.get(where, question, "is_impossible", bool)
    if answer and not self.version_2_with_negative:
      self.fail(
        f'{where} says "is_impossible": true; pass --version_2_with_negative'
      )
    return answer

  def get(self, where, parent, key, kinds):
    """The value of a key in what should be an object."""
    if not isinstance(parent, dict):
      self.fail(
        f"{where} is {_shown(parent)}, not {_KINDS[dict]} with "
        f'"{key}"; give a file in SQuAD\'s layout'
      )
    if key not in parent:
      self.fail(f'{where} has no "{key}"; give a file in SQuAD\'s layout')
    value = parent[key]
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    # A bool is an int for isinstance, and is none here.
    if type(value) not in kinds:
      self.fail(f'{where}: "{key}" is {_shown(value)}, not {_KINDS[kinds[0]]}')
    return value

  def text(self, where, parent, key):
    """A string of whole characters."""
    return self.check_text(where, key, self.get(where, parent, key, str))

  def check_text(self, where, key, text):
    try:
      text.encode("utf-8")
    except UnicodeEncodeError:
      self.fail(
        f'{where}: "{key}" holds half of a surrogate pair, '
        f"\\u{ord(text[_half(text)]):04x}, which is no character; remove it"
      )
    return text

  def fail(self, problem):
    raise UserError(f"{self.path}: {problem}")

  def report(self, examples):
    """Logs what was read; ValueError if it is nothing to go on with."""
    if not self.places:
      self.fail('there are no questions under "data"; give a file with some')
    # A file to predict may come without what is asked for.
    has_answers = self.is_training or any(e.answers for e in examples)
    if (
      self.version_2_with_negative and has_answers and not self.knows_impossible
    ):
      self.fail(
        'no question says "is_impossible", as in SQuAD 1.1; pass '
        "--version_2_with_negative=False"
      )
    self.warn("leaving out", self.lost, "whose answer's words are not")
    self.warn("keeping", self.displaced, "whose answer is not quite")
    if not examples:
      self.fail(
        "no question is left to train on, as no answer's words are in the "
        "context where its answer_start points; correct these"
      )
    logging.info("%s: %s", self.path, plural(len(examples), "question"))

  def warn(self, verb, questions, problem):
    if questions:
      name, answer = questions[0]
      logging.warning(
        "%s: %s %s %s where answer_start points; the first is %s, answer %r",
        self.path,
        verb,
        plural(len(questions), "question"),
        problem,
        name,
        shortened(answer),
      )


def _half(text):
  return next(i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff")


def _shown(value):
  kind = _KINDS.get(type(value))
  if kind in (_KINDS[dict], _KINDS[list]):
    return kind
  return shortened(json.dumps(value))


class _Pieces:
  """The word pieces of a paragraph.

  Attributes:
    tokens: the pieces.
    ids: their ids.
    words: the word that each is of.
    starts: the first piece of each word, or, of one without pieces, the next.
    windows: dict from the length of a question to its windows, if few.
  """

  def __init__(self, doc_tokens, tokenizer, pieces_of):
    tokens, words, starts = [], [], []
    for index, word in enumerate(doc_tokens):
      pieces = pieces_of.get(word)
      if pieces is None:
        pieces = pieces_of[word] = tokenizer.tokenize(word)
      starts.append(len(tokens))
      tokens += pieces
      words += [index] * len(pieces)
    self.tokens, self.words, self.starts = tokens, words, starts
    self.ids = tokenizer.convert_tokens_to_ids(tokens)
    self.windows = {}


class _Window(NamedTuple):
  """What windows on the same pieces have in common, whatever the question.

  The window is on the pieces `start` to `end`, the latter not included. The
  rest is as in InputFeatures.
  """

  start: int
  end: int
  token_to_orig_map: dict[int, int]
  token_is_max_context: dict[int, bool]
  input_mask: list[int]
  segment_ids: list[int]
  cut_pieces: int


def iterate_features(
  examples: Iterable[SquadExample],
  tokenizer,
  max_seq_length: int,
  doc_stride: int,
  max_query_length: int,
  is_training: bool,
) -> Iterator[InputFeatures]:
  """Yields the windows of questions, one at a time.

  A paragraph is cut into pieces once for all its questions if they come one
  after the other and share its `doc_tokens`.

  Args:
    examples: SquadExamples, with an answer each or impossible to train.
    tokenizer: a FullTokenizer.
    max_seq_length: S.
    doc_stride: by how many pieces a window lies behind the one before.
    max_query_length: longer questions are cut to as many pieces.
    is_training: whether windows say where the answer is.

  Raises:
    ValueError: S leaves no room for windows that overlap.
  """
  if doc_stride < 1:
    raise UserError(f"--doc_stride={doc_stride} is less than 1; raise it")
  doc_tokens, pieces, pieces_of = None, None, {}
  unique_id = FIRST_UNIQUE_ID
  for index, example in enumerate(examples):
    if example.doc_tokens is not doc_tokens:
      doc_tokens = example.doc_tokens
      if len(pieces_of) > _MAX_REMEMBERED_WORDS:
        pieces_of.clear()
      pieces = _Pieces(doc_tokens, tokenizer, pieces_of)
    query = tokenizer.tokenize(example.question_text)[:max_query_length]
    windows = pieces.windows.get(len(query))
    if windows is None:
      windows = _windows(pieces, len(query), max_seq_length, doc_stride)
    answer = None
    if is_training and not example.is_impossible:
      answer = _answer_span(example, pieces, tokenizer)
    for span, window in enumerate(windows):
      features = _features(window, pieces, query, tokenizer)
      features.unique_id = unique_id
      features.example_index = index
      features.doc_span_index = span
      features.is_impossible = example.is_impossible
      if is_training:
        _set_answer(features, answer, window, len(query) + 2)
      if unique_id < FIRST_UNIQUE_ID + 5:
        _show(example, features)
      yield features
      unique_id += 1


def _answer_span(example, pieces, tokenizer):
  """The first and last piece of a paragraph that are of the answer.

  Its words may hold more than the answer, as "(1895-1943)." holds "1895". If
  the answer's own pieces are among those of its words, it is only these.
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


def _windows(pieces, query_length, max_seq_length, doc_stride):
  """The _Windows on a paragraph beside a question of this length."""
  room = max_seq_length - query_length - 3
  if doc_stride >= room:
    raise UserError(
      f"--doc_stride={doc_stride} is not less than the "
      f"{plural(max(room, 0), 'word piece')} of text that "
      f"--max_seq_length={max_seq_length} leaves beside a question of "
      f"{query_length}; lower it"
    )
  size = len(pieces.tokens)
  starts = range(0, max(size - room, 0) + doc_stride, doc_stride)[:size]
  owners = _owners(size, room, starts) if len(starts) > 1 else None

  def window(index, start):
    end = min(start + room, size)
    first, last = query_length + 2, query_length + 2 + end - start
    padding = [0] * (max_seq_length - last - 1)
    words = pieces.words[start:end]
    word_of = dict(zip(range(first, last), words, strict=True))
    is_max_context = dict.fromkeys(word_of, True)
    if owners is not None:
      flags = (owners[start:end] == index).tolist()
      is_max_context = dict(zip(word_of, flags, strict=True))
    return _Window(
      start,
      end,
      word_of,
      is_max_context,
      [1] * (last + 1) + padding,
      [0] * first + [1] * (end - start + 1) + padding,
      start - pieces.starts[words[0]],
    )

  windows = itertools.starmap(window, enumerate(starts))
  if len(starts) <= _MAX_REMEMBERED_WINDOWS:
    windows = pieces.windows[query_length] = list(windows)
  return windows


def _owners(size, room, starts):
  """The window in which each piece has the most context, int [size].

  A piece has as much as on its shorter side, and a little for the length of
  the window, as in the original. The first of equal windows has it.
  """
  best = np.full(size, -1.0)
  owners = np.zeros(size, np.int64)
  for index, start in enumerate(starts):
    end = min(start + room, size)
    places = np.arange(end - start)
    scores = np.minimum(places, places[::-1]) + 0.01 * (end - start)
    is_better = scores > best[start:end]
    best[start:end][is_better] = scores[is_better]
    owners[start:end][is_better] = index
  return owners


def _features(window, pieces, query, tokenizer):
  """The InputFeatures of a window, yet without question and answer."""
  question = ["[CLS]", *query, "[SEP]"]
  ids = tokenizer.convert_tokens_to_ids(question)
  ids += pieces.ids[window.start : window.end]
  ids.append(ids[len(query) + 1])
  ids += [0] * (len(window.input_mask) - len(ids))
  return InputFeatures(
    0,
    0,
    0,
    [*question, *pieces.tokens[window.start : window.end], "[SEP]"],
    window.token_to_orig_map.copy(),
    window.token_is_max_context.copy(),
    ids,
    window.input_mask.copy(),
    window.segment_ids.copy(),
    cut_pieces=window.cut_pieces,
  )


def _set_answer(features, answer, window, first):
  """Says where the answer is; `first` is the position of the first piece."""
  features.start_position = features.end_position = 0
  if answer and window.start <= answer[0] and answer[1] < window.end:
    features.start_position = answer[0] - window.start + first
    features.end_position = answer[1] - window.start + first


def _show(example, features):
  if logging.level_debug():
    logging.debug(
      "%s: %s -> %s to %s",
      example.qas_id,
      " ".join(features.tokens),
      features.start_position,
      features.end_position,
    )


def convert_examples_to_features(
  examples: Iterable[SquadExample],
  tokenizer,
  max_seq_length: int,
  doc_stride: int,
  max_query_length: int,
  is_training: bool,
  output_fn: Callable[[InputFeatures], object],
) -> None:
  """Calls `output_fn` with each window; see `iterate_features`."""
  for features in iterate_features(
    examples,
    tokenizer,
    max_seq_length,
    doc_stride,
    max_query_length,
    is_training,
  ):
    output_fn(features)


def exact_text(
  example: SquadExample, feature: InputFeatures, start: int, end: int, tokenizer
) -> str:
  """The characters of the context from one piece to another.

  Args:
    example: the question.
    feature: one of its windows.
    start: position of the first piece, one of `token_to_orig_map`.
    end: position of the last.
    tokenizer: the FullTokenizer that cut the words.
  """
  paragraph = example.paragraph
  begin, _ = _piece_place(paragraph, feature, start, tokenizer)
  _, end = _piece_place(paragraph, feature, end, tokenizer)
  return paragraph.context[begin:end]


def _piece_place(paragraph, feature, position, tokenizer):
  """Where in the context a piece begins and ends."""
  words = feature.token_to_orig_map
  word = words[position]
  first = position
  while words.get(first - 1) == word:
    first -= 1
  number = position - first
  if first - 1 not in words:
    number += feature.cut_pieces
  places = piece_places(paragraph.doc_tokens[word], tokenizer)
  return [paragraph.char_starts[word] + place for place in places[number]]


def piece_places(word: str, tokenizer) -> list[tuple[int, int]]:
  """Where in a word each of its pieces begins and ends, in characters.

  What the tokenizer drops counts to no piece, except that an accent stays with
  its letter. A character that becomes several may be of several pieces. If
  SentencePiece has changed the word beyond recognition, each piece is all of
  it.

  Args:
    word: a text.
    tokenizer: the FullTokenizer that cuts it.
  """
  text, places = _kept_characters(word, tokenizer)
  if _is_sentencepiece(tokenizer):
    parts = [piece.replace(_BLANK, "") for piece in tokenizer.tokenize(word)]
    if "".join(parts) != text:
      return [(0, len(word))] * len(parts)
    sizes = [len(part) for part in parts]
  else:
    tokens = tokenizer.basic_tokenizer.tokenize(word)
    cut = tokenizer.wordpiece_tokenizer
    sizes = [size for token in tokens for size in _piece_sizes(token, cut)]
  found = []
  for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
    chars = places[end - size : end]
    begin = places[end][0] if end < len(places) else len(word)
    found.append(
      (
        min((first for first, _ in chars), default=begin),
        max((last for _, last in chars), default=begin),
      )
    )
  return found


def _piece_sizes(token, wordpiece_tokenizer):
  """How many characters of a token each of its pieces has."""
  pieces = wordpiece_tokenizer.tokenize(token)
  if pieces == [wordpiece_tokenizer.unk_token]:
    return [len(token)]
  return [len(pieces[0])] + [len(piece) - len("##") for piece in pieces[1:]]


def _kept_characters(word, tokenizer):
  """What the clean-up leaves of a word, and where each of it comes from."""
  basic = tokenizer.basic_tokenizer
  text, places = "", []
  newest = 0  # The first of those that come from the newest character.
  for index, char in enumerate(word):
    kept = "".join(basic.tokenize(char))
    if _is_sentencepiece(tokenizer):
      kept = unicodedata.normalize("NFKC", kept).replace(" ", "")
    if kept:
      newest = len(places)
      text += kept
      places += [(index, index + 1)] * len(kept)
    elif basic.do_lower_case and unicodedata.category(char) == "Mn":
      places[newest:] = [(begin, index + 1) for begin, _ in places[newest:]]
  return text, places


def _is_sentencepiece(tokenizer):
  return isinstance(
    tokenizer.wordpiece_tokenizer, tokenization.SentencePieceTokenizer
  )
