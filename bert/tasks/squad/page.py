"""answer.html: the questions of a SQuAD data set, with the model's answers."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from bert.reports import html

_MAX_CANDIDATES = 5
_NAMES = {"exact_match": "exact match", "exact": "exact match", "f1": "F1"}
_GROUPS = {"HasAns": "with an answer", "NoAns": "without an answer"}

# Bits of the marks in a context.
_PREDICTED, _GOLD = 1, 2


@dataclasses.dataclass
class AnsweredQuestion:
  """A question with the model's answer and the correct ones."""

  qas_id: str
  title: str  # of the article
  question: str
  context: str
  prediction: str  # "" for no answer
  prediction_span: tuple[int, int] | None  # in the context, in characters
  golds: Sequence[tuple[str, int | None]]  # text, and start in the context
  exact: float  # 0 or 1
  f1: float  # from 0 to 1
  probability: float  # of the prediction
  loss: float  # -log of the probability of a right answer; inf without one
  null_odds: float | None  # log odds of no answer against the best answer
  nbest: Sequence[tuple[str, float]]  # texts and probabilities, best first

  @property
  def gold_texts(self) -> list[str]:
    """The distinct right answers; empty for a question without an answer."""
    return list(dict.fromkeys(text for text, _ in self.golds if text))

  @property
  def verdict(self) -> str:
    """`right`, `partly` or `wrong`."""
    if self.exact:
      return "right"
    return "partly" if self.f1 > 0 else "wrong"


def write_page(
  path: str,
  title: str,
  questions: Iterable[AnsweredQuestion],
  scores: Mapping[str, float],
) -> None:
  """Writes answer.html, with the questions in order of decreasing loss.

  `scores` are in percent, with thresholds and counts, named as in the official
  scripts. For SQuAD 2.0, they include the `null_score_diff_threshold` in use
  and `best_null_score_diff_threshold`.
  """
  # If losses are equal, the most probable answer comes first.
  questions = sorted(questions, key=lambda q: (-q.loss, -q.probability))
  contexts = {q.context: None for q in questions}
  indices = {context: i for i, context in enumerate(contexts)}
  data = {
    "contexts": list(contexts),
    "questions": [_described(q, indices[q.context]) for q in questions],
  }
  body = (
    "<main>\n<section>\n<h2>Questions, worst first</h2>\n"
    "<p>The loss of a question is −log of the probability that the model gave "
    "to a right answer: a large loss means a confident wrong answer. It is ∞ "
    "if no right answer is among the candidates."
    "</p>\n<noscript><p>This page needs JavaScript.</p></noscript>\n"
    + _filter(questions)
    + '<ol id="list"></ol>\n<p><button id="more" type="button" hidden>'
    "</button></p>\n</section>\n</main>\n" + html.json_block("data", data)
  )
  header = _scores(scores, len(questions))
  html.write(path, html.document(title, header, body, _CSS, _SCRIPT))


def _scores(scores, count):
  rows = []
  for group, name in _GROUPS.items():
    keys = [f"{group}_{key}" for key in ("exact", "f1", "total")]
    if scores.keys() >= set(keys):
      exact, f1, total = (scores[key] for key in keys)
      cells = [html.number_cell(score, rows=total) for score in (exact, f1)]
      rows.append([html.row_head(name), *cells, html.number_cell(total)])
  cards = {
    _NAMES.get(key, key.replace("_", " ")): score
    for key, score in scores.items()
    if not re.match("HasAns_|NoAns_|best_|total$|.*thresh", key)
  }
  cards["questions"] = count
  columns = ["questions", "#exact match", "#F1", "#number"]
  return (
    html.key_figures(cards, count)
    + (html.table("Scores", columns, rows) if rows else "")
    + _thresholds(scores)
  )


def _thresholds(scores):
  if "null_score_diff_threshold" not in scores:
    return ""
  used = html.data(scores["null_score_diff_threshold"])
  best = html.data(scores["best_null_score_diff_threshold"])
  return (
    f"<p>The null odds of a question are the score of no answer minus that of "
    f"the best answer. If they exceed {used}, the question gets no answer. The "
    f"threshold with the best F1 is {best}.</p>\n"
  )


