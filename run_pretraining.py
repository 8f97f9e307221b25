"""Pre-trains BERT on masked words and next sentences, and evaluates it.

    python run_pretraining.py --input_file=/tmp/tf_examples.tfrecord \\
      --output_dir=/tmp/pretraining_output --do_train=True --do_eval=True \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --train_batch_size=32 --max_seq_length=128 \\
      --max_predictions_per_seq=20 --num_train_steps=20 \\
      --num_warmup_steps=10 --learning_rate=2e-5

The records are those of create_pretraining_data.py.
"""

import functools
from collections.abc import Mapping, Sequence

from absl import flags, logging

import tokenization
from bert.errors import UserError, plural
from bert.data import instances
from bert.tasks import dynamic_masking
from bert.tasks.pretraining import (
  PretrainingTask,
  gather_indexes,
  get_masked_lm_output,
  get_next_sentence_output,
  model_fn_builder,
)
from bert.training import (
  common_flags,
  flag_checks,
  model_flags,
  record_files,
  startup,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import Settings, find_weights

# The original's names.
__all__ = [
  "gather_indexes",
  "get_masked_lm_output",
  "get_next_sentence_output",
  "model_fn_builder",
]

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(128, "Must be that of the records.")
  common_flags.define_run_flags()
  common_flags.define_device_flags()
  flags.DEFINE_string(
    "input_file",
    None,
    "TFRecord files to train on: paths or patterns, separated by commas.",
  )
  flags.DEFINE_string(
    "eval_input_file",
    None,
    "TFRecord files to evaluate on. Default: --input_file.",
  )
  flags.DEFINE_integer("num_train_steps", 100000, "Number of training steps.")
  flags.DEFINE_integer(
    "num_warmup_steps",
    10000,
    "Number of steps in which the learning rate rises linearly to its peak.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "max_eval_steps", 100, "Maximum number of batches to evaluate."
  )
  flags.DEFINE_bool(
    "dynamic_masking",
    False,
    "Mask rows as they are read, differently in each epoch. For records made "
    "with --no_masking. Needs their vocabulary.",
  )
  common_flags.define_masking_flags("For --dynamic_masking. ")


def check_flags() -> None:
  """Checks the flags that do not depend on files.

  Raises:
    UserError: a flag is wrong.
  """
  flag_checks.require("output_dir")
  flag_checks.check_run_flags()
  flag_checks.require_positive("num_train_steps", "max_eval_steps")
  if not (FLAGS.do_train or FLAGS.do_eval):
    raise UserError("nothing to do; pass --do_train or --do_eval")
  if not FLAGS.do_train:
    unread = {"eval_steps", "input_file"} - {*record_flags().values()}
    flag_checks.warn_of_unused("add --do_train", *sorted(unread))
  if not (FLAGS.do_eval or FLAGS.eval_steps):
    remedy = "add --do_eval or --eval_steps"
    flag_checks.warn_of_unused(remedy, "eval_input_file")
  if FLAGS.do_train and FLAGS.num_warmup_steps > FLAGS.num_train_steps:
    raise UserError(
      f"--num_warmup_steps={FLAGS.num_warmup_steps} exceeds "
      f"--num_train_steps={FLAGS.num_train_steps}, so the learning rate would "
      f"never reach its peak; lower it"
    )
  flag_checks.check_masking_flags()
  for name in ("masked_lm_prob", "do_whole_word_mask"):
    if FLAGS[name].value != FLAGS[name].default and not FLAGS.dynamic_masking:
      raise UserError(
        f"--{name} is for --dynamic_masking only, as other records are masked "
        f"already; omit it"
      )


def record_flags() -> dict[str, str]:
  """The flag for the records of each split, "train" and "dev", in use."""
  flag_of = {"train": "input_file"} if FLAGS.do_train else {}
  if FLAGS.do_eval or FLAGS.eval_steps:
    is_given = bool(FLAGS.eval_input_file)
    flag_of["dev"] = "eval_input_file" if is_given else "input_file"
  return flag_of


def check_layout(files: Mapping[str, Sequence[str]]) -> record_files.Layout:
  """The layout of all files, which the other flags must match.

  Args:
    files: dict from flag to paths.

  Raises:
    UserError: a file has another layout, or is damaged.
  """
  layouts = {}
  for name, paths in files.items():
    try:
      layouts |= {path: record_files.describe(path) for path in paths}
    except UserError as error:
      raise UserError(
        f"{error}; --{name} takes files of create_pretraining_data.py"
      ) from error
  first, layout = next(iter(layouts.items()))
  for path, found in layouts.items():
    if found != layout:
      raise UserError(
        f"{first} has {_in_words(layout)}, but {path} has {_in_words(found)}; "
        f"pass files that were made with the same settings"
      )
  is_masked = bool(layout.max_predictions_per_seq)
  if is_masked and FLAGS.dynamic_masking:
    raise UserError(
      f"{first} is masked already; omit --dynamic_masking, or pass records "
      f"that were made with --no_masking"
    )
  if not (is_masked or FLAGS.dynamic_masking):
    raise UserError(
      f"{first} is not masked; pass --dynamic_masking and --vocab_file"
    )
  for name, found in layout._asdict().items():
    if name in FLAGS and found and found != FLAGS[name].value:
      raise UserError(
        f"--{name}={FLAGS[name].value}, but {first} was made with "
        f"--{name}={found}; pass --{name}={found}"
      )
  return layout


def _in_words(layout):
  has_next = layout.next_sentence_prediction
  return (
    f"{layout.max_seq_length} positions, {layout.max_predictions_per_seq} of "
    f"them masked, {'with' if has_next else 'without'} next sentences"
  )


def load_tokenizer() -> tokenization.FullTokenizer | None:
  """The tokenizer, if the flags name or need one, or the model has one."""
  # A vocabulary beside the model is copied into the new model's folder, so it
  # is checked like a named one.
  has_file = model_flags.vocab_file() or FLAGS.spm_model_file
  if has_file or FLAGS.dynamic_masking:
    return model_flags.load_tokenizer()
  return None


def make_experiment() -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint, _ = find_weights()
  flag_of = record_flags()
  files = {}
  for name in flag_of.values():
    found = flag_checks.find_files(name)
    flag_checks.refuse_pipes(name, found)
    files[name] = record_files.without_empty(found)
  tokenizer = load_tokenizer()
  config = model_flags.load_config(tokenizer, FLAGS.max_seq_length)
  layout = check_layout(files)
  mask_batch, vocab_size = None, config.vocab_size
  if FLAGS.dynamic_masking:
    vocab_size = max(tokenizer.vocab.values()) + 1
    mask_batch = dynamic_masking.dynamic_masking(
      tokenizer,
      FLAGS.masked_lm_prob,
      FLAGS.max_predictions_per_seq,
      FLAGS.do_whole_word_mask,
      FLAGS.seed,
    )
  spec = instances.feature_spec(*layout)

  @functools.cache  # The same files are read once.
  def read(*names):
    found = record_files.RecordFiles(names, spec, vocab_size)
    count = plural(len(found), "record")
    logging.info("Checked %s in %s", count, plural(len(names), "file"))
    return found

  task = PretrainingTask(
    config,
    {
      split: functools.partial(read, *files[name])
      for split, name in flag_of.items()
    },
    layout.next_sentence_prediction,
    FLAGS.max_eval_steps * FLAGS.eval_batch_size,
    mask_batch,
  )
  settings = Settings.from_flags(flag_of, init_checkpoint=init_checkpoint)
  model = ModelFiles(config, model_flags.release_files(config))
  return Experiment(task, model, settings)


def main() -> None:
  check_flags()
  make_experiment().run()


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)


if __name__ == "__main__":
  command()
