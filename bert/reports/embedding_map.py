"""Maps of vectors: a projection to the plane, as a chart.

points, axes = project(vectors, "pca")
write_chart("map.png", points, axes, texts, labels)
"""

import os
import unicodedata
from collections.abc import Sequence

import numpy as np

from bert.data import files
from bert.reports import charts

METHODS = ("pca", "tsne")

# Number all points of a map with at most 40 points, else 30 of them.
_MAX_NUMBERED = 40
_NUMBERED_OF_MANY = 30
_MAX_LEGEND = 24
_MAX_TEXT = 52  # Characters.
# Points nearer to each other, in points of 1/72 inch, share a number.
_NUMBER_SIZE = 10

# The palette of Okabe and Ito, which is safe for color-blind readers. More
# labels than colors differ by their markers.
_COLORS = (
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d",
)  # fmt: skip
_MARKERS = "os^Dv"
_SIZE = (11.4, 6.8)  # Inches.


def project(
  vectors: np.ndarray, method: str = "pca"
) -> tuple[np.ndarray, tuple[str, str]]:
  """Projects vectors, float [rows, H] with at least 3 rows, to the plane.

  The method "pca" keeps the greatest variance, "tsne" (van der Maaten and
  Hinton, 2008) neighborhoods. Returns the points, float [rows, 2], and the
  names of the axes.
  """
  from sklearn import decomposition, manifold

  if method == "pca":
    pca = decomposition.PCA(2, svd_solver="full")
    points = pca.fit_transform(vectors)
    return points, tuple(
      f"component {i} ({share:.0%} of the variance)"
      for i, share in enumerate(pca.explained_variance_ratio_, 1)
    )
  # t-SNE needs at most a third of the number of other points.
  perplexity = min(30.0, (len(vectors) - 1) / 3)
  tsne = manifold.TSNE(
    2, perplexity=perplexity, init="pca", random_state=1, n_jobs=1
  )
  axes = f"t-SNE, perplexity {perplexity:.3g}", ""
  return tsne.fit_transform(vectors), axes


def write_chart(
  path: str,
  points: np.ndarray,
  axes: tuple[str, str],
  texts: Sequence[str],
  labels: Sequence[str] | None = None,
  title: str = "",
) -> None:
  """Writes a PNG, PDF or SVG of the points, with texts of numbered points.

  Points that would cover each other share a number. A text that the font cannot
  show, or that is written from right to left, is listed as "sentence N",
  counted from 1. `points` and `axes` are those of `project`. Each point has a
  text and a label, shown by its color.
  """

  def draw(figure):
    plane = figure.add_axes((0.09, 0.08, 0.53, 0.86))
    plane.set_title(_drawable(title, ""), loc="left", fontsize=11)
    key = _draw_points(plane, points, axes, texts, labels)
    figure.set_figheight(max(_SIZE[1], 0.16 * len(key)))
    _draw_key(figure.add_axes((0.64, 0, 0.35, 1)), key)

  form = os.path.splitext(path)[1][1:].lower() or "png"
  entry = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}[form]
  image = charts.render(
    _SIZE, draw, layout=None, format=form, dpi=150, metadata={entry: None}
  )
  files.write_file(path, image)


def _draw_points(plane, points, axes, texts, labels):
  """Draws the map; returns its key, a list of (marker, number, text)."""
  plane.set(xlabel=axes[0], ylabel=axes[1])
  if not axes[1]:  # The coordinates of t-SNE have no meaning.
    plane.tick_params(labelbottom=False, labelleft=False, length=0)
  plane.margins(0.06)
  groups = {}  # Label -> indices of its points.
  for i in range(len(points)):
    groups.setdefault(labels[i] if labels else "", []).append(i)
  key, markers = [], {}
  for number, (label, members) in enumerate(groups.items()):
    rank, color = divmod(number, len(_COLORS))
    marker = {
      "color": _COLORS[color],
      "linestyle": "none",
      "marker": _MARKERS[rank % len(_MARKERS)],
      "markeredgecolor": "white",
      "markersize": 6 if len(points) <= 500 else 4,
    }
    plane.plot(*points[members].T, **marker, markeredgewidth=0.6, alpha=0.85)
    markers |= dict.fromkeys(members, marker)
    name = _drawable(label, f"label of sentence {members[0] + 1}")
    key.append((marker, "", name or "(none)"))
  key = [*key, ({}, "", "")] if labels and len(key) <= _MAX_LEGEND else []
  plane.autoscale_view()
  for number, members in enumerate(_numbered(plane, points), 1):
    for i in members:
      ring = {"markeredgecolor": markers[i]["color"], "markersize": 11}
      ring = markers[i] | ring | {"markerfacecolor": "white"}
      key.append((ring, number, _drawable(texts[i], f"sentence {i + 1}")))
    _draw_number(plane, *points[members[0]], *key[-len(members)][:2])
  return key


def _numbered(plane, points):
  """The points to number: lists of those that share a number."""
  from sklearn import cluster

  placed = plane.transData.transform(points) * 72 / plane.figure.dpi
  order = range(len(points))
  if len(points) > _MAX_NUMBERED:  # Choose points far from each other.
    _, order = cluster.kmeans_plusplus(
      placed, _NUMBERED_OF_MANY, random_state=1
    )
  groups = []
  for i in dict.fromkeys(order):  # Equal points may be chosen twice.
    for members in groups:
      if np.linalg.norm(placed[i] - placed[members[0]]) < _NUMBER_SIZE:
        members.append(i)
        break
    else:
      groups.append([i])
  return groups


def _draw_key(side, key):
  """Lists the entries of a key from top to bottom."""
  side.set(xlim=(0, 1), ylim=(max(len(key), _MAX_NUMBERED), -1))
  side.axis("off")
  for line, (marker, number, text) in enumerate(key):
    _draw_number(side, 0.03, line, marker, number)
    side.text(0.07, line, text, va="center_baseline")


def _draw_number(axes, x, y, marker, number):
  axes.plot([x], [y], **marker)
  axes.text(x, y, number, size=6.5, ha="center", va="center_baseline")


def _drawable(text, otherwise):
  """The text, shortened, or `otherwise` if matplotlib cannot draw it."""
  from matplotlib import font_manager

  font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
  known = font.get_charmap()
  text = " ".join(text.split())
  for char in text:
    if ord(char) not in known or unicodedata.bidirectional(char) in ("R", "AL"):
      return otherwise
  return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
