"""One page on the answers to a question set: answer.html.

It holds each context once, as HTML, and all about the questions as JSON; its
script draws what the reader asks for. Without a script there is a plain list.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from reports import html

_MAX_CANDIDATES = 5
_NO_ANSWER = "<em>no answer</em>"
_SCORE_NAMES = {
  "exact_match": "exact match",
  "exact": "exact match",
  "f1": "F1",
}
_GROUPS = {"HasAns": "with an answer", "NoAns": "without an answer"}

# Bits of the marks in a context.
_PREDICTED, _GOLD = 1, 2


@dataclasses.dataclass
class AnsweredQuestion:
  """A question, the model's answer to it, and what is right.

  Args:
    qas_id: the question's id.
    title: of the article.
    question: its text.
    context: the paragraph that is asked about.
    prediction: the answer's text, empty for none.
    prediction_span: (start, end) of the answer within the context, in
      characters, or None.
    golds: (text, start within the context or None) of each right answer;
      none for a question without an answer.
    exact: exact match, 0 or 1.
    f1: from 0 to 1.
    probability: the model's, of its answer.
    loss: -log of the probability that the model gave to a right answer;
      infinite where none is among its candidates, None where it is unknown.
    null_odds: how much more the model thinks of no answer, or None.
    nbest: (text, probability) of the candidates, best first.
  """

  qas_id: str
  title: str
  question: str
  context: str
  prediction: str
  prediction_span: tuple[int, int] | None
  golds: Sequence[tuple[str, int | None]]
  exact: float
  f1: float
  probability: float
  loss: float | None
  null_odds: float | None
  nbest: Sequence[tuple[str, float]]

  @property
  def gold_texts(self) -> list[str]:
    """The right answers that differ, none of a question without an answer."""
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
  """Writes answer.html, the questions sorted by loss, the worst first.

  Args:
    path: the file to write.
    title: heading of the page.
    questions: all of the set.
    scores: of the set, under the names of the official evaluators: numbers in
      percent, thresholds and counts; with them may be the threshold that was
      used, `null_score_diff_threshold`, and that of the best F1, the same with
      `best_` in front.
  """
  questions = list(questions)
  contexts = {}  # Text -> title.
  for question in questions:
    contexts.setdefault(question.context, question.title)
  # Of equal losses the surest answer is the worst.
  questions.sort(key=lambda q: (_falling(q.loss), _falling(q.probability)))
  places = {context: place for place, context in enumerate(contexts)}
  body = (
    "<main>\n<section>\n<h2>Questions, worst first</h2>\n"
    "<p>The loss of a question is −log of the probability that the model gave "
    "to a right answer: ∞ where none is among its candidates.</p>\n"
    + _controls(questions)
    + '<ol id="list"></ol>\n<p><button id="more" type="button" hidden>'
    "</button></p>\n"
    + _plain_list(questions, places)
    + "</section>\n"
    + _contexts(contexts)
    + "</main>\n"
    + html.json_block(
      "questions", [_described(q, places[q.context]) for q in questions]
    )
  )
  header = _scores(scores, len(questions))
  html.write(path, html.document(title, header, body, _CSS, _SCRIPT))


def _falling(number):
  """A key to sort by, the largest first; what is not known is infinite."""
  if number is None or math.isnan(number):
    return -math.inf
  return -number


def _scores(scores, count):
  """Cards of the set's scores, and a table of those of its two groups."""
  rest = dict(scores)
  cards = [
    (name, html.data(rest.pop(key), 2))
    for key, name in _SCORE_NAMES.items()
    if key in rest
  ]
  rest.pop("total", None)
  thresholds = [
    rest.pop(f"{prefix}null_score_diff_threshold", None)
    for prefix in ("", "best_")
  ]
  cards.append(("questions", html.data(count)))
  rows = []
  for group, name in _GROUPS.items():
    found = [rest.pop(f"{group}_{key}", None) for key in ("exact", "f1")]
    total = rest.pop(f"{group}_total", None)
    if None not in (*found, total):
      cells = [html.number_cell(score, 2) for score in found]
      rows.append([html.row_head(name), *cells, html.number_cell(total)])
  best = []
  for key in ("exact", "f1"):
    pair = rest.pop(f"best_{key}", None), rest.pop(f"best_{key}_thresh", None)
    if None not in pair:
      best.append(
        f"best {_SCORE_NAMES[key]} {html.data(pair[0], 2)} at a threshold of "
        f"{html.data(pair[1])}"
      )
  cards += [(key.replace("_", " "), html.data(rest[key])) for key in rest]
  columns = ["questions", "#exact match", "#F1", "#number"]
  return (
    html.key_figures(cards)
    + (html.table("Scores", columns, rows) if rows else "")
    + _thresholds(*thresholds, best)
  )


