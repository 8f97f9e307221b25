"""A number in a cell of a text is what a CSV file says of it."""

import json

import pyarrow
import pytest
from pyarrow import parquet
from table_files import write, write_rows

from bert.errors import UserError
from bert.search import text_index
from bert.tasks.classification.tabular import TableProcessor
from bert.tasks.embeddings import data as text_pairs, retrieval
from bert.tasks.multiple_choice import data as choices

SWAG = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3"]


def _classified(path):
  columns = {"text_a_column": "a", "text_b_column": "b", "label_column": "c"}
  processor = TableProcessor(train_file=path, dev_file=path, **columns)
  (example,) = processor.get_train_examples()
  return [example.text_a, example.text_b, example.label]


def _pairs(path):
  columns = text_pairs.Columns("a", "b", negative_column="c")
  (pair,) = text_pairs.read_pairs(path, columns)
  return [pair.text_a, pair.text_b, *pair.negatives]


def _choices(path):
  (example,) = choices.read_examples(path, False)
  return [example.context, example.question, *example.choices]


def _found(path):
  (row,) = text_index.read_rows(path, "a", "b")
  return [row.text, row.id]


def _retrieved(path):
  folder = path.rpartition("/")[0]
  qrels = f"{folder}/qrels.tsv"
  with open(qrels, "w", encoding="utf-8") as writer:
    writer.write("query-id\tcorpus-id\tscore\n2.5\t2.5\t1\n")
  found = retrieval.read(path, path, qrels)
  return [*found.queries, *found.corpus]


# By the name of a reader: itself, its columns, and what it reads of 5, 2.5, ...
READERS = {
  "classification": (_classified, ["a", "b", "c"], ["5", "2.5", "7"]),
  "embeddings": (_pairs, ["a", "b", "c"], ["5", "2.5", "7"]),
  "multiple choice": (_choices, SWAG, ["5", "2.5", "7", "0", "-1", "x"]),
  "search": (_found, ["a", "b"], ["5", "2.5"]),
  "retrieval": (_retrieved, ["text", "_id"], ["5", "5"]),
}
VALUES = [5, 2.5, 7, 0, -1, "x"]


def write_table(folder, extension, names):
  """A table with one row of VALUES."""
  values = VALUES[: len(names)]
  path = folder / f"x{extension}"
  row = dict(zip(names, values, strict=True))
  if extension == ".parquet":
    parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    return str(path)
  if extension == ".jsonl":
    return write(folder, path.name, json.dumps(row) + "\n")
  return write_rows(folder, path.name, names, [list(map(str, values))])


@pytest.mark.parametrize("extension", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("name", READERS)
def test_numbers_are_texts(tmp_path, name, extension):
  read, names, wanted = READERS[name]
  assert read(write_table(tmp_path, extension, names)) == wanted


@pytest.mark.parametrize("value", ["null", "[5]", "NaN"])
@pytest.mark.parametrize("name", READERS)
def test_others_are_none(tmp_path, name, value):
  read, names, _ = READERS[name]
  row = dict(zip(names, VALUES, strict=False))
  text = json.dumps({**row, names[0]: "?"}).replace('"?"', value)
  with pytest.raises(UserError, match=r"x.jsonl( has no texts|:1)"):
    read(write(tmp_path, "x.jsonl", text + "\n"))
