"""A page that shows which token attends to which, in every head of a model.

It is one file, which needs nothing beside it: an overview of all heads, layer
by layer, and below or beside it the head that is chosen there.
"""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from errors import UserError
from reports import html

# Up to so many weights a page holds each as it is; of more, which would make it
# too large, it holds whole numbers of 65,535ths; above the last, no browser is
# sure to read it.
_MOST_EXACT = 2**20
_PARTS = 2**16 - 1
_MOST = 2**27

# Bytes of a page from which on a browser takes seconds to show it.
_LARGE = 20_000_000


def check_size(layers: int, heads: int, tokens: int) -> None:
  """Raises ValueError if a page would hold more than a browser can take."""
  number = layers * heads * tokens**2
  if number > _MOST:
    most = int((_MOST / (layers * heads)) ** 0.5)
    raise UserError(
      f"{tokens} tokens in {layers} layers of {heads} heads have {number:,} "
      f"weights, more than a browser can show; shorten the text to {most} "
      f"tokens"
    )


def write_page(
  path: str,
  texts: Sequence[str],
  tokens: Sequence[str],
  segment_ids: Sequence[int],
  probs: np.ndarray,
) -> None:
  """Writes the page; the file appears whole or not at all.

  Logs a warning if it is large.

  Args:
    path: the file to write.
    texts: what was read: a text, or two.
    tokens: S word pieces and special tokens.
    segment_ids: [S], 0 for the first text and 1 for the second.
    probs: float [L, N, S, S], see `BertModel.get_all_attention_probs`. With
      more than a million of them, each is rounded to within 0.00001.

  Raises:
    ValueError: the shapes do not agree, a number is no probability, or there
      are too many, see `check_size`.
  """
  layers, heads, *square = probs.shape
  if square != [len(tokens)] * 2 or len(segment_ids) != len(tokens):
    raise UserError(
      f"{len(tokens)} tokens and {len(segment_ids)} segment ids do not fit "
      f"attention probabilities of shape {probs.shape}"
    )
  check_size(layers, heads, len(tokens))
  if not ((probs >= 0) & (probs < 1.001)).all():  # Nor is NaN.
    raise UserError(
      "an attention probability is not a number from 0 to 1; pass a sound "
      "checkpoint"
    )
  shown = {
    "tokens": list(tokens),
    "segments": list(map(int, segment_ids)),
    "layers": layers,
    "heads": heads,
    **_packed(probs),
  }
  quoted = "".join(
    f'<p class="said" dir="auto">{html.escape(text)}</p>\n' for text in texts
  )
  figures = [("layers", layers), ("heads a layer", heads)]
  figures.append(("tokens", len(tokens)))
  header = quoted + html.key_figures(
    (name, html.data(number)) for name, number in figures
  )
  body = _BODY + html.json_block("attention", shown)
  page = html.document("Attention", header, body, _STYLE, _SCRIPT)
  html.write(path, page)
  if len(page) > _LARGE:
    logging.warning(
      "%s has %d MB, which take a browser seconds; a shorter text makes a "
      "smaller page",
      path,
      len(page) / 1e6,
    )


def _packed(probs):
  """What the page's script unpacks: deflated, then base64."""
  if probs.size <= _MOST_EXACT:
    parts, numbers = 1, probs.astype("<f4")
  else:
    parts, numbers = _PARTS, np.rint(np.minimum(probs, 1) * _PARTS)
    numbers = numbers.astype("<u2")
  # A higher level would gain a tenth, and take five times as long.
  packed = zlib.compress(numbers.tobytes(), 1)
  return {"parts": parts, "weights": base64.b64encode(packed).decode()}


