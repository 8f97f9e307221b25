"""Pre-trains BERT on masked words and next sentences, and evaluates it.

    python run_pretraining.py --input_file=/tmp/tf_examples.tfrecord \\
      --output_dir=/tmp/pretraining_output --do_train=True --do_eval=True \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --train_batch_size=32 --max_seq_length=128 \\
      --max_predictions_per_seq=20 --num_train_steps=20 \\
      --num_warmup_steps=10 --learning_rate=2e-5

The records are those of create_pretraining_data.py.
"""

import quiet_start  # noqa: F401  Before TensorFlow.
from training import common_flags
import functools
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from absl import flags, logging

import modeling
import tokenization
from errors import UserError, plural
from pipeline import instances
from tasks import pretraining
from tasks.pretraining import (
  gather_indexes,
  get_masked_lm_output,
  get_next_sentence_output,
  model_fn_builder,
)
from training import best_checkpoint, estimator, run_record, shuffled_records
from training import experiment
from training import startup

# Code written for the original finds these here.
__all__ = [
  "gather_indexes",
  "get_masked_lm_output",
  "get_next_sentence_output",
  "model_fn_builder",
]

FLAGS = flags.FLAGS

# Flags that say how --dynamic_masking masks.
_MASKING_FLAGS = ("masked_lm_prob", "do_whole_word_mask")


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(max_seq_length=128)
  common_flags.define_run_flags()
  common_flags.define_tpu_flags()
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  flags.DEFINE_string(
    "input_file",
    None,
    "TFRecord files to train on: paths or patterns, separated by commas.",
  )
  flags.DEFINE_string(
    "eval_input_file",
    None,
    "TFRecord files to evaluate on; default: those of --input_file.",
  )
  flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "Most masked positions of a row, as in the making of the records.",
    lower_bound=1,
  )
  flags.DEFINE_integer("num_train_steps", 100000, "Updates in all.")
  flags.DEFINE_integer(
    "num_warmup_steps",
    10000,
    "Updates in which the learning rate rises to its peak.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "max_eval_steps", 100, "Most batches that are evaluated."
  )
  flags.DEFINE_bool(
    "dynamic_masking",
    False,
    "Mask rows as they are read, anew in each epoch; for records that were "
    "made with --no_masking. Needs --vocab_file.",
  )
  flags.DEFINE_float(
    "masked_lm_prob", 0.15, "Share of the pieces that --dynamic_masking masks."
  )
  flags.DEFINE_bool(
    "do_whole_word_mask",
    False,
    "Whether --dynamic_masking masks all pieces of a word together.",
  )


def check_flags() -> None:
  """Checks the flags that stand for themselves.

  Raises:
    ValueError: a flag is wrong.
  """
  common_flags.require("output_dir")
  common_flags.require_positive(
    "train_batch_size",
    "eval_batch_size",
    "save_checkpoints_steps",
    "log_steps",
    "learning_rate",
    "num_train_steps",
    "max_eval_steps",
  )
  if not (FLAGS.do_train or FLAGS.do_eval):
    raise UserError("nothing to do; pass --do_train or --do_eval")
  if FLAGS.do_train and FLAGS.num_warmup_steps > FLAGS.num_train_steps:
    raise UserError(
      f"--num_warmup_steps={FLAGS.num_warmup_steps} is more than "
      f"--num_train_steps={FLAGS.num_train_steps}, so that the learning rate "
      f"would never reach its peak; lower it"
    )
  if not 0 < FLAGS.masked_lm_prob < 1:
    raise UserError(
      f"--masked_lm_prob={FLAGS.masked_lm_prob} is not between 0 and 1"
    )
  for name in _MASKING_FLAGS:
    if FLAGS[name].value != FLAGS[name].default and not FLAGS.dynamic_masking:
      raise UserError(
        f"--{name} is for --dynamic_masking alone, as other records were "
        f"masked when they were made; leave it out"
      )


def load_tokenizer() -> tokenization.FullTokenizer | None:
  """The tokenizer, where the flags name or need one."""
  if FLAGS.vocab_file or FLAGS.spm_model_file or FLAGS.dynamic_masking:
    return common_flags.load_tokenizer()
  return None


