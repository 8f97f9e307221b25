"""Writes JSON, and reads files of it, of which some are damaged or hostile.

    settings = strict_json.loads(content)

Python's own reader accepts numbers that no `float` holds, and NaN, which JSON
lacks; and values nested so deep that code which walks through them fails.
"""

import json
import math
from typing import Any

# Levels of lists and objects; configurations and data have less than ten.
_MOST_LEVELS = 100

# Any number with fewer digits is a `float`.
_MOST_DIGITS = 300


def loads(content: str | bytes, allows_nan: bool = False) -> Any:
  """The value that JSON, text or bytes in UTF-8, stands for.

  `allows_nan` accepts NaN and infinite numbers, which Python itself writes.
  Raises ValueError if it is not JSON, or not as strict as above.
  """
  finite = (
    {} if allows_nan else {"parse_constant": _refuse, "parse_float": _float}
  )
  try:
    found = json.loads(content, parse_int=_int, **finite)
  except RecursionError as error:
    raise _too_deep() from error
  _check_levels(found)
  return found


def dumps(value: Any, sort_keys: bool = False) -> str:
  """The JSON of a value, for people to read, too."""
  options = {"indent": 2, "ensure_ascii": False, "sort_keys": sort_keys}
  return json.dumps(value, **options) + "\n"


def _refuse(name):
  raise ValueError(f"{name} is no number of JSON")


def _float(text):
  number = float(text)
  if math.isinf(number):
    raise ValueError(f"the number {text} is too large")
  return number


def _int(text):
  if len(text) > _MOST_DIGITS:
    raise ValueError(f"a number has {len(text)} digits")
  return int(text)


def _check_levels(value):
  """Raises ValueError for a value that is nested too deep; not recursive."""
  level = [value]
  for _ in range(_MOST_LEVELS):
    level = [
      child
      for parent in level
      if isinstance(parent, (dict, list))
      for child in (parent.values() if isinstance(parent, dict) else parent)
      if isinstance(child, (dict, list))
    ]
    if not level:
      return
  raise _too_deep()


def _too_deep():
  return ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
