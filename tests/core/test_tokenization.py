"""The tokenizer against the original's output, and against its rules."""

import collections
import json
import string
import unicodedata

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import tokenization

# Unicode 14 made a punctuation mark of it. An older Python sees an unassigned
# character, which stays inside its word.
ARABIC_END_OF_TEXT_MARK = "\u061d"

# Texts near the rules: blanks of all kinds, marks, accents, scripts, casing.
TEXTS = st.lists(
  st.one_of(
    st.text(max_size=8),
    st.text(
      "aAeEsS.,[]$^ \t\n\r\v\f\x00\x1c\x1d\x1e\x1f\x7f\x85\xa0\xad"
      "\u0301\u0345\u200b\u2028\u2029\u3000\ufeff\ufffdéÅßİıΣσς東京が각ﬁ«€👍"
    ),
    st.sampled_from(
      ["the ", "The", "unknown ", "[MASK]", "##ing", "game", "a" * 201]
    ),
  ),
  max_size=12,
).map("".join)


@pytest.fixture(scope="module")
def small_vocab(goldens):
  return str(goldens / "vocab.txt")


def write_vocab(tmp_path, *pieces):
  path = tmp_path / "vocab.txt"
  path.write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
  return str(path)


def plain_pipeline(text, vocab, do_lower_case):
  """What FullTokenizer stands for, without its memory of words."""
  basic = tokenization.BasicTokenizer(do_lower_case)
  wordpiece = tokenization.WordpieceTokenizer(vocab)
  return [
    piece
    for token in basic.tokenize(text)
    for piece in wordpiece.tokenize(token)
  ]


