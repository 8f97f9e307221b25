"""Flags: a row that describes each flag, and the values of a run.

    TABLE = table(TRAINING, [Flag("data_dir", None, "Folder of the data.")])
    flags = parse(TABLE, {"data_dir": "glue", "learning_rate": 2e-5})
    flags.learning_rate

`bert/flags/flag_table.py` has the rows that scripts share.
"""

import collections
import copy
import dataclasses
import itertools
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from absl import flags as absl_flags
from absl import logging

from bert.data import files
from bert.errors import UserError, check_given, did_you_mean

# Value of `Flag.used` -> how to make a run use such flags.
_REMEDIES = {
  "train": "add --do_train",
  "dev": "add --do_eval or --eval_steps",
  "test": "add --do_predict",
  "train dev": "add --do_train or --do_eval",
  "dev test": "add --do_predict, --do_eval or --eval_steps",
  "sample": "omit --dev_file",
  "tpu": "omit it, or add --use_tpu",
  "teacher": "add --teacher",
  "xnli": "pass --task_name=XNLI",
}


class Check(NamedTuple):
  """A condition of a value, and its words: "must be ..."."""

  words: str
  holds: Callable[[Any], bool]


def at_least(least: float, most: float | None = None) -> Check:
  """The check of numbers from `least` to `most`, which may be None."""
  if most is None:
    return Check(f"{least} or more", lambda x: least <= x < math.inf)
  return Check(f"from {least} to {most}", lambda x: least <= x <= most)


COUNT = at_least(1)
POSITIVE = Check("greater than 0", lambda x: 0 < x < math.inf)
FRACTION = Check("between 0 and 1", lambda x: 0 < x < 1)
SHARE = Check("greater than 0 and at most 1", lambda x: 0 < x <= 1)
PROPORTION = Check("between 0 and 1", lambda x: 0 <= x <= 1)

