"""Fills [MASK] in texts with a pre-trained model, or scores texts without it.

    python fill_mask.py --model_dir=$BERT_BASE_DIR --input_file=/tmp/input.txt

Each line of the input is a text, or a pair of texts, `A ||| B`:
- with [MASK], the likeliest word pieces are listed and filled in;
- without, each word is scored by masking it, and the text by its
  pseudo-log-likelihood (Salazar et al. 2020);
- for a pair, the probability that B follows A is added.
"""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator

from absl import flags

from bert.errors import UserError
from bert.data import files, text_files
from bert.tasks import feature_files, loaded_model, terminal
from bert.tasks.loaded_model import LoadedModel
from bert.tasks.masked_text import Filled, Text, joined
from bert.training import (
  common_flags,
  flag_checks,
  model_folder,
  runtimes,
  startup,
)

FLAGS = flags.FLAGS

# Lines that are read and answered together, and about how many characters. The
# model reads a line once for each of its pieces, so long lines need far more
# memory than short ones.
_LINES_AT_A_TIME = 256
_CHARACTERS_AT_A_TIME = 2**14


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_input_flag()
  common_flags.define_model_dir_flag("run_pretraining.py")
  flags.DEFINE_string(
    "output_file",
    None,
    "JSON Lines to write; - is standard output. Default: text on standard "
    "output.",
  )
  flags.DEFINE_bool("interactive", False, "Ask for texts and answer them.")
  flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Lower-case the text and strip accents. Default: as bert_config.json says, "
    "or else the name of the folder, or else True.",
  )
  flags.DEFINE_integer(
    "top_k", 5, "Number of pieces listed for each [MASK].", lower_bound=1
  )
  flags.DEFINE_integer(
    "batch_size", 32, "Masked positions per batch.", lower_bound=1
  )
  flags.DEFINE_enum(
    "precision", "float32", runtimes.PRECISIONS, "Precision of the layers."
  )


def check_flags() -> None:
  """Raises UserError if a flag is missing or a file cannot be written."""
  flag_checks.require("model_dir")
  flag_checks.check_exclusive("input_file", "interactive")
  flag_checks.check_exclusive("output_file", "interactive")
  if FLAGS.output_file in (None, text_files.STREAM):
    flag_checks.check_standard_output()
  if FLAGS.interactive:
    return
  flag_checks.require("input_file")
  if FLAGS.input_file != text_files.STREAM:
    flag_checks.require_file("input_file")
  if (FLAGS.output_file or "").lower().endswith(".gz"):
    raise UserError(
      f"--output_file={FLAGS.output_file} is written as plain text; remove .gz"
    )
  check_output_file()


def check_output_file(*read: str) -> None:
  """Raises UserError unless --output_file can be written.

  Args:
    read: files that it must not replace, beside the input.
  """
  if FLAGS.output_file and FLAGS.output_file != text_files.STREAM:
    flag_checks.check_output_files(
      "output_file", [FLAGS.output_file], [FLAGS.input_file, *read]
    )


def to_json(filled: Filled) -> str:
  """The answer to a text as one line of JSON."""
  return json.dumps(filled.to_dict(), ensure_ascii=False)


def groups(texts: Iterable[Text]) -> Iterator[list[Text]]:
  """Yields lists of texts that fit into memory together."""
  group, size = [], 0
  for text in texts:
    group.append(text)
    size += len(joined(text))
    if len(group) == _LINES_AT_A_TIME or size >= _CHARACTERS_AT_A_TIME:
      yield group
      group, size = [], 0
  if group:
    yield group


def _line_name(lines_before, index):
  path = FLAGS.input_file
  name = "standard input" if path == text_files.STREAM else path
  return f"{name}:{lines_before + index}"


def load_filler() -> LoadedModel:
  """The model that the flags describe."""
  model = model_folder.find_model(FLAGS.model_dir, FLAGS.do_lower_case)
  return loaded_model.load_task(
    model,
    "fill_mask",
    top_k=FLAGS.top_k,
    batch_size=FLAGS.batch_size,
    precision=FLAGS.precision,
  )


def _read(model, text, where):
  """The example of a text or pair."""
  parts = (text,) if isinstance(text, str) else text
  return model.task.example(*parts, where=where)


def main() -> None:
  check_flags()
  model = load_filler()
  if FLAGS.interactive:
    terminal.converse(model)
    return
  check_output_file(*model_folder.input_files(FLAGS.model_dir))
  with contextlib.ExitStack() as stack:
    # Whoever sends texts through a pipe may wait for each answer.
    form, write = model.task.describe, functools.partial(print, flush=True)
    if FLAGS.output_file == text_files.STREAM:
      form = to_json
    elif FLAGS.output_file:
      writer = stack.enter_context(files.open_atomic(FLAGS.output_file, "w"))
      form, write = to_json, lambda line: writer.write(line + "\n")
    number = 0
    for block in feature_files.read_texts(
      FLAGS.input_file, lambda text, i: _read(model, text, _line_name(0, i))
    ):
      for texts in groups(block):
        examples = [
          _read(model, text, _line_name(number, i))
          for i, text in enumerate(texts, 1)
        ]
        for filled in model.answer_examples(examples):
          write(form(filled))
        number += len(texts)


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
