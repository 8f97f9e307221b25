"""report.html of multiple choice: the surest errors, and their marks."""

import re

import pytest
from web_page import Page

from bert.tasks.multiple_choice import page as choice_report
from bert.tasks.multiple_choice.data import Example
from bert.tasks.multiple_choice.task import ScoredChoices

ERRORS = "Errors with the highest probability"


def answer(label, *probabilities, where="f:1", context="c", question="q"):
  """An Example, the probabilities of its choices, and a loss."""
  choices = [f"choice {number}" for number in range(len(probabilities))]
  return Example(where, context, question, choices, label), probabilities, 1.0


def section(*answers):
  """The HTML of a data set, the rows of its table of errors, and its text."""
  content = choice_report.section("set-1", ScoredChoices("dev set", answers))
  page = Page(content)
  return content, page.tables.get(ERRORS, [])[1:], "".join(page.text)


@pytest.mark.parametrize(("count", "shown"), [(50, 50), (53, 50)])
def test_the_surest_errors_are_shown(count, shown):
  wrong = [
    answer(0, 0.25 - line / 1024, 0.75 + line / 1024, where=f"f:{line}")
    for line in range(count)
  ]
  _, rows, text = section(*wrong, answer(0, 0.96875, 0.03125))
  # The least sure are those that are left out.
  assert [row[0] for row in rows] == [
    f"f:{line}" for line in reversed(range(count - shown, count))
  ]
  assert f"{count} of {count + 1} choices are wrong" in text
  assert ("the table has the first 50" in text) == (count > shown)


def test_right_and_wrong_choices_are_marked():
  content, rows, _ = section(answer(2, 0.125, 0.5, 0.25, 0.125))
  pattern = r'<li class="(\w+)"><span>.*?>([\d.]+)</data> (.?)</span>'
  assert re.findall(pattern, content) == [
    ("other", "0.125", ""),
    ("wrong", "0.500", "✗"),
    ("right", "0.250", "✓"),
    ("other", "0.125", ""),
  ]
  ((_, shown),) = rows
  assert shown == (
    "c q0.125 choice 00.500 ✗choice 10.250 ✓choice 20.125 choice 3"
  )


def test_texts_are_no_tags():
  script = "<script>alert('x')</script>"
  example = Example(script, script, f"{script}?", [script, f"{script}."], 0)
  content, rows, _ = section((example, (0.25, 0.75), 1.0))
  assert rows == [
    [script, f"{script} {script}?0.250 ✓{script}0.750 ✗{script}."]
  ]
  assert not Page(content).named("script")
