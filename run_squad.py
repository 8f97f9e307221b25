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

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import modeling
import optimization
import tokenization  # noqa: F401  Users read `run_squad.tokenization`.
from bert.contract import ops
from bert.engine import inputs
from bert.engine.loaded_model import LoadedModel
from bert.engine.programs import ModelFn
from bert.flags import flag_table
from bert.flags.values import COUNT, PATH, Flag, Flags, table
from bert.models import task_file
from bert.scripts import script, startup, terminal
from bert.scripts.experiment import Experiment
from bert.scripts.settings import check_fine_tuning, engine_options, load_model
from bert.tasks.squad import task as squad_model
from bert.tasks.squad.data import (
  FeatureWriter,
  InputFeatures,
  SquadExample,
  convert_examples_to_features,
  feature_spec,
  read_squad_examples,
)
from bert.tasks.squad.decoding import (
  RawResult,
  get_final_text,
  write_predictions,
)
from bert.tasks.squad.task import SquadSettings, SquadTask, file_flags
from bert.training.model_fn import ModelOptions, build_model_fn

if TYPE_CHECKING:
  import tensorflow as tf

# The original's names, including those from `bert.tasks.squad`.
__all__ = [
  "FeatureWriter", "InputFeatures", "RawResult", "SquadExample",
  "convert_examples_to_features", "create_model", "get_final_text",
  "input_fn_builder", "model_fn_builder", "read_squad_examples",
  "write_predictions",
]  # fmt: skip


def input_fn_builder(
  input_file: str | Sequence[str],
  seq_length: int,
  is_training: bool,
  drop_remainder: bool,
) -> inputs.InputFn:
  """An `input_fn` over the rows of files, with all S positions."""
  spec = feature_spec(seq_length, is_training)
  input_fn = inputs.input_fn_from_file(
    input_file, spec, is_training, drop_remainder
  )
  # Padding positions are part of the loss's softmax, as in the original.
  return lambda params: input_fn({**params, "pad_to_max_length": True})


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  use_one_hot_embeddings: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns start_logits and end_logits, each float [B, S]."""
  sequences = input_ids, input_mask, segment_ids
  bert = modeling.BertModel(
    bert_config, is_training, *sequences, use_one_hot_embeddings
  )
  tensor_ops = ops.TensorOps(is_training)
  outputs = SquadTask().head(tensor_ops, bert, {"input_mask": input_mask})
  return outputs["all_start_logits"], outputs["all_end_logits"]


def model_fn_builder(
  bert_config: modeling.BertConfig,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
) -> ModelFn:
  """The `model_fn` of SQuAD. `use_tpu` is ignored."""
  del use_tpu
  return build_model_fn(
    SquadTask(),
    bert_config,
    init_checkpoint,
    optimization.Optimization(learning_rate, num_train_steps, num_warmup_steps),
    ModelOptions(use_one_hot_embeddings),
  )


# fmt: off
FLAGS = table(
  flag_table.fine_tuning("f1 or exact_match", "f1"),
  (
    flag_table.sequence_length(
      "Longer text is read in windows.", SquadSettings.max_seq_length
    ),
    Flag("train_file", None,
         "Training questions: a SQuAD JSON file, or .json.gz.", used="train",
         kind=PATH),
    Flag("predict_file", None, "Questions to answer, and to evaluate on.",
         used="dev test", kind=PATH),
    Flag("interactive", False,
         "Ask for texts and questions, and answer them.",
         affects_weights=False),
    Flag("doc_stride", SquadSettings.doc_stride,
         "Stride, in pieces, between windows of a long text.", check=COUNT,
         fixed_by="task"),
    Flag("max_query_length", SquadSettings.max_query_length,
         "Longer questions are truncated to this length.", check=COUNT,
         fixed_by="task"),
    Flag("version_2_with_negative", False,
         "Whether questions may have no answer.", fixed_by="task"),
    Flag("count_steps_on_windows", False,
         "Count epochs in windows, not questions.", used="train"),
    Flag("n_best_size", SquadSettings.n_best_size,
         "Number of answers listed per question.",
         check=COUNT, affects_weights=False),
    Flag("max_answer_length", SquadSettings.max_answer_length,
         "Maximum length of an answer in word pieces.", check=COUNT,
         affects_weights=False),
    Flag("null_score_diff_threshold", "0.0",
         "Predict no answer if the score of the null answer exceeds that of "
         "the best answer by more than this. auto selects the value with the "
         "best F1 on --predict_file; if that file has no answers, it uses the "
         "value selected before.", affects_weights=False),
    Flag("verbose_logging", False,
         "Accepted for compatibility; has no effect.", affects_weights=False),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks the flags that do not depend on files."""
  check_fine_tuning(flags, ["interactive"])
  for name in dict.fromkeys(file_flags(flags).values()):
    flags.require(name)
    flags.require_file(name)


def plan(flags: Flags) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  model = load_model(flags)
  return script.experiment(
    flags,
    SquadTask.from_flags(flags, model),
    model,
    do_eval=flags.do_eval and not flags.do_predict,  # It scores, too.
  )


def load_reader(flags: Flags) -> LoadedModel:
  """The model in --output_dir or --init_checkpoint, to answer questions."""
  task_file.check_is_complete(flags.output_dir)
  model = load_model(flags)
  settings = SquadTask.settings_of_run(flags, model)
  threshold = squad_model.parse_threshold(flags.null_score_diff_threshold)
  if threshold == squad_model.AUTO:
    threshold = squad_model.read_threshold([model.folder])
  return LoadedModel(
    SquadTask(settings, model.tokenizer, threshold=threshold),
    model,
    model.folder,
    **engine_options(flags),
  )


def main(flags: Flags) -> dict[str, float] | list[dict]:
  if flags.interactive:
    flags.check_exclusive("interactive", "do_train", "do_eval", "do_predict")
    flags.warn_of_unused()
    terminal.converse_on_files(load_reader(flags))
    return {}
  check_flags(flags)
  flags = script.with_initial_defaults(
    flags, SquadTask, "doc_stride", "max_query_length"
  )
  return script.run_seeds(flags, plan)


run, command = startup.script(main, FLAGS)

if __name__ == "__main__":
  command()
