"""Fine-tunes BERT on a classification task, evaluates it, and predicts.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
      --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/mrpc_output/
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import modeling
import optimization
import tokenization  # noqa: F401  Users read `run_classifier.tokenization`.
from bert.contract import batch_means, ops
from bert.engine import inputs
from bert.engine.programs import ModelFn
from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import FRACTION, PATH, Flag, Flags, table
from bert.models import checkpoints, run_weights
from bert.scripts import script, startup
from bert.scripts.experiment import Experiment
from bert.scripts.run_one import run_one
from bert.scripts.settings import check_fine_tuning, load_model_of
from bert.tasks.classification import few_shot, prediction_files, runs
from bert.tasks.classification.examples import (
  LONG_TEXT,
  DataProcessor,
  InputExample,
  InputFeatures,
  PaddingInputExample,
  convert_examples_to_features,
  convert_single_example,
  feature_row,
  feature_spec,
  file_based_convert_examples_to_features,
)
from bert.tasks.classification.glue import (
  PROCESSORS,
  XNLI_LANGUAGES,
  ColaProcessor,
  MnliProcessor,
  MrpcProcessor,
  XnliProcessor,
)
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)
from bert.training.model_fn import ModelOptions, build_model_fn

if TYPE_CHECKING:
  import tensorflow as tf

# The original's names, including those from `bert.tasks.classification`.
__all__ = [
  "LONG_TEXT", "PROCESSORS", "ColaProcessor", "DataProcessor", "InputExample",
  "InputFeatures", "MnliProcessor", "MrpcProcessor",
  "PaddingInputExample", "XnliProcessor", "convert_examples_to_features",
  "convert_single_example", "create_model",
  "file_based_convert_examples_to_features", "file_based_input_fn_builder",
  "input_fn_builder", "model_fn_builder",
]  # fmt: skip


def file_based_input_fn_builder(
  input_file: str | Sequence[str],
  seq_length: int,
  is_training: bool,
  drop_remainder: bool,
) -> inputs.InputFn:
  """An `input_fn` over the rows of files. Evaluations read all S positions."""
  spec = feature_spec(seq_length)
  return inputs.input_fn_from_file(
    input_file, spec, is_training, drop_remainder
  )


def input_fn_builder(
  features: Iterable[InputFeatures],
  seq_length: int,
  is_training: bool,
  drop_remainder: bool,
) -> inputs.InputFn:
  """Like `file_based_input_fn_builder`, for a list of InputFeatures."""
  rows = inputs.Rows(map(feature_row, features), feature_spec(seq_length))
  return inputs.input_fn_from_rows(rows, is_training, drop_remainder)


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  labels: tf.Tensor,
  num_labels: int,
  use_one_hot_embeddings: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns loss, per_example_loss [B], and logits and probabilities [B, C]."""
  task = _softmax_task(num_labels)
  sequences = input_ids, input_mask, segment_ids
  bert = modeling.BertModel(
    bert_config, is_training, *sequences, use_one_hot_embeddings
  )
  outputs = task.head(ops.TensorOps(is_training), bert, {})
  losses = task.loss(outputs, {"label_ids": labels})
  loss = batch_means.mean(batch_means.terms(losses))
  return loss, losses, outputs["logits"], outputs["probabilities"]


def model_fn_builder(
  bert_config: modeling.BertConfig,
  num_labels: int,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
) -> ModelFn:
  """The `model_fn` of a classifier. `use_tpu` is ignored."""
  del use_tpu
  return build_model_fn(
    _softmax_task(num_labels),
    bert_config,
    init_checkpoint,
    optimization.Optimization(learning_rate, num_train_steps, num_warmup_steps),
    ModelOptions(use_one_hot_embeddings),
  )


def _softmax_task(num_labels):
  names = tuple(map(str, range(num_labels)))
  return ClassificationTask(ClassifierSettings(labels=names))


_ROWS = "a .tsv, .csv or .jsonl file, or one of these with .gz, or .parquet."


def _custom(name, default, text, **fields):
  """A flag for the user's own tables."""
  text = f"For --task_name={runs.CUSTOM}. {text}"
  return Flag(name, default, text, **{"used": "data", **fields})


# fmt: off
# The arguments of `tabular.TableProcessor`.
_TABLE = table(
  (
    _custom("train_file", None, f"Rows to train on: {_ROWS}", used="train dev",
            kind=PATH),
    _custom("dev_file", None,
            f"Rows to evaluate on: {_ROWS} See --dev_fraction.", used="dev",
            kind=PATH),
    _custom("test_file", None, f"Rows to predict: {_ROWS}", used="test",
            kind=PATH),
    _custom("text_a_column", "text", "Column of the text."),
    _custom("text_b_column", None, "Column of the second text."),
    _custom("label_column", "label", "Column of the label."),
    _custom("id_column", None,
            "Column of the row's id. Default: the row number."),
    _custom("header", True,
            "Whether the first line has column names. If not, pass column "
            "indices, from 0, as --text_a_column, --label_column etc."),
    *(_custom(row.name, row.default, row.help, check=row.check)
      for row in flag_table.TABLES),
    _custom("dev_fraction", 0.1, "Fraction to evaluate on without --dev_file.",
            used="sample", check=FRACTION),
  )
)
_KINDS = table(
  (
    _custom("regression", False, "Labels are numbers."),
    _custom("multilabel", False,
            "A row may have several labels, separated by |."),
  )
)

