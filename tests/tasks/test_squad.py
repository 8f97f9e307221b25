"""Questions on paragraphs, and the windows that a model reads of them."""

import gzip
import json
import os
import re

import plain_squad
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenization
from bert.data import records, sequences
from bert.errors import UserError
from bert.tasks.squad import data as squad

ORIGINAL_BLANKS = " \t\r\n\u202f"


def make_tokenizer(path, do_lower_case=True):
  return tokenization.FullTokenizer(str(path), do_lower_case)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
  """Tokenizers of few pieces, lower-casing (True) and not (False)."""
  path = tmp_path_factory.mktemp("small") / "vocab.txt"
  letters = "abcABfiÉ中.,-'1\u1100\u1161e"
  rest = "abcABÉe\u0301\u0327\u1161"
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ab", "##ab", "bcab"]
  pieces += [*letters, *(f"##{letter}" for letter in rest)]
  path.write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
  return {lower: make_tokenizer(path, lower) for lower in (True, False)}


def qa(name="q", question="a?", answers=(("a", 0),), **more):
  answers = [{"text": text, "answer_start": at} for text, at in answers]
  return {"id": name, "question": question, "answers": answers, **more}


def squad_json(*questions, context="a b c"):
  paragraph = {"context": context, "qas": list(questions)}
  return {"data": [{"title": "T", "paragraphs": [paragraph]}]}


@pytest.fixture
def write(tmp_path):
  def write(content):
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(content), "utf-8")
    return str(path)

  return write


def featurize(examples, tokenizer, length, stride, query, is_training):
  reading = squad.ReadingSettings(length, stride, query)
  make_windows = squad.WindowMaker(tokenizer, reading)
  return [w for e in examples for w in make_windows(e, is_training)]


