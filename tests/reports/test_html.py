"""Pages: well-formed, alone, and no text is taken for anything but text."""

import base64
import hashlib
import json
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from web_page import Page

from bert.reports import html


def policy(page):
  (meta,) = [a for a in page.named("meta") if "http-equiv" in a]
  assert meta["http-equiv"] == "Content-Security-Policy"
  return meta["content"].split("; ")


def test_page_without_a_script_runs_nothing():
  page = Page(html.document("A <b> & c", "<p>top</p>", "<p>rest</p>"))
  assert page.text.count("A <b> & c") == 2  # Title and heading.
  assert "b" not in {tag for tag, _ in page.tags}
  assert policy(page) == ["default-src 'none'", "style-src 'unsafe-inline'"]
  assert not page.named("script")


def test_only_the_script_that_was_given_may_run():
  script = 'document.title = "é" + 1 < 2;\n'
  content = html.document("t", "", "<p>rest</p>", script=script)
  # The element's text is what a browser takes the hash of.
  start = content.index("<script>") + len("<script>")
  text = content[start : content.index("</script>")]
  assert text == script
  digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
  assert policy(Page(content))[2:] == [f"script-src 'sha256-{digest}'"]
  assert start > content.index("rest")


def test_style_comes_after_what_pages_share():
  content = html.document("t", "", "", style="p { margin: 7px; }")
  assert content.index("p { margin: .5rem 0;") < content.index("7px")
  for name in ("@import", "url(", "://"):
    assert name not in content


def test_any_text_can_be_written(tmp_path):
  path = tmp_path / "page.html"
  html.write(str(path), "a\ud800b é")
  assert path.read_bytes() == b"a?b \xc3\xa9"
  assert list(tmp_path.iterdir()) == [path]


def utf16(value):
  """Text as a browser holds it: two halves that meet are one character."""
  if isinstance(value, str):
    return value.encode("utf-16-le", "surrogatepass")
  if isinstance(value, list):
    return [utf16(item) for item in value]
  return value


any_text = st.text(st.characters())


@hypothesis.given(
  st.recursive(
    st.none() | st.booleans() | st.integers() | any_text,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
  )
)
@hypothesis.example(
  ["</script>", "<!-- <script>", "\u2028\r\n\0", "\U0001f600"]
)
def test_any_value_comes_back_from_its_block(value):
  block = html.json_block("a key", value)
  block.encode()  # Nothing in it is half of a pair.
  page = Page(block)
  assert page.tags == [("script", {"type": "application/json", "id": "a key"})]
  text = page.texts["a key"]
  assert "<" not in text
  assert utf16(json.loads(text)) == utf16(value)


def test_block_has_no_number_that_json_has_not():
  with pytest.raises(ValueError, match="JSON compliant"):
    html.json_block("key", [math.nan])


@pytest.mark.parametrize(
  ("number", "digits", "shown"),
  [
    (1234567, 4, "1,234,567"),
    (np.int64(7), 4, "7"),
    (0.0, 4, "0"),
    (0.86523, 4, "0.8652"),
    (86.523, 2, "86.52"),
    (-0.001, 4, "-0.0010"),
    (0.00012345, 4, "0.000123"),
    (12345678.0, 4, "1.23e+07"),
    (math.inf, 4, "∞"),
    (-math.inf, 4, "−∞"),
    (math.nan, 4, "NaN"),
  ],
)
def test_numbers_as_a_reader_wants_them(number, digits, shown):
  assert html.short(number, digits) == shown
  page = Page(html.data(number, digits))
  assert page.text == [shown]
  np.testing.assert_equal(page.numbers(), [float(number)])


def test_tables_and_cards_escape_names():
  row = [html.row_head("<i>one</i>"), html.number_cell(0.25, 1)]
  page = Page(
    html.table("a <b>", ["x", "#<b>"], [row]) + html.key_figures({"<b>": 3})
  )
  assert page.named("table") == [{"class": "plain"}]
  assert page.tables["a <b>"] == [["x", "<b>"], ["one", "0.2"]]
  assert "b" not in {tag for tag, _ in page.tags}
  assert page.numbers() == [0.25, 3]
