"""Answers and their scores: the goldens, definitions, arithmetic."""

import itertools
import json
import math
import pathlib
import re
import types

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import tokenization
from bert.tasks.squad import data as squad, decoding as squad_decoding
from bert.tasks.squad.decoding import DecodingSettings, RawResult

CASES = pathlib.Path(__file__).parent.parent / "cases"

V2 = DecodingSettings(version_2_with_negative=True)


def example(text, name="q"):
  """A question on a text whose words stand between blanks."""
  return types.SimpleNamespace(qas_id=name, doc_tokens=text.split(" "))


def window(pieces, unique_id=0, best_here=None, example_index=0, index=0):
  """[CLS] q [SEP] pieces [SEP]; `pieces` are lists of one word's pieces each.

  The first piece of the context has position 3. `best_here` lists the
  positions of maximal context; None: all.
  """
  words = [word for word, parts in enumerate(pieces) for _ in parts]
  places = range(3, 3 + len(words))
  flat = [piece for parts in pieces for piece in parts]
  return types.SimpleNamespace(
    unique_id=unique_id,
    example_index=example_index,
    doc_span_index=index,
    pieces=None,
    tokens=["[CLS]", "q", "[SEP]", *flat, "[SEP]"],
    token_to_orig_map=dict(zip(places, words, strict=True)),
    token_is_max_context={
      place: best_here is None or place in best_here for place in places
    },
  )


def result(feature, starts=(), ends=(), null=0.0, unique_id=None):
  """Logits of 0 but for dicts from position to logit; half of `null` each."""
  logits = np.zeros([2, len(feature.tokens)], np.float32)
  logits[:, 0] = null / 2
  for row, values in zip(logits, (starts, ends), strict=True):
    for place, value in dict(values).items():
      row[place] = value
  number = feature.unique_id if unique_id is None else unique_id
  return RawResult(number, *logits)


class Golden:
  """Questions, windows, logits and settings of one of the golden runs."""

  def __init__(self, goldens, name):
    self.folder = goldens / name
    self.meta = json.loads((self.folder / "meta.json").read_text())
    data = json.loads((goldens / self.meta["data"]).read_text("utf-8"))["data"]
    self.examples = [
      types.SimpleNamespace(
        qas_id=question["id"],
        doc_tokens=re.findall("[^ \t\r\n\u202f]+", paragraph["context"]),
      )
      for article in data
      for paragraph in article["paragraphs"]
      for question in paragraph["qas"]
    ]
    lines = (self.folder / "features_predict.jsonl").read_text("utf-8")
    self.features = [self._feature(line) for line in lines.splitlines()]
    logits = np.load(self.folder / "logits.npz")
    self.results = [
      RawResult(int(number), start, end)
      for number, start, end in zip(
        logits["unique_ids"], logits["start"], logits["end"], strict=True
      )
    ]

  def _feature(self, line):
    fields = json.loads(line)
    fields["token_to_orig_map"] = dict(fields["token_to_orig_map"])
    best_here = set(fields["token_is_max_context"])
    fields["token_is_max_context"] = {
      place: place in best_here for place in fields["token_to_orig_map"]
    }
    return types.SimpleNamespace(**fields, pieces=None)

  def settings(self):
    names = ("n_best_size", "max_answer_length", "do_lower_case")
    names += ("version_2_with_negative", "null_score_diff_threshold")
    return {name: self.meta[name] for name in names}

  def write(self, folder, results, examples=None):
    files = {
      f"output_{key}_file": str(folder / f"{name}.json")
      for key, name in (
        ("prediction", "predictions"),
        ("nbest", "nbest_predictions"),
        ("null_log_odds", "null_odds"),
      )
    }
    squad_decoding.write_predictions(
      examples or self.examples,
      iter(self.features),
      results,
      **files,
      **self.settings(),
    )


@pytest.fixture(scope="module", params=["squad_v1", "squad_v2"])
def squad_golden(goldens, request):
  return Golden(goldens, request.param)


def assert_same_json(path, expected):
  """Same layout, keys and texts in the same order; numbers within 1e-6."""
  written = path.read_text("utf-8")
  content = json.loads(written)
  assert written == json.dumps(content, indent=4) + "\n"
  known = json.loads(expected.read_text("utf-8"))
  assert list(content) == list(known)
  for key, value in known.items():
    if not isinstance(value, list):
      same = value if isinstance(value, str) else pytest.approx(value, abs=1e-6)
      assert content[key] == same
      continue
    for entry, wanted in zip(content[key], value, strict=True):
      assert list(entry) == list(wanted)
      assert entry.pop("text") == wanted.pop("text")
      assert entry == pytest.approx(wanted, abs=1e-6)


