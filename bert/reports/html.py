"""Parts of HTML pages. A page is one file that loads nothing else."""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert.data import files


def document(
  title: str, header: str, body: str, style: str = "", script: str = ""
) -> str:
  """A page for light and dark, wide and narrow screens, and print.

  `title` is text, `header` and `body` are HTML. The CSS `style` is added to
  that of all pages; the JavaScript `script` runs at the end.
  """
  # Whatever the texts contain, the page loads nothing and runs only its script.
  policy = "default-src 'none'; style-src 'unsafe-inline'"
  if script:
    digest = hashlib.sha256(script.encode()).digest()
    policy += f"; script-src 'sha256-{base64.b64encode(digest).decode()}'"
    body += f"<script>{script}</script>\n"
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    f"<title>{escape(title)}</title>\n<style>{_CSS}{style}</style>\n</head>\n"
    f'<body>\n<header>\n<h1 dir="auto">{escape(title)}</h1>\n'
    f"{header}</header>\n{body}</body>\n</html>\n"
  )


def write(path: str, page: str) -> None:
  """Writes a page; the file appears whole or not at all."""
  # A text from JSON may contain half of a surrogate pair; UTF-8 cannot.
  files.write_file(path, page.encode("utf-8", "replace"))


def escape(text: object) -> str:
  """A text as HTML, within elements and attributes."""
  return html.escape(str(text))


def json_block(key: str, value: object) -> str:
  """An element with the id `key` and JSON, whose numbers must be finite."""
  text = json.dumps(
    value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
  )
  # No text ends the element, and half of a surrogate pair is preserved.
  text = re.sub("[<\ud800-\udfff]", lambda c: f"\\u{ord(c[0]):04x}", text)
  return f'<script type="application/json" id="{escape(key)}">{text}</script>\n'


def short(number: float, digits: int = 4) -> str:
  """A number as text, a float with `digits` decimals."""
  if isinstance(number, int | np.integer):
    return f"{number:,}"
  if not math.isfinite(number):
    return {math.inf: "∞", -math.inf: "−∞"}.get(number, "NaN")
  if number == 0:
    return "0"
  if max(0.001, 10**-digits) <= abs(number) < 1e6:
    return f"{number:.{digits}f}"
  return f"{number:.3g}"


def decimals(number: float, rows: int) -> int:
  """How many decimals of a metric the number of evaluated rows supports."""
  return (3 if rows > 100 else 2) - (0 if abs(number) < 10 else 2)


def data(number: float, digits: int = 4, rows: int | None = None) -> str:
  """A short number for the reader, with all digits for programs.

  With `rows`, it is a metric of so many rows, and their `decimals` count.
  """
  digits = digits if rows is None else decimals(number, rows)
  whole = isinstance(number, int | np.integer)
  exact = int(number) if whole else float(number)
  return f'<data value="{exact!r}">{short(exact, digits)}</data>'


def key_figures(figures: Mapping[str, float], rows: int = 0) -> str:
  """A row of cards, each with a name, as text, and a metric of `rows` rows."""
  cards = "".join(
    f"<div><dt>{escape(name)}</dt><dd>{data(number, rows=rows)}</dd></div>"
    for name, number in figures.items()
  )
  return f'<dl class="figures">{cards}</dl>\n'


def number_cell(
  number: float | None, digits: int = 4, rows: int | None = None
) -> str:
  """A table cell with a number as in `data`; None is not known."""
  shown = "–" if number is None else data(number, digits, rows)
  return f'<td class="number">{shown}</td>'


def number_row(name: str, numbers: Iterable[float], rows: int) -> list[str]:
  """The cells of a table row with a name and metrics of so many rows."""
  cells = (number_cell(number, rows=rows) for number in numbers)
  return [row_head(escape(name)), *cells]


def row_head(content: str) -> str:
  """The first cell of a table row; `content` is HTML."""
  return f'<th scope="row" dir="auto">{content}</th>'


def table(
  name: str,
  columns: Sequence[str],
  rows: Iterable[Iterable[str]],
  kind: str = "plain",
) -> str:
  """A table that scrolls horizontally.

  `name` is for screen readers. `columns` are headings, as text; a leading `#`
  marks numbers. `rows` have cells of HTML. `kind` is the class for CSS.
  """
  head = ""
  for column in columns:
    number = ' class="number"' if column.startswith("#") else ""
    text = escape(column.removeprefix("#"))
    head += f'<th scope="col" dir="auto"{number}>{text}</th>'
  body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
  return (
    f'<div class="scroll" tabindex="0" role="region" '
    f'aria-label="{escape(name)}"><table class="{kind}">'
    f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
  )


_CSS = """
:root {
  color-scheme: light dark;
  --ink: #1c2126; --faint: #59636e; --paper: #fff; --card: #f5f7f9;
  --line: #d8dee4; --blue: #0072b2; --orange: #d55e00;
  --hit: 0 114 178; --miss: 213 94 0;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ink: #e3e7eb; --faint: #9aa5b1; --paper: #14181c; --card: #1c2126;
    --line: #333b44; --blue: #56b4e9; --orange: #f0913a;
    --hit: 86 180 233; --miss: 240 145 58;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 66rem; padding: 2rem 1.25rem 5rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
    "Helvetica Neue", "Noto Sans", sans-serif;
}
h1 { font-size: clamp(1.6rem, 5vw, 2.3rem); line-height: 1.2;
  margin: 0 0 1.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.5rem; margin: 3.5rem 0 1rem; padding-top: .6rem;
  border-top: 2px solid var(--line); overflow-wrap: anywhere; }
h3 { font-size: 1.15rem; margin: 2.25rem 0 .6rem; overflow-wrap: anywhere; }
h4 { font-size: .95rem; margin: 0 0 .4rem; }
p { margin: .5rem 0; max-width: 44rem; }
a { color: var(--blue); }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
th code { overflow-wrap: normal; }
details { margin-top: .5rem; }
summary { cursor: pointer; }
.figures { display: grid; gap: .75rem; margin: 0;
  grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.figures div { display: flex; flex-direction: column-reverse;
  justify-content: flex-end; padding: .8rem 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .6rem; }
.figures dt { color: var(--faint); font-size: .85rem; }
.figures dd { margin: 0; font-size: 1.75rem; font-weight: 650;
  line-height: 1.25; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: .75rem 0; border: 1px solid var(--line);
  border-radius: .6rem; width: fit-content; max-width: 100%; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .42rem .8rem; text-align: start; vertical-align: top; }
thead th { background: var(--card); color: var(--faint); font-weight: 600;
  font-size: .85rem; vertical-align: bottom; }
tbody tr { border-top: 1px solid var(--line); break-inside: avoid; }
tbody th { font-weight: 500; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
@media (max-width: 40rem) { th, td { padding: .42rem .5rem; } }
@media print {
  h2, h3 { break-after: avoid; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