class TestGoldens:
  """1,500 fuzzed texts, as the original cuts them.

  The original had the 30,522 entries of the released uncased vocabulary.
  `tokenization_vocab.txt` holds, in the same order, those of them that these
  texts can touch: the special ones, and every entry that occurs in one of the
  texts' basic tokens, lower-cased or not, at its start or, marked `##`, behind
  it. WordPiece looks up nothing else, so its answers are the same.
  """

  @pytest.mark.parametrize("casing", ["uncased", "cased"])
  def test_all_texts(self, goldens, casing):
    tokenizer = tokenization.FullTokenizer(
      str(goldens / "tokenization_vocab.txt"), casing == "uncased"
    )
    lines = (goldens / "tokenization.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 1500
    if int(unicodedata.unidata_version.split(".")[0]) < 14:
      rows = [r for r in rows if ARABIC_END_OF_TEXT_MARK not in r["text"]]
    assert len(rows) >= 1498
    wrong = [
      row["text"]
      for row in rows
      if tokenizer.tokenize(row["text"]) != row[casing]
    ]
    assert wrong == []


# Text, its lower-cased tokens, its cased tokens.
BASIC_CASES = {
  "empty": ("", "", ""),
  "blank": (" \t\n\r\u00a0\u3000", "", ""),
  "punctuation": (
    "Oh,well...No!",
    "oh , well . . . no !",
    "Oh , well . . . No !",
  ),
  "accents": ("Crème Brûlée", "creme brulee", "Crème Brûlée"),
  "combining accent": ("Cafe\u0301", "cafe", "Cafe\u0301"),
  "accent alone": ("a \u0301 b", "a b", "a \u0301 b"),
  "dotted capital I": ("İstanbul", "istanbul", "İstanbul"),
  "final sigma": ("ΟΔΟΣ", "οδος", "ΟΔΟΣ"),
  "sharp s": ("STRAßE", "straße", "STRAßE"),
  "ligature": ("ﬁn", "ﬁn", "ﬁn"),
  "ideographs": ("東京Tower", "東 京 tower", "東 京 Tower"),
  "ideographs beyond 16 bits": ("a\U00020000b", *2 * ["a \U00020000 b"]),
  "kana": ("ひらがな", "ひらかな", "ひらがな"),
  "hangul": ("서울", "\u1109\u1165\u110b\u116e\u11af", "서울"),
  "U+0000": ("a\x00b", "ab", "ab"),
  "U+FFFD": ("a\ufffdb", "ab", "ab"),
  "control characters": ("a\x07b\x7fc\x9fd", "abcd", "abcd"),
  "format characters": ("a\u200bb\u00adc\ufeffd", "abcd", "abcd"),
  "private use stays": ("a\ue000b", "a\ue000b", "a\ue000b"),
  "unassigned stays": ("a\u0378b", "a\u0378b", "a\u0378b"),
  "vertical tab": ("a\vb", "ab", "ab"),
  "form feed": ("a\fb", "ab", "ab"),
  "separators of old": ("a\x1cb\x1dc\x1ed\x1fe", "abcde", "abcde"),
  "next line": ("a\x85b", "ab", "ab"),
  "line and paragraph separator": ("a\u2028b\u2029c", "a b c", "a b c"),
  "mask in raw text": ("a [MASK]", "a [ mask ]", "a [ MASK ]"),
  "symbols beyond ASCII": ("5€ ok👍 x²", "5€ ok👍 x²", "5€ ok👍 x²"),
  "quotation marks": ("«So»…", "« so » …", "« So » …"),
}


class TestBasicTokenizer:
  @pytest.mark.parametrize("case", BASIC_CASES)
  def test_tokens(self, case):
    text, *expected = BASIC_CASES[case]
    for lower_cases, tokens in zip((True, False), expected, strict=True):
      found = tokenization.BasicTokenizer(lower_cases).tokenize(text)
      assert found == tokens.split(" ") * bool(tokens)

  def test_every_ascii_symbol_stands_apart(self):
    for mark in string.punctuation:
      tokens = tokenization.BasicTokenizer().tokenize(f"a{mark}{mark}b")
      assert tokens == ["a", mark, mark, "b"]


@pytest.mark.parametrize(
  ("text", "vocabulary", "pieces"),
  [
    # "a" and "##bc" would do, but "ab" is longer than "a".
    ("abc", "a ab ##bc", "[UNK]"),
    ("playing playx play", "play ##ing", "play ##ing [UNK] play"),
    ("a" * 200, "a ##a", " ".join(["a"] + ["##a"] * 199)),
    ("a" * 201, "a ##a", "[UNK]"),
  ],
)
def test_wordpiece(text, vocabulary, pieces):
  tokenizer = tokenization.WordpieceTokenizer(vocabulary.split())
  assert tokenizer.tokenize(text) == pieces.split()


def test_arguments_of_wordpiece():
  tokenizer = tokenization.WordpieceTokenizer(["a", "##a"], "?", 2)
  assert tokenizer.tokenize("aaa aa b") == ["?", "a", "##a", "?"]


class TestFullTokenizer:
  def test_pieces_and_ids(self, tmp_path):
    vocab = write_vocab(tmp_path, "[UNK]", "un", "##aff", "##able", ",", "run")
    tokenizer = tokenization.FullTokenizer(vocab)
    pieces = tokenizer.tokenize("UNaffable, ruN gone")
    assert pieces == ["un", "##aff", "##able", ",", "run", "[UNK]"]
    ids = tokenizer.convert_tokens_to_ids(pieces)
    assert ids == [1, 2, 3, 4, 5, 0]
    assert tokenizer.convert_ids_to_tokens(ids) == pieces

  def test_bytes_are_utf8(self, tmp_path):
    vocab = write_vocab(tmp_path, "[UNK]", "cafe", "é")
    tokenizer = tokenization.FullTokenizer(vocab)
    assert tokenizer.tokenize("Café".encode()) == ["cafe"]
    assert tokenizer.tokenize(b"caf\xff\xc3\xa9") == ["cafe"]

  @given(TEXTS, st.booleans())
  def test_equals_the_plain_pipeline(self, small_vocab, text, do_lower_case):
    tokenizer = tokenization.FullTokenizer(small_vocab, do_lower_case)
    expected = plain_pipeline(text, tokenizer.vocab, do_lower_case)
    assert tokenizer.tokenize(text) == expected
    assert tokenizer.tokenize(text) == expected

  def test_a_wordpiece_tokenizer_of_a_users_own(self, tmp_path):
    class Characters:
      def __init__(self, vocab):
        self.vocab = vocab

      def tokenize(self, text):
        return list(text)

    vocab = write_vocab(tmp_path, "[UNK]", "ab", "a", "##b")
    tokenizer = tokenization.FullTokenizer(vocab)
    assert tokenizer.tokenize("ab Ba") == ["ab", "[UNK]"]
    tokenizer.wordpiece_tokenizer = Characters(tokenizer.vocab)
    assert tokenizer.tokenize("ab Ba") == ["a", "b", "b", "a"]

  @pytest.mark.parametrize(
    "change",
    [
      lambda t: t.vocab.update(new=t.vocab.pop("[unused1]")),
      lambda t: t.vocab.__setitem__("new", len(t.vocab)),
      lambda t: t.vocab.setdefault("new", len(t.vocab)),
      lambda t: t.vocab.__delitem__("old"),
      lambda t: t.vocab.pop("old"),
      lambda t: t.vocab.popitem(),
      lambda t: t.vocab.clear(),
      lambda t: setattr(t.basic_tokenizer, "do_lower_case", False),
      lambda t: setattr(t.wordpiece_tokenizer, "unk_token", "n"),
      lambda t: setattr(t.wordpiece_tokenizer, "max_input_chars_per_word", 2),
      lambda t: setattr(t.wordpiece_tokenizer, "vocab", {"old", "n", "##ew"}),
    ],
  )
  def test_parts_that_are_changed(self, tmp_path, change):
    vocab = write_vocab(
      tmp_path, "[UNK]", "[unused1]", "old", "n", "##e", "##w"
    )
    tokenizer = tokenization.FullTokenizer(vocab)
    text, before = "new OLD old now", ["n", "##e", "##w", "old", "old", "[UNK]"]
    assert tokenizer.tokenize(text) == before
    change(tokenizer)
    expected = []
    for word in tokenizer.basic_tokenizer.tokenize(text):
      expected += tokenizer.wordpiece_tokenizer.tokenize(word)
    assert expected != before
    assert tokenizer.tokenize(text) == expected

  def test_parts_that_are_put_back(self, tmp_path):
    vocab = write_vocab(tmp_path, "[UNK]", "ab")
    tokenizer = tokenization.FullTokenizer(vocab)
    own = tokenizer.basic_tokenizer
    tokenizer.basic_tokenizer = tokenization.BasicTokenizer(False)
    assert tokenizer.tokenize("ab AB") == ["ab", "[UNK]"]
    tokenizer.basic_tokenizer = own
    assert tokenizer.tokenize("ab AB") == ["ab", "ab"]


class TestOffsets:
  @given(TEXTS, st.booleans())
  def test_pieces_are_where_they_say(self, small_vocab, text, do_lower_case):
    tokenizer = tokenization.FullTokenizer(small_vocab, do_lower_case)
    pieces, offsets = tokenizer.tokenize(text), tokenizer.offsets(text)
    assert len(offsets) == len(pieces)
    assert offsets == sorted(offsets)
    for piece, (start, end) in zip(pieces, offsets, strict=True):
      assert 0 <= start < end <= len(text)
      if piece != "[UNK]":
        shown = tokenizer.basic_tokenizer.tokenize(text[start:end])
        same = "".join(shown).replace("\u03c2", "\u03c3")
        assert piece.removeprefix("##").replace("\u03c2", "\u03c3") in same

  def test_marks_belong_to_what_they_follow(self, small_vocab):
    tokenizer = tokenization.FullTokenizer(small_vocab, True)
    text = "runn\u0301ing."
    spans = tokenizer.offsets(text)
    assert "".join(text[a:b] for a, b in spans) == text


class TestVocabulary:
  @pytest.mark.parametrize(
    "content",
    [
      b"[PAD]\n[UNK]\n\xc3\xa9\n##x\n",
      b"[PAD]\n[UNK]\n\xc3\xa9\n##x",
      b"[PAD]\r\n[UNK]\r\n\xc3\xa9\r\n##x\r\n",
      b"[PAD]\r\n[UNK]\r\n\xc3\xa9\r\n##x",
      b" [PAD]\n[UNK] \n\xc3\xa9\t\n##x \n",
      b"\xef\xbb\xbf[PAD]\n[UNK]\n\xc3\xa9\n##x\n\n \n",
    ],
  )
  def test_ids_are_line_numbers(self, tmp_path, content):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    vocab = tokenization.load_vocab(str(path))
    assert isinstance(vocab, collections.OrderedDict)
    assert list(vocab.items()) == [
      ("[PAD]", 0),
      ("[UNK]", 1),
      ("é", 2),
      ("##x", 3),
    ]

  def test_only_newlines_end_lines(self, tmp_path):
    path = write_vocab(tmp_path, "a\u2028b", "c\x85d", "e\vf", "g")
    assert tokenization.load_vocab(path)["g"] == 3

  def test_conversions(self):
    vocab, pieces = {"a": 0, "##b": 7}, ["##b", "a", "##b"]
    ids = tokenization.convert_tokens_to_ids(vocab, pieces)
    assert ids == [7, 0, 7]
    inverse = {0: "a", 7: "##b"}
    assert tokenization.convert_ids_to_tokens(inverse, ids) == pieces
    assert tokenization.convert_by_vocab(vocab, ("a",)) == [0]

  def test_unknown_piece_is_a_key_error(self):
    with pytest.raises(KeyError, match="zebra"):
      tokenization.convert_tokens_to_ids({"a": 0}, ["zebra"])


class TestText:
  def test_convert_to_unicode(self):
    assert tokenization.convert_to_unicode("é") == "é"
    assert tokenization.convert_to_unicode("é".encode()) == "é"
    assert tokenization.convert_to_unicode(b"a\xffb") == "ab"
    assert tokenization.printable_text("é".encode()) == "é"

  @pytest.mark.parametrize("convert", ["convert_to_unicode", "printable_text"])
  def test_a_number_is_no_text(self, convert):
    with pytest.raises(ValueError, match="expected str or bytes"):
      getattr(tokenization, convert)(3)

  def test_whitespace_tokenize(self):
    assert tokenization.whitespace_tokenize("  a\tb \n c ") == ["a", "b", "c"]
    assert tokenization.whitespace_tokenize(" \n") == []
    assert tokenization.whitespace_tokenize("") == []


class TestCaseMatchesCheckpoint:
  @pytest.mark.parametrize(
    ("path", "lower_cased"),
    [
      ("/models/uncased_L-12_H-768_A-12/bert_model.ckpt", True),
      ("wwm_uncased_L-24_H-1024_A-16/bert_model.ckpt", True),
      ("multilingual_L-12_H-768_A-12/", True),
      ("chinese_L-12_H-768_A-12", True),
      ("gs://models/cased_L-24_H-1024_A-16/bert_model.ckpt", False),
      ("/models/wwm_cased_L-24_H-1024_A-16/", False),
      ("multi_cased_L-12_H-768_A-12", False),
    ],
  )
  def test_releases(self, path, lower_cased):
    validate = tokenization.validate_case_matches_checkpoint
    validate(lower_cased, path)
    with pytest.raises(ValueError, match="--do_lower_case"):
      validate(not lower_cased, path)

  def test_other_names_pass(self):
    for path in (
      *(None, "", "bert_model.ckpt", "/models/mine/bert_model.ckpt"),
      "/models/mycased_L-12_H-768_A-12/bert_model.ckpt",
      "/cased_L-12_H-768_A-12/tuned/model.ckpt-3",
    ):
      for do_lower_case in (True, False):
        tokenization.validate_case_matches_checkpoint(do_lower_case, path)


SENTENCES = (
  "the quick brown fox jumps over the lazy dog",
  "a lazy dog sleeps over there while the fox runs",
  "quick quick said the brown dog and jumped",
  "we were there when the fox ran over the hill",
)


def train_sentencepiece(folder, symbols, kind="user_defined", **options):
  prefix = folder / "pieces"
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(SENTENCES),
    model_prefix=str(prefix),
    vocab_size=60,
    hard_vocab_limit=False,
    minloglevel=3,
    **{f"{kind}_symbols": symbols},
    **options,
  )
  return str(prefix) + ".model"


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
  folder = tmp_path_factory.mktemp("sentencepiece")
  return train_sentencepiece(folder, ["[CLS]", "[SEP]", "[MASK]"])


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
  """A model with ALBERT's first pieces, and with commas behind numbers."""
  model_file = train_sentencepiece(
    tmp_path_factory.mktemp("albert"),
    ["[CLS]", "[SEP]", "[MASK]"],
    "control",
    user_defined_symbols=["12,", "\u258112,", ",", "1", "2"],
    pad_id=0,
    unk_id=1,
    bos_id=-1,
    eos_id=-1,
  )
  return tokenization.FullTokenizer(None, True, model_file)


