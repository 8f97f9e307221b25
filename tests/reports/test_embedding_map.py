"""Maps of vectors: projections against arithmetic, and charts."""

import numpy as np
import pytest
from matplotlib import figure

from bert.data import files
from bert.reports import embedding_map


class TestProject:
  def test_pca_keeps_a_plane(self):
    # Points of a plane keep their distances; 4 and 1 are its variances.
    plane = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]]) * np.sqrt(2)
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=[7, 2]))
    points, axes = embedding_map.project(plane @ turned.T + 3.0)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    expected = np.linalg.norm(plane[:, None] - plane, axis=-1)
    np.testing.assert_allclose(distances, expected, atol=1e-12)
    assert axes == (
      "component 1 (80% of the variance)",
      "component 2 (20% of the variance)",
    )

  def test_tsne_of_three_points(self):
    vectors = np.random.default_rng(0).normal(size=[3, 8])
    points, axes = embedding_map.project(vectors, "tsne")
    again, _ = embedding_map.project(vectors, "tsne")
    assert points.shape == (3, 2)
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(points, again)
    assert axes[0] == "t-SNE, perplexity 0.667"


def _points(count):
  return np.random.default_rng(0).normal(size=[count, 2])


@pytest.fixture
def drawn(monkeypatch):
  """The figures that are drawn, instead of files."""
  figures = []
  monkeypatch.setattr(
    figure.Figure, "savefig", lambda self, *args, **kwargs: figures.append(self)
  )
  monkeypatch.setattr(files, "write_file", lambda path, content: None)
  return figures


def _numbers(chart):
  """Number -> position of its circle, in points."""
  plane = chart.axes[0]
  chart.draw_without_rendering()
  return {
    int(text.get_text()): plane.transData.transform(text.get_position())
    * 72
    / chart.dpi
    for text in plane.texts
  }


def _key(chart):
  """(number or "", text) of each line beside the map."""
  texts = [text.get_text() for text in chart.axes[1].texts]
  return list(zip(texts[::2], texts[1::2], strict=True))


# Chemistry, a formula, from the right, without glyphs, and much too long.
TEXTS = ["H2O", "$x_1", "שלום", "東京", "👍", "a\tb\n", "long " * 50, ""]


class TestChart:
  def test_any_text(self, tmp_path):
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path, labels in zip(paths, (TEXTS, TEXTS, None), strict=True):
      embedding_map.write_chart(
        str(path), _points(len(TEXTS)), ("x", "y"), TEXTS, labels
      )
    png, again, plain = (path.read_bytes() for path in paths)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png == again
    assert png != plain

  def test_the_key_names_every_label(self, drawn):
    labels = ["_neg", "pos", "", "_neg"]
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    embedding_map.write_chart("", points, ("x", "y"), "abcd", labels)
    assert _key(drawn[0]) == [
      ("", "_neg"),
      ("", "pos"),
      ("", "(none)"),
      ("", ""),
      *(("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")),
    ]
    plane, side = (axes.get_lines() for axes in drawn[0].axes)
    colors = [line.get_color() for line in plane[:3]]
    assert len(set(colors)) == 3
    assert [line.get_color() for line in side[:3]] == colors
    rings = [line.get_markeredgecolor() for line in side[4:]]
    assert rings == [*colors, colors[0]]

  @pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
  def test_the_names_of_the_axes_are_in_the_picture(self, drawn, scale):
    points = _points(30) * scale
    embedding_map.write_chart("", points, ("x", "y"), ["text"] * 30)
    (chart,) = drawn
    chart.draw_without_rendering()
    for axis in (chart.axes[0].xaxis, chart.axes[0].yaxis):
      box = axis.label.get_window_extent()
      assert box.x0 > 0
      assert box.y0 > 0

  @pytest.mark.parametrize("count", [5, 40])
  def test_each_of_few_points_is_listed(self, drawn, count):
    texts = [f"text {n}" for n in range(count)]
    embedding_map.write_chart("", _points(count), ("x", "y"), texts)
    key = _key(drawn[0])
    assert sorted(text for _, text in key) == sorted(texts)
    numbers = _numbers(drawn[0])
    assert {int(number) for number, _ in key} == numbers.keys()
    # The circle of a number is the point of its text, or near it.
    points = drawn[0].axes[0].transData.transform(_points(count))
    for number, text in key:
      point = points[texts.index(text)] * 72 / drawn[0].dpi
      assert np.linalg.norm(numbers[int(number)] - point) < 10

  @pytest.mark.parametrize("labels", [None, [f"label {n}" for n in range(500)]])
  def test_some_of_many_points_are_listed(self, drawn, labels):
    texts = [f"text {n}, which goes on" + " and on" * 9 for n in range(500)]
    points = _points(500)
    embedding_map.write_chart("", points, ("x", "y"), texts, labels)
    key = _key(drawn[0])
    assert len(key) == 30
    listed = [int(text.split()[1][:-1]) for _, text in key]
    assert [text for _, text in key] == [texts[n][:51] + "…" for n in listed]
    # No number covers another.
    circles = np.array(list(_numbers(drawn[0]).values()))
    distances = np.linalg.norm(circles[:, None] - circles, axis=-1)
    assert (distances + 99 * np.eye(len(circles)) >= 10).all()
    # They are spread out: no point is far from all of them.
    away = np.linalg.norm(points[:, None] - points[listed], axis=-1).min(axis=1)
    assert away.max() < np.ptp(points, axis=0).max() / 4

  def test_equal_points_share_a_number(self, drawn):
    points = np.repeat(np.eye(3, 2), 4, axis=0)
    texts = [f"text {n}" for n in range(12)]
    embedding_map.write_chart("", points, ("x", "y"), texts)
    assert len(_numbers(drawn[0])) == 3
    expected = [(str(n // 4 + 1), text) for n, text in enumerate(texts)]
    assert _key(drawn[0]) == expected
