"""Questions with several choices, from SWAG's CSV files or JSON Lines."""

from typing import NamedTuple

from bert.data import tables
from bert.errors import UserError, read_each

_SWAG_COLUMNS = ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3")


class Example(NamedTuple):
  """A question with its choices."""

  where: str  # its file and line
  context: str
  question: str  # may be empty, or the beginning of all choices
  choices: list[str]  # two or more
  label: int | None = None  # the index of the right one; None: unknown


def read_examples(path: str, is_labeled: bool) -> list[Example]:
  """The examples of a .csv file in SWAG's format, of .jsonl, or their .gz."""
  table = tables.read_table(path)
  names = table.names
  is_swag = all(name in names for name in _SWAG_COLUMNS)
  is_known = is_swag or {"context", "choices"} <= set(names)
  if not is_known or (is_labeled and "label" not in names):
    label = ", with label, the index of the right choice" * is_labeled
    raise UserError(
      f"{path} has neither SWAG's columns, {', '.join(_SWAG_COLUMNS)}, nor "
      f"context and choices{label}; rename its columns, or add them"
    )
  return read_each(
    lambda row: _example(*row, is_swag, is_labeled),
    table.named_rows(),
    lambda row: row[0],
  )


def _example(where, row, is_swag, is_labeled):
  """The Example of a row, a dict by column."""
  context, question, choices = (
    row.get(name) for name in ("context", "question", "choices")
  )
  if is_swag:
    context, question, *choices = (row[name] for name in _SWAG_COLUMNS)
  question = "" if question is None else question
  texts = [context, question, *(choices if isinstance(choices, list) else [])]
  context, question, *choices = texts = list(map(tables.as_text, texts))
  if len(choices) < 2 or None in texts or not all(map(str.strip, choices)):
    raise UserError(
      f"{where}: context and question must be strings, and choices a list of "
      f"two or more that are not empty (in a .jsonl file)"
    )
  label = None
  if is_labeled:
    label = _label(where, row["label"], len(choices))
  return Example(where, context, question, choices, label)


def _label(where, value, count):
  """The index in a label; UserError unless it is from 0 to `count` - 1."""
  try:
    label = int(value)
  except (TypeError, ValueError, OverflowError):
    label = -1
  if not 0 <= label < count or isinstance(value, bool | float):
    accepted = f"the index of a choice, 0 to {count - 1}"
    raise tables.wrong_cell(f"{where}: label", value, accepted)
  return label
