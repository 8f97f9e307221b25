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

from bert.errors import UserError
from bert.data import files, text_files
from bert.tasks import feature_files, loaded_model, terminal
from bert.tasks.loaded_model import LoadedModel
from bert.tasks.masked_text import Filled, Text, joined
from bert.training import flag_table, model_folder, startup
from bert.training.flags import COUNT, PATH, Flag, Flags, table

# Lines that are read and answered together, and about how many characters. The
# model reads a line once for each of its pieces, so long lines need far more
# memory than short ones.
_LINES_AT_A_TIME = 256
_CHARACTERS_AT_A_TIME = 2**14


# fmt: off
FLAGS = table(
  flag_table.model_dir("run_pretraining.py"),
  (
    flag_table.INPUT_FILE,
    Flag("output_file", None,
         "JSON Lines to write; - is standard output. Default: text on "
         "standard output.", kind=PATH),
    Flag("interactive", False, "Ask for texts and answer them."),
    flag_table.LOWER_CASE.but(
      default=None,
      kind=bool,
      help="Lower-case the text and strip accents. Default: as "
      "bert_config.json says, or else the name of the folder, or else True.",
    ),
    Flag("top_k", 5, "Number of pieces listed for each [MASK].", check=COUNT),
    Flag("batch_size", 32, "Masked positions per batch.", check=COUNT),
    flag_table.PRECISION.but(help="Precision of the layers."),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Raises UserError if a flag is missing or a file cannot be written."""
  flags.require("model_dir")
  flags.check_exclusive("input_file", "interactive")
  flags.check_exclusive("output_file", "interactive")
  if flags.interactive:
    return
  flags.require("input_file")
  if flags.input_file != text_files.STREAM:
    flags.require_file("input_file")
  if (flags.output_file or "").lower().endswith(".gz"):
    raise UserError(
      f"--output_file={flags.output_file} is written as plain text; remove .gz"
    )
  check_output_file(flags)


def check_output_file(flags: Flags, *read: str) -> None:
  """Raises UserError unless --output_file can be written.

  Args:
    read: files that it must not replace, beside the input.
  """
  if flags.output_file and flags.output_file != text_files.STREAM:
    flags.check_output_files(
      "output_file", [flags.output_file], [flags.input_file, *read]
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


def _line_name(flags, lines_before, index):
  path = flags.input_file
  name = "standard input" if path == text_files.STREAM else path
  return f"{name}:{lines_before + index}"


def load_filler(flags: Flags) -> LoadedModel:
  """The model that the flags describe."""
  model = model_folder.find_model(flags.model_dir, flags.do_lower_case)
  return loaded_model.load_task(
    model,
    "fill_mask",
    top_k=flags.top_k,
    batch_size=flags.batch_size,
    precision=flags.precision,
  )


def _read(model, text, where):
  """The example of a text or pair."""
  parts = (text,) if isinstance(text, str) else text
  return model.task.example(*parts, where=where)


def main(flags: Flags) -> dict[str, int]:
  check_flags(flags)
  model = load_filler(flags)
  if flags.interactive:
    terminal.converse(model)
    return {}
  check_output_file(flags, *model_folder.input_files(flags.model_dir))
  with contextlib.ExitStack() as stack:
    # Whoever sends texts through a pipe may wait for each answer.
    form, write = model.task.describe, functools.partial(print, flush=True)
    if flags.output_file == text_files.STREAM:
      form = to_json
    elif flags.output_file:
      writer = stack.enter_context(files.open_atomic(flags.output_file, "w"))
      form, write = to_json, lambda line: writer.write(line + "\n")
    number = 0
    for block in feature_files.read_texts(
      flags.input_file,
      lambda text, i: _read(model, text, _line_name(flags, 0, i)),
    ):
      for texts in groups(block):
        examples = [
          _read(model, text, _line_name(flags, number, i))
          for i, text in enumerate(texts, 1)
        ]
        for filled in model.answer_examples(examples):
          write(form(filled))
        number += len(texts)
  return {"lines": number}


run, command = startup.script(main, FLAGS)
