"""Entities in texts as a graph: words, windows, model and decoding.

The entities are those of `tagger.Tagger`. Words are found as in
`text_words.split_text`: each character is replaced by a letter for its kind,
because the regular expressions of TensorFlow know other characters as letters
than those of Python.
"""

import functools
import re

import numpy as np
import tensorflow as tf

import modeling
from bert.export import text_graph, text_rows
from bert.export.task_graph import TaskGraph, Tensors
from bert.export.text_graph import GraphTokenizer
from bert.tasks import entities, text_words
from bert.tasks.tagger import Tagger

# Kinds of characters: s, S, another small or capital ASCII letter, another
# capital, a digit, another character of a word, a Chinese one, a sign that
# joins words, one that joins digits, a mark, a mark that begins no word,
# another character that does not, a blank, any other. "." and "'" are
# themselves; the full stop of an initial is ";".
_LETTER = "[sSaAUdw]"
_NUMBER = "d(?:,d)*"
_REST = rf"(?:{_NUMBER}|[sSaAUw^~])*"
_LETTERS = f"(?:{_NUMBER}|{_LETTER}){_REST}"
_WORD = (
  rf"c[\^~]*|(?:[sSaA][.;]){{2,}}|[SAU];|'[sS]\b|"
  rf"{_LETTERS}(?:[-.]{_LETTERS}|'(?:[aAUw]|[sS]{_LETTER}){_REST})*|"
  rf"[^sSaAUdwc~# ][\^~]*"
)
_BETWEEN = "^[~# ]+"
_INITIAL = r"\b([SAU])\.( +[SAU])"
_ELISION = "([sa])'([AU]|S[sSaAUdwc])"


class TaggerGraph(TaskGraph):
  """A Tagger as a graph.

  Its outputs have a row for each text, as long as the one with most entities:
  `entities` and `types`, string [N, E]; `starts` and `ends`, int64 [N, E],
  offsets of characters; `probabilities`, float [N, E]; and `count`, int64 [N],
  the number of entities. The rest of a row is "", -1 and 0.
  """

  def __init__(self, tagger: Tagger, tokenizer: GraphTokenizer | None):
    super().__init__(tagger.predictor, tokenizer)
    self._labels, self._scheme = tagger.labels, tagger.scheme
    self.seq_length = tagger.reading.max_seq_length

  def numbers(self, features, encoder=modeling.BertModel):
    # The marks of words are not needed.
    features = {**features, "label_ids": tf.zeros_like(features["input_ids"])}
    outputs = self._predictor.compute(features, encoder)
    return {name: outputs[name] for name in ("labels", "probabilities")}

  def answer(self, *texts: tf.Tensor) -> Tensors:
    chars = tf.strings.unicode_decode(texts[0], "UTF-8", errors="ignore")
    starts, ends = _split(chars)
    rows = starts.value_rowids()
    words = text_rows.parts(chars, rows, starts.values, ends.values)
    words = tf.strings.unicode_encode(words, "UTF-8")
    pieces = self._pieces(words)
    labels, probabilities = self._label(pieces, rows, starts.nrows())
    first, last, kind, probability = self._decode(labels, probabilities, rows)
    start, end = tf.gather(starts.values, first), tf.gather(ends.values, last)
    rows = tf.gather(rows, first)
    text = text_rows.parts(chars, rows, start, end)
    text = tf.strings.unicode_encode(text, "UTF-8")
    columns = {
      "entities": (text, ""),
      "types": (kind, ""),
      "starts": (start, -1),
      "ends": (end, -1),
      "probabilities": (probability, 0),
    }
    by_text = {
      name: tf.RaggedTensor.from_value_rowids(
        values, rows, nrows=chars.nrows(), validate=False
      )
      for name, (values, _) in columns.items()
    }
    found = {n: by_text[n].to_tensor(columns[n][1]) for n in columns}
    return {**found, "count": by_text["types"].row_lengths()}

  def _pieces(self, words):
    """Ids of words, [W, (pieces)]; a word without pieces is unknown."""
    pieces = self.tokenizer(words).merge_dims(1, 2)
    tokenizer = self.tokenizer.tokenizer
    unknown = tokenizer.vocab[tokenizer.wordpiece_tokenizer.unk_token]
    is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
    return tf.concat([pieces, text_rows.column(unknown, is_empty)], axis=1)

  def _label(self, pieces, rows, count):
    """The label of each word, int32 [W], and its probability.

    Args:
      pieces: ids [W, (pieces)].
      rows: int64 [W], index of each word's text.
      count: number of texts, N.
    """
    by_text = tf.RaggedTensor.from_value_rowids(
      pieces, rows, nrows=count, validate=False
    ).merge_dims(1, 2)
    room = self.seq_length - 2
    text, start, end, owned = _windows(
      by_text.row_lengths(), room, room // 2 or 1
    )
    part = text_rows.parts(by_text, text, start, end)
    vocab = self.tokenizer.tokenizer.vocab
    outputs = self._numbers(text_rows.pack([part], vocab))
    # Each piece is owned by one window, in order.
    window = owned.value_rowids()
    position = 1 + owned.values - tf.gather(start, window)
    position = tf.gather(
      tf.stack([window, position], axis=1), pieces.row_starts()
    )
    return (
      tf.gather_nd(outputs["labels"], position),
      tf.gather_nd(outputs["probabilities"], position),
    )

  def _decode(self, labels, probabilities, rows):
    """The entities; see `entities.found_entities`.

    Returns:
      first and last word, int64 [E]; type, string [E]; probability, [E].
    """
    words = tf.range(tf.size(labels, tf.int64))
    if not self._scheme:
      return words, words, tf.gather(self._labels, labels), probabilities
    prefixes, kinds = zip(*map(entities.split_label, self._labels), strict=True)
    inside = tf.constant([prefix in "IE" for prefix in prefixes])
    ends = tf.constant([prefix in "ES" for prefix in prefixes])
    outside = tf.constant([not kind for kind in kinds])
    kind, is_outside = tf.gather(kinds, labels), tf.gather(outside, labels)
    # Whether the word before is of the same text and entity.
    continues = (rows[1:] == rows[:-1]) & (kind[1:] == kind[:-1])
    continues &= tf.gather(inside, labels[1:]) & ~is_outside[:-1]
    continues &= ~tf.gather(ends, labels[:-1])
    continues = tf.concat([tf.zeros_like(is_outside[:1]), continues], axis=0)
    begins = ~is_outside & ~continues
    number = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    number, words, probabilities = (
      tf.boolean_mask(values, ~is_outside)
      for values in (number, words, probabilities)
    )
    return (
      tf.math.segment_min(words, number),
      tf.math.segment_max(words, number),
      tf.boolean_mask(kind, begins),
      tf.math.segment_prod(probabilities, number),
    )


