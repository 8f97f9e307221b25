"""A user's own labelled texts: the sets of a task, made of tables."""

import collections
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from errors import UserError, did_you_mean, listing, plural, shortened
from pipeline.tables import read_table
from tasks.examples import DataProcessor, InputExample
from tasks.labels import (
  LABEL_SEPARATOR,
  Classification,
  Multilabel,
  Regression,
  split_labels,
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
      raise UserError(f"kind {self.kind!r} is none of {', '.join(kinds)}")
    if not 0 < self.dev_fraction < 1:
      raise UserError(
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
      raise UserError(
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
      raise UserError(
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
      raise UserError(
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
          raise UserError(
            f"{example.where}: label {name!r} is none of {listing(labels)}"
            f"{did_you_mean(name, labels)}"
          )
    return list(examples)

  def _split(self, data_dir):
    if not self.train_file:
      raise UserError(
        "--train_file and --dev_file are missing; pass --dev_file, or "
        "--train_file, a share of which is then evaluated on"
      )
    path = self._path("train", data_dir)
    if ("split", path) not in self._kept:
      examples = self._checked("train", data_dir)
      if len(examples) < 2:
        raise UserError(
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
      flag: table.column_index(column, flag)
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
      raise UserError(
        f"{where}: the label of {named} is null or missing; write one, or "
        f"leave the row out"
      )
    is_list = several and isinstance(value, list)
    parts = [_plain(part) for part in (value if is_list else [value])]
    if None in parts:
      raise UserError(
        f"{where}: label {shortened(json.dumps(value))} of {named} is not "
        f"text, a number, true or false{', or a list of them' * several}"
      )
    if is_list and any(LABEL_SEPARATOR in part for part in parts):
      raise UserError(
        f"{where}: a label in {shortened(json.dumps(value))} holds a "
        f"{LABEL_SEPARATOR}, which parts labels; rename it"
      )
    label = LABEL_SEPARATOR.join(parts)
    if several:
      return LABEL_SEPARATOR.join(dict.fromkeys(split_labels(label)))
    if not label:
      raise UserError(
        f"{where}: the label of {named} is empty; write one, or leave the row "
        f"out"
      )
    if self.kind == Regression.kind and _number(label) is None:
      raise UserError(
        f"{where}: label {shortened(label)!r} of {named} is no number, and "
        f"regression needs one"
      )
    return label


def _text(value, named, where):
  if value is None:
    raise UserError(
      f"{where}: the text of {named} is null or missing; write it there, if "
      f'only as ""'
    )
  if not isinstance(value, str):
    raise UserError(
      f"{where}: {shortened(json.dumps(value))} of {named} is no text; put it "
      f"between quotation marks"
    )
  return value


def _name(value, named, where):
  name = _plain(value)
  if not name:
    raise UserError(
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
      plural(len(once), "label"),
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


def _check_distinct(path, wanted, places):
  flags = {}
  for flag, place in places.items():
    # A text may well be its own name.
    if flag == "id_column":
      continue
    other = flags.setdefault(place, flag)
    if other != flag:
      raise UserError(
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
