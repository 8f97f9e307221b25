"""Vocabularies: what is learned is what the tokenizer looks up."""

import collections
import pathlib
import random
import re
import tempfile

import pytest
import scripts
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenization
from bert.data import vocabulary

SAMPLE = scripts.ROOT / "sample_text.txt"

SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Lines near the rules: blanks and marks of all kinds, accents, scripts, casing,
# and what looks like a piece.
LINES = st.lists(
  st.lists(
    st.one_of(
      st.text(st.characters(codec="utf-8"), max_size=6),
      st.text(
        "aAbBeé.,[]# \t\r\v\f\x1c\x85\xa0\xad\u0301\u200b\u2028\u3000\ufeff"
        "ÅßİıΣσς東京が각ﬁ«€👍\u2581"
      ),
      st.sampled_from(["the ", "[MASK]", "##ing", "a" * 200, "a" * 201]),
    ),
    max_size=8,
  ).map("".join),
  max_size=8,
).map(lambda lines: [line.replace("\n", " ") for line in lines])


def wordpiece_tokenizer(pieces, do_lower_case=True):
  """A FullTokenizer of a list of pieces."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "vocab.txt")
    path.write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
    return tokenization.FullTokenizer(str(path), do_lower_case)


def sentencepiece_tokenizer(model, do_lower_case=True):
  """A FullTokenizer of a SentencePiece model's bytes."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "spm.model")
    path.write_bytes(model)
    return tokenization.FullTokenizer(
      None, do_lower_case, spm_model_file=str(path)
    )


def cut_and_count(lines, model_type="wordpiece", do_lower_case=True):
  cut = vocabulary.word_splitter(model_type, do_lower_case)
  return vocabulary.count_words(lines, cut)


def sample_words(model_type="wordpiece"):
  lines = SAMPLE.read_text("utf-8").split("\n")
  return cut_and_count(lines, model_type).words


class TestCountWords:
  @given(LINES, st.booleans())
  def test_words_are_the_basic_tokenizers(self, lines, do_lower_case):
    basic = tokenization.BasicTokenizer(do_lower_case)
    expected = collections.Counter(
      word for line in lines for word in basic.tokenize(line)
    )
    counts = cut_and_count(lines, do_lower_case=do_lower_case)
    assert counts.words == expected
    assert not counts.heldout

  def test_every_50th_line_with_text_is_held_out(self):
    lines = [text for n in range(1, 121) for text in (f"word{n} and", "", " ")]
    counts = cut_and_count(lines)
    assert counts.lines == 120
    assert counts.heldout == {"word50": 1, "word100": 1, "and": 2}
    assert counts.words["and"] == 118
    assert "word50" not in counts.words

  def test_sentencepiece_words_lie_between_blanks(self):
    lines = ["Café, «CAFÉ»\tΣΑΣ\r", "cafe,"]
    folded = cut_and_count(lines, "unigram").words
    assert folded == {"cafe,": 2, "«cafe»": 1, "σας": 1}
    cased = cut_and_count(lines, "bpe", do_lower_case=False).words
    assert cased == {"Café,": 1, "«CAFÉ»": 1, "ΣΑΣ": 1, "cafe,": 1}


