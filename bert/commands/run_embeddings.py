"""Trains vectors of texts, so that close meanings have close vectors.

    python run_embeddings.py --do_train=true --do_eval=true \\
      --train_file=faq_train.csv --dev_file=faq_dev.csv \\
      --text_a_column=question --text_b_column=answer \\
      --init_checkpoint=$BERT_BASE_DIR --output_dir=/tmp/faq_output

Each row is a pair of texts with a close meaning, or of a query and a document
that answers it. The trained model is used by extract_features.py,
search_texts.py, serve.py and bert.load.
"""

from bert.flags import flag_table
from bert.flags.flag_table import wanted_splits
from bert.flags.values import PATH, POSITIVE, Check, Flag, Flags, table
from bert.scripts import script, startup
from bert.scripts.experiment import Experiment
from bert.scripts.settings import check_fine_tuning, load_model
from bert.tasks.embeddings import losses, retrieval
from bert.tasks.embeddings.task import EmbeddingTask
from bert.tasks.embeddings.vectors import VectorTask

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len")

_TABLE = ".tsv, .csv or .jsonl, each also with .gz, or .parquet."
_SIZES = Check(
  "whole numbers, such as 384,192",
  lambda sizes: all(str(size).isdecimal() for size in sizes),
)

# fmt: off
FLAGS = table(
  flag_table.fine_tuning(
    "mrr_at_10 or spearman", "mrr_at_10, or to spearman for pairs with scores"
  ),
  (
    flag_table.TEACHER.but(
      help="A trained model of vectors of any size. The student also learns "
      "how similar the teacher's vectors of the texts of a batch are."),
    Flag("train_file", None, f"Pairs to train on: {_TABLE}", used="train",
         kind=PATH),
    Flag("dev_file", None, f"Pairs to evaluate on: {_TABLE}", used="dev",
         kind=PATH),
    Flag("test_file", None, "Pairs whose similarity is predicted.",
         used="test", kind=PATH),
    Flag("text_a_column", "text_a", "Column of the text, or query."),
    Flag("text_b_column", "text_b", "Column of its partner, or document."),
    Flag("negative_column", None,
         "Columns with texts that look like partners but are not (hard "
         "negatives), separated by commas. In JSON Lines a value may be a "
         "list.", used="train"),
    Flag("score_column", None,
         "Column with a number: how close the texts are."),
    Flag("label_column", None,
         "Column with 1 for texts that are close, else 0."),
    Flag("header", True, "Whether .tsv and .csv files name their columns."),
    *flag_table.TABLES,
    Flag("queries_file", None,
         "With --corpus_file and --qrels_file, what to evaluate on instead of "
         "--dev_file, as in BEIR: a table of queries, with _id and text.",
         used="dev", kind=PATH),
    Flag("corpus_file", None,
         "Table of documents, with _id, text, perhaps title.", used="dev",
         kind=PATH),
    Flag("qrels_file", None,
         "Table of relevant documents, with query-id, corpus-id and score.",
         used="dev", kind=PATH),
    Flag("loss", None,
         "ranking: each text A must find its text B among those of the whole "
         "batch and the hard negatives. cosine: the cosine must be the score, "
         "from 0 to 1. cosent: pairs with a higher score must have a higher "
         "cosine. Default: cosent with --score_column, else ranking.",
         choices=losses.LOSSES, used="train"),
    Flag("scale", 20.0,
         "Factor of the cosines before the softmax of --loss=ranking, and in "
         "cosent.", check=POSITIVE, used="train"),
    Flag("both_directions", False,
         "With --loss=ranking, text B must find text A among all texts A, "
         "too.", used="train"),
    Flag("dimensions", [],
         "Sizes, such as 384,192,96, to which vectors may be cut afterwards: "
         "the loss is the mean over these.", check=_SIZES),
    Flag("pooling", None,
         "How to make the vector of a text from those of its word pieces. "
         "Default: as in the initial model, or else mean.", choices=POOLINGS,
         fixed_by="task"),
    Flag("normalize", None,
         "Scale vectors to length 1. Default: as in the initial model, or "
         "else true.", kind=bool, fixed_by="task"),
    Flag("query_prompt", None,
         "Text to put before each text A, such as 'query: '. Default: that of "
         "the initial model, if it has one.", fixed_by="task"),
    Flag("document_prompt", None,
         "Text to put before each text B and negative.", fixed_by="task"),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks the flags that do not depend on files."""
  check_fine_tuning(flags, [])
  flags.check_exclusive("score_column", "label_column")
  searches = any(flags[name] for name in retrieval.FILES)
  for split in wanted_splits(flags):
    names = [f"{split}_file"]
    if split == "dev" and searches:
      flags.check_exclusive("dev_file", "qrels_file")
      names = retrieval.FILES
    flags.require(*names)
    for name in names:
      flags.require_file(name)


def plan(flags: Flags) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  model = load_model(flags)
  task = EmbeddingTask.from_flags(flags, model)
  return script.experiment(flags, task, model, loss=task.training.loss)


def main(flags: Flags) -> dict[str, float] | list[dict]:
  check_flags(flags)
  flags = script.with_initial_defaults(flags, VectorTask)
  return script.run_seeds(flags, plan)


run, command = startup.script(main, FLAGS)
