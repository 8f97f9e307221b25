"""Fine-tunes BERT to label words, evaluates it, and finds entities in text.

    python run_ner.py --do_train=true --do_eval=true --data_dir=$CONLL_DIR \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=false \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/ner_output/
"""

import dataclasses
import os
from typing import BinaryIO

from bert.data import files, text_files
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, table
from bert.models import task_file
from bert.scripts import script, startup
from bert.scripts.experiment import Experiment
from bert.scripts.settings import (
  check_fine_tuning,
  find_weights,
  load_model,
  wanted_splits,
)
from bert.tasks.tagging import data, entities
from bert.tasks.tagging.task import TaggerSettings, TaggingTask

# For notebooks.
__all__ = ["TaggerSettings", "TaggingTask"]

_SENTENCES = (
  "CoNLL columns (word first, label last), or JSON Lines or Parquet with "
  "tokens and labels; .gz too."
)

# Lines of --predict_file that are read and labeled together.
_MAX_LINES = 1000

# The split that needs a file, and its names in --data_dir.
_NAMES = {
  "train": ("train.txt",),
  "dev": ("dev.txt", "valid.txt"),
  "test": ("test.txt",),
}


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


def find_file(flags: Flags, split: str) -> str:
  """The file of a split, by its flag or in --data_dir."""
  flag, names = f"{split}_file", _NAMES[split]
  if flags.data_dir and not flags[flag]:
    files.check_is_folder(flags.data_dir, f"--data_dir={flags.data_dir}")
    for name in names:
      for end in ("", ".gz"):
        path = os.path.join(flags.data_dir, name + end)
        if files.isfile(path):
          return path
  flags.require(flag, value=f"it, or a --data_dir with {' or '.join(names)}")
  flags.require_file(flag)
  return flags[flag]


def make_task(flags: Flags, tokenizer, folder: str | None) -> TaggingTask:
  """The task with its files. `folder` has the trained model; None to train.

  A trained model fixes the labels.
  """
  sentences = {
    split: data.read_sentences(find_file(flags, split), split != "test")
    for split in wanted_splits(flags)
  }
  fixed = ("max_seq_length", "label_all_tokens", "max_context")
  if flags.do_train:
    labels = data.find_labels(sentences["train"])
    if len(labels) < 2:
      raise UserError(
        f"{find_file(flags, 'train')}: all words have the label {labels[0]!r}; "
        f"pass a file with two labels or more (in CoNLL format, in the last "
        f"column)"
      )
    scheme = entities.find_scheme(s.labels for s in sentences["train"])
    settings = TaggerSettings(
      labels=tuple(labels), scheme=scheme, **{n: flags[n] for n in fixed}
    )
  else:
    trained = task_file.load(TaggingTask, folder)
    settings = dataclasses.replace(trained, **flags.given_of(fixed))
  for split in sentences.keys() - {"test"}:
    data.check_labels(sentences[split], settings.labels)
  data.warn_of_plain_text(sentences.get("test", ()))
  return TaggingTask(settings, tokenizer, sentences)


def plan(flags: Flags) -> Experiment:
  """Reads and checks all that the flags name; writes nothing."""
  init_checkpoint, folder = find_weights(flags)
  model = load_model(flags, flags.output_dir, init_checkpoint, flags.do_train)
  task = make_task(flags, model.tokenizer, folder)
  return script.experiment(
    flags,
    task,
    model,
    init_checkpoint,
    label_all_tokens=task.settings.label_all_tokens,
    max_context=task.settings.max_context,
  )


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
  flags = script.with_initial_length(flags, TaggingTask)
  return script.run_seeds(flags, plan)


run, command = startup.script(main, FLAGS)
