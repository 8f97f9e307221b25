"""From text to word pieces: basic clean-up, WordPiece, or SentencePiece.

    tokenizer = FullTokenizer("vocab.txt", do_lower_case=True)
    tokenizer.tokenize("Unaffable!")  # ["una", "##ffa", "##ble", "!"]

What a checkpoint was trained on, the tokenizer must repeat to the character, so
a few habits that one might choose otherwise today are kept: control characters
vanish, `[MASK]` in raw text is split like any text, and ideographs are set
apart whatever the language.
"""

import collections
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping

import six
import tensorflow as tf

UNKNOWN = "[UNK]"

# Control characters at which `str.split` would cut, though the clean-up drops
# them and joins what they stood between.
DROPPED_SEPARATORS = re.compile("[\v\f\x1c-\x1f\x85]")

# Blocks of CJK ideographs. Hangul and kana are written with spaces or in
# words, and are handled like any alphabet.
_CJK_BLOCKS = (
  (0x4E00, 0x9FFF),
  (0x3400, 0x4DBF),
  (0x20000, 0x2A6DF),
  (0x2A700, 0x2B73F),
  (0x2B740, 0x2B81F),
  (0x2B820, 0x2CEAF),
  (0xF900, 0xFAFF),
  (0x2F800, 0x2FA1F),
)

# A word repeats its pieces, so they are remembered: text is mostly words seen
# before. The bounds keep the memory of a run over any text below some 500 MB.
_MAX_REMEMBERED_WORDS = 2**20
_MAX_REMEMBERED_LENGTH = 64


def validate_case_matches_checkpoint(
  do_lower_case: bool, init_checkpoint: str | None
) -> None:
  """Raises ValueError if a released model's casing is contradicted.

  Args:
    do_lower_case: bool.
    init_checkpoint: path; the name of its folder tells which release it is.
      None, and names that are no release's, pass.
  """
  # The checkpoint is a file in the release's folder, or that folder.
  *_, folder, name = ["", *(init_checkpoint or "").rstrip("/").split("/")]
  pattern = r"(?:^|_)(cased|uncased|multilingual|chinese)_L-\d+_H-\d+"
  release = re.search(pattern, name) or re.search(pattern, folder)
  if release is None:
    return
  lower_cased = release.group(1) != "cased"
  if bool(do_lower_case) != lower_cased:
    raise ValueError(
      f"--do_lower_case={bool(do_lower_case)} contradicts {release.string}, "
      f"which was trained on {'lower-cased' if lower_cased else 'cased'} text; "
      f"pass --do_lower_case={lower_cased}"
    )


def convert_to_unicode(text: str | bytes) -> str:
  """`text` as str; bytes are read as UTF-8, leaving out what is not."""
  return six.ensure_text(text, "utf-8", "ignore")


def printable_text(text: str | bytes) -> str:
  """`text` as str, fit for a log line."""
  return six.ensure_str(text, "utf-8", "ignore")


def load_vocab(vocab_file: str) -> collections.OrderedDict[str, int]:
  """An OrderedDict from word piece to id, which is the number of its line."""
  with tf.io.gfile.GFile(vocab_file, "rb") as reader:
    lines = convert_to_unicode(reader.read()).split("\n")
  if lines[-1] == "":
    lines.pop()  # What follows the last newline is no line.
  return collections.OrderedDict(
    (line.strip(), index) for index, line in enumerate(lines)
  )


def convert_by_vocab(vocab: Mapping, items: Iterable) -> list:
  """The entries of `vocab` for a sequence of keys, as a list."""
  return [vocab[item] for item in items]


def convert_tokens_to_ids(
  vocab: Mapping[str, int], tokens: Iterable[str]
) -> list[int]:
  """Ids of word pieces; KeyError for one that is not in `vocab`."""
  return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(
  inv_vocab: Mapping[int, str], ids: Iterable[int]
) -> list[str]:
  """Word pieces of ids."""
  return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
  """The words of `text`; none of an empty or blank one."""
  return text.split()


