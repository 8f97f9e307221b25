"""Fine-tunes BERT to choose among continuations, evaluates it, and predicts.

    python run_multiple_choice.py --do_train=true --do_eval=true \\
      --train_file=$SWAG_DIR/train.csv --dev_file=$SWAG_DIR/val.csv \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --train_batch_size=16 --learning_rate=2e-5 --output_dir=/tmp/swag_output/
"""

from absl import flags

from bert.tasks import choices, loaded_model, terminal
from bert.tasks.choices import Example
from bert.tasks.multiple_choice import MultipleChoiceTask
from bert.training import (
  common_flags,
  flag_checks,
  model_flags,
  startup,
  task_file,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import find_weights
from bert.training import settings as run_settings
from bert.training.task import Settings

__all__ = ["Example", "MultipleChoiceTask"]

FLAGS = flags.FLAGS

_ROWS = "SWAG's .csv, or .jsonl with context, question, choices and label."
_SPLITS = {"train": "train_file", "dev": "dev_file", "test": "test_file"}


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(max_seq_length=128)
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags("accuracy or loss", "accuracy")
  common_flags.define_device_flags()
  flags.DEFINE_string("train_file", None, f"Rows to train on: {_ROWS}")
  flags.DEFINE_string("dev_file", None, f"Rows to evaluate on: {_ROWS}")
  flags.DEFINE_string(
    "test_file", None, "Rows to predict, in one of these formats."
  )
  flags.DEFINE_bool("interactive", False, "Ask for choices and compare them.")


def check_flags() -> None:
  """Checks the flags that do not depend on files.

  Raises:
    UserError: a flag is wrong.
  """
  flag_checks.check_fine_tuning_flags("interactive")
  for split in flag_checks.wanted_splits():
    flag_checks.require(_SPLITS[split])
    flag_checks.require_file(_SPLITS[split])


def make_experiment() -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint, folder = find_weights()
  length = FLAGS.max_seq_length
  if not FLAGS.do_train:
    trained_length = task_file.load(MultipleChoiceTask, folder).max_seq_length
    if FLAGS["max_seq_length"].using_default_value:
      length = trained_length
  tokenizer = model_flags.load_tokenizer()
  examples = {
    split: choices.read_examples(FLAGS[_SPLITS[split]].value, split != "test")
    for split in flag_checks.wanted_splits()
  }
  config = model_flags.load_config(tokenizer, length)
  task = MultipleChoiceTask(Settings(length), tokenizer, examples)
  settings = run_settings.Settings.from_flags(
    flag_checks.wanted_splits(),
    init_checkpoint=init_checkpoint,
    max_seq_length=length,
  )
  model = ModelFiles(config, model_flags.release_files(config))
  return Experiment(task, model, settings)


def converse() -> None:
  """Compares choices that the user types."""
  flag_checks.check_question_flags("interactive")
  model = loaded_model.load_trained(
    FLAGS.output_dir,
    MultipleChoiceTask.kind,
    batch_size=FLAGS.predict_batch_size,
    precision=FLAGS.precision,
  )
  flag_checks.warn_of_unused_model("max_seq_length")
  terminal.converse(model)


def main() -> None:
  if FLAGS.interactive:
    converse()
    return
  check_flags()
  make_experiment().run()


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
