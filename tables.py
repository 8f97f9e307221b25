"""A user's own labelled texts: tables in TSV, CSV or JSON Lines files.

`read_table` reads a file, `TableProcessor` makes the sets of a task of it.
"""

import collections
import csv
import dataclasses
import gzip
import io
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from examples import DataProcessor, InputExample
from heads import (
  LABEL_SEPARATOR,
  Classification,
  Multilabel,
  Regression,
  split_labels,
)
from inputs import decode_utf8, did_you_mean, listing, shortened, split_lines

_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclasses.dataclass(frozen=True)
class Table:
  """The rows of a file.

  Attributes:
    path: the file.
    names: the columns' names; None if the file has no header. For JSON Lines
      the keys of all objects, in the order in which they first appear.
    rows: for each row a list of str; for JSON Lines a dict.
    lines: the line on which each row starts, counted from 1.
  """

  path: str
  names: list[str] | None
  rows: list
  lines: list[int]

  def place(self, column: str | int, flag: str) -> int:
    """Which column that is, counted from 0.

    Args:
      column: its name, or its number, from 0 or, if negative, from the end.
        What is both is a name.
      flag: the flag that named it, without dashes, for errors.

    Raises:
      ValueError: there is no such column.
    """
    column = str(column)
    width = len(self.rows[0] if self.names is None else self.names)
    if self.names is not None and column in self.names:
      return self.names.index(column)
    if re.fullmatch(r"-?[0-9]{1,9}", column):
      if -width <= int(column) < width:
        return int(column) % width
      problem = f"{self.path} has {_count(width, 'column')}"
    else:
      problem = f"{self.path} has no such column"
    if self.names is None:
      remedy = (
        f"it is read without a header, so give a number, 0 to {width - 1}, or "
        f"-1 for the last column"
      )
    else:
      remedy = f"its columns are {listing(self.names)}"
      remedy += did_you_mean(column, self.names)
    if width == 1:
      remedy += "; a tab parts columns in .tsv, a comma in .csv"
    raise ValueError(f"--{flag}={column}: {problem}; {remedy}")

  def column(self, place: int) -> list:
    """A column's values; None for what an object of JSON Lines lacks."""
    if isinstance(self.rows[0], dict):
      name = self.names[place]
      return [row.get(name) for row in self.rows]
    return [row[place] for row in self.rows]


def read_table(path: str | os.PathLike, header: bool = True) -> Table:
  """Reads a file by its extension: .tsv, .csv, .jsonl or .json, or these + .gz.

  The text is UTF-8, with or without a byte order mark. In a TSV file a
  quotation mark is text; in CSV it quotes, and a quoted field may hold line
  breaks; JSON Lines is one object a line. Empty lines at the end are passed
  over, in JSON Lines all of them. Elsewhere an empty line is a row of one
  column in TSV, and an error in CSV.

  Args:
    path: the file.
    header: whether the first line of TSV or CSV names the columns; objects
      name theirs in any case.

  Raises:
    ValueError: the file is missing, broken or without rows, or a row has more
      or fewer columns than the first; the message names file and line.
  """
  path = os.fspath(path)
  if tf.io.gfile.isdir(path):
    raise ValueError(f"{path} is a folder; pass a file in it")
  extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
  if extension not in _READERS:
    raise ValueError(
      f"{path} has none of the known extensions "
      f"{', '.join(_READERS)}, each also with .gz; rename or convert the file"
    )
  rows, lines = _READERS[extension](path, decode_utf8(path, _read_bytes(path)))
  if not rows:
    raise ValueError(f"{path} is empty; give a file with rows")
  if isinstance(rows[0], dict):
    keys = dict.fromkeys(key for row in rows for key in row)
    return Table(path, list(keys), rows, lines)
  names = rows[0]
  if header and names in ([], [""]):
    raise ValueError(f"{path}:1: the header is empty; name the columns there")
  _check_widths(path, extension, rows, lines)
  if not header:
    return Table(path, None, rows, lines)
  name, times = collections.Counter(names).most_common(1)[0]
  if times > 1:
    raise ValueError(
      f"{path}:1: the header names {times} columns {name!r}; rename one"
    )
  if len(rows) == 1:
    raise ValueError(f"{path} has a header and no rows; give a file with rows")
  return Table(path, names, rows[1:], lines[1:])


