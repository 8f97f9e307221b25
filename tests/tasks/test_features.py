"""Features of texts: layers, alignment, poolings, against arithmetic."""

import re
import shutil

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

import bert
from bert.engine import loaded_model
from bert.models import checkpoints
from bert.models.resolve import resolve
from bert.tasks.embeddings import feature_files, vectors as features

TEXTS = [
  "Who was Jim Henson ?",
  ("Who was Jim Henson ?", "Jim Henson was a puppeteer"),
  "",
  "The game was played on February 7, 2016.",
  "the",
]

# Lines near the tokenizer's rules: what it drops, cuts, and takes for a space.
LINES = st.lists(
  st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.text("aAbé.,[]# \t\v\f\x1c\x85\xa0\xad\u0301\u200b\u2028\u3000東京ß"),
    st.sampled_from(["the ", " game", "[SEP]", " unaffable ", "a" * 201]),
  ),
  max_size=8,
).map("".join)


@pytest.fixture(scope="module")
def model(release):
  return resolve(str(release))


@pytest.fixture(scope="module")
def tokens_of_texts(model):
  """Both layers' vectors of each token."""
  return extractor(model).answers(TEXTS)


_models = {}


def extractor(model, **options):
  """A model of vectors, of both layers unless the options name others.

  It is the same for equal arguments: it traces its graph once.
  """
  key = f"{model.checkpoint} {sorted(options.items())}"
  if key not in _models:
    options = {"layers": [-1, -2], "pooling": "none"} | options
    _models[key] = loaded_model.load_task(model, "vectors", **options)
  return _models[key]


def vectors(model, texts, **options):
  """The vector of each text, an array [texts, H*]."""
  found = extractor(model, **options).answers(texts)
  return np.stack([row.vector for row in found])


def save_as(folder, golden, leave_out=(), change=None):
  """Writes the golden model's weights, some left out or changed."""
  checkpoint = checkpoints.Checkpoint(golden.checkpoint)
  kept = {n: checkpoint[n] for n in checkpoint.shapes if n not in leave_out}
  prefix = str(folder / "other.ckpt")
  checkpoints.write_checkpoint(prefix, {**kept, **(change or {})})
  return prefix


class TestExtractor:
  def test_result(self, tokens_of_texts):
    single, pair, empty, *_ = tokens_of_texts
    assert single.tokens[0] == "[CLS]"
    assert single.tokens[-1] == "[SEP]"
    assert single.values.shape == (len(single.tokens), 2, 32)
    assert single.values.dtype == np.float32
    assert single.vector is None
    assert not single.was_cut
    assert pair.tokens.count("[SEP]") == 2
    assert pair.tokens[: len(single.tokens)] == single.tokens
    assert empty.tokens == ["[CLS]", "[SEP]"]
    assert empty.orig_to_tok_map == []

  def test_float16_is_the_nearest(self, model, tokens_of_texts):
    found = extractor(model, dtype="float16").answers(TEXTS)
    for half, single in zip(found, tokens_of_texts, strict=True):
      assert half.values.dtype == np.float16
      np.testing.assert_array_equal(
        half.values, single.values.astype(np.float16)
      )

  def test_float16_has_an_end(self, model, golden, tmp_path):
    # Features of the last layer are scaled by this; of 32 that have deviation 1
    # one is well beyond 1.
    scale = "bert/encoder/layer_1/output/LayerNorm/gamma"
    changed = save_as(
      tmp_path, golden, change={scale: np.full([32], 65504, np.float32)}
    )
    other = model._replace(checkpoint=changed)
    with pytest.raises(FloatingPointError):
      extractor(other, layers=[-1], dtype="float16").answers(["the"])

  def test_neither_batch_nor_company_changes_a_text(
    self, model, tokens_of_texts
  ):
    alone = extractor(model, batch_size=1)
    for text, expected in zip(TEXTS, tokens_of_texts, strict=True):
      (found,) = alone.answers([text])
      assert found.tokens == expected.tokens
      np.testing.assert_allclose(found.values, expected.values, atol=2e-6)

  def test_a_tuple_of_texts_is_no_pair(self, model):
    found = extractor(model).answers(("the", "game"))
    assert [row.tokens for row in found] == [
      ["[CLS]", "the", "[SEP]"],
      ["[CLS]", "game", "[SEP]"],
    ]

  def test_windows_of_long_texts_are_bounded(self, monkeypatch, model):
    """Those of a text have vectors and rows of their own until it is done."""
    found = extractor(
      model, pooling="mean", max_seq_length=6, long_text="mean_windows"
    )
    # Eight pieces are three windows of four, with [CLS] and [SEP] six.
    window_bytes = 32 * 4 + 6 * feature_files.PIECE_BYTES
    monkeypatch.setattr(feature_files, "WINDOW_BYTES", 6 * window_bytes)
    texts = ["the " * 8] * 4 + ["the"] * 9
    windows = feature_files.windows(found, [texts])
    assert list(map(len, windows)) == [2, 2, 9]


