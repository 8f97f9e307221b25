"""Errors in what the user passed, and helpers for their messages."""

import difflib
import importlib.util
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import Any

# The name under which pip installs this project; pyproject.toml has it, too.
_DISTRIBUTION = "bert-tensorflow2"

# Names shown in one message; a file or a task may have thousands.
MAX_LISTED = 20

# Characters of a message; the values in it may be of any length.
_MAX_LENGTH = 1500


class UserError(ValueError):
  """A wrong flag, file or setting.

  The message is one line that names the flag or the file (with its line), the
  value, and the remedy. Scripts print it without a traceback and exit with
  `status`; any other exception counts as a bug.

  Whatever takes a value, a path or a text of the user may raise it, so
  docstrings do not repeat that.
  """

  status = 2

  def __init__(self, message: object = ""):
    super().__init__(without_middle(str(message)))


def without_middle(message: str) -> str:
  """The message; of a long one, which holds a long value, only both ends."""
  if len(message) <= _MAX_LENGTH:
    return message
  return f"{message[: _MAX_LENGTH // 2]} ... {message[-_MAX_LENGTH // 2 :]}"


def first_line(error: BaseException) -> str:
  """The first line of an exception's message; without one, its type's name."""
  # TensorFlow counts the causes that follow.
  text = re.sub(r"^\d+ root error.*", "", str(error), flags=re.MULTILINE)
  return (text.strip().splitlines() or [type(error).__name__])[0].strip()


def plural(count: int, noun: str) -> str:
  """A count with its noun: "1 row", "2 rows", "1,000 rows"."""
  return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listing(names: Sequence, are_quoted: bool = True) -> str:
  """The names, texts quoted; only the first of many, and long ones cut."""
  show = repr if are_quoted else str
  shown = ", ".join(
    show(shortened(name)) if isinstance(name, str) else str(name)
    for name in names[:MAX_LISTED]
  )
  more = len(names) - MAX_LISTED
  return f"{shown} and {more} more" if more > 0 else shown


def shortened(text: str) -> str:
  """The text, cut to 60 characters."""
  return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(
  word: str, words: Iterable[str], shown: Callable[[str], str] = repr
) -> str:
  """Returns "; did you mean ...?", or "" if no known word is similar.

  The case of the word does not matter. `shown` formats the suggestion.
  """
  by_lower = {str(other).lower(): other for other in words}
  near = difflib.get_close_matches(word.lower(), by_lower, n=1)
  return f"; did you mean {shown(by_lower[near[0]])}?" if near else ""


def read_each(
  read: Callable[[Any], Any], items: Iterable, where: Callable[[Any], str] = str
) -> list:
  """[read(item) for item in items]; the error names all that are wrong.

  `where` is the place of an item, such as FILE:LINE.
  """
  results, errors, lines = [], [], []
  for item in items:
    try:
      results.append(read(item))
    except UserError as error:
      errors.append(error)
      lines.append(where(item).rpartition(":")[2])
  if errors:
    others = f"; {plural(len(lines) - 1, 'more such row')}: "
    others += listing(lines[1:], are_quoted=False)
    raise UserError(f"{errors[0]}{others if lines[1:] else ''}") from errors[0]
  return results


def check_given(what: str, value: object, remedy: str) -> None:
  """Raises UserError unless there is a value; the remedy says what to pass."""
  if not value:
    raise UserError(f"{what} is required; pass {remedy}")


def check_known(what: str, value: str, known: Collection[str]) -> None:
  """Raises UserError unless a name is one of those that are known.

  `what` names the flag or the place, and the value.
  """
  if value not in known:
    names = list(known)
    problem = f"one of {listing(names)}{did_you_mean(str(value), names)}"
    if not names:
      problem = "known, as there are none; omit it"
    raise UserError(f"{what} is not {problem}")


def unsupported(
  path: str, name: str, value: object, *known: object
) -> UserError:
  """The error of a setting in a model's file, for the caller to raise."""
  return UserError(
    f"{path}: {name}={shortened(repr(value))} is not supported; pass a model "
    f"with {name}={' or '.join(map(str, known))}"
  )


def import_optional(name: str, needed_by: str, requirements: str) -> ModuleType:
  """Imports a module of an optional package, which `requirements` lists.

  `needed_by` names the flag or format in the message without it.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise missing_package(name, needed_by, error, requirements) from error


def require_package(name: str, needed_by: str, requirements: str) -> None:
  """Like `import_optional`, but imports nothing."""
  if importlib.util.find_spec(name) is None:
    reason = f"No module named {name!r}"
    raise missing_package(name, needed_by, reason, requirements)


def missing_package(
  name: str, needed_by: str, reason: object, requirements: str
) -> UserError:
  """The error that an optional package is missing; see `import_optional`."""
  command = f"pip install -r {requirements}"
  # Only a clone has the file.
  if not (pathlib.Path(__file__).parent.parent / requirements).exists():
    extra = requirements.removesuffix(".txt").partition("-")[2]
    name_of_extra = f"[{extra}]" if extra else ""
    command = f"pip install '{_DISTRIBUTION}{name_of_extra}'"
  return UserError(
    f"{needed_by} needs the package {name.split('.')[0]} ({reason}); run "
    f"{command}"
  )