FLAGS = table(
  flag_table.fine_tuning(
    "accuracy or loss", "accuracy, or to pearson for numbers"
  ),
  (
    Flag("task_name", None,
         f"One of {', '.join(PROCESSORS)}, or several, separated by commas. "
         f"{runs.CUSTOM} reads your own files; all runs all tasks of GLUE.",
         kind=list, used="data"),
    Flag("few_shot", False,
         "For few rows: train the vectors of a model of vectors by pairs of "
         "rows, then fit the output layer. Sets defaults: "
         f"{few_shot.shown_defaults()}.", fixed_by="task", used="train"),
    Flag("class_weights", "none",
         "balanced: weight each label in training by the inverse of its "
         "frequency.", choices=("none", "balanced"), used="train"),
    Flag("long_text", LONG_TEXT[0],
         "Which part of a text longer than --max_seq_length is read: head, "
         "head and tail, or all of it in windows whose logits are averaged.",
         choices=LONG_TEXT, fixed_by="task"),
    Flag("data_dir", None,
         "Folder with the task's files, or a folder per task.", used="data",
         kind=PATH),
    Flag("xnli_language", "zh", "Language for training and evaluation on XNLI.",
         used="xnli", choices=XNLI_LANGUAGES),
    flag_table.CALIBRATE,
    Flag("predict_file", None,
         "Predict the lines of this file, or of standard input if -, with the "
         "trained model in --output_dir, and print a table.", kind=PATH),
    Flag("interactive", False,
         "Ask for texts and predict them with the trained model in "
         "--output_dir.", affects_weights=False),
  ),
  _TABLE.values(),
  _KINDS.values(),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Raises UserError if a flag that does not depend on files is wrong."""
  value = f"{runs.CUSTOM} for your own files, or a task such as MRPC"
  if not flags.do_train:
    value += ", or the --output_dir of a trained model"
    if flags.init_checkpoint and not flags.task_name:
      checkpoints.find_checkpoint(flags.init_checkpoint)  # Report a wrong path.
    folder = run_weights.weights_folder(flags.output_dir, flags.init_checkpoint)
    if graph := checkpoints.find_graph(folder or ""):
      raise checkpoints.no_weights(graph)
  flags.require("task_name", value=value)
  tasks = runs.find_tasks(flags.task_name)
  xnli = [task for task in tasks if task == "xnli"]
  check_fine_tuning(flags, ["predict_file", "interactive"], *xnli)
  flags.check_exclusive("regression", "multilabel")
  if flags.num_seeds > 1:  # Each run reads the files.
    script.refuse_pipes(flags)
  if runs.CUSTOM not in tasks:
    flags.require("data_dir")
    for name in flags.given_of({**_TABLE, **_KINDS}):
      raise UserError(
        f"--{name} is for --task_name={runs.CUSTOM} only; omit it"
      )


def plan(flags: Flags, run: runs.Run) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  trains = "train" in run.splits
  model = load_model_of(flags, run.output_dir, run.init_checkpoint, trains)
  task = runs.make_task(flags, run, model.tokenizer)
  return script.experiment(
    flags,
    task,
    model,
    run.splits,
    do_eval=flags.do_eval and "dev" in run.splits,
    data_dir=run.data_dir,
    output_dir=run.output_dir,
    seed=run.seed,
  )


def main(flags: Flags) -> dict[str, float] | list[dict]:
  if flags.predict_file or flags.interactive:
    script.ask(flags, "classification", prediction_files.answer_lines)
    return {}
  if not flags.do_train:
    folder, weights = flags.output_dir, flags.init_checkpoint
    recalled = runs.recall_flags(folder, weights)
    flags = flags.changed(**recalled | flags.given_of(recalled))
  flags = few_shot.with_defaults(flags)
  check_flags(flags)
  flags = script.with_initial_defaults(flags, ClassificationTask)
  planned = runs.make_runs(flags)
  if [run.output_dir for run in planned] == [flags.output_dir]:
    return run_one(plan(flags, planned[0]))
  # Validate all runs before training any.
  for run in planned:
    if flags.do_train and "train" not in run.splits:
      runs.check_examples(flags, run)  # Its model does not exist yet.
    else:
      plan(flags, run)
  made = [
    script.Planned(
      run.name,
      run.seed,
      functools.partial(plan, flags, run),
      trains="train" in run.splits,
    )
    for run in planned
  ]
  return script.run_each(flags, made)


run, command = startup.script(main, FLAGS)

if __name__ == "__main__":
  command()