def find_records() -> dict[str, list[str]]:
  """Paths of the files to train on and to evaluate on, as far as they are used.

  Returns:
    Dict with `train` and `dev`, or one of them.

  Raises:
    ValueError: a flag is missing, or a pattern names no file.
  """
  paths = {}
  if FLAGS.do_train:
    paths["train"] = common_flags.find_files("input_file")
  if FLAGS.do_eval or FLAGS.eval_steps:
    name = "eval_input_file" if FLAGS.eval_input_file else "input_file"
    paths["dev"] = common_flags.find_files(name)
  return paths


def common_layout(
  paths: Mapping[str, Sequence[str]],
) -> shuffled_records.Layout:
  """The Layout that all files have, and that the flags ask for.

  Raises:
    ValueError: a file has another, or is damaged.
  """
  first, *others = dict.fromkeys(itertools.chain(*paths.values()))
  layout = shuffled_records.describe(first)
  for path in others:
    found = shuffled_records.describe(path)
    if found != layout:
      raise UserError(
        f"{first} has {_shown(layout)}, and {path} has {_shown(found)}; pass "
        f"files that were made with the same settings"
      )
  masked_positions = layout.max_predictions_per_seq
  if bool(masked_positions) == FLAGS.dynamic_masking:
    raise UserError(
      f"{first} is masked already; leave out --dynamic_masking, or pass "
      f"records that were made with --no_masking"
      if masked_positions
      else f"{first} is not masked; pass --dynamic_masking and --vocab_file"
    )
  for name, found in layout._asdict().items():
    if name in FLAGS and found and found != FLAGS[name].value:
      raise UserError(
        f"{first} was made with --{name}={found}, and here it is "
        f"--{name}={FLAGS[name].value}; pass --{name}={found}"
      )
  return layout


def _shown(layout):
  """A Layout in words."""
  has_next = layout.next_sentence_prediction
  return (
    f"{layout.max_seq_length} positions, {layout.max_predictions_per_seq} of "
    f"them masked, {'with' if has_next else 'without'} next sentences"
  )


def check_weights(
  bert_config: modeling.BertConfig, layout: shuffled_records.Layout
) -> bool:
  """Raises ValueError unless there are weights for what the flags ask for.

  Returns:
    Whether --output_dir holds a checkpoint to go on from.
  """
  shapes = pretraining.head_shapes(bert_config, layout.next_sentence_prediction)
  has_heads = experiment.check_init_checkpoint(
    bert_config, shapes, FLAGS.init_checkpoint
  )
  is_trained = experiment.check_output_dir(
    bert_config, shapes, FLAGS.output_dir
  )
  if not (FLAGS.do_train or has_heads or is_trained):
    raise UserError(
      f"no pre-trained model with its heads in --output_dir="
      f"{FLAGS.output_dir} or --init_checkpoint={FLAGS.init_checkpoint}; add "
      f"--do_train"
    )
  return is_trained


def make_masking(
  tokenizer: tokenization.FullTokenizer | None,
) -> shuffled_records.Transform | None:
  """What masks a batch, if --dynamic_masking asks for it."""
  if not FLAGS.dynamic_masking:
    return None
  return pretraining.dynamic_masking(
    tokenizer,
    FLAGS.masked_lm_prob,
    FLAGS.max_predictions_per_seq,
    FLAGS.do_whole_word_mask,
    FLAGS.seed,
  )


def read_records(
  paths: Mapping[str, Sequence[str]],
  layout: shuffled_records.Layout,
  vocab_size: int,
) -> dict[str, shuffled_records.RecordFiles]:
  """The records to train on and to evaluate on, every one checked.

  Args:
    paths: as `find_records` returns them.
    layout: what the files have in common.
    vocab_size: V.

  Raises:
    ValueError: a record is wrong.
  """
  spec = instances.feature_spec(*layout)
  # The same files are read once.
  read = functools.cache(
    lambda *names: shuffled_records.RecordFiles(names, spec, vocab_size)
  )
  return {name: read(*names) for name, names in paths.items()}


def make_record(
  records: Mapping[str, shuffled_records.RecordFiles],
) -> dict[str, dict]:
  """What `flags.json` is to say."""
  return run_record.make_record(
    {**common_flags.flag_values(), "task_name": "pre-training"},
    {name: files.fingerprint for name, files in records.items()},
  )


