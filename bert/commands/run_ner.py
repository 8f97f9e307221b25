"""Fine-tunes BERT to label words, evaluates it, and finds entities in text.

    python run_ner.py --do_train=true --do_eval=true --data_dir=$CONLL_DIR \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=false \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/ner_output/
"""

from typing import BinaryIO

from bert.data import text_files
from bert.engine.loaded_model import LoadedModel
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, table
from bert.scripts import script, startup
from bert.scripts.experiment import Experiment
from bert.scripts.settings import check_fine_tuning, load_model
from bert.tasks.tagging import entities
from bert.tasks.tagging.task import TaggerSettings, TaggingTask

# For notebooks.
__all__ = ["TaggerSettings", "TaggingTask"]

_SENTENCES = (
  "CoNLL columns (word first, label last), or JSON Lines or Parquet with "
  "tokens and labels; .gz too."
)

# Lines of --predict_file that are read and labeled together.
_MAX_LINES = 1000


# fmt: off
FLAGS = table(
  flag_table.fine_tuning(
    "f1 or accuracy", "f1, or to accuracy for labels that mark no entities"
  ),
  (
    flag_table.sequence_length("Longer text is read in windows."),
    Flag("data_dir", None,
         "Folder with train.txt, dev.txt or valid.txt, test.txt, each with or "
         "without .gz.", used="data", kind=PATH),
    Flag("train_file", None, f"Sentences to train on: {_SENTENCES}",
         used="train", kind=PATH),
    Flag("dev_file", None, f"Sentences to evaluate on: {_SENTENCES}",
         used="dev", kind=PATH),
    Flag("test_file", None, "Sentences to label, in one of these formats.",
         used="test", kind=PATH),
    Flag("label_all_tokens", False,
         "Train on all pieces of a word, not only the first.", used="train",
         fixed_by="task"),
    Flag("max_context", False,
         "Fill sequences up with the sentences before and after, if they are "
         "of the same document. Their words are not labeled.",
         fixed_by="task"),
    Flag("predict_file", None,
         "Find the entities in each line of this text, or of standard input "
         "if -, and print them as JSON.", kind=PATH),
    Flag("interactive", False, "Ask for texts and find their entities.",
         affects_weights=False),
  ),
)
# fmt: on


def plan(flags: Flags) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  model = load_model(flags)
  return script.experiment(flags, TaggingTask.from_flags(flags, model), model)


def answer_lines(model: LoadedModel, reader: BinaryIO, name: str) -> None:
  """Prints the entities in lines of text as they arrive."""

  def read():
    return text_files.lines_as_they_come(reader, name, _MAX_LINES)

  for lines in text_files.checked(reader, read):
    for answer in model.answers(text for _, text in lines):
      print(entities.to_json(answer.text, answer.entities), flush=True)


def main(flags: Flags) -> dict[str, float] | list[dict]:
  if flags.predict_file or flags.interactive:
    script.ask(flags, TaggingTask.kind, answer_lines)
    return {}
  check_fine_tuning(flags, ["predict_file", "interactive"])
  flags = script.with_initial_defaults(flags, TaggingTask)
  return script.run_seeds(flags, plan)


run, command = startup.script(main, FLAGS)
