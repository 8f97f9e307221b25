"""JSON of damaged and hostile files: its value, or one error."""

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