def log_plan(
  bert_config: modeling.BertConfig,
  layout: shuffled_records.Layout,
  records: Mapping[str, shuffled_records.RecordFiles],
) -> None:
  """Logs what is to be done with which records."""
  shapes = {
    **modeling.variable_shapes(bert_config),
    **pretraining.head_shapes(bert_config, layout.next_sentence_prediction),
  }
  if "train" in records:
    rows = len(records["train"])
    logging.info(
      "Training %s parameters on %s of %s: %s of %s, %.3g epochs",
      f"{sum(map(math.prod, shapes.values())):,}",
      plural(rows, "record"),
      plural(len(records["train"].paths), "file"),
      plural(FLAGS.num_train_steps, "update"),
      plural(FLAGS.train_batch_size, "row"),
      FLAGS.num_train_steps * FLAGS.train_batch_size / rows,
    )
  if records.get("dev") is records.get("train"):
    logging.warning(
      "Evaluating on the records that are trained on; pass others as "
      "--eval_input_file"
    )
  elif "dev" in records and not FLAGS.eval_input_file:
    logging.info("Evaluating on --input_file=%s", FLAGS.input_file)


def build_estimator(bert_config: modeling.BertConfig) -> estimator.Estimator:
  """The Estimator that the flags describe."""
  model_fn = model_fn_builder(
    bert_config,
    FLAGS.init_checkpoint,
    FLAGS.learning_rate,
    FLAGS.num_train_steps,
    FLAGS.num_warmup_steps,
    FLAGS.use_tpu,
    FLAGS.use_tpu,
    FLAGS.precision,
  )
  config = experiment.run_config(FLAGS.output_dir, FLAGS.seed)
  return estimator.Estimator(model_fn, config)


def train(
  model: estimator.Estimator,
  input_fn: Callable[[Mapping], tf.data.Dataset],
  evaluate: Callable[[], dict[str, float]] | None,
  release_files: Mapping[str, str | bytes],
) -> None:
  """Trains, and makes `output_dir` a release of its own.

  Args:
    model: an Estimator.
    input_fn: the records to train on.
    evaluate: called every --eval_steps, if that is not 0.
    release_files: see `checkpoints.write_release`.
  """

  def evaluate_at(step):
    results = evaluate()
    model.write_scalars("dev", results)
    names = sorted(results.keys() - {"global_step"})
    shown = ", ".join(f"{name} {results[name]:.4f}" for name in names)
    logging.info("step %d, evaluation: %s", step, shown)
    return False

  best_checkpoint.train(
    model,
    input_fn,
    FLAGS.train_batch_size,
    FLAGS.num_train_steps,
    evaluate_at if FLAGS.eval_steps else None,
    FLAGS.eval_steps,
    None,
    release_files,
  )


def main() -> None:
  check_flags()
  experiment.check_devices()
  paths = find_records()
  tokenizer = load_tokenizer()
  bert_config = common_flags.load_config(tokenizer)
  layout = common_layout(paths)
  is_trained = check_weights(bert_config, layout)
  release_files = common_flags.release_files(bert_config)
  transform = make_masking(tokenizer)
  # Masking looks pieces up, of which there may be fewer than the model has.
  vocab_size = len(tokenizer.vocab) if transform else bert_config.vocab_size
  records = read_records(paths, layout, vocab_size)
  tf.io.gfile.makedirs(FLAGS.output_dir)
  run_record.keep_record(
    FLAGS.output_dir, make_record(records), FLAGS.do_train, is_trained
  )
  log_plan(bert_config, layout, records)
  model = build_estimator(bert_config)
  evaluate = None
  if "dev" in records:
    max_rows = FLAGS.max_eval_steps * FLAGS.eval_batch_size
    input_fn = shuffled_records.evaluation_input_fn(
      records["dev"], max_rows, transform
    )
    evaluate = functools.partial(
      model.evaluate, input_fn, FLAGS.eval_batch_size
    )
  if FLAGS.do_train:
    input_fn = shuffled_records.training_input_fn(records["train"], transform)
    train(model, input_fn, evaluate, release_files)
  if FLAGS.do_eval:
    stem = os.path.join(FLAGS.output_dir, "eval_results")
    run_record.write_results(stem, evaluate())


if __name__ == "__main__":
  startup.run(main, define_flags)
