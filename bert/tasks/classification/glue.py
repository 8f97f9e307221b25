"""GLUE's tasks, and SNLI, XNLI and IMDB: files, labels and metrics.

Each task is a row of `TASKS`, and `GlueProcessor` reads its files, as GLUE's
download script writes them.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

from bert.data import files, text_files
from bert.errors import UserError, check_known, plural
from bert.tasks.classification.examples import DataProcessor, InputExample
from bert.tasks.classification.label_types import as_number

XNLI_LANGUAGES = (
  "ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur",
  "vi", "zh",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TsvFile:
  """The file and the columns of a data set."""

  file: str  # relative to the task's folder
  # Column indices; None if there is no such column. Negative ones count from
  # the end of the line.
  text_a: int
  text_b: int | None = None
  label: int | None = None
  header: bool = True  # whether the first line names the columns
  id_column: int | None = None  # None to number the examples
  only: tuple[int, str] | None = None  # a column, and its value in all rows

  @property
  def width(self) -> int:
    """The minimum number of columns in a line."""
    columns = (self.text_a, self.text_b, self.label, self.id_column)
    return 1 + max(c for c in columns if c is not None)

  def describe(self) -> str:
    """The format of its lines."""
    names = {"text": self.text_a, "second text": self.text_b}
    names["label"] = self.label
    columns = (f"{n} in {i}" for n, i in names.items() if i is not None)
    header = "a header" if self.header else "no header"
    return (
      f"it has {header}, and these columns, from 0, between tabs: "
      f"{', '.join(columns)}"
    )


# A str is the name of a folder with a folder per label and a file per text.
DataSets = dict[str, TsvFile | str]


@dataclasses.dataclass(frozen=True)
class GlueTask:
  """A task: its labels and its data sets."""

  name: str  # in GLUE's spelling
  labels: tuple[str, ...]  # in the order of the model's outputs
  # By the suffix of result files; the processor's getters read the first.
  train: DataSets = dataclasses.field(default_factory=dict)
  dev: DataSets = dataclasses.field(default_factory=dict)
  test: DataSets = dataclasses.field(default_factory=dict)
  kind: str = "classification"  # a key of `label_types.KINDS`
  # Keys of `metrics.METRICS`; --early_stopping_patience uses the first one
  # without --keep_best.
  metrics: tuple[str, ...] = ("accuracy",)
  # Files for GLUE's leaderboard, by suffix of the test set; None outside GLUE.
  submission: dict[str, str] | None = None
  renamed_labels: dict[str, str] = dataclasses.field(default_factory=dict)
  no_label: str | None = None  # in the label column of rows to skip
  has_broken_rows: bool = False  # whether some rows of its files lack columns
  # The task whose model predicts the test set, if there is no other set.
  model_of: str | None = None
  folders: tuple[str, ...] = ()  # possible names; default: the task's name


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")


def _three_sets(text_a, text_b, label, test=None, **options):
  """train.tsv, dev.tsv and, without labels, test.tsv; see TsvFile."""
  test = test or TsvFile("test.tsv", text_a, text_b, **options)
  train, dev = (
    TsvFile(f"{name}.tsv", text_a, text_b, label, **options)
    for name in ("train", "dev")
  )
  return {"train": {"": train}, "dev": {"": dev}, "test": {"": test}}


_mnli = functools.partial(TsvFile, text_a=8, text_b=9, id_column=0)


@functools.cache
def _xnli(language):
  rows_of = functools.partial(TsvFile, text_a=6, text_b=7, only=(0, language))
  return GlueTask(
    "XNLI",
    _NLI,
    train={"": TsvFile(f"multinli/multinli.train.{language}.tsv", 0, 1, 2)},
    dev={"": rows_of("xnli.dev.tsv", label=1)},
    test={"": rows_of("xnli.test.tsv")},
    renamed_labels={"contradictory": "contradiction"},
  )


_ROWS = (
  # Acceptability of a sentence (Warstadt et al. 2018).
  GlueTask(
    "CoLA",
    _BINARY,
    **_three_sets(3, None, 1, header=False, test=TsvFile("test.tsv", 1)),
    metrics=("accuracy", "matthews"),
    submission={"": "CoLA.tsv"},
  ),
  # Sentiment of a film review's sentence (Socher et al. 2013).
  GlueTask(
    "SST-2",
    _BINARY,
    **_three_sets(0, None, 1, test=TsvFile("test.tsv", 1)),
    submission={"": "SST-2.tsv"},
  ),
  # Whether two sentences are paraphrases (Dolan & Brockett 2005).
  GlueTask(
    "MRPC",
    _BINARY,
    **_three_sets(3, 4, 0),
    metrics=("accuracy", "f1"),
    submission={"": "MRPC.tsv"},
  ),
  # Similarity of two sentences, from 0 to 5 (Cer et al. 2017).
  GlueTask(
    "STS-B",
    (),
    **_three_sets(7, 8, 9),
    kind="regression",
    metrics=("pearson", "spearman", "mse"),
    submission={"": "STS-B.tsv"},
  ),
  # Whether two questions on Quora have the same meaning.
  GlueTask(
    "QQP",
    _BINARY,
    **_three_sets(3, 4, 5, test=TsvFile("test.tsv", 1, 2)),
    metrics=("accuracy", "f1"),
    submission={"": "QQP.tsv"},
    has_broken_rows=True,
  ),
  # Whether a premise entails a hypothesis (Williams et al. 2018).
  GlueTask(
    "MNLI",
    _NLI,
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
  # Whether a sentence answers a question, from SQuAD.
  GlueTask(
    "QNLI", _ENTAILMENT, **_three_sets(1, 2, 3), submission={"": "QNLI.tsv"}
  ),
  # Entailment, from four challenges.
  GlueTask(
    "RTE", _ENTAILMENT, **_three_sets(1, 2, 3), submission={"": "RTE.tsv"}
  ),
  # Resolution of pronouns (Levesque et al. 2012).
  GlueTask(
    "WNLI", _BINARY, **_three_sets(1, 2, 3), submission={"": "WNLI.tsv"}
  ),
  # GLUE's diagnostic test set.
  GlueTask(
    "AX",
    _NLI,
    test={"": TsvFile("diagnostic.tsv", 1, 2)},
    submission={"": "AX.tsv"},
    model_of="MNLI",
    # GLUE's download script fills diagnostic/; older ones filled MNLI/.
    folders=("AX", "diagnostic", "MNLI"),
  ),
  # MNLI in other languages (Conneau et al. 2018).
  _xnli("zh"),
  # Entailment between captions (Bowman et al. 2015).
  GlueTask("SNLI", _NLI, **_three_sets(7, 8, -1), no_label="-"),
  # Sentiment of film reviews (Maas et al. 2011).
  GlueTask(
    "IMDB",
    ("neg", "pos"),
    train={"": "train"},
    dev={"": "test"},
    test={"": "test"},
  ),
)
TASKS = {task.name.lower(): task for task in _ROWS}
# The tasks of --task_name=all, in GLUE's order.
GLUE_TASKS = tuple(key for key, task in TASKS.items() if task.submission)


@functools.cache
def _warn_of_missing_set(path):
  """Warns once that an additional data set is skipped."""
  logging.warning("%s does not exist; this data set is skipped", path)


def _remedy(task, split):
  form = split.describe() if isinstance(split, TsvFile) else "it has texts"
  return (
    f"download the files of {task.name} again: {form}; for files of your own, "
    f"pass --task_name=custom"
  )


def _find_in(data_dir, name):
  path = os.path.join(data_dir, name)
  if not files.exists(path):
    files.check_is_folder(data_dir, f"--data_dir={data_dir}")
    raise UserError(
      f"--data_dir={data_dir} has no {name}; pass the folder of the task's "
      f"files"
    )
  return path


class GlueProcessor(DataProcessor):
  """Reads the data sets of `task`, a row of `TASKS`."""

  task: GlueTask

  def get_train_examples(self, data_dir: str) -> list[InputExample]:
    return self._read(data_dir, "train")

  def get_dev_examples(self, data_dir: str) -> list[InputExample]:
    return self._read(data_dir, "dev")

  def get_test_examples(self, data_dir: str) -> list[InputExample]:
    return self._read(data_dir, "test")

  def get_labels(self) -> list[str]:
    return list(self.task.labels)

  def get_example_sets(
    self, data_dir: str, set_type: str
  ) -> Mapping[str, Sequence[InputExample]]:
    if self._overrides(f"get_{set_type}_examples"):
      # Its result is the only set, as in the original.
      return super().get_example_sets(data_dir, set_type)
    first, *others = getattr(self.task, set_type) or [""]
    sets = {first: self._read(data_dir, set_type, first)}
    for name in others:
      path = os.path.join(data_dir, getattr(self.task, set_type)[name].file)
      if files.exists(path):
        sets[name] = self._read(data_dir, set_type, name)
      else:
        _warn_of_missing_set(path)
    return sets

  def _overrides(self, name):
    """Whether a subclass overrides the method of this name."""
    return getattr(type(self), name) is not getattr(GlueProcessor, name)

  def _create_examples(self, lines, set_type):
    """The InputExamples of the lines of a file, as in the original."""
    split = getattr(self.task, set_type.split("_")[0])[""]
    return self._read_lines(split, lines, set_type, set_type)

  def _read(self, data_dir, set_type, suffix=""):
    splits = getattr(self.task, set_type)
    if not splits:
      raise UserError(
        f"--task_name={self.task.name} has only a test set; train "
        f"--task_name={self.task.model_of},{self.task.name}, or pass "
        f"--do_predict with --init_checkpoint of a model trained on "
        f"{self.task.model_of}"
      )
    split = splits[suffix]
    if isinstance(split, str):
      path = os.path.join(data_dir, split)
      examples = self._read_folder(split, data_dir, set_type)
    else:
      path = _find_in(data_dir, split.file)
      examples = self._read_file(split, path, set_type)
    remedy = _remedy(self.task, split)
    files.check_holds(examples, path, "examples", remedy)
    return examples

  def _read_file(self, split, path, set_type):
    # The original names examples train-1, dev_matched-1 and so on.
    stem = os.path.basename(split.file).removesuffix(".tsv")
    set_name = stem if stem.startswith(set_type) else set_type
    lines = self._read_tsv(path)
    if self._overrides("_create_examples"):
      return self._create_examples(lines, set_name)
    return self._read_lines(split, lines, path, set_name)

  def _read_lines(self, split, lines, path, set_name):
    """The InputExamples of the lines of a TsvFile; `path` is for messages."""
    examples, skipped = [], 0
    for number, line in enumerate(lines):
      if split.header and number == 0:
        self._check_header(split, path, line)
        continue
      if split.only and (not line or line[split.only[0]] != split.only[1]):
        continue
      if split.label is not None and self._is_skipped(split, line):
        skipped += 1
        continue
      examples.append(self._example(split, path, set_name, number, line))
    if skipped:
      logging.info("%s: skipped %s", path, plural(skipped, "unusable row"))
    return examples

  def _check_header(self, split, path, line):
    """Warns if the skipped header line contains a known label."""
    if split.label is None or len(line) < split.width:
      return
    label = line[split.label]
    is_number = not self.task.labels and as_number(label) is not None
    name = self.task.renamed_labels.get(label, label)
    if is_number or name in self.get_labels():
      logging.warning(
        "%s:1: the first line is skipped as a header, but has the label %r; if "
        "it is an example, add a header before it",
        path,
        label,
      )

  def _is_skipped(self, split, line):
    """Whether to skip a row that lacks columns or a label."""
    if len(line) < split.width:
      return self.task.has_broken_rows
    return line[split.label] == self.task.no_label

  def _example(self, split, path, set_name, number, line):
    where = f"{path}:{number + 1}"
    if len(line) < split.width:
      raise UserError(
        f"{where}: {plural(len(line), 'column')}, expected {split.width} or "
        f"more, separated by tabs; {_remedy(self.task, split)}"
      )
    name = number if split.id_column is None else line[split.id_column]
    label = self.task.labels[0] if self.task.labels else None
    if split.label is not None:
      label = line[split.label]
      label = self.task.renamed_labels.get(label, label)
    return InputExample(
      guid=f"{set_name}-{name}",
      text_a=line[split.text_a],
      text_b=None if split.text_b is None else line[split.text_b],
      label=label,
      where=where,
    )

  def _read_folder(self, split, data_dir, set_type):
    examples = []
    for label in self.get_labels():
      folder = _find_in(data_dir, f"{split}/{label}")
      for file in sorted(files.listdir(folder)):
        stem, extension = os.path.splitext(file)
        if extension == ".txt":
          where = os.path.join(folder, file)
          text = text_files.decode_text(where, files.read_bytes(where))
          guid = f"{set_type}-{label}/{stem}"
          examples.append(InputExample(guid, text, None, label, where))
    return examples


class XnliProcessor(GlueProcessor):
  """XNLI, in one of XNLI_LANGUAGES, which a subclass may change."""

  language = "zh"

  def __init__(self, language: str | None = None):
    if language is not None:
      self.language = language

  @property
  def task(self) -> GlueTask:
    return _xnli(self.language)


def _plain(name):
  return re.sub("[-_]", "", name.lower())


# Key -> class; to add a task of your own, add its DataProcessor.
PROCESSORS = {
  key: type(
    f"{_plain(key).capitalize()}Processor", (GlueProcessor,), {"task": task}
  )
  for key, task in TASKS.items()
} | {"xnli": XnliProcessor}
ColaProcessor = PROCESSORS["cola"]
MnliProcessor = PROCESSORS["mnli"]
MrpcProcessor = PROCESSORS["mrpc"]


def find_key(
  name: str, processors: Mapping[str, type[DataProcessor]] = PROCESSORS
) -> str:
  """The key of a task, such as sst-2 for "SST2", "sst_2" or "Sst-2"."""
  if name in processors:
    return name
  key_of_name = {_plain(key): key for key in processors}.get(_plain(name), name)
  check_known(f"--task_name={name}", key_of_name, sorted([*processors, "all"]))
  return key_of_name


def task_folder(data_dir: str, task: GlueTask) -> str:
  """The folder of a task's files within a folder of several tasks."""
  for name in task.folders:
    folder = os.path.join(data_dir, name)
    paths = [os.path.join(folder, split.file) for split in task.test.values()]
    if all(map(files.exists, paths)):
      return folder
  return os.path.join(data_dir, task.name)


def submission_lines(task: GlueTask, predictions: Iterable[float]) -> str:
  """A file for GLUE's leaderboard; numbers are clipped to STS-B's scale."""
  lines = ["index\tprediction\n"]
  for index, prediction in enumerate(predictions):
    if task.labels:
      answer = task.labels[int(prediction)]
    else:
      answer = f"{min(max(float(prediction), 0.0), 5.0):.3f}"
    lines.append(f"{index}\t{answer}\n")
  return "".join(lines)
