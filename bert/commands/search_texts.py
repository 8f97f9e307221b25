"""Finds the texts that are nearest in meaning to a query.

    python search_texts.py --index=/tmp/faq_index --model_dir=/tmp/faq \\
      --input_file=faq.csv --text_column=answer
    python search_texts.py --index=/tmp/faq_index --query="Where is my order?"

The first command writes the vectors of texts to a folder, or adds them to those
that are there. The second one searches them. docs/embeddings.md describes the
files, reranking, and how to mine negatives for training.
"""

import contextlib
import functools
import json
import time
from collections.abc import Iterator

from absl import flags, logging

from bert.errors import UserError, plural
from bert.data import files, hnsw, progress, text_files, vector_index
from bert.tasks import loaded_model, search, terminal
from bert.tasks.search import Hit, Searcher
from bert.training import common_flags, flag_checks, runtimes, startup

FLAGS = flags.FLAGS

# What a command does with the index; one of these flags is required.
_ACTIONS = ("query", "query_file", "interactive", "mine_negatives")

# Queries of a file that are searched together.
_QUERIES = 1024

_FLAGS = (
  ("index", None, "Folder of the vectors, which --input_file writes."),
  (
    "input_file",
    None,
    "Texts to add: a table (.tsv, .csv, .jsonl, each also with .gz), or any "
    "other file with a text on each line. Rows replace those with their ids; "
    "texts that the index has already are not encoded again.",
  ),
  ("text_column", "text", "Column of the text in --input_file."),
  (
    "id_column",
    None,
    "Column of the id in --input_file. Default: id, if there is one; else rows "
    "get a hash of their content.",
  ),
  ("query", None, "Text to search for."),
  ("query_file", None, "File with a query on each line; - is standard input."),
  ("interactive", False, "Ask for queries."),
  ("top_k", 10, "Number of texts to find for each query."),
  (
    "reranker",
    None,
    "Folder of a classifier or regression of pairs, such as a cross-encoder, "
    "that reorders the texts.",
  ),
  (
    "relevant_label",
    None,
    "Label that the reranker gives to matching pairs. Default: the second of "
    "two.",
  ),
  (
    "candidates",
    50,
    "Number of texts that --reranker reorders, or that --mine_negatives "
    "chooses from.",
  ),
  (
    "mine_negatives",
    None,
    "Table of pairs. For each pair, texts of the index that are near the first "
    "text, but not right, are written to --output_file, for training.",
  ),
  ("text_a_column", "text_a", "Column of the first text in --mine_negatives."),
  ("text_b_column", "text_b", "Column of the right text in --mine_negatives."),
  ("num_negatives", 1, "Number of wrong texts for each pair."),
  (
    "max_negative_share",
    0.95,
    "Texts with a larger share of the score of the right text are not used as "
    "negatives, as they may be right, too.",
  ),
  (
    "output_file",
    None,
    "JSON Lines to write; - is standard output. Default: text on standard "
    "output.",
  ),
  ("batch_size", 32, "Texts per batch of the model."),
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_dir_flag(
    "run_embeddings.py", " Default: the model of the index."
  )
  common_flags.define_runtime_flag()
  common_flags.define_from_table(_FLAGS)
  flags.DEFINE_list("remove_ids", [], "Ids of rows to remove from the index.")
  flags.DEFINE_enum(
    "dtype",
    None,
    vector_index.DTYPES,
    "Type of the vectors of a new index. Default: float16, which takes half of "
    "the space.",
  )
  flags.DEFINE_enum(
    "ann",
    None,
    ["hnsw"],
    "Search approximately, by graphs, which are made once. For millions of "
    "texts.",
  )
  flags.DEFINE_enum(
    "precision",
    None,
    runtimes.PRECISIONS,
    "Precision of the layers. Default: float32, or as --runtime says.",
  )


def check_flags() -> None:
  """Raises UserError if flags are missing or contradict each other."""
  flag_checks.require("index")
  flag_checks.check_exclusive(*_ACTIONS, "input_file")
  flag_checks.check_exclusive(*_ACTIONS, "remove_ids")
  if FLAGS.query is not None and not FLAGS.query.strip():
    raise UserError("--query is empty; pass a text")
  if not any(FLAGS[n].value for n in (*_ACTIONS, "input_file", "remove_ids")):
    raise UserError(
      "nothing to do; pass --query, --query_file or --interactive, or "
      "--input_file to write an index"
    )
  for name in ("input_file", "query_file", "mine_negatives"):
    if FLAGS[name].value not in (None, text_files.STREAM):
      flag_checks.require_file(name)
  if FLAGS.mine_negatives:
    flag_checks.require("output_file")
    if FLAGS.reranker:
      raise UserError("--reranker has no effect on --mine_negatives; omit it")
  if not 0 < FLAGS.max_negative_share <= 1:
    raise UserError(
      f"--max_negative_share={FLAGS.max_negative_share} is not between 0 and 1"
    )
  runtimes.check_runtime(FLAGS.runtime, FLAGS.precision)
  if FLAGS.output_file in (None, text_files.STREAM):
    flag_checks.check_standard_output()
  else:
    read = [FLAGS.input_file, FLAGS.query_file, FLAGS.mine_negatives]
    flag_checks.check_output_files("output_file", [FLAGS.output_file], read)


def _options():
  """Options of `loaded_model.load`."""
  names = ("batch_size", "precision", "runtime")
  return {name: FLAGS[name].value for name in names}


def write_index() -> None:
  """Adds and removes rows."""
  rows = []
  if FLAGS.input_file:
    rows = search.read_rows(
      FLAGS.input_file, FLAGS.text_column, FLAGS.id_column
    )
  model_dir = FLAGS.model_dir
  if not model_dir:
    if not files.exists(f"{FLAGS.index}/{vector_index.NAME}"):
      flag_checks.require("model_dir")
    model_dir = vector_index.VectorIndex(FLAGS.index).header.model
  model = loaded_model.load(model_dir, **_options())
  start = time.monotonic()
  with progress.bar(total=len(rows), unit="text") as bar:
    encoded, total = search.change(
      FLAGS.index, model, rows, FLAGS.remove_ids, FLAGS.dtype, bar.update
    )
  logging.info(
    "%s has %s; %d were encoded in %.1f s",
    FLAGS.index,
    plural(total, "text"),
    encoded,
    time.monotonic() - start,
  )
  if FLAGS.ann:
    hnsw.Graphs(vector_index.VectorIndex(FLAGS.index))


def queries(searcher: Searcher) -> Iterator[list[str]]:
  """Yields lists of queries as they arrive.

  Raises:
    UserError: a query has no words.
  """
  if FLAGS.query:
    yield [search.check_query(searcher.model, FLAGS.query, "--query")]
    return
  with text_files.open_input(FLAGS.query_file) as (reader, name):
    for lines in text_files.lines_as_they_come(reader, name, _QUERIES):
      yield [
        search.check_query(searcher.model, text, where) for where, text in lines
      ]


def describe(query: str, hits: list[Hit]) -> str:
  """The hits of a query, for the terminal."""
  lines = [query] if FLAGS.query_file else []
  for hit in hits:
    lines.append(f"{hit.score:7.4f}  {hit.row.text}")
    lines += [f"{'':9}{name}: {v}" for name, v in hit.row.fields.items()]
  return "\n".join(lines)


def to_json(query: str, hits: list[Hit]) -> str:
  """The hits of a query as a line of JSON."""
  found = {"query": query, "hits": [hit.to_dict() for hit in hits]}
  return json.dumps(found, ensure_ascii=False)


def converse(searcher: Searcher) -> None:
  """Asks for queries until there are no more."""
  while True:
    try:
      query = terminal.ask("> ")
    except EOFError:
      print()  # The shell's prompt starts on a new line.
      return
    if query.strip():
      try:
        search.check_query(searcher.model, query, "the query")
        print(describe(query, *searcher([query], FLAGS.top_k)))
      except UserError as error:
        print(f"error: {error}")


@contextlib.contextmanager
def open_output():
  """Yields a function that writes a line to --output_file."""
  if FLAGS.output_file in (None, text_files.STREAM):
    # Whoever sends queries through a pipe may wait for each answer.
    yield functools.partial(print, flush=True)
    return
  with files.open_atomic(FLAGS.output_file, "w") as writer:
    yield lambda line: writer.write(line + "\n")


def mine(searcher: Searcher) -> None:
  """Writes pairs with negatives to --output_file."""
  pairs = search.read_pairs(
    FLAGS.mine_negatives, FLAGS.text_a_column, FLAGS.text_b_column
  )
  mined = search.mine_negatives(
    searcher,
    pairs,
    FLAGS.num_negatives,
    FLAGS.candidates,
    FLAGS.max_negative_share,
  )
  count = rows = 0
  with open_output() as write, progress.bar(mined, total=len(pairs)) as bar:
    for first, second, negatives in bar:
      count += bool(negatives)
      for negative in negatives:
        row = {"text_a": first, "text_b": second, "negative": negative}
        write(json.dumps(row, ensure_ascii=False))
        rows += 1
  logging.info(
    "%s: %s for %d of %s; the others have no text near enough",
    FLAGS.output_file,
    plural(rows, "negative"),
    count,
    plural(len(pairs), "pair"),
  )


def main() -> None:
  check_flags()
  if FLAGS.input_file or FLAGS.remove_ids:
    write_index()
    return
  searcher = search.load_searcher(
    FLAGS.index,
    FLAGS.model_dir,
    FLAGS.ann,
    FLAGS.reranker,
    FLAGS.relevant_label,
    FLAGS.candidates,
    **_options(),
  )
  if FLAGS.interactive:
    converse(searcher)
  elif FLAGS.mine_negatives:
    mine(searcher)
  else:
    form = to_json if FLAGS.output_file else describe
    with open_output() as write:
      for group in queries(searcher):
        for query, hits in zip(
          group, searcher(group, FLAGS.top_k), strict=True
        ):
          write(form(query, hits))


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
