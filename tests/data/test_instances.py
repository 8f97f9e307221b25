"""Pre-training instances against the original's records, and their rules."""

import collections
import dataclasses
import itertools
import random
import types

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import tokenization
from bert.data import instances, records, sequences

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["a", "b", "c", "##a", "##b", "d"]
CONTINUATIONS = frozenset(("##a", "##b"))
SENTENCES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=9)
DOCUMENTS = st.lists(
  st.lists(SENTENCES, min_size=1, max_size=6), min_size=2, max_size=5
)
SEEDS = st.integers(0, 2**32)


def tokenizer_of(pieces):
  """What this module asks of a tokenizer, for words that are pieces."""
  vocab = {piece: index for index, piece in enumerate(pieces)}
  return types.SimpleNamespace(
    vocab=vocab,
    tokenize=str.split,
    convert_tokens_to_ids=lambda tokens: [vocab[token] for token in tokens],
    special=tokenization.SpecialPieces(),
    unk_token="[UNK]",
    splits_words=True,
  )


TOKENIZER = tokenizer_of(SPECIALS + PIECES)


def iterate(documents, tokenizer=TOKENIZER, seed=1, **changed):
  """iterate_instances with settings for small texts."""
  settings = {
    "max_seq_length": 12,
    "dupe_factor": 2,
    "short_seq_prob": 0.2,
    "masked_lm_prob": 0.3,
    "max_predictions_per_seq": 3,
    **changed,
  }
  predictions = settings["max_predictions_per_seq"]
  settings.update(instances.vocabulary_settings(tokenizer, False, predictions))
  rng = random.Random(seed)
  return list(instances.iterate_instances(documents, rng=rng, **settings))


def restored(instance):
  """The tokens before masking."""
  tokens = list(instance.tokens)
  places = instance.masked_lm_positions
  for place, label in zip(places, instance.masked_lm_labels, strict=True):
    tokens[place] = label
  return tokens


def parts(instance):
  """A, and B or None, before masking."""
  tokens = restored(instance)
  assert tokens[0] == "[CLS]"
  assert tokens[-1] == "[SEP]"
  ends = [i for i, token in enumerate(tokens) if token == "[SEP]"]
  first = tokens[1 : ends[0]]
  return first, tokens[ends[0] + 1 : -1] if len(ends) == 2 else None


def encode(instance, vocab, *lengths):
  """The record of an instance whose pieces are str."""
  ids = {piece: records.varint(index) for piece, index in vocab.items()}
  encoded = dataclasses.replace(
    instance,
    tokens=[ids[token] for token in instance.tokens],
    masked_lm_labels=[ids[label] for label in instance.masked_lm_labels],
  )
  return instances.encode_instance(encoded, *lengths)


def read(path, spec):
  """All of a TFRecord file, a dict of arrays [rows, ...]."""
  (batch,) = tf.data.TFRecordDataset(str(path)).batch(10**6)
  for record in batch.numpy():
    names = tf.train.Example.FromString(record).features.feature
    assert sorted(names) == sorted(spec)
  features = {
    name: tf.io.FixedLenFeature(feature.shape, feature.dtype)
    for name, feature in spec.items()
  }
  return {k: v.numpy() for k, v in tf.io.parse_example(batch, features).items()}


class TestGoldens:
  @pytest.mark.parametrize(
    ("names", "length", "predictions", "settings"),
    [
      (["default"], 64, 10, (2, 0.1, 0.15, 12345, False)),
      (["whole_word"], 64, 10, (2, 0.1, 0.15, 7, True)),
      (["short"], 32, 4, (1, 0.5, 0.3, 99, False)),
      (["two-0", "two-1"], 64, 10, (1, 0.1, 0.15, 12345, False)),
    ],
  )
  def test_records_are_the_originals(
    self, goldens, tmp_path, names, length, predictions, settings
  ):
    dupe_factor, short_seq_prob, masked_lm_prob, seed, whole_words = settings
    tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
    made = instances.create_training_instances(
      [str(goldens / "corpus.txt")],
      *(tokenizer, length, dupe_factor, short_seq_prob, masked_lm_prob),
      *(predictions, random.Random(seed), whole_words),
    )
    paths = [tmp_path / f"{name}.tfrecord" for name in names]
    count = instances.write_instance_to_example_files(
      made, tokenizer, length, predictions, [str(path) for path in paths]
    )
    assert count == len(made)
    spec = instances.feature_spec(length, predictions)
    for path in paths:
      golden = read(goldens / "pretraining_data" / path.name, spec)
      written = read(path, spec)
      for name in spec:
        np.testing.assert_array_equal(written[name], golden[name], name)


