"""answer.html: alone, complete, sorted, and with marks where they belong."""

import base64
import hashlib
import itertools
import json
import math
import re

import hypothesis
import pytest
from hypothesis import strategies as st
from web_page import Page

from bert.tasks.squad import page as squad_report
from bert.tasks.squad.page import AnsweredQuestion

NASTY = [
  "</script><script>alert('x')</script>",
  "</noscript></details><!-- <b>\"q\" & 'q' &amp; &#65;",
  "line\u2028separator\u2029and\r\nreturn\ttab",
  "القاهرة هي عاصمة مصر",
  "𠮷野家 😀 👩‍👩‍👧 e\u0301",
]
SCORES = {"exact_match": 50.25, "f1": 61.0}


def question(**changed):
  """Predicted `Denver Broncos` where `Broncos` is right."""
  arguments = {
    "qas_id": "q1",
    "title": "Super_Bowl",
    "question": "Who won?",
    "context": "The Denver Broncos won.",
    "prediction": "Denver Broncos",
    "prediction_span": (4, 18),
    "golds": [("Broncos", 11)],
    "exact": 0.0,
    "f1": 2 / 3,
    "probability": 0.875,
    "loss": 2.5,
    "null_odds": None,
    "nbest": [("Denver Broncos", 0.875), ("Broncos", 0.0821)],
  }
  return AnsweredQuestion(**{**arguments, **changed})


@pytest.fixture
def write(tmp_path):
  """Writes a page; returns it parsed, and what its script reads."""

  def write(*questions, scores=SCORES, title="Answers"):
    path = tmp_path / "answer.html"
    squad_report.write_page(str(path), title, iter(questions), scores)
    assert [p.name for p in tmp_path.iterdir()] == ["answer.html"]
    page = Page(path.read_bytes().decode())
    data = json.loads(page.texts["data"])
    for asked in data["questions"]:
      asked["context"] = data["contexts"][asked["context"]]
    return page, data["questions"]

  return write


def marked(context, runs):
  """The (text, mark) pairs that the script makes of UTF-16 units."""
  units = context.encode("utf-16-le", "surrogatepass")
  pairs = []
  place = 0
  for length, mark in runs:
    end = place + 2 * length
    text = units[place:end].decode("utf-16-le", "surrogatepass")
    pairs.append((text, ["", "predicted", "gold", "both"][mark]))
    place = end
  assert place == len(units)
  return pairs


def test_all_about_a_question_is_there(write):
  _, (found,) = write(question())
  assert found == {
    "id": "q1",
    "title": "Super_Bowl",
    "question": "Who won?",
    "context": "The Denver Broncos won.",
    "answer": "Denver Broncos",
    "golds": ["Broncos"],
    "verdict": "partly",
    "exact": "0",
    "f1": "0.6667",
    "probability": "0.8750",
    "loss": "2.5000",
    "odds": None,
    "runs": [[4, 0], [7, 1], [7, 3], [5, 0]],
    "nbest": [["Denver Broncos", "0.8750"], ["Broncos", "0.0821"]],
  }
  assert marked(found["context"], found["runs"]) == [
    ("The ", ""),
    ("Denver ", "predicted"),
    ("Broncos", "both"),
    (" won.", ""),
  ]


@pytest.mark.parametrize("text", NASTY)
def test_nasty_texts_come_back(write, text):
  context = f"Before {text} after"
  end = 7 + len(text)
  page, (found,) = write(
    question(
      qas_id=text,
      title=text,
      question=text,
      context=context,
      prediction=text,
      prediction_span=(7, end),
      golds=[(text[1:] + " after", 8)],
      nbest=[(text, 0.5)],
    ),
    title=text,
  )
  for key in ("id", "title", "question", "answer"):
    assert found[key] == text
  assert found["golds"] == [text[1:] + " after"]
  assert found["nbest"] == [[text, "0.5000"]]
  assert found["context"] == context
  assert marked(context, found["runs"]) == [
    ("Before ", ""),
    (text[:1], "predicted"),
    (text[1:], "both"),
    (" after", "gold"),
  ]
  # Nothing of it is a tag: the data and the page's own script.
  assert len(page.named("script")) == 2
  assert not {"b", "details"} & {tag for tag, _ in page.tags}


@st.composite
def contexts_and_spans(draw):
  alphabet = st.sampled_from("ab \n\u0301é中😀𠮷\u2028")
  context = draw(st.text(alphabet, max_size=12))
  place = st.integers(0, len(context))
  span = st.tuples(place, place).map(sorted).map(tuple)
  return context, draw(st.none() | span), draw(st.lists(span, max_size=3))


