"""Charts drawn by matplotlib, which is imported only on use.

They do not depend on the user's matplotlibrc: equal data give equal bytes.
"""

import io
import re
from collections.abc import Callable

from bert.reports import html

# The colors of charts. In an SVG, colors of the page replace them, which differ
# between light and dark screens.
INK, BLUE, ORANGE = "#010203", "#0072b2", "#d55e00"
PAGE_COLORS = {
  INK: "currentColor",
  BLUE: "var(--blue)",
  ORANGE: "var(--orange)",
}
_STYLE = {
  "axes.axisbelow": True,
  "axes.edgecolor": INK,
  "axes.grid": True,
  "axes.labelcolor": INK,
  "axes.spines.right": False,
  "axes.spines.top": False,
  "font.size": 9,
  "grid.alpha": 0.15,
  "grid.color": INK,
  "legend.frameon": False,
  "svg.fonttype": "none",
  "svg.hashsalt": "report",
  "text.color": INK,
  "text.parse_math": False,
  "xtick.color": INK,
  "ytick.color": INK,
}


def render(
  size: tuple[float, float],
  draw: Callable[..., object],
  layout: str | None = "constrained",
  **options,
) -> bytes:
  """The bytes of an image of a size in inches, drawn by `draw`.

  `options` are those of `savefig`.
  """
  import matplotlib
  from matplotlib.figure import Figure

  buffer = io.BytesIO()
  with matplotlib.rc_context():
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)
    figure = Figure(figsize=size, layout=layout)
    draw(figure)
    figure.savefig(buffer, **options)
  return buffer.getvalue()


def figure(
  key: str,
  title: str,
  caption: str,
  size: tuple[float, float],
  draw: Callable[..., object],
) -> str:
  """A chart with title and caption, as an element of a page.

  `key` is the prefix of the ids in the SVG, unique in the page.
  """
  title, caption = html.escape(title), html.escape(caption)
  return (
    f"<figure><h4>{title}</h4>{_svg(key, f'{title}: {caption}', size, draw)}"
    f"<figcaption>{caption}</figcaption></figure>\n"
  )


def diagonal(axes) -> None:
  """Draws the dotted line where x is y."""
  axes.axline((0, 0), slope=1, color=INK, linestyle=":", linewidth=1)


def _svg(key, label, size, draw):
  metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
  image = render(size, draw, format="svg", transparent=True, metadata=metadata)
  image = image.decode()
  image = image[image.index("<svg") :]
  # HTML needs no namespaces, and the page has its own style.
  for useless in (r"<!--.*?-->\s*", r"<style.*?</style>", r' xmlns\S*=".*?"'):
    image = re.sub(useless, "", image, flags=re.DOTALL)
  image = image.replace("xlink:href", "href")
  image = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{key}-", image)
  for drawn, shown in PAGE_COLORS.items():
    image = image.replace(drawn, shown)
  return image.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


CSS = """
.grid { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; padding: .9rem 1rem; max-width: 38rem; min-width: 0;
  background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; break-inside: avoid; }
figcaption { color: var(--faint); font-size: .85rem; margin-top: .4rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: inherit !important; }
"""
