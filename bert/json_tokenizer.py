"""Tokenizers of the `tokenizers` library, as a tokenizer.json describes them.

    tokenizer = JsonTokenizer("roberta-base/tokenizer.json")
    tokenizer.tokenize("The old bridge")  # ["The", "Ġold", "Ġbridge"]

They are byte-level BPE (RoBERTa) or unigrams (XLM-R, ALBERT), each with its own
normalization. Special pieces in a text are split like any text.
"""

import collections
import contextlib
import functools

from bert import strict_json
from bert.errors import UserError, shortened
from bert.pieces import WORD_START, SpecialPieces, read_file

# What marks a piece that begins a word: byte-level BPE's, and SentencePiece's.
_WORD_STARTS = ("\u0120", WORD_START)


class JsonTokenizer:
  """Splits text as a tokenizer.json says; see `FullTokenizer`."""

  def __init__(self, path: str):
    self._path = path
    self._content = read_file(path)
    self._tokenizer = self._parse()
    self.special, self.unk_token = self._find_special()
    self._tokenizer.encode_special_tokens = True
    self.vocab = collections.OrderedDict(
      sorted(self._read_vocab().items(), key=lambda pair: pair[1])
    )

  def _read_vocab(self):
    """The ids of the pieces, of a repeated one that which texts get."""
    vocab = self._tokenizer.get_vocab()
    used = self._tokenizer.encode("").ids
    unknown = strict_json.loads(self._content)["model"].get("unk_id")
    for index in used if unknown is None else [*used, unknown]:
      vocab[self._tokenizer.id_to_token(index)] = index
    return vocab

  def _parse(self):
    import tokenizers

    with self._readable():
      tokenizer = tokenizers.Tokenizer.from_str(self._content.decode())
    # Some files cut texts, or fill them up.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer

  @contextlib.contextmanager
  def _readable(self):
    try:
      yield
    except BaseException as error:
      # A panic of the library is no Exception.
      is_panic = type(error).__module__ == "pyo3_runtime"
      if not isinstance(error, Exception) and not is_panic:
        raise
      import tokenizers

      raise UserError(
        f"{self._path} is no tokenizer that tokenizers "
        f"{tokenizers.__version__} reads ({shortened(str(error))}); pass the "
        f"tokenizer.json of a model"
      ) from error

  def _find_special(self):
    """What is added to a text and to a pair, and the unknown piece."""
    with self._readable():
      single, pair = (self._tokenizer.encode(*t) for t in (("",), ("", "")))
    if len(single.ids) != 2 or len(pair.ids) not in (3, 4):
      raise UserError(
        f"{self._path} does not put one piece before a text and one behind it; "
        f"pass the tokenizer.json of a model of BERT's family"
      )
    with self._readable():
      pieces = map(self._tokenizer.id_to_token, single.ids)
      cls, sep = filter(None, pieces)
    added = self._tokenizer.get_added_tokens_decoder().values()
    by_role = {
      token.content.strip("[]<>").lower(): token.content
      for token in added
      if token.special
    }
    special = SpecialPieces(
      cls,
      sep,
      by_role.get("mask", "[MASK]"),
      by_role.get("pad", "[PAD]"),
      between=len(pair.ids) - 2,
      has_segments=pair.type_ids[-1] == 1,
    )
    return special, by_role.get("unk", cls)  # Byte-level BPE may have none.

  def tokenize(self, text: str) -> list[str]:
    """The pieces of `text`."""
    return self._split(self._tokenizer, text)

  def tokenize_masked(self, text: str) -> list[str]:
    """The pieces of a text, in which special pieces are not split."""
    return self._split(self._with_special, text)

  @functools.cached_property
  def _with_special(self):
    return self._parse()

  def _split(self, tokenizer, text):
    encoded = tokenizer.encode(text, add_special_tokens=False)
    return list(map(tokenizer.id_to_token, encoded.ids))

  def offsets(self, text: str) -> list[tuple[int, int]]:
    """Start and end in `text` of each piece; see `FullTokenizer.offsets`."""
    encoded = self._tokenizer.encode(text, add_special_tokens=False)
    spans = []
    for start, end in encoded.offsets:
      # A blank before a word is in its piece.
      while start < end and text[start].isspace():
        start += 1
      spans.append((start, end))
    return spans

  def text_of(self, piece: str) -> str:
    """The text of a piece, without the mark of a word's beginning."""
    if self._tokenizer.decoder is None:
      return piece
    ids = [self.vocab[piece]]
    return self._tokenizer.decode(ids, skip_special_tokens=False).strip()

  def continuations(self) -> frozenset[str]:
    """The pieces that continue a word."""
    added = self._tokenizer.get_added_tokens_decoder().values()
    # Unigrams mark the beginning of a word before an unknown piece.
    others = {t.content for t in added} - {self.unk_token} | {self.special.cls}
    return frozenset(
      piece
      for piece in self.vocab
      if piece not in others and not piece.startswith(_WORD_STARTS)
    )
