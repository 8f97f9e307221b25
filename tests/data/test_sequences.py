"""Joined texts, and overlapping windows over a long list."""

from hypothesis import given
from hypothesis import strategies as st

import tokenization
from bert.data import sequences


def test_texts_are_joined_with_their_segments():
  special = tokenization.SpecialPieces()
  assert sequences.join_texts(special, ["a", "b"]) == (
    ["[CLS]", "a", "b", "[SEP]"],
    [0, 0, 0, 0],
  )
  assert sequences.join_texts(special, ["a"], ["b", "c"]) == (
    ["[CLS]", "a", "[SEP]", "b", "c", "[SEP]"],
    [0, 0, 0, 1, 1, 1],
  )
  of_roberta = tokenization.SpecialPieces(
    "<s>", "</s>", between=2, has_segments=False
  )
  assert sequences.join_texts(of_roberta, ["a"], ["b", "c"]) == (
    ["<s>", "a", "</s>", "</s>", "b", "c", "</s>"],
    [0] * 7,
  )
  assert (of_roberta.count(1), of_roberta.count(2)) == (2, 4)


def test_the_input_of_a_pair(tmp_path):
  vocab = tmp_path / "vocab.txt"
  vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n")
  tokenizer = tokenization.FullTokenizer(str(vocab))
  assert sequences.input_row(tokenizer, ["a"], ["b"]) == {
    "input_ids": [2, 4, 3, 5, 3],
    "input_mask": [1] * 5,
    "segment_ids": [0, 0, 0, 1, 1],
  }


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_each_item_is_owned_by_the_window_with_most_context(size, room, data):
  stride = data.draw(st.integers(1, room))
  windows = sequences.overlapping_windows(size, room, stride)
  assert all(w.end - w.start <= room for w in windows)
  owned = [i for w in windows for i in range(w.first, w.last)]
  assert owned == list(range(size))
  for window in windows:
    for item in range(window.first, window.last):
      context = [
        min(item - w.start, w.end - 1 - item)
        for w in windows
        if w.start <= item < w.end
      ]
      own = min(item - window.start, window.end - 1 - item)
      assert own == max(context)


def test_a_short_list_has_one_window():
  assert sequences.overlapping_windows(5, 5, 2) == [(0, 5, 0, 5)]
  assert sequences.overlapping_windows(0, 5, 2) == [(0, 0, 0, 0)]


def test_the_last_window_ends_with_the_list():
  windows = sequences.overlapping_windows(11, 5, 4)
  assert [(w.start, w.end) for w in windows] == [(0, 5), (4, 9), (6, 11)]
  # Item 4 has no context left in the first window, nor any in the second.
  assert [(w.first, w.last) for w in windows] == [(0, 4), (4, 7), (7, 11)]
