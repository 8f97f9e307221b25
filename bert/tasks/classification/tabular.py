"""Your own labeled texts, from TSV, CSV, JSON Lines or Parquet files."""

import ast
import collections
import dataclasses
import functools
import itertools
import math
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from bert.data import files
from bert.data.tables import as_text, read_table, wrong_cell
from bert.errors import UserError, listing, plural, read_each
from bert.tasks.classification import seen_rows
from bert.tasks.classification.examples import DataProcessor, InputExample
from bert.tasks.classification.label_types import (
  LABEL_SEPARATOR,
  Classification,
  LabelType,
  Multilabel,
  Regression,
  as_number,
  split_labels,
)
from bert.tasks.classification.seen_rows import NO_ROWS, SeenRows, row_hash

# With this many rows, labels repeat, unless the column is the wrong one.
_MANY_ROWS = 50

# Flag of a column -> field of InputExample.
_FIELDS = {
  "text_a_column": "text_a",
  "text_b_column": "text_b",
  "label_column": "label",
  "id_column": "guid",
}


@dataclasses.dataclass(kw_only=True, eq=False)
class TableProcessor(DataProcessor):
  """Reads the data sets of a task from tables; its fields are named like flags.

  Each file is read once. Without a `dev_file`, a fraction of the training file
  is the development set. Rows of the training file without a text are left
  out. Spaces around labels are removed.
  """

  # See `read_table`. The labels of the test file are not read.
  train_file: str | None = None
  dev_file: str | None = None
  test_file: str | None = None
  text_a_column: str | int = "text"
  text_b_column: str | int | None = None
  label_column: str | int = "label"
  id_column: str | int | None = None  # None for row numbers, from 0
  needs_ids: bool = True  # whether the test file must have an `id_column`
  header: bool = True
  delimiter: str | None = None
  encoding: str | None = None
  kind: str = Classification.kind  # a key of `label_types.KINDS`
  dev_fraction: float = 0.1
  split_seed: int = 1  # of the fraction
  labels: Sequence[str] | None = None  # of the model that is used, if any
  # The rows that the model has seen, or the initial model of a training; None
  # if unknown. A fraction has all rows that were held out, and no row that was
  # trained on.
  seen: SeenRows | None = NO_ROWS
  data_dir: str | None = None  # of relative paths; methods ignore theirs

  def __post_init__(self):
    self._cache = {}  # Data set -> InputExamples.
    self._warnings = []  # of empty texts

  def get_train_examples(
    self, data_dir: str | None = None
  ) -> list[InputExample]:
    return self._read("train") if self.dev_file else self._split[0]

  def get_dev_examples(self, data_dir: str | None = None) -> list[InputExample]:
    if self.dev_file or not self.train_file:
      return self._read("dev")
    if not self._split[1]:
      raise UserError(
        f"--train_file={self.train_file} has no row for evaluation that is not "
        f"trained on; pass --dev_file"
      )
    return self._split[1]

  def held_out_examples(self) -> list[InputExample]:
    return [] if self.dev_file else self._split[1]

  def log_data(self) -> None:
    """Warns of empty texts, and of rows missing or trained on."""
    for warning in self._warnings:
      logging.warning("%s", warning)
    if self.seen and self.train_file and self.labels is None:
      rows, trained_on = self._read("train"), self.seen.trained_on
      seen_rows.log_missing(self._path("train"), rows, trained_on)
    if self.seen is None and self.train_file and not self.dev_file:
      logging.warning(
        "%s: the model may have been trained on some of the rows for "
        "evaluation, because its task.json does not list its training rows; "
        "to evaluate on other rows, pass --dev_file",
        self._path("train"),
      )

  def get_test_examples(
    self, data_dir: str | None = None
  ) -> list[InputExample]:
    return self._read("test")

  def get_labels(self) -> list[str]:
    """The labels of the trained model or of the training file; [] for numbers.

    The labels of a file are sorted, as numbers if all of them are numbers.
    """
    if self.kind == Regression.kind:
      return []
    return list(self._found_labels if self.labels is None else self.labels)

  @functools.cached_property
  def _found_labels(self):
    frequencies = _frequencies(self._read("train"), self.kind)
    self._check_repeats(frequencies)
    names = set(frequencies)
    needed = 1 if self.kind == Multilabel.kind else 2
    if len(names) < needed:
      raise UserError(
        f"--label_column={self.label_column} of {self._path('train')} has "
        f"{f'only the label {min(names)!r}' if names else 'no label'}, but "
        f"{self.kind} needs {needed} or more; pass another column or add rows"
      )
    numbers = {name: as_number(name) for name in names}
    if None in numbers.values():
      return sorted(names)
    return sorted(names, key=lambda name: (numbers[name], name))

  def _check_repeats(self, frequencies):
    """Raises UserError if most rows have a unique label, like an id."""
    count, alone = len(self._read("train")), 0
    if self.kind == Classification.kind:
      alone = sum(times == 1 for times in frequencies.values())
    if count < _MANY_ROWS or 2 * alone <= count:
      return
    remedy = "the column of the labels"
    if None not in map(as_number, frequencies):
      remedy += ", or --regression to predict these numbers"
    raise UserError(
      f"--label_column={self.label_column} of {self._path('train')} has "
      f"{plural(len(frequencies), 'distinct value')} in "
      f"{plural(count, 'row')}, and most rows have a unique one; pass "
      f"{remedy}"
    )

  def _path(self, set_type):
    file = getattr(self, f"{set_type}_file")
    if not file:
      hints = {
        "train": "the file to train on",
        "dev": "the file to evaluate on, or the --train_file of the training, "
        "whose held-out rows are then used",
        "test": "the file to predict",
      }
      raise UserError(f"--{set_type}_file is required; pass {hints[set_type]}")
    is_relative = self.data_dir and "://" not in file
    return os.path.join(self.data_dir, file) if is_relative else file

  def _read(self, set_type):
    if set_type not in self._cache:
      table = read_table(
        self._path(set_type), self.header, self.delimiter, self.encoding
      )
      self._cache[set_type] = self._examples(table, set_type)
    return self._cache[set_type]

  @functools.cached_property
  def _split(self):
    examples = self._read("train")
    seen = self.seen or NO_ROWS
    hashes = list(map(row_hash, examples))
    held_out = seen.held_out - seen.trained_on
    kept = [e for e, h in zip(examples, hashes, strict=True) if h in held_out]
    used = seen.held_out | seen.trained_on
    new = [e for e, h in zip(examples, hashes, strict=True) if h not in used]
    is_used = self.labels is not None and seen.trained_on
    if not is_used:  # A training, or a model whose rows are unknown.
      fraction, seed = self.dev_fraction, self.split_seed
      _, new = split_examples(new, self.kind, fraction, seed)
    in_dev = {*kept, *new}
    train = [e for e in examples if e not in in_dev]
    dev = [e for e in examples if e in in_dev]
    in_both = seen.held_out & seen.trained_on & {*hashes}
    left_out = plural(len(in_both), "held-out text")
    logging.info(
      "%s: %s for training, %d for evaluation, because there is no "
      "--dev_file%s%s",
      self._path("train"),
      plural(len(train), "row"),
      len(dev),
      f"; {len(kept)} of them were held out before" if kept else "",
      f"; left out, because also trained on: {left_out}" if in_both else "",
    )
    return train, dev

  def _examples(self, table, set_type):
    columns, with_labels = [], set_type != "test"
    for flag, field in _FIELDS.items():
      name = getattr(self, flag)
      if name is None or (field == "label" and not with_labels):
        continue
      is_needed = field != "guid" or (self.needs_ids and not with_labels)
      if not is_needed and table.find_column(name) is None:
        continue  # Only predictions need ids.
      index = table.column_index(name, flag)
      columns.append((field, f"--{flag}={name}", index))
    _check_distinct(columns, table.path)
    texts = [i for field, _, i in columns if field.startswith("text")]
    rows = list(zip(itertools.count(), table.lines, table.rows, strict=False))
    if set_type == "train":
      problem = f"{table.path}: rows left out, because they have no text"
      rows = self._with_text(rows, texts, all, problem)
      files.check_holds(rows, table.path, "rows with a text")
    self._with_text(rows, texts, any, f"{table.path}: rows with an empty text")

    def example(item):
      number, line, row = item
      where = f"{table.path}:{line}"
      fields = {"guid": str(number), "where": where}
      for field, flag, index in columns:
        fields[field] = self._field(field, row[index], f"{where}: {flag}")
      return InputExample(**fields)

    return read_each(example, rows, lambda row: str(row[1]))

  def _with_text(self, rows, texts, some, problem):
    """The rows with text in these columns; notes a warning of the others."""
    empty = {
      line
      for _, line, row in rows
      if some(not str(row[index]).strip() for index in texts)
    }
    if empty:
      self._warnings.append(
        f"{problem} ({len(empty):,} of {len(rows):,}): lines "
        f"{listing(sorted(empty), are_quoted=False)}"
      )
    return [item for item in rows if item[1] not in empty]

  def _field(self, field, value, cell):
    """The value of a cell as a field of InputExample."""
    several = field == "label" and self.kind == Multilabel.kind
    value = _list_in(value) if several else value
    is_list = several and isinstance(value, list)
    parts = [as_text(part) for part in (value if is_list else [value])]
    if None not in parts:
      if field.startswith("text"):
        return parts[0]
      label = LABEL_SEPARATOR.join(parts).strip()
      if several:  # "a|b".
        return LABEL_SEPARATOR.join(dict.fromkeys(split_labels(label)))
      is_number = field == "label" and self.kind == Regression.kind
      if label and not (is_number and as_number(label) is None):
        return label
    accepted = "text, a number, true or false"
    if several:
      accepted += ", or a list of them"
    elif field == "label" and self.kind == Regression.kind:
      accepted = "a number, as --regression needs"
    raise wrong_cell(cell, value, accepted)


