"""Vocabularies: what is learned is what the tokenizer looks up."""

import collections
import gzip
import json
import os
import pathlib
import random
import re
import tempfile
import threading

import pytest
import scripts
from hypothesis import given, settings
from hypothesis import strategies as st

import build_vocab
import tokenization

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
  cut = build_vocab.word_splitter(model_type, do_lower_case)
  return build_vocab.count_words(lines, cut)


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

  def test_lines_are_counted_a_part_at_a_time(self, monkeypatch):
    monkeypatch.setattr(build_vocab, "_COUNTED_LINES", 3)
    lines = [f"a b{n % 7}, a" for n in range(100)]
    counts = cut_and_count(lines)
    assert counts.words["a"] == 2 * 98
    assert counts.words.total() == 4 * 98
    assert counts.heldout.total() == 4 * 2

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
    pieces = build_vocab.learn_wordpiece(
      {"ab": 2, "abc": 4, "d": 5}, vocab_size, 2, min_frequency
    )
    assert pieces == ["[PAD]", "[unused0]", "[unused1]", *SPECIALS, *learned]

  @given(LINES, st.booleans())
  def test_all_that_was_learned_from_is_known(self, lines, do_lower_case):
    counts = cut_and_count(lines, do_lower_case=do_lower_case)
    pieces = build_vocab.learn_wordpiece(counts.words, 10**6, 3, 1)
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

  @given(LINES)
  def test_rare_characters_are_left_out(self, lines):
    words = cut_and_count(lines).words
    occurrences = collections.Counter(
      "".join(word * n for word, n in words.items() if len(word) <= 200)
    )
    pieces = build_vocab.learn_wordpiece(words, 10**6, 0, 3)
    learned = {piece.removeprefix("##") for piece in pieces[5:]}
    assert all(occurrences[char] >= 3 for char in "".join(learned))
    tokenizer = wordpiece_tokenizer(pieces)
    for word in words:
      is_known = len(word) <= 200 and all(occurrences[c] >= 3 for c in word)
      assert ("[UNK]" not in tokenizer.tokenize(word)) == is_known

  @pytest.mark.parametrize("parallel", ["true", "false"])
  def test_is_deterministic(self, parallel, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
    words = sample_words()
    expected = build_vocab.learn_wordpiece(words, 900)
    assert len(expected) == 900
    for seed in range(3):
      shuffled = list(words.items())
      random.Random(seed).shuffle(shuffled)
      assert build_vocab.learn_wordpiece(dict(shuffled), 900) == expected

  def test_smallest_size_that_works_is_named(self):
    words = {"ab": 3, "c": 2, "d": 1}
    # 5 specials, 4 unused, a, b, c and ##b; d is rare.
    with pytest.raises(ValueError, match="13 or more"):
      build_vocab.learn_wordpiece(words, 12, 4)
    assert len(build_vocab.learn_wordpiece(words, 13, 4)) == 13


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
class TestLearnSentencepiece:
  def test_full_tokenizer_reads_it(self, model_type):
    words = sample_words(model_type)
    model = build_vocab.learn_sentencepiece(words, 500, model_type, 2)
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
    model = build_vocab.learn_sentencepiece(words, 100, model_type, 1)
    tokenizer = sentencepiece_tokenizer(model, do_lower_case=False)
    pieces = tokenizer.tokenize("[MASK] [SEP]")
    assert "".join(pieces) == "▁[MASK]▁[SEP]"
    assert not {"[MASK]", "[SEP]", "[UNK]"} & set(pieces)

  def test_is_deterministic(self, model_type):
    words = sample_words(model_type)
    shuffled = list(words.items())
    random.Random(1).shuffle(shuffled)
    first, second = (
      build_vocab.learn_sentencepiece(of, 600, model_type)
      for of in (words, dict(shuffled))
    )
    assert first == second

  @settings(max_examples=25)
  @given(lines=LINES)
  def test_any_text_is_learned_or_refused(self, model_type, lines):
    words = cut_and_count(lines, model_type).words
    if not any(char.isalnum() for word in words for char in word):
      words["the"] = 1  # Of marks alone SentencePiece may keep nothing.
    model = build_vocab.learn_sentencepiece(words, 2000, model_type, 0, 1)
    tokenizer = sentencepiece_tokenizer(model)
    assert list(tokenizer.vocab)[:5] == ["[PAD]", *SPECIALS]
    for word in ("the", "##ing", "a" * 200):
      if word in words:
        assert "[UNK]" not in tokenizer.tokenize(word)

  def test_rare_characters_are_left_out(self, model_type):
    words = {"ab": 60, "ac": 39, "ad": 1}
    model = build_vocab.learn_sentencepiece(words, 100, model_type, 0)
    tokenizer = sentencepiece_tokenizer(model)
    assert "[UNK]" in tokenizer.tokenize("ad")
    assert "[UNK]" not in tokenizer.tokenize("ab ac")

  def test_what_holds_no_text_is_refused(self, model_type):
    for words in ({}, {"\u200b": 3}):
      with pytest.raises(ValueError, match="pass more text"):
        build_vocab.learn_sentencepiece(words, 100, model_type, 0)

  def test_smallest_size_that_works_is_named(self, model_type):
    # 5 specials, 4 unused, a, b, c and the blank.
    with pytest.raises(ValueError, match="13 or more"):
      build_vocab.learn_sentencepiece({"ab": 3, "c": 2}, 12, model_type, 4)
    model = build_vocab.learn_sentencepiece(
      {"ab": 3, "c": 2}, 13, model_type, 4
    )
    assert len(sentencepiece_tokenizer(model).vocab) == 13


class TestReport:
  def test_shares_are_of_occurrences(self):
    tokenizer = wordpiece_tokenizer(["[UNK]", "a", "b", "##b", "##c", "c"])
    # ab and abc are known, 5 of 8 words, in 2 and 3 pieces; ba and x are one
    # piece [UNK] each. Of 2*2 + 3*3 + 2*2 + 1 characters all but x are known.
    report = build_vocab.report(tokenizer, {"ab": 2, "abc": 3, "ba": 2, "x": 1})
    assert report.splitlines() == [
      "8 held-out words: 62.50% fully known, 94.44% of characters known, "
      "2.00 pieces per word",
      "most frequent words that are not fully known: ba (2) x (1)",
    ]

  def test_no_more_than_ten_words_are_listed(self):
    tokenizer = wordpiece_tokenizer(["[UNK]", "a"])
    words = {f"b{n}": 1 for n in range(12)}
    listed = build_vocab.report(tokenizer, words).splitlines()[1]
    assert re.findall(r"b\d+", listed) == sorted(words)[:10]

  def test_nothing_held_out_is_said(self):
    tokenizer = wordpiece_tokenizer(["[UNK]", "a"])
    assert "held out" in build_vocab.report(tokenizer, {})
    assert "frequent" not in build_vocab.report(tokenizer, {"a": 1})


class TestSampleText:
  def test_is_clean(self):
    content = SAMPLE.read_bytes()
    text = content.decode("utf-8")
    assert not content.startswith(b"\xef\xbb\xbf")
    assert text.endswith(".\n")
    assert not re.search(r"[ \t\r]\n|\n\n\n|\A\n", text)
    documents = text.split("\n\n")
    assert 25 <= len(documents) <= 35
    assert all(12 <= len(d.splitlines()) <= 25 for d in documents)

  def test_has_many_scripts(self):
    documents = SAMPLE.read_text("utf-8").split("\n\n")
    for block in (
      "à-ÿ",
      "ả-ỹ",
      "ł",
      "α-ω",
      "а-я",
      "ا-ي",
      "א-ת",
      "一-鿿",
      "ぁ-ん",
    ):
      assert any(re.search(f"[{block}]", d) for d in documents), block

  def test_knows_the_words_of_the_sample_task(self):
    tokenizer = wordpiece_tokenizer(
      build_vocab.learn_wordpiece(sample_words(), 1000, 10)
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


def build(*flags, **kwargs):
  return scripts.fork("build_vocab.py", *flags, **kwargs)


class TestScript:
  def test_vocab_and_config(self, tmp_path):
    text = SAMPLE.read_bytes()
    half = text.index(b"\n\n", len(text) // 2) + 2
    (tmp_path / "a.txt").write_bytes(text[:half])
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text[half:]))
    config = {"vocab_size": 7, "hidden_size": 8, "num_attention_heads": 2}
    config_file = tmp_path / "bert_config.json"
    config_file.write_text(json.dumps({**config, "a_key": [1, "two"]}))
    whole = tmp_path / "whole.vocab"
    halves = tmp_path / "halves.vocab"
    flags = ("--vocab_size=800", "--num_unused=5")
    out, _ = build(f"--input_file={SAMPLE}", f"--output_file={whole}", *flags)
    build(
      f"--input_file={tmp_path}/a.*,{tmp_path}/*.gz",
      f"--output_file={halves}",
      f"--update_config={config_file}",
      *flags,
    )
    assert whole.read_bytes() == halves.read_bytes()
    pieces = whole.read_text("utf-8").splitlines()
    assert len(pieces) == len(set(pieces)) == 800
    unused = [f"[unused{n}]" for n in range(5)]
    assert pieces[:10] == ["[PAD]", *unused, *SPECIALS]
    updated = json.loads(config_file.read_text())
    assert updated["vocab_size"] == 800
    assert updated["a_key"] == [1, "two"]
    assert updated["hidden_size"] == 8
    assert list(updated) == sorted(updated)
    assert config_file.read_text().startswith("{\n  ")
    lines = len(re.findall(rb"[^\n]+", text))
    assert out.startswith(f"{lines} lines; ")
    assert "800 pieces, 790 learned" in out
    assert re.search(r"\d+ held-out words: 100.00% fully known", out)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
      *("a.txt", "b.txt.gz", "bert_config.json"),
      *("halves.vocab", "whole.vocab"),
    }

  @pytest.mark.parametrize("model_type", ["unigram", "bpe"])
  def test_sentencepiece(self, model_type, tmp_path):
    models = [tmp_path / name for name in ("first.model", "second.model")]
    for model in models:
      out, err = build(
        f"--input_file={SAMPLE}",
        f"--output_file={model}",
        f"--model_type={model_type}",
        "--vocab_size=600",
      )
      # SentencePiece says nothing of its own.
      assert len(err.splitlines()) == 2, err
    assert models[0].read_bytes() == models[1].read_bytes()
    assert "600 pieces, 496 learned" in out
    tokenizer = tokenization.FullTokenizer(None, spm_model_file=str(models[0]))
    assert len(tokenizer.vocab) == 600
    assert tokenizer.tokenize("The door")[0] == "▁the"

  @pytest.mark.parametrize("model_type", ["wordpiece", "unigram", "bpe"])
  def test_a_small_text_gives_what_it_has(self, model_type, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "output"
    text.write_text("The dog sees the dog.\n")
    config = tmp_path / "bert_config.json"
    config.write_text('{"vocab_size": 1}')
    out, err = build(
      f"--input_file={text}",
      f"--output_file={output}",
      f"--model_type={model_type}",
      f"--update_config={config}",
    )
    size = json.loads(config.read_text())["vocab_size"]
    assert f"{size} pieces, {size - 104} learned" in out
    assert f"yields only {size} pieces" in err
    if model_type == "wordpiece":
      assert len(output.read_text().splitlines()) == size

  def test_text_from_a_pipe(self, tmp_path):
    pipe, output = tmp_path / "pipe", tmp_path / "vocab.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a b\na\n",))
    writer.start()
    flags = (f"--input_file={pipe}", f"--output_file={output}")
    build(*flags, "--num_unused=0")
    writer.join()
    assert output.read_text("utf-8").split()[5:] == ["a"]

  def test_cased(self, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "vocab.txt"
    text.write_text("Été Été\nété\n", "utf-8")
    flags = (f"--input_file={text}", f"--output_file={output}")
    build(*flags, "--do_lower_case=false", "--num_unused=0")
    assert output.read_text("utf-8").split()[5:] == [
      *("t", "É", "é", "##t", "##é"),
      *("##té", "Été"),
    ]
    build(*flags, "--num_unused=0")
    assert "ete" in output.read_text("utf-8").split()

  @pytest.mark.parametrize(
    ("changes", "error"),
    [
      ({"input_file": "none*.txt"}, "--input_file=none.*no file matches none"),
      ({"input_file": None}, "--input_file is required"),
      ({"input_file": "text.txt,"}, "--input_file=text.txt,"),
      ({"output_file": None}, "--output_file is required"),
      ({"output_file": "none/vocab.txt"}, "--output_file=none/vocab.txt.*fold"),
      (
        {"output_file": "folder"},
        "--output_file=folder: .folder. is not a file",
      ),
      ({"output_file": "text.txt"}, "--output_file=text.txt: .* is an input"),
      ({"output_file": "a.json"}, "--output_file=a.json would be read as JSON"),
      ({"update_config": "text.txt"}, "--update_config=text.txt: .* an input"),
      ({"input_file": "blank.txt"}, "blank.txt has no words"),
      ({"input_file": "latin1.txt"}, r"latin1.txt:2: .*UTF-8"),
      ({"input_file": "cut.gz"}, "cut.gz is not a complete gzip file"),
      ({"vocab_size": "107"}, "--vocab_size=107 .* pass 1[1-9][0-9] or more"),
      (
        {"vocab_size": "107", "model_type": "unigram"},
        "--vocab_size=107 .* pass 1[1-9][0-9] or more",
      ),
      (
        {"vocab_size": "60", "model_type": "bpe"},
        "--vocab_size=60 .* pass 1[1-9][0-9] or more",
      ),
      ({"vocab_size": "0"}, "--vocab_size"),
      ({"vocab_size": "many"}, "--vocab_size=many"),
      ({"num_unused": "-1"}, "--num_unused"),
      ({"min_frequency": "0"}, "--min_frequency"),
      ({"model_type": "words"}, "--model_type=words"),
      ({"do_lower_case": "perhaps"}, "--do_lower_case=perhaps"),
      (
        {"update_config": "none.json"},
        "--update_config=none.json: no such file",
      ),
      (
        {"update_config": "blank.txt"},
        "blank.txt is not a valid model configuration",
      ),
      (
        {"update_config": "list.json"},
        "list.json is not .*: not a JSON object",
      ),
      ({"update_config": "empty.json"}, "empty.json is not .*vocab_size"),
    ],
  )
  def test_errors_are_one_line(self, changes, error, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.txt").write_text("a small text\nof small words\n")
    (tmp_path / "blank.txt").write_text("\n \u200b\n")
    (tmp_path / "latin1.txt").write_bytes(b"one\nsm\xf8r\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"some text")[:-6])
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty.json").write_text("{}")
    flags = {"input_file": "text.txt", "output_file": "vocab.txt", **changes}
    before = scripts.tree(tmp_path)
    out, err = build(
      *(f"--{k}={v}" for k, v in flags.items() if v is not None),
      cwd=tmp_path,
      status=2,
    )
    last = err.splitlines()[-1]
    assert re.match(f"error: .*{error}", last), err
    assert "Traceback" not in err
    assert not out
    assert scripts.tree(tmp_path) == before

  def test_an_older_vocabulary_survives_an_error(self, tmp_path):
    output = tmp_path / "vocab.txt"
    output.write_text("old\n")
    build(
      f"--input_file={SAMPLE}",
      f"--output_file={output}",
      "--vocab_size=10",
      status=2,
    )
    assert output.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["vocab.txt"]
