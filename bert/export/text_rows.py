"""From word pieces to the rows of a model, in a TensorFlow graph."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert.data import records, sequences
from bert.export.text_graph import GraphTokenizer

from bert.tasks.classification.examples import HEAD_PART

Features = dict[str, tf.Tensor]


def _parts(pieces, rows, starts, ends):
  """Parts [P, (part)] of rows of pieces [N, (pieces)], from starts to ends."""
  offsets = tf.gather(pieces.row_starts(), rows)
  indices = tf.ragged.range(offsets + starts, offsets + ends)
  return indices.with_values(tf.gather(pieces.values, indices.values))


def _share_room(sizes_a, sizes_b, room):
  """`sequences.share_room` for tensors int64 [N]."""
  return sequences.share_room(
    sizes_a, sizes_b, room, least=tf.minimum, most=tf.maximum
  )


def _pack(segments, vocab, length=None, ends_empty=True):
  """[CLS] A [SEP] or [CLS] A [SEP] B [SEP], the three sequences int32 [R, S].

  `length` is S, by default that of the longest row. `ends_empty` says whether a
  second segment without pieces has a [SEP].
  """
  one = tf.ones([segments[0].nrows()], tf.int64)
  columns = [_column(vocab["[CLS]"], one)]
  for index, segment in enumerate(segments):
    has_end = one
    if index and not ends_empty:
      has_end = tf.minimum(segment.row_lengths(), 1)
    columns += [segment, _column(vocab["[SEP]"], has_end)]
  ids = tf.concat(columns, axis=1)
  shape = None if length is None else tf.stack([-1, length])
  ids, sizes = ids.to_tensor(shape=shape), ids.row_lengths()
  positions = tf.range(tf.shape(ids, tf.int64)[1])
  is_used = positions < sizes[:, tf.newaxis]
  first_size = 2 + segments[0].row_lengths()
  is_second = is_used & (positions >= first_size[:, tf.newaxis])
  marks = (tf.cast(part, tf.int32) for part in (is_used, is_second))
  return dict(zip(records.SEQUENCES, (ids, *marks), strict=True))


def pack_truncated(
  segments: Sequence[tf.RaggedTensor],
  vocab: Mapping[str, int],
  length: tf.Tensor,
) -> Features:
  """The three sequences int32 [R, S] of a segment or a pair, cut and padded.

  The segments are ids [R, (pieces)], see `sequences.share_room`; S is `length`.
  """
  sizes = [segment.row_lengths() for segment in segments]
  room = tf.cast(length, tf.int64) - len(segments) - 1
  shares = _share_room(sizes[0], [*sizes, tf.zeros_like(sizes[0])][1], room)
  heads = [
    _parts(segment, tf.range(segment.nrows()), tf.zeros_like(share), share)
    for segment, share in zip(segments, shares, strict=False)
  ]
  return _pack(heads, vocab, length)


def _column(piece, lengths):
  """Rows that repeat an id, int32 [R, (pieces)]; `lengths` is int64 [R]."""
  values = tf.fill([tf.reduce_sum(lengths)], tf.constant(piece, tf.int32))
  return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def read_texts(
  tokenizer: GraphTokenizer, settings, texts: Sequence[tf.Tensor]
) -> tuple[Features, tf.Tensor]:
  """The rows of texts or pairs, string [N]; see `examples.convert_example`.

  Returns the three sequences, int32 [R, S], and the index of each row's text,
  int64 [R].
  """
  pieces = [tokenizer(text).merge_dims(1, 2) for text in texts]
  sizes = [part.row_lengths() for part in pieces]
  size_b = sizes[1] if len(texts) > 1 else tf.zeros_like(sizes[0])
  room = settings.max_seq_length - 2 - tf.minimum(size_b, 1)
  shares = _share_room(sizes[0], size_b, room)[: len(texts)]
  rows = tf.range(pieces[0].nrows())
  if settings.long_text == "mean_windows":
    rows, segments = _windows(pieces, sizes, shares)
  else:
    segments = []
    for part, size, share in zip(pieces, sizes, shares, strict=True):
      head = share
      if settings.long_text == "head_tail":
        part_of_share = tf.round(tf.cast(share, tf.float64) * HEAD_PART)
        head = tf.where(size > share, tf.cast(part_of_share, tf.int64), share)
      first = _parts(part, rows, tf.zeros_like(head), head)
      last = _parts(part, rows, size - (share - head), size)
      segments.append(tf.concat([first, last], axis=1))
  return _pack(segments, tokenizer.tokenizer.vocab, ends_empty=False), rows


def _windows(pieces, sizes, shares):
  """The windows of "mean_windows": the text of each, and its segments."""
  counts = [
    tf.where(size > share, -(-size // tf.maximum(share, 1)), 1)
    for size, share in zip(sizes, shares, strict=True)
  ]
  most = counts[0] if len(counts) == 1 else tf.maximum(*counts)
  rows = tf.repeat(tf.range(tf.size(most, tf.int64)), most)
  number = tf.ragged.range(most).values  # Of a window in its text.
  segments = []
  for part, size, count in zip(pieces, sizes, counts, strict=True):
    size, count, of = (
      tf.gather(values, rows) for values in (size, count, most)
    )
    index = number * count // of
    segments.append(
      _parts(part, rows, size * index // count, size * (index + 1) // count)
    )
  return rows, segments
