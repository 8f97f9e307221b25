"""Maps of vectors: a projection to the plane, as a chart and for TensorBoard.

    points, axes = project(vectors, "pca")
    write_chart("map.png", points, axes, texts, labels)
    write_projector("projector", vectors, texts, labels)

`tensorboard --logdir=projector` then shows the vectors under "Projector".
matplotlib and scikit-learn are imported only for use.
"""

import io
import os
import unicodedata
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from errors import UserError, plural
from pipeline import files

METHODS = ("pca", "tsne")

# What a map's folder holds: the chart, and what TensorBoard's projector reads.
CHART = "embeddings.png"
_VECTORS, _METADATA = "tensors.tsv", "metadata.tsv"
_CONFIG = "projector_config.pbtxt"
FILES = (CHART, _VECTORS, _METADATA, _CONFIG)

# Up to so many points are all named; of more, whose texts would only hide each
# other, some are, shorter.
_MAX_NAMED_POINTS = 40
_NAMES_OF_MANY = 20
_MAX_NAME = 40  # Characters of a text in a chart,
_MAX_NAME_OF_MANY = 28  # and of one of many points.
_MAX_LEGEND = 24
_MAX_TITLE = 80

# Where a name may stand: its side, and how far to the right and up, in points.
_BESIDE = [("left", 7, 0), ("right", -7, 0)]
_ABOVE_AND_BELOW = [
  *((side, x, y) for side, x, _ in _BESIDE for y in (9, -9, 18, -18)),
  *(("center", 0, y) for y in (11, -11, 20, -20)),
]

# Okabe & Ito's colours, which colour-blind people can tell apart; the marks
# tell apart labels beyond them.
_COLORS = (
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d",
)  # fmt: skip
_MARKS = "os^Dv"
_STYLE = {
  "axes.edgecolor": "#8a949e",
  "axes.grid": True,
  "axes.axisbelow": True,
  "axes.labelcolor": "#59636e",
  "axes.spines.right": False,
  "axes.spines.top": False,
  "font.size": 9,
  "grid.alpha": 0.6,
  "grid.color": "#e3e7eb",
  "legend.frameon": False,
  "text.color": "#1c2126",
  "text.parse_math": False,
  "xtick.color": "#8a949e",
  "ytick.color": "#8a949e",
}


def project(
  vectors: np.ndarray, method: str = "pca", seed: int = 1
) -> tuple[np.ndarray, tuple[str, str]]:
  """A point in the plane for each vector.

  Args:
    vectors: float [rows, H], 3 rows or more.
    method: "pca", the plane of the greatest variance, or "tsne" (van der
      Maaten & Hinton 2008), which keeps near what is near, and whose perplexity
      is 30, or a third of the other points where these are fewer than 90.
    seed: of t-SNE; equal seeds give equal points.

  Returns:
    float64 [rows, 2], and what the axes are.

  Raises:
    ValueError: there are fewer rows, all of them are equal, or one is not
      finite; or there is no such method.
  """
  from sklearn import decomposition, manifold

  if method not in METHODS:
    raise UserError(f"--method={method} is not one of {', '.join(METHODS)}")
  if len(vectors) < 3:
    raise UserError(
      f"{plural(len(vectors), 'sentence')} cannot be mapped; pass 3 or more"
    )
  vectors = np.asarray(vectors, np.float64)
  if not np.isfinite(vectors).all():
    raise UserError("a vector is not finite; pass a sound checkpoint")
  # Equal texts in batches of other lengths differ in their last digits.
  if np.ptp(vectors, axis=0).max() <= 1e-5 * np.abs(vectors).max():
    raise UserError("all vectors are equal; pass sentences that differ")
  if method == "pca":
    pca = decomposition.PCA(2, svd_solver="full")
    points = pca.fit_transform(vectors)
    shares = pca.explained_variance_ratio_
    return points, tuple(
      f"component {i} ({share:.0%} of the variance)"
      for i, share in enumerate(shares, 1)
    )
  perplexity = min(30.0, (len(vectors) - 1) / 3)
  tsne = manifold.TSNE(
    2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1
  )
  points = tsne.fit_transform(vectors.astype(np.float32)).astype(np.float64)
  return points, (f"t-SNE, perplexity {perplexity:.3g}", "")


