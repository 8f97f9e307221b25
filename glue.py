"""The paper's sentence tasks: their files, labels and readers.

A task is a row of `TASKS`; its processor reads its files by that row.
"""

import dataclasses
import functools
import os

import tensorflow as tf

from examples import DataProcessor, InputExample


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
class Task:
  """One task: its labels and its sets.

  Attributes:
    labels: in the order of the model's outputs.
    train, dev, test: each a dict from the suffix of its result files to a
      Split; the first one is what the processor's getters read.
    renamed_labels: labels that some of the files spell in another way.
  """

  labels: tuple[str, ...]
  train: dict[str, Split]
  dev: dict[str, Split]
  test: dict[str, Split]
  renamed_labels: dict[str, str] = dataclasses.field(default_factory=dict)


_NLI_LABELS = ("contradiction", "entailment", "neutral")
_mrpc = functools.partial(Split, text_a=3, text_b=4)
_mnli = functools.partial(Split, text_a=8, text_b=9, id_column=0)

TASKS = {
  "COLA": Task(
    labels=("0", "1"),
    train={"": Split("train.tsv", 3, label=1, header=False)},
    dev={"": Split("dev.tsv", 3, label=1, header=False)},
    test={"": Split("test.tsv", 1)},
  ),
  "MNLI": Task(
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
  ),
  "MRPC": Task(
    labels=("0", "1"),
    train={"": _mrpc("train.tsv", label=0)},
    dev={"": _mrpc("dev.tsv", label=0)},
    test={"": _mrpc("test.tsv")},
  ),
  "XNLI": Task(
    labels=_NLI_LABELS,
    train={"": Split("multinli/multinli.train.zh.tsv", 0, 1, 2)},
    dev={"": Split("xnli.dev.tsv", 6, 7, 1, only=(0, "zh"))},
    test={"": Split("xnli.test.tsv", 6, 7, only=(0, "zh"))},
    renamed_labels={"contradictory": "contradiction"},
  ),
}


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
      for suffix in getattr(self.task, set_type)
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
      ValueError: the file is missing or empty, a line has too few columns, or
        a label is unknown; the message names file and line.
    """
    split = getattr(self.task, set_type)[suffix]
    path = os.path.join(data_dir, split.file)
    if not tf.io.gfile.exists(path):
      raise ValueError(
        f"--data_dir={data_dir} has no file {split.file}; pass "
        f"the folder that the task's files lie in"
      )
    # The original names examples train-1, dev_matched-1 and so on.
    stem = os.path.basename(split.file).removesuffix(".tsv")
    set_name = stem if stem.startswith(set_type) else set_type
    examples = [
      self._example(split, f"{path}:{number + 1}", set_name, number, line)
      for number, line in enumerate(self._read_tsv(path))
      if not (split.header and number == 0)
      and (split.only is None or line[split.only[0]] == split.only[1])
    ]
    if not examples:
      raise ValueError(f"{path} holds no examples")
    return examples

  def _example(self, split, where, set_name, number, line):
    columns = [
      c
      for c in (split.text_a, split.text_b, split.label, split.id_column)
      if c is not None
    ]
    if len(line) <= max(columns):
      raise ValueError(
        f"{where}: {len(line)} columns where there should be "
        f"{max(columns) + 1} or more, separated by tabs"
      )
    name = number if split.id_column is None else line[split.id_column]
    label = self.task.labels[0]
    if split.label is not None:
      label = line[split.label]
      label = self.task.renamed_labels.get(label, label)
      if label not in self.task.labels:
        raise ValueError(
          f"{where}: label {label!r} is none of {', '.join(self.task.labels)}"
        )
    return InputExample(
      guid=f"{set_name}-{name}",
      text_a=line[split.text_a],
      text_b=None if split.text_b is None else line[split.text_b],
      label=label,
    )


class ColaProcessor(GlueProcessor):
  """CoLA: is a sentence acceptable English? (Warstadt et al. 2018)"""

  task = TASKS["COLA"]


class MnliProcessor(GlueProcessor):
  """MultiNLI: does a premise entail a hypothesis? (Williams et al. 2018)"""

  task = TASKS["MNLI"]


class MrpcProcessor(GlueProcessor):
  """MRPC: are two sentences paraphrases? (Dolan & Brockett 2005)"""

  task = TASKS["MRPC"]


class XnliProcessor(GlueProcessor):
  """XNLI: MultiNLI's question in other languages (Conneau et al. 2018)."""

  task = TASKS["XNLI"]


PROCESSORS = {
  "cola": ColaProcessor,
  "mnli": MnliProcessor,
  "mrpc": MrpcProcessor,
  "xnli": XnliProcessor,
}
