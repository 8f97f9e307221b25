"""Splits text into word pieces: basic tokenization, WordPiece, SentencePiece.

    tokenizer = FullTokenizer("vocab.txt", do_lower_case=True)
    tokenizer.tokenize("Unaffable!")  # ["una", "##ffa", "##ble", "!"]

A tokenizer must reproduce the text that its checkpoint was trained on exactly.
So control characters are dropped, `[MASK]` in raw text is split like any text,
and CJK ideographs are separated in every language.
"""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple, cast

from bert import strict_json
from bert.errors import UserError
from bert.pieces import WORD_START, SpecialPieces, read_file

UNKNOWN = "[UNK]"

# Longer words are unknown.
MAX_WORD_LENGTH = 200

# The first pieces of ALBERT's SentencePiece models.
_ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]

# CJK ideographs. Hangul and kana are treated like alphabets.
_CJK = re.compile(
  "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
  "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff"
  "\U0002f800-\U0002fa1f]"
)

# Most words of a text occur repeatedly, so the pieces of words are cached. The
# limits keep the cache below about 500 MB for any text.
_MAX_CACHED_WORDS = 2**20
_MAX_CACHED_LENGTH = 64


class Release(NamedTuple):
  """A released model."""

  name: str  # Of its folder or checkpoint.
  lower_cases: bool  # Whether it reads lower-cased text.


def find_release(path: str | None) -> Release | None:
  """The Release that the path of a folder, or of a file in it, names."""
  # Hugging Face's cache has models--ORGANIZATION--NAME/snapshots/REVISION.
  cached = "models--(?:[^/]*--)?([^/]*)/snapshots/[^/]+"
  path = re.sub(cached, r"\1", path or "")
  *_, folder, name = ["", *path.rstrip("/").split("/")]
  pattern = r"(?:^|_)(cased|uncased|multilingual|chinese)_L-\d+_H-\d+"
  found = re.search(pattern, name) or re.search(pattern, folder)
  return found and Release(found.string, found[1] != "cased")


def validate_case_matches_checkpoint(
  do_lower_case: bool, init_checkpoint: str | None
) -> None:
  """Raises UserError if the flag contradicts the casing of a released model.

  A release is recognized by the name of the folder of `init_checkpoint`; other
  names and None pass.
  """
  release = find_release(init_checkpoint)
  if release is None:
    return
  check_casing(bool(do_lower_case), release.lower_cases, release.name)


def check_casing(do_lower_case: bool, trained: bool, source: str) -> None:
  """Raises UserError unless a model was trained with this casing.

  `source` is the file or release that says so.
  """
  if do_lower_case != trained:
    raise UserError(
      f"--do_lower_case={do_lower_case} contradicts {source}: the model was "
      f"trained with --do_lower_case={trained}; pass that"
    )


def convert_to_unicode(text: str | bytes) -> str:
  """`text` as str. Bytes are decoded as UTF-8, ignoring invalid ones."""
  if isinstance(text, str):
    return text
  if isinstance(text, bytes):
    return text.decode("utf-8", "ignore")
  raise ValueError(f"expected str or bytes, not {type(text)}")


def printable_text(text: str | bytes) -> str:
  """`text` as str, for logging."""
  return convert_to_unicode(text)


def _clears_cache(method):
  """The method, but it first clears the `cache` of its object, if any."""

  def call(self, *args, **kwargs):
    if self.cache:
      self.cache.clear()
    return method(self, *args, **kwargs)

  return functools.wraps(method)(call)


class _Vocabulary(collections.OrderedDict):
  """An OrderedDict that clears a cache when it changes."""

  cache: dict | None = None
  __setitem__ = _clears_cache(collections.OrderedDict.__setitem__)
  __delitem__ = _clears_cache(collections.OrderedDict.__delitem__)
  pop = _clears_cache(collections.OrderedDict.pop)
  popitem = _clears_cache(collections.OrderedDict.popitem)
  clear = _clears_cache(collections.OrderedDict.clear)


