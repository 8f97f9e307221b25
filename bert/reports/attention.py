"""A page that shows which token attends to which, in every head of a model."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np

from bert.reports import html

# Weights are written as multiples of 1/65535.
_STEPS = 2**16 - 1


def write_page(
  path: str,
  texts: Sequence[str],
  tokens: Sequence[str],
  segment_ids: Sequence[int],
  probs: np.ndarray,
) -> None:
  """Writes the page.

  Args:
    path: the file to write.
    texts: the text, or the two texts of a pair.
    tokens: S word pieces and special tokens.
    segment_ids: [S], 0 for the first text and 1 for the second.
    probs: float [L, N, S, S] from 0 to 1. The page is exact to 0.00001.
  """
  layers, heads = probs.shape[:2]
  header = "".join(
    f'<p class="said" dir="auto">{html.escape(text)}</p>\n' for text in texts
  )
  figures = {"layers": layers, "heads per layer": heads, "tokens": len(tokens)}
  header += html.key_figures(figures)
  numbers = np.rint(np.minimum(probs, 1) * _STEPS).astype("<u2")
  # A higher level would save a tenth and take five times as long.
  packed = zlib.compress(numbers.tobytes(), 1)
  data = {
    "tokens": list(tokens),
    "segments": list(map(int, segment_ids)),
    "layers": layers,
    "heads": heads,
    "steps": _STEPS,
    "weights": base64.b64encode(packed).decode(),
  }
  body = _BODY + html.json_block("attention", data)
  html.write(path, html.document("Attention", header, body, _STYLE, _SCRIPT))


_BODY = """<p id="state" role="status">This page needs JavaScript.</p>
<main hidden>
<section class="overview" aria-labelledby="overview">
<h2 id="overview">All heads</h2>
<p>There is a map for each head. Its layer is on the left, the lowest first; the
number of the head is above. In a map, a strong color means that the token of
this row attends strongly to the token of this column. Select a map with the
mouse or the Tab key to see its tokens.</p>
<div id="maps" role="group" aria-label="Heads by layer"></div>
</section>
<section aria-labelledby="head">
<h2 id="head"></h2>
<p>Lines show the strongest weights. Bars and numbers show the mean weight that
a token receives. Point at a token, or move to it with the Tab key, to see all
of its weights, with an error of at most 0.00002.</p>
<div class="titles" aria-hidden="true"><span>attends …</span>
<span>… to</span></div>
<div id="tokens"><ol id="from" aria-label="Tokens that attend"></ol>
<div class="between"><svg id="lines" aria-hidden="true"
preserveAspectRatio="none"></svg></div>
<ol id="to" aria-label="Tokens attended to"></ol></div>
</section>
</main>
"""

_STYLE = """
body { max-width: 84rem; }
.said { font-size: 1.15rem; max-width: none; overflow-wrap: anywhere; }
.figures { margin-top: 1.25rem; max-width: 36rem; }
main { display: grid; gap: 0 3rem; align-items: start;
  grid-template-columns: minmax(0, 1fr); }
main[hidden] { display: none; }
main h2 { margin-top: 2.25rem; }
@media (min-width: 60rem) {
  main { grid-template-columns: minmax(0, 10fr) minmax(0, 11fr); }
  .overview { position: sticky; top: 0; }
}
.overview p { color: var(--faint); font-size: .9rem; }
#maps { display: grid; gap: 3px; align-items: center; margin-top: 1rem;
  font-size: .75rem; color: var(--faint); text-align: center; }
#maps button { padding: 0; aspect-ratio: 1; border: 0; overflow: hidden;
  background: var(--card); cursor: pointer; outline: 1px solid var(--line); }
#maps button:hover { outline: 2px solid var(--faint); }
#maps button[aria-pressed=true] { outline: 3px solid var(--orange); }
#maps button:focus-visible { box-shadow: 0 0 0 5px var(--ink); z-index: 1; }
#maps canvas { display: block; width: 100%; height: 100%;
  image-rendering: pixelated; }
.titles, #tokens { display: grid;
  grid-template-columns: minmax(0, 5fr) minmax(2.5rem, 4fr) minmax(0, 5fr); }
.titles { color: var(--faint); font-size: .85rem; margin-bottom: .3rem; }
.titles span { text-align: right; padding: 0 .5rem; }
.titles span + span { grid-column: 3; text-align: left; }
#tokens ol { list-style: none; margin: 0; padding: 0; }
#tokens li { height: 1.7rem; padding: 1px 0; }
#tokens .second { border-top: 2px solid var(--line); }
#tokens button { display: flex; width: 100%; height: 100%; gap: .5rem;
  align-items: center; justify-content: space-between; padding: 0 .5rem;
  border: 0; border-radius: 3px; color: inherit; cursor: default;
  font: inherit; font-size: .95rem; line-height: 1;
  background: linear-gradient(rgb(var(--hit) / .3) 0 0) no-repeat
    0 0 / calc(100% * var(--share, 0)) 100%, var(--card); }
#from button { flex-direction: row-reverse; background-position: 100% 0; }
#tokens button.selected { box-shadow: inset 0 0 0 2px var(--orange); }
#tokens button:focus-visible { outline: 2px solid var(--ink);
  outline-offset: 1px; }
#tokens bdi { overflow: hidden; text-overflow: ellipsis; white-space: pre;
  padding: .2em 0; }
#tokens .value { font-size: .8rem;
  font-variant-numeric: tabular-nums; }
.between { position: relative; }
#lines { position: absolute; width: 100%; height: 100%; }
#lines line { stroke: var(--blue); vector-effect: non-scaling-stroke;
  opacity: .75; }
