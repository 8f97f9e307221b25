"""Finds the texts that are nearest to a query in meaning, in words, or both.

    python search_texts.py --index=/tmp/faq_index --model_dir=/tmp/faq \\
      --input_file=faq.csv --text_column=answer
    python search_texts.py --index=/tmp/faq_index --query="Where is my order?"

The first command writes the vectors of texts to a folder, or adds them to those
in it. The second one searches them. docs/embeddings.md describes the files,
search by words, evaluation, reranking, and how to mine negatives for training.
"""

import functools
import json
import time
from collections.abc import Iterator

from absl import logging

from bert import runtimes
from bert.data import files, progress, text_files
from bert.engine import loaded_model
from bert.errors import plural
from bert.flags import flag_table
from bert.flags.values import COUNT, PATH, SHARE, Flag, Flags, table
from bert.scripts import startup, terminal
from bert.search import hnsw, search, text_index, vector_index
from bert.search.search import Hit, Searcher
from bert.tasks.embeddings import data, retrieval

# What a command does with the index; one of these flags is required.
_ACTIONS = (
  *("query", "query_file", "interactive", "mine_negatives", "queries_file"),
)

# The flags of files to read.
_READ = (
  *("input_file", "query_file", "queries_file", "qrels_file"),
  "mine_negatives",
)

# Queries of a file that are searched together.
_QUERIES = 1024

