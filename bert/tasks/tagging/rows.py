"""Rows of sentences with a label for each word: windows and their context."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

import tokenization
from bert.data import records, sequences
from bert.tasks.tagging.data import Sentence


def make_rows(
  sentences: Iterable[Sentence],
  label_ids: Mapping[str, int],
  tokenizer: tokenization.FullTokenizer,
  settings,
  is_training: bool = False,
) -> Iterator[list[dict]]:
  """Yields the rows of each sentence, one per window.

  `sentences` are in the order of the file; `settings` are TaggerSettings. In a
  row, `label_ids` are 1 + the label of a word at its first piece, else 0.
  """
  vocab, size = tokenizer.vocab, settings.max_seq_length
  cls, sep, unknown = (
    vocab[piece] for piece in (*tokenizer.special[:2], tokenizer.unk_token)
  )
  labels_all = is_training and settings.label_all_tokens

  def encode(sentence):
    """The ids of a sentence, and 1 + the label of each that has one, or 0."""
    ids, marks = [], []
    labels = sentence.labels or [None] * len(sentence.words)
    for word, label in zip(sentence.words, labels, strict=True):
      pieces = tokenizer.tokenize_behind_blank(word)
      pieces = tokenizer.convert_tokens_to_ids(pieces)
      pieces = pieces or [unknown]  # Such as a word of control characters.
      mark = 1 + label_ids.get(label, 0)
      ids += pieces
      marks += [mark] + [mark * labels_all] * (len(pieces) - 1)
    return ids, marks

  sentences = list(sentences)
  encoded = list(map(encode, sentences))
  room = size - 2
  for index, (ids, marks) in enumerate(encoded):
    before, after = [], []
    if settings.max_context and len(ids) < room:
      before, after = _context(sentences, encoded, index, room - len(ids))
    rows = []
    for window in sequences.overlapping_windows(len(ids), room, room // 2 or 1):
      start, end, first, last = window
      row = [cls, *before, *ids[start:end], *after, sep]
      owned = [0] * (1 + len(before) + first - start) + marks[first:last]
      columns = (row, [1] * len(row), [0] * len(row), owned)
      names = (*records.SEQUENCES, "label_ids")
      rows.append(
        {
          name: sequences.padded(column, size)
          for name, column in zip(names, columns, strict=True)
        }
      )
    yield rows


def _context(sentences, encoded, index, room):
  """The ids before and after a sentence in its document, `room` in total."""
  document = sentences[index].document
  sides = []
  for step in (-1, 1):
    side, other = [], index + step
    while len(side) < room and 0 <= other < len(sentences):
      if sentences[other].document != document:
        break
      ids = encoded[other][0]
      side = ids + side if step < 0 else side + ids
      other += step
    sides.append(side)
  before, after = sides
  kept_before, kept_after = sequences.share_room(len(before), len(after), room)
  return before[len(before) - kept_before :], after[:kept_after]


def join_windows(group: Sequence[Mapping]) -> dict[str, np.ndarray]:
  """The predictions of a sentence's rows at its words, in order: [words]."""
  parts = []
  for row in group:
    marks = np.asarray(row["label_ids"])[: len(row["labels"])]
    parts.append(
      {
        name: values[: len(marks)][marks > 0]
        for name, values in row.items()
        if name != "label_ids"
      }
    )
  return {
    name: np.concatenate([row[name] for row in parts]) for name in parts[0]
  }