def _filter(questions):
  total = len(questions)
  right = sum(q.verdict == "right" for q in questions)
  answerable = sum(bool(q.gold_texts) for q in questions)
  groups = {"verdict": {"all": total, "errors": total - right, "right": right}}
  if answerable < total:
    kinds = {"answerable": answerable, "unanswerable": total - answerable}
    groups["kind"] = {"all": total, **kinds}
  fields = ""
  for name, choices in groups.items():
    options = "".join(
      f'<option value="{value}">{value} ({count:,})</option>'
      for value, count in choices.items()
    )
    fields += (
      f'<label>{name} <select name="{name}">{options}</select></label>\n'
    )
  return (
    f'<form id="filter" hidden>\n{fields}'
    '<label class="search">search <input type="search" name="text" '
    'autocomplete="off" placeholder="question, answer, title or id"></label>\n'
    '<p id="status" role="status"></p>\n</form>\n'
  )


def _described(question, context):
  """A question for the script, with numbers as the reader sees them."""
  q = question
  return {
    "id": q.qas_id,
    "title": q.title,
    "question": q.question,
    "context": context,
    "answer": q.prediction,
    "golds": q.gold_texts,
    "verdict": q.verdict,
    "exact": html.short(int(q.exact)),
    "f1": html.short(q.f1),
    "probability": html.short(q.probability),
    "loss": html.short(q.loss),
    "odds": None if q.null_odds is None else html.short(q.null_odds),
    "runs": _runs(q),
    "nbest": [[t, html.short(p)] for t, p in q.nbest[:_MAX_CANDIDATES]],
  }


def _runs(question):
  """The context's runs of equally marked characters, as [length, mark] each.

  Lengths are in UTF-16 units, as in JavaScript.
  """
  context = question.context
  spans = [
    (start, start + len(text), _GOLD)
    for text, start in question.golds
    if start is not None and context.startswith(text, start)
  ]
  if question.prediction_span:
    spans.append((*question.prediction_span, _PREDICTED))
  marks = [0] * len(context)
  for start, end, mark in spans:
    for i in range(start, min(end, len(context))):
      marks[i] |= mark
  sizes = [2 if character > "\uffff" else 1 for character in context]
  runs = itertools.groupby(zip(marks, sizes, strict=True), lambda run: run[0])
  return [[sum(size for _, size in run), mark] for mark, run in runs]


_SCRIPT = """
"use strict";
const STEP = 200;
const MARKS = ["", "predicted", "gold", "predicted gold"];
const find = (id) => document.getElementById(id);
const { contexts, questions } = JSON.parse(find("data").textContent);
const [form, list, more] = ["filter", "list", "more"].map(find);
let kept = [];

// Texts go in as text, never as HTML.
function make(tag, kind, ...content) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...content);
  return element;
}

function makeText(tag, kind, text) {
  const element = make(tag, kind, text);
  element.dir = "auto";
  return element;
}

function makeAnswer(kind, text) {
  return text ? make("bdi", kind, text) : make("em", "", "no answer");
}

function makeAnswers(name, texts) {
  const line = make("span", "answers", make("span", "label", name));
  for (const text of texts.length ? texts : [""]) {
    line.append(" ", makeAnswer(name, text));
  }
  return line;
}

function makeContext(q) {
  const context = contexts[q.context];
  const paragraph = makeText("p", "context", "");
  let place = 0;
  for (const [length, mark] of q.runs) {
    const run = context.slice(place, place + length);
    place += length;
    const element = mark ? make("mark", MARKS[mark], run) : run;
    if (mark) element.title = MARKS[mark].replace(" ", " and ");
    paragraph.append(element);
  }
  return paragraph;
}

function makeNumbers(q) {
  const numbers = [
    ["exact match", q.exact], ["F1", q.f1], ["probability", q.probability],
    ["loss", q.loss], ["null odds", q.odds],
  ];
  const facts = [...numbers, ["article", q.title], ["id", q.id]];
  return make("dl", "facts", ...facts.filter(([, value]) => value !== null)
    .map(([name, value]) =>
      make("div", "", make("dt", "", name), makeText("dd", "", value))));
}

function makeCandidates(q) {
  const rows = q.nbest.map(([text, probability]) => make("tr", "",
    make("td", "", makeAnswer("", text)),
    make("td", "number", probability)));
  const head = make("tr", "", make("th", "", "best answers"),
    make("th", "number", "probability"));
  return make("div", "scroll", make("table", "",
    make("thead", "", head), make("tbody", "", ...rows)));
}

function makeItem(q) {
  const summary = make("summary", "",
    make("span", "verdict", q.verdict),
    make("span", "loss", make("span", "label", "loss"), " ", q.loss),
    makeText("span", "question", q.question),
    makeAnswers("predicted", [q.answer]),
    makeAnswers("gold", q.golds));
  const details = make("details", "", summary);
  details.addEventListener("toggle", () => {
    details.append(make("div", "more", makeContext(q), makeNumbers(q),
      makeCandidates(q)));
  }, {once: true});
  return make("li", q.verdict, details);
}

function drawMore() {
  const drawn = list.children.length;
  list.append(...kept.slice(drawn, drawn + STEP).map(makeItem));
  const rest = kept.length - list.children.length;
  more.hidden = !rest;
  more.textContent =
    `Show ${Math.min(rest, STEP)} more of ${rest.toLocaleString("en")}`;
  return list.children[drawn];
}

function isKept(q, verdict, kind, text) {
  q.text ??= [q.question, q.answer, ...q.golds, q.title, q.id].join("\\n")
    .toLowerCase();
  const isRight = q.verdict === "right", isAnswerable = q.golds.length > 0;
  return (verdict === "all" || isRight === (verdict === "right"))
    && (kind === "all" || isAnswerable === (kind === "answerable"))
    && q.text.includes(text);
}

function update() {
  const chosen = new FormData(form);
  const text = chosen.get("text").trim().toLowerCase();
  const kind = chosen.get("kind") ?? "all";
  kept = questions.filter((q) => isKept(q, chosen.get("verdict"), kind, text));
  find("status").textContent = `${kept.length.toLocaleString("en")} of ` +
    `${questions.length.toLocaleString("en")} questions`;
  list.replaceChildren();
  drawMore();
}

form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
more.addEventListener("click", () => {
  drawMore().querySelector("summary").focus();
});
form.hidden = false;
update();
"""

