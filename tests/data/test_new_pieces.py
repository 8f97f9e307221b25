"""New pieces for a vocabulary."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from bert.data import vocabulary


def characters(word):
  return [word[0], *(f"##{char}" for char in word[1:])]


def best_run(split, words):
  """The run that saves most pieces, by trying all of them."""
  saved = collections.Counter()
  for word, pieces in split.items():
    for start in range(len(pieces)):
      for end in range(start + 2, len(pieces) + 1):
        saved[tuple(pieces[start:end])] += words[word] * (end - start - 1)
  if not saved:
    return None
  return min(saved, key=lambda run: (-saved[run], run))


def merged(pieces, run):
  found, index = [], 0
  while index < len(pieces):
    if tuple(pieces[index : index + len(run)]) == run:
      found.append(vocabulary.join_pieces(run))
      index += len(run)
    else:
      found.append(pieces[index])
      index += 1
  return found


@given(
  st.dictionaries(st.text("ab", min_size=1, max_size=5), st.integers(2, 9)),
  st.integers(1, 5),
)
def test_the_best_run_is_chosen_again_and_again(words, num_new):
  split = {word: characters(word) for word in words if len(word) > 1}
  expected = []
  while len(expected) < num_new and (run := best_run(split, words)):
    expected.append(vocabulary.join_pieces(run))
    split = {word: merged(pieces, run) for word, pieces in split.items()}
  found = vocabulary.choose_pieces(words, characters, num_new)
  assert list(found) == expected
  for piece, old in found.items():
    assert vocabulary.join_pieces(old) == piece
    assert all(len(part.removeprefix("##")) == 1 for part in old)


def test_a_frequent_long_word_is_one_piece():
  words = {"immunotherapy": 10, "immune": 4, "rare": 1}
  split = {"immunotherapy": "im ##mun ##oth ##erapy", "immune": "im ##mun ##e"}

  def tokenize(word):
    return split.get(word, word).split()

  found = vocabulary.choose_pieces(words, tokenize, 2)
  assert found == {
    "immunotherapy": ["im", "##mun", "##oth", "##erapy"],
    "immune": ["im", "##mun", "##e"],
  }


def test_runs_of_a_long_word_are_bounded():
  word = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
  (found,) = vocabulary.choose_pieces({word: 2}, characters, 1)
  assert len(found.removeprefix("##")) == 8


def test_words_that_occur_once_or_are_unknown_are_ignored():
  words = {"ab": 1, "cd": 5}
  split = {"ab": ["a", "##b"], "cd": ["[UNK]"]}
  assert not vocabulary.choose_pieces(words, split.get, 3)


def test_new_pieces_replace_unused_ones_first():
  old = ["[PAD]", "[unused0]", "[UNK]", "[unused1]", "a", "[unused]"]
  assert vocabulary.extend_vocabulary(old, ["b"]) == [
    *("[PAD]", "b", "[UNK]", "[unused1]", "a", "[unused]")
  ]
  assert vocabulary.extend_vocabulary(old, ["b", "c", "d"]) == [
    *("[PAD]", "b", "[UNK]", "c", "a", "[unused]", "d")
  ]