class TestTruncation:
  def test_a_pair_loses_from_the_longer_side(self, model):
    short = extractor(model, max_seq_length=6)
    (found,) = short.answers([("the game was", "on the")])
    assert found.tokens == ["[CLS]", "the", "game", "[SEP]", "on", "[SEP]"]
    assert found.orig_to_tok_map == [1, 2, -1, 4, -1]
    assert found.was_cut

  def test_a_second_text_without_pieces_is_none(self, model):
    short = extractor(model, max_seq_length=3)
    single, empty = short.answers([("the", "\x00"), ("", "the")])
    assert single.tokens == ["[CLS]", "the", "[SEP]"]
    assert single.orig_to_tok_map == [1, -1]
    assert not single.was_cut
    assert empty.tokens == ["[CLS]", "[SEP]"]
    assert empty.orig_to_tok_map == [-1]
    assert empty.was_cut


class TestAlignment:
  @given(text=LINES)
  def test_pieces_between_two_entries_spell_the_word(self, model, text):
    tokenizer = model.tokenizer
    pieces, starts = features.align(tokenizer, text)
    assert pieces == tokenizer.tokenize(text)
    ends = [*[start for start in starts if start >= 0], len(pieces)][1:]
    words = text.translate(dict.fromkeys(map(ord, "\v\f\x1c\x1d\x1e\x1f\x85")))
    words = words.split()
    assert len(starts) == len(words)
    for word, start in zip(words, starts, strict=True):
      if start < 0:
        assert tokenizer.basic_tokenizer.tokenize(word) == []
        continue
      part = pieces[start : ends.pop(0)]
      if "[UNK]" not in part:
        # A number sign marks pieces, and may be one.
        basic = "".join(tokenizer.basic_tokenizer.tokenize(word))
        assert "".join(part).replace("#", "") == basic.replace("#", "")

  def test_labels_reach_the_tokens(self, model):
    # The example of the released README, in the golden vocabulary.
    words = ["The", "game", "'s", "\u200b", "unplayed", "end"]
    (found,) = extractor(model).answers([" ".join(words)])
    places = found.orig_to_tok_map
    assert len(places) == len(words)
    assert found.tokens[places[0]] == "the"
    assert found.tokens[places[1]] == "game"
    assert found.tokens[places[2]] == "'"
    assert places[3] == -1
    assert found.tokens[places[4]] == "un"
    assert places[5] > places[4] + 1

  def test_a_piece_of_two_words_is_that_of_the_first(self):
    class Joining:
      """Reads `c d` as one piece, as a SentencePiece model may."""

      splits_words = False

      def tokenize(self, text):
        return text.replace("c d", "c_d").split()

      def offsets(self, text):
        words = re.finditer(r"\S+", text.replace("c d", "c_d"))
        return [word.span() for word in words]

    pieces, starts = features.align(Joining(), "a b c d e")
    assert pieces == ["a", "b", "c_d", "e"]
    assert starts == [0, 1, 2, -1, 3]


