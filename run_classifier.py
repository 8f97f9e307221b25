"""Fine-tunes BERT on a classification task, evaluates it, and predicts.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
      --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/mrpc_output/
"""

import dataclasses
import sys

from absl import flags

from bert.errors import UserError
from bert.data import files
from bert.tasks import loaded_model, prediction_files, runs, terminal
from bert.tasks.classification import create_model, model_fn_builder
from bert.tasks.examples import (
  LONG_TEXT,
  DataProcessor,
  InputExample,
  InputFeatures,
  PaddingInputExample,
  convert_examples_to_features,
  convert_single_example,
  file_based_convert_examples_to_features,
  file_based_input_fn_builder,
  input_fn_builder,
)
from bert.tasks.glue import (
  PROCESSORS,
  ColaProcessor,
  MnliProcessor,
  MrpcProcessor,
  XnliProcessor,
)
from bert.training import (
  common_flags,
  flag_checks,
  folder_lock,
  model_flags,
  startup,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import Settings

# Names that users import from here.
__all__ = [
  "LONG_TEXT", "PROCESSORS", "ColaProcessor", "DataProcessor", "InputExample",
  "InputFeatures", "MnliProcessor", "MrpcProcessor",
  "PaddingInputExample", "XnliProcessor", "convert_examples_to_features",
  "convert_single_example", "create_model",
  "file_based_convert_examples_to_features", "file_based_input_fn_builder",
  "input_fn_builder", "model_fn_builder",
]  # fmt: skip

FLAGS = flags.FLAGS

# Flag, default, help.
_FLAGS = (
  ("data_dir", None, "Folder with the task's files, or a folder per task."),
  ("xnli_language", "zh", "Language for training and evaluation on XNLI."),
  (
    "calibrate",
    False,
    "Fit a temperature to the development set, so that probabilities are the "
    "shares of correct labels. Labels do not change.",
  ),
  ("num_seeds", 1, "Number of runs with different seeds, starting at --seed."),
  (
    "predict_file",
    None,
    "Predict the lines of this file, or of standard input if -, with the "
    "trained model in --output_dir, and print a table.",
  ),
  (
    "interactive",
    False,
    "Ask for texts and predict them with the trained model in --output_dir.",
  ),
)

_ROWS = "a .tsv, .csv or .jsonl file, or one of these with .gz."

# The arguments of `tabular.TableProcessor`.
_TABLE_FLAGS = (
  ("train_file", None, f"Rows to train on: {_ROWS}"),
  ("dev_file", None, f"Rows to evaluate on: {_ROWS} See --dev_fraction."),
  ("test_file", None, f"Rows to predict: {_ROWS}"),
  ("text_a_column", "text", "Column of the text."),
  ("text_b_column", None, "Column of the second text."),
  ("label_column", "label", "Column of the label."),
  ("id_column", None, "Column of the row's id. Default: the row number."),
  (
    "header",
    True,
    "Whether the first line has column names. If not, pass column indices, "
    "from 0, as --text_a_column, --label_column etc.",
  ),
  ("dev_fraction", 0.1, "Fraction to evaluate on without --dev_file."),
)
_KIND_FLAGS = (
  ("regression", False, "Labels are numbers."),
  ("multilabel", False, "A row may have several labels, separated by |."),
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(max_seq_length=128)
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags(
    "accuracy or loss", "accuracy, or to pearson for numbers"
  )
  common_flags.define_device_flags()
  _define_task_flags()
  common_flags.define_from_table(
    (name, default, f"For --task_name={runs.CUSTOM}. {text}")
    for name, default, text in (*_TABLE_FLAGS, *_KIND_FLAGS)
  )


def _define_task_flags():
  flags.DEFINE_list(
    "task_name",
    None,
    f"One of {', '.join(PROCESSORS)}, or several, separated by commas. "
    f"{runs.CUSTOM} reads your own files; all runs all tasks of GLUE.",
  )
  flags.DEFINE_enum(
    "class_weights",
    "none",
    ["none", "balanced"],
    "balanced: weight each label in training by the inverse of its frequency.",
  )
  flags.DEFINE_enum(
    "long_text",
    LONG_TEXT[0],
    LONG_TEXT,
    "Which part of a text longer than --max_seq_length is read: head, head "
    "and tail, or all of it in windows whose logits are averaged.",
  )
  common_flags.define_from_table(_FLAGS)


def check_flags() -> None:
  """Raises UserError if a flag that does not depend on files is wrong."""
  flag_checks.require("task_name")
  flag_checks.check_fine_tuning_flags("predict_file", "interactive")
  flag_checks.check_exclusive("regression", "multilabel")
  if FLAGS.calibrate and not FLAGS.do_eval:
    raise UserError("--calibrate needs a development set; add --do_eval")
  if "xnli" not in (n.lower().replace("-", "") for n in FLAGS.task_name):
    flag_checks.warn_of_unused("pass --task_name=XNLI", "xnli_language")
  if FLAGS.seed + FLAGS.num_seeds > 2**31:
    raise UserError(
      f"--num_seeds={FLAGS.num_seeds} from --seed={FLAGS.seed} on exceeds "
      f"{2**31 - 1}; lower --seed"
    )
  if runs.CUSTOM not in map(str.lower, FLAGS.task_name):
    for name, *_ in (*_TABLE_FLAGS, *_KIND_FLAGS):
      if not FLAGS[name].using_default_value:
        raise UserError(
          f"--{name} is for --task_name={runs.CUSTOM} only; omit it"
        )


def make_request() -> runs.Request:
  """The flags of this script, for `runs.make_runs`."""
  fields = {field.name for field in dataclasses.fields(runs.Request)}
  values = {name: FLAGS[name].value for name in fields & set(FLAGS)}
  for name in ("max_seq_length", "long_text"):
    if FLAGS[name].using_default_value and not FLAGS.do_train:
      values[name] = None
  table = {name: FLAGS[name].value for name, *_ in _TABLE_FLAGS}
  splits = tuple(flag_checks.wanted_splits())
  return runs.Request(splits=splits, table=table, **values)


def make_experiment(request: runs.Request, run: runs.Run) -> Experiment:
  """The Experiment of a Run; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  tokenizer = model_flags.load_tokenizer()
  task = runs.make_task(request, run, tokenizer)
  if FLAGS.calibrate and not task.labels:
    raise UserError(f"--calibrate: {task.name} has no labels; omit it")
  config = model_flags.load_config(tokenizer, task.settings.max_seq_length)
  settings = Settings.from_flags(
    run.splits,
    do_eval=FLAGS.do_eval and "dev" in run.splits,
    calibrate=FLAGS.calibrate and "dev" in run.splits,
    data_dir=run.data_dir,
    output_dir=run.output_dir,
    init_checkpoint=run.init_checkpoint,
    seed=run.seed,
    max_seq_length=task.settings.max_seq_length,
    long_text=task.settings.long_text,
  )
  model = ModelFiles(config, model_flags.release_files(config))
  return Experiment(task, model, settings)


def answer() -> None:
  """Predicts --predict_file or --interactive with the model in --output_dir."""
  flag_checks.check_question_flags("predict_file", "interactive")
  model = loaded_model.load_trained(
    FLAGS.output_dir,
    "classification",
    batch_size=FLAGS.predict_batch_size,
    precision=FLAGS.precision,
  )
  flag_checks.warn_of_unused_model("max_seq_length", "long_text")
  if FLAGS.interactive:
    terminal.converse(model)
  else:
    prediction_files.answer_file(model, FLAGS.predict_file, sys.stdout)


def main() -> None:
  if FLAGS.predict_file or FLAGS.interactive:
    answer()
    return
  check_flags()
  request = make_request()
  planned = runs.make_runs(request)
  if [run.output_dir for run in planned] == [FLAGS.output_dir]:
    make_experiment(request, planned[0]).run()
    return
  # Validate all runs before training any.
  for run in planned:
    if FLAGS.do_train and "train" not in run.splits:
      runs.check_examples(request, run)  # Its model does not exist yet.
    else:
      make_experiment(request, run)
  if FLAGS.dry_run:
    first_seed = planned[: len(planned) // FLAGS.num_seeds]
    for run in first_seed:
      if "train" in run.splits:
        make_experiment(request, run).run()
    return
  files.makedirs(FLAGS.output_dir)
  with folder_lock.lock_folder(FLAGS.output_dir):
    results = [make_experiment(request, run).run() for run in planned]
    if FLAGS.do_eval:
      print(runs.write_results(FLAGS.output_dir, planned, results))


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)


if __name__ == "__main__":
  command()