class TestSentencePiece:
  def tokenizer(self, model_file, do_lower_case=True):
    return tokenization.FullTokenizer(
      None, do_lower_case, spm_model_file=model_file
    )

  def test_lower_cases_and_strips_accents(self, model_file):
    tokenizer = self.tokenizer(model_file)
    pieces = tokenizer.tokenize("The lázy FOX")
    assert pieces == tokenizer.tokenize("the lazy fox")

  @given(TEXTS)
  def test_offsets(self, model_file, text):
    tokenizer = tokenization.FullTokenizer(None, True, model_file)
    pieces, offsets = tokenizer.tokenize(text), tokenizer.offsets(text)
    assert len(offsets) == len(pieces)
    for piece, (start, end) in zip(pieces, offsets, strict=True):
      shown = tokenization.lower_case(text[start:end])
      plain = piece.removeprefix("\u2581")
      if piece != "<unk>" and plain.isascii():
        assert plain in shown or not text.isascii()

  @pytest.mark.parametrize(
    ("text", "plain"),
    [
      ("\ufb01x \u0130n", "fix in"),  # A ligature; a capital with a dot.
      ("\uff34he d\u00f3g", "the dog"),  # A full-width letter; an accent.
    ],
  )
  def test_albert_decomposes_characters(self, albert, text, plain):
    """As Unicode's compatibility decomposition has them."""
    pieces = albert.tokenize(text)
    assert pieces == albert.tokenize(plain)
    assert "".join(pieces) == "\u2581" + plain.replace(" ", "\u2581")
    assert len(albert.offsets(text)) == len(pieces)

  def test_albert_cuts_commas_off_numbers(self, albert):
    text = "fox 12,x12,"
    pieces = [piece.removeprefix("\u2581") for piece in albert.tokenize(text)]
    found = [piece for piece in pieces if piece]
    assert found[-7:] == ["1", "2", ",", "x", "1", "2", ","]
    spans = [text[start:end] for start, end in albert.offsets(text)]
    assert spans == pieces

  def test_text_that_reads_like_a_special(self, tmp_path):
    specials = ["[CLS]", "[SEP]", "[MASK]"]
    model_file = train_sentencepiece(tmp_path, specials, "control")
    for do_lower_case in (True, False):
      pieces = self.tokenizer(model_file, do_lower_case).tokenize("a [MASK]")
      assert not set(specials) & set(pieces)
      assert "<unk>" in pieces

  def test_ids(self, model_file):
    tokenizer = self.tokenizer(model_file)
    model = sentencepiece.SentencePieceProcessor(model_file=model_file)
    pieces = ["[CLS]", *tokenizer.tokenize("the dog ☃ ran"), "[SEP]"]
    ids = tokenizer.convert_tokens_to_ids(pieces)
    assert ids[1:-1] == model.encode("the dog ☃ ran")
    assert tokenizer.convert_ids_to_tokens(ids) == pieces
    assert len(tokenizer.vocab) == model.get_piece_size()

  def test_not_a_model(self, tmp_path):
    other = tmp_path / "vocab.txt"
    other.write_text("[PAD]\n[UNK]\n")
    without_mask = train_sentencepiece(tmp_path, ["[CLS]", "[SEP]"])
    for path in (str(other), without_mask):
      with pytest.raises(ValueError, match=f"^{path} is not a SentencePiece m"):
        self.tokenizer(path)