# fmt: off
FLAGS = table(
  flag_table.model_dir(
    "run_embeddings.py", " Default: the model of the index."
  ),
  flag_table.SEARCH,
  (
    flag_table.THREADS,
    Flag("index", None, "Folder of the vectors, which --input_file writes.",
         kind=PATH),
    Flag("input_file", None,
         "Texts to add: a table (.tsv, .csv, .jsonl, .parquet), or a .txt file "
         "with a text on each line. Rows replace those with their ids; rows "
         "that the index has already are not encoded again.", kind=PATH),
    *flag_table.TABLES,
    Flag("text_column", None, "Column of the text in --input_file. Default: "
         "as the index was made, or text."),
    Flag("id_column", None,
         "Column of the id in --input_file. Default: as the index was made, or "
         "id, if there is such a column; else rows get a hash of their "
         "content."),
    Flag("query", None, "Text to search for."),
    Flag("query_file", None,
         "File with a query on each line; - is standard input.", kind=PATH),
    Flag("interactive", False, "Ask for queries."),
    Flag("queries_file", None,
         "With --qrels_file, queries to evaluate the search with: a table with "
         "the columns _id and text, as in BEIR.", kind=PATH),
    Flag("qrels_file", None,
         "Table with the columns query-id, corpus-id, the id of a row of the "
         "index, and score, greater than 0 for a relevant text.", kind=PATH),
    Flag("top_k", 10, "Number of texts to find for each query.", check=COUNT),
    Flag("candidates", 50,
         "Number of texts that --reranker reorders, or that --mine_negatives "
         "chooses from.", check=COUNT),
    Flag("mine_negatives", None,
         "Table of pairs. They are written to --output_file, each with texts "
         "of the index that are near the first text, but not right, for "
         "run_embeddings.py --negative_column=negative.", kind=PATH),
    Flag("text_a_column", "text_a",
         "Column of the first text in --mine_negatives."),
    Flag("text_b_column", "text_b",
         "Column of the right text in --mine_negatives."),
    Flag("label_column", None,
         "Column in --mine_negatives with 1 if the second text is right, or 0. "
         "Texts with 0 are negatives."),
    Flag("num_negatives", 1, "Number of wrong texts for each pair.",
         check=COUNT),
    Flag("max_negative_share", 0.95,
         "Texts with a larger share of the score of the right text are not "
         "used as negatives, because they may be right, too.", check=SHARE),
    Flag("output_file", None,
         "JSON Lines to write; - is standard output. Default: text on "
         "standard output.", kind=PATH),
    Flag("batch_size", 32, "Texts per batch of the model.", check=COUNT),
    Flag("remove_ids", [], "Ids of rows to remove from the index."),
    Flag("dtype", None,
         "Type of the vectors of a new index. Default: float16, which takes "
         "half of the space.", choices=tuple(vector_index.DTYPES)),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Raises UserError if flags are missing or contradict each other."""
  flags.require("index")
  flags.check_exclusive(*_ACTIONS, "input_file")
  flags.check_exclusive(*_ACTIONS, "remove_ids")
  flags.check_exclusive("mine_negatives", "reranker")
  flags.require_one(*_ACTIONS, "input_file", "remove_ids")
  if flags.queries_file or flags.qrels_file:
    flags.require("queries_file", "qrels_file")
  if flags.search == "lexical" and not flags.input_file:
    flags.warn_if_given("pass --search=hybrid", "ann")
  for name in _READ:
    if flags[name] not in (None, text_files.STREAM):
      flags.require_file(name)
  if flags.mine_negatives:
    flags.require("output_file")
  runtimes.check_runtime(flags.runtime, flags.precision)
  if flags.output_file not in (None, text_files.STREAM):
    read = [flags[name] for name in _READ]
    flags.check_output_files("output_file", [flags.output_file], read)


def write_index(flags: Flags) -> dict[str, int]:
  """Adds and removes rows; returns the numbers of all texts and of new ones."""
  header = vector_index.Header(flags.model_dir, "", 0)
  exists = files.exists(f"{flags.index}/{vector_index.NAME}")
  if exists:
    header = vector_index.VectorIndex(flags.index).header
  text_column = flags.text_column or header.text_column
  if exists and text_column != header.text_column:
    logging.warning(
      "--text_column=%s: %s was made with %s, and keeps those texts unless a "
      "row with the same id replaces them; for other texts only, pass a new "
      "folder",
      text_column,
      flags.index,
      header.text_column,
    )
  rows = []
  if flags.input_file:
    rows = text_index.read_rows(
      flags.input_file,
      text_column,
      flags.id_column,
      flags.delimiter,
      header.id_column,
      flags.encoding,
    )
  if not header.model:
    flags.require("model_dir")
  model = loaded_model.load(
    flags.model_dir or header.model,
    batch_size=flags.batch_size,
    precision=flags.precision,
    runtime=flags.runtime,
  )
  start = time.monotonic()
  with progress.bar(total=len(rows), unit="text") as bar:
    encoded, total = text_index.change(
      flags.index,
      model,
      rows,
      flags.remove_ids,
      flags.dtype,
      bar.update,
      flags.search != "dense",
      text_column=text_column,
      id_column=flags.id_column or header.id_column,
    )
  logging.info(
    "%s has %s; encoded %d in %.1f s",
    flags.index,
    plural(total, "text"),
    encoded,
    time.monotonic() - start,
  )
  if flags.ann:
    hnsw.Graphs(vector_index.VectorIndex(flags.index))
  return {"texts": total, "encoded": encoded}


def queries(flags: Flags, searcher: Searcher) -> Iterator[list[str]]:
  """Yields lists of queries as they arrive."""
  if flags.query:
    yield [searcher.check_query(flags.query, "--query")]
    return
  with text_files.open_input(flags.query_file) as (reader, name):
    for lines in text_files.lines_as_they_come(reader, name, _QUERIES):
      yield [searcher.check_query(text, where) for where, text in lines]


def describe(flags: Flags, query: str, hits: list[Hit]) -> str:
  """The hits of a query, for the terminal."""
  lines = [query] if flags.query_file else []
  for hit in hits:
    lines.append(f"{hit.score:7.4f}  {hit.row.text}")
    fields = hit.row.fields
    if text_index.has_own_id(hit.row):
      fields = {"id": hit.row.id, **fields}
    lines += [f"{'':9}{name}: {v}" for name, v in fields.items()]
  return "\n".join(lines if hits else [*lines, "no hits"])


def to_json(query: str, hits: list[Hit]) -> str:
  """The hits of a query as a line of JSON."""
  fields = {"query": query, "hits": [hit.to_dict() for hit in hits]}
  return json.dumps(fields, ensure_ascii=False)


def mine(flags: Flags, searcher: Searcher) -> dict[str, int]:
  """Writes pairs with negatives to --output_file; returns their numbers."""
  columns = data.Columns(
    flags.text_a_column,
    flags.text_b_column,
    label_column=flags.label_column,
    **{row.name: flags[row.name] for row in flag_table.TABLES},
  )
  pairs = data.read_pairs(flags.mine_negatives, columns, "dev")
  data.check_has_right(pairs, flags.mine_negatives)
  mined = search.mine_negatives(
    searcher,
    pairs,
    flags.num_negatives,
    flags.candidates,
    flags.max_negative_share,
  )
  num_right, count = sum(pair.score != 0 for pair in pairs), 0
  with (
    text_files.line_writer(flags.output_file) as write,
    progress.bar(mined, total=num_right) as bar,
  ):
    for first, second, negatives in bar:
      count += len(negatives)
      row = {columns.text_a_column: first, columns.text_b_column: second}
      row["negative"] = negatives
      write(json.dumps(row, ensure_ascii=False))
  logging.info(
    "%s: %s with %s",
    flags.output_file,
    plural(num_right, "pair"),
    plural(count, "negative"),
  )
  return {"pairs": num_right, "negatives": count}


def evaluate(flags: Flags, searcher: Searcher) -> dict[str, float]:
  """Prints the metrics of the search; --output_file has them as JSON."""
  rows = (row for block in searcher.index.blocks for row in block.rows())
  corpus = {row.id: row.text for row in rows}
  files_read = flags.queries_file, flags.qrels_file
  searched = retrieval.judged(*files_read, corpus, flags.index)
  queries = search.evaluate(searcher, searched)
  count = len(searched.queries)
  with progress.bar(queries, total=count, unit="query") as bar:
    results = {"queries": count, **retrieval.metrics_of(list(bar))}
  with text_files.line_writer(flags.output_file) as write:
    if flags.output_file:
      write(json.dumps({"search": flags.search, **results}))
  if flags.output_file != text_files.STREAM:
    for name, value in results.items():
      print(f"{name} = {value:.8g}")
  return results


def main(flags: Flags) -> dict[str, float]:
  check_flags(flags)
  if flags.input_file or flags.remove_ids:
    return write_index(flags)
  searcher = search.load_searcher(
    flags.index,
    flags.model_dir,
    candidates=flags.candidates,
    batch_size=flags.batch_size,
    needs_model=bool(flags.mine_negatives),
    **{row.name: flags[row.name] for row in flag_table.SEARCH},
  )
  if flags.mine_negatives:
    return mine(flags, searcher)
  if flags.queries_file:
    return evaluate(flags, searcher)
  if flags.interactive:

    def respond(query):
      searcher.check_query(query, "the query")
      return describe(flags, query, *searcher([query], flags.top_k))

    terminal.ask_until_end(["> "], respond)
    return {}
  form = functools.partial(describe, flags)
  if flags.output_file:
    form = to_json
  count = 0
  with text_files.line_writer(flags.output_file) as write:
    for group in queries(flags, searcher):
      for query, hits in zip(group, searcher(group, flags.top_k), strict=True):
        write(form(query, hits))
        count += 1
  return {"queries": count}


run, command = startup.script(main, FLAGS)