class TestGoldens:
  @pytest.mark.parametrize("version", [1, 2])
  @pytest.mark.parametrize("is_training", [True, False])
  def test_features(self, goldens, tokenizer, version, is_training):
    folder = goldens / f"squad_v{version}"
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    examples = squad.read_squad_examples(
      str(goldens / meta["data"]), is_training, meta["version_2_with_negative"]
    )
    found = []
    squad.convert_examples_to_features(
      examples,
      tokenizer,
      meta["max_seq_length"],
      meta["doc_stride"],
      meta["max_query_length"],
      is_training,
      output_fn=found.append,
    )
    name = "features_train" if is_training else "features_predict"
    lines = (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
    for features, line in zip(found, lines, strict=True):
      expected = json.loads(line)
      length = len(expected["input_ids"])
      for key in ("input_ids", "segment_ids"):
        expected[key] = sequences.padded(expected[key], meta["max_seq_length"])
      expected["input_mask"] = sequences.padded(
        [1] * length, meta["max_seq_length"]
      )
      words = dict(expected["token_to_orig_map"])
      expected["token_to_orig_map"] = words
      best = set(expected["token_is_max_context"])
      expected["token_is_max_context"] = {p: p in best for p in words}
      if not is_training:
        expected |= {"start_position": None, "end_position": None}
      assert vars(features).items() >= expected.items()
      assert list(features.token_to_orig_map) == list(words)


class TestReading:
  def test_a_question(self, write):
    path = write(squad_json(qa("x", "b?", [("b\tc", 4)]), context=" a\n b\tc"))
    (example,) = squad.read_squad_examples(path, True)
    assert example.doc_tokens == ["a", "b", "c"]
    assert (example.qas_id, example.question_text) == ("x", "b?")
    assert (example.start_position, example.end_position) == (1, 2)
    assert example.orig_answer_text == "b\tc"
    assert example.answers == ("b\tc",)
    assert example.paragraph.char_starts == [1, 4, 6]
    assert example.paragraph.title == "T"
    assert not example.is_impossible

  def test_nothing_of_an_answer_is_used_to_predict(self, write):
    questions = [
      qa("x", answers=[("nowhere", 99), ("a", 0)]),
      {"id": "y", "question": "?"},
    ]
    path = write(squad_json(*questions))
    x, y = squad.read_squad_examples(path, False)
    assert (x.start_position, x.end_position, x.orig_answer_text) == (None,) * 3
    assert x.answers == ("nowhere", "a")
    assert y.answers == ()
    assert x.doc_tokens is y.doc_tokens
    assert x.paragraph is y.paragraph

  def test_the_first_of_several_answers_counts(self, write):
    path = write(squad_json(qa(answers=[("b", 2), ("a", 0)])))
    (example,) = squad.read_squad_examples(path, True)
    assert (example.orig_answer_text, example.start_position) == ("b", 1)

  def test_an_answer_before_the_first_word_is_omitted(self, write):
    questions = [qa("x", answers=[("a", -1)]), qa("y", answers=[("a", 0)])]
    found = squad.read_squad_examples(write(squad_json(*questions)), True)
    assert [example.qas_id for example in found] == ["y"]

  def test_numbers_are_names(self, write):
    (example,) = squad.read_squad_examples(write(squad_json(qa(7))), False)
    assert example.qas_id == "7"

  def test_gzip_and_byte_order_mark(self, tmp_path):
    path = tmp_path / "squad.json.gz"
    text = "\ufeff" + json.dumps(squad_json(qa(question="é?")))
    path.write_bytes(gzip.compress(text.encode()))
    (example,) = squad.read_squad_examples(str(path), True)
    assert example.question_text == "é?"

  def test_lost_answers_are_left_out_and_counted(self, write, caplog):
    questions = [
      qa("good", answers=[("b", 2)]),
      qa("far", answers=[("c", 0)]),
      qa("empty", answers=[("", 0)]),
      qa("blank", answers=[("d\u00a0e", 7)]),
    ]
    path = write(squad_json(*questions, context="a b c d\u00a0e"))
    with caplog.at_level("INFO", logger="absl"):
      (example,) = squad.read_squad_examples(path, True)
    assert example.qas_id == "good"
    (warning,) = [r for r in caplog.records if r.levelname == "WARNING"]
    message = warning.getMessage()
    assert message.startswith(f"{path}: skipping 3 questions")
    assert message.endswith("the first is far, answer 'c'")
    assert f"{path}: 1 question" in caplog.messages
    assert len(squad.read_squad_examples(path, False)) == 4

  @pytest.mark.parametrize(
    ("context", "answer"),
    [
      (
        "Le loyer est de 1\u00a0250\u00a0\u20ac par mois.",
        "1\u00a0250\u00a0\u20ac",
      ),
      ("会場は\u3000東京\u3000国際館\u3000です。", "東京\u3000国際館"),
      ("The lake holds 48\u2009300 litres.", "48\u2009300"),
    ],
  )
  def test_an_answer_at_its_offset_is_found(self, write, context, answer):
    question = qa("a", answers=[(answer, context.index(answer))])
    path = write(squad_json(question, context=context))
    (example,) = squad.read_squad_examples(path, True)
    assert example.orig_answer_text == answer

  def test_an_answer_in_text_without_blanks(self, write, small):
    context = "abab" * 20 + "\u200bba" + "abab" * 20
    question = qa("a", answers=[("ba", 81)])
    path = write(squad_json(question, context=context))
    (example,) = squad.read_squad_examples(path, True)
    (window,) = featurize([example], small[True], 384, 128, 9, True)
    span = window.char_span(window.start_position, window.end_position)
    assert "ba" in context[slice(*span)]
    assert span[1] - span[0] < 100

  @given(st.text(st.sampled_from(ORIGINAL_BLANKS + "ab\u00a0\x0b"), max_size=9))
  def test_words_are_cut_at_the_original_blanks(self, text):
    paragraph = squad.Paragraph.of(text)
    table = str.maketrans(dict.fromkeys(ORIGINAL_BLANKS, " "))
    blanked = text.translate(table)
    assert paragraph.doc_tokens == [w for w in blanked.split(" ") if w]
    for word, start in zip(
      paragraph.doc_tokens, paragraph.char_starts, strict=True
    ):
      assert text[start : start + len(word)] == word
      assert start == 0 or text[start - 1] in ORIGINAL_BLANKS


QAS = "data[0].paragraphs[0].qas"
NO_CONTEXT = {"data": [{"paragraphs": [{"qas": [qa()]}]}]}

# Content of a file, and the error.
BAD = [
  ([], 'the file: "data" is missing'),
  ({"data": {}}, '"data" is {}, not a list'),
  (NO_CONTEXT, 'data[0].paragraphs[0]: "context" is missing'),
  (squad_json(qa(None)), f'{QAS}[0]: "id" is missing, not a'),
  (squad_json(qa(question=5)), '"question" is 5, not a string'),
  (
    squad_json(qa() | {"answers": [{"text": "a"}]}),
    f'{QAS}[0].answers[0]: "answer_start" is missing',
  ),
  (squad_json(qa(answers=[("a", 1.5)])), '_start" is 1.5, not a whole number'),
  (squad_json(qa(answers=[])), f"{QAS}[0] has no answer"),
  (squad_json(qa("x"), qa("y"), qa("x")), f"{QAS}[2]"),
  (squad_json(qa(answers=[], is_impossible=True)), "--version_2_with_negative"),
  (squad_json(qa(is_impossible="no")), '_impossible" is "no", not true or f'),
  ({"data": []}, "no questions"),
  (squad_json(qa(answers=[("d", 0)])), "no questions to use"),
  (squad_json(qa(), context=""), "no questions to use"),
]


def test_examples_are_keys():
  """Like the original's: each is only equal to itself."""
  one, other = (squad.SquadExample("q", "a", ["b"]) for _ in range(2))
  assert {one: 1, other: 2}[one] == 1


class TestBadInput:
  @pytest.mark.parametrize(("content", "part"), BAD)
  def test_squad(self, write, content, part):
    path = write(content)
    with pytest.raises(ValueError, match=re.escape(part)) as caught:
      squad.read_squad_examples(path, is_training=True)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)

  @pytest.mark.parametrize(
    ("content", "place"),
    [
      (b'{"data":\n [}', ": invalid JSON: Expecting value: line 2 "),
      (b"", ": invalid JSON: Expecting value: line 1 "),
      (b'{"data":\n "\xe9"}', ":2: "),
      (b"[" * 100_000, ": "),
      (b"[" * 500 + b"]" * 500, ": "),
    ],
  )
  def test_no_json(self, tmp_path, content, place):
    path = tmp_path / "squad.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"JSON|UTF-8") as caught:
      squad.read_squad_examples(str(path), False)
    assert str(caught.value).startswith(f"{path}{place}")
    assert "\n" not in str(caught.value)

  def test_files(self, tmp_path):
    with pytest.raises(ValueError, match="no such file"):
      squad.read_squad_examples(str(tmp_path / "none.json"), False)
    with pytest.raises(ValueError, match="it is a folder"):
      squad.read_squad_examples(str(tmp_path), False)
    path = tmp_path / "half.json.gz"
    path.write_bytes(gzip.compress(b"{}")[:-3])
    with pytest.raises(ValueError, match="complete gzip file"):
      squad.read_squad_examples(str(path), False)

  @pytest.mark.parametrize(
    ("stride", "starts"),
    [(11, [0, 11, 22]), (12, [0, 12, 24]), (30, [0, 12, 24])],
  )
  def test_windows_leave_no_gap(self, tokenizer, stride, starts):
    words = list("abcdefghijklmnopqrstuvwxyz")
    example = squad.SquadExample(
      "q", "a b c d e", words, "y", start_position=24, end_position=24
    )
    # 12 pieces are left of 20 beside a question of 5.
    windows = featurize([example], tokenizer, 20, stride, 64, True)
    found = [[*window.token_to_orig_map.values()] for window in windows]
    assert found == [[*range(start, min(start + 12, 26))] for start in starts]
    # After [CLS], 5 pieces and [SEP].
    positions = [window.start_position for window in windows]
    assert positions == [0, 0, 7 + 24 - starts[2]]

  def test_room_and_stride(self, tokenizer):
    example = squad.SquadExample("q", "a b c d e", ["a"])
    with pytest.raises(UserError, match="--max_seq_length=9 leaves no room"):
      featurize([example], tokenizer, 9, 1, 64, False)
    assert featurize([example], tokenizer, 10, 1, 64, False)