def _read_bytes(path):
  if not tf.io.gfile.exists(path):
    raise ValueError(f"there is no file {path}; correct the path")
  with tf.io.gfile.GFile(path, "rb") as reader:
    content = reader.read()
  if not path.lower().endswith(".gz"):
    return content
  try:
    return gzip.decompress(content)
  except (EOFError, OSError, zlib.error) as error:
    raise ValueError(
      f"{path} is not a whole gzip file: {error}; fetch or write it again"
    ) from error


def _read_tsv(path, text):
  rows = [line.split("\t") for line in split_lines(text)]
  _drop_empty_end(path, rows, [""])
  return rows, list(range(1, len(rows) + 1))


def _read_csv(path, text):
  csv.field_size_limit(2**31 - 1)
  # Strict, or an open quotation mark would swallow the rest of the file.
  reader = csv.reader(io.StringIO(text, newline=""), strict=True)
  rows, lines = [], []
  start = 1
  try:
    for row in reader:
      rows.append(row)
      lines.append(start)
      start = reader.line_num + 1
  except csv.Error as error:
    raise ValueError(
      f"{path}:{start}: {error} in the row that starts here; close each "
      f"quotation mark, and write one within quotes twice"
    ) from error
  _drop_empty_end(path, rows, [])
  return rows, lines[: len(rows)]


def _drop_empty_end(path, rows, empty):
  before = len(rows)
  while rows and rows[-1] == empty:
    rows.pop()
  if len(rows) < before:
    logging.info(
      "%s: passing over %s at its end",
      path,
      _count(before - len(rows), "empty line"),
    )


def _read_json_lines(path, text):
  rows, lines = [], []
  for number, line in enumerate(split_lines(text), start=1):
    if not line.strip(" \t\r"):
      continue
    try:
      rows.append(_parse_object(line))
    except (ValueError, RecursionError) as error:
      problem = str(error)
      if isinstance(error, json.JSONDecodeError):
        problem = f"{error.msg} (column {error.colno})"
      raise ValueError(
        f"{path}:{number}: {problem}; write one whole JSON object a line, such "
        f'as {{"text": "...", "label": "..."}}'
      ) from error
    lines.append(number)
  return rows, lines


def _parse_object(line):
  parsed = json.loads(line, object_pairs_hook=_unique_keys)
  if not isinstance(parsed, dict):
    raise ValueError(f"{shortened(line.strip())} is no object")
  if _HALF_A_PAIR.search(line):
    try:
      json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
      raise ValueError(
        "a \\u escape is half of a surrogate pair and no character"
      ) from error
  return parsed


def _unique_keys(pairs):
  parsed = dict(pairs)
  if len(parsed) < len(pairs):
    (key, _), *_ = collections.Counter(k for k, _ in pairs).most_common(1)
    raise ValueError(f"the key {key!r} stands there twice")
  return parsed


_READERS = {
  ".tsv": _read_tsv,
  ".csv": _read_csv,
  ".jsonl": _read_json_lines,
  ".json": _read_json_lines,
}


def _check_widths(path, extension, rows, lines):
  width = len(rows[0])
  for row, line in zip(rows, lines, strict=True):
    if len(row) != width:
      remedy = {
        ".csv": "put a field that holds a comma between quotation marks",
        ".tsv": "a tab parts columns, and no text may hold one",
      }[extension]
      if row in ([], [""]):
        remedy = "remove the empty line"
      raise ValueError(
        f"{path}:{line}: {_count(len(row), 'column')} where the first line "
        f"has {width}; {remedy}"
      )