class TestShuffle:
  def test_same_order_and_same_state_as_random(self):
    one, two = random.Random(4), random.Random(4)
    for size in [*range(260), 1023, 1024, 1025, 5000]:
      expected, items = list(range(size)), list(range(size))
      one.shuffle(expected)
      instances.shuffle(items, two)
      assert items == expected
      assert one.getstate() == two.getstate()


class TestTruncation:
  @hypothesis.given(
    st.integers(0, 30), st.integers(0, 30), st.integers(0, 40), SEEDS
  )
  def test_against_dropping_one_by_one(self, size_a, size_b, room, seed):
    a, b = list(range(size_a)), list(range(100, 100 + size_b))
    expected_a, expected_b = list(a), list(b)
    rng = random.Random(seed)
    while len(expected_a) + len(expected_b) > room:
      longer = expected_a if len(expected_a) > len(expected_b) else expected_b
      longer.pop(0 if rng.random() < 0.5 else -1)
    drawn = random.Random(seed)
    instances.truncate_seq_pair(a, b, room, drawn)
    assert (a, b) == (expected_a, expected_b)
    assert drawn.getstate() == rng.getstate()


class TestInstances:
  @hypothesis.given(
    DOCUMENTS, st.integers(5, 24), st.integers(0, 5), SEEDS, st.booleans()
  )
  def test_form(self, documents, length, predictions, seed, next_sentence):
    for instance in iterate(
      documents,
      seed=seed,
      max_seq_length=length,
      max_predictions_per_seq=predictions,
      next_sentence_prediction=next_sentence,
    ):
      a, b = parts(instance)
      assert len(instance.tokens) <= length
      assert a
      if next_sentence:
        assert b
        assert instance.is_random_next in (True, False)
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
      else:
        assert b is None
        assert instance.is_random_next is None
        segments = [0] * (len(a) + 2)
      assert instance.segment_ids == segments
      assert restored(instance).count("[CLS]") == 1


class TestWithoutNextSentence:
  @hypothesis.given(DOCUMENTS, st.integers(4, 12), SEEDS)
  def test_every_piece_comes_once_in_order(self, documents, length, seed):
    for index, document in enumerate(documents):
      made = instances.create_instances_from_document(
        *(documents, index, length, 0.5, 0.15, 0, [], random.Random(seed)),
        next_sentence_prediction=False,
      )
      text = [token for i in made for token in i.tokens[1:-1]]
      assert text == list(itertools.chain.from_iterable(document))
      assert all(i.masked_lm_positions == [] for i in made)

  def test_whole_sentences_are_packed_and_long_ones_cut(self):
    # Room for 5: 2 + 3 fit, 2 waits for the next, 12 is cut, 1 stands after.
    sizes = [2, 3, 2, 12, 1]
    document = [[chr(97 + n)] * size for n, size in enumerate(sizes)]
    (*made,) = instances.create_instances_from_document(
      *([document], 0, 7, 0.0, 0.15, 0, [], random.Random(1)),
      next_sentence_prediction=False,
    )
    texts = ["".join(i.tokens[1:-1]) for i in made]
    assert texts == ["aabbb", "cc", "ddddd", "ddddd", "dd", "e"]