class TestLearnWordpiece:
  @pytest.mark.parametrize(
    ("vocab_size", "min_frequency", "learned"),
    [
      # a##b occurs 6 times; then ab##c occurs 4 times; nothing else is left.
      (100, 2, ["a", "b", "c", "d", "##b", "##c", "ab", "abc"]),
      (14, 2, ["a", "b", "c", "d", "##b", "##c", "ab"]),
      (13, 2, ["a", "b", "c", "d", "##b", "##c"]),
      # c occurs 4 times, so its word is left out, and a##b occurs twice.
      (100, 5, ["a", "b", "d", "##b"]),
    ],
  )
  def test_joins_are_the_most_frequent_first(
    self, vocab_size, min_frequency, learned
  ):
    pieces = vocabulary.learn_wordpiece(
      {"ab": 2, "abc": 4, "d": 5}, vocab_size, 2, min_frequency
    )
    assert pieces == ["[PAD]", "[unused0]", "[unused1]", *SPECIALS, *learned]

  @given(LINES, st.booleans())
  def test_all_that_was_learned_from_is_known(self, lines, do_lower_case):
    counts = cut_and_count(lines, do_lower_case=do_lower_case)
    pieces = vocabulary.learn_wordpiece(counts.words, 10**6, 3, 1)
    assert len(set(pieces)) == len(pieces)
    assert not any(re.search(r"\s", piece) for piece in pieces)
    tokenizer = wordpiece_tokenizer(pieces, do_lower_case)
    assert list(tokenizer.vocab) == pieces
    known = [word for word in counts.words if len(word) <= 200]
    for line in [*known, *lines]:
      too_long = any(
        len(word) > 200 for word in tokenizer.basic_tokenizer.tokenize(line)
      )
      assert ("[UNK]" in tokenizer.tokenize(line)) == too_long

  @pytest.mark.parametrize("parallel", ["true", "false"])
  def test_is_deterministic(self, parallel, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
    words = sample_words()
    expected = vocabulary.learn_wordpiece(words, 900)
    assert len(expected) == 900
    for seed in range(3):
      shuffled = list(words.items())
      random.Random(seed).shuffle(shuffled)
      assert vocabulary.learn_wordpiece(dict(shuffled), 900) == expected

  def test_smallest_size_that_works_is_named(self):
    words = {"ab": 3, "c": 2, "d": 1}
    # 5 specials, 4 unused, a, b, c and ##b; d is rare.
    with pytest.raises(ValueError, match="13 or more"):
      vocabulary.learn_wordpiece(words, 12, 4)
    assert len(vocabulary.learn_wordpiece(words, 13, 4)) == 13


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
class TestLearnSentencepiece:
  def test_full_tokenizer_reads_it(self, model_type):
    words = sample_words(model_type)
    model = vocabulary.learn_sentencepiece(words, 500, model_type, 2)
    tokenizer = sentencepiece_tokenizer(model)
    assert list(tokenizer.vocab)[:7] == [
      *("[PAD]", "[unused0]", "[unused1]"),
      *SPECIALS,
    ]
    assert len(tokenizer.vocab) == 500
    assert list(tokenizer.vocab.values()) == list(range(500))
    for line in SAMPLE.read_text("utf-8").split("\n"):
      assert "[UNK]" not in tokenizer.tokenize(line)
    pieces = tokenizer.tokenize("The Bakér's DOG")
    assert "".join(pieces) == "▁the▁baker's▁dog"
    assert pieces == tokenizer.tokenize("the baker's dog")

  def test_specials_in_text_are_text(self, model_type):
    words = {"[MASK]": 9, "[SEP]": 9, "[MA": 9, "SK]": 9, "EP": 9}
    model = vocabulary.learn_sentencepiece(words, 100, model_type, 1)
    tokenizer = sentencepiece_tokenizer(model, do_lower_case=False)
    pieces = tokenizer.tokenize("[MASK] [SEP]")
    assert "".join(pieces) == "▁[MASK]▁[SEP]"
    assert not {"[MASK]", "[SEP]", "[UNK]"} & set(pieces)

  def test_is_deterministic(self, model_type):
    words = sample_words(model_type)
    shuffled = list(words.items())
    random.Random(1).shuffle(shuffled)
    first, second = (
      vocabulary.learn_sentencepiece(of, 600, model_type)
      for of in (words, dict(shuffled))
    )
    assert first == second

  @settings(max_examples=25)
  @given(lines=LINES)
  def test_any_text_is_learned_or_refused(self, model_type, lines):
    words = cut_and_count(lines, model_type).words
    if not any(char.isalnum() for word in words for char in word):
      words["the"] = 1  # Of marks alone SentencePiece may keep nothing.
    model = vocabulary.learn_sentencepiece(words, 2000, model_type, 0, 1)
    tokenizer = sentencepiece_tokenizer(model)
    assert list(tokenizer.vocab)[:5] == ["[PAD]", *SPECIALS]
    for word in ("the", "##ing", "a" * 200):
      if word in words:
        assert "[UNK]" not in tokenizer.tokenize(word)

  def test_rare_characters_are_left_out(self, model_type):
    words = {"ab": 60, "ac": 39, "ad": 1}
    model = vocabulary.learn_sentencepiece(words, 100, model_type, 0)
    tokenizer = sentencepiece_tokenizer(model)
    assert "[UNK]" in tokenizer.tokenize("ad")
    assert "[UNK]" not in tokenizer.tokenize("ab ac")

  def test_what_holds_no_text_is_refused(self, model_type):
    for words in ({}, {"\u200b": 3}):
      with pytest.raises(ValueError, match="pass more text"):
        vocabulary.learn_sentencepiece(words, 100, model_type, 0)

  def test_smallest_size_that_works_is_named(self, model_type):
    # 5 specials, 4 unused, a, b, c and the blank.
    with pytest.raises(ValueError, match="13 or more"):
      vocabulary.learn_sentencepiece({"ab": 3, "c": 2}, 12, model_type, 4)
    model = vocabulary.learn_sentencepiece({"ab": 3, "c": 2}, 13, model_type, 4)
    assert len(sentencepiece_tokenizer(model).vocab) == 13


class TestReport:
  def test_shares_are_of_occurrences(self):
    tokenizer = wordpiece_tokenizer(["[UNK]", "a", "b", "##b", "##c", "c"])
    # ab and abc are known, 5 of 8 words, in 2 and 3 pieces; ba and x are one
    # piece [UNK] each. Of 2*2 + 3*3 + 2*2 + 1 characters all but x are known.
    report = vocabulary.report(tokenizer, {"ab": 2, "abc": 3, "ba": 2, "x": 1})
    assert report.splitlines() == [
      "8 held-out words: 62.50% fully known, 94.44% of characters known, "
      "2.00 pieces per word",
      "most frequent words that are not fully known: ba (2) x (1)",
    ]

  def test_nothing_held_out_is_said(self):
    tokenizer = wordpiece_tokenizer(["[UNK]", "a"])
    assert "held out" in vocabulary.report(tokenizer, {})
    assert "frequent" not in vocabulary.report(tokenizer, {"a": 1})


class TestSampleText:
  def test_knows_the_words_of_the_sample_task(self):
    tokenizer = wordpiece_tokenizer(
      vocabulary.learn_wordpiece(sample_words(), 1000, 10)
    )
    assert not any(
      "[UNK]" in tokenizer.tokenize(line)
      for line in SAMPLE.read_text("utf-8").split("\n")
    )
    task = collections.Counter()
    for name in ("train.tsv", "dev.tsv"):
      table = (scripts.ROOT / "sample_data" / name).read_text("utf-8")
      for row in table.splitlines():
        task.update(re.findall(r"\w+|\.", row.split("\t")[3].lower()))
    num_pieces = sum(n * len(tokenizer.tokenize(w)) for w, n in task.items())
    assert num_pieces < 1.05 * task.total()