class TestGoldens:
  def test_files(self, squad_golden, tmp_path):
    squad_golden.write(tmp_path, squad_golden.results)
    expected = sorted(
      path
      for path in squad_golden.folder.glob("*.json")
      if path.name != "meta.json"
    )
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
      path.name for path in expected
    ]
    for path in expected:
      assert_same_json(tmp_path / path.name, path)

  def test_results_may_be_lists_in_any_order(self, squad_golden, tmp_path):
    shuffled = [
      RawResult(number, start.tolist(), end.tolist())
      for number, start, end in squad_golden.results
    ]
    np.random.default_rng(0).shuffle(shuffled)
    folders = tmp_path / "plain", tmp_path / "shuffled"
    for folder, results in zip(
      folders,
      (squad_golden.results, [RawResult(*r) for r in shuffled]),
      strict=True,
    ):
      folder.mkdir()
      squad_golden.write(folder, results)
    for path in folders[0].iterdir():
      assert path.read_bytes() == (folders[1] / path.name).read_bytes()


def plain_texts(words, windows, results, settings):
  """The n best texts by the definition: all spans, sorted by all that decides.

  Each piece is a word, so that the text of a span is its words.
  """
  spans = []
  for number, (feature, scores) in enumerate(
    zip(windows, results, strict=True)
  ):
    _, *sides = scores
    starts, ends = (
      sorted(range(len(side)), key=lambda place, s=side: (-s[place], place))
      for side in sides
    )
    starts, ends = (s[: settings.n_best_size] for s in (starts, ends))
    for (rank, start), (other, end) in itertools.product(
      enumerate(starts), enumerate(ends)
    ):
      inside = {start, end} <= feature.token_to_orig_map.keys()
      size = end - start + 1
      if (
        inside
        and feature.token_is_max_context[start]
        and 1 <= size <= settings.max_answer_length
      ):
        first, last = (feature.token_to_orig_map[p] for p in (start, end))
        score = sides[0][start] + sides[1][end]
        text = " ".join(words[first : last + 1])
        spans.append((-score, number, rank, other, text))
  if settings.version_2_with_negative:
    least = min(starts[0] + ends[0] for _, starts, ends in results)
    spans.append((-least, len(windows), 0, 0, ""))
  texts = list(dict.fromkeys(text for *_, text in sorted(spans)))
  texts = texts[: settings.n_best_size]
  if settings.version_2_with_negative and "" not in texts:
    texts.append("")
  return texts or ["empty"]


@st.composite
def questions(draw):
  """Words, windows over them with few different logits, and settings."""
  words = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=7))
  windows, results = [], []
  for number in range(draw(st.integers(1, 3))):
    best_here = draw(st.sets(st.integers(3, 2 + len(words))))
    feature = window([[w] for w in words], number, best_here, index=number)
    size = len(feature.tokens) + draw(st.integers(0, 2))
    logits = st.lists(
      st.integers(-2, 2).map(float), min_size=size, max_size=size
    )
    windows.append(feature)
    results.append(RawResult(number, draw(logits), draw(logits)))
  return words, windows, results


class TestRanking:
  @hypothesis.given(
    questions(), st.integers(1, 6), st.integers(1, 4), st.booleans()
  )
  def test_as_defined(self, question, n_best_size, max_answer_length, is_v2):
    words, windows, results = question
    settings = DecodingSettings(
      n_best_size, max_answer_length, version_2_with_negative=is_v2
    )
    answer = squad_decoding.answer_question(
      example(" ".join(words)), windows, results, settings
    )
    texts = [entry.text for entry in answer.nbest]
    assert texts == plain_texts(words, windows, results, settings)
    assert math.fsum(e.probability for e in answer.nbest) == pytest.approx(1)
    best = answer.nbest[0]
    for entry in answer.nbest:
      # A softmax: the ratio of two is the exponential of the difference.
      difference = (
        entry.start_logit + entry.end_logit - best.start_logit - best.end_logit
      )
      assert entry.probability / best.probability == pytest.approx(
        math.exp(difference)
      )

  def test_no_answer_wins_if_its_odds_are_larger_than_the_threshold(self):
    feature = window([["a"]])
    logits = [result(feature, {3: 1.0}, {3: 1.0}, null=2.5)]
    for threshold, text in ((0.0, ""), (0.5, "a"), (0.49, ""), (1.0, "a")):
      answer = squad_decoding.answer_question(
        example("a"), [feature], logits, V2
      ).at_threshold(threshold)
      assert (answer.text, answer.best_text) == (text, "a")
      assert answer.null_odds == 0.5
      assert [entry.text for entry in answer.nbest] == ["", "a"]

  def test_padding_takes_places_among_the_n_best_as_in_the_original(self):
    feature = window([["a"], ["b"]])
    padded = np.append(np.zeros(6, np.float32), np.float32(9))
    settings = DecodingSettings(n_best_size=1)
    answer = squad_decoding.answer_question(
      example("a b"), [feature], [RawResult(0, padded, padded)], settings
    )
    assert answer.text == squad_decoding.NOTHING_ALLOWED