@st.composite
def training_examples(draw):
  """An example whose answer's words have pieces, and how to cut it."""
  word = st.text("abc.A1", min_size=1, max_size=6)
  words = draw(st.lists(word, min_size=1, max_size=40))
  first = draw(st.integers(0, len(words) - 1))
  last = draw(st.integers(first, min(first + 4, len(words) - 1)))
  answer = " ".join(words[first : last + 1])
  begin = draw(st.integers(0, len(answer) - 1))
  example = squad.SquadExample(
    "q",
    draw(st.text("abc ", max_size=9)),
    words,
    answer[begin : draw(st.integers(begin + 1, len(answer)))],
    first,
    last,
    draw(st.booleans()),
  )
  max_query = draw(st.integers(0, 5))
  length = draw(st.integers(10, 40))
  stride = draw(st.integers(1, length - 3 - max_query - 1))
  return example, length, stride, max_query


class TestWindows:
  @given(training_examples(), st.booleans())
  @settings(max_examples=200)
  def test_equal_the_definition(self, small, drawn, is_training):
    example, *lengths = drawn
    found = featurize([example], small[True], *lengths, is_training)
    expected = plain_squad.plain_features(
      example, small[True], *lengths, is_training
    )
    assert found == list(expected)

  @pytest.mark.parametrize(("room", "stride"), [(4, 2), (150, 101), (300, 101)])
  def test_ties_of_rounded_scores(self, small, room, stride):
    # A window that is 100 longer scores 1 more, up to rounding.
    for size in (*range(1, 12), 200, 301, 302, 401, 402):
      example = squad.SquadExample("q", "", ["a"] * size)
      lengths = (room + 3, stride, 0, False)
      expected = plain_squad.plain_features(example, small[True], *lengths)
      assert featurize([example], small[True], *lengths) == list(expected)

  def test_a_paragraph_without_pieces_has_no_window(self, small):
    examples = [
      squad.SquadExample("x", "a", []),
      squad.SquadExample("y", "a", ["\u200b"]),
      squad.SquadExample("z", "a", ["a"]),
    ]
    (features,) = featurize(examples, small[True], 12, 1, 9, False)
    assert (features.unique_id, features.example_index) == (1000000000, 2)

  @pytest.mark.parametrize(
    ("context", "text", "offset", "span"),
    [
      ("a 中b.中 c", "中", 5, (4, 4)),
      ("a 中b.中 c", "中", 2, (1, 1)),
      # The answer is a part of a piece, so the first occurrence must do.
      ("b,bcab", "b", 5, (0, 0)),
    ],
  )
  def test_the_occurrence_at_the_offset(
    self, small, write, context, text, offset, span
  ):
    path = write(squad_json(qa(answers=[(text, offset)]), context=context))
    examples = squad.read_squad_examples(path, True)
    (features,) = featurize(examples, small[True], 20, 5, 0, True)
    found = features.start_position - 2, features.end_position - 2
    assert found == span


@pytest.fixture
def windows(small):
  examples = [
    squad.SquadExample("x", "a", ["a", "b"], "b", 1, 1),
    squad.SquadExample("y", "b", ["a"] * 20, "", -1, -1, True),
  ]
  return featurize(examples, small[True], 16, 4, 9, True)


class TestRecords:
  @pytest.mark.parametrize("is_training", [True, False])
  def test_what_is_written_is_read(self, tmp_path, windows, is_training):
    path = str(tmp_path / "train.tf_record")
    with squad.FeatureWriter(path, is_training) as writer:
      for window in windows:
        writer.process_feature(window)
      assert not os.path.exists(path)
    assert writer.num_features == len(windows) > 2
    assert (writer.filename, writer.is_training) == (path, is_training)
    spec = squad.feature_spec(16, is_training)
    rows = [r.numpy() for r in tf.data.TFRecordDataset(path)]
    for window, row in zip(windows, rows, strict=True):
      values = vars(window) | {"is_impossible": int(window.is_impossible)}
      # The original's names of numbers are plurals.
      expected = {n: values.get(n, values.get(n[:-1])) for n in spec}
      assert row == records.encode_row(expected, spec)