class TestPooling:
  def expected(self, row, pooling, layers, exclude_special=False):
    """The vector of a Features with values, by NumPy, in float64."""
    combine = {
      "last": lambda x: x[:, 0],
      "concat": lambda x: x.reshape(len(x), -1),
      "mean": lambda x: x.mean(axis=1),
    }[layers]
    tokens = combine(row.values.astype(np.float64))
    if pooling == "cls":
      return tokens[0]
    if exclude_special:
      special = [t in ("[CLS]", "[SEP]") for t in row.tokens]
      tokens = tokens[~np.array(special)]
    if not len(tokens):
      return np.zeros(tokens.shape[1])
    if pooling == "max":
      return tokens.max(axis=0)
    root = {"mean": len(tokens), "mean_sqrt_len": np.sqrt(len(tokens))}
    return tokens.sum(axis=0) / root[pooling]

  @pytest.mark.parametrize(
    ("pooling", "combination", "exclude_special"),
    [
      ("cls", "concat", False),
      ("mean", "last", False),
      ("mean", "mean", True),
      ("max", "last", True),
      ("mean_sqrt_len", "concat", False),
    ],
  )
  def test_is_numpys(
    self, model, tokens_of_texts, pooling, combination, exclude_special
  ):
    options = {
      "pooling": pooling,
      "layer_combination": combination,
      "exclude_special": exclude_special,
      "batch_size": 3,
    }
    found = vectors(model, TEXTS, **options)
    expected = np.stack(
      [
        self.expected(row, pooling, combination, exclude_special)
        for row in tokens_of_texts
      ]
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

  def test_pooled_is_the_poolers(self, model, golden, tokens_of_texts):
    weights = checkpoints.Checkpoint(golden.checkpoint)
    kernel = weights["bert/pooler/dense/kernel"].astype(np.float64)
    first = np.stack([row.values[0, 0] for row in tokens_of_texts])
    expected = np.tanh(first @ kernel + weights["bert/pooler/dense/bias"])
    found = vectors(model, TEXTS, pooling="pooled")
    np.testing.assert_allclose(found, expected, atol=1e-5)

  def test_normalized_is_of_length_1_or_0(self, model):
    options = {"pooling": "mean", "exclude_special": True, "layers": [-1]}
    plain = vectors(model, TEXTS, **options)
    found = vectors(model, TEXTS, **options, normalize=True)
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 0, 1, 1], atol=1e-6)
    np.testing.assert_allclose(
      found * np.linalg.norm(plain, axis=1, keepdims=True), plain, atol=1e-6
    )

  def test_no_texts_no_vectors(self, model):
    options = {"layer_combination": "concat", "exclude_special": False}
    found = extractor(model, pooling="cls", batch_size=3, **options)
    assert found.answers([]) == []
    assert found.task.vector_shape(model.config) == (64,)
    assert found.answers(["a"])[0].vector.shape == (64,)
    assert found.answers(["a"])[0].values is None


class TestModel:
  def test_a_sentencepiece_model_serves_in_place_of_a_vocabulary(
    self, tmp_path, goldens, release
  ):
    folder = tmp_path / "model"
    shutil.copytree(release, folder)
    (folder / "vocab.txt").unlink()
    sentencepiece.SentencePieceTrainer.train(
      input=str(goldens / "corpus.txt"),
      model_prefix=str(folder / "pieces"),
      vocab_size=500,
      control_symbols=["[CLS]", "[SEP]", "[MASK]"],
      minloglevel=3,
    )
    text = " ".join(["the game was  unplayed"] * 3)
    (found,) = bert.load(str(folder), pooling="none").answers([text])
    starts = [
      place for place, piece in enumerate(found.tokens) if piece[0] == "\u2581"
    ]
    assert found.orig_to_tok_map == starts
    assert len(starts) == 12

  def test_a_pooler_is_needed_only_if_asked_for(self, tmp_path, golden, model):
    pooler = "bert/pooler/dense/kernel"
    prefix = save_as(tmp_path, golden, leave_out=[pooler])
    other = model._replace(checkpoint=prefix)
    np.testing.assert_allclose(
      extractor(other).answers(["the"])[0].values,
      extractor(model).answers(["the"])[0].values,
      atol=2e-6,
    )
    with pytest.raises(ValueError, match=f"other.ckpt lacks {pooler}"):
      extractor(other, pooling="pooled")


class TestErrors:
  @pytest.mark.parametrize(
    ("options", "message"),
    [
      ({"layers": [-1, 1]}, "--layers=-1,1 must be different layers"),
      ({"pooling": "min"}, "--pooling=min is not one of 'none', 'cls'"),
      (
        {"pooling": "mean", "layer_combination": "sum"},
        "--layer_combination=sum is not one of 'last'",
      ),
      (
        {"long_text": "windows"},
        "--long_text=windows is not one of 'head', 'mean",
      ),
      ({"max_seq_length": 129}, "--max_seq_length=129 .* 128 positions"),
      (
        {"dtype": "bfloat"},
        "^--dtype=bfloat is not one of 'float32', 'float16', 'float64'; did",
      ),
    ],
  )
  def test_options(self, model, options, message):
    with pytest.raises(ValueError, match=message):
      extractor(model, **{"layers": [-1], **options})

  def test_texts(self, model):
    found = extractor(model, layers=[-1])
    for wrong in ("the", {"text": "the"}, None, 1):
      with pytest.raises(TypeError, match="pass a list of inputs, not "):
        found.answers(wrong)
    for wrong in (("a", "b", "c"), (), ("a", 1), None, 1, b"the"):
      with pytest.raises(ValueError, match=r"^input 2.* is not a"):
        found.answers(["the", wrong])

  @pytest.mark.parametrize(
    ("text", "layers"), [("-1,-2", (-1, -2)), (" 0, 3 ", (0, 3))]
  )
  def test_layers_are_numbers(self, text, layers):
    assert features.parse_layers(text, 4) == layers


