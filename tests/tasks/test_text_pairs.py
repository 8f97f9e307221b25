"""Pairs and retrieval sets are read as written; wrong ones are named."""

import gzip
import json

import pytest

from bert.errors import UserError
from bert.tasks.embeddings import data as text_pairs, retrieval
from bert.tasks.embeddings.data import Columns, Pair


def write(path, rows):
  """JSON Lines, or TSV by the extension."""
  if path.suffix == ".jsonl":
    lines = map(json.dumps, rows)
  else:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
  path.write_text("".join(f"{line}\n" for line in lines))
  return str(path)


def test_pairs_of_two_columns(tmp_path):
  path = tmp_path / "x.csv.gz"
  path.write_bytes(gzip.compress(b'q,a\n"Who, then?",Me.\nWhere?,Here.\n'))
  assert text_pairs.read_pairs(str(path), Columns("q", "a")) == [
    Pair(f"{path}:2", "Who, then?", "Me."),
    Pair(f"{path}:3", "Where?", "Here."),
  ]
  path.write_bytes(gzip.compress("q,a\nDüne?,Ja.\n".encode("cp1252")))
  columns = Columns("q", "a", encoding="cp1252")
  assert text_pairs.read_pairs(str(path), columns)[0].text_a == "Düne?"


def test_hard_negatives(tmp_path):
  """Of several columns, or in lists; some may be missing."""
  columns = Columns(negative_column="n,m")
  rows = [
    {"text_a": "a", "text_b": "b", "n": "c", "m": "d"},
    {"text_a": "a", "text_b": "b", "n": "", "m": "d"},
  ]
  found = text_pairs.read_pairs(write(tmp_path / "x.tsv", rows), columns)
  assert [pair.negatives for pair in found] == [("c", "d"), ("d",)]
  path = write(tmp_path / "dev.tsv", [{"text_a": "a", "text_b": "b"}])
  (pair,) = text_pairs.read_pairs(path, columns, "dev")
  assert pair.negatives == ()
  rows = [
    {"text_a": "a", "text_b": "b", "n": ["c", "d"], "m": "e"},
    {"text_a": "a", "text_b": "b", "n": []},
  ]
  found = text_pairs.read_pairs(write(tmp_path / "x.jsonl", rows), columns)
  assert [pair.negatives for pair in found] == [("c", "d", "e"), ()]


def test_scores_and_labels(tmp_path):
  rows = [{"text_a": "a", "text_b": "b", "s": "4.5", "l": "1"}]
  path = write(tmp_path / "x.tsv", rows)
  for columns, score in (
    (Columns(score_column="s"), 4.5),
    (Columns(label_column="l"), 1.0),
  ):
    assert text_pairs.read_pairs(path, columns)[0].score == score
    (unscored,) = text_pairs.read_pairs(path, columns, "test")
    assert unscored.score is None


@pytest.mark.parametrize(
  ("row", "columns", "wanted"),
  [
    ({"text_b": " "}, {}, "x.jsonl:2: --text_b_column=text_b is ' '; pass a"),
    ({"text_a": None}, {}, "x.jsonl:2: --text_a_column=text_a is missing; p"),
    (
      {"text_a": [3]},
      {},
      r"x.jsonl:2: --text_a_column=text_a is \[3\]; pass a",
    ),
    ({}, {"text_a_column": "q"}, "--text_a_column=q: .* has no such column"),
    ({}, {"negative_column": "n,m"}, "--negative_column=m: .* no such column"),
    ({"s": "high"}, {"score_column": "s"}, "x.jsonl:2: --score_column=s is"),
    ({"s": "nan"}, {"score_column": "s"}, "'nan'; pass a number"),
    ({"s": 0.5}, {"label_column": "s"}, "--label_column=s is 0.5; pass 0 or 1"),
    ({"n": {}}, {"negative_column": "n"}, "--negative_column=n is {}; pass a"),
  ],
)
def test_wrong_rows_are_named(tmp_path, row, columns, wanted):
  right = {"text_a": "a", "text_b": "b", "s": 1, "n": "c"}
  path = write(tmp_path / "x.jsonl", [right, {**right, **row}])
  with pytest.raises(UserError, match=wanted):
    text_pairs.read_pairs(path, Columns(**columns))


def test_the_corpus_of_pairs_is_their_second_texts():
  pairs = [
    Pair("", "q", "x"),
    Pair("", "r", "y", score=1.0),
    Pair("", "q", "y"),
    Pair("", "s", "z", score=0.0),  # Only a document.
  ]
  found = retrieval.of_pairs(pairs)
  assert found.queries == ["q", "r"]
  assert found.corpus == ["x", "y", "z"]
  assert found.relevant == [{0: 1.0, 1: 1.0}, {1: 1.0}]


QUERIES = [{"_id": "q1", "text": "Who?"}, {"_id": "q2", "text": "Where?"}]
CORPUS = [
  {"_id": "d1", "title": "", "text": "Me."},
  {"_id": "d2", "title": "Map", "text": "Here."},
]
QRELS = [
  {"query-id": "q2", "corpus-id": "d2", "score": "2"},
  {"query-id": "q2", "corpus-id": "d1", "score": "0"},
]


def read(folder, queries=QUERIES, corpus=CORPUS, qrels=QRELS):
  return retrieval.read(
    write(folder / "queries.jsonl", queries),
    write(folder / "corpus.jsonl", corpus),
    write(folder / "qrels.tsv", qrels),
  )


def test_the_layout_of_beir(tmp_path):
  found = read(tmp_path)
  assert found.queries == ["Where?"]  # The other has no relevant document.
  assert found.corpus == ["Me.", "Map Here."]
  assert found.relevant == [{1: 2.0}]


@pytest.mark.parametrize(
  ("changes", "wanted"),
  [
    (
      {"qrels": [{**QRELS[0], "corpus-id": "d9"}]},
      "qrels.tsv:2: .*corpus.jsonl has no _id 'd9'; correct the row",
    ),
    (
      {"qrels": [{**QRELS[0], "query-id": "x"}]},
      "queries.jsonl has no _id 'x'",
    ),
    (
      {"qrels": [{"query-id": "q", "score": "1"}]},
      "qrels.tsv needs a column 'corpus-id'; its col.*; rename the column",
    ),
    ({"qrels": QRELS[1:]}, "qrels.tsv has no row with a score abo"),
    ({"corpus": [CORPUS[0], CORPUS[0]]}, "corpus.jsonl:2: the id 'd1' is al"),
    ({"corpus": [{"_id": "d1", "text": ""}]}, "corpus.jsonl:1: text is ''"),
    (
      {"queries": [{"id": "q1", "text": "a"}]},
      "queries.jsonl needs a column '_id'; .* 'id', 'text'; rename the column$",
    ),
  ],
)
def test_wrong_retrieval_files_are_named(tmp_path, changes, wanted):
  with pytest.raises(UserError, match=wanted):
    read(tmp_path, **changes)
