"""The attention page: what it holds is what it was given, and nothing else."""

import base64
import html
import json
import re
import shutil
import subprocess
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_page import Page

from bert.reports import attention


def _probs(layers, heads, size, seed=0):
  rng = np.random.default_rng(seed)
  shape = [layers, heads, size]
  return rng.dirichlet(np.full(size, 0.3), shape).astype(np.float32)


def _write(path, texts, tokens, segment_ids, probs):
  attention.write_page(str(path), texts, tokens, segment_ids, probs)
  return Page(path.read_text("utf-8"))


def _weights(shown):
  """The attention probabilities [L, N, S, S] that a page holds."""
  packed = zlib.decompress(base64.b64decode(shown["weights"]))
  size = len(shown["tokens"])
  numbers = np.frombuffer(packed, "<u2").astype(np.float64) / shown["steps"]
  return numbers.reshape([shown["layers"], shown["heads"], size, size])


def test_weights_come_back_as_they_were(tmp_path):
  probs = _probs(2, 3, 4)
  tokens = ["[CLS]", "cat", "[SEP]", "[SEP]"]
  page = _write(tmp_path / "a.html", ["cat", "?"], tokens, [0, 0, 0, 1], probs)
  shown = json.loads(page.texts["attention"])
  assert shown["tokens"] == tokens
  assert shown["segments"] == [0, 0, 0, 1]
  # Half of a 65,535th, and float32's own rounding.
  np.testing.assert_allclose(
    _weights(shown), probs, rtol=0, atol=0.5 / 65535 + 1e-6
  )


def _as_drawn(path):
  """The page after its script has run in a browser."""
  browser = shutil.which("chromium") or shutil.which("google-chrome")
  if not browser:
    pytest.skip("no browser is installed")
  return subprocess.run(
    [
      browser,
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-background-networking",
      f"--user-data-dir={path.parent / 'browser'}",
      "--virtual-time-budget=5000",
      "--dump-dom",
      path.as_uri(),
    ],
    capture_output=True,
    check=True,
    text=True,
    timeout=120,
  ).stdout


def test_the_script_draws_the_strongest_weights(tmp_path):
  # Every token gives the first half of its weight, and the others 1/38 each.
  probs = np.full([1, 1, 20, 20], 0.5 / 19)
  probs[..., 0] = 0.5
  path = tmp_path / "a.html"
  _write(path, ["word"], ["word"] * 20, [0] * 20, probs)
  drawn = _as_drawn(path)
  assert re.search('<h2 id="head">Layer 0, head 0</h2>', drawn)
  assert drawn.count("</line>") == 150 < 20 * 20
  # A line is 9 wide at a weight of 1, and of equal ones the first are drawn.
  widths = re.findall(r'<line [^>]*stroke-width="([\d.]+)">', drawn)
  assert widths.count("4.500") == 20
  assert widths.count("0.237") == 130
  means = re.findall('class="value">([^<]+)<', drawn)
  assert means == ["0.5000"] + ["0.0263"] * 19


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
  assert json.loads(page.texts["attention"])["tokens"] == tokens
  said = re.findall(r'class="said" .*?>(.*?)</p>', path.read_text(), re.S)
  assert list(map(html.unescape, said)) == texts
  # The data, and the page's own script.
  assert len(page.named("script")) == 2


def test_the_page_needs_nothing_beside_it(tmp_path):
  path = tmp_path / "a.html"
  page = _write(path, ["a"], ["a"], [0], np.ones([1, 1, 1, 1]))
  content = path.read_text("utf-8")
  attributes = [attributes for _, attributes in page.tags]
  assert not any({"src", "href"} & found.keys() for found in attributes)
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
