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
import os

from absl import flags

from bert.errors import UserError
from bert.tasks import squad_model, terminal
from bert.tasks.loaded_model import LoadedModel
from bert.tasks.squad import (
  FeatureWriter,
  InputFeatures,
  ReadingSettings,
  SquadExample,
  convert_examples_to_features,
  read_squad_examples,
)
from bert.tasks.squad_decoding import (
  RawResult,
  get_final_text,
  write_predictions,
)
from bert.tasks.squad_model import (
  SquadSettings,
  SquadTask,
  create_model,
  model_fn_builder,
)
from bert.training import (
  checkpoints,
  common_flags,
  flag_checks,
  model_flags,
  model_folder,
  run_record,
  startup,
  task_file,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import Settings, find_weights

# Names that users import from here.
__all__ = [
  "FeatureWriter",
  "InputFeatures",
  "RawResult",
  "SquadExample",
  "convert_examples_to_features",
  "create_model",
  "get_final_text",
  "model_fn_builder",
  "read_squad_examples",
  "write_predictions",
]

FLAGS = flags.FLAGS

# Flag, default, help.
_FLAGS = (
  ("train_file", None, "Training questions: a SQuAD JSON file, or .json.gz."),
  ("predict_file", None, "Questions to answer, and to evaluate on."),
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
    "Predict no answer if the score of the null answer exceeds that of the "
    "best answer by more than this. auto selects the value with the best F1 on "
    "--predict_file; if that file has no answers, it uses the value selected "
    "before.",
  ),
  ("verbose_logging", False, "Accepted for compatibility; has no effect."),
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(384, "Longer text is read in windows.")
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags("f1 or exact_match", "f1")
  common_flags.define_device_flags()
  common_flags.define_from_table(_FLAGS)


def splits() -> dict[str, str]:
  """The data splits that are read, each with the flag of its file."""
  return {
    split: "train_file" if split == "train" else "predict_file"
    for split in flag_checks.wanted_splits()
  }


def check_flags() -> None:
  """Checks the flags that do not depend on files.

  Raises:
    UserError: a flag is wrong.
  """
  flag_checks.check_fine_tuning_flags("interactive")
  if "predict_file" not in splits().values():
    remedy = "add --do_predict, --do_eval or --eval_steps"
    flag_checks.warn_of_unused(remedy, "predict_file")
  for name in dict.fromkeys(splits().values()):
    flag_checks.require(name)
    flag_checks.require_file(name)


def squad_settings(folder: str | None) -> SquadSettings:
  """The settings of the flags; by default those of the trained model.

  Args:
    folder: the folder of the weights.

  Raises:
    UserError: no text fits beside a question.
  """
  names = {field.name for field in dataclasses.fields(SquadSettings)}
  names -= {"null_score_diff_threshold", "init_checkpoint"}
  given = {
    name: FLAGS[name].value
    for name in names
    if not FLAGS[name].using_default_value
  }
  trained = SquadSettings()
  if folder and not FLAGS.do_train:
    is_known = task_file.read(folder)[0] == SquadTask.kind
    if is_known or "max_seq_length" not in given:
      trained = task_file.load(SquadTask, folder, is_required=False)
  settings = dataclasses.replace(trained, **given)
  settings.room_for_text(settings.max_query_length)
  return settings


def make_experiment() -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint, folder = find_weights()
  squad_task = squad_settings(folder)
  tokenizer = model_flags.load_tokenizer()
  config = model_flags.load_config(tokenizer, squad_task.max_seq_length)
  weights = None
  if not FLAGS.do_train and folder != FLAGS.output_dir:
    weights = run_record.hash_of_weights(init_checkpoint)
  threshold = squad_model.stored_threshold(FLAGS.output_dir)
  task = SquadTask(
    dataclasses.replace(squad_task, null_score_diff_threshold=threshold),
    tokenizer,
    {split: FLAGS[flag].value for split, flag in splits().items()},
    squad_model.parse_threshold(
      FLAGS.null_score_diff_threshold, squad_task.version_2_with_negative
    ),
    # Weights that are trained now need a threshold of their own.
    [FLAGS.output_dir, None if FLAGS.do_train else folder],
    weights,
    padding_competes=FLAGS.pad_to_max_length is not False,
    epoch_counts_rows=FLAGS.count_steps_on_windows,
  )
  reading = [field.name for field in dataclasses.fields(ReadingSettings)]
  settings = Settings.from_flags(
    splits(),
    init_checkpoint=init_checkpoint,
    **{name: getattr(squad_task, name) for name in reading},
  )
  if FLAGS.do_predict:  # The predictions are scored.
    settings = dataclasses.replace(settings, do_eval=False)
  model = ModelFiles(config, model_flags.release_files(config))
  return Experiment(task, model, settings)


def load_reader() -> LoadedModel:
  """The model in --output_dir or --init_checkpoint, to ask.

  Raises:
    UserError: there is no trained model.
  """
  path = FLAGS.output_dir
  is_trained = path and task_file.read(path)[0] == SquadTask.kind
  is_trained = is_trained and model_folder.is_finished(path)
  if is_trained:
    flag_checks.warn_of_unused_model()
  else:
    path = FLAGS.init_checkpoint
  if not path:
    raise UserError(
      f"--output_dir={FLAGS.output_dir} does not hold a trained model; pass "
      f"the --output_dir of a finished training, or --init_checkpoint"
    )
  checkpoint = checkpoints.find_checkpoint(path)
  folder = os.path.dirname(checkpoint) or "."
  settings = squad_settings(folder)
  if not is_trained and (FLAGS.vocab_file or FLAGS.spm_model_file):
    tokenizer = model_flags.load_tokenizer()
    config = model_folder.load_config(folder)
    model = model_folder.Model(config, tokenizer, checkpoint)
  else:
    given = FLAGS["do_lower_case"].present and not is_trained
    model = model_folder.find_model(
      folder, FLAGS.do_lower_case if given else None
    )
  if not is_trained and FLAGS.bert_config_file:
    config = model_flags.load_config(model.tokenizer, settings.max_seq_length)
    model = model._replace(config=config)
  threshold = squad_model.parse_threshold(
    FLAGS.null_score_diff_threshold, settings.version_2_with_negative
  )
  if threshold == squad_model.AUTO:
    threshold = squad_model.read_threshold([folder])
  return LoadedModel(
    SquadTask(settings, model.tokenizer, threshold=threshold),
    model._replace(checkpoint=checkpoint),
    folder,
    batch_size=FLAGS.predict_batch_size,
    precision=FLAGS.precision,
  )


def main() -> None:
  if FLAGS.interactive:
    flag_checks.check_exclusive(
      "interactive", "do_train", "do_eval", "do_predict"
    )
    flag_checks.require_positive("predict_batch_size")
    flag_checks.check_standard_output()
    flag_checks.warn_of_unused("omit it", "train_file", "predict_file")
    terminal.converse_on_files(load_reader())
  else:
    check_flags()
    make_experiment().run()


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)


if __name__ == "__main__":
  command()
