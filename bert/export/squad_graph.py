"""Answers to questions as a graph: windows, model and decoding.

The answers are those of `squad_reader.Reader`, with three exceptions: where the
words of an answer contain its text twice, `Reader` returns the first, and the
graph the predicted one; where no span is allowed, the graph returns "";
probabilities can differ by about 0.01 where pieces do not align with
characters, such as at decomposed accents.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.export import text_rows
from bert.export.task_graph import TaskGraph, Tensors, text_input
from bert.export.text_graph import GraphTokenizer
from bert.tasks import squad
from bert.tasks.squad_reader import Reader

# The number of spans that become texts, as a multiple of n_best_size. Spans
# with equal texts count once for the probability.
_SPANS = 4

_LOWEST = np.float64(-np.inf)


class _Paragraphs(NamedTuple):
  """The words and pieces of N texts, end to end.

  Attributes:
    text: string [N], UTF-8.
    pieces: ids [N, (pieces)].
    word: int64 [P], index of each piece's word.
    word_starts, word_ends: int64 [W], offsets in the text.
    offsets: int64 [C], of each character of a word in its text.
    chars_before: int64 [W + 1], number of characters in the words before.
    pieces_before: int64 [W + 1], number of pieces in the words before.
    length_before: int64 [P + 1], number of characters in the pieces before.
    unknown_before: int64 [P + 1], number of unknown pieces before.
  """

  text: tf.Tensor
  pieces: tf.RaggedTensor
  word: tf.Tensor
  word_starts: tf.Tensor
  word_ends: tf.Tensor
  offsets: tf.Tensor
  chars_before: tf.Tensor
  pieces_before: tf.Tensor
  length_before: tf.Tensor
  unknown_before: tf.Tensor


class _Windows(NamedTuple):
  """The windows of all questions, R.

  Attributes:
    question: int64 [R], index of each one's question.
    first, last: int64 [R], positions of its first piece and after its last.
    piece: int64 [R], index of its first piece among those of all texts.
    owned: bool [R, (pieces)], whether no other window shows the piece with more
      context.
  """

  question: tf.Tensor
  first: tf.Tensor
  last: tf.Tensor
  piece: tf.Tensor
  owned: tf.RaggedTensor


class _Spans(NamedTuple):
  """The best spans of each question, best first, as pieces of all texts.

  Attributes:
    first, last: int64 [N, K], the pieces; 0 where there are less than K.
    score: float64 [N, K], the sum of its logits, or -inf.
  """

  first: tf.Tensor
  last: tf.Tensor
  score: tf.Tensor


class ReaderGraph(TaskGraph):
  """A Reader as a graph.

  Its outputs are `answer`, string [N]; `start` and `end`, int64 [N], offsets of
  characters in the context; and `probability`, float [N]. Without an answer,
  `answer` is "" and the offsets are -1.
  """

  inputs = (text_input("question"), text_input("context"))

  def __init__(self, reader: Reader, tokenizer: GraphTokenizer | None):
    super().__init__(reader.predictor, tokenizer)
    self._settings, self._decoding = reader.settings, reader.decoding
    self.seq_length = reader.settings.max_seq_length

  def answer(self, *texts: tf.Tensor) -> Tensors:
    question, context = texts
    queries = self.tokenizer(question).merge_dims(1, 2)
    queries = queries[:, : self._settings.max_query_length]
    paragraphs = _read(self.tokenizer, context)
    windows, features = self._windows(queries, paragraphs.pieces)
    logits = self._numbers(features)
    start, end = logits["start_logits"], logits["end_logits"]
    spans, null = self._find_spans(
      windows, tf.cast(start, tf.float64), tf.cast(end, tf.float64)
    )
    # Slots without a span point at another text, which may be longer.
    is_span = spans.score > _LOWEST
    starts, ends = (
      tf.where(is_span, offsets, 0) for offsets in _offsets(paragraphs, spans)
    )
    texts = tf.strings.substr(
      tf.broadcast_to(paragraphs.text[:, tf.newaxis], tf.shape(starts)),
      tf.cast(starts, tf.int32),
      tf.cast(ends - starts, tf.int32),
      "UTF8_CHAR",
    )
    texts = tf.strings.regex_replace(texts, f"[{squad.BLANKS}]+", " ")
    is_null, probability = self._decide(texts, spans.score, null)
    nowhere = np.int64(-1)
    return {
      "answer": tf.where(is_null, "", texts[:, 0]),
      "start": tf.where(is_null, nowhere, starts[:, 0]),
      "end": tf.where(is_null, nowhere, ends[:, 0]),
      "probability": probability,
    }

  def _windows(self, queries, pieces):
    """The _Windows of questions, and their rows; see `squad._windows`.

    Args:
      queries: ids [N, (pieces)] of the questions.
      pieces: ids [N, (pieces)] of the paragraphs.
    """
    sizes, lengths = pieces.row_lengths(), queries.row_lengths()
    rooms = self._settings.max_seq_length - 3 - lengths
    strides = tf.minimum(rooms, self._settings.doc_stride)
    counts = 1 - (-tf.maximum(sizes - rooms, 0) // strides)
    question = tf.repeat(tf.range(pieces.nrows()), counts)
    start = tf.gather(strides, question) * tf.ragged.range(counts).values
    size, length, room, row_start = (
      tf.gather(values, question)
      for values in (sizes, lengths, rooms, pieces.row_starts())
    )
    end = tf.minimum(start + room, size)
    part = text_rows.parts(pieces, question, start, end)
    query = tf.gather(queries, question)
    vocab = self.tokenizer.tokenizer.vocab
    first, piece = 2 + length, row_start + start
    owned = _owned(
      tf.ragged.range(piece, row_start + end), tf.reduce_sum(sizes)
    )
    windows = _Windows(question, first, first + end - start, piece, owned)
    return windows, text_rows.pack([query, part], vocab)

  def _find_spans(self, windows, starts, ends):
    """The best allowed spans; see `squad_decoding._ranked_spans`.

    Args:
      windows: _Windows.
      starts, ends: float64 [R, S], logits.

    Returns:
      _Spans, and the score of no answer, float64 [N], -inf in SQuAD 1.1.
    """
    positions = tf.range(tf.shape(starts, tf.int64)[1])
    first, last = windows.first[:, tf.newaxis], windows.last[:, tf.newaxis]
    is_text = (positions >= first) & (positions < last)
    index = windows.owned.row_starts()[:, tf.newaxis] + positions - first
    owned = _at(windows.owned.values, tf.where(is_text, index, 0)) & is_text
    is_padding = positions > last  # After the second [SEP].
    count = tf.minimum(self._decoding.n_best_size, tf.shape(starts)[1])
    (starts_at, start), (ends_at, end) = (
      tf.math.top_k(tf.where(is_padding, _LOWEST, part), count)
      for part in (starts, ends)
    )
    may_start = tf.gather(owned, start, batch_dims=1)
    may_end = tf.gather(is_text, end, batch_dims=1)
    length = 1 + end[:, tf.newaxis] - start[:, :, tf.newaxis]  # [R, n, n]
    allowed = (length >= 1) & (length <= self._decoding.max_answer_length)
    allowed &= may_start[:, :, tf.newaxis] & may_end[:, tf.newaxis]
    scores = starts_at[:, :, tf.newaxis] + ends_at[:, tf.newaxis]
    scores = tf.where(allowed, scores, _LOWEST)
    # A batch without questions has no first position.
    null = tf.reduce_sum(starts[:, :1] + ends[:, :1], axis=1)
    null = tf.math.segment_min(null, windows.question)
    if not self._decoding.version_2_with_negative:
      null = tf.fill(tf.shape(null), _LOWEST)
    return self._ranked(windows, scores, start, end), null

  def _ranked(self, windows, scores, start, end):
    """The _Spans of scores [R, n, n] for positions [R, n] of start and end."""
    num_rows, size = tf.unstack(tf.shape(start))
    # The scores of a question are a row, by window, start and end.
    by_window = tf.RaggedTensor.from_value_rowids(
      tf.reshape(scores, [num_rows, size * size]),
      windows.question,
      validate=False,
    )
    rows = by_window.to_tensor(_LOWEST)  # [N, windows, n * n]
    num_questions, num_windows, _ = tf.unstack(tf.shape(rows))
    rows = tf.reshape(rows, [num_questions, num_windows * size * size])
    count = _SPANS * self._decoding.n_best_size
    rows = tf.pad(rows, [[0, 0], [0, count]], constant_values=_LOWEST)
    score, index = tf.math.top_k(rows, count)
    is_span = score > _LOWEST
    index = tf.where(is_span, index, 0)
    window = by_window.row_starts()[:, tf.newaxis] + tf.cast(
      index // (size * size), tf.int64
    )
    in_text = tf.gather(windows.piece - windows.first, window)

    def piece(positions, rank):
      found = tf.gather_nd(
        positions, tf.stack([window, tf.cast(rank, tf.int64)], axis=-1)
      )
      return tf.where(is_span, in_text + tf.cast(found, tf.int64), 0)

    return _Spans(
      piece(start, index // size % size), piece(end, index % size), score
    )

  def _decide(self, texts, scores, null):
    """Whether there is no answer, bool [N], and the probability of the answer.

    See `squad_decoding.answer_question`. The best answer comes first.

    Args:
      texts: string [N, K], of the spans.
      scores: float64 [N, K].
      null: float64 [N], the score of no answer.
    """
    is_span = scores > _LOWEST
    size = tf.shape(texts)[1]
    is_before = tf.range(size) < tf.range(size)[:, tf.newaxis]
    equal = texts[:, :, tf.newaxis] == texts[:, tf.newaxis]
    is_first = is_span & ~tf.reduce_any(equal & is_before, axis=2)
    count = self._decoding.n_best_size
    ahead = is_first & (scores >= null[:, tf.newaxis])
    is_listed = tf.reduce_sum(tf.cast(ahead, tf.int32), axis=1) < count
    # No answer is one of the n best, or follows them.
    is_v2 = self._decoding.version_2_with_negative
    limit = count - tf.cast(is_listed, tf.int32) * int(is_v2)
    rank = tf.cumsum(tf.cast(is_first, tf.int32), axis=1)
    kept = is_first & (rank <= limit[:, tf.newaxis])
    best = tf.maximum(scores[:, 0], null)
    best = tf.where(best > _LOWEST, best, 0)
    weights = tf.exp(scores - best[:, tf.newaxis]) * tf.cast(kept, tf.float64)
    null_weight = tf.exp(null - best)
    total = tf.reduce_sum(weights, axis=1) + null_weight
    is_null = null - scores[:, 0] > self._decoding.null_score_diff_threshold
    is_null |= ~is_span[:, 0]
    chosen = tf.where(is_null, null_weight, weights[:, 0])
    return is_null, tf.cast(tf.math.divide_no_nan(chosen, total), tf.float32)


def _read(tokenizer, texts):
  """The _Paragraphs of texts, string [N]."""
  chars = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
  codes, rows = chars.values, chars.value_rowids()
  offsets = tf.ragged.range(chars.row_lengths()).values
  blanks = tf.strings.unicode_decode(squad.BLANKS, "UTF-8")
  is_word = tf.reduce_all(codes[:, tf.newaxis] != blanks, axis=1)
  before = tf.concat([[False], is_word], axis=0)[:-1]
  starts = is_word & (~before | (offsets == 0))
  codes, rows, offsets, starts = (
    tf.boolean_mask(values, is_word)
    for values in (codes, rows, offsets, starts)
  )
  first = tf.where(starts)[:, 0]
  chars_before = tf.concat([first, tf.shape(codes, tf.int64)], axis=0)
  words = tf.RaggedTensor.from_row_splits(codes, chars_before, validate=False)
  tokens = tokenizer.words(tf.strings.unicode_encode(words, "UTF-8"))
  ids = tokenizer.pieces(tokens.values)
  word = tf.gather(tokens.value_rowids(), ids.value_rowids())
  pieces = tf.RaggedTensor.from_value_rowids(
    ids.values,
    tf.gather(tf.gather(rows, first), word),
    nrows=chars.nrows(),
    validate=False,
  )
  lengths, is_unknown = _piece_lengths(tokenizer, tokens.values, ids)
  return _Paragraphs(
    tf.strings.unicode_encode(chars, "UTF-8"),
    pieces,
    word,
    tf.gather(offsets, first),
    tf.gather(offsets, chars_before[1:] - 1) + 1,
    offsets,
    chars_before,
    tf.gather(ids.row_splits, tokens.row_splits),
    tf.concat([[0], tf.cumsum(lengths)], axis=0),
    tf.concat([[0], tf.cumsum(is_unknown)], axis=0),
  )


def _piece_lengths(tokenizer, tokens, ids):
  """The number of a piece's characters, and whether it is unknown, int64 [P].

  An unknown piece is as long as its token.
  """
  vocab = tokenizer.tokenizer.vocab
  table = np.zeros([max(vocab.values()) + 1], np.int64)
  for piece, index in vocab.items():
    table[index] = len(piece.removeprefix("##"))
  unknown = vocab[tokenizer.tokenizer.wordpiece_tokenizer.unk_token]
  is_unknown = ids.values == unknown
  whole = tf.gather(tf.strings.length(tokens, "UTF8_CHAR"), ids.value_rowids())
  lengths = tf.gather(tf.constant(table), ids.values)
  lengths = tf.where(is_unknown, tf.cast(whole, tf.int64), lengths)
  return lengths, tf.cast(is_unknown, tf.int64)


def _owned(shown, total):
  """Whether a window shows most of a piece's context; see `squad._owners`.

  Args:
    shown: int64 [R, (pieces)], indices of the pieces of each window.
    total: number of pieces.

  Returns:
    bool [R, (pieces)].
  """
  size = tf.gather(shown.row_lengths(), shown.value_rowids())
  offset = tf.ragged.range(shown.row_lengths()).values
  score = tf.cast(tf.minimum(offset, size - 1 - offset), tf.float64)
  score += 0.01 * tf.cast(size, tf.float64)
  best = tf.math.unsorted_segment_max(score, shown.values, total)
  is_best = score == tf.gather(best, shown.values)
  row = tf.where(is_best, shown.value_rowids(), shown.nrows())
  owner = tf.math.unsorted_segment_min(row, shown.values, total)
  return shown.with_values(
    tf.gather(owner, shown.values) == shown.value_rowids()
  )


def _offsets(paragraphs, spans):
  """The characters of spans in their texts: starts and ends, int64 [N, K].

  As in `squad_decoding.get_final_text`, these are all of the span's words if
  it has an unknown piece, or if its words have another number of characters
  than their tokens.
  """
  p, first, after = paragraphs, spans.first, spans.last + 1
  word, last_word = _at(p.word, first), _at(p.word, spans.last)
  next_word = last_word + 1
  first_char = _at(p.chars_before, word)
  first_length = _at(p.length_before, _at(p.pieces_before, word))
  num_chars = _at(p.chars_before, next_word) - first_char
  end_length = _at(p.length_before, _at(p.pieces_before, next_word))
  is_aligned = num_chars == end_length - first_length
  is_aligned &= _at(p.unknown_before, after) == _at(p.unknown_before, first)
  start = first_char + _at(p.length_before, first) - first_length
  end = first_char + _at(p.length_before, after) - first_length - 1
  return (
    tf.where(is_aligned, _at(p.offsets, start), _at(p.word_starts, word)),
    tf.where(is_aligned, _at(p.offsets, end) + 1, _at(p.word_ends, last_word)),
  )


def _at(values, indices):
  """The values at indices; zero, or False, beyond the end."""
  size = tf.shape(values, tf.int64)[0]
  values = tf.concat([values, tf.zeros([1], values.dtype)], axis=0)
  return tf.gather(values, tf.clip_by_value(indices, 0, size))