LONG = "the game was played by the city during the first season after the war"


def test_a_long_text_is_read_in_windows(model):
  whole, windows = (
    extractor(model, layers=[-1, 0], max_seq_length=7, long_text=long_text)
    for long_text in ("head", "mean_windows")
  )
  pieces = model.tokenizer.tokenize(LONG)
  assert len(pieces) > 10
  (found,) = windows.answers([LONG])
  assert found.tokens == ["[CLS]", *pieces, "[SEP]"]
  assert not found.was_cut
  assert min(found.orig_to_tok_map) == 1
  assert found.values.shape == (len(pieces) + 2, 2, 32)
  # Windows of five pieces begin at every second piece, the last one earlier.
  starts = [*range(0, len(pieces) - 5, 2), len(pieces) - 5]
  texts = [" ".join(pieces[start : start + 5]) for start in starts]
  parts = whole.answers(texts)
  for index in range(len(pieces)):
    inside = [k for k, s in enumerate(starts) if s <= index < s + 5]
    around = [min(index - starts[k], starts[k] + 4 - index) for k in inside]
    candidates = [
      parts[k].values[1 + index - starts[k]]
      for k, context in zip(inside, around, strict=True)
      if context == max(around)
    ]
    differences = [
      np.abs(c - found.values[1 + index]).max() for c in candidates
    ]
    assert min(differences) < 1e-5
  np.testing.assert_allclose(found.values[0], parts[0].values[0], atol=1e-5)


def test_a_long_pair_is_read_in_windows(model):
  text_b, shares = "the game was the season after war", (3, 3)
  texts = [model.tokenizer.tokenize(text) for text in (LONG, text_b)]
  # All windows of a text, half of its share apart.
  windows = [
    [*range(0, len(pieces) - share, share // 2), len(pieces) - share]
    for pieces, share in zip(texts, shares, strict=True)
  ]
  count = len(windows[0])
  assert count > len(windows[1])
  starts = [
    [windows[0][row], windows[1][row * len(windows[1]) // count]]
    for row in range(count)
  ]
  rows = [
    tuple(
      " ".join(pieces[start : start + share])
      for pieces, start, share in zip(texts, own, shares, strict=True)
    )
    for own in starts
  ]
  options = {"layers": [-1], "max_seq_length": 9}
  parts = [f.values for f in extractor(model, **options).answers(rows)]
  found = extractor(model, **options, long_text="mean_windows")
  (found,) = found.answers([(LONG, text_b)])
  assert found.tokens == ["[CLS]", *texts[0], "[SEP]", *texts[1], "[SEP]"]
  assert not found.was_cut
  assert -1 not in found.orig_to_tok_map
  position = 0
  expected = {0: [parts[0][0]], len(found.tokens) - 1: [parts[-1][-1]]}
  expected[1 + len(texts[0])] = [parts[-1][1 + shares[0]]]
  for text, (pieces, share) in enumerate(zip(texts, shares, strict=True)):
    position += 1  # [CLS] or [SEP]
    for index in range(len(pieces)):
      context = [
        min(index - own[text], own[text] + share - 1 - index) for own in starts
      ]
      expected[position] = [
        part[1 + text * (shares[0] + 1) + index - own[text]]
        for part, own, around in zip(parts, starts, context, strict=True)
        if around == max(context)
      ]
      position += 1
  for position, candidates in expected.items():
    differences = [np.abs(c - found.values[position]).max() for c in candidates]
    assert min(differences) < 1e-5
  options = {"max_seq_length": 9, "pooling": "mean"}
  (pooled,) = vectors(
    model, [(LONG, text_b)], **options, long_text="mean_windows"
  )
  alone = vectors(model, rows, **options)
  np.testing.assert_allclose(pooled, alone.mean(0), atol=1e-6)


def test_the_vector_of_a_long_text_is_the_mean_of_its_windows(model):
  options = {"pooling": "mean", "normalize": True, "max_seq_length": 7}
  pieces = model.tokenizer.tokenize(LONG)
  starts = [*range(0, len(pieces) - 5, 2), len(pieces) - 5]
  texts = [" ".join(pieces[start : start + 5]) for start in starts]
  parts = vectors(model, texts, **options)
  expected = parts.mean(axis=0)
  expected /= np.linalg.norm(expected)
  short, found = vectors(
    model, ["the", LONG], **options, long_text="mean_windows"
  )
  np.testing.assert_allclose(found, expected, atol=1e-6)
  (alone,) = vectors(model, ["the"], **options)
  np.testing.assert_allclose(short, alone, atol=1e-6)
