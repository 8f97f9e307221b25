"""Every page in Chromium: nothing overflows, overlaps, is cut off or faint.

The pictures in test-output/pages are for people.
"""

import contextlib
import dataclasses
import pathlib
import shutil

import chromium
import numpy as np
import pytest
import scripts
import served
import task_folders
import task_runs

import bert
from bert.contract import registry
from bert.contract.task import Evaluation
from bert.reports import (
  attention,
  comparison,
  embedding_map,
  training_page,
  verdict,
)
from bert.search import search, text_index
from bert.search.vector_index import Row, VectorIndex

pytestmark = pytest.mark.browser

PICTURES = scripts.ROOT / "test-output" / "pages"
CHECKS = (pathlib.Path(__file__).parent / "page_checks.js").read_text("utf-8")

TEXT = "Jim Henson made puppets in the north of the city."
MATE = "The mountains are in the north."
LINES = "runs to the city\nis in the north\nmakes a puppet of an old sock"

# What is typed into the page of a server.
ASKED = {
  "classification": [TEXT, MATE],
  "multilabel": [TEXT],
  "regression": [TEXT],
  "squad": ["Who made puppets?", TEXT * 4],
  "tagging": [TEXT],
  "multiple choice": ["The man", "What does he do?", LINES],
  "vectors": [TEXT, MATE],
  "rating": [TEXT],
  "search": ["Who is in the north?"],
}
REPORTS = [name for name in ASKED if name != "search"]
PAGES = [
  *(f"report of {name}" for name in REPORTS),
  "answers",
  "comparison",
  *(f"server of {name}" for name in ASKED),
  "attention",
  "map",
]
LIMITS = dataclasses.replace(
  served.LIMITS, max_text_chars=10_000, timeout_s=60.0
)


def _table_flags(folder, kind):
  """Writes a table with labels of a kind; returns flags to train on it."""
  label = {
    "multilabel": lambda n: ("angry", "short|never", "", "angry|never")[n % 4],
    "regression": lambda n: f"{n % 7 / 2}",
  }[kind]
  found = {"task_name": "custom", kind: True, "train_batch_size": 8}
  for split, count in (("train", 24), ("dev", 12)):
    path = found[f"{split}_file"] = folder / f"{kind}_{split}.csv"
    rows = [f'"{TEXT} {MATE} {n}",{label(n)}' for n in range(count)]
    path.write_text("\n".join(["text,label", *rows, ""]), "utf-8")
  return found


@pytest.fixture(scope="session")
def folders(tmp_path_factory, goldens):
  """A folder with a trained model of each kind."""
  files = task_runs.make_files(tmp_path_factory.mktemp("files"), goldens)
  commands = {}
  for name in REPORTS:
    run, out = name, files / "trained" / name
    if name in task_runs.RUNS:
      flags = task_runs.RUNS[name].write(files)
    else:
      run, flags = "classification", _table_flags(files, name)
    command = task_runs.command(run, files, out, **flags)
    commands[name] = [*command, "--do_train", "--do_eval"]
  commands["squad"].append("--do_predict")  # It writes answer.html.
  waiting, running, logs = list(commands.values()), [], []
  while waiting or running:  # Two at a time.
    while waiting and len(running) < 2:
      running.append(scripts.Fork(*waiting.pop(0)))
    status, _, log = running.pop(0).wait()
    logs += [log] if status else []
  assert not logs, logs[0]
  return files / "trained"


