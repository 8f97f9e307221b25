"""GLUE's tasks and their kin: files, labels, metrics and readers.

A task is a row of `TASKS`; its processor reads its files by that row. The
layouts are those of GLUE's download script.
"""

import collections
import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping

import tensorflow as tf
from absl import logging

from errors import UserError, did_you_mean
from pipeline import text_files
from tasks import labels as label_types
from tasks.examples import DataProcessor, InputExample

XNLI_LANGUAGES = (
  "ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur",
  "vi", "zh",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Split:
  """Where one set of a task lies in its file.

  Attributes:
    file: path within the task's directory.
    text_a, text_b, label: columns, counted from 0 and, if negative, from the
      end of the line; None for what the set does not have.
    header: whether the first line names the columns.
    id_column: column of the examples' names; None to number them.
    only: (column, value): rows without that value are passed over.
  """

  file: str
  text_a: int
  text_b: int | None = None
  label: int | None = None
  header: bool = True
  id_column: int | None = None
  only: tuple[int, str] | None = None


@dataclasses.dataclass(frozen=True)
class Folders:
  """A set that has a folder for each label, and a file for each text.

  Attributes:
    names: the set's folder within the task's directory; where there is none
      of that name, the next is taken.
  """

  names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Task:
  """One task: its labels and its sets.

  Attributes:
    name: as GLUE writes it.
    labels: in the order of the model's outputs.
    train, dev, test: each a dict from the suffix of its result files to a
      Split or Folders; the first one is what the processor's getters read.
    kind: "classification" or "regression", as `heads.make_head` takes it.
    metrics: names in `metrics.METRICS`.
    submission: dict from the suffix of a test set to the name of its file for
      GLUE's leaderboard; None where there is none.
    renamed_labels: labels that some of the files spell in another way.
    no_label: what stands in place of the label where annotators disagree.
    has_broken_rows: whether some rows of the distributed files lack columns.
    model_of: the task whose model predicts this one, which has no sets to
      train or to evaluate on.
    folders: where `task_folder` looks for the files of its test set; empty for
      the folder of its name.
  """

  name: str
  labels: tuple[str, ...]
  train: dict[str, Split | Folders] = dataclasses.field(default_factory=dict)
  dev: dict[str, Split | Folders] = dataclasses.field(default_factory=dict)
  test: dict[str, Split | Folders] = dataclasses.field(default_factory=dict)
  kind: str = "classification"
  metrics: tuple[str, ...] = ("accuracy",)
  submission: dict[str, str] | None = None
  renamed_labels: dict[str, str] = dataclasses.field(default_factory=dict)
  no_label: str | None = None
  has_broken_rows: bool = False
  model_of: str | None = None
  folders: tuple[str, ...] = ()


_NLI_LABELS = ("contradiction", "entailment", "neutral")
_mnli = functools.partial(Split, text_a=8, text_b=9, id_column=0)


def _three_sets(test=None, **columns):
  """train.tsv, dev.tsv and test.tsv: alike, but the last has no labels."""
  return {
    "train": {"": Split("train.tsv", **columns)},
    "dev": {"": Split("dev.tsv", **columns)},
    "test": {"": test or Split("test.tsv", **{**columns, "label": None})},
  }


def _xnli(language):
  """XNLI's row for one of its languages."""
  rows_of = functools.partial(Split, text_a=6, text_b=7, only=(0, language))
  return Task(
    name="XNLI",
    labels=_NLI_LABELS,
    train={"": Split(f"multinli/multinli.train.{language}.tsv", 0, 1, 2)},
    dev={"": rows_of("xnli.dev.tsv", label=1)},
    test={"": rows_of("xnli.test.tsv")},
    renamed_labels={"contradictory": "contradiction"},
  )


_ROWS = (
  Task(
    name="CoLA",
    labels=("0", "1"),
    **_three_sets(text_a=3, label=1, header=False, test=Split("test.tsv", 1)),
    metrics=("matthews", "accuracy"),
    submission={"": "CoLA.tsv"},
  ),
  Task(
    name="SST-2",
    labels=("0", "1"),
    **_three_sets(text_a=0, label=1, test=Split("test.tsv", 1)),
    submission={"": "SST-2.tsv"},
  ),
  Task(
    name="MRPC",
    labels=("0", "1"),
    **_three_sets(text_a=3, text_b=4, label=0),
    metrics=("accuracy", "f1"),
    submission={"": "MRPC.tsv"},
  ),
  Task(
    name="STS-B",
    labels=(),
    **_three_sets(text_a=7, text_b=8, label=9),
    kind="regression",
    metrics=("pearson", "spearman"),
    submission={"": "STS-B.tsv"},
  ),
  Task(
    name="QQP",
    labels=("0", "1"),
    **_three_sets(text_a=3, text_b=4, label=5, test=Split("test.tsv", 1, 2)),
    metrics=("accuracy", "f1"),
    submission={"": "QQP.tsv"},
    has_broken_rows=True,
  ),
  Task(
    name="MNLI",
    labels=_NLI_LABELS,
    train={"": _mnli("train.tsv", label=-1)},
    dev={
      "": _mnli("dev_matched.tsv", label=-1),
      "_mismatched": _mnli("dev_mismatched.tsv", label=-1),
    },
    test={
      "": _mnli("test_matched.tsv"),
      "_mismatched": _mnli("test_mismatched.tsv"),
    },
    submission={"": "MNLI-m.tsv", "_mismatched": "MNLI-mm.tsv"},
  ),
  Task(
    name="QNLI",
    labels=("entailment", "not_entailment"),
    **_three_sets(text_a=1, text_b=2, label=3),
    submission={"": "QNLI.tsv"},
  ),
  Task(
    name="RTE",
    labels=("entailment", "not_entailment"),
    **_three_sets(text_a=1, text_b=2, label=3),
    submission={"": "RTE.tsv"},
  ),
  Task(
    name="WNLI",
    labels=("0", "1"),
    **_three_sets(text_a=1, text_b=2, label=3),
    submission={"": "WNLI.tsv"},
  ),
  Task(
    name="AX",
    labels=_NLI_LABELS,
    test={"": Split("diagnostic.tsv", 1, 2)},
    submission={"": "AX.tsv"},
    model_of="MNLI",
    # GLUE's download script fills diagnostic/; older ones filled MNLI/.
    folders=("AX", "diagnostic", "MNLI"),
  ),
  _xnli("zh"),
  Task(
    name="SNLI",
    labels=_NLI_LABELS,
    **_three_sets(text_a=7, text_b=8, label=-1),
    no_label="-",
  ),
  Task(
    name="IMDB",
    labels=("neg", "pos"),
    train={"": Folders(("train",))},
    dev={"": Folders(("dev", "test"))},
    test={"": Folders(("test",))},
  ),
)
TASKS = {task.name.lower(): task for task in _ROWS}
# What --task_name=all runs, in GLUE's order.
GLUE_TASKS = tuple(key for key, task in TASKS.items() if task.submission)


class GlueProcessor(DataProcessor):
  """Reads a task's files as its row of `TASKS` describes them."""

  task: Task

  def get_train_examples(self, data_dir: str) -> list[InputExample]:
    return self.read_split(data_dir, "train")

  def get_dev_examples(self, data_dir: str) -> list[InputExample]:
    return self.read_split(data_dir, "dev")

  def get_test_examples(self, data_dir: str) -> list[InputExample]:
    return self.read_split(data_dir, "test")

  def get_labels(self) -> list[str]:
    return list(self.task.labels)

  def get_example_sets(
    self, data_dir: str, set_type: str
  ) -> dict[str, list[InputExample]]:
    return {
      suffix: self.read_split(data_dir, set_type, suffix)
      for suffix in self._splits(set_type)
    }

  def read_split(
    self, data_dir: str, set_type: str, suffix: str = ""
  ) -> list[InputExample]:
    """The InputExamples of one set.

    Args:
      data_dir: the task's directory.
      set_type: "train", "dev" or "test".
      suffix: which of the sets of that type.

    Raises:
      ValueError: the task has no such set, the file is missing or empty, a
        line has too few columns, or a label is unknown; the message names
        file and line.
    """
    split = self._splits(set_type)[suffix]
    if isinstance(split, Folders):
      path, examples = self._read_folders(split, data_dir, set_type)
    else:
      path, examples = self._read_file(split, data_dir, set_type)
    if not examples:
      raise UserError(f"{path} holds no examples")
    return examples

  def _splits(self, set_type):
    splits = getattr(self.task, set_type)
    if not splits:
      raise UserError(
        f"--task_name={self.task.name} has only a test set; train "
        f"--task_name={self.task.model_of},{self.task.name}, or pass "
        f"--do_predict with --init_checkpoint of a model trained on "
        f"{self.task.model_of}"
      )
    return splits

  def _read_file(self, split, data_dir, set_type):
    """The path of a Split's file, and its InputExamples."""
    path = os.path.join(data_dir, split.file)
    if not tf.io.gfile.exists(path):
      raise UserError(
        f"--data_dir={data_dir} has no file {split.file}; pass "
        f"the folder that the task's files lie in"
      )
    # The original names examples train-1, dev_matched-1 and so on.
    stem = os.path.basename(split.file).removesuffix(".tsv")
    set_name = stem if stem.startswith(set_type) else set_type
    examples = []
    left_out = collections.Counter()
    for number, line in enumerate(self._read_tsv(path)):
      if split.header and number == 0:
        continue
      if split.only and line[split.only[0]] != split.only[1]:
        continue
      reason = self._reason_to_leave_out(split, line)
      if reason:
        left_out[reason] += 1
        continue
      where = f"{path}:{number + 1}"
      examples.append(self._example(split, where, set_name, number, line))
    for reason, rows in left_out.items():
      logging.info("%s: %d rows left out, %s", path, rows, reason)
    return path, examples

  def _reason_to_leave_out(self, split, line):
    if split.label is None:
      return None  # A leaderboard wants a prediction for every row.
    if len(line) < _width(split):
      return "which lack columns" if self.task.has_broken_rows else None
    if line[split.label] == self.task.no_label:
      return f"whose label is {self.task.no_label}"
    return None

  def _example(self, split, where, set_name, number, line):
    if len(line) < _width(split):
      raise UserError(
        f"{where}: {len(line)} columns where there should be "
        f"{_width(split)} or more, separated by tabs"
      )
    name = number if split.id_column is None else line[split.id_column]
    label = self.task.labels[0] if self.task.labels else None
    if split.label is not None:
      label = line[split.label]
      label = self.task.renamed_labels.get(label, label)
      try:
        self._head.encode(label)
      except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    return InputExample(
      guid=f"{set_name}-{name}",
      text_a=line[split.text_a],
      text_b=None if split.text_b is None else line[split.text_b],
      label=label,
      where=where,
    )

  @functools.cached_property
  def _head(self):
    return label_types.make_head(self.task.kind, self.task.labels)

  def _read_folders(self, folders, data_dir, set_type):
    """The path of a set's folder, and its InputExamples: label by label."""
    candidates = [os.path.join(data_dir, name) for name in folders.names]
    path = next(filter(tf.io.gfile.isdir, candidates), candidates[-1])
    if path != candidates[0]:
      logging.info(
        "--data_dir=%s has no folder %s: the %s set, %s, is evaluated on",
        data_dir,
        folders.names[0],
        os.path.basename(path),
        path,
      )
    examples = []
    for label in self.task.labels:
      folder = os.path.join(path, label)
      if not tf.io.gfile.isdir(folder):
        raise UserError(
          f"--data_dir={data_dir} has no folder "
          f"{os.path.basename(path)}/{label}; pass the folder that the task's "
          f"files lie in"
        )
      for file in sorted(tf.io.gfile.listdir(folder), key=_by_number):
        if file.endswith(".txt"):
          examples.append(
            InputExample(
              guid=f"{set_type}-{label}/{file.removesuffix('.txt')}",
              text_a=_read_text(os.path.join(folder, file)),
              label=label,
              where=os.path.join(folder, file),
            )
          )
    return path, examples


def _width(split):
  """How many columns a line of a Split has at the least."""
  columns = (split.text_a, split.text_b, split.label, split.id_column)
  return 1 + max(c for c in columns if c is not None)


def _by_number(file):
  """Sorts 9_1.txt before 10_1.txt, and names without a number last."""
  number = re.match(r"[0-9]+", file)
  return (0, int(number[0]), file) if number else (1, 0, file)


def _read_text(path):
  with tf.io.gfile.GFile(path, "rb") as reader:
    return text_files.decode_utf8(path, reader.read())


class ColaProcessor(GlueProcessor):
  """CoLA: is a sentence acceptable English? (Warstadt et al. 2018)"""

  task = TASKS["cola"]


class MnliProcessor(GlueProcessor):
  """MultiNLI: does a premise entail a hypothesis? (Williams et al. 2018)"""

  task = TASKS["mnli"]


class MrpcProcessor(GlueProcessor):
  """MRPC: are two sentences paraphrases? (Dolan & Brockett 2005)"""

  task = TASKS["mrpc"]


class XnliProcessor(GlueProcessor):
  """XNLI: MultiNLI's question in other languages (Conneau et al. 2018).

  Args:
    language: one of XNLI_LANGUAGES, to train on and to evaluate.

  Raises:
    ValueError: it is none of them.
  """

  def __init__(self, language: str = "zh"):
    if language not in XNLI_LANGUAGES:
      raise UserError(
        f"--xnli_language={language} is none of {', '.join(XNLI_LANGUAGES)}"
      )
    self.task = _xnli(language)


def _processor(task):
  """The processor of a row that needs no code of its own."""
  name = f"{_plain(task.name).capitalize()}Processor"
  return type(name, (GlueProcessor,), {"task": task})


def _plain(name):
  return re.sub("[-_]", "", name.lower())


PROCESSORS = {key: _processor(task) for key, task in TASKS.items()} | {
  "cola": ColaProcessor,
  "mnli": MnliProcessor,
  "mrpc": MrpcProcessor,
  "xnli": XnliProcessor,
}


def find_task(
  name: str, processors: Mapping[str, type[DataProcessor]] = PROCESSORS
) -> str:
  """The key of the task that a user calls `name`.

  Case, hyphens and underscores do not matter: SST-2 is sst2.

  Args:
    name: what the user writes.
    processors: dict from key to processor.

  Raises:
    ValueError: there is no such task.
  """
  if name in processors:
    return name
  keys = {_plain(key): key for key in processors}
  if _plain(name) in keys:
    return keys[_plain(name)]
  known = sorted([*processors, "all"])
  raise UserError(
    f"--task_name={name} is none of {', '.join(known)}"
    f"{did_you_mean(name, known, shown=str)}"
  )


def task_folder(data_dir: str, task: Task) -> str:
  """The folder of a task's files, where `data_dir` has one for each task.

  It has the task's name; AX's file may also lie where one of GLUE's download
  scripts puts it.
  """
  for name in task.folders:
    folder = os.path.join(data_dir, name)
    files = [os.path.join(folder, split.file) for split in task.test.values()]
    if all(map(tf.io.gfile.exists, files)):
      return folder
  return os.path.join(data_dir, task.name)


def submission_lines(task: Task, predictions: Iterable[float]) -> str:
  """The text of a file for GLUE's leaderboard.

  Args:
    task: a row of `TASKS`.
    predictions: of all rows of a test set, in order: places of labels, or, of
      a regression, numbers, which are clipped to STS-B's scale of 0 to 5.
  """
  return "index\tprediction\n" + "".join(
    f"{index}\t{_submitted(task, prediction)}\n"
    for index, prediction in enumerate(predictions)
  )


def _submitted(task, prediction):
  if task.kind == label_types.Regression.kind:
    return f"{min(max(float(prediction), 0.0), 5.0):.3f}"
  return task.labels[int(prediction)]
