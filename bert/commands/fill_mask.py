"""Fills [MASK] in texts with a pre-trained model, or scores texts without it.

    python fill_mask.py --model_dir=$BERT_BASE_DIR --input_file=/tmp/input.txt

Each line of the input is a text, or a pair of texts, `A ||| B`:
- with [MASK], the likeliest word pieces are listed and filled in;
- without, each word is scored by masking it, and the text by its
  pseudo-log-likelihood (Salazar et al. 2020);
- for a pair, the probability that B follows A is added.
"""

import itertools
import json

from bert.data import text_files
from bert.engine import loaded_model
from bert.flags import flag_table
from bert.flags.values import COUNT, PATH, Flag, Flags, table
from bert.models import model_folder
from bert.models.resolve import Overrides, resolve
from bert.scripts import startup, terminal
from bert.tasks.embeddings import feature_files

# Lines that are answered together. The model reads a line once per piece.
_LINES_AT_A_TIME = 16


# fmt: off
FLAGS = table(
  flag_table.model_dir("run_pretraining.py"),
  (
    flag_table.INPUT_FILE,
    Flag("output_file", None,
         "JSON Lines to write; - is standard output. Default: text on "
         "standard output.", kind=PATH),
    Flag("interactive", False, "Ask for texts and answer them."),
    flag_table.LOWER_CASE,
    Flag("top_k", 5, "Number of pieces listed for each [MASK].", check=COUNT),
    Flag("batch_size", 32, "Masked positions per batch.", check=COUNT),
    flag_table.PRECISION.but(help="Precision of the layers."),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks that flags are given, and that files can be read and written."""
  flags.require("model_dir")
  flags.check_exclusive("input_file", "interactive")
  flags.check_exclusive("output_file", "interactive")
  if flags.interactive:
    return
  flags.require("input_file")
  if flags.input_file != text_files.STREAM:
    flags.require_file("input_file")
  if flags.output_file not in (None, text_files.STREAM):
    read = [flags.input_file, *model_folder.input_files(flags.model_dir)]
    flags.check_output_files("output_file", [flags.output_file], read)


def main(flags: Flags) -> dict[str, int]:
  check_flags(flags)
  model = loaded_model.load_task(
    resolve(flags.model_dir, Overrides.of(flags.given)),
    "fill_mask",
    **{name: flags[name] for name in ("top_k", "batch_size", "precision")},
  )
  if flags.interactive:
    terminal.converse(model)
    return {}
  is_stream = flags.input_file == text_files.STREAM
  name = "standard input" if is_stream else flags.input_file

  def example(text, number):
    parts = (text,) if isinstance(text, str) else text
    return model.task.example(*parts, where=f"{name}:{number}")

  def describe(filled):
    if not flags.output_file:
      return model.task.describe(filled)
    return json.dumps(filled.to_dict(), ensure_ascii=False)

  number = 0
  with text_files.line_writer(flags.output_file) as write:
    for block in feature_files.read_texts(flags.input_file, example):
      lines = iter(block)
      while texts := list(itertools.islice(lines, _LINES_AT_A_TIME)):
        examples = list(map(example, texts, itertools.count(number + 1)))
        for filled in model.answer_examples(examples):
          write(describe(filled))
        number += len(texts)
  return {"lines": number}


run, command = startup.script(main, FLAGS)
