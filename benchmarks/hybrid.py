"""Quality of dense, lexical and hybrid search; seconds of a lexical command.

    python benchmarks/hybrid.py MODEL SET=PATH... [reranker=FOLDER] [rows=N]

MODEL gives the vectors; it reads 256 word pieces. The sets are:

  squad=FOLDER   all paragraphs of its .json files, and their questions.
  mrpc=TABLE     train.tsv or dev.tsv of MRPC: the second sentences of all
                 pairs, and the first sentences of paraphrases.
  text=FILE      Passages of 8 sentences of an article, one a line in the file.
                 A drawn sentence is cut out of each, and is its query.
  tickets=COUNT  Made-up tickets, each with a part number of its own. Queries
                 name the part numbers of a tenth of them.

Prints MRR@10 and nDCG@10 with their 95 % ranges, over 2,000 bootstrap samples
of the queries, and those of the differences to the dense search. The reranker
reorders the hits of the hybrid search. With rows=N, also prints the seconds
from command to hits of `search_texts.py --search=lexical` among N texts.
"""

import csv
import glob
import os
import random
import sys
import tempfile

import machine
import numpy as np

import bert
from bert.data import files
from bert.data.text_files import read_lines
from bert.models.resolve import resolve
from bert.search import search, text_index, vector_index
from bert.search.vector_index import Header, Row, VectorIndex
from bert.tasks.embeddings import retrieval
from bert.tasks.embeddings.data import Pair

SAMPLES = 2000
METRICS = ("mrr_at_10", "ndcg_at_10")


def squad(folder):
  """Pairs of a question and its paragraph."""
  for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
    for article in files.read_json(path, dict)["data"]:
      for paragraph in article["paragraphs"]:
        for asked in paragraph["qas"]:
          yield Pair("", asked["question"], paragraph["context"])


def mrpc(path):
  """Pairs of sentences; the score is 0 if they are no paraphrases."""
  with open(path, encoding="utf-8-sig", newline="") as reader:
    rows = csv.reader(reader, delimiter="\t", quoting=csv.QUOTE_NONE)
    next(rows)
    for label, _, _, first, second in rows:
      yield Pair("", first, second, score=float(label))


def text(path, sentences=8):
  """Pairs of a sentence and the passage that it was cut out of."""
  draw, passage = random.Random(0), []
  for line in read_lines(path):
    passage = [*passage, line] if line else []  # An article ends.
    if len(passage) == sentences:
      query = passage.pop(draw.randrange(sentences))
      yield Pair("", query, " ".join(passage))
      passage = []


def tickets(count):
  """Pairs of a query with a part number, and the ticket of this part."""
  draw = random.Random(0)
  parts = ("pump", "valve", "controller", "sensor", "display", "charger")
  faults = ("leaks after a week", "does not start", "shows a red light")
  faults += ("stops at night", "overheats under load", "arrived damaged")
  notes = ("The customer asks for a replacement.", "We sent a technician.")
  notes += ("The warranty has ended.", "This is the second report.")
  asked = ("{}", "problem with {}", "ticket about {}")
  asked += ("is there a spare part for {} ?",)
  for number in range(int(count)):
    letters = "".join(draw.choices("ABCDKMRTXZ", k=2))
    code = (
      f"{letters}-{1000 + 7919 * number % 9000}{draw.choice(('', '-A', '/2'))}"
    )
    words = (draw.choice(options) for options in (parts, faults, notes))
    ticket = "The {} {code} {}. {}".format(*words, code=code)
    query = draw.choice(asked).format(code)
    yield Pair("", query, ticket, score=float(number % 10 == 0))


def quality(name, pairs, model, reranker):
  """Prints the metrics of each search, and their ranges."""
  searched = retrieval.of_pairs(list(pairs))
  texts = [Row(str(n), x, {}) for n, x in enumerate(searched.corpus)]
  print(f"{name}: {len(searched.queries)} queries, {len(texts)} texts")
  values = {}
  with tempfile.TemporaryDirectory() as folder:
    text_index.change(folder, model, texts, has_words=True)
    index = VectorIndex(folder)
    modes = [("dense", None), ("lexical", None), ("hybrid", None)]
    for kind, scorer in [*modes, *[("hybrid", reranker)] * bool(reranker)]:
      searcher = search.Searcher(model, index, scorer, search=kind)
      found = search.evaluate(searcher, searched)
      rows = [retrieval.metrics_of([query]) for query in found]
      mode = f"{kind}, reranked" if scorer else kind
      values[mode] = np.array([[row[m] for m in METRICS] for row in rows])
  draws = np.random.default_rng(0).integers(
    len(searched.queries), size=[SAMPLES, len(searched.queries)]
  )
  for mode, each in values.items():
    for metric, name in enumerate(METRICS):
      column, dense = each[:, metric], values["dense"][:, metric]
      line = f"  {mode}: {name} {_with_range(column, draws)}"
      if mode != "dense":
        line += f"; minus dense {_with_range(column - dense, draws)}"
      print(line, flush=True)


def _with_range(column, draws):
  ends = np.quantile(column[draws].mean(axis=1), [0.025, 0.975])
  return f"{column.mean():.3f} ({ends[0]:.3f} to {ends[1]:.3f})"


def command_seconds(folder, rows):
  """Prints the seconds of a lexical search among texts of random words."""
  model, width = resolve(folder), 384
  words = [p for p in model.tokenizer.vocab if p.isalpha()]
  rng = np.random.default_rng(0)
  weights = 1 / np.arange(1, len(words) + 1)
  drawn = rng.choice(len(words), [rows, 30], p=weights / weights.sum())
  texts = [
    Row(str(n), f"{' '.join(words[i] for i in row)} K-{n}", {})
    for n, row in enumerate(drawn)
  ]
  vectors = rng.standard_normal([rows, width], np.float32)
  with tempfile.TemporaryDirectory() as index:
    with vector_index.locked(index):
      header = Header(folder, "", width)
      change = [header, None, [], [(texts, vectors)], model]
      seconds = machine.timed(lambda: vector_index.update(index, *change))
    print(f"{rows} texts: the index is written in {seconds:.1f} s")
    flags = [f"--index={index}", f"--query=the {words[9]} K-{rows // 2}"]
    flags += ["--search=lexical", "--top_k=1"]
    assert f"K-{rows // 2}" in machine.script("search_texts.py", *flags)

    def command():
      return machine.timed(lambda: machine.script("search_texts.py", *flags))

    machine.in_turns({"lexical, command to hits": command}, 9)


def main(folder, *arguments):
  print(machine.describe(), flush=True)
  given = dict(argument.split("=", 1) for argument in arguments)
  model = bert.load(folder, max_seq_length=256)
  reranker = search.load_reranker(given.pop("reranker", None))
  rows = int(given.pop("rows", 0))
  readers = {"squad": squad, "mrpc": mrpc, "text": text, "tickets": tickets}
  for name, path in given.items():
    quality(name, readers[name](path), model, reranker)
  if rows:
    command_seconds(folder, rows)


if __name__ == "__main__":
  main(*sys.argv[1:])
