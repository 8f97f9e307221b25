"""The attention page: what it holds is what it was given, and nothing else."""

import html.parser
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attention_page


class _Page(html.parser.HTMLParser):
  """The scripts of a page by id, its paragraphs, and what it refers to."""

  def __init__(self, path):
    super().__init__()
    self.scripts, self.said, self.references = {}, [], []
    self._open = None
    self.feed(path.read_text("utf-8"))

  def handle_starttag(self, tag, attrs):
    attrs = dict(attrs)
    self.references += [v for k, v in attrs.items() if k in ("src", "href")]
    self._open = None
    if tag == "script":
      self._open = attrs.get("id", "")
      assert self._open not in self.scripts
      self.scripts[self._open] = ""
    elif attrs.get("class") == "said":
      self.said.append("")
      self._open = self.said

  def handle_endtag(self, tag):
    self._open = None

  def handle_data(self, data):
    if self._open is self.said:
      self.said[-1] += data
    elif self._open is not None:
      self.scripts[self._open] += data


def _probs(layers, heads, size, seed=0):
  rng = np.random.default_rng(seed)
  shape = [layers, heads, size]
  return rng.dirichlet(np.full(size, 0.3), shape).astype(np.float32)


def _write(path, texts, tokens, segment_ids, probs):
  attention_page.write_page(str(path), texts, tokens, segment_ids, probs)
  return _Page(path)


def test_weights_come_back_to_four_decimals(tmp_path):
  probs = _probs(2, 3, 4)
  tokens = ["[CLS]", "cat", "[SEP]", "[SEP]"]
  page = _write(tmp_path / "a.html", ["cat", "?"], tokens, [0, 0, 0, 1], probs)
  shown = json.loads(page.scripts["attention"])
  assert shown["tokens"] == tokens
  assert shown["segments"] == [0, 0, 0, 1]
  weights = np.array(shown["weights"]).reshape([2, 3, 4, 4])
  np.testing.assert_allclose(weights / 1e4, probs, rtol=0, atol=0.5001e-4)


@given(
  st.lists(
    st.one_of(
      st.text(max_size=8),
      st.sampled_from(
        ["</script>", "<!--", "##&amp;", '"', "'", "\u2028", "שלום", "👍", "\\"]
      ),
    ),
    min_size=1,
    max_size=6,
  )
)
def test_any_token_comes_back(tmp_path_factory, tokens):
  path = tmp_path_factory.mktemp("page") / "a.html"
  zeros = [0] * len(tokens)
  probs = _probs(1, 1, len(tokens))
  texts = ["".join(tokens).replace("\r", "").replace("\0", "")]
  page = _write(path, texts, tokens, zeros, probs)
  assert json.loads(page.scripts["attention"])["tokens"] == tokens
  assert page.said == texts
  # The data, and the page's own script.
  assert len(page.scripts) == 2


def test_the_page_needs_nothing_beside_it(tmp_path):
  path = tmp_path / "a.html"
  page = _write(path, ["a"], ["a"], [0], np.ones([1, 1, 1, 1]))
  content = path.read_text("utf-8")
  assert not page.references
  assert not re.search(r"https?:|url\(|@import|\bfetch\b", content)
  assert "default-src 'none'" in content
  assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_what_the_script_looks_for_is_there(tmp_path):
  path = tmp_path / "a.html"
  _write(path, ["a"], ["a"], [0], np.ones([1, 1, 1, 1]))
  content = path.read_text("utf-8")
  wanted = re.findall(r'\$\("(\w+)"\)', content)
  assert len(set(wanted)) >= 5
  for key in wanted:
    assert content.count(f'id="{key}"') == 1, key


def test_a_page_of_sixty_tokens_is_a_few_megabytes(tmp_path):
  path = tmp_path / "a.html"
  probs = _probs(12, 12, 60)
  _write(path, ["word " * 58], ["word"] * 60, [0] * 60, probs)
  assert path.stat().st_size < 3e6


@pytest.mark.parametrize(
  ("probs", "message"),
  [
    (np.ones([1, 1, 2, 3]), "do not fit"),
    (np.ones([1, 1, 3, 3]), "2 tokens"),
    (np.full([1, 1, 2, 2], np.nan), "not a number"),
  ],
)
def test_what_makes_no_page(tmp_path, probs, message):
  with pytest.raises(ValueError, match=message):
    _write(tmp_path / "a.html", ["a"], ["a", "b"], [0, 0], probs)
  assert not list(tmp_path.iterdir())