@pytest.mark.parametrize(
  ("small", "capitals", "others", "is_cased"),
  [
    (900, 0, 0, False),
    (900, 1, 0, False),
    (900, 100, 0, True),
    (200, 100, 20_000, True),  # Latin words in a Chinese vocabulary.
    (0, 0, 900, False),
  ],
)
def test_casing_of_a_vocabulary(small, capitals, others, is_cased):
  pieces = ["[PAD]", "[UNK]", "[CLS]"]
  pieces += [f"word{number}" for number in range(small)]
  pieces += [f"Word{number}" for number in range(capitals)]
  pieces += [chr(0x4E00 + number) for number in range(others)]
  assert tokenization.is_cased(pieces) == is_cased


def test_a_piece_may_stand_twice_in_a_json(tmp_path):
  """As where a program adds `<unk>` again: unknown text has the first id."""
  words = ["\u2581the", "\u2581dog", "dog", "\u2581", "<unk>"]
  pieces = ["<s>", "</s>", "<unk>", *words]
  model = tokenizers.models.Unigram([(p, -1.0) for p in pieces], unk_id=2)
  theirs = tokenizers.Tokenizer(model)
  theirs.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  theirs.add_special_tokens(["<unk>", "<s>", "</s>"])
  theirs.post_processor = tokenizers.processors.TemplateProcessing(
    single="<s> $A </s>",
    pair="<s> $A </s> </s> $B </s>",
    special_tokens=[("<s>", 0), ("</s>", 1)],
  )
  path = str(tmp_path / "tokenizer.json")
  theirs.save(path)
  ours = tokenization.FullTokenizer(path)
  for text in ("the dog", "the\tdog", "\u2603dog", ""):
    theirs.encode_special_tokens = True
    wanted = theirs.encode(text)
    found = ["<s>", *ours.tokenize(text), "</s>"]
    assert found == list(map(theirs.id_to_token, wanted.ids))
    assert ours.convert_tokens_to_ids(found) == wanted.ids