class TestNothingToChooseFrom:
  """Where the original crashes, or as good as."""

  def check_nothing(self, windows, results):
    asked = example("a")
    answer = squad_decoding.answer_question(asked, windows, results, V2)
    assert (answer.text, answer.best_text) == ("", "")
    assert [entry[:2] for entry in answer.nbest] == [("", 1.0)]
    assert answer.null_odds == squad_decoding.NULL_FOR_SURE
    json.loads(json.dumps(answer.null_odds, allow_nan=False))
    answer = squad_decoding.answer_question(
      asked, windows, results, DecodingSettings()
    )
    assert answer.nbest == [("empty", 1.0, 0.0, 0.0)]
    assert answer.text == "empty"
    assert answer.null_odds is None

  def test_no_window(self):
    self.check_nothing([], [])

  def test_no_place_of_maximal_context(self):
    feature = window([["a"]], best_here=())
    self.check_nothing([feature], [result(feature)])

  def test_only_the_question_among_the_n_best(self):
    windows = [window([["a"]], number) for number in range(2)]
    scores = [RawResult(f.unique_id, [2, 1, 1, 0, 1], [0] * 5) for f in windows]
    asked = example("a")
    settings = DecodingSettings(n_best_size=4, version_2_with_negative=True)
    answer = squad_decoding.answer_question(asked, windows, scores, settings)
    assert answer.text == ""
    assert answer.null_odds == squad_decoding.NULL_FOR_SURE
    # The window's own logits stay in the list.
    assert answer.nbest == [("", 1.0, 2.0, 0.0)]


class TestFinalText:
  @pytest.mark.parametrize(
    ("pred_text", "orig_text", "expected"),
    [
      ("steve smith", "Steve Smith's", "Steve Smith"),
      ("s", "Steve Smith's", "S"),  # The first place where it stands.
      ("24 – 10", "(24–10),", "24–10"),
      ("u . s .", "U.S., and", "U.S."),
      ("the", "Other the", "the"),
      ("cafe", "Café,", "Café"),
      ("北 京", "在北京的", "北京"),
      ("京", "在北京的", "京"),
      # What cannot be counted character by character: the words as they are.
      ("cafe", "Cafe\u0301,", "Cafe\u0301,"),  # The accent is a character.
      ("10 km", "10\u00a0km.", "10\u00a0km."),  # The blank is one.
      ("ab", "a\u200bb c", "a\u200bb c"),  # A character vanishes.
      ("[UNK]", "☃ snow", "☃ snow"),
      ("", "Some words", "Some words"),
      (" ", "Some words", "Some words"),
      ("some ", "Some words", "Some words"),
      (" words", "Some words", "Some words"),
      ("x", "", ""),
      ("", "", ""),
      ("words", "Some  words", "words"),
    ],
  )
  def test_lower_cased(self, pred_text, orig_text, expected):
    text = squad_decoding.get_final_text(pred_text, orig_text, True)
    assert text == expected

  @pytest.mark.parametrize(
    ("pred_text", "expected"),
    [("Smith", "Smith"), ("smith", "Mr. Smith, Jr."), ("Smith ,", "Smith,")],
  )
  def test_cased(self, pred_text, expected):
    text = squad_decoding.get_final_text(pred_text, "Mr. Smith, Jr.", False)
    assert text == expected


def read(tokenizer, text, length=384):
  """A question on a text, and its windows."""
  asked = squad.SquadExample("q", "", [], paragraph=squad.Paragraph.of(text))
  asked.doc_tokens = asked.paragraph.doc_tokens
  settings = squad.ReadingSettings(length, doc_stride=3, max_query_length=1)
  return asked, squad.WindowMaker(tokenizer, settings)(asked, False)


def answer_at(asked, windows, number, start, end):
  """The answer from a window's piece `start` to its piece `end`, from 0."""
  results = [result(feature) for feature in windows]
  results[number].start_logits[2 + start] = 1.0
  results[number].end_logits[2 + end] = 1.0
  return squad_decoding.answer_question(
    asked, windows, results, DecodingSettings()
  )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
  words = ["cafe", "play", "##ing", "##s", "so", "are", "a", "##b", "b"]
  path.write_text("\n".join([*special, *words, *",.()北京中文"]), "utf-8")
  return tokenization.FullTokenizer(str(path))


