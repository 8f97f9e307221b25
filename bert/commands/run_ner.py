"""Fine-tunes BERT to label words, evaluates it, and finds entities in text.

    python run_ner.py --do_train=true --do_eval=true --data_dir=$CONLL_DIR \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=false \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/ner_output/
"""

import dataclasses
import os

from absl import flags

from bert.errors import UserError
from bert.data import files, text_files
from bert.tasks import entities, loaded_model, tagged_text, terminal
from bert.tasks.tagging import TaggerSettings, TaggingTask
from bert.training import (
  common_flags,
  flag_checks,
  model_flags,
  startup,
  task_file,
)
from bert.training.experiment import Experiment, ModelFiles
from bert.training.settings import Settings, find_weights

# For notebooks.
__all__ = ["TaggerSettings", "TaggingTask"]

FLAGS = flags.FLAGS

_SENTENCES = (
  "CoNLL columns (word first, label last) or JSON Lines with tokens and "
  "labels; .gz too."
)

# Lines of --predict_file that are read and labeled together.
_MAX_LINES = 1000

# Flag, default, help.
_FLAGS = (
  (
    "data_dir",
    None,
    "Folder with train.txt, dev.txt or valid.txt, test.txt, "
    "each with or without .gz.",
  ),
  ("train_file", None, f"Sentences to train on: {_SENTENCES}"),
  ("dev_file", None, f"Sentences to evaluate on: {_SENTENCES}"),
  ("test_file", None, "Sentences to label, in one of these formats."),
  (
    "label_all_tokens",
    False,
    "Train on all pieces of a word, not only the first.",
  ),
  (
    "max_context",
    False,
    "Fill sequences up with the sentences before and after, if they are of the "
    "same document. Their words are not labeled.",
  ),
  (
    "predict_file",
    None,
    "Find the entities in each line of this text, or of standard input if -, "
    "and print them as JSON.",
  ),
  ("interactive", False, "Ask for texts and find their entities."),
)

# The split that needs a file, and its names in --data_dir.
_NAMES = {
  "train": ("train.txt",),
  "dev": ("dev.txt", "valid.txt"),
  "test": ("test.txt",),
}


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(128, "Longer text is read in windows.")
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags(
    "f1 or accuracy", "f1, or to accuracy for labels that mark no entities"
  )
  common_flags.define_device_flags()
  common_flags.define_from_table(_FLAGS)


def find_file(split: str) -> str:
  """The file of a split, by its flag or in --data_dir.

  Raises:
    UserError: there is none.
  """
  path = FLAGS[f"{split}_file"].value
  if path:
    flag_checks.require_file(f"{split}_file")
    return path
  if not FLAGS.data_dir:
    raise UserError(f"--{split}_file is required; pass it, or --data_dir")
  for name in _NAMES[split]:
    for end in ("", ".gz"):
      path = os.path.join(FLAGS.data_dir, name + end)
      if files.isfile(path):
        return path
  names = " or ".join(_NAMES[split])
  raise UserError(
    f"--data_dir={FLAGS.data_dir} has no {names}; pass --{split}_file"
  )


def make_task(tokenizer, folder: str | None) -> TaggingTask:
  """The task, whose files are read; a trained model sets labels and reading.

  Args:
    tokenizer: a FullTokenizer.
    folder: the folder of the trained model; None to train.
  """
  sentences = {
    split: tagged_text.read_sentences(find_file(split), split != "test")
    for split in flag_checks.wanted_splits()
  }
  given = {
    name: FLAGS[name].value
    for name in ("max_seq_length", "label_all_tokens", "max_context")
    if FLAGS.do_train or not FLAGS[name].using_default_value
  }
  if FLAGS.do_train:
    labels = tagged_text.find_labels(sentences["train"])
    if len(labels) < 2:
      raise UserError(
        f"{find_file('train')}: all words have the label {labels[0]!r}; pass a "
        f"file with two labels or more (in CoNLL format, in the last column)"
      )
    scheme = entities.find_scheme(s.labels for s in sentences["train"])
    settings = TaggerSettings(labels=tuple(labels), scheme=scheme, **given)
  else:
    flag_checks.warn_of_unused("add --do_train", "label_all_tokens")
    trained = task_file.load(TaggingTask, folder)
    settings = dataclasses.replace(trained, **given)
  for split in sentences.keys() - {"test"}:
    tagged_text.check_labels(sentences[split], settings.labels)
  tagged_text.warn_of_plain_text(sentences.get("test", ()))
  return TaggingTask(settings, tokenizer, sentences)


def make_experiment() -> Experiment:
  """The Experiment of the flags; its files are read and checked.

  Raises:
    UserError: a flag or a file is wrong.
  """
  init_checkpoint, folder = find_weights()
  tokenizer = model_flags.load_tokenizer()
  task = make_task(tokenizer, folder)
  config = model_flags.load_config(tokenizer, task.settings.max_seq_length)
  settings = Settings.from_flags(
    flag_checks.wanted_splits(),
    init_checkpoint=init_checkpoint,
    max_seq_length=task.settings.max_seq_length,
    label_all_tokens=task.settings.label_all_tokens,
    max_context=task.settings.max_context,
  )
  model = ModelFiles(config, model_flags.release_files(config))
  return Experiment(task, model, settings)


def answer() -> None:
  """Finds entities in --predict_file, or in what the user types."""
  flag_checks.check_question_flags("predict_file", "interactive")
  path = FLAGS.predict_file or ""
  if path.lower().removesuffix(".gz").endswith((".json", ".jsonl")):
    raise UserError(
      f"--predict_file={path} would be read as lines of text; pass JSON Lines "
      f"as --test_file, with --do_predict"
    )
  model = loaded_model.load_trained(
    FLAGS.output_dir,
    TaggingTask.kind,
    batch_size=FLAGS.predict_batch_size,
    precision=FLAGS.precision,
  )
  flag_checks.warn_of_unused_model(
    "max_seq_length", "max_context", "label_all_tokens"
  )
  if FLAGS.interactive:
    terminal.converse(model)
    return
  with text_files.open_input(FLAGS.predict_file) as (reader, name):
    for lines in text_files.lines_as_they_come(reader, name, _MAX_LINES):
      for found in model.answers(text for _, text in lines):
        print(entities.to_json(found.text, found.entities), flush=True)


def main() -> None:
  if FLAGS.predict_file or FLAGS.interactive:
    answer()
    return
  flag_checks.check_fine_tuning_flags("predict_file", "interactive")
  make_experiment().run()


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