PATH = os.PathLike


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag."""

  name: str
  default: object
  help: str
  _: dataclasses.KW_ONLY
  # The type of the values; None for the type of the default, or str. PATH is a
  # path to files; a training records their content.
  kind: type | None = None
  choices: tuple[str, ...] = ()  # the valid values; () for any
  check: Check | None = None
  # The runs that use the flag, a key of `_REMEDIES`; "" for all. Others warn if
  # the flag is given.
  used: str = ""
  affects_weights: bool = True  # whether another value gives other weights
  # "model" if the files of a model determine it, "task" if its task.json does.
  fixed_by: str | None = None

  def __post_init__(self):
    if self.kind is PATH:  # Files may be moved.
      object.__setattr__(self, "affects_weights", False)

  def but(self, **changes) -> "Flag":
    """The flag with other fields, such as `default`."""
    return dataclasses.replace(self, **changes)


Table = Mapping[str, Flag]


def table(*groups: Iterable[Flag]) -> Table:
  """The flags by name; a later one replaces an earlier one of that name."""
  return {flag.name: flag for group in groups for flag in group}


class Flags:
  """The values of a run's flags, as attributes."""

  def __init__(self, rows: Table, given: Mapping[str, object]):
    self.rows = rows
    self.given = {k: v for k, v in given.items() if v is not None}
    self.values = {name: row.default for name, row in rows.items()}
    self.values |= self.given
    for name, value in self.given.items():
      row = rows.get(name)
      if row and row.check and not row.check.holds(value):
        raise UserError(f"--{name}={_shown(value)} must be {row.check.words}")
      if row and row.kind is PATH:
        _check_path(name, value)

  def __getattr__(self, name: str) -> object:
    try:
      return self.__dict__["values"][name]
    except KeyError:
      raise AttributeError(f"there is no flag {name}") from None

  def __getitem__(self, name: str) -> object:
    return self.values[name]

  def __contains__(self, name: str) -> bool:
    return name in self.values

  def get(self, name: str) -> object:
    """The value of a flag; None if the script does not have it."""
    return self.values.get(name)

  def given_of(self, names: Iterable[str]) -> dict[str, object]:
    """The values of the given flags among these, by name."""
    return {name: self[name] for name in names if name in self.given}

  def changed(self, **values) -> "Flags":
    """The flags with other values, which do not count as given."""
    changed = copy.copy(self)
    changed.values = {**self.values, **values}
    return changed

  # Checks.

  def require(self, *names: str, value: str | None = None) -> None:
    """Raises UserError, with what to pass, if a flag has no value."""
    for name in names:
      value = value or " or ".join(self.rows[name].choices) or "a value"
      check_given(f"--{name}", self[name], value)

  def require_one(self, *names: str) -> None:
    """Raises UserError if none of these flags is given."""
    *others, last = (f"--{name}" for name in names)
    if not any(self[name] for name in names):
      raise UserError(f"nothing to do; pass {', '.join(others)} or {last}")

  def check_exclusive(self, *names: str) -> None:
    """Raises UserError if two of these flags are given."""
    first, *others = [name for name in names if self[name]] or [None]
    if others:
      raise UserError(
        f"--{first} and --{others[0]} cannot both be given; omit one"
      )

  def require_file(self, name: str) -> None:
    """Raises UserError unless this flag names a file that exists."""
    path = self[name]
    files.check_is_file(path, f"--{name}={path}", "pass the path of a file")

  def refuse_pipes(self, name: str, paths: Iterable[str]) -> None:
    """Raises UserError for a pipe among the files that a flag names."""
    for path in paths:
      files.refuse_pipe(path, f"--{name}={self[name]}")

  def find_files(self, name: str) -> list[str]:
    """The files that a flag names: paths and patterns, separated by commas."""
    self.require(name)
    named = []
    for pattern in self[name].split(","):
      # A path that exists is taken literally, even if it looks like a pattern.
      if files.exists(pattern):
        paths = [pattern]
      else:
        paths = itertools.filterfalse(files.is_partial, files.find(pattern))
      matches = [path for path in paths if not files.isdir(path)]
      if not matches:
        raise UserError(
          f"--{name}={self[name]}: no file matches {pattern}; pass paths or "
          f"patterns such as data/*.txt, separated by commas"
        )
      named += matches
    return named

  def check_output_files(
    self, name: str, paths: Iterable[str], read: Iterable[str | None]
  ) -> None:
    """Raises UserError unless files can be written and are not in `read`."""
    taken = {os.path.realpath(path): "is an input" for path in read if path}
    for path in paths:
      problem, target = _problem_of_output(path), os.path.realpath(path)
      if target in taken:
        problem = f"{path} {taken[target]}; pass another path"
      if problem:
        raise UserError(f"--{name}={self[name]}: {problem}")
      taken[target] = "is given twice"

  # Warnings.

  def warn_of_unused(self, *runs: str) -> None:
    """Warns of given flags that the runs ignore; see `Flag.used`.

    Without runs, the script only asks a trained model.
    """
    unused = collections.defaultdict(list)
    for row in self.rows.values():
      if row.used and not {*row.used.split()} & {*runs}:
        unused[_REMEDIES[row.used] if runs else "omit it"].append(row.name)
    for remedy, names in unused.items():
      self.warn_if_given(remedy, *names)

  def warn_if_given(self, remedy: str, *names: str) -> None:
    """Warns of each of these flags that differs from its default."""
    unused = [
      f"--{name}={_shown(self[name])}"
      for name in names
      if self[name] and self[name] != self.rows[name].default
    ]
    verb = "is" if len(unused) == 1 else "are"
    if len(unused) > 1:
      remedy = remedy.replace("omit it", "omit them")
    if unused:
      logging.warning("%s %s not used; %s", ", ".join(unused), verb, remedy)

  def warn_of_trained(self, *fixed_by: str) -> None:
    """Warns of flags that are given, but fixed by the model in --output_dir."""
    unused = [n for n in self.given if self.rows[n].fixed_by in fixed_by]
    if unused:
      logging.warning(
        "Not used, because the model in --output_dir is used as trained: --%s",
        ", --".join(unused),
      )