# Text, first and last piece, answer in the text, and in predictions.json if
# that differs.
SPANS = [
  ("Playings ,so", 0, 2, "Playings", None),
  ("Playings ,so", 0, 1, "Playing", None),
  ("Playings ,so", 1, 3, "ings ,", None),
  ("(Playing so,", 1, 3, "Playing so", None),
  ("北京\t 中文", 0, 2, "北京\t 中", "北京 中"),
  ("\u3000\u3000北京\u3000中文。", 0, 2, "北京\u3000中", None),
  ("北\u200b京中文", 2, 3, "中文", None),
  ("北\u200b京中文", 0, 1, "北\u200b京", None),
  ("中.ab中,中", 0, 0, "中", None),
  ("中.ab中,中", 4, 4, "中", None),
  ("\u2603中\u2603中", 1, 1, "中", None),
  ("\u2603中\u2603中", 0, 2, "\u2603中\u2603", None),
  ("so,cafe\u0301.so", 2, 2, "cafe\u0301", None),
  ("so,caf\u00e9.so", 2, 2, "caf\u00e9", None),
  ("so\u00a0play.a\u00adb", 1, 1, "play", None),
  ("so\u00a0play.a\u00adb", 3, 4, "a\u00adb", None),
]


class TestSpans:
  @pytest.mark.parametrize(("text", "start", "end", "shown", "written"), SPANS)
  def test_an_answer_is_the_text_of_its_pieces(
    self, tokenizer, text, start, end, shown, written
  ):
    asked, windows = read(tokenizer, text)
    answer = answer_at(asked, windows, 0, start, end)
    assert text[slice(*answer.span)] == shown
    assert answer.text == (written or shown)

  @pytest.mark.parametrize("case", ["zh_indent", "nbsp_answer"])
  def test_the_answers_of_files(self, tmp_path, case):
    """What a model that knows the answers says, from the training's windows."""
    path = str(CASES / f"{case}.json")
    examples = squad.read_squad_examples(path, True)
    text = "".join(e.paragraph.context for e in examples)
    letters = sorted(set("".join(text.split())))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = [*special, *letters, *(f"##{x}" for x in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), "utf-8")
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"), False)
    settings = squad.ReadingSettings(384, 128, 9)
    make_windows = squad.WindowMaker(tokenizer, settings)
    for asked in examples:
      windows = make_windows(asked, True)
      results = [result(feature) for feature in windows]
      results[0].start_logits[windows[0].start_position] = 1.0
      results[0].end_logits[windows[0].end_position] = 1.0
      answer = squad_decoding.answer_question(
        asked, windows, results, DecodingSettings()
      )
      start, end = answer.span
      assert asked.paragraph.context[start:end] == asked.answers[0]
      assert start == asked.answer_starts[0]
      # White space of the file of predictions may differ.
      assert answer.text.split() == asked.answers[0].split()

  def test_a_text_that_occurs_twice(self, tokenizer):
    asked, windows = read(tokenizer, "中.ab中,中")
    assert answer_at(asked, windows, 0, 0, 0).span == (0, 1)
    assert answer_at(asked, windows, 0, 4, 4).span == (4, 5)
    assert answer_at(asked, windows, 0, 6, 6).span == (6, 7)

  def test_a_window_that_begins_inside_a_word(self, tokenizer):
    text = "so so Playings are so"
    asked, windows = read(tokenizer, text, length=8)
    second = windows[1]
    assert second.tokens[2].startswith("##")
    at = second.tokens.index("are") - 2
    assert answer_at(asked, windows, 1, at, at).span == (15, 18)
    found = answer_at(asked, windows, 1, at, at + 1)
    assert text[slice(*found.span)] == found.text == "are so"


class TestFiles:
  def test_a_question_without_windows_keeps_its_place(self, tmp_path):
    asked = [example("a", name) for name in "xyz"]
    windows = [window([["a"]], n, example_index=n) for n in (0, 2)]
    results = [result(f, {3: 1.0}, {3: 1.0}) for f in windows]
    paths = [str(tmp_path / f"{name}.json") for name in ("p", "n", "o")]
    squad_decoding.write_predictions(
      asked, windows, results, 20, 30, True, *paths, True
    )
    texts, nbest, odds = (
      json.loads((tmp_path / f"{name}.json").read_text())
      for name in ("p", "n", "o")
    )
    assert texts == {"x": "a", "y": "", "z": "a"}
    assert list(nbest) == list(odds) == ["x", "y", "z"]
    assert odds["x"] == odds["z"] == -2.0