@pytest.fixture(scope="session")
def urls(tmp_path_factory, folders, goldens, golden):
  """The address of each page."""
  found = {
    f"report of {name}": _address(folders / name / "report.html")
    for name in REPORTS
  }
  found["answers"] = _address(folders / "squad" / "answer.html")
  folder = tmp_path_factory.mktemp("pages")
  _draw(folder)
  found["comparison"] = _address(folder / "report.html")
  found["attention"] = _address(folder / "attention.html")
  found["map"] = _address(folder / "map.svg")
  release = tmp_path_factory.mktemp("release")
  task_folders.write(release, "", golden, goldens)
  with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(folders.parent)
    if "rating" not in registry.kinds():
      registry.register("rating")
    for name in ASKED:
      model = bert.load(release if name == "search" else folders / name)
      searcher = _searcher(folder, model) if name == "search" else None
      server = served.running(model, name, LIMITS, searcher=searcher)
      client = stack.enter_context(server)
      found[f"server of {name}"] = f"http://127.0.0.1:{client.port}/"
    yield found


def _address(path):
  return path.resolve(strict=True).as_uri()


def _searcher(folder, model):
  texts = [TEXT, MATE, f"{TEXT} {MATE}"]
  rows = [Row(str(n), t, {"question": MATE}) for n, t in enumerate(texts)]
  path = str(folder / "index")
  text_index.change(path, model, rows, dtype="float32", has_words=True)
  return search.Searcher(model, VectorIndex(path), search="hybrid")


def _draw(folder):
  """Writes a page of attention, a map of texts, and two models compared."""
  draw = np.random.default_rng(0)
  right = [draw.random(200) < share for share in (0.9, 0.7)]
  samples = [
    verdict.Sample("accuracy", 200, lambda rows, x=x: x[rows].mean())
    for x in right
  ]
  scores = {"eval_accuracy": (0.9, 0.7), "eval_f1_macro": (0.89, 0.69)}
  changed = [
    comparison.Changed(f"a_long_name_of_a_table.csv:{n}", (TEXT, MATE), *labels)
    for n, labels in enumerate([("not_acceptable", "acceptable")] * 20)
  ]
  found = comparison.Comparison(
    "/tmp/another_training/of_the_same_task/output",
    *(3, 200, scores, verdict.compare(*samples), changed, 61),
    {"logits": 1.25, "probabilities": 0.31},
  )
  training_page.write(
    str(folder),
    "MRPC",
    [Evaluation({"eval_accuracy": 0.9})],
    section=lambda *_: "",
    history={},
    record={},
    comparisons={"dev set": comparison.section(found)},
  )
  words = f"[CLS] {TEXT} [SEP] {MATE} [SEP]".lower().split()
  segments = [0] * 12 + [1] * (len(words) - 12)
  probs = draw.dirichlet(np.full(len(words), 0.3), [6, 12, len(words)])
  path = str(folder / "attention.html")
  attention.write_page(path, [TEXT, MATE], words, segments, probs)
  points = draw.normal(size=[30, 2])
  texts = [f"{MATE} {number}" for number in range(30)]
  labels = ["first", "second", "third"] * 10
  axes = "component 1", "component 2"
  path = str(folder / "map.svg")
  embedding_map.write_chart(path, points, axes, texts, labels, "Texts")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
  shutil.rmtree(PICTURES, ignore_errors=True)
  PICTURES.mkdir(parents=True)
  with chromium.running(tmp_path_factory.mktemp("profile")) as browser:
    yield browser


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable(browser, urls, name):
  faults = []
  for device in ("desktop", "phone"):
    size = getattr(chromium, device.upper())
    browser.see(size, "light")
    browser.open(urls[name])
    if name.startswith("server of "):
      browser.ask(ASKED[name.removeprefix("server of ")])
    if name == "attention":
      browser.wait("!document.querySelector('main').hidden")
    browser.run("document.querySelectorAll('details').forEach(d => d.open = 1)")
    browser.wait("new Promise(requestAnimationFrame)")
    browser.fit(size)
    for scheme in ("light", "dark"):
      browser.scheme(scheme)
      faults += [
        f"{device}, {scheme}: {fault}" for fault in browser.run(CHECKS)
      ]
      file = f"{name}-{device}-{scheme}.png".replace(" ", "-")
      (PICTURES / file).write_bytes(browser.picture())
  assert not faults, "\n".join(faults)