_CSS = """
#filter { display: flex; flex-wrap: wrap; gap: .75rem 1.5rem;
  align-items: center; position: sticky; top: 0; z-index: 1;
  padding: .75rem 0; margin: 1rem 0 .25rem; background: var(--paper);
  border-bottom: 1px solid var(--line); }
#filter[hidden] { display: none; }
#status { margin: 0; color: var(--faint); font-size: .9rem;
  font-variant-numeric: tabular-nums; }
#filter label { color: var(--faint); font-size: .92rem; }
#filter select, #filter input, #more { padding: .35rem .6rem; font: inherit;
  color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem; }
#filter .search { flex: 1 1 14rem; display: flex; gap: .5rem;
  align-items: center; }
.search input { flex: 1; min-width: 0; }
#list { margin: 0; padding: 0; list-style: none; }
#list li { border-bottom: 1px solid var(--line); scroll-margin-top: 5rem;
  content-visibility: auto; contain-intrinsic-size: auto 6.5rem; }
#list details { margin: 0; padding-bottom: .1rem; }
#list summary { display: grid; gap: .3rem .9rem; padding: .8rem .25rem;
  grid-template: "verdict question loss" auto "sign predicted predicted" auto
    ". gold gold" auto / 4.6rem 1fr auto;
  list-style: none; overflow-wrap: anywhere; }
#list summary::-webkit-details-marker { display: none; }
#list summary::before { content: "▸"; grid-area: sign; padding-left: .6rem;
  color: var(--faint); }
#list [open] summary::before { content: "▾"; }
#list summary:hover { background: var(--card); }
.question { grid-area: question; font-weight: 600; white-space: pre-wrap; }
.verdict { grid-area: verdict; align-self: start; justify-self: start;
  padding: 0 .55rem; border-radius: 1rem; font-size: .82rem;
  border: 1.5px solid var(--orange); margin-top: .1rem; }
.wrong .verdict { background: rgb(var(--miss) / .22); }
.partly .verdict { border-style: dashed; }
.right .verdict { border-color: var(--blue); }
.loss { grid-area: loss; font-variant-numeric: tabular-nums; }
.label { color: var(--faint); font-size: .85rem; }
.answers { grid-column: 2 / -1; }
.answers .label { display: inline-block; min-width: 4.6rem; }
.answers bdi { margin-right: .5rem; }
mark { color: inherit; }
mark, .answers bdi { background: none; padding: .05em 0; white-space: pre-wrap;
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.answers .predicted, mark.predicted { background: rgb(var(--hit) / .16);
  border-bottom: 3px solid var(--blue); }
.answers .gold, mark.gold { border-top: 2px dashed var(--orange);
  background: rgb(var(--miss) / .13); }
mark.predicted.gold { background: linear-gradient(rgb(var(--miss) / .2),
  rgb(var(--hit) / .25)); }
.context { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 48rem;
  margin: .25rem 0 1rem; line-height: 1.95; }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; margin: 0; }
.facts dt { color: var(--faint); font-size: .8rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.more { margin: 0 0 1.25rem 5.75rem; }
#list td { overflow-wrap: anywhere; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; }
@media (max-width: 40rem) {
  #filter { position: static; }
  .more { margin-left: .25rem; }
}
@media print { #filter, #more { display: none; } }
"""
