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
    Pair(f"{path}:2", "Who, then?", "Me.", id="0"),
    Pair(f"{path}:3", "Where?", "Here.", id="1"),
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
  rows = [{"text_a": "a", "text_b": "b", "s": "4.5", "l": "1", "id": "a7"}]
  path = write(tmp_path / "x.tsv", rows)
  for columns, score in (
    (Columns(score_column="s"), 4.5),
    (Columns(label_column="l"), 1.0),
  ):
    assert text_pairs.read_pairs(path, columns)[0].score == score
    (unscored,) = text_pairs.read_pairs(path, columns, "test")
    assert unscored.score is None
    assert unscored.id == "a7"


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
  assert found.left_out == [-1, -1]


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
  assert found.ids == ["q2"]


def test_equal_ids_and_missing_documents(tmp_path, caplog):
  """The query's own document is left out; a missing one counts."""
  corpus = [*CORPUS, {"_id": "q1", "text": "Who?"}]
  named = (("q1", "d1"), ("q1", "d9"), ("q2", "d8"))
  qrels = [{"query-id": q, "corpus-id": d, "score": "1"} for q, d in named]
  found = read(tmp_path, corpus=corpus, qrels=qrels)
  assert found.left_out == [2, -1]
  assert found.relevant == [{0: 1.0, 3: 1.0}, {4: 1.0}]
  path = tmp_path / "qrels.tsv"
  assert f"documents of 2 rows of {path}, which count" in caplog.text
  assert f"the first is {path}:3 ('d9')" in caplog.text


@pytest.mark.parametrize(
  ("changes", "wanted"),
  [
    (
      {"qrels": [{**QRELS[0], "query-id": "x"}]},
      "qrels.tsv:2: .*queries.jsonl has no _id 'x'; correct the row",
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