def _thresholds(used, found, best):
  """What is said of the odds above which there is no answer."""
  said = []
  if used is not None:
    said.append(
      f"No answer is given where its odds are above {html.data(used)}."
    )
  if found is not None:
    said.append(f"F1 would be best at {html.data(found)}.")
  if best:
    # A question that has no answer already stays so, whatever the threshold.
    said.append(
      "The official script, which moves the threshold over the answers as they "
      f"are given here: {'; '.join(best)}."
    )
  return f"<p>{' '.join(said)}</p>\n" if said else ""


def _controls(questions):
  """The filter, which the script shows; a radio's value names what it keeps."""
  right = sum(q.verdict == "right" for q in questions)
  groups = [
    ("verdict", {"all": None, "errors": len(questions) - right, "right": right})
  ]
  answerable = sum(bool(q.gold_texts) for q in questions)
  if answerable < len(questions):
    rest = len(questions) - answerable
    groups.append(
      ("kind", {"all": None, "answerable": answerable, "unanswerable": rest})
    )
  fields = "".join(
    f'<fieldset class="choice"><legend>{legend}</legend>'
    + "".join(
      f'<label><input type="radio" name="{legend}" value="{value}"'
      f"{' checked' * (value == 'all')}><span>{value}"
      + (f" <small>{number:,}</small>" if number is not None else "")
      + "</span></label>"
      for value, number in choices.items()
    )
    + "</fieldset>\n"
    for legend, choices in groups
  )
  return (
    f'<form id="filter" hidden>\n{fields}'
    '<label class="search">search <input type="search" name="text" '
    'autocomplete="off" placeholder="question, answer, title or id"></label>\n'
    '<p id="status" role="status"></p>\n</form>\n'
  )


def _plain_list(questions, places):
  """What a browser shows that runs no script."""
  items = "".join(
    f'<li><p dir="auto">{html.escape(q.question)}</p>'
    f"<p>predicted: {_bdi(q.prediction)}; gold: "
    f"{', '.join(map(_bdi, q.gold_texts)) or _NO_ANSWER}</p>"
    f"<p><small>{q.verdict}, F1 {html.short(q.f1)}, probability "
    f"{html.short(q.probability)}, loss {_loss(q)}, "
    + (f"null odds {_short(q.null_odds)}, " if q.null_odds is not None else "")
    + f'<a href="#context-{places[q.context]}">context</a></small></p></li>\n'
    for q in questions
  )
  return f"<noscript><ol>\n{items}</ol></noscript>\n"


def _bdi(text):
  return f"<bdi>{html.escape(text)}</bdi>" if text else _NO_ANSWER


def _loss(question):
  if question.loss is None or math.isnan(question.loss):
    return "unknown"
  return html.short(question.loss)


def _short(number):
  return None if number is None else html.short(number)


def _contexts(contexts):
  """All contexts, closed; the script takes their texts from here."""
  parts = []
  last = None
  for place, (context, title) in enumerate(contexts.items()):
    if title != last:
      parts.append(f'<h3 dir="auto">{html.escape(title)}</h3>\n')
      last = title
    # A browser would take a CR for a line feed, and drop a NUL.
    text = html.escape(context).replace("\r", "&#13;").replace("\0", "\ufffd")
    parts.append(f'<p id="context-{place}" dir="auto">{text}</p>\n')
  return (
    f'<details id="contexts">\n<summary>All {len(contexts):,} contexts'
    f"</summary>\n{''.join(parts)}</details>\n"
  )


