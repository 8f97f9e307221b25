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

from __future__ import annotations

from collections.abc import Sequence


import modeling
import optimization
import tokenization
from bert.data import instances
from bert.engine import inputs
from bert.engine.programs import ModelFn
from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import COUNT, PATH, Flag, Flags, at_least, table
from bert.scripts import startup
from bert.scripts.experiment import Experiment
from bert.scripts.run_one import run_one
from bert.scripts.settings import RunSettings, check_training, load_model
from bert.tasks.pretraining.records import record_flags
from bert.tasks.pretraining.task import (
  PretrainingTask,
  gather_indexes,
  get_masked_lm_output,
  get_next_sentence_output,
)
from bert.tasks.pretraining.teacher import PretrainingTeacher, parse_layers
from bert.training.model_fn import ModelOptions, build_model_fn

# The original's names.
__all__ = [
  "gather_indexes", "get_masked_lm_output", "get_next_sentence_output",
  "input_fn_builder", "model_fn_builder",
]  # fmt: skip


def input_fn_builder(
  input_files: Sequence[str],
  max_seq_length: int,
  max_predictions_per_seq: int,
  is_training: bool,
  num_cpu_threads: int = 4,
) -> inputs.InputFn:
  """An `input_fn` over the records of files."""
  del num_cpu_threads
  spec = instances.feature_spec(max_seq_length, max_predictions_per_seq)
  return inputs.input_fn_from_file(input_files, spec, is_training)


def model_fn_builder(
  bert_config: modeling.BertConfig,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
) -> ModelFn:
  """The `model_fn` of both objectives; `use_tpu` is ignored."""
  del use_tpu
  return build_model_fn(
    PretrainingTask(bert_config, {}, True),
    bert_config,
    init_checkpoint,
    optimization.Optimization(learning_rate, num_train_steps, num_warmup_steps),
    ModelOptions(use_one_hot_embeddings),
  )


# fmt: off
FLAGS = table(
  flag_table.MODEL,
  flag_table.TRAINING,
  flag_table.DEVICES,
  (
    flag_table.sequence_length("Must equal the length of the records."),
    Flag("input_file", None,
         "TFRecord files to train on: paths or patterns, separated by commas.",
         kind=PATH),
    Flag("eval_input_file", None,
         "TFRecord files to evaluate on. Default: --input_file.", used="dev",
         kind=PATH),
    Flag("num_train_steps", 100000, "Number of training steps.", check=COUNT,
         used="train"),
    Flag("num_warmup_steps", 10000,
         "Number of steps in which the learning rate rises linearly to its "
         "peak.", check=at_least(0), used="train"),
    Flag("max_eval_steps", 100, "Maximum number of batches to evaluate.",
         check=COUNT, used="dev", affects_weights=False),
    *flag_table.PRETRAINING_TEACHER,
    Flag("dynamic_masking", False,
         "Mask rows as they are read, differently in each epoch. For records "
         "made with --no_masking. Needs their vocabulary."),
  ),
  flag_table.masking("For --dynamic_masking. "),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks the flags that do not depend on files."""
  taught = ["teacher"] if flags.teacher else []
  check_training(flags, *record_flags(flags), *taught)
  flags.require_one("do_train", "do_eval")
  if "input_file" not in record_flags(flags).values():
    flags.warn_if_given("add --do_train", "input_file")
  if flags.do_train and flags.num_warmup_steps > flags.num_train_steps:
    raise UserError(
      f"--num_warmup_steps={flags.num_warmup_steps} exceeds "
      f"--num_train_steps={flags.num_train_steps}, so the learning rate would "
      f"never reach its peak; lower it"
    )
  # flags.json would record masks that the records do not have.
  for name in ("masked_lm_prob", "do_whole_word_mask"):
    if flags[name] != flags.rows[name].default and not flags.dynamic_masking:
      raise UserError(
        f"--{name}={flags[name]}: the records are already masked; pass it "
        f"to create_pretraining_data.py, or add --dynamic_masking"
      )


def load_teacher(
  flags: Flags,
  config: modeling.BertConfig,
  tokenizer: tokenization.FullTokenizer | None,
) -> PretrainingTeacher | None:
  """The model of --teacher, if the run trains."""
  if not (flags.teacher and flags.do_train):
    return None
  return PretrainingTeacher(
    flags.teacher,
    config,
    tokenizer,
    parse_layers(flags.distill_layers),
    flags.distill_weight,
    flags.distill_temperature,
    flags.precision,
    flags.distill_targets,
  )


def plan(flags: Flags) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  # A vocabulary beside the model is copied into the new model's folder, so it
  # is checked like a named one.
  model = load_model(flags, needs_tokenizer=flags.dynamic_masking)
  model.check_length(flags.max_seq_length)
  task = PretrainingTask.from_flags(flags, model)
  task.distillation = load_teacher(flags, model.config, model.tokenizer)
  settings = RunSettings(
    flags,
    record_flags(flags),
    init_checkpoint=model.init_checkpoint,
    **model.flags(),
  )
  return Experiment(task, model, settings)


def main(flags: Flags) -> dict[str, float]:
  check_flags(flags)
  return run_one(plan(flags))


run, command = startup.script(main, FLAGS)

if __name__ == "__main__":
  command()
