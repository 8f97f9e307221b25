// Returns what a reader of the page would find wrong, a sentence each.
"use strict";
const faults = new Set();
const area = document.documentElement;
const said = (text) => JSON.stringify(text.trim().slice(0, 40));

// Rectangles as [left, top, right, bottom].
const rectOf = (r) => [r.left, r.top, r.right, r.bottom];
const meet = (a, b) => [
  Math.max(a[0], b[0]), Math.max(a[1], b[1]),
  Math.min(a[2], b[2]), Math.min(a[3], b[3])];
const width = (r) => r[2] - r[0], height = (r) => r[3] - r[1];

function* ancestors(element) {
  for (let e = element; e; e = e.parentElement) yield e;
}

function visiblePart(element, rect) {
  for (const e of ancestors(element)) {
    if (getComputedStyle(e).overflow !== "visible" && e !== area &&
        e !== document.body) {
      rect = meet(rect, rectOf(e.getBoundingClientRect()));
    }
  }
  return rect;
}

function isShown(element) {
  const skipped = "script,style,title,defs,option,noscript,metadata";
  return !element.closest(skipped) &&
    element.checkVisibility({ visibilityProperty: true });
}

// Each line of each text: its node, element and visible rectangle.
const lines = [];
const walker = document.createTreeWalker(area, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const element = node.parentElement, range = document.createRange();
  if (!node.data.trim() || !isShown(element)) continue;
  range.selectNodeContents(node);
  // Rotated texts of charts have no rectangles of lines.
  const inSvg = element.closest("svg text");
  const found = inSvg ? [inSvg.getBoundingClientRect()] :
    [...range.getClientRects()];
  for (const rect of found) {
    const part = visiblePart(element, rectOf(rect));
    if (width(part) > 1 && height(part) > 1) {
      lines.push({ node, element, rect: part });
    }
    const chart = inSvg?.closest("svg").getBoundingClientRect();
    if (chart && (rect.left < chart.left - 2 || rect.right > chart.right + 2 ||
                  rect.top < chart.top - 2 || rect.bottom > chart.bottom + 2)) {
      faults.add(`a text leaves its chart: ${said(node.data)}`);
    }
  }
}

function checkOverflow() {
  // A phone shows a picture as a whole. Its innerWidth grows with the page.
  if (document.body && area.scrollWidth > area.clientWidth) {
    faults.add(`the page is ${area.scrollWidth} wide, not ${area.clientWidth}`);
  }
  for (const cell of document.querySelectorAll("td, th, dd, dt, button, p")) {
    const { overflow, textOverflow } = getComputedStyle(cell);
    const isHidden = ["hidden", "clip"].includes(overflow);
    const isCell = ["TD", "TH", "DD", "DT"].includes(cell.tagName);
    if (isShown(cell) && (isCell || isHidden) && textOverflow !== "ellipsis" &&
        cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth) {
      faults.add(`cut off: ${said(cell.textContent)}`);
    }
  }
}

function checkOverlaps() {
  lines.sort((a, b) => a.rect[1] - b.rect[1]);
  lines.forEach((a, i) => {
    for (let j = i + 1; j < lines.length; j++) {
      const b = lines[j];
      if (b.rect[1] >= a.rect[3]) break;
      if (a.node === b.node) continue;
      const common = meet(a.rect, b.rect);
      const least = Math.min(height(a.rect), height(b.rect));
      if (height(common) < 0.3 * least) continue;
      const pair = `${said(a.node.data)} and ${said(b.node.data)}`;
      if (width(common) > 1.5) faults.add(`overlap: ${pair}`);
      const [left, right] = a.rect[0] < b.rect[0] ? [a, b] : [b, a];
      const isSpaced = /\s$/.test(left.node.data) ||
        /^\s/.test(right.node.data);
      const sizes = [a, b].map((l) => getComputedStyle(l.element).fontSize);
      if (Math.abs(width(common)) < 1.5 && !isSpaced && sizes[0] !== sizes[1] &&
          !a.element.closest("p, svg")) {
        faults.add(`no space between ${pair}`);
      }
    }
  });
}