def _described(question, place):
  """What the script knows of a question; numbers as the reader sees them."""
  q = question
  return {
    "id": q.qas_id,
    "title": q.title,
    "question": q.question,
    "context": place,
    "answer": q.prediction,
    "golds": q.gold_texts,
    "verdict": q.verdict,
    "exact": html.short(int(q.exact)),
    "f1": html.short(q.f1),
    "probability": html.short(q.probability),
    "loss": _loss(q),
    "odds": _short(q.null_odds),
    "runs": _runs(q),
    "nbest": [[t, html.short(p)] for t, p in q.nbest[:_MAX_CANDIDATES]],
  }


def _runs(question):
  """The context's runs of equally marked characters, as [length, mark] each.

  A length counts UTF-16 units, as JavaScript does.
  """
  context = question.context
  spans = [
    (start, start + len(text), _GOLD)
    for text, start in question.golds
    if start is not None and context.startswith(text, start)
  ]
  if question.prediction_span:
    spans.append((*question.prediction_span, _PREDICTED))
  ends = {place for start, end, _ in spans for place in (start, end)}
  cuts = sorted({0, len(context), *(min(e, len(context)) for e in ends)})
  runs = []
  for start, end in itertools.pairwise(cuts):
    mark = 0
    for first, last, kind in spans:
      if first <= start and end <= last:
        mark |= kind
    length = len(context[start:end].encode("utf-16-le", "surrogatepass")) // 2
    if runs and runs[-1][1] == mark:
      runs[-1][0] += length
    else:
      runs.append([length, mark])
  return runs


_SCRIPT = """
"use strict";
const STEP = 200;
const MARKS = ["", "predicted", "gold", "predicted gold"];
const find = (id) => document.getElementById(id);
const questions = JSON.parse(find("questions").textContent);
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
  const context = find("context-" + q.context).textContent;
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
    details.append(makeContext(q), makeNumbers(q), makeCandidates(q));
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
.choice { position: relative; display: flex; min-width: 0; margin: 0;
  padding: 0; border: 1px solid var(--line); border-radius: .5rem;
  overflow: hidden; }
.choice legend, .choice input { position: absolute; opacity: 0;
  pointer-events: none; }
.choice span { display: block; padding: .3rem .8rem; font-size: .92rem;
  cursor: pointer; }
.choice small { color: var(--faint); }
.choice label + label { border-left: 1px solid var(--line); }
.choice :checked + span { background: var(--ink); color: var(--paper); }
.choice :checked + span small { color: inherit; }
.choice:has(:focus-visible) { outline: 2px solid var(--blue);
  outline-offset: 2px; }
.search { flex: 1 1 14rem; display: flex; gap: .5rem; align-items: center;
  color: var(--faint); font-size: .92rem; }
.search input { flex: 1; min-width: 0; padding: .35rem .6rem; font: inherit;
  color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem; }
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
.context, #contexts p { white-space: pre-wrap; overflow-wrap: anywhere;
  max-width: 48rem; }
.context { margin: .25rem 0 1rem 5.75rem; line-height: 1.95; }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem;
  margin: 0 0 1rem 5.75rem; }
.facts dt { color: var(--faint); font-size: .8rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
#list .scroll { margin: 0 0 1.25rem 5.75rem; max-width: calc(100% - 5.75rem); }
#list td { overflow-wrap: anywhere; }
#more { font: inherit; padding: .5rem 1.2rem; margin-top: .75rem;
  color: var(--ink); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: .5rem; }
#more[hidden] { display: none; }
noscript li { margin: .9rem 0; }
noscript p { margin: .1rem 0; }
#contexts { margin-top: 3rem; }
#contexts p { scroll-margin-top: 5rem; content-visibility: auto; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; }
@media (max-width: 40rem) {
  #filter { position: static; }
  #list summary { grid-template: "verdict loss sign" auto
    "question question question" auto / 1fr auto auto; }
  #list summary::before { padding: 0; }
  .answers { grid-column: 1 / -1; }
  .context, .facts, #list .scroll { margin-left: .25rem; max-width: 100%; }
}
@media print { #filter, #more { display: none; } }
"""
