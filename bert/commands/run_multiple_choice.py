"""Fine-tunes BERT to choose among continuations, evaluates it, and predicts.

    python run_multiple_choice.py --do_train=true --do_eval=true \\
      --train_file=$SWAG_DIR/train.csv --dev_file=$SWAG_DIR/val.csv \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --train_batch_size=16 --learning_rate=2e-5 --output_dir=/tmp/swag_output/
"""

from bert.flags.values import PATH, Flag
from bert.scripts import script
from bert.tasks.multiple_choice.data import Example
from bert.tasks.multiple_choice.task import MultipleChoiceTask

__all__ = ["Example", "MultipleChoiceTask"]

_ROWS = "SWAG's .csv, or .jsonl with context, question, choices and label."

# fmt: off
run, command = script.make(
  MultipleChoiceTask,
  (
    Flag("train_file", None, f"Rows to train on: {_ROWS}", used="train",
         kind=PATH),
    Flag("dev_file", None, f"Rows to evaluate on: {_ROWS}", used="dev",
         kind=PATH),
    Flag("test_file", None, "Rows to predict, in one of these formats.",
         used="test", kind=PATH),
    Flag("interactive", False, "Ask for choices and compare them.",
         affects_weights=False),
  ),
  __name__,
)
# fmt: on