@dataclasses.dataclass(kw_only=True, eq=False)
class TableProcessor(DataProcessor):
  """Reads the sets of a task from tables; the arguments are named as flags.

  Without a `dev_file`, a share of the training file is the development set.
  Examples have a `where`, "path:line"; labels lose the spaces around them.

  Args:
    train_file, dev_file, test_file: see `read_table`; None for what is not
      needed.
    text_a_column, text_b_column, label_column, id_column: names or numbers,
      see `Table.place`; without `id_column` examples are named by their place
      in the file, counted from 0. The label of a test set is not read.
    header: whether TSV and CSV files have one.
    kind: "classification", "regression" or "multilabel".
    dev_fraction: the share.
    split_seed: which rows are in it.
    labels: those of a trained model; None to collect them from the training
      file.
    data_dir: folder of relative paths; the one that a method is given wins.

  Raises:
    ValueError: `kind` or `dev_fraction` is wrong.
  """

  train_file: str | None = None
  dev_file: str | None = None
  test_file: str | None = None
  text_a_column: str | int = "text"
  text_b_column: str | int | None = None
  label_column: str | int = "label"
  id_column: str | int | None = None
  header: bool = True
  kind: str = Classification.kind
  dev_fraction: float = 0.1
  split_seed: int = 1
  labels: Sequence[str] | None = None
  data_dir: str | None = None

  def __post_init__(self):
    kinds = [head.kind for head in (Classification, Regression, Multilabel)]
    if self.kind not in kinds:
      raise ValueError(f"kind {self.kind!r} is none of {', '.join(kinds)}")
    if not 0 < self.dev_fraction < 1:
      raise ValueError(
        f"--dev_fraction={self.dev_fraction} is not between 0 and 1; pass the "
        f"share of the training file to evaluate on, such as 0.1"
      )
    self._kept = {}  # (what, path) -> what was read or made of it

  def get_train_examples(
    self, data_dir: str | None = None
  ) -> list[InputExample]:
    """The training file's rows, or what the development set leaves of them.

    Raises:
      ValueError: see `get_dev_examples`.
    """
    if self.dev_file:
      return self._checked("train", data_dir)
    return self._split(data_dir)[0]

  def get_dev_examples(self, data_dir: str | None = None) -> list[InputExample]:
    """The rows of the development file, or a share of the training file's.

    Raises:
      ValueError: a flag is missing, a file wrong, or a label unknown; the
        message names flag, or file and line.
    """
    if self.dev_file:
      return self._checked("dev", data_dir)
    return self._split(data_dir)[1]

  def get_test_examples(
    self, data_dir: str | None = None
  ) -> list[InputExample]:
    """The rows of the test file, with labels None.

    Raises:
      ValueError: see `get_dev_examples`.
    """
    return list(self._read("test", data_dir))

  def get_labels(self, data_dir: str | None = None) -> list[str]:
    """The labels of the trained model, or those of the training file, sorted.

    They are sorted as numbers if they all are. A number to predict has none.

    Raises:
      ValueError: the training file has too few.
    """
    if self.kind == Regression.kind:
      return []
    if self.labels is not None:
      return list(self.labels)
    if not self.train_file:
      raise ValueError(
        "--train_file is missing, and there is no labels.json in --output_dir "
        "or the folder of --init_checkpoint; finish the training there, or "
        "pass --train_file"
      )
    path = self._path("train", data_dir)
    if ("labels", path) not in self._kept:
      self._kept["labels", path] = self._collect_labels(path, data_dir)
    return list(self._kept["labels", path])

  def _collect_labels(self, path, data_dir):
    found = {
      name
      for example in self._read("train", data_dir)
      for name in _names(example, self.kind)
    }
    needed = 1 if self.kind == Multilabel.kind else 2
    if len(found) < needed:
      raise ValueError(
        f"--label_column={self.label_column} of {path} has "
        f"{f'just the label {min(found)!r}' if found else 'no label'}, and "
        f"{self.kind} needs {needed} or more; name another column or add rows"
      )
    numbers = {name: _number(name) for name in found}
    if None in numbers.values():
      return sorted(found)
    return sorted(found, key=lambda name: (numbers[name], name))

  def _path(self, set_type, data_dir):
    file = getattr(self, f"{set_type}_file")
    if not file:
      verb = {"train": "train on", "dev": "evaluate on", "test": "predict"}
      raise ValueError(
        f"--{set_type}_file is missing; pass the file to {verb[set_type]}"
      )
    folder = self.data_dir if data_dir is None else data_dir
    if not folder or "://" in file:
      return file
    return os.path.join(folder, file)  # Which leaves an absolute path alone.

  def _read(self, set_type, data_dir):
    path = self._path(set_type, data_dir)
    if (set_type, path) not in self._kept:
      table = read_table(path, self.header)
      self._kept[set_type, path] = self._examples(table, set_type != "test")
    return self._kept[set_type, path]

  def _checked(self, set_type, data_dir):
    """A list of a file's examples, their labels known ones."""
    examples = self._read(set_type, data_dir)
    labels = self.get_labels(data_dir)
    known = set(labels)
    for example in examples:
      for name in _names(example, self.kind):
        if name not in known:
          raise ValueError(
            f"{example.where}: label {name!r} is none of {listing(labels)}"
            f"{did_you_mean(name, labels)}"
          )
    return list(examples)

  def _split(self, data_dir):
    if not self.train_file:
      raise ValueError(
        "--train_file and --dev_file are missing; pass --dev_file, or "
        "--train_file, a share of which is then evaluated on"
      )
    path = self._path("train", data_dir)
    if ("split", path) not in self._kept:
      examples = self._checked("train", data_dir)
      if len(examples) < 2:
        raise ValueError(
          f"{path} has one row, too few to part a development set from it; "
          f"add rows or pass --dev_file"
        )
      self._kept["split", path] = split_examples(
        examples, self.kind, self.dev_fraction, self.split_seed
      )
      logging.info(
        "%s: %d rows to train on and, as there is no --dev_file, %d to "
        "evaluate on",
        path,
        *map(len, self._kept["split", path]),
      )
    return tuple(map(list, self._kept["split", path]))

  def _examples(self, table, with_labels):
    """A Table's InputExamples."""
    readers = {
      "text_a_column": ("text_a", _text),
      "text_b_column": ("text_b", _text),
      "label_column": ("label", self._label),
      "id_column": ("guid", _name),
    }
    wanted = {flag: getattr(self, flag) for flag in readers}
    if not with_labels:
      wanted["label_column"] = None
    places = {
      flag: table.place(column, flag)
      for flag, column in wanted.items()
      if column is not None
    }
    _check_distinct(table.path, wanted, places)
    columns = [
      (*readers[flag], table.column(place), f"--{flag}={wanted[flag]}")
      for flag, place in places.items()
    ]
    examples = []
    for number, line in enumerate(table.lines):
      where = f"{table.path}:{line}"
      fields = {
        field: read(values[number], named, where)
        for field, read, values, named in columns
      }
      fields.setdefault("guid", str(number))
      examples.append(InputExample(**fields, where=where))
    _warn_of_empty_texts(table.path, examples)
    return examples

  def _label(self, value, named, where):
    """A label as text, "a|b" for several."""
    several = self.kind == Multilabel.kind
    if value is None:
      raise ValueError(
        f"{where}: the label of {named} is null or missing; write one, or "
        f"leave the row out"
      )
    is_list = several and isinstance(value, list)
    parts = [_plain(part) for part in (value if is_list else [value])]
    if None in parts:
      raise ValueError(
        f"{where}: label {shortened(json.dumps(value))} of {named} is not "
        f"text, a number, true or false{', or a list of them' * several}"
      )
    if is_list and any(LABEL_SEPARATOR in part for part in parts):
      raise ValueError(
        f"{where}: a label in {shortened(json.dumps(value))} holds a "
        f"{LABEL_SEPARATOR}, which parts labels; rename it"
      )
    label = LABEL_SEPARATOR.join(parts)
    if several:
      return LABEL_SEPARATOR.join(dict.fromkeys(split_labels(label)))
    if not label:
      raise ValueError(
        f"{where}: the label of {named} is empty; write one, or leave the row "
        f"out"
      )
    if self.kind == Regression.kind and _number(label) is None:
      raise ValueError(
        f"{where}: label {shortened(label)!r} of {named} is no number, and "
        f"regression needs one"
      )
    return label