def _shown(value):
  return ",".join(map(str, value)) if isinstance(value, list) else value


def _check_path(name, value):
  """Raises UserError for a path that begins with a literal `~`."""
  for path in value.split(","):
    if path.startswith("~/") and not os.path.exists(path):
      raise UserError(
        f"--{name}={path}: shells do not replace ~ there; pass "
        f"--{name}=$HOME{path[1:]}, or --{name} {path}"
      )


def _problem_of_output(path):
  """Why a file cannot be written, with the remedy; or None."""
  folder, base = os.path.dirname(path) or ".", os.path.basename(path)
  if not base or files.isdir(path):
    return f"{path!r} is not a file; pass the path of a file"
  if files.is_remote(path):
    return None
  if os.path.exists(path) and not os.path.isfile(path):
    return f"{path} is a pipe or a device; pass the path of a file"
  if not os.path.isdir(folder):
    return f"no such folder {folder}; create it, or pass another path"
  if not os.access(folder, os.W_OK):
    return f"folder {folder} is not writable; pass another path"
  return None


def check_output_folder(path: str, may_be_remote: bool = True) -> None:
  """Raises UserError unless --output_dir can be created and written to."""
  if files.is_remote(path):
    is_valid, problem = may_be_remote, "the folder is remote; pass a local one"
  else:
    # The folder itself, or the nearest one above it that exists.
    existing = os.path.abspath(path)
    while not os.path.exists(existing):
      existing = os.path.dirname(existing)
    is_valid = os.path.isdir(existing) and os.access(existing, os.W_OK)
    problem = f"{existing} is not a writable folder; pass another"
  if not is_valid:
    raise UserError(f"--output_dir={path}: {problem}")


# Values from Python and from the command line, both read by absl.


def define(rows: Table, flag_values: absl_flags.FlagValues) -> None:
  """Defines flags with absl, in the module that Python was started with."""
  makers = {
    bool: absl_flags.DEFINE_bool,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    list: absl_flags.DEFINE_list,
    str: absl_flags.DEFINE_string,
    PATH: absl_flags.DEFINE_string,
  }
  where = {"flag_values": flag_values, "module_name": sys.argv[0]}
  for row in rows.values():
    kind = row.kind or (str if row.default is None else type(row.default))
    if row.choices:
      absl_flags.DEFINE_enum(
        row.name, row.default, list(row.choices), row.help, **where
      )
    else:
      makers[kind](row.name, row.default, row.help, **where)


def parse(rows: Table, values: Mapping[str, object]) -> Flags:
  """The Flags of values from Python: text, objects, or None for the default."""
  parsers, given = absl_flags.FlagValues(), {}
  define(rows, parsers)
  for name, value in values.items():
    try:
      if name not in rows:
        raise absl_flags.UnrecognizedFlagError(name)
      if value is not None:
        if isinstance(value, list | tuple):  # Of any objects.
          value = list(map(str, value))
          if rows[name].kind is not list:  # The text of several values.
            value = ",".join(value)
        parsers[name].parse(value if isinstance(value, list) else str(value))
        given[name] = parsers[name].value
    except absl_flags.Error as error:
      raise UserError(message_of(error, rows)) from error
  return Flags(rows, given)


def message_of(error: absl_flags.Error, rows: Table) -> str:
  """Explains why absl refused a name or a value."""
  if isinstance(error, absl_flags.UnrecognizedFlagError):
    name = error.flagname
    near = did_you_mean(name, rows, "--{}".format)
    return f"there is no flag --{name}{near or '; --help lists all flags'}"
  # absl shows a tuple for a bool.
  return re.sub(r": \('Non-boolean.*", ": pass true or false", str(error))
