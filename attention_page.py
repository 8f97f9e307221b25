"""A page that shows which token attends to which, in every head of a model.

It is one file, which needs nothing beside it: an overview of all heads, layer
by layer, and below or beside it the head that is chosen there.
"""

from collections.abc import Sequence

import numpy as np

import pages

# A page holds whole numbers of ten-thousandths, which is what it shows.
_PARTS = 10_000


def write_page(
  path: str,
  texts: Sequence[str],
  tokens: Sequence[str],
  segment_ids: Sequence[int],
  probs: np.ndarray,
) -> None:
  """Writes the page; the file appears whole or not at all.

  Args:
    path: the file to write.
    texts: what was read: a text, or two.
    tokens: S word pieces and special tokens.
    segment_ids: [S], 0 for the first text and 1 for the second.
    probs: float [L, N, S, S], see `BertModel.get_all_attention_probs`.

  Raises:
    ValueError: the shapes do not agree, or a number is not finite.
  """
  layers, heads, *square = probs.shape
  if square != [len(tokens)] * 2 or len(segment_ids) != len(tokens):
    raise ValueError(
      f"{len(tokens)} tokens and {len(segment_ids)} segment ids do not fit "
      f"attention probabilities of shape {probs.shape}"
    )
  if not np.isfinite(probs).all():
    raise ValueError(
      "an attention probability is not a number; pass a sound checkpoint"
    )
  parts = np.rint(probs.astype(np.float64) * _PARTS).astype(int)
  shown = {
    "tokens": list(tokens),
    "segments": list(map(int, segment_ids)),
    "weights": parts.reshape([layers, heads, -1]).tolist(),
  }
  quoted = "".join(
    f'<p class="said" dir="auto">{pages.escape(text)}</p>\n' for text in texts
  )
  figures = [("layers", layers), ("heads a layer", heads)]
  figures.append(("tokens", len(tokens)))
  header = quoted + pages.key_figures(
    (name, pages.data(number)) for name, number in figures
  )
  body = _BODY + pages.json_block("attention", shown)
  pages.write(path, pages.document("Attention", header, body, _STYLE, _SCRIPT))


_BODY = """<noscript><p>The charts of this page are drawn by a script, which is
part of it; allow it to run.</p></noscript>
<main hidden>
<section class="overview" aria-labelledby="overview">
<h2 id="overview">All heads</h2>
<p>A row for each layer, the lowest first; a column for each head; both counted
from 0. In each map the tokens of the rows attend to those of the columns; the
colour is as strong as the square root of the weight. Choose a head with the
mouse, or with Tab and the arrow keys.</p>
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
@media (max-width: 30rem) {
  #tokens button { font-size: .85rem; gap: .25rem; padding: 0 .3rem; }
  #tokens .value { font-size: .7rem; }
  #maps { gap: 2px; font-size: .65rem; }
}
"""

# Weights are ten-thousandths. A line is as wide, and a bar as long, as its
# weight; lines too thin to be seen are left out.
_SCRIPT = r"""
"use strict";
const $ = (id) => document.getElementById(id);
const { tokens, segments, weights } = JSON.parse($("attention").textContent);
const size = tokens.length;
const heads = weights[0].length;
const thickest = 9;
let shown = [0, 0];
let hovered = null;
let focused = null;

function element(name, parent, fields = {}) {
  const made = parent.appendChild(document.createElement(name));
  return Object.assign(made, fields);
}

function decimals(parts) {
  return (parts / 10000).toFixed(4);
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

function drawMap(canvas, parts) {
  const style = getComputedStyle(document.documentElement);
  const color = style.getPropertyValue("--hit").trim().split(" ").map(Number);
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  parts.forEach((part, place) => {
    image.data.set([...color, 255 * Math.sqrt(part / 10000)], 4 * place);
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
  weights.forEach((layer, index) => {
    element("span", grid, { textContent: index });
    layer.forEach((parts, head) => {
      const name = `Layer ${index}, head ${head}`;
      const button = element("button", grid, { type: "button", title: name });
      button.setAttribute("aria-label", name);
      const canvas = element("canvas", button, { width: size, height: size });
      canvases.push([canvas, parts]);
      for (const kind of ["click", "focus"]) {
        button.addEventListener(kind, () => chooseHead(index, head));
      }
      buttons.push(button);
    });
  });
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
  drawHead();
}

function weightOf(from, to) {
  const [layer, head] = shown;
  return weights[layer][head][from * size + to];
}

function drawHead() {
  const chosen = hovered ?? focused;
  drawLines(chosen);
  const places = [...tokens.keys()];
  let received = places.map((to) =>
    places.reduce((sum, from) => sum + weightOf(from, to), 0) / size);
  let given = places.map(() => null);
  if (chosen?.side === "from") {
    received = places.map((to) => weightOf(chosen.place, to));
  } else if (chosen) {
    given = places.map((from) => weightOf(from, chosen.place));
    received = places.map(() => null);
  }
  places.forEach((place) => {
    drawBar(tokenButtons[2 * place], given[place]);
    drawBar(tokenButtons[2 * place + 1], received[place]);
  });
  tokenButtons.forEach((button, index) => {
    const isChosen = chosen && index ===
      2 * chosen.place + (chosen.side === "to");
    button.classList.toggle("chosen", Boolean(isChosen));
  });
  describe(chosen, chosen?.side === "to" ? given : received);
}

function drawBar(button, parts) {
  button.style.setProperty("--share", (parts ?? 0) / 10000);
  button.lastChild.textContent = parts === null ? "" : decimals(parts);
}

function drawLines(chosen) {
  const drawn = [];
  for (let from = 0; from < size; from++) {
    if (chosen?.side === "from" && chosen.place !== from) continue;
    for (let to = 0; to < size; to++) {
      if (chosen?.side === "to" && chosen.place !== to) continue;
      const width = weightOf(from, to) / 10000 * thickest;
      if (width < 0.02) continue;
      drawn.push(`<line x1="0" x2="1" y1="${from + 0.5}" y2="${to + 0.5}"` +
        ` stroke-width="${width.toFixed(3)}"/>`);
    }
  }
  $("lines").setAttribute("viewBox", `0 0 1 ${size}`);
  $("lines").innerHTML = drawn.join("");
}

function describe(chosen, parts) {
  const said = $("said");
  said.textContent = "";
  if (!chosen) {
    said.textContent = "Lines are as wide as the weights; bars and numbers " +
      "are the mean weight that a token is given. Point at a token, or go to " +
      "it with Tab and the arrow keys, for weights of its own.";
    return;
  }
  element("bdi", said, { textContent: tokens[chosen.place] });
  said.append(chosen.side === "from" ? " attends most to " :
    " is attended to most by ");
  const most = [...tokens.keys()].sort((a, b) => parts[b] - parts[a]);
  most.slice(0, 3).forEach((place, rank) => {
    if (rank) said.append(", ");
    element("bdi", said, { textContent: tokens[place] });
    said.append(" ");
    element("data", said, {
      value: parts[place] / 10000, textContent: decimals(parts[place]),
    });
  });
}

document.querySelector("main").hidden = false;
const maps = makeMaps();
const tokenButtons = makeTokens();
const asked = location.hash.match(/^#(\d+)\.(\d+)$/)?.slice(1).map(Number);
chooseHead(...(asked && weights[asked[0]]?.[asked[1]] ? asked : shown));
"""