class FullTokenizer:
  """Text to word pieces and ids, as the checkpoints were trained.

  Args:
    vocab_file: one word piece a line; may be None with `spm_model_file`.
    do_lower_case: lower-case and strip accents; must match the checkpoint.
    spm_model_file: a SentencePiece model to use instead of a vocabulary; it
      must hold the pieces [CLS], [SEP] and [MASK].

  Raises:
    ValueError: the SentencePiece model lacks one of these, or is none.
  """

  def __init__(
    self,
    vocab_file: str | None,
    do_lower_case: bool = True,
    spm_model_file: str | None = None,
  ):
    self.basic_tokenizer = BasicTokenizer(do_lower_case)
    self._sentencepiece = None
    if spm_model_file:
      self._sentencepiece = SentencePieceTokenizer(
        spm_model_file, do_lower_case
      )
      self.vocab = self._sentencepiece.vocab
      self.wordpiece_tokenizer = self._sentencepiece
    else:
      self.vocab = load_vocab(vocab_file)
      self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)
    self.inv_vocab = {index: piece for piece, index in self.vocab.items()}
    self._pieces_of = {}

  def tokenize(self, text: str | bytes) -> list[str]:
    """The word pieces of `text`, a list of str."""
    if self._sentencepiece:
      return self._sentencepiece.tokenize(text)
    text = convert_to_unicode(text)
    if DROPPED_SEPARATORS.search(text):
      text = DROPPED_SEPARATORS.sub("", text)
    pieces = []
    for word in text.split():
      try:
        pieces += self._pieces_of[word]
      except KeyError:
        pieces += self._tokenize_word(word)
    return pieces

  def _tokenize_word(self, word):
    pieces = [
      piece
      for token in self.basic_tokenizer.tokenize(word)
      for piece in self.wordpiece_tokenizer.tokenize(token)
    ]
    if len(word) <= _MAX_REMEMBERED_LENGTH:
      if len(self._pieces_of) >= _MAX_REMEMBERED_WORDS:
        self._pieces_of.clear()
      self._pieces_of[word] = pieces
    return pieces

  def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
    """Ids of word pieces of this vocabulary."""
    return convert_by_vocab(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
    """Word pieces of ids."""
    return convert_by_vocab(self.inv_vocab, ids)


class BasicTokenizer:
  """Cleans text and cuts it at white space, ideographs and punctuation.

  Args:
    do_lower_case: lower-case and strip accents.
  """

  def __init__(self, do_lower_case: bool = True):
    self.do_lower_case = do_lower_case

  def tokenize(self, text: str | bytes) -> list[str]:
    """The words and punctuation marks of `text`, a list of str."""
    text = convert_to_unicode(text)
    if not (text.isascii() and text.isprintable()):  # Else it is clean.
      text = "".join(map(_cleaned, text))
    tokens = []
    for word in whitespace_tokenize(text):
      if self.do_lower_case:
        word = lower_case(word)
      if word.isalnum():
        tokens.append(word)
      else:
        tokens += whitespace_tokenize(_set_punctuation_apart(word))
    return tokens


def _cleaned(char):
  """What the clean-up leaves of a character."""
  if _is_whitespace(char):
    return " "
  if char in "\x00\ufffd" or _is_control(char):
    return ""
  return f" {char} " if _is_cjk(char) else char


def lower_case(text: str) -> str:
  """The text in lower case and without accents."""
  if text.isascii():
    return text.lower()
  return "".join(
    char
    for char in unicodedata.normalize("NFD", text.lower())
    if unicodedata.category(char) != "Mn"
  )


def _set_punctuation_apart(text):
  return "".join(
    f" {char} " if _is_punctuation(char) else char for char in text
  )


class WordpieceTokenizer:
  """Cuts a word into the longest pieces that a vocabulary has, from the left.

  Args:
    vocab: container of the known pieces; `##` marks one inside a word.
    unk_token: stands for a word that cannot be cut so.
    max_input_chars_per_word: a longer word is not tried.
  """

  def __init__(
    self,
    vocab: Container[str],
    unk_token: str = UNKNOWN,
    max_input_chars_per_word: int = 200,
  ):
    self.vocab = vocab
    self.unk_token = unk_token
    self.max_input_chars_per_word = max_input_chars_per_word

  def tokenize(self, text: str | bytes) -> list[str]:
    """The pieces of each word of `text`, a list of str."""
    pieces = []
    for word in whitespace_tokenize(convert_to_unicode(text)):
      pieces += self._cut(word) or [self.unk_token]
    return pieces

  def _cut(self, word):
    """The pieces of one word, or None."""
    if len(word) > self.max_input_chars_per_word:
      return None
    pieces = []
    start = 0
    while start < len(word):
      prefix = "##" if start else ""
      for end in range(len(word), start, -1):
        piece = prefix + word[start:end]
        if piece in self.vocab:
          pieces.append(piece)
          start = end
          break
      else:
        return None
    return pieces


class SentencePieceTokenizer:
  """Cuts text by a SentencePiece model (Kudo & Richardson 2018).

  Args:
    model_file: a model that holds [CLS], [SEP] and [MASK].
    do_lower_case: lower-case and strip accents first.

  Attributes:
    vocab: OrderedDict from piece to id.

  Raises:
    ValueError: the file is no model, or lacks one of these pieces.
  """

  def __init__(self, model_file: str, do_lower_case: bool = True):
    self.do_lower_case = do_lower_case
    import sentencepiece  # Only those who use such a model pay for loading it.

    with tf.io.gfile.GFile(model_file, "rb") as reader:
      serialized = reader.read()
    try:
      self._model = sentencepiece.SentencePieceProcessor(model_proto=serialized)
    except RuntimeError as error:
      raise ValueError(f"{model_file} is not a SentencePiece model") from error
    size = self._model.get_piece_size()
    self.vocab = collections.OrderedDict(
      (self._model.id_to_piece(index), index) for index in range(size)
    )
    for special in ("[CLS]", "[SEP]", "[MASK]"):
      if special not in self.vocab:
        raise ValueError(
          f"{model_file} has no piece {special}; make the model "
          f"with build_vocab.py, or with --control_symbols=[CLS],[SEP],[MASK]"
        )
    self.unk_token = self._model.id_to_piece(self._model.unk_id())

  def tokenize(self, text: str | bytes) -> list[str]:
    """The pieces of `text`, a list of str."""
    text = convert_to_unicode(text)
    if self.do_lower_case:
      text = lower_case(text)
    # By their ids: what is unknown would be shown as the text it is.
    return [self._model.id_to_piece(i) for i in self._model.encode(text)]


def _is_whitespace(char):
  """Whether `char` separates words: a blank of any width, tab or newline."""
  return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char):
  """Whether `char` is a control or format character; tab and newlines are not.

  Private, surrogate and unassigned characters are not either: they stay in the
  text, where no vocabulary knows them.
  """
  return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char):
  """Whether `char` is of a category P*, or any symbol of ASCII.

  So `$`, `+` and `^` count too, which Unicode does not call punctuation.
  """
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


def _is_cjk(char):
  code = ord(char)
  return any(first <= code <= last for first, last in _CJK_BLOCKS)