@hypothesis.settings(
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(contexts_and_spans())
def test_marks_cover_the_characters_of_spans(write, drawn):
  context, span, golds = drawn
  asked = question(
    context=context,
    prediction_span=span,
    golds=[(context[start:end], start) for start, end in golds],
  )
  _, (found,) = write(asked)
  runs = found["runs"]
  # Each character's marks, one character after the other.
  expected = []
  for place, character in enumerate(context):
    predicted = span is not None and span[0] <= place < span[1]
    gold = any(start <= place < end for start, end in golds)
    expected.append((character, predicted + 2 * gold))
  names = ["", "predicted", "gold", "both"]
  assert [
    (character, mark)
    for text, mark in marked(context, runs)
    for character in text
  ] == [(character, names[mark]) for character, mark in expected]
  marks = [mark for _, mark in runs]
  assert all(a != b for a, b in itertools.pairwise(marks))


def test_gold_that_is_not_where_it_should_be_has_no_mark(write):
  _, (found,) = write(
    question(golds=[("Broncos", 10), ("Panthers", None)], prediction_span=None)
  )
  assert found["golds"] == ["Broncos", "Panthers"]
  assert found["runs"] == [[23, 0]]


def test_equal_golds_are_named_once_and_marked_wherever_they_are(write):
  _, (found,) = write(
    question(
      context="one two one",
      golds=[("one", 0), ("one", 8), ("two one", 4), ("one", 0)],
      prediction_span=None,
    )
  )
  assert found["golds"] == ["one", "two one"]
  assert found["runs"] == [[3, 2], [1, 0], [7, 2]]


def test_worst_is_first(write):
  losses = [0.5, math.inf, 3.0, 0.0, math.inf]
  sure = [0.5, 0.25, 0.5, 0.5, 0.75]
  _, found = write(
    *(
      question(qas_id=str(i), loss=loss, probability=probability)
      for i, (loss, probability) in enumerate(zip(losses, sure, strict=True))
    )
  )
  # Of infinite losses, the most probable answer is first.
  assert [(q["id"], q["loss"]) for q in found] == [
    *[("4", "∞"), ("1", "∞"), ("2", "3.0000"), ("0", "0.5000"), ("3", "0")]
  ]


def test_each_context_is_there_once(write, tmp_path):
  contexts = ["first paragraph", "second paragraph", "first paragraph"]
  _, found = write(
    *(
      question(qas_id=str(i), context=context, loss=float(i), golds=[])
      for i, context in enumerate(contexts)
    )
  )
  assert [q["id"] for q in found] == ["2", "1", "0"]
  assert [q["context"] for q in found] == contexts
  content = (tmp_path / "answer.html").read_text()
  assert content.count("first paragraph") == 1
  assert content.count("second paragraph") == 1


@pytest.mark.parametrize(
  ("exact", "f1", "verdict"),
  [
    (1, 1.0, "right"),
    (0, 0.5, "partly"),
    (0, 0.0, "wrong"),
    (True, 1, "right"),
  ],
)
def test_verdicts(write, exact, f1, verdict):
  _, (found,) = write(question(exact=exact, f1=f1))
  assert (found["verdict"], found["exact"]) == (verdict, str(int(exact)))


def test_filter_of_a_set_with_questions_without_an_answer(write):
  page, found = write(
    question(null_odds=1.25),
    question(golds=[], null_odds=-math.inf),
    question(golds=[("", None)], null_odds=-0.5),
  )
  values = [a["value"] for a in page.named("option")]
  assert values == [
    *("all", "errors", "right"),
    *("all", "answerable", "unanswerable"),
  ]
  assert [q["odds"] for q in found] == ["1.2500", "−∞", "-0.5000"]
  assert [len(q["golds"]) for q in found] == [1, 0, 0]
  assert "answerable (1)" in page.text
  assert "unanswerable (2)" in page.text


def test_scores_of_version_2(write):
  page, _ = write(
    question(),
    scores={
      "exact": 60.0,
      "f1": 70.128,
      "total": 1,
      "HasAns_exact": 50.0,
      "HasAns_f1": 75.0,
      "HasAns_total": 2,
      "NoAns_exact": 25.0,
      "NoAns_f1": 25.5,
      "NoAns_total": 3,
      "best_exact": 61.0,
      "best_exact_thresh": -1.25,
      "best_f1": 71.0,
      "best_f1_thresh": -2.5,
      "null_score_diff_threshold": 0.5,
      "best_null_score_diff_threshold": 1.5,
    },
  )
  assert page.tables["Scores"] == [
    ["questions", "exact match", "F1", "number"],
    ["with an answer", "50", "75", "2"],
    ["without an answer", "25", "26", "3"],
  ]
  numbers = page.numbers()
  assert numbers[:3] == [60, 70.128, 1]
  assert numbers[-2:] == [0.5, 1.5]
  assert "70" in page.text


def test_needs_nothing_beside_it(write, tmp_path):
  page, _ = write(question(), question(golds=[]))
  content = (tmp_path / "answer.html").read_text()
  assert "://" not in content
  assert content.count("http") == content.count("http-equiv") == 1
  assert "@import" not in content
  assert "url(" not in content
  for _, attributes in page.tags:
    assert "src" not in attributes
    assert attributes.get("href", "#").startswith("#")
    assert not any(name.startswith("on") for name in attributes)
  digest = hashlib.sha256(script_of(content).encode()).digest()
  assert f"'sha256-{base64.b64encode(digest).decode()}'" in content


def script_of(content):
  """The text of the script of a page."""
  return re.findall(r"<script>(.*?)</script>", content, re.S)[-1]


def test_script_finds_what_it_looks_for(write, tmp_path):
  page, (found, _) = write(question(), question(golds=[]))
  script = script_of((tmp_path / "answer.html").read_text())
  wanted = set(re.findall(r'find\("([a-z]+)"\)', script))
  wanted |= set(re.findall(r'"(\w+)"', script[: script.index(".map(find)")]))
  ids = {a["id"] for _, a in page.tags if "id" in a}
  assert {"data", "filter", "list", "more", "status"} <= ids & wanted
  names = {a["name"] for a in page.named("input") + page.named("select")}
  assert names == set(re.findall(r'chosen\.get\("(\w+)"\)', script))
  fields = set(re.findall(r"\bq\.([a-z0-9]+)\b", script))
  assert fields - {"text"} == found.keys()
