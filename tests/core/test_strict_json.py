"""JSON of damaged and hostile files: its value, or one error."""

import re

import pytest

from bert import strict_json


@pytest.mark.parametrize(
  ("content", "value"),
  [
    ('{"a": [1, 2.5, null, true, "NaN"]}', {"a": [1, 2.5, None, True, "NaN"]}),
    (b'\xef\xbb\xbf["\xc3\xa9"]', ["é"]),
    ("[" * 100 + "]" * 100, None),
    ("9" * 300, 10**300 - 1),
  ],
)
def test_json(content, value):
  found = strict_json.loads(content)
  assert value is None or found == value


@pytest.mark.parametrize(
  ("content", "reason"),
  [
    ("{", "line 1 column 2"),
    (b'"\xff"', "utf-8"),
    ("[NaN]", "NaN is no number of JSON"),
    ("-Infinity", "-Infinity is no number of JSON"),
    ("1e400", "1e400 is too large"),
    ("1" + "0" * 400, "401 digits"),
    ("9" * 5000, "5000 digits"),
    ("[" * 500 + "]" * 500, "nested more than 100 levels deep"),
    ('{"a":' * 101 + "1" + "}" * 101, "nested more than 100 levels deep"),
    ("[" * 10**5 + "]" * 10**5, "nested more than 100 levels deep"),
  ],
)
def test_what_is_not(content, reason):
  with pytest.raises(ValueError, match=reason):
    strict_json.loads(content)


def test_numbers_that_python_writes():
  found = strict_json.loads('[NaN, Infinity, 1e400, "a"]', allows_nan=True)
  assert str(found) == "[nan, inf, inf, 'a']"


@pytest.mark.parametrize(
  ("value", "hint", "problem"),
  [
    ("a", str, None),
    (1, str, "1, not a string"),
    (True, bool, None),
    (1, bool, "1, not true or false"),
    (True, int, "true, not a whole number"),
    (1.0, int, "1.0, not a whole number"),
    (1, float, None),
    (True, float, "true, not a number"),
    (None, float | None, None),
    ("1", float | None, '"1", not a number'),
    (None, float, "null, not a number"),
    (["a"], tuple[str, ...], None),
    (("a",), tuple[str, ...], None),
    ([["a", "b"]], tuple[tuple[str, str], ...], None),
    (["a"], tuple[tuple[str, str], ...], '["a"], not a list of lists'),
    (["a", 1], list[str], '["a", 1], not a list of strings'),
    ({"a": 1}, dict[str, int], None),
    ({"a": "b"}, dict[str, int] | None, "not an object of whole numbers"),
    ([], dict, "[], not an object"),
    (1, str | list[str], "1, not a string or a list of strings"),
  ],
)
def test_the_types_of_fields(value, hint, problem):
  if problem is None:
    strict_json.check_types({"name": value, "other": 1}, {"name": hint})
    return
  with pytest.raises(ValueError, match=re.escape(problem)) as error:
    strict_json.check_types({"name": value}, {"name": hint, "none": str})
  assert str(error.value).startswith("name is ")