_BODY = """<noscript><p>The charts of this page are drawn by a script, which is
part of it; allow it to run.</p></noscript>
<p id="state" role="status" hidden>Reading the weights …</p>
<main hidden>
<section class="overview" aria-labelledby="overview">
<h2 id="overview">All heads</h2>
<p>A row for each layer, the lowest first; a column for each head; both counted
from 0. In each map the tokens of the rows attend to those of the columns; the
colour is as strong as the square root of the weight (where there is no room
for a dot each, of the strongest). Choose a head with the mouse, or with Tab and
the arrow keys.</p>
<div id="maps" role="group" aria-label="Heads by layer"></div>
</section>
<section aria-labelledby="head">
<h2 id="head"></h2>
<p id="said" aria-live="polite"></p>
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
  font-size: .75rem; color: var(--faint); text-align: center;
  font-variant-numeric: tabular-nums; }
#maps button { appearance: none; padding: 0; margin: 0; aspect-ratio: 1;
  border: 0; border-radius: 2px; background: var(--card); cursor: pointer;
  overflow: hidden; outline: 1px solid var(--line); }
#maps button:hover { outline: 2px solid var(--faint); }
#maps button[aria-pressed=true] { outline: 3px solid var(--orange); }
#maps button:focus-visible { box-shadow: 0 0 0 5px var(--ink); z-index: 1; }
#maps canvas { display: block; width: 100%; height: 100%;
  image-rendering: pixelated; }
#said { min-height: 3.2em; }
#said bdi { padding: .1em .4em; border-radius: 3px; white-space: pre-wrap;
  background: var(--card); border: 1px solid var(--line); }
#said data { font-variant-numeric: tabular-nums; font-weight: 600; }
.titles, #tokens { display: grid;
  grid-template-columns: minmax(0, 5fr) minmax(3rem, 4fr) minmax(0, 5fr); }
.titles { color: var(--faint); font-size: .85rem; margin-bottom: .3rem; }
.titles span { text-align: right; padding: 0 .5rem; }
.titles span + span { grid-column: 3; text-align: left; }
#tokens ol { list-style: none; margin: 0; padding: 0; }
#tokens li { height: 1.7rem; padding: 1px 0; }
#tokens .second { border-top: 2px solid var(--line); }
#tokens button { appearance: none; display: flex; width: 100%; height: 100%;
  align-items: center; justify-content: space-between; gap: .5rem;
  padding: 0 .5rem; border: 0; border-radius: 3px; color: inherit;
  font: inherit; font-size: .95rem; line-height: 1; cursor: default;
  background: linear-gradient(rgb(var(--hit) / .3) 0 0) no-repeat
    0 0 / calc(100% * var(--share, 0)) 100%, var(--card); }
#from button { flex-direction: row-reverse; background-position: 100% 0; }
#tokens button.chosen { box-shadow: inset 0 0 0 2px var(--orange); }
#tokens button:focus-visible { outline: 2px solid var(--ink);
  outline-offset: 1px; }
#tokens bdi { overflow: hidden; text-overflow: ellipsis; white-space: pre;
  padding: .2em 0; }
#tokens .value { color: var(--faint); font-size: .8rem;
  font-variant-numeric: tabular-nums; }
.between { position: relative; }
#lines { position: absolute; width: 100%; height: 100%; }
#lines line { stroke: var(--blue); vector-effect: non-scaling-stroke;
  stroke-linecap: butt; opacity: .75; }
@media (max-width: 36rem) {
  .titles, #tokens { grid-template-columns:
    minmax(0, 1fr) 2.5rem minmax(0, 1fr); }
  #tokens button { font-size: .85rem; gap: .25rem; padding: 0 .3rem; }
  #tokens .value { font-size: .7rem; }
  #maps { gap: 2px; font-size: .65rem; }
}
"""