class TestMasking:
  @hypothesis.given(
    st.lists(SENTENCES, min_size=2, max_size=2),
    st.floats(0.01, 1),
    st.integers(1, 12),
    SEEDS,
    st.booleans(),
  )
  def test_rules(self, texts, part, limit, seed, whole_words):
    tokens = ["[CLS]", *texts[0], "[SEP]", *texts[1], "[SEP]"]
    options = {"words": instances.WholeWords(CONTINUATIONS)}
    output, positions, labels = instances.create_masked_lm_predictions(
      *(tokens, part, limit, ["x"], random.Random(seed)),
      **(options if whole_words else {}),
    )
    assert positions == sorted(set(positions))
    assert labels == [tokens[place] for place in positions]
    assert not {"[CLS]", "[SEP]"} & set(labels)
    for place, (before, after) in enumerate(zip(tokens, output, strict=True)):
      assert after in {before} | (
        {"[MASK]", "x"} if place in positions else set()
      )
    wanted = min(limit, max(1, round(len(tokens) * part)))
    if not whole_words:
      assert len(positions) == min(wanted, len(tokens) - 3)
      return
    assert len(positions) <= wanted
    words = words_of(tokens)
    if all(len(word) > wanted for word in words):
      # A part of one word is better than no prediction.
      assert len(positions) == wanted
      assert any(set(positions) < set(word) for word in words)
      return
    chosen = [word for word in words if set(word) & set(positions)]
    assert sorted(itertools.chain.from_iterable(chosen)) == positions
    # Nothing is left that would have fitted.
    left = [len(word) for word in words if word not in chosen]
    assert all(len(positions) + size > wanted for size in left)

  def test_eight_one_one_in_ten(self):
    pieces = ["old"] * 500
    tokens = ["[CLS]", *pieces, "[SEP]"]
    rng = random.Random(3)
    seen = collections.Counter()
    for _ in range(100):
      output, positions, _ = instances.create_masked_lm_predictions(
        tokens, 0.5, 10**6, ["x", "y"], rng
      )
      seen.update(output[place] for place in positions)
    count = sum(seen.values())
    assert count == 100 * round(502 * 0.5)
    for piece, part in (
      ("[MASK]", 0.8),
      ("old", 0.1),
      ("x", 0.05),
      ("y", 0.05),
    ):
      # A binomial count is this far from its mean once in 1,000 draws.
      limit = 3.29 * (count * part * (1 - part)) ** 0.5
      assert abs(seen[piece] - count * part) < limit

  @pytest.mark.parametrize("seed", range(5))
  def test_lone_pieces(self, seed):
    # "," and the characters are words of their own; "b" does not continue ",".
    tokens = ["[CLS]", "a", "b", ",", "b", "c", "中", "国", "b", "[SEP]"]
    _, positions, _ = instances.create_masked_lm_predictions(
      tokens,
      *(0.3, 3, ["x"], random.Random(seed)),
      words=instances.WholeWords({"b", "c"}, {",", "中", "国"}),
    )
    words = [{1, 2}, {3}, {4, 5}, {6}, {7}, {8}]
    assert all(w <= set(positions) or not w & set(positions) for w in words)


def words_of(tokens):
  """Places that whole word masking keeps together.

  As in the original a piece goes with the last one that can be masked, be it
  before a [SEP].
  """
  words = []
  for place, token in enumerate(tokens):
    if token in ("[CLS]", "[SEP]"):
      continue
    if token.startswith("##") and words:
      words[-1].append(place)
    else:
      words.append([place])
  return words


class TestWordContinuations:
  def test_whole_words(self, tmp_path):
    text = tmp_path / "text"
    text.write_text("中国人民，今天天气很好。 Hello, hello! low lowest\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
      input=str(text),
      model_prefix=str(tmp_path / "model"),
      vocab_size=60,
      hard_vocab_limit=False,
      user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
      minloglevel=2,
    )
    tokenizer = tokenization.FullTokenizer(
      None, spm_model_file=str(tmp_path / "model.model")
    )
    found = instances.word_continuations(tokenizer)
    others = tokenizer.vocab.keys() - found
    assert {p for p in others if p[0] != "\u2581"} == {
      *("[CLS]", "[SEP]", "[MASK]")
    }
    words = instances.whole_words(tokenizer)
    pieces = tokenizer.tokenize("今天天气，很好。low!")
    signs = [p for p in pieces if not p.strip("\u2581").isascii()]
    assert len(signs) > 3
    assert {*signs, "!"} <= words.lone
    assert not words.lone & words.continuations
    assert words.lone.isdisjoint({"[MASK]", "\u2581low", "\u2581"})
    # U+2581 is a character like any other in WordPiece.
    wordpiece = tokenizer_of(
      ["[CLS]", "中", "##中", ",", "\u2581a", "##\u2581"]
    )
    assert instances.whole_words(wordpiece) == ({"##中", "##\u2581"}, set())


