"""Fine-tunes BERT on SQuAD 1.1 or 2.0, answers questions, and scores answers.

    python run_squad.py --do_train=True --do_predict=True \\
      --train_file=$SQUAD_DIR/train-v1.1.json \\
      --predict_file=$SQUAD_DIR/dev-v1.1.json \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2.0 \\
      --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_base/

For SQuAD 2.0, add --version_2_with_negative=True.
"""

import dataclasses
import functools

import quiet_start  # Before TensorFlow.
from absl import flags

from errors import UserError
from tasks import squad_model, squad_reader

# Names that users import from here.
# ruff: noqa: F401
from tasks.squad import (
  FeatureWriter,
  InputFeatures,
  ReadingSettings,
  SquadExample,
  convert_examples_to_features,
  read_squad_examples,
)
from tasks.squad_decoding import (
  DecodingSettings,
  RawResult,
  get_final_text,
  write_predictions,
)
from tasks.squad_model import SquadTask, create_model, model_fn_builder
from tasks.squad_reader import Reader
from training import common_flags, model_folder, startup
from training.experiment import Experiment, ModelFiles, Settings

FLAGS = flags.FLAGS

# Number of answers that --interactive shows by default.
_SHOWN = 5

# Flag, default, help.
_FLAGS = (
  ("train_file", None, "Questions to train on: SQuAD's JSON, also with .gz."),
  ("predict_file", None, "Questions to predict, and to evaluate on."),
  ("interactive", False, "Ask for texts and questions, and answer them."),
  ("doc_stride", 128, "Stride, in pieces, between windows of a long text."),
  ("max_query_length", 64, "Longer questions are truncated to this length."),
  ("version_2_with_negative", False, "Whether questions may have no answer."),
  ("count_steps_on_windows", False, "Count epochs in windows, not questions."),
  ("n_best_size", 20, "Number of answers listed per question."),
  ("max_answer_length", 30, "Maximum length of an answer in word pieces."),
  (
    "null_score_diff_threshold",
    "0.0",
    "Predict no answer if it scores higher than the best answer by more than "
    "this. auto selects the value with the best F1 on --predict_file; if that "
    "has no answers, the value selected before.",
  ),
  (
    "exact_answer_text",
    False,
    "Copy answers from the text character by character, instead of aligning "
    "words as the original does.",
  ),
  ("verbose_logging", False, "Accepted for compatibility; has no effect."),
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(384, "is read in windows")
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags("f1 or exact_match", "f1")
  common_flags.define_tpu_flags()
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  define = {bool: flags.DEFINE_bool}
  define[int] = functools.partial(flags.DEFINE_integer, lower_bound=1)
  for name, default, text in _FLAGS:
    define.get(type(default), flags.DEFINE_string)(name, default, help=text)


def splits() -> dict[str, str]:
  """The data splits that are read, each with the flag of its file."""
  in_training = FLAGS.do_train and common_flags.evaluates_in_training()
  wanted = {
    "train": ("train_file", FLAGS.do_train),
    "dev": ("predict_file", FLAGS.do_eval or in_training),
    "test": ("predict_file", FLAGS.do_predict),
  }
  return {
    split: flag for split, (flag, is_wanted) in wanted.items() if is_wanted
  }


def check_flags() -> None:
  """Checks the flags that do not depend on files.

  Raises:
    UserError: a flag is wrong.
  """
  common_flags.require("output_dir")
  common_flags.check_fine_tuning_flags()
  if not splits():
    raise UserError(
      "nothing to do; pass --do_train, --do_predict or --do_eval, or, with a "
      "trained model, --interactive"
    )
  for name in dict.fromkeys(splits().values()):
    common_flags.require(name)
    common_flags.require_file(name)


def reading_settings(folder: str | None) -> ReadingSettings:
  """How to read: as the flags say, or by default as the trained model does.

  Args:
    folder: the folder of the weights.
  """
  names = [field.name for field in dataclasses.fields(ReadingSettings)]
  given = {
    name: FLAGS[name].value
    for name in names
    if not FLAGS[name].using_default_value
  }
  return squad_model.read_settings(None if FLAGS.do_train else folder, **given)


def null_threshold(reading: ReadingSettings) -> float | None:
  """--null_score_diff_threshold; None to select the best."""
  return squad_model.parse_threshold(
    FLAGS.null_score_diff_threshold, reading.version_2_with_negative
  )


def make_experiment() -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint = FLAGS.init_checkpoint
  if not FLAGS.do_train:
    init_checkpoint = model_folder.initial_weights(
      FLAGS.output_dir, init_checkpoint
    )
  folder = model_folder.weights_folder(FLAGS.output_dir, init_checkpoint)
  reading = reading_settings(folder)
  tokenizer = common_flags.load_tokenizer()
  config = common_flags.load_config(tokenizer, reading.max_seq_length)
  decoding = DecodingSettings.of(
    tokenizer,
    reading,
    FLAGS.exact_answer_text,
    n_best_size=FLAGS.n_best_size,
    max_answer_length=FLAGS.max_answer_length,
  )
  task = SquadTask(
    {split: FLAGS[flag].value for split, flag in splits().items()},
    tokenizer,
    reading,
    decoding,
    null_threshold(reading),
    [FLAGS.output_dir, folder],
    padding_competes=FLAGS.pad_to_max_length is not False,
    epoch_counts_rows=FLAGS.count_steps_on_windows,
  )
  settings = Settings.from_flags(
    splits(), init_checkpoint=init_checkpoint, **dataclasses.asdict(reading)
  )
  if FLAGS.do_predict:  # The predictions are scored.
    settings = dataclasses.replace(settings, do_eval=False)
  model = ModelFiles(config, common_flags.release_files(config))
  return Experiment(task, model, settings)


def load_reader() -> Reader:
  """The Reader of --output_dir or --init_checkpoint.

  Raises:
    UserError: there is no trained model.
  """
  model, config, tokenizer = FLAGS.output_dir, None, None
  if not (model and squad_reader.is_trained(model)):
    model = FLAGS.init_checkpoint
    if not model:
      raise UserError(
        f"--output_dir={FLAGS.output_dir} does not hold a trained model; pass "
        f"the --output_dir of a finished training, or --init_checkpoint"
      )
    if FLAGS.vocab_file or FLAGS.spm_model_file:
      tokenizer = common_flags.load_tokenizer()
  folder = model_folder.weights_folder("", model)
  reading = reading_settings(folder)
  if model == FLAGS.init_checkpoint and FLAGS.bert_config_file:
    config = common_flags.load_config(tokenizer, reading.max_seq_length)
  threshold = null_threshold(reading)
  if threshold is None:
    threshold = squad_model.read_threshold([folder])
  decoding = {
    # At least the default, because probabilities depend on the number.
    "n_best_size": max(FLAGS.n_best_size, FLAGS["n_best_size"].default),
    "max_answer_length": FLAGS.max_answer_length,
    "null_score_diff_threshold": threshold,
  }
  return Reader(
    model,
    config,
    tokenizer,
    reading,
    decoding,
    FLAGS.exact_answer_text,
    FLAGS.predict_batch_size,
    FLAGS.precision,
  )


def converse() -> None:
  """Answers questions on the terminal."""
  common_flags.check_exclusive(
    "interactive", "do_train", "do_eval", "do_predict"
  )
  common_flags.require_positive("predict_batch_size")
  flag = FLAGS["n_best_size"]
  shown = _SHOWN if flag.using_default_value else flag.value
  squad_reader.converse(load_reader(), shown)


def main() -> None:
  if FLAGS.interactive:
    converse()
    return
  check_flags()
  make_experiment().run()


if __name__ == "__main__":
  startup.run(main, define_flags)