function checkTables() {
  for (const table of document.querySelectorAll("table")) {
    const name = table.parentElement.ariaLabel ?? "(no name)";
    const isMatrix = table.className === "matrix";
    if (!["plain", "errors", "matrix", ""].includes(table.className)) {
      faults.add(`${name}: class ${table.className}`);
    }
    const heads = [...table.tHead.rows[0].cells];
    for (const row of table.rows) {
      [...row.cells].forEach((cell, i) => {
        const isNumber = heads[i].classList.contains("number");
        const style = getComputedStyle(cell);
        const wanted = !isNumber ? "start" : isMatrix ? "center" : "right";
        if (style.textAlign !== wanted ||
            (isNumber && style.fontVariantNumeric !== "tabular-nums")) {
          faults.add(`${name}: ${said(cell.textContent)} is ` +
            `${style.textAlign}, ${style.fontVariantNumeric}`);
        }
        const share = isMatrix && cell.querySelector("small");
        if (share) {
          const range = document.createRange();
          range.selectNode(cell.firstChild);
          const count = range.getBoundingClientRect();
          if (share.getBoundingClientRect().top < count.bottom - 3) {
            faults.add(`${name}: count and share: ${said(cell.textContent)}`);
          }
        }
      });
    }
    const room = table.parentElement;
    if (table.className === "plain" && room.scrollWidth > room.clientWidth) {
      faults.add(`${name}: wider than the page`);
    }
    if (isMatrix && !table.querySelector("small")) faults.add("no shares");
  }
}

// Colors as [red, green, blue, alpha], 0 to 255 and 0 to 1.
function colorsOf(text) {
  return [...text.matchAll(/rgba?\(([^)]*)\)/g)].map((found) => {
    const [r, g, b, a] = found[1].split(/[\s,/]+/).map(Number);
    return [r, g, b, a ?? 1];
  });
}

const blend = (top, below) => [0, 1, 2].map((i) =>
  top[i] * top[3] + below[i] * (1 - top[3]));

function luminance(color) {
  const [r, g, b] = color.map((c) => {
    c /= 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

// The colors that may be behind an element: a gradient has several.
function backgrounds(element) {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const canvas = getComputedStyle(area).colorScheme.includes("dark") && isDark;
  let found = [canvas ? [18, 18, 18] : [255, 255, 255]];
  for (const e of [...ancestors(element)].reverse()) {
    const style = getComputedStyle(e);
    const [color] = colorsOf(style.backgroundColor);
    if (color?.[3]) found = found.map((below) => blend(color, below));
    // A thin line at the edge of a cell is not behind its text.
    const size = style.backgroundSize.split(" ").pop();
    const isLine = size.endsWith("px") && parseFloat(size) < 8;
    if (style.backgroundImage.includes("gradient") && !isLine) {
      found = found.concat(colorsOf(style.backgroundImage).flatMap(
        (top) => found.map((below) => blend(top, below))));
    }
  }
  return found;
}

function checkContrast() {
  const fields = "input, select, textarea, button";
  const shown = new Map(lines.map((line) => [line.element, line.node.data]));
  for (const field of document.querySelectorAll(fields)) {
    if (isShown(field)) shown.set(field, field.value || field.name);
  }
  for (const [element, text] of shown) {
    const style = getComputedStyle(element);
    const inSvg = element.closest("svg text");
    const [color] = colorsOf(inSvg ? style.fill : style.color);
    for (const e of ancestors(element)) color[3] *= getComputedStyle(e).opacity;
    const drawn = element.ownerSVGElement && area.tagName === "svg";
    const behind = drawn ? [[255, 255, 255]] : backgrounds(element);
    const worst = Math.min(
      ...behind.map((below) => contrast(blend(color, below), below)));
    if (worst < 4.5) {
      faults.add(`contrast ${worst.toFixed(2)}: ${said(text)}`);
    }
  }
}

checkOverflow();
checkOverlaps();
checkTables();
checkContrast();
if (!lines.length) faults.add("there is no text");
return [...faults].slice(0, 30);
