"""Trains vectors of texts, so that close meanings have close vectors.

    python run_embeddings.py --do_train=true --do_eval=true \\
      --train_file=faq_train.csv --dev_file=faq_dev.csv \\
      --text_a_column=question --text_b_column=answer \\
      --init_checkpoint=$BERT_BASE_DIR --output_dir=/tmp/faq_output

Each row is a pair of texts with a close meaning, or of a query and a document
that answers it. The trained model is used by extract_features.py,
search_texts.py, serve.py and bert.load.
"""

import dataclasses

from absl import flags

from bert.errors import UserError
from bert.tasks import embedding_losses, embeddings, retrieval, text_pairs
from bert.tasks.features import VectorSettings, VectorTask
from bert.training import (
  common_flags,
  flag_checks,
  model_flags,
  startup,
  task_file,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import Settings, find_weights

FLAGS = flags.FLAGS

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len")

_TABLE = ".tsv, .csv or .jsonl, each also with .gz."

# Flag, default, help.
_FLAGS = (
  ("train_file", None, f"Pairs to train on: {_TABLE}"),
  ("dev_file", None, f"Pairs to evaluate on: {_TABLE}"),
  ("test_file", None, "Pairs whose similarity is predicted."),
  ("text_a_column", "text_a", "Column of the text, or query."),
  ("text_b_column", "text_b", "Column of its partner, or document."),
  (
    "negative_column",
    None,
    "Columns with texts that look like partners and are none (hard negatives), "
    "separated by commas. In JSON Lines a value may be a list.",
  ),
  ("score_column", None, "Column with a number: how close the texts are."),
  ("label_column", None, "Column with 1 for texts that are close, else 0."),
  ("header", True, "Whether .tsv and .csv files name their columns."),
  (
    "queries_file",
    None,
    "With --corpus_file and --qrels_file, what to evaluate on instead of "
    "--dev_file, as in BEIR: a table of queries, with _id and text.",
  ),
  ("corpus_file", None, "Table of documents, with _id, text, perhaps title."),
  (
    "qrels_file",
    None,
    "Table of relevant documents, with query-id, corpus-id and score.",
  ),
  (
    "scale",
    20.0,
    "Factor of the cosines before the softmax of --loss=ranking, or in cosent.",
  ),
  (
    "both_directions",
    False,
    "With --loss=ranking, text B must find text A among all texts A, too.",
  ),
  (
    "query_prompt",
    None,
    "Text to put before each text A, such as 'query: '. Default: that of the "
    "initial model, if it has one.",
  ),
  ("document_prompt", None, "Text to put before each text B and negative."),
)

_RETRIEVAL = ("queries_file", "corpus_file", "qrels_file")


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(128)
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags(
    "mrr_at_10 or spearman", "mrr_at_10, or to spearman for pairs with scores"
  )
  common_flags.define_device_flags()
  common_flags.define_from_table(_FLAGS)
  flags.DEFINE_enum(
    "loss",
    None,
    embedding_losses.LOSSES,
    "ranking: each text A must find its text B among those of the whole batch "
    "and the hard negatives. cosine: the cosine must be the score, from 0 to "
    "1. cosent: pairs with a higher score must have a higher cosine. Default: "
    "cosent with --score_column, else ranking.",
  )
  flags.DEFINE_list(
    "dimensions",
    [],
    "Sizes, such as 384,192,96, to which vectors may be cut afterwards: the "
    "loss is the mean over these.",
  )
  flags.DEFINE_enum(
    "pooling",
    None,
    POOLINGS,
    "How the vector of a text is made of those of its word pieces. Default: "
    "as in the initial model, or else mean.",
  )
  flags.DEFINE_bool(
    "normalize",
    None,
    "Scale vectors to length 1. Default: as in the initial model, or else "
    "true.",
  )


def check_flags() -> None:
  """Checks the flags that do not depend on files.

  Raises:
    UserError: a flag is missing or wrong.
  """
  flag_checks.check_fine_tuning_flags()
  flag_checks.check_exclusive("score_column", "label_column")
  flag_checks.require_positive("scale")
  given = [name for name in _RETRIEVAL if FLAGS[name].value]
  splits = flag_checks.wanted_splits()
  for split in splits:
    if split == "dev" and given:
      flag_checks.require(*_RETRIEVAL)
      flag_checks.check_exclusive("dev_file", "qrels_file")
    names = given if split == "dev" and given else [f"{split}_file"]
    flag_checks.require(*names)
    for name in names:
      flag_checks.require_file(name)
  if FLAGS.loss not in (None, "ranking"):
    flag_checks.warn_of_unused("pass --loss=ranking", "both_directions")


def read_training() -> embedding_losses.Training:
  """How to train, by the flags.

  Raises:
    UserError: --dimensions has no whole numbers.
  """
  loss = FLAGS.loss or ("cosent" if FLAGS.score_column else "ranking")
  try:
    dimensions = tuple(map(int, FLAGS.dimensions))
  except ValueError as error:
    raise UserError(
      f"--dimensions={','.join(FLAGS.dimensions)} is not a list of whole "
      f"numbers, such as 384,192"
    ) from error
  return embedding_losses.Training(
    loss, FLAGS.scale, FLAGS.both_directions, dimensions
  )


def read_settings(folder: str | None) -> VectorSettings:
  """The settings by the flags, and otherwise by the model in a folder."""
  trained = task_file.load(VectorTask, folder, is_required=False)
  is_recorded = folder and task_file.read(folder)[0] == VectorTask.kind
  if not is_recorded:
    trained = dataclasses.replace(trained, pooling="mean", normalize=True)
  given = {
    name: FLAGS[name].value
    for name in ("max_seq_length", "pooling", "normalize")
    if FLAGS[name].present and FLAGS[name].value is not None
  }
  prompts = dict(trained.prompts)
  for name in ("query", "document"):
    text = FLAGS[f"{name}_prompt"].value
    if text is not None:
      prompts[name] = text
  used = tuple((name, text) for name, text in prompts.items() if text)
  return dataclasses.replace(trained, prompts=used, **given)


def make_experiment() -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint, folder = find_weights()
  settings = read_settings(folder)
  tokenizer = model_flags.load_tokenizer()
  config = model_flags.load_config(tokenizer, settings.max_seq_length)
  names = (field.name for field in dataclasses.fields(text_pairs.Columns))
  columns = text_pairs.Columns(**{name: FLAGS[name].value for name in names})
  splits = flag_checks.wanted_splits()
  paths = {split: FLAGS[f"{split}_file"].value for split in splits}
  paths = {split: path for split, path in paths.items() if path}
  pairs = {
    split: text_pairs.read_pairs(path, columns, is_scored=split != "test")
    for split, path in paths.items()
  }
  training = read_training()
  if "train" in pairs:
    embedding_losses.check(training, pairs["train"], config.hidden_size)
  searched = None
  if "dev" in splits and "dev" not in pairs:
    searched = retrieval.read(*(FLAGS[n].value for n in _RETRIEVAL))
    paths["dev"] = FLAGS.qrels_file
  task = embeddings.EmbeddingTask(
    settings, tokenizer, pairs, searched, training, paths
  )
  run_settings = Settings.from_flags(
    splits,
    init_checkpoint=init_checkpoint,
    max_seq_length=settings.max_seq_length,
    loss=training.loss,
    pooling=settings.pooling,
    normalize=settings.normalize,
  )
  model = ModelFiles(config, model_flags.release_files(config))
  return Experiment(task, model, run_settings)


def main() -> None:
  check_flags()
  make_experiment().run()


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