# A line is as wide, and a bar as long, as its weight; lines too thin to be seen
# are left out.
_SCRIPT = r"""
"use strict";
const $ = (id) => document.getElementById(id);
const page = JSON.parse($("attention").textContent);
const { tokens, segments, layers, heads } = page;
const size = tokens.length;
const thickest = 9;
const mostLines = Math.max(150, 2 * size);
let numbers = [];  // Of layer, head, token that attends, token attended to.
let maps = [];
let tokenButtons = [];
let shown = [0, 0];
let means = [];  // What each token is given on average in the head shown.
let least = 0;  // The weight of the thinnest line that is drawn at first,
let equals = 0;  // and how many lines of that weight are.
let hovered = null;
let focused = null;

async function unpack(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(
    new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  return page.parts === 1 ? new Float32Array(buffer) : new Uint16Array(buffer);
}

function element(name, parent, fields = {}) {
  const made = parent.appendChild(document.createElement(name));
  return Object.assign(made, fields);
}

function exact(weight) {
  return page.parts === 1 ? weight.toPrecision(6) : weight.toFixed(5);
}

function startOf(layer, head) {
  return (layer * heads + head) * size * size;
}

function weightOf(from, to) {
  return numbers[startOf(...shown) + from * size + to] / page.parts;
}

function focusByArrows(buttons, steps) {
  buttons.forEach((button, place) => {
    button.tabIndex = place ? -1 : 0;
    button.addEventListener("focus", () => {
      for (const other of buttons) other.tabIndex = -1;
      button.tabIndex = 0;
    });
    button.addEventListener("keydown", (event) => {
      const next = buttons[place + (steps[event.key] ?? NaN)];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
  });
}

function drawMap(canvas, start) {
  const style = getComputedStyle(document.documentElement);
  const color = style.getPropertyValue("--hit").trim().split(" ").map(Number);
  // A canvas with more dots than the screen has would lose some of them.
  const room = Math.round(canvas.clientWidth * devicePixelRatio);
  const side = Math.min(size, Math.max(room, 1));
  const strongest = new Float32Array(side * side);
  for (let from = 0, place = start; from < size; from++) {
    const row = Math.floor(from * side / size) * side;
    for (let to = 0; to < size; to++, place++) {
      const dot = row + Math.floor(to * side / size);
      if (numbers[place] > strongest[dot]) strongest[dot] = numbers[place];
    }
  }
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  strongest.forEach((number, dot) => {
    image.data.set([...color, 255 * Math.sqrt(number / page.parts)], 4 * dot);
  });
  context.putImageData(image, 0, 0);
}

function makeMaps() {
  const grid = $("maps");
  grid.style.gridTemplateColumns =
    `2.2em repeat(${heads}, minmax(0, 3.25rem))`;
  element("span", grid);
  for (let head = 0; head < heads; head++) {
    element("span", grid, { textContent: head });
  }
  const buttons = [];
  const canvases = [];
  for (let layer = 0; layer < layers; layer++) {
    element("span", grid, { textContent: layer });
    for (let head = 0; head < heads; head++) {
      const name = `Layer ${layer}, head ${head}`;
      const button = element("button", grid, { type: "button", title: name });
      button.setAttribute("aria-label", name);
      canvases.push([element("canvas", button), startOf(layer, head)]);
      for (const kind of ["click", "focus"]) {
        button.addEventListener(kind, () => chooseHead(layer, head));
      }
      buttons.push(button);
    }
  }
  focusByArrows(buttons, {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -heads, ArrowDown: heads,
  });
  const drawAll = () => canvases.forEach((both) => drawMap(...both));
  matchMedia("(prefers-color-scheme: dark)").addEventListener(
    "change", drawAll);
  drawAll();
  return buttons;
}

function makeTokens() {
  const buttons = tokens.flatMap((token, place) =>
    ["from", "to"].map((side) => {
      const item = element("li", $(side));
      if (segments[place] !== (segments[place - 1] ?? 0)) {
        item.className = "second";
      }
      const button = element("button", item, { type: "button" });
      element("bdi", button, { textContent: token, title: token });
      element("span", button, { className: "value" });
      const chosen = { side, place };
      button.addEventListener("mouseenter", () => choose(chosen, focused));
      button.addEventListener("mouseleave", () => choose(null, focused));
      button.addEventListener("focus", () => choose(hovered, chosen));
      button.addEventListener("blur", () => choose(hovered, null));
      return button;
    }));
  focusByArrows(buttons, {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -2, ArrowDown: 2,
  });
  return buttons;
}

function choose(nowHovered, nowFocused) {
  hovered = nowHovered;
  focused = nowFocused;
  drawHead();
}

function chooseHead(layer, head) {
  shown = [layer, head];
  maps.forEach((button, place) => {
    button.setAttribute("aria-pressed", place === layer * heads + head);
  });
  $("head").textContent = `Layer ${layer}, head ${head}`;
  history.replaceState(null, "", `#${layer}.${head}`);
  const places = [...tokens.keys()];
  means = places.map((to) =>
    places.reduce((sum, from) => sum + weightOf(from, to), 0) / size);
  const start = startOf(layer, head);
  const sorted = numbers.slice(start, start + size * size).sort();
  const strongest = sorted.slice(-mostLines);
  least = strongest[0] / page.parts;
  equals = strongest.lastIndexOf(strongest[0]) + 1;
  drawHead();
}

function drawHead() {
  const chosen = hovered ?? focused;
  drawLines(chosen);
  const places = [...tokens.keys()];
  let received = means;
  let given = places.map(() => null);
  if (chosen?.side === "from") {
    received = places.map((to) => weightOf(chosen.place, to));
  } else if (chosen) {
    given = places.map((from) => weightOf(from, chosen.place));
    received = places.map(() => null);
  }
  const written = chosen ? exact : (mean) => mean.toFixed(4);
  places.forEach((place) => {
    drawBar(tokenButtons[2 * place], given[place], written);
    drawBar(tokenButtons[2 * place + 1], received[place], written);
  });
  tokenButtons.forEach((button, index) => {
    const isChosen = chosen && index ===
      2 * chosen.place + (chosen.side === "to");
    button.classList.toggle("chosen", Boolean(isChosen));
  });
  describe(chosen, chosen?.side === "to" ? given : received);
}

function drawBar(button, weight, written) {
  button.style.setProperty("--share", weight ?? 0);
  button.lastChild.textContent = weight === null ? "" : written(weight);
}

function drawLines(chosen) {
  const drawn = [];
  let left = equals;
  for (let from = 0; from < size; from++) {
    if (chosen?.side === "from" && chosen.place !== from) continue;
    for (let to = 0; to < size; to++) {
      if (chosen?.side === "to" && chosen.place !== to) continue;
      const weight = weightOf(from, to);
      if (!chosen && weight < least) continue;
      if (!chosen && weight === least && left-- <= 0) continue;
      const width = weight * thickest;
      if (width < 0.02) continue;
      drawn.push(`<line x1="0" x2="1" y1="${from + 0.5}" y2="${to + 0.5}"` +
        ` stroke-width="${width.toFixed(3)}"/>`);
    }
  }
  $("lines").setAttribute("viewBox", `0 0 1 ${size}`);
  $("lines").innerHTML = drawn.join("");
}

function describe(chosen, weights) {
  const said = $("said");
  said.textContent = "";
  if (!chosen) {
    const lines = size * size > mostLines ?
      `The ${mostLines} strongest weights are drawn, as wide as they are;` :
      "Lines are as wide as the weights;";
    const digits = page.parts === 1 ? "with 6 digits" : "to 0.00002";
    said.textContent = `${lines} bars and numbers are the mean weight that ` +
      "a token is given. Point at a token, or go to it with Tab and the " +
      `arrow keys, for all weights of its own, ${digits}.`;
    return;
  }
  element("bdi", said, { textContent: tokens[chosen.place] });
  said.append(chosen.side === "from" ? " attends most to " :
    " is attended to most by ");
  const most = [...tokens.keys()].sort((a, b) => weights[b] - weights[a]);
  most.slice(0, 3).forEach((place, rank) => {
    if (rank) said.append(", ");
    element("bdi", said, { textContent: tokens[place] });
    said.append(" ");
    element("data", said, {
      value: weights[place], textContent: exact(weights[place]),
    });
  });
}

async function start() {
  $("state").hidden = false;
  numbers = await unpack(page.weights);
  $("state").hidden = true;
  document.querySelector("main").hidden = false;
  maps = makeMaps();
  tokenButtons = makeTokens();
  const asked = location.hash.match(/^#(\d+)\.(\d+)$/)?.slice(1).map(Number);
  const isThere = asked && asked[0] < layers && asked[1] < heads;
  chooseHead(...(isThere ? asked : shown));
}

start().catch((error) => {
  $("state").textContent = "This browser cannot show the weights; take a " +
    `newer one (of 2023 or later), or shorten the text. (${error})`;
  $("state").hidden = false;
});
"""
