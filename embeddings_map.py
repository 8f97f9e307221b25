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

import checkpoints
import inputs

METHODS = ("pca", "tsne")

# With more points than that, their texts would only hide each other.
_MAX_NAMED_POINTS = 40
_MAX_LEGEND = 24
_MAX_NAME = 40  # Characters of a text in a chart.

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
    raise ValueError(f"--method={method} is not one of {', '.join(METHODS)}")
  if len(vectors) < 3:
    raise ValueError(
      f"{inputs.counted(len(vectors), 'sentence')} cannot be mapped; pass 3 or "
      f"more"
    )
  vectors = np.asarray(vectors, np.float64)
  if not np.isfinite(vectors).all():
    raise ValueError("a vector is not finite; pass a sound checkpoint")
  # Equal texts in batches of other lengths differ in their last digits.
  if np.ptp(vectors, axis=0).max() <= 1e-5 * np.abs(vectors).max():
    raise ValueError("all vectors are equal; pass sentences that differ")
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
) -> None:
  """Writes a PNG of the points, with their texts where these are few.

  A text that the font lacks, or that is written from the right, stands as its
  number, counted from 1.

  Args:
    path: the file to write.
    points, axes: as `project` returns them.
    texts: one for each point.
    labels: one for each point, which gives it its colour; or None.
  """
  import matplotlib
  from matplotlib.figure import Figure

  buffer = io.BytesIO()
  # Whatever a matplotlibrc says, equal points are equal bytes.
  with matplotlib.rc_context():
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)
    figure = Figure(figsize=(9, 6.5), dpi=150, layout="constrained")
    _draw(figure.add_subplot(), points, axes, texts, labels)
    figure.savefig(buffer, format="png", metadata={"Software": None})
  checkpoints.write_file(path, buffer.getvalue())


def _draw(plane, points, axes, texts, labels):
  plane.set(xlabel=axes[0], ylabel=axes[1])
  if not axes[1]:  # Distances on it mean nothing by themselves.
    plane.tick_params(labelbottom=False, labelleft=False, length=0)
  plane.margins(0.08)
  groups = labels or [""] * len(points)
  places = {}
  for place, label in enumerate(groups):
    places.setdefault(label, []).append(place)
  for number, (label, members) in enumerate(places.items()):
    plane.plot(
      *points[members].T,
      alpha=0.85,
      color=_COLORS[number % len(_COLORS)],
      label=_drawable(label, f"label of sentence {members[0] + 1}"),
      linestyle="none",
      marker=_MARKS[number // len(_COLORS) % len(_MARKS)],
      markeredgecolor="white",
      markeredgewidth=0.6,
      markersize=7 if len(points) <= 200 else 4.5,
    )
  if labels and len(places) <= _MAX_LEGEND:
    plane.legend(loc="upper left", bbox_to_anchor=(1, 1))
  if len(points) <= _MAX_NAMED_POINTS:
    _name_points(plane, points, texts)


def _name_points(plane, points, texts):
  """Writes each text beside its point, where it hides least."""
  figure = plane.figure
  figure.draw_without_rendering()  # Settles where the axes lie.
  to_pixels = plane.transData.transform
  pixel = figure.dpi / 72
  taken = [
    (x - 5 * pixel, y - 5 * pixel, x + 5 * pixel, y + 5 * pixel)
    for x, y in to_pixels(points)
  ]
  frame = plane.get_window_extent().extents
  for place, (point, text) in enumerate(zip(points, texts, strict=True)):
    name = plane.annotate(
      _drawable(text, f"sentence {place + 1}"),
      point,
      fontsize=8,
      xytext=(0, 0),
      textcoords="offset points",
      va="center",
    )
    name.set_in_layout(False)
    spots = []
    for side, x in (("left", 7), ("right", -7), ("center", 0)):
      for y in (0, 9, -9, 18, -18) if x else (11, -11, 20, -20):
        name.set(position=(x, y), ha=side)
        box = name.get_window_extent().extents
        others = (t for i, t in enumerate(taken) if i != place)
        hidden = sum(_overlap(box, other) for other in others)
        outside = np.prod(box[2:] - box[:2]) - _overlap(box, frame)
        spots.append((hidden + 3 * outside, len(spots), x, y, side, box))
    _, _, x, y, side, box = min(spots, key=lambda spot: spot[:2])
    name.set(position=(x, y), ha=side)
    taken.append(box)


def _overlap(box, other):
  """The area that two boxes (left, bottom, right, top) share."""
  width = min(box[2], other[2]) - max(box[0], other[0])
  height = min(box[3], other[3]) - max(box[1], other[1])
  return max(width, 0) * max(height, 0)


def _drawable(text, otherwise):
  """The text, shortened, or `otherwise` if matplotlib cannot draw it."""
  from matplotlib import font_manager

  font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
  known = font.get_charmap()
  text = " ".join(text.split())
  for char in text:
    if ord(char) not in known or unicodedata.bidirectional(char) in ("R", "AL"):
      return otherwise
  return text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"


def write_projector(
  folder: str,
  vectors: np.ndarray,
  texts: Sequence[str],
  labels: Sequence[str] | None = None,
) -> None:
  """Writes what TensorBoard's projector reads into a folder that is there.

  Args:
    folder: where `tensors.tsv`, `metadata.tsv` and `projector_config.pbtxt`
      go; the last, which names the others, comes last.
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
    '  tensor_path: "tensors.tsv"\n  metadata_path: "metadata.tsv"\n}\n'
  )
  for name, content in (
    ("tensors.tsv", "".join(f"{row}\n" for row in rows)),
    ("metadata.tsv", head + "".join(f"{row}\n" for row in metadata)),
    ("projector_config.pbtxt", config),
  ):
    checkpoints.write_file(os.path.join(folder, name), content)


def _one_cell(text):
  """The text without what would end a cell or a row."""
  return " ".join(text.split()) or " "