def _list_in(value):
  """The list in a text such as "['a', 'c']"; any other value as it is."""
  text = value.strip() if isinstance(value, str) else ""
  if text[:1] + text[-1:] != "[]":
    return value
  try:  # NumPy separates elements by spaces.
    return ast.literal_eval(re.sub(r"""(?<=['"])\s+(?=['"])""", ", ", text))
  except (ValueError, SyntaxError, MemoryError, RecursionError):
    return value


def split_examples(
  examples: Sequence[InputExample], kind: str, dev_fraction: float, seed: int
) -> tuple[list[InputExample], list[InputExample]]:
  """Splits examples into a training and a development set, keeping their order.

  The split is stratified by label to within one example; an example with
  several labels counts for its rarest one. Examples with a unique label go to
  training, unless too few others remain. Numbers are split at random.

  Equal texts go to the same set, as one example with the label of the first. A
  text with more copies than the development set has room for goes to training.

  The size of the development set is rounded up. No set is empty, but a single
  example goes to training.
  """
  groups = collections.defaultdict(list)
  for example in examples:
    groups[row_hash(example)].append(example)
  groups = list(groups.values())
  count = len(groups)
  if count < 2:
    return list(examples), []
  dev_size = min(math.ceil(dev_fraction * count), count - 1)
  labels = [_labels_of(group[0], kind) or [""] for group in groups]
  frequency = collections.Counter(name for names in labels for name in names)
  strata = [min(names, key=lambda n: (frequency[n], n)) for names in labels]
  rng = np.random.default_rng(seed)
  order = rng.permutation(count).tolist()
  several = [
    i for i in order if frequency[strata[i]] > 1 and len(groups[i]) <= dev_size
  ]
  drawn = several if len(several) >= dev_size else order
  # Take examples at equal distances from a list sorted by label. scikit-learn's
  # split requires two examples of each label, and each label in both parts.
  drawn = sorted(drawn, key=lambda i: strata[i])
  start = int(rng.integers(len(drawn)))
  dev = {
    example
    for i in range(dev_size)
    for example in groups[drawn[(start + i * len(drawn)) // dev_size]]
  }
  return (
    [example for example in examples if example not in dev],
    [example for example in examples if example in dev],
  )


def log_rare_labels(
  train: Iterable[InputExample], label_type: LabelType
) -> int:
  """Warns of labels with no or one example; returns the fewest, or 0."""
  frequencies = _frequencies(train, label_type.kind)
  for count, examples in enumerate(("no example", "a single example")):
    rare = [name for name in label_type.labels if frequencies[name] == count]
    if rare:
      logging.warning(
        "%s with %s in the training set: %s; add rows, or merge such a label "
        "with another one",
        plural(len(rare), "label"),
        examples,
        listing(rare),
      )
  return min((frequencies[name] for name in label_type.labels), default=0)


def log_doubtful_labels(
  train: Iterable[InputExample], label_type: LabelType
) -> None:
  """Warns of equal texts with different labels, and of labels like A and a."""
  if not label_type.labels:
    return
  first, doubtful, spellings = {}, [], collections.defaultdict(list)
  for example in train:
    earlier = first.setdefault(row_hash(example), example)
    pair = [{*_labels_of(e, label_type.kind)} for e in (earlier, example)]
    if pair[0] != pair[1]:
      doubtful.append((example, example.label, earlier, earlier.label))
  if doubtful:
    logging.warning(
      "%s of the training set with the texts of an earlier row, but another "
      "label: the label of %s is %r, and that of %s is %r",
      plural(len(doubtful), "row"),
      *doubtful[0],
    )
  for name in label_type.labels:
    spellings[name.casefold()].append(name)
  for names in spellings.values():
    if len(names) > 1:
      logging.warning(
        "labels that differ only in upper and lower case: %s; write them alike "
        "if they are one",
        listing(names),
      )


def _labels_of(example, kind):
  """The labels of an example; [] for a number."""
  if kind == Regression.kind:
    return []
  if kind == Multilabel.kind:
    return split_labels(example.label)
  return [example.label]


def _frequencies(examples, kind):
  """The number of examples that have each label."""
  return collections.Counter(n for e in examples for n in _labels_of(e, kind))


def _check_distinct(columns, path):
  """Raises UserError if texts and label share a column; an id may be a text."""
  flags = {}
  for field, flag, index in columns:
    if field != "guid" and flags.setdefault(index, flag) != flag:
      raise UserError(
        f"{flags[index]} and {flag} are the same column of {path}; pass "
        f"another column"
      )