def _split(chars):
  """The words of texts: where they start and end, int64 [N, (words)].

  Args:
    chars: the code points of the texts, [N, (characters)].
  """
  kinds = text_graph.look_up(_kinds(), chars.values)[:, 0]
  text = tf.strings.unicode_encode(chars.with_values(kinds), "UTF-8")
  for _ in range(2):  # What follows a match may begin another one.
    text = tf.strings.regex_replace(text, _INITIAL, r"\1;\2")
    text = tf.strings.regex_replace(text, _ELISION, r"\1!\2")
  # A newline is no kind of character.
  marked = tf.strings.regex_replace(text, f"({_WORD})", "\\1\n")
  parts = tf.strings.split(marked, "\n")
  sizes = tf.cast(tf.strings.length(parts.values), tf.int64)
  words = tf.strings.regex_replace(parts.values, _BETWEEN, "")
  blanks = sizes - tf.cast(tf.strings.length(words), tf.int64)
  ends = tf.cumsum(sizes) - tf.gather(chars.row_starts(), parts.value_rowids())
  starts = ends - sizes + blanks
  is_word = parts.with_values(starts < ends)
  return tuple(
    tf.ragged.boolean_mask(parts.with_values(values), is_word)
    for values in (starts, ends)
  )


@functools.cache
def _kinds():
  """The kind of each character, a table for `text_graph.look_up`."""
  mark, no_start = (
    f"[{re.escape(characters)}]"
    for characters in (text_words.marks(), text_words.dropped())
  )
  patterns = {
    "s": "s",
    "S": "S",
    "a": "[a-z]",
    "A": "[A-Z]",
    "U": f"[{text_words.capitals()}]",
    "c": f"[{text_words.CHINESE}]",
    "d": r"\d",
    "w": r"\w",
    "-": "[-/@&+]",
    ",": "[,:]",
    " ": r"\s",
    "~": f"(?={mark}){no_start}",
    "^": mark,
    "#": no_start,
    ".": r"\.",
    "'": "['’]",
  }
  found = np.full([0x110000, 1], ord("!"), np.int32)
  text = "".join(map(chr, range(0x110000)))
  for kind, pattern in reversed(patterns.items()):
    for match in re.finditer(pattern, text):
      found[match.start()] = ord(kind)
  return text_graph.compact(found)


def _windows(sizes, room, stride):
  """`sequences.overlapping_windows` of N texts, int64 [R] each.

  Args:
    sizes: int64 [N], numbers of pieces.
    room, stride: length of a window, and distance between two.

  Returns:
    The index of each window's text, its start and end, and the pieces that it
    owns, [R, (pieces)].
  """
  last_starts = tf.maximum(sizes - room, 0)
  counts = 1 - (-last_starts // stride)
  text = tf.repeat(tf.range(tf.size(sizes, tf.int64)), counts)
  number = tf.ragged.range(counts).values
  size, last_start, count = (
    tf.gather(values, text) for values in (sizes, last_starts, counts)
  )

  def start_of(number):
    return tf.minimum(stride * number, last_start)

  def edge(number):  # Between a window and the next one.
    return (start_of(number) + room + start_of(number + 1)) // 2

  start = start_of(number)
  first = tf.where(number == 0, np.int64(0), edge(number - 1))
  last = tf.where(number == count - 1, size, edge(number))
  return (
    text,
    start,
    tf.minimum(start + room, size),
    tf.ragged.range(first, last),
  )
