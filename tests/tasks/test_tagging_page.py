"""report.html of labeled words: confusion of types, and marked errors."""

import re

import pytest
from web_page import Page

from bert.tasks.tagging import page as tagging_report
from bert.tasks.tagging.scores import TaggedSentence, TaggedSet

LABELS = [
  f"{prefix}-{kind}" for kind in ("LOC", "ORG", "PER") for prefix in "BI"
]
ERRORS = "Sentences with the largest loss"


def sentence(words, labels, predicted, loss=1.0, where="f:1"):
  columns = (column.split() for column in (words, labels, predicted))
  return TaggedSentence(where, *columns, loss)


def section(*sentences, labels=(*LABELS, "O"), scheme="IOB2"):
  """The HTML of a data set."""
  evaluation = TaggedSet("dev set", sentences, labels, scheme)
  return tagging_report.section("set-1", evaluation)


def errors(content):
  """The rows of the table of errors, and the sentence above it."""
  page = Page(content)
  return page.tables.get(ERRORS, [])[1:], "".join(page.text)


@pytest.mark.parametrize(("count", "shown"), [(100, 100), (103, 100)])
def test_the_worst_of_the_wrong_sentences_are_shown(count, shown):
  wrong = [
    sentence("Oslo", "B-LOC", "O", loss + 0.5, f"f:{loss}")
    for loss in range(count)
  ]
  right = sentence("Oslo", "B-LOC", "B-LOC", 999)
  rows, text = errors(section(*wrong, right))
  # The smallest losses are those that are left out.
  assert [(row[0], row[-1]) for row in rows] == [
    (f"f:{loss}", f"{loss}.50")
    for loss in reversed(range(count - shown, count))
  ]
  assert f"{count} of {count + 1} sentences have an error" in text
  assert ("the table has the first 100" in text) == (count > shown)


def lines(content):
  """The HTML of the lines of true and of predicted entities."""
  pattern = r'<p><b>(\w+)</b><span dir="auto">(.*?)</span></p>'
  return dict(re.findall(pattern, content))


def marks(line):
  """The (color, words, type) of each mark."""
  pattern = r'<mark class="(\w+)">(.*?) <small>(.*?)</small></mark>'
  return re.findall(pattern, line)


def test_true_and_predicted_entities_are_marked():
  found = lines(
    section(
      sentence(
        "Ada King saw New York and Bonn in May",
        "B-PER I-PER O B-LOC I-LOC O B-LOC O O",
        "B-PER I-PER O B-LOC O O B-ORG O B-LOC",
      )
    )
  )
  assert marks(found["true"]) == [
    ("hit", "Ada King", "PER"),
    ("miss", "New York", "LOC"),
    ("miss", "Bonn", "LOC"),
  ]
  assert marks(found["predicted"]) == [
    ("hit", "Ada King", "PER"),
    ("miss", "New", "LOC"),
    ("miss", "Bonn", "ORG"),
    ("miss", "May", "LOC"),
  ]
  for line, end in (("true", " in May"), ("predicted", " LOC")):
    # All words are there, in order, between the marks too.
    text = re.sub(r" <small>.*?</small>|<.*?>", "", found[line])
    assert text == "Ada King saw New York and Bonn in May"
    assert re.sub("<.*?>", "", found[line]).endswith(end)


def test_the_confusion_of_types_has_missed_and_false_entities():
  page = Page(
    section(
      sentence("Bonn Oslo", "B-LOC B-LOC", "B-LOC B-PER"),
      sentence("Ada is a", "B-PER O O", "O O B-ORG"),
    )
  )
  # The number of entities, and its share of the row.
  assert page.tables["Confusion matrix"] == [
    ["true ↓ predicted →", "LOC", "ORG", "PER", "no entity"],
    ["LOC", "150%", "00%", "150%", "00%"],
    ["ORG", "00%", "00%", "00%", "00%"],
    ["PER", "00%", "00%", "00%", "1100%"],
    ["no entity", "00%", "1100%", "00%", "00%"],
  ]
  assert page.tables["Entities"][1] == ["all", "0.33", "0.33", "0.33", "3"]


def test_labels_without_entities_are_confused_and_marked_by_word():
  content = section(
    sentence("a red car", "DT JJ NN", "DT NN NN"),
    labels=("DT", "JJ", "NN"),
    scheme=None,
  )
  assert Page(content).tables["Confusion matrix"] == [
    ["true ↓ predicted →", "DT", "JJ", "NN"],
    ["DT", "1100%", "00%", "00%"],
    ["JJ", "00%", "00%", "1100%"],
    ["NN", "00%", "00%", "1100%"],
  ]
  found = lines(content)
  assert marks(found["true"]) == [("miss", "red", "JJ")]
  assert marks(found["predicted"]) == [("miss", "red", "NN")]


def test_texts_are_no_tags():
  script = "<script>alert('x')</script>"
  kind = "<b>&amp;"
  content = section(
    # Before, in and after an entity.
    sentence(
      f"{script} {script} {script}", f"O B-{kind} O", "O O O", 1, f"{script}:1"
    ),
    labels=("O", f"B-{kind}"),
  )
  page = Page(content)
  ((where, shown, _),) = page.tables[ERRORS][1:]
  assert where == f"{script}:1"
  line = f"{script} {script} {script}"
  assert shown == f"true{script} {script} {kind} {script}predicted{line}"
  assert not page.named("script")
  assert len(page.named("b")) == 2  # "true" and "predicted"
