"""The tokenizer as a TensorFlow graph, in TensorFlow's own string operations.

    tokenize = GraphTokenizer(tokenization.FullTokenizer("vocab.txt"))
    tokenize(tf.constant(["Unaffable!"]))  # [[[14477, 20961, 3468], [999]]]

The ids are those of its twin `tokenization.FullTokenizer`, which also makes the
tables of characters; tests/export/test_text_graph.py compares them for random
texts. Only the order of combining marks that are no accents is not normalized.
"""

import functools
import unicodedata

import numpy as np
import tensorflow as tf

import tokenization
from bert.errors import UserError

# Code points per page of a table of characters.
_PAGE = 256
_MAX_OUTPUTS = 3  # A character becomes at most three.

# An entry of the table of characters is 0 for no output, or
# 4 * (output - character) + _WITHIN, or + _ALONE if the output is a word.
_WITHIN, _ALONE = 2, 3

_SIGMA, _FINAL_SIGMA = ord("Σ"), ord("ς")
_BLANK = ord(" ")


class GraphTokenizer(tf.Module):
  """Splits texts into the ids of word pieces, as its `tokenizer` does."""

  def __init__(self, tokenizer: tokenization.FullTokenizer):
    super().__init__("tokenizer")
    wordpiece = tokenizer.wordpiece_tokenizer
    if not tokenizer.splits_words:
      raise UserError(
        "the model has no vocabulary of word pieces, and TensorFlow cannot "
        "compute other tokenizers; export the encoder, and make rows with the "
        "tokenizer of bert.load(...).task"
      )
    self.tokenizer = tokenizer
    self._lower_cases = tokenizer.basic_tokenizer.do_lower_case
    self._max_word_length = wordpiece.max_input_chars_per_word
    self._max_piece_length = max(
      len(piece.removeprefix("##")) for piece in tokenizer.vocab
    )
    self._unknown = tokenizer.vocab[wordpiece.unk_token]
    self._ids = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(
        list(tokenizer.vocab),
        list(tokenizer.vocab.values()),
        tf.string,
        "int64",
      ),
      default_value=-1,
    )

  def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Ids of word pieces, int32 [N, (words), (pieces)], of texts, string [N].

    A word is a word or punctuation mark of the basic tokenizer. Bytes that are
    not UTF-8 are ignored.
    """
    words = self._words(texts)
    return words.with_values(self._pieces(words.values))

  def _words(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """The words and punctuation marks, string [N, (words)], of texts [N]."""
    chars = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
    codes, rows = chars.flat_values, chars.value_rowids()
    if self._lower_cases:
      codes = _with_final_sigmas(codes, rows)
    entries = _look_up(_characters(self._lower_cases), codes)  # [chars, 3]
    outputs = codes[:, tf.newaxis] + entries // 4
    is_present = entries % 4 > 0
    # One element per output from here on.
    is_alone = tf.boolean_mask(entries % 4 == _ALONE, is_present)
    rows = tf.repeat(rows, tf.reduce_sum(tf.cast(is_present, tf.int32), axis=1))
    codes = tf.boolean_mask(outputs, is_present)
    starts = is_alone | _shifted(is_alone, True) | (rows != _shifted(rows, -1))
    is_text = codes != _BLANK
    codes, starts, rows = (
      tf.boolean_mask(values, is_text) for values in (codes, starts, rows)
    )
    first = tf.where(starts)[:, 0]
    words = tf.RaggedTensor.from_row_starts(codes, first, validate=False)
    return tf.RaggedTensor.from_value_rowids(
      tf.strings.unicode_encode(words, "UTF-8"),
      tf.gather(rows, first),
      nrows=chars.nrows(),
      validate=False,
    )

  def _pieces(self, words: tf.Tensor) -> tf.RaggedTensor:
    """Ids of the word pieces, int32 [W, (pieces)], of words, string [W]."""
    whole = self._ids.lookup(words)
    is_long = tf.strings.length(words, "UTF8_CHAR") > self._max_word_length
    is_whole = (whole >= 0) & ~is_long
    parted, part_ids, is_known = self._split(
      words, tf.where(~is_whole & ~is_long)[:, 0]
    )
    keep = tf.gather(is_known, parted)
    indices = [tf.where(is_whole), tf.boolean_mask(parted, keep)]
    ids = [tf.boolean_mask(whole, is_whole), tf.boolean_mask(part_ids, keep)]
    indices.append(tf.where(~is_whole & (is_long | ~is_known)))
    ids.append(tf.fill(tf.shape(indices[-1])[:1], np.int64(self._unknown)))
    indices = tf.concat([tf.reshape(part, [-1]) for part in indices], axis=0)
    order = tf.argsort(indices, stable=True)
    return tf.RaggedTensor.from_value_rowids(
      tf.cast(tf.gather(tf.concat(ids, axis=0), order), tf.int32),
      tf.gather(indices, order),
      nrows=tf.size(words, tf.int64),
      validate=False,
    )

  def _split(self, words, chosen):
    """Splits chosen words, string [W], into the longest pieces, one a step.

    Returns for each piece the index of its word and its id, int64 [pieces]; and
    whether a word consists of known pieces, bool [W].
    """
    lengths = tf.strings.length(words, "UTF8_CHAR")
    sizes = tf.range(self._max_piece_length, 0, -1)

    def step(chosen, starts, indices, ids, is_known):
      rest = tf.strings.substr(
        tf.gather(words, chosen),
        starts,
        tf.fill(tf.shape(starts), 999),
        "UTF8_CHAR",
      )
      shape = [tf.size(chosen), self._max_piece_length]
      # A size beyond the end gives the whole rest.
      parts = tf.strings.substr(
        tf.broadcast_to(rest[:, tf.newaxis], shape),
        tf.zeros(shape, tf.int32),
        tf.broadcast_to(sizes, shape),
        "UTF8_CHAR",
      )
      prefix = tf.where(starts > 0, "##", "")[:, tf.newaxis]
      ids_of_parts = self._ids.lookup(prefix + parts)  # [words, sizes]
      best = tf.argmax(ids_of_parts >= 0, axis=1)
      ids_here = tf.gather(ids_of_parts, best, axis=1, batch_dims=1)
      is_known &= ~tf.scatter_nd(
        chosen[:, tf.newaxis], ids_here < 0, tf.shape(words, tf.int64)
      )
      indices = tf.concat([indices, chosen], axis=0)
      ids = tf.concat([ids, ids_here], axis=0)
      starts += tf.gather(sizes, best)
      goes_on = (ids_here >= 0) & (starts < tf.gather(lengths, chosen))
      return (
        tf.boolean_mask(chosen, goes_on),
        tf.boolean_mask(starts, goes_on),
        indices,
        ids,
        is_known,
      )

    none = tf.zeros([0], tf.int64)
    state = (chosen, tf.zeros_like(chosen, tf.int32), none, none)
    state += (tf.fill(tf.shape(words), True),)
    any_size = tf.TensorShape([None])
    _, _, indices, ids, is_known = tf.while_loop(
      lambda chosen, *_: tf.size(chosen) > 0, step, state, (any_size,) * 5
    )
    return indices, ids, is_known


def _with_final_sigmas(codes, rows):
  """Replaces a capital sigma at the end of a word by a final sigma.

  As in `str.lower`, some characters do not count.
  """
  letters = _look_up(_letter_kinds(), codes)[:, 0]
  counted = tf.where(letters != _IGNORED)
  is_cased = tf.gather_nd(letters, counted) == _CASED
  rows = tf.gather_nd(rows, counted)
  change = rows != _shifted(rows, -1)
  follows = _shifted(is_cased, False) & ~change
  # Whether the next character that counts is cased and in the same text.
  precedes = (is_cased & ~change)[1:]
  precedes = tf.concat(
    [precedes, tf.fill([tf.minimum(tf.size(rows), 1)], False)], 0
  )
  is_final = tf.scatter_nd(
    counted, follows & ~precedes, tf.shape(codes, tf.int64)
  )
  return tf.where(is_final & (codes == _SIGMA), _FINAL_SIGMA, codes)


def _shifted(values, first):
  """Each value's predecessor; `first` for the first one."""
  first = tf.constant([first], values.dtype)
  return tf.concat([first, values], axis=0)[:-1]