class TestRecords:
  @hypothesis.given(DOCUMENTS, SEEDS, st.sampled_from([0, 4]), st.booleans())
  def test_bytes_are_the_librarys(
    self, documents, seed, predictions, next_sentence
  ):
    length = 150
    spec = instances.feature_spec(length, predictions, next_sentence)
    # Ids and positions of one, two and three bytes.
    vocab = {piece: index * 4321 for index, piece in enumerate(TOKENIZER.vocab)}
    for instance in iterate(
      [document * 8 for document in documents],
      seed=seed,
      dupe_factor=1,
      max_seq_length=length,
      max_predictions_per_seq=predictions,
      next_sentence_prediction=next_sentence,
    ):
      encoded = encode(instance, vocab, length, predictions)
      size = len(instance.tokens)
      labels = instance.masked_lm_labels
      row = {
        "input_ids": [vocab[token] for token in instance.tokens],
        "input_mask": [1] * size,
        "segment_ids": instance.segment_ids,
        "masked_lm_positions": instance.masked_lm_positions,
        "masked_lm_ids": [vocab[label] for label in labels],
        "masked_lm_weights": [1.0] * len(labels),
        "next_sentence_labels": [int(bool(instance.is_random_next))],
      }
      row = {k: sequences.padded(row[k], spec[k].shape[0]) for k in spec}
      assert encoded == records.encode_row(row, spec)

  def test_any_tokenizer_and_segments(self, tmp_path):
    """What the original asks of a tokenizer and of an instance."""
    ids = {"[CLS]": 2, "a": 300, "b": 7}
    tokenizer = types.SimpleNamespace(
      convert_tokens_to_ids=lambda pieces: [ids.get(p, 1) for p in pieces]
    )
    path = tmp_path / "x"
    segments = [[0, 1, 2], [1, 0, 1], [200, 0, 0]]
    made = [
      types.SimpleNamespace(  # Of a class of one's own.
        tokens=["[CLS]", "new", "b"],
        segment_ids=s,
        masked_lm_positions=[1],
        masked_lm_labels=["a"],
        is_random_next=True,
      )
      for s in segments
    ]
    instances.write_instance_to_example_files(
      made, tokenizer, 5, 2, [str(path)]
    )
    written = read(path, instances.feature_spec(5, 2))
    assert written["segment_ids"].tolist() == [[*s, 0, 0] for s in segments]
    assert written["input_ids"].tolist() == [[2, 1, 7, 0, 0]] * 3
    assert written["masked_lm_ids"].tolist() == [[300, 0]] * 3

  def test_files_take_turns_and_come_whole(self, tmp_path):
    made = [
      instances.TrainingInstance(
        ["[CLS]", piece, "[SEP]"], [0] * 3, [], [], None
      )
      for piece in PIECES
    ]
    paths = [tmp_path / name for name in "xyzw"]

    def write(rows):
      return instances.write_instance_to_example_files(
        rows, TOKENIZER, 4, 0, [str(path) for path in paths]
      )

    assert write(iter(made)) == 6
    spec = instances.feature_spec(4, 0, False)
    found = [read(path, spec)["input_ids"][:, 1].tolist() for path in paths]
    assert found == [[5, 9], [6, 10], [7], [8]]
    before = [path.read_bytes() for path in paths]
    unknown = instances.TrainingInstance(["?"], [0], [], [], None)
    with pytest.raises(KeyError):
      write([*made[:2], unknown])
    assert [path.read_bytes() for path in paths] == before
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted("xyzw")


class TestReading:
  def test_documents(self, tmp_path):
    lines = ["", "a b", " c\r", "\t \x1c", "", "d", "\u3000", "a "]
    documents = instances.read_documents(lines, str.split)
    wanted = [[["a", "b"], ["c"]], [["d"]], [["a"]]]
    assert documents == [instances.Document.of(d) for d in wanted]
    assert documents[0] == (["a", "b", "c"], [0, 2, 3])

    def split(text):
      return text.strip("-").split()

    (document,) = instances.read_documents(["--", "", "a", "-"], split)
    assert document == (["a"], [0, 1])


class TestErrors:
  def test_one_document(self):
    documents = [[["a"], ["b"]]]
    message = (
      "^the input has 1 document .* by empty lines, pass "
      "--next_sentence_prediction=false, or raise --shard_mb"
    )
    with pytest.raises(ValueError, match=message):
      iterate(documents)
    with pytest.raises(ValueError, match=message):
      instances.create_instances_from_document(
        documents, 0, 12, 0.1, 0.15, 2, ["a"], random.Random(1)
      )
    assert iterate(documents, next_sentence_prediction=False)

  @pytest.mark.parametrize(("next_sentence", "least"), [(True, 5), (False, 4)])
  def test_no_room(self, next_sentence, least):
    documents = [[["a"], ["b"]], [["c"]]]
    settings = {
      "next_sentence_prediction": next_sentence,
      "short_seq_prob": 1.0,
    }
    assert iterate(documents, max_seq_length=least, **settings)
    with pytest.raises(
      ValueError, match=f"={least - 1} .*pass {least} or more"
    ):
      iterate(documents, max_seq_length=least - 1, **settings)