def is_cased(pieces: Iterable[str]) -> bool:
  """Whether a vocabulary is of a model that tells capitals from small letters.

  A few pieces with capitals may be a user's own, in place of unused ones. Those
  of scripts without capitals say nothing.
  """
  words = [piece for piece in pieces if not piece.startswith(("[", "<"))]
  words = [piece for piece in words if piece.lower() != piece.upper()]
  capitals = sum(piece.lower() != piece for piece in words)
  return capitals > len(words) / 50


def load_vocab(vocab_file: str) -> collections.OrderedDict[str, int]:
  """An OrderedDict from word piece to id, the index of its line.

  The file may also be a `tokenizer.json` of the `tokenizers` library.
  """
  if vocab_file.endswith(".json"):
    return _load_json_vocab(vocab_file)
  text = convert_to_unicode(read_file(vocab_file)).removeprefix("\ufeff")
  lines = text.split("\n")
  while lines and not lines[-1].strip():
    lines.pop()  # The end of a file, and blank lines there, are no pieces.
  return _Vocabulary((line.strip(), index) for index, line in enumerate(lines))


def has_word_pieces(path: str) -> bool:
  """Whether a file that describes a tokenizer is one of word pieces."""
  if not path.endswith(".json"):
    return not path.endswith(".model")
  try:
    kind = strict_json.loads(read_file(path))["model"].get("type")
  except (ValueError, KeyError, TypeError, AttributeError):
    return True  # `load_vocab` says what is wrong.
  return kind in (None, "WordPiece")  # Older files do not name it.


def _load_json_vocab(path):
  """The vocabulary in a `tokenizer.json`, by id."""
  try:
    model = strict_json.loads(read_file(path))["model"]
    ids = {piece: int(index) for piece, index in model["vocab"].items()}
    is_whole = sorted(ids.values()) == list(range(len(ids)))
  except (ValueError, KeyError, TypeError, AttributeError):
    is_whole = False
  # Older files do not name the type.
  if not is_whole or model.get("type", "WordPiece") != "WordPiece":
    raise UserError(
      f"{path} has no WordPiece vocabulary; pass the vocab.txt or "
      f"tokenizer.json of a BERT model"
    )
  return _Vocabulary(sorted(ids.items(), key=lambda pair: pair[1]))


def convert_by_vocab(vocab: Mapping, items: Iterable) -> list:
  """A list of the values of `vocab` for a sequence of keys."""
  return [vocab[item] for item in items]


def convert_tokens_to_ids(
  vocab: Mapping[str, int], tokens: Iterable[str]
) -> list[int]:
  """The ids of word pieces; KeyError for a piece that is not in `vocab`."""
  return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(
  inv_vocab: Mapping[int, str], ids: Iterable[int]
) -> list[str]:
  """The word pieces of ids."""
  return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
  """The words of `text`, separated by whitespace."""
  return text.split()