def _text(value, named, where):
  if value is None:
    raise ValueError(
      f"{where}: the text of {named} is null or missing; write it there, if "
      f'only as ""'
    )
  if not isinstance(value, str):
    raise ValueError(
      f"{where}: {shortened(json.dumps(value))} of {named} is no text; put it "
      f"between quotation marks"
    )
  return value


def _name(value, named, where):
  name = _plain(value)
  if not name:
    raise ValueError(
      f"{where}: the name of {named} is missing, or no text or number; give "
      f"each row one"
    )
  return name


def split_examples(
  examples: Sequence[InputExample], kind: str, dev_fraction: float, seed: int
) -> tuple[list[InputExample], list[InputExample]]:
  """Parts labelled examples in two, the order of both kept.

  Each label has the same share in both, to within one example; of several
  labels the rarest one of each example counts. An example whose label no other
  has is trained on, unless the rest is too few to evaluate on. Numbers are
  drawn alike.

  Args:
    examples: two or more.
    kind: "classification", "regression" or "multilabel".
    dev_fraction: share of the second part, which is rounded up.
    seed: which examples are in it.

  Returns:
    The examples to train on, and those to evaluate on, at least one each.
  """
  count = len(examples)
  dev_size = min(math.ceil(dev_fraction * count), count - 1)
  times = _occurrences(examples, kind)
  strata = [
    min(_names(example, kind), key=lambda name: (times[name], name), default="")
    for example in examples
  ]
  sizes = collections.Counter(strata)
  rng = np.random.default_rng(seed)
  order = rng.permutation(count).tolist()
  several = [p for p in order if max(times[strata[p]], sizes[strata[p]]) > 1]
  drawn = several if len(several) >= dev_size else order
  # Examples at even distances of a list sorted by label. scikit-learn's split
  # needs two examples of each label, and room for each label in both parts.
  first = {}
  for place in drawn:
    first.setdefault(strata[place], len(first))
  drawn = sorted(drawn, key=lambda place: first[strata[place]])
  start = int(rng.integers(len(drawn)))
  dev = {drawn[(start + i * len(drawn)) // dev_size] for i in range(dev_size)}
  return (
    [example for place, example in enumerate(examples) if place not in dev],
    [examples[place] for place in sorted(dev)],
  )


def _occurrences(examples, kind):
  """How many examples have each label."""
  return collections.Counter(n for e in examples for n in _names(e, kind))


def log_labels_seen_once(train: Iterable[InputExample], kind: str) -> None:
  """Warns of labels that one example shows and no model can learn."""
  seen = _occurrences(train, kind)
  once = sorted(name for name, times in seen.items() if times == 1)
  if once:
    logging.warning(
      "%s with a single example in the training set: %s",
      _count(len(once), "label"),
      listing(once),
    )


def log_duplicates(
  train: Iterable[InputExample], dev: Sequence[InputExample]
) -> None:
  """Logs how many examples are evaluated and, by their texts, trained on."""
  seen = {(example.text_a, example.text_b) for example in train}
  found = [e for e in dev if (e.text_a, e.text_b) in seen]
  if not found:
    logging.info(
      "0 of the %d development examples are in the training set, too", len(dev)
    )
    return
  logging.warning(
    "%d of the %d development examples (%.1f %%) are in the training set, "
    "too, the first of them %s; the metrics count what was learnt by heart",
    len(found),
    len(dev),
    100 * len(found) / len(dev),
    found[0],
  )


def parse_line(line: str) -> tuple[str, str | None]:
  """A line to predict: a text, or two with a tab between them.

  Returns:
    text_a, and text_b or None.

  Raises:
    ValueError: there is more than one tab.
  """
  text_a, *rest = line.removesuffix("\n").removesuffix("\r").split("\t")
  if len(rest) > 1:
    raise ValueError(
      f"{len(rest) + 1} columns in {shortened(line)!r}; give one text, or two "
      f"with a tab between them"
    )
  return text_a, rest[0] if rest else None


def _check_distinct(path, wanted, places):
  flags = {}
  for flag, place in places.items():
    # A text may well be its own name.
    if flag == "id_column":
      continue
    other = flags.setdefault(place, flag)
    if other != flag:
      raise ValueError(
        f"--{other}={wanted[other]} and --{flag}={wanted[flag]} are one column "
        f"of {path}; name two"
      )


def _warn_of_empty_texts(path, examples):
  empty = [e.where for e in examples if not e.text_a.strip()]
  if empty:
    logging.warning(
      "%s: %d of %d rows have an empty text, the first of them %s",
      path,
      len(empty),
      len(examples),
      empty[0],
    )


def _names(example, kind):
  """The labels of an example; a number is none."""
  if kind == Regression.kind:
    return []
  if kind == Multilabel.kind:
    return split_labels(example.label)
  return [example.label]


def _plain(value):
  """A cell as text; None for what is neither text, number nor truth value."""
  if isinstance(value, str):
    return value.strip()
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, int) or (
    isinstance(value, float) and math.isfinite(value)
  ):
    return str(value)
  return None


def _number(text):
  """The number that a text is, or None."""
  try:
    return Regression().encode(text)
  except ValueError:
    return None


def _count(number, noun):
  return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
