"""The page of a server, to try the model in a browser."""

from collections.abc import Sequence
from typing import NamedTuple

from bert.contract.task import Field
from bert.reports import html

_STYLE = """
form { display: grid; gap: .9rem; max-width: 44rem; }
label { display: grid; gap: .3rem; color: var(--faint); font-size: .9rem; }
textarea { font: inherit; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .8rem;
  resize: vertical; width: 100%; }
button { font: inherit; font-weight: 600; color: var(--paper);
  background: var(--blue); border: 0; border-radius: .6rem;
  padding: .55rem 1.4rem; justify-self: start; cursor: pointer; }
button:disabled { opacity: .5; cursor: progress; }
#result { margin-top: 1.75rem; max-width: 44rem; }
.answer { font-size: 1.35rem; font-weight: 650; overflow-wrap: anywhere; }
.row { display: grid; grid-template-columns: minmax(5rem, 11rem) 1fr 4.5rem;
  gap: .8rem; align-items: center; margin: .35rem 0; }
.row span { overflow-wrap: anywhere; }
.track { background: var(--card); border-radius: .3rem; height: .9rem; }
.bar { background: var(--blue); border-radius: .3rem; height: 100%;
  min-width: 2px; }
.number { font-variant-numeric: tabular-nums; text-align: right; }
mark { background: rgb(var(--hit) / .25); color: inherit;
  border-radius: .25rem; padding: 0 .15rem; }
mark small { color: var(--faint); margin-left: .35rem; }
.hit { border: 1px solid var(--line); border-radius: .6rem;
  padding: .7rem 1rem; margin: .7rem 0; overflow-wrap: anywhere; }
.hit .number { float: right; margin-left: 1rem; color: var(--faint);
  font-size: .9rem; }
.hit p { margin: 0; }
.hit dl { display: grid; grid-template-columns: auto 1fr; gap: .2rem .8rem;
  margin: .5rem 0 0; color: var(--faint); font-size: .9rem; }
.hit dd { margin: 0; }
.error { color: var(--orange); }
pre { overflow-x: auto; background: var(--card); padding: .8rem;
  border: 1px solid var(--line); border-radius: .6rem; font-size: .85rem; }
"""

_SCRIPT = """
const form = document.querySelector("form");
const result = document.getElementById("result");

function element(tag, kind, text) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function percent(number) { return (100 * number).toFixed(1) + " %"; }

function bars(names, numbers) {
  const order = [...names.keys()].sort((a, b) => numbers[b] - numbers[a]);
  for (const i of order) {
    const row = element("div", "row"), track = element("div", "track");
    const bar = element("div", "bar");
    bar.style.width = 100 * numbers[i] + "%";
    track.append(bar);
    row.append(element("span", "", names[i]), track,
               element("span", "number", percent(numbers[i])));
    result.append(row);
  }
}

// The text with the spans from start to end marked. Offsets count characters;
// JavaScript's strings count units of UTF-16.
function marked(text, spans) {
  const characters = Array.from(text), shown = element("p");
  let end = 0;
  for (const span of spans) {
    shown.append(characters.slice(end, span.start).join(""));
    const mark = element("mark", "",
                         characters.slice(span.start, span.end).join(""));
    if (span.type) mark.append(element("small", "", span.type));
    shown.append(mark);
    end = span.end;
  }
  shown.append(characters.slice(end).join(""));
  result.append(shown);
}

// A row of an index: its text, its fields, and its score.
function hit(row) {
  const card = element("article", "hit"), fields = element("dl");
  card.append(element("span", "number", row.score.toFixed(4)),
              element("p", "", row.text));
  for (const [name, value] of Object.entries(row.fields)) {
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    fields.append(element("dt", "", name), element("dd", "", shown));
  }
  if (fields.children.length) card.append(fields);
  result.append(card);
}

function show(sent, reply) {
  const details = element("details");
  if ("label" in reply) {
    result.append(element("p", "answer", reply.label || "(no label)"));
    bars(reply.labels, reply.probabilities);
  } else if ("answer" in reply) {
    result.append(element("p", "answer", reply.answer || "(no answer)"));
    const shown = "Probability: " + percent(reply.probability);
    result.append(element("p", "", shown));
    marked(sent.context, reply.start < 0 ? [] : [reply]);
  } else if ("entities" in reply) {
    marked(sent.text, reply.entities);
  } else if ("choice" in reply) {
    result.append(element("p", "answer", sent.choices[reply.choice]));
    bars(sent.choices, reply.probabilities);
  } else if ("hits" in reply) {
    if (!reply.hits.length) result.append(element("p", "", "no hits"));
    reply.hits.forEach(hit);
  } else if ("similarity" in reply) {
    result.append(element("p", "answer", reply.similarity.toFixed(4)),
                  element("p", "", "similarity of the two vectors"));
  } else if ("value" in reply) {
    result.append(element("p", "answer", reply.value));
  } else {
    details.open = true;
  }
  details.append(element("summary", "", "JSON"),
                 element("pre", "", JSON.stringify(reply, null, 1)));
  result.append(details);
}

// Enter starts a search; with Shift, it is a line break.
form.addEventListener("keydown", (event) => {
  const starts = event.key === "Enter" && !event.shiftKey;
  if (event.target.name === "query" && starts) {
    event.preventDefault();
    form.requestSubmit();
  }
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button"), sent = {};
  for (const area of form.querySelectorAll("textarea")) {
    const lines = area.value.split("\\n").filter((line) => line.trim());
    sent[area.name] = area.dataset.list ? lines : area.value;
  }
  button.disabled = true;
  result.replaceChildren();
  try {
    const response = await fetch("answer", {
      method: "POST", body: JSON.stringify(sent),
      headers: {"Content-Type": "application/json"},
    });
    const reply = await response.json();
    if (response.ok) show(sent, reply);
    else result.append(element("p", "error", reply.error));
  } catch (error) {
    result.append(element("p", "error", "no answer: " + error.message));
  }
  button.disabled = false;
});
"""


# What the built-in kinds of tasks are called on the page.
_KINDS = {
  "classification": "Classification",
  "squad": "Question answering",
  "tagging": "Token classification",
  "multiple choice": "Multiple choice",
}


class Form(NamedTuple):
  """What the page asks for."""

  description: str  # What the server answers, or the kind of the task.
  fields: Sequence[Field]  # The parts of an input.
  action: str = "Answer"  # The text of the button.


def page(name: str, form: Form) -> str:
  """The page, as HTML; `name` is the name of the model."""
  fields = "".join(map(_field, form.fields))
  description = _KINDS.get(form.description, form.description)
  header = f"<p>{html.escape(description)}</p>\n"
  body = (
    f"<form>{fields}<button>{html.escape(form.action)}</button></form>\n"
    f'<div id="result" aria-live="polite"></div>\n'
  )
  content = html.document(name, header, body, _STYLE, _SCRIPT)
  # Unlike a report, this page sends requests to its server.
  policy = "default-src 'none'"
  return content.replace(policy, f"{policy}; connect-src 'self'", 1)


def _field(field):
  name = html.escape(field.name)
  shown = html.escape(field.name.replace("_", " ").capitalize())
  attributes = f'name="{name}" dir="auto"'
  if field.is_list:
    attributes += ' data-list="1"'
    shown += " (one per line)"
  if field.default is None:
    attributes += " required"
  rows = 6 if field.is_list else {"context": 6, "query": 1}.get(field.name, 3)
  area = f'<textarea rows="{rows}" {attributes}></textarea>'
  return f"<label>{shown}{area}</label>"
