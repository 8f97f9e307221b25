"""Writes JSON, and reads files of it, of which some are damaged or hostile.

    settings = strict_json.loads(content)

Python's own reader accepts numbers that no `float` holds, and NaN, which JSON
lacks; and values nested so deep that code which walks through them fails.
"""

import json
import math
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from bert.errors import shortened

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
    value = json.loads(content, parse_int=_int, **finite)
  except RecursionError as error:
    raise _too_deep() from error
  _check_levels(value)
  return value


def dumps(value: Any, sort_keys: bool = False) -> str:
  """The JSON of a value, for people to read, too."""
  options = {"indent": 2, "ensure_ascii": False, "sort_keys": sort_keys}
  return json.dumps(value, **options) + "\n"


# JSON types in error messages: of one value, and of several.
TYPE_NAMES = {
  bool: "true or false",
  int: "a whole number",
  float: "a number",
  str: "a string",
  list: "a list",
  dict: "an object",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "strings"}
_PLURALS |= {list: "lists", tuple: "lists", dict: "objects"}


def check_types(fields: Mapping[str, object], known: Mapping[str, Any]) -> None:
  """Raises ValueError for a field that has not the type of its name in `known`.

  A type is a type hint, such as `list[str] | None`. A tuple stands for a list.
  Fields of other names pass.
  """
  for name, hint in known.items():
    if name in fields and not _has_type(fields[name], hint):
      shown = shortened(json.dumps(fields[name], ensure_ascii=False))
      raise ValueError(f"{name} is {shown}, not {_in_words(hint)}")


def _has_type(value, hint):
  kind, parts = get_origin(hint) or hint, get_args(hint)
  if kind in (Union, types.UnionType):
    return any(_has_type(value, part) for part in parts)
  if kind in (list, tuple):
    element = parts[0] if parts else Any
    is_list = isinstance(value, list | tuple)
    return is_list and all(_has_type(part, element) for part in value)
  if kind is dict:
    element = parts[1] if parts else Any
    is_dict = isinstance(value, dict)
    return is_dict and all(_has_type(v, element) for v in value.values())
  if kind is float:
    return type(value) in (float, int)
  # isinstance would accept a bool as an int.
  return type(value) is kind or kind not in (*TYPE_NAMES, types.NoneType)


def _in_words(hint):
  kind, parts = get_origin(hint) or hint, get_args(hint)
  if kind in (Union, types.UnionType):
    known = (part for part in parts if part is not types.NoneType)
    return " or ".join(map(_in_words, known))
  kind = list if kind is tuple else kind
  element = parts[kind is dict] if parts else None
  elements = _PLURALS.get(get_origin(element) or element)
  return TYPE_NAMES[kind] + (f" of {elements}" if elements else "")


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