"""

# The widths of lines and the lengths of bars are proportional to weights.
_SCRIPT = r"""
"use strict";
const $ = (id) => document.getElementById(id);
const { tokens, segments, layers, heads, steps, weights } =
  JSON.parse($("attention").textContent);
const size = tokens.length;
const indices = [...tokens.keys()];
const maxLines = Math.max(150, 2 * size);
let numbers = [];  // [layer, head, from, to], flat; a weight is number / steps.
let maps = [];  // The button of each head.
let buttons = [];  // Of each token: the one that attends, the one attended to.
let shown = 0;  // The head shown, counted layer by layer.
let means = [];  // The mean weight that each token receives in it.
let strongest = [];  // Its strongest weights, as from * size + to.

const weightOf = (from, to) =>
  numbers[(shown * size + from) * size + to] / steps;

async function unpack() {
  const binary = atob(weights);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(
    new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  return new Uint16Array(buffer);
}

function element(name, parent, fields = {}) {
  const made = parent.appendChild(document.createElement(name));
  return Object.assign(made, fields);
}

function makeMaps() {
  const grid = $("maps");
  grid.style.gridTemplateColumns = `2.2em repeat(${heads}, minmax(0, 3.25rem))`;
  element("span", grid);
  for (let head = 0; head < heads; head++) {
    element("span", grid, { textContent: head });
  }
  for (let layer = 0; layer < layers; layer++) {
    element("span", grid, { textContent: layer });
    for (let head = 0; head < heads; head++) {
      const title = `Layer ${layer}, head ${head}`;
      const button = element("button", grid, { title, ariaLabel: title });
      element("canvas", button);
      maps.push(button);
    }
  }
  maps.forEach((button, head) => drawMap(button.firstChild, head));
  for (const kind of ["click", "focusin"]) {
    grid.addEventListener(kind, (event) => {
      const head = maps.indexOf(event.target.closest("button"));
      if (head >= 0) showHead(head);
    });
  }
}

function drawMap(canvas, head) {
  const style = getComputedStyle(document.documentElement);
  const color = style.getPropertyValue("--hit").trim().split(" ").map(Number);
  // A dot for several tokens has the strongest of their weights.
  const room = Math.round(canvas.clientWidth * devicePixelRatio);
  const side = Math.min(size, Math.max(room, 1));
  const dots = new Float32Array(side * side);
  let i = head * size * size;
  for (let from = 0; from < size; from++) {
    const row = Math.floor(from * side / size) * side;
    for (let to = 0; to < size; to++, i++) {
      const dot = row + Math.floor(to * side / size);
      dots[dot] = Math.max(dots[dot], numbers[i]);
    }
  }
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  dots.forEach((number, dot) => {
    image.data.set([...color, 255 * Math.sqrt(number / steps)], 4 * dot);
  });
  context.putImageData(image, 0, 0);
}

function makeTokens() {
  buttons = tokens.flatMap((token, i) => ["from", "to"].map((side) => {
    const item = element("li", $(side));
    if (segments[i] !== (segments[i - 1] ?? 0)) item.className = "second";
    const button = element("button", item);
    element("bdi", button, { textContent: token, title: token });
    element("span", button, { className: "value" });
    return button;
  }));
  for (const kind of ["mouseover", "mouseout", "focusin", "focusout"]) {
    $("tokens").addEventListener(kind, drawHead);
  }
}

function showHead(head) {
  shown = head;
  maps.forEach((map, i) => { map.ariaPressed = i === head; });
  $("head").textContent = maps[head].title;
  means = indices.map((to) =>
    indices.reduce((sum, from) => sum + weightOf(from, to), 0) / size);
  const start = head * size * size;
  strongest = [...Array(size * size).keys()]
    .sort((a, b) => numbers[start + b] - numbers[start + a])
    .slice(0, maxLines);
  drawHead();
}

function drawHead() {
  const button = $("tokens").querySelector("button:hover") ??
    $("tokens").querySelector("button:focus");
  const index = buttons.indexOf(button);
  const token = index >> 1;
  const none = indices.map(() => null);
  let [given, received, pairs] = [none, means, strongest];
  if (button && index % 2) {
    pairs = indices.map((from) => from * size + token);
    [given, received] = [indices.map((from) => weightOf(from, token)), none];
  } else if (button) {
    pairs = indices.map((to) => token * size + to);
    received = indices.map((to) => weightOf(token, to));
  }
  drawLines(pairs);
  buttons.forEach((other, i) => {
    const weight = (i % 2 ? received : given)[i >> 1];
    other.classList.toggle("selected", other === button);
    other.style.setProperty("--share", weight ?? 0);
    other.lastChild.textContent = weight === null ? "" :
      weight.toFixed(button ? 5 : 4);
  });
}

function drawLines(pairs) {
  $("lines").setAttribute("viewBox", `0 0 1 ${size}`);
  $("lines").innerHTML = pairs.map((pair) => {
    const [from, to] = [Math.floor(pair / size), pair % size];
    const width = 9 * weightOf(from, to);
    return width < 0.02 ? "" :
      `<line x1="0" x2="1" y1="${from + 0.5}" y2="${to + 0.5}"` +
      ` stroke-width="${width.toFixed(3)}"/>`;
  }).join("");
}

async function start() {
  $("state").textContent = "Reading the weights …";
  numbers = await unpack();
  $("state").hidden = true;
  document.querySelector("main").hidden = false;
  makeMaps();
  makeTokens();
  showHead(0);
}

start().catch((error) => {
  $("state").textContent = "This browser cannot show the weights; use a " +
    `newer one (2023 or later), or a shorter text. (${error})`;
  $("state").hidden = false;
});
"""