# Tables of characters.

# Kinds of characters for `_with_final_sigmas`.
_CASED, _IGNORED = 1, 2


Table = tuple[np.ndarray, np.ndarray]


def _look_up(table: Table, codes: tf.Tensor) -> tf.Tensor:
  """The entries, int32 [C, n], of code points, int32 [C]; see `_compact`."""
  page_of, pages = table
  page = tf.gather(tf.constant(page_of), codes // _PAGE)
  return tf.gather_nd(
    tf.constant(pages), tf.stack([page, codes % _PAGE], axis=-1)
  )


def _compact(entries: np.ndarray) -> Table:
  """A table by code point, int32 [0x110000, n], without repeated pages.

  Returns int32 [0x1100], the page of each block of 256 characters, and int32
  [pages, 256, n].
  """
  pages, page_of = {}, []
  for page in entries.reshape(-1, _PAGE, entries.shape[1]):
    page_of.append(pages.setdefault(page.tobytes(), len(pages)))
  content = np.frombuffer(b"".join(pages), np.int32)
  content = content.reshape(-1, _PAGE, entries.shape[1])
  return np.array(page_of, np.int32), content


@functools.cache
def _pages_of_text():
  """The code points of each page with text, and their characters."""
  pages = []
  for page in range(0x110000 // _PAGE):
    codes = range(page * _PAGE, (page + 1) * _PAGE)
    chars = [chr(code) for code in codes]
    # Unassigned, private and surrogate code points stay as they are.
    if not {*map(unicodedata.category, chars)} <= {"Cn", "Co", "Cs"}:
      pages.append((slice(codes[0], codes[-1] + 1), chars))
  return pages


@functools.cache
def _cased_entries():
  """What the basic tokenizer makes of each character, int32 [0x110000, 3]."""
  entries = np.zeros([0x110000, _MAX_OUTPUTS], np.int32)
  entries[:, 0] = _WITHIN
  tokenize = tokenization.BasicTokenizer(do_lower_case=False).tokenize
  for codes, chars in _pages_of_text():
    text = "".join(chars)
    words = tokenize(text)
    if words == chars:
      entries[codes, 0] = _ALONE
    elif words != [text]:
      entries[codes, 0] = [_cased_entry(tokenize, char) for char in chars]
  return entries


def _cased_entry(tokenize, char):
  words = tokenize(f"a{char}a")
  if words == ["a", "a"]:
    return 4 * (_BLANK - ord(char)) + _ALONE
  if words == ["aa"]:
    return 0
  return _WITHIN if len(words) == 1 else _ALONE


@functools.cache
def _characters(lower_cases):
  """`_cased_entries`, or those of a tokenizer that lower-cases, compact."""
  cased = entries = _cased_entries()
  if lower_cases:
    entries = cased.copy()
    for codes, chars in _pages_of_text():
      if tokenization.lower_case("".join(chars)) == "".join(chars):
        continue
      for code, char in enumerate(chars, codes.start):
        lower = tokenization.lower_case(char)
        if lower == char or cased[code, 0] not in (_WITHIN, _ALONE):
          continue
        entries[code] = 0
        for i, other in enumerate(map(ord, lower)):
          # A part of an ideograph stays alone.
          kind = max(cased[code, 0], cased[other, 0])
          entries[code, i] = 4 * (other - code) + kind
  return _compact(entries)


@functools.cache
def _letter_kinds():
  """Which characters are cased, and which do not count, compact."""
  kinds = np.zeros([0x110000, 1], np.int32)
  for codes, chars in _pages_of_text():
    for code, char in enumerate(chars, codes.start):
      if (char + "Σ").lower().endswith("ς"):
        kinds[code] = _CASED
      elif ("a" + char + "Σ").lower().endswith("ς"):
        kinds[code] = _IGNORED  # The letter before counts instead.
  kinds[_cased_entries()[:, 0] == 0] = _IGNORED
  return _compact(kinds)
