"""Your own labelled texts, from TSV, CSV or JSON Lines files."""

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
  KINDS,
  LABEL_SEPARATOR,
  Classification,
  Multilabel,
  Regression,
  split_labels,
)


@dataclasses.dataclass(kw_only=True, eq=False)
class TableProcessor(DataProcessor):
  """Reads the data sets of a task from tables; arguments are named as flags.

  Without a `dev_file`, a fraction of the training file is the development set.
  Spaces around labels are removed.

  Args:
    train_file, dev_file, test_file: see `read_table`; None if not needed. The
      labels of the test file are not read.
    text_a_column, text_b_column, label_column, id_column: names or indices.
      Without `id_column`, ids are row numbers, counted from 0.
    header: whether TSV and CSV files have a header.
    kind: a key of `labels.KINDS`.
    dev_fraction: size of the development set without a `dev_file`.
    split_seed: selects the rows of that development set.
    labels: the labels of a trained model; None to collect the labels of the
      training file.
    data_dir: folder of relative paths, unless a method is given another.

  Raises:
    UserError: `dev_fraction` is wrong.
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
    if self.kind not in KINDS:
      raise ValueError(f"kind={self.kind!r} is not one of {', '.join(KINDS)}")
    if not 0 < self.dev_fraction < 1:
      raise UserError(
        f"--dev_fraction={self.dev_fraction} must be between 0 and 1"
      )
    self._cache = {}  # (data set or other content, path) -> content

  def get_train_examples(
    self, data_dir: str | None = None
  ) -> list[InputExample]:
    """The rows of the training file that are not for development.

    Raises:
      UserError: see `get_dev_examples`.
    """
    if self.dev_file:
      return self._labelled("train", data_dir)
    return self._split(data_dir)[0]

  def get_dev_examples(self, data_dir: str | None = None) -> list[InputExample]:
    """The rows of the development file, or a fraction of the training file.

    Raises:
      UserError: a flag is missing, a file is wrong, or a label is unknown.
    """
    if self.dev_file:
      return self._labelled("dev", data_dir)
    return self._split(data_dir)[1]

  def get_test_examples(
    self, data_dir: str | None = None
  ) -> list[InputExample]:
    """The rows of the test file, without labels.

    Raises:
      UserError: see `get_dev_examples`.
    """
    return list(self._read("test", data_dir))

  def get_labels(self, data_dir: str | None = None) -> list[str]:
    """The labels of the trained model or of the training file; [] for numbers.

    The labels of a file are sorted, as numbers if all of them are numbers.

    Raises:
      UserError: the training file has too few labels.
    """
    if self.kind == Regression.kind:
      return []
    if self.labels is not None:
      return list(self.labels)
    if not self.train_file:
      raise UserError(
        "--train_file is required, unless --output_dir or --init_checkpoint "
        "holds a trained model"
      )
    key = "labels", self._path("train", data_dir)
    if key not in self._cache:
      self._cache[key] = self._collect_labels(data_dir)
    return list(self._cache[key])

  def _collect_labels(self, data_dir):
    found = {
      name
      for example in self._read("train", data_dir)
      for name in _labels_of(example, self.kind)
    }
    needed = 1 if self.kind == Multilabel.kind else 2
    if len(found) < needed:
      raise UserError(
        f"--label_column={self.label_column} of "
        f"{self._path('train', data_dir)} has "
        f"{f'only the label {min(found)!r}' if found else 'no label'}, but "
        f"{self.kind} needs {needed} or more; pass another column or add rows"
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
        f"--{set_type}_file is required; pass the file to {verb[set_type]}"
      )
    folder = self.data_dir if data_dir is None else data_dir
    return os.path.join(folder, file) if folder and "://" not in file else file

  def _read(self, set_type, data_dir):
    """The InputExamples of a file."""
    path = self._path(set_type, data_dir)
    if (set_type, path) not in self._cache:
      table = read_table(path, self.header)
      self._cache[set_type, path] = self._examples(table, set_type != "test")
    return self._cache[set_type, path]

  def _labelled(self, set_type, data_dir):
    """The InputExamples of a file, whose labels must be known."""
    examples = self._read(set_type, data_dir)
    labels = self.get_labels(data_dir)
    known = set(labels)
    for example in examples:
      for name in _labels_of(example, self.kind):
        if name not in known:
          raise UserError(
            f"{example}: label {name!r} is not one of {listing(labels)}"
            f"{did_you_mean(name, labels)}"
          )
    return list(examples)

  def _split(self, data_dir):
    """The InputExamples for training and for development."""
    if not self.train_file:
      raise UserError("--train_file is required, or --dev_file to evaluate")
    key = "split", self._path("train", data_dir)
    if key not in self._cache:
      examples = self._labelled("train", data_dir)
      if len(examples) < 2:
        raise UserError(
          f"{key[1]} has one row, too few for a development set; add rows or "
          f"pass --dev_file"
        )
      train, dev = self._cache[key] = split_examples(
        examples, self.kind, self.dev_fraction, self.split_seed
      )
      logging.info(
        "%s: %s for training, %d for evaluation as there is no --dev_file",
        key[1],
        plural(len(train), "row"),
        len(dev),
      )
    return tuple(map(list, self._cache[key]))

  def _examples(self, table, with_labels):
    """The InputExamples of a Table."""
    readers = {
      "text_a_column": ("text_a", _read_text),
      "text_b_column": ("text_b", _read_text),
      "label_column": ("label", self._read_label),
      "id_column": ("guid", _read_id),
    }
    if not with_labels:
      del readers["label_column"]
    columns, flag_of = [], {}
    for flag, (field, read) in readers.items():
      name = getattr(self, flag)
      if name is None:
        continue
      index = table.column_index(name, flag)
      # A text may also be the id of its example.
      other = flag_of.setdefault(index, flag) if field != "guid" else flag
      if other != flag:
        raise UserError(
          f"--{other}={getattr(self, other)} and --{flag}={name} are the same "
          f"column of {table.path}; pass two columns"
        )
      columns.append((field, read, f"--{flag}={name}", table.column(index)))
    examples = []
    for number, line in enumerate(table.lines):
      where = f"{table.path}:{line}"
      fields = {
        field: read(values[number], f"{where}: {flag}")
        for field, read, flag, values in columns
      }
      examples.append(
        InputExample(**{"guid": str(number), **fields}, where=where)
      )
    _warn_of_empty_texts(table.path, examples)
    return examples

  def _read_label(self, value, cell):
    """A label as text, "a|b" for several."""
    several = self.kind == Multilabel.kind
    is_list = several and isinstance(value, list)
    parts = [_plain(part) for part in (value if is_list else [value])]
    if None in parts:
      raise UserError(
        f"{cell} is {_as_json(value)}; pass text, a number, true or false"
        f"{', or a list of them' * several}"
      )
    if is_list and any(LABEL_SEPARATOR in part for part in parts):
      raise UserError(
        f"{cell} is {_as_json(value)}, but {LABEL_SEPARATOR} separates labels; "
        f"rename the label"
      )
    label = LABEL_SEPARATOR.join(parts)
    if several:
      return LABEL_SEPARATOR.join(dict.fromkeys(split_labels(label)))
    if not label:
      raise UserError(f"{cell} is empty; add a label, or remove the row")
    if self.kind == Regression.kind and _number(label) is None:
      raise UserError(
        f"{cell} is {shortened(label)!r}, but --regression needs numbers"
      )
    return label


def _as_json(value):
  return "missing" if value is None else shortened(json.dumps(value))


def _read_text(value, cell):
  if not isinstance(value, str):
    raise UserError(
      f"{cell} is {_as_json(value)}; pass text between quotation marks"
    )
  return value


def _read_id(value, cell):
  name = _plain(value)
  if not name:
    raise UserError(f"{cell} has no text or number; add an id")
  return name


def split_examples(
  examples: Sequence[InputExample], kind: str, dev_fraction: float, seed: int
) -> tuple[list[InputExample], list[InputExample]]:
  """Splits examples for training and development, in their order.

  The split is stratified by label to within one example, by the rarest label
  of an example with several. Examples whose label occurs once are for training,
  unless too few others remain. Numbers are split at random.

  Args:
    examples: two or more labelled examples.
    kind: a key of `labels.KINDS`.
    dev_fraction: size of the development set, which is rounded up.
    seed: seed of the split.

  Returns:
    The examples for training and those for development, at least one each.
  """
  count = len(examples)
  dev_size = min(math.ceil(dev_fraction * count), count - 1)
  frequency = _frequencies(examples, kind)
  strata = [
    min(
      _labels_of(example, kind),
      key=lambda name: (frequency[name], name),
      default="",
    )
    for example in examples
  ]
  sizes = collections.Counter(strata)
  rng = np.random.default_rng(seed)
  order = rng.permutation(count).tolist()
  several = [
    i for i in order if max(frequency[strata[i]], sizes[strata[i]]) > 1
  ]
  drawn = several if len(several) >= dev_size else order
  # Take examples at equal distances from a list sorted by label. scikit-learn's
  # split requires two examples of each label, and each label in both parts.
  first = {}
  for i in drawn:
    first.setdefault(strata[i], len(first))
  drawn = sorted(drawn, key=lambda i: first[strata[i]])
  start = int(rng.integers(len(drawn)))
  dev = {drawn[(start + i * len(drawn)) // dev_size] for i in range(dev_size)}
  return (
    [example for i, example in enumerate(examples) if i not in dev],
    [examples[i] for i in sorted(dev)],
  )


def _frequencies(examples, kind):
  """The number of examples that have each label."""
  return collections.Counter(n for e in examples for n in _labels_of(e, kind))


def log_labels_seen_once(train: Iterable[InputExample], kind: str) -> None:
  """Warns of labels that occur once in the training set."""
  frequencies = _frequencies(train, kind)
  once = sorted(name for name, count in frequencies.items() if count == 1)
  if once:
    logging.warning(
      "%s with a single example in the training set: %s",
      plural(len(once), "label"),
      listing(once),
    )


def log_duplicates(
  task: str, train: Iterable[InputExample], dev: Sequence[InputExample]
) -> None:
  """Logs how many development examples have the texts of training examples."""
  seen = {(example.text_a, example.text_b) for example in train}
  found = [e for e in dev if (e.text_a, e.text_b) in seen]
  if not found:
    logging.info(
      "%s: none of the %s is in the training set",
      task,
      plural(len(dev), "development example"),
    )
    return
  logging.warning(
    "%s: %d of the %s (%.1f %%) are also in the training set, starting with "
    "%s; the metrics are too optimistic",
    task,
    len(found),
    plural(len(dev), "development example"),
    100 * len(found) / len(dev),
    found[0],
  )


def _warn_of_empty_texts(path, examples):
  empty = [e.where for e in examples if not e.text_a.strip()]
  if empty:
    logging.warning(
      "%s: the text of %d of %s is empty, starting with %s",
      path,
      len(empty),
      plural(len(examples), "row"),
      empty[0],
    )


def _labels_of(example, kind):
  """The labels of an example; none for a number."""
  if kind == Regression.kind:
    return []
  if kind == Multilabel.kind:
    return split_labels(example.label)
  return [example.label]


def _plain(value):
  """The text of a str, bool or finite number; None for any other value."""
  if isinstance(value, str):
    return value.strip()
  if isinstance(value, bool):
    return "true" if value else "false"
  is_finite = isinstance(value, float) and math.isfinite(value)
  return str(value) if is_finite or isinstance(value, int) else None


def _number(text):
  """The number that a text is, or None."""
  try:
    return Regression().encode(text)
  except UserError:
    return None