def write_chart(
  path: str,
  points: np.ndarray,
  axes: tuple[str, str],
  texts: Sequence[str],
  labels: Sequence[str] | None = None,
  title: str = "",
) -> None:
  """Writes a PNG of the points, with how their texts begin.

  Of more than 40 points, up to 20 are named, which lie far apart. A text that
  the font lacks, or that is written from the right, stands as its number,
  counted from 1.

  Args:
    path: the file to write.
    points, axes: as `project` returns them.
    texts: one for each point.
    labels: one for each point, which gives it its colour; or None.
    title: of the chart; none if the font lacks it.
  """
  import matplotlib
  from matplotlib.figure import Figure

  buffer = io.BytesIO()
  # Whatever a matplotlibrc says, equal points are equal bytes.
  with matplotlib.rc_context():
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)
    figure = Figure(figsize=(9, 6.5), dpi=150, layout="constrained")
    plane = figure.add_subplot()
    name = _drawable(title, "", _MAX_TITLE)
    plane.set_title(name, loc="left", fontsize=11)
    _draw(plane, points, axes, texts, labels)
    figure.savefig(buffer, format="png", metadata={"Software": None})
  files.write_file(path, buffer.getvalue())


def _draw(plane, points, axes, texts, labels):
  plane.set(xlabel=axes[0], ylabel=axes[1])
  if not axes[1]:  # Distances on it mean nothing by themselves.
    plane.tick_params(labelbottom=False, labelleft=False, length=0)
  plane.margins(0.08)
  mark_size = 7 if len(points) <= 200 else 4.5
  groups = labels or [""] * len(points)
  places = {}
  for place, label in enumerate(groups):
    places.setdefault(label, []).append(place)
  drawn = []
  for number, members in enumerate(places.values()):
    drawn += plane.plot(
      *points[members].T,
      alpha=0.85,
      color=_COLORS[number % len(_COLORS)],
      linestyle="none",
      marker=_MARKS[number // len(_COLORS) % len(_MARKS)],
      markeredgecolor="white",
      markeredgewidth=0.6,
      markersize=mark_size,
    )
  if labels and len(places) <= _MAX_LEGEND:
    legend = plane.legend(
      drawn,
      list(map(str, range(len(drawn)))),
      loc="upper left",
      bbox_to_anchor=(1, 1),
    )
    # As an argument, a name that begins with an underscore would be left out.
    for text, (label, members) in zip(
      legend.get_texts(), places.items(), strict=True
    ):
      name = _drawable(label, f"label of sentence {members[0] + 1}")
      text.set_text(name or "(none)")
  _name_points(plane, points, texts, mark_size)


def _name_points(plane, points, texts, mark_size):
  """Writes texts beside their points, where they hide least."""
  from matplotlib import patheffects

  plane.figure.draw_without_rendering()  # Settles where the axes lie.
  pixels = plane.transData.transform(points)
  half = (mark_size / 2 + 1.5) * plane.figure.dpi / 72
  marks = np.hstack([pixels - half, pixels + half])
  are_many = len(points) > _MAX_NAMED_POINTS
  places, longest = range(len(points)), _MAX_NAME
  if are_many:  # More than are named, since some will not find room.
    places = _far_apart(pixels, 3 * _NAMES_OF_MANY)
    longest = _MAX_NAME_OF_MANY
  taken = np.zeros([0, 4])
  for place in places:
    name = plane.annotate(
      _drawable(texts[place], f"sentence {place + 1}", longest),
      points[place],
      fontsize=8,
      xytext=(0, 0),
      textcoords="offset points",
      va="center",
      path_effects=[patheffects.withStroke(linewidth=3, foreground="white")],
    )
    name.set_in_layout(False)
    others = np.delete(marks, place, axis=0)
    spots = _BESIDE if are_many else _BESIDE + _ABOVE_AND_BELOW
    box, is_free = _set_aside(name, spots, others, taken)
    if are_many and not is_free:
      name.remove()
      continue
    taken = np.vstack([taken, box])
    if are_many:
      # Among so many, a ring tells which of them is named.
      ring = {"markersize": mark_size + 3, "color": _STYLE["text.color"]}
      plane.plot(*points[place], marker="o", fillstyle="none", **ring)
      if len(taken) == _NAMES_OF_MANY:
        break


def _far_apart(points, most):
  """Places of points, the next always the farthest from those before it."""
  found = []
  distances = np.linalg.norm(points - points.mean(axis=0), axis=1)
  while len(found) < most and distances.max() > 0:
    found.append(int(distances.argmax()))
    from_it = np.linalg.norm(points - points[found[-1]], axis=1)
    distances = np.minimum(distances, from_it) if found[1:] else from_it
  return found


def _set_aside(name, spots, marks, taken):
  """Sets a name where it hides least of the points' marks and other names.

  Args:
    name: an annotation.
    spots: where it may stand: its side, and how far to the right and up.
    marks, taken: boxes [n, 4] of the points and of the names so far.

  Returns:
    Its box, and whether it lies in the chart and on no other name.
  """
  frame = name.axes.get_window_extent().extents
  found = []
  for number, (side, x, y) in enumerate(spots):
    name.set(position=(x, y), ha=side)
    box = name.get_window_extent().extents
    outside = np.prod(box[2:] - box[:2]) - _overlap(box, frame[np.newaxis])
    worst = _overlap(box, taken) + outside
    hidden = _overlap(box, marks) + 3 * worst
    found.append((hidden, number, box, worst < 1))
  _, number, box, is_free = min(found, key=lambda spot: spot[:2])
  side, x, y = spots[number]
  name.set(position=(x, y), ha=side)
  return box, is_free


def _overlap(box, others):
  """The area that a box (left, bottom, right, top) shares with others [n, 4].

  What several of them cover counts as often.
  """
  sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(
    box[:2], others[:, :2]
  )
  return np.prod(np.maximum(sides, 0), axis=1).sum()


def _drawable(text, otherwise, longest=_MAX_NAME):
  """The text, shortened, or `otherwise` if matplotlib cannot draw it."""
  from matplotlib import font_manager

  font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
  known = font.get_charmap()
  text = " ".join(text.split())
  for char in text:
    if ord(char) not in known or unicodedata.bidirectional(char) in ("R", "AL"):
      return otherwise
  return text if len(text) <= longest else text[: longest - 1] + "…"


def write_projector(
  folder: str,
  vectors: np.ndarray,
  texts: Sequence[str],
  labels: Sequence[str] | None = None,
) -> None:
  """Writes what TensorBoard's projector reads into a folder that is there.

  Args:
    folder: where `tensors.tsv`, `metadata.tsv` and `projector_config.pbtxt`
      go; the last, which names the others, comes last, and an old one goes
      first.
    vectors: float [rows, H].
    texts: one for each row.
    labels: one for each row, or None.
  """
  rows = ("\t".join(f"{x:.8g}" for x in row) for row in vectors.tolist())
  columns = [[*map(_one_cell, texts)]]
  head = ""  # TensorBoard takes a heading for a row if there is one column.
  if labels:
    columns.insert(0, [*map(_one_cell, labels)])
    head = "label\ttext\n"
  metadata = ("\t".join(row) for row in zip(*columns, strict=True))
  config = (
    'embeddings {\n  tensor_name: "sentences"\n'
    f'  tensor_path: "{_VECTORS}"\n  metadata_path: "{_METADATA}"\n}}\n'
  )
  # Until all files are there again, nothing names the mixture of old and new.
  config_path = os.path.join(folder, _CONFIG)
  if tf.io.gfile.exists(config_path):
    tf.io.gfile.remove(config_path)
  for name, content in (
    (_VECTORS, "".join(f"{row}\n" for row in rows)),
    (_METADATA, head + "".join(f"{row}\n" for row in metadata)),
    (_CONFIG, config),
  ):
    files.write_file(os.path.join(folder, name), content)


def _one_cell(text):
  """The text without what would end a cell or a row."""
  return " ".join(text.split()) or " "