class FullTokenizer:
  """Splits text into word pieces and converts them to ids.

  Its twin in TensorFlow operations is bert/export/text_graph.py;
  tests/export/test_text_graph.py compares them.

  Args:
    vocab_file: one word piece per line, or a tokenizer.json; may be None with
      `spm_model_file`.
    do_lower_case: lower-case and strip accents; must match the checkpoint. A
      tokenizer.json without word pieces says so itself.
    spm_model_file: a SentencePiece model to use instead of a vocabulary.

  Attributes:
    special: the SpecialPieces.
  """

  def __init__(
    self,
    vocab_file: str | None,
    do_lower_case: bool = True,
    spm_model_file: str | None = None,
  ):
    self.basic_tokenizer = BasicTokenizer(do_lower_case)
    # One of three classes; only some methods are common to them.
    self.wordpiece_tokenizer: Any
    self.special = SpecialPieces()
    if spm_model_file:
      self.wordpiece_tokenizer = SentencePieceTokenizer(
        spm_model_file, do_lower_case
      )
    elif has_word_pieces(path := cast(str, vocab_file)):
      self.wordpiece_tokenizer = WordpieceTokenizer(load_vocab(path))
    else:
      from bert.json_tokenizer import JsonTokenizer

      self.wordpiece_tokenizer = JsonTokenizer(path)
      self.special = self.wordpiece_tokenizer.special
    self.vocab: Mapping[str, int] = self.wordpiece_tokenizer.vocab
    self.inv_vocab = {index: piece for piece, index in self.vocab.items()}
    # Most words of a text are pieces themselves.
    self._pieces_of_word = {
      piece: (piece,)
      for piece in self.vocab
      if piece.isalnum()
      and piece.isascii()
      and piece == piece.lower()
      and len(piece) <= _MAX_CACHED_LENGTH
    }
    self._piece_objects = {}
    self._caches_words = self.splits_words
    if self._caches_words:
      # These are public. A change of one makes the cached words wrong.
      self.basic_tokenizer.cache = self._pieces_of_word
      self.wordpiece_tokenizer.cache = self._pieces_of_word
      cast(_Vocabulary, self.vocab).cache = self._pieces_of_word

  def __setattr__(self, name, value):
    super().__setattr__(name, value)
    if name in ("basic_tokenizer", "wordpiece_tokenizer"):
      # The cache is only right for the parts that `__init__` makes.
      self._caches_words = False

  @property
  def splits_words(self) -> bool:
    """Whether the pieces of a text are those of its words, each for itself."""
    return not hasattr(self.wordpiece_tokenizer, "offsets")

  @property
  def has_casing(self) -> bool:
    """Whether `do_lower_case` has an effect."""
    return not hasattr(self.wordpiece_tokenizer, "special")

  @property
  def unk_token(self) -> str:
    """The unknown piece."""
    return self.wordpiece_tokenizer.unk_token

  def tokenize(self, text: str | bytes) -> list[str]:
    """The word pieces of `text`."""
    if not self._caches_words:
      return self._tokenize_uncached(text)
    # Other whitespace may stay in a word; the basic tokenizer splits there.
    text = convert_to_unicode(text).replace("\n", " ").replace("\t", " ")
    pieces, cache = [], self._pieces_of_word
    for word in text.split(" "):
      try:
        pieces += cache[word]
      except KeyError:
        pieces += self._tokenize_word(word)
    return pieces

  def tokenize_masked(self, text: str) -> list[str]:
    """The pieces of a text, in which the mask is one."""
    if not self.splits_words:
      return self.wordpiece_tokenizer.tokenize_masked(text)
    first, *others = map(self.tokenize, text.split(self.special.mask))
    return first + [p for part in others for p in [self.special.mask, *part]]

  def tokenize_behind_blank(self, word: str) -> list[str]:
    """The pieces of a word within a text."""
    return self.tokenize(word if self.splits_words else f" {word}")

  def text_of(self, piece: str) -> str:
    """The text of a piece, without the marks of where it is in a word."""
    if self.splits_words:
      return piece.removeprefix("##")
    return self.wordpiece_tokenizer.text_of(piece)

  def offsets(self, text: str) -> list[tuple[int, int]]:
    """Start and end in `text` of each piece that `tokenize` gives.

    The characters of a piece may be one of the text, such as those of a Hangul
    syllable. An accent after a piece belongs to it, even if it is dropped.
    """
    if not self.splits_words:
      return self.wordpiece_tokenizer.offsets(text)
    return [
      (start + match.start(), end + match.start())
      for match in re.finditer("[^ \n\t]+", text)  # As `tokenize` splits it.
      for start, end in self._offsets_in_word(match[0])
    ]

  def _offsets_in_word(self, word):
    """The offsets of the pieces of text without blanks."""
    pieces = self.tokenize(word)
    unknown = self.wordpiece_tokenizer.unk_token
    if word.isascii() and word.isalnum() and unknown not in pieces:
      ends = itertools.accumulate(len(p.removeprefix("##")) for p in pieces)
      return list(itertools.pairwise([0, *ends]))
    basic = self.basic_tokenizer
    tokens = list(map(self.wordpiece_tokenizer.tokenize, basic.tokenize(word)))
    sources = _sources(word, basic.do_lower_case)
    lengths = [len(token) for token in basic.tokenize(word)]
    if list(map(len, sources)) != lengths:
      return [(0, len(word))] * len(pieces)
    spans = []
    for parts, source in zip(tokens, sources, strict=True):
      sizes = [len(part.removeprefix("##")) for part in parts]
      if parts == [unknown]:
        sizes = [len(source)]
      for size in sizes:
        spans.append((source[0], _end(word, source[size - 1])))
        source = source[size:]
    return spans

  def _tokenize_uncached(self, text):
    """The word pieces of `text`, from `tokenize` of both parts."""
    split = self.wordpiece_tokenizer.tokenize
    if not self.splits_words:
      return split(convert_to_unicode(text))
    words = self.basic_tokenizer.tokenize(text)
    return list(itertools.chain.from_iterable(map(split, words)))

  def _tokenize_word(self, word):
    """The pieces of text without blanks, which are cached."""
    pieces = None
    if self.basic_tokenizer.do_lower_case and word.isascii():
      pieces = self._pieces_of_word.get(word.lower())
    if pieces is None:
      tokens = self.basic_tokenizer.tokenize(word)
      split = map(self.wordpiece_tokenizer.tokenize_word, tokens)
      # Equal pieces are one object, which saves memory and cache misses.
      shared = self._piece_objects.setdefault
      pieces = tuple(shared(p, p) for p in itertools.chain.from_iterable(split))
    if len(word) <= _MAX_CACHED_LENGTH:
      if len(self._pieces_of_word) >= _MAX_CACHED_WORDS:
        self._pieces_of_word.clear()
      self._pieces_of_word[word] = pieces
    return pieces

  def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
    """The ids of word pieces of this vocabulary."""
    return convert_by_vocab(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
    """The word pieces of ids."""
    return convert_by_vocab(self.inv_vocab, ids)


def check_special_pieces(
  tokenizer: FullTokenizer,
  path: str = "the vocabulary",
  has_masks: bool = False,
) -> None:
  """Raises UserError unless a vocabulary has the pieces of every row."""
  cls, sep, mask, *_ = tokenizer.special
  for piece in (cls, sep, tokenizer.unk_token, *[mask] * has_masks):
    if piece not in tokenizer.vocab:
      raise UserError(
        f"{path} has no piece {piece}; pass the file that came with the model, "
        f"or that of a released one"
      )


def _sources(text, do_lower_case):
  """The index of each character's source, for each token of BasicTokenizer.

  Characters are read one by one: those around one do not change how many it
  becomes.
  """
  tokens = [[]]
  for index, char in enumerate(text):
    cleaned = _CLEANED[ord(char)]
    lower = lower_case(cleaned) if do_lower_case else cleaned
    for found in lower.translate(_SEPARATED):
      if not found.isspace():
        tokens[-1].append(index)
      elif tokens[-1]:
        tokens.append([])
  return list(filter(None, tokens))


def _end(text, last):
  """The index after a character and the marks that combine with it."""
  end = last + 1
  while end < len(text) and unicodedata.category(text[end]) == "Mn":
    end += 1
  return end


class _Configurable:
  """Clears a cache when an attribute is set."""

  cache: dict | None = None
  __setattr__ = _clears_cache(object.__setattr__)


class BasicTokenizer(_Configurable):
  """Cleans text and splits it at whitespace, ideographs and punctuation.

  With `do_lower_case`, it also lower-cases text and strips accents.
  """

  def __init__(self, do_lower_case: bool = True):
    self.do_lower_case = do_lower_case

  def tokenize(self, text: str | bytes) -> list[str]:
    """The words and punctuation marks of `text`."""
    text = convert_to_unicode(text)
    if not (text.isascii() and text.isprintable()):
      text = text.translate(_CLEANED)
    if self.do_lower_case:
      text = lower_case(text)
    if not text.isalnum():
      text = text.translate(_SEPARATED)
    return text.split()


def lower_case(text: str) -> str:
  """The text in lower case, without accents."""
  if text.isascii():
    return text.lower()
  return unicodedata.normalize("NFD", text.lower()).translate(_UNACCENTED)


class WordpieceTokenizer(_Configurable):
  """Splits words greedily into the longest pieces of a vocabulary.

  Args:
    vocab: the known pieces; `##` marks pieces inside a word.
    unk_token: replaces a word that cannot be split into known pieces.
    max_input_chars_per_word: longer words are replaced by `unk_token`.
  """

  def __init__(
    self,
    vocab: Container[str],
    unk_token: str = UNKNOWN,
    max_input_chars_per_word: int = MAX_WORD_LENGTH,
  ):
    self.vocab = vocab
    self.unk_token = unk_token
    self.max_input_chars_per_word = max_input_chars_per_word

  def tokenize(self, text: str | bytes) -> list[str]:
    """The pieces of the words of `text`."""
    pieces = []
    for word in convert_to_unicode(text).split():
      pieces += self.tokenize_word(word)
    return pieces

  def tokenize_word(self, word: str) -> list[str]:
    """The pieces of one word, or the unknown piece alone."""
    if len(word) > self.max_input_chars_per_word:
      return [self.unk_token]
    if word in self.vocab:
      return [word]
    pieces, rest, mark = [], word, ""
    while rest != mark:
      piece = rest
      while piece not in self.vocab:
        piece = piece[:-1]
        if piece == mark:
          return [self.unk_token]
      pieces.append(piece)
      mark = "##"
      rest = mark + rest[len(piece) :]
    return pieces


class SentencePieceTokenizer:
  """Splits text by a SentencePiece model (Kudo & Richardson 2018).

  A model of ALBERT reads text as ALBERT does: compatibility characters such as
  ligatures are decomposed, and a comma behind a digit is a piece of its own.

  Args:
    model_file: a model with the pieces [CLS], [SEP] and [MASK].
    do_lower_case: lower-case and strip accents first.
  """

  def __init__(self, model_file: str, do_lower_case: bool = True):
    import sentencepiece

    self.do_lower_case = do_lower_case
    try:
      self._model = sentencepiece.SentencePieceProcessor(
        model_proto=read_file(model_file)
      )
      size = self._model.get_piece_size()
      self.vocab = collections.OrderedDict(
        (self._model.id_to_piece(index), index) for index in range(size)
      )
      if not self.vocab.keys() >= {"[CLS]", "[SEP]", "[MASK]"}:
        raise RuntimeError("special pieces are missing")
    except RuntimeError as error:
      raise UserError(
        f"{model_file} is not a SentencePiece model with the pieces [CLS], "
        f"[SEP] and [MASK]; create one with build_vocab.py, or with "
        f"--control_symbols=[CLS],[SEP],[MASK]"
      ) from error
    self.unk_token = self._model.id_to_piece(self._model.unk_id())
    self._is_albert = list(self.vocab)[: len(_ALBERT)] == _ALBERT

  def tokenize(self, text: str | bytes) -> list[str]:
    """The pieces of `text`."""
    # Encoding to ids first maps unknown text to `unk_token`.
    ids = self._model.encode(self._normalized(convert_to_unicode(text)))
    pieces = list(map(self._model.id_to_piece, ids))
    if not self._is_albert:
      return pieces
    parts = itertools.chain.from_iterable(map(self._parts, pieces))
    return [part if part in self.vocab else self.unk_token for part in parts]

  def _normalized(self, text):
    """The text as the model reads it."""
    if not self._is_albert:
      return lower_case(text) if self.do_lower_case else text
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in decomposed if not unicodedata.combining(c))
    return text.lower() if self.do_lower_case else text

  def _parts(self, piece):
    """The piece of ALBERT, of which a comma behind a digit is cut off."""
    number = piece[:-1]
    if not (self._is_albert and piece[-1] == "," and number[-1:].isdigit()):
      return [piece]
    text = number.removeprefix(WORD_START)
    first, *others = self._model.encode(text, out_type=str)
    if text == number:  # It does not begin a word.
      first = first.removeprefix(WORD_START)
    return [*filter(None, [first]), *others, ","]

  def continuations(self) -> frozenset[str]:
    """The pieces that continue a word."""
    return frozenset(
      piece
      for piece in self.vocab
      if not piece.startswith(WORD_START)
      and not re.fullmatch(r"\[\w+\]", piece)
    )

  def text_of(self, piece: str) -> str:
    """The text of a piece, without the mark of a word's beginning."""
    return piece.removeprefix(WORD_START)

  def tokenize_masked(self, text: str) -> list[str]:
    """The pieces of a text, in which [MASK] is one.

    SentencePiece begins a word with every text that it reads, so also right
    after a mask. In pre-training, the piece after a mask begins one only after
    a blank.
    """
    mask = SpecialPieces().mask
    first, *others = text.split(mask)
    pieces = self.tokenize(first)
    for span in others:
      found = self.tokenize(span)
      if found and not span[0].isspace():
        rest = found[0].removeprefix(WORD_START)
        if not rest or rest in self.vocab:
          found[:1] = filter(None, [rest])
      pieces += [mask, *found]
    return pieces

  def offsets(self, text: str) -> list[tuple[int, int]]:
    """Start and end in `text` of each piece; see `FullTokenizer.offsets`."""
    normalized = list(map(self._normalized, text))
    sources = [i for i, part in enumerate(normalized) for _ in part]
    found = self._model.encode("".join(normalized), return_type="proto").pieces
    spans = []
    begin = 0
    for surface in itertools.chain.from_iterable(map(self._surfaces, found)):
      shown = surface.lstrip()  # A blank before a word is in its piece.
      end = begin + len(surface)
      start = end - len(shown)
      span = sources[start:end] or [sources[min(start, len(sources) - 1)]] * 2
      spans.append((span[0], _end(text, span[-1]) if shown else span[0]))
      begin = end
    return spans

  def _surfaces(self, piece):
    """The text of each part of a piece."""
    found, rest = [], piece.surface
    for part in reversed(self._parts(self._model.id_to_piece(piece.id))[1:]):
      found.insert(0, rest[-len(part) :])
      rest = rest[: -len(part)]
    return [rest, *found]


def _is_whitespace(char):
  return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char):
  """Whether `char` is a control or format character, but no tab or newline."""
  return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char):
  """Whether `char` is of a Unicode category P*, or an ASCII symbol like $."""
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


def stands_alone(text: str) -> bool:
  """Whether a text has only Chinese characters and punctuation, if any."""
  return bool(text) and all(_CJK.match(c) or _is_punctuation(c) for c in text)


class _Replacements(dict):
  """A table for `str.translate` of the characters that have occurred."""

  def __init__(self, replace):
    super().__init__()
    self._replace = replace

  def __missing__(self, code):
    self[code] = text = self._replace(chr(code))
    return text


def _clean(char):
  """The replacement of a character before text is split into words."""
  if _is_whitespace(char):
    return " "
  if char in "\x00\ufffd" or _is_control(char):
    return ""
  return f" {char} " if _CJK.match(char) else char


_CLEANED = _Replacements(_clean)
_UNACCENTED = _Replacements(
  lambda char: "" if unicodedata.category(char) == "Mn" else char
)
_SEPARATED = _Replacements(
  lambda char: f" {char} " if _is_punctuation(char) else char
)
