"""The contract between a task and everything that runs it.

A task converts text to rows, computes the outputs of the model and scores the
predictions. `bert/scripts/run_one.py` implements all other steps.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert import layers
from bert.contract import batch_means, distillation
from bert.contract.distillation import Distillation
from bert.data import files, records, sequences, text_files
from bert.errors import UserError, listing, plural
from bert.flags.flag_table import wanted_splits
from bert.layers import POOLER
from bert.reports import verdict

if TYPE_CHECKING:
  from bert.engine import inputs, record_files
  from bert.engine.loaded_model import LoadedModel
  from bert.flags.values import Flags
  from bert.models import huggingface_config
  from bert.models.resolve import Model


@dataclasses.dataclass
class Evaluation:
  """Metrics of a labeled data set."""

  results: dict[str, float]  # for eval_results.txt
  details: Mapping = dataclasses.field(default_factory=dict)  # for its .json
  # More numbers for the top of report.html.
  counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
  name: str = "dev set"
  # Returns the rows behind the main metric, for its range; None if unknown.
  sample: Callable[[], verdict.Sample | None] | None = None


@dataclasses.dataclass
class RowSet:
  """The rows of a data set, ready to be read."""

  split: str  # "train", "dev" or "test"
  suffix: str  # part of the names of its result files, such as "_mm"
  examples: Sequence | None  # None if the data come as rows
  num_rows: int
  rows_per_example: np.ndarray | None = None  # int [examples]; None for one
  # Returns the rows; None where only the examples are known.
  read: Callable[[], inputs.Rows | record_files.RecordFiles] | None = None
  transform: inputs.Transform | None = None  # applied to rows as they are read

  @property
  def name(self) -> str:
    """Its name in messages."""
    return f"{self.suffix.strip('_')} {self.split} set".strip()


class Field(NamedTuple):
  """A part of one input: a text, or a list of texts."""

  name: str
  is_list: bool = False
  default: str | None = None  # for a missing part; None: required


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings that a trained model records. Subclasses add fields.

  Every field has a default. task.json holds them, so their types are JSON types
  or tuples of these.
  """

  max_seq_length: int = 128  # word pieces per row
  # Names of fields; not fields themselves.
  fixed = ("labels",)  # not options of `bert.load`
  in_graph = ()  # computed by the head, so that an ONNX file has one value

  @classmethod
  def flag_fields(cls) -> list[dataclasses.Field]:
    """The fields with scalar values, which flags may set."""
    kinds = (bool, int, float, str)
    fields = dataclasses.fields(cls)
    return [field for field in fields if isinstance(field.default, kinds)]

  def check(self) -> None:
    """Raises ValueError if a value is wrong."""
    if self.max_seq_length < 3:
      raise ValueError(
        f"max_seq_length is {self.max_seq_length}, and must be at least 3"
      )


class Task:
  """A task: from files to rows, from rows to numbers, from numbers to answers.

  A subclass defines the methods of the first three parts, in the order of their
  use; docs/add-a-task.md shows a complete one. The methods of the other parts
  have defaults that fit most tasks.

  Args:
    settings: a Settings. Default: that of the class.
    tokenizer: a FullTokenizer.
    paths: dict from split ("train", "dev", "test") to its file.
  """

  kind = ""  # name of the kind of task, in the registry and in task.json
  Settings = Settings
  # The parts of one input: `Field`s, or names of required texts.
  inputs: Sequence[Field] = (Field("text"),)
  # Name and TensorFlow type, such as "DT_STRING", of each output of `public`,
  # for clients of the server.
  output_types: Sequence[tuple[str, str]] = ()
  name = ""  # in messages and in flags.json
  # For --keep_best. --early_stopping_patience uses the first one by default.
  metrics: Sequence[str] = ()
  needs_pooler = True  # whether `head` reads the pooled output
  spans_batch = False  # whether `loss` compares the rows of a batch
  has_eval_loss = True  # whether rows to evaluate on have what `loss` needs
  fits_head = False  # whether `fitted` gives variables of the head
  style = ""  # CSS of `section`

  # Only some of our own tasks change these.
  pads_training = False  # by default; see --pad_to_max_length
  epoch_counts_rows = True  # False: an epoch counts examples
  truncates = True  # whether a row of full length may have lost text

  distillation: Distillation | None = None  # Set by a run with a teacher.

  def __init_subclass__(cls):
    if isinstance(cls.inputs, Sequence):  # Not a property.
      cls.inputs = [Field(x) if isinstance(x, str) else x for x in cls.inputs]

  def __init__(
    self,
    settings: Settings | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    paths: Mapping[str, str] | None = None,
  ):
    self.settings = settings or self.Settings()
    self.tokenizer = tokenizer
    self.paths = paths or {}
    self.name = self.name or self.kind

  @property
  def labels(self) -> Sequence[str]:
    """The names of the labels; empty if the task has none."""
    return getattr(self.settings, "labels", ())

  # From files to rows.

  @classmethod
  def from_flags(cls, flags: Flags, model: Model) -> Task:
    """The task of a run, with its settings and files.

    `model` is the one that the run starts from or uses. Without --do_train, it
    supplies the settings that no flag sets.
    """
    settings = cls.Settings() if flags.do_train else model.settings(cls)
    given = flags.given_of(field.name for field in cls.Settings.flag_fields())
    paths = {split: flags[f"{split}_file"] for split in wanted_splits(flags)}
    settings = dataclasses.replace(settings, **given)
    return cls(settings, model.tokenizer, paths)

  def examples(self, split: str) -> Mapping[str, Sequence]:
    """The data sets of a split: dict from suffix of result files to examples.

    Called before the other methods; may complete the settings.
    "train" has exactly one data set.
    """
    raise NotImplementedError

  def example(self, *parts):
    """The example of one input, by default a dict by the names of `inputs`."""
    names = (field.name for field in self.inputs)
    return dict(zip(names, parts, strict=True))

  def rows(self, example, is_training: bool) -> list[Mapping]:
    """The rows of an example: one, or one for each window.

    A row has all features of `feature_spec`, padded or not. Unknown labels may
    have any value.
    """
    raise NotImplementedError

  def text_row(self, text_a: str, text_b: str = "") -> dict[str, list[int]]:
    """The three sequences of a text or a pair, truncated to fit."""
    tokenizer = cast(tokenization.FullTokenizer, self.tokenizer)
    a, b = (tokenizer.tokenize(text) for text in (text_a, text_b))
    special = tokenizer.special.count(2 if b else 1)
    room = self.settings.max_seq_length - special
    kept_a, kept_b = sequences.share_room(len(a), len(b), room)
    texts = (a[:kept_a], b[:kept_b]) if b else (a[:kept_a],)
    return sequences.input_row(tokenizer, *texts)

  def feature_spec(self, is_training: bool) -> records.Spec:
    """The spec of a row; a batch cuts the `cut_axes` to its longest row."""
    return records.sequence_spec(self.settings.max_seq_length)

  # From rows to numbers.

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    """Name and shape of the variables that the task adds to BERT."""
    raise NotImplementedError

  def output_labels(self) -> dict[str, tuple[str, ...]]:
    """The label of each row of the variables of output layers, by variable.

    Training from a model keeps the rows of the labels that both have.
    """
    if not self.labels:
      return {}
    return dict.fromkeys(layers.output_shapes(0, 0), tuple(self.labels))

  def head(self, ops, bert, features: Mapping) -> dict:
    """The outputs of the task by name, from BERT's vectors of a batch.

    `ops` is a `TensorOps` or an `OnnxOps`; `bert` has `get_pooled_output()`
    [B, H] and `get_sequence_output()` [B, S, H]; the features are [B, ...].
    """
    raise NotImplementedError

  def output_axes(self) -> dict[str, Sequence[str | int | None]]:
    """The axes after the first of each output of `head` that `answer` reads.

    An axis is a size, None for any size, or the name of an axis that batches
    cut.
    """
    raise NotImplementedError

  def loss(
    self, outputs: Mapping, features: Mapping
  ) -> tf.Tensor | Sequence[batch_means.Term]:
    """The loss of each row, float [B], from the outputs of `head`.

    Alternatively, returns terms: pairs of values [B, ...] and weights, whose
    weighted means over the batch are added. In an evaluation, `answer` gets the
    values of the first term as `losses`.

    With `spans_batch`, returns the loss of the whole batch, a scalar. It does
    not depend on how training divides the batch into groups of similar length,
    micro-batches or devices. `outputs` then has the vectors of the texts,
    [B, T, D], or [B, D] for one text per row, by the first name in
    `output_axes`; `features` has no sequences.
    """
    raise NotImplementedError

  def soft_targets(self) -> dict[str, Sequence[str | int | None]]:
    """The outputs of `head` that a student learns from; see `output_axes`.

    They are logits, unless the task overrides `soft_loss`. If there are none,
    the task does not support --teacher.
    """
    return {}

  # From numbers to answers.

  def answer(self, example, predictions: Sequence[Mapping]):
    """The answer to an example, with all that `score` and `write` need.

    `predictions` has a dict of arrays for each row: the outputs in
    `output_axes`, cut to the length of the row, and the features that are not
    sequences, such as labels.
    """
    raise NotImplementedError

  def public(self, answer) -> dict:
    """The answer that `bert.load` and the server return, a dict."""
    return answer

  def describe(self, answer) -> str:
    """The answer in a few lines, for the terminal."""
    return "\n".join(f"{k}: {v}" for k, v in self.public(answer).items())

  def score(self, rows: RowSet, answers: Iterable) -> Evaluation:
    """The metrics of a labeled data set; `answers` is a lazy iterator.

    Results are named as in `metrics`, with or without the prefix `eval_`.
    Higher is better, unless the name contains `loss` or `mse`. The caller adds
    `global_step`, and `loss` if it is missing.
    """
    raise NotImplementedError

  def write(
    self, folder: str, rows: RowSet, answers: Iterable
  ) -> Evaluation | None:
    """Writes the answers; returns their Evaluation if labels are known.

    By default, writes one line of JSON per answer: its id (the row number,
    unless the example has one), the inputs of an example that is a dict, and
    the fields of `public`.
    """
    names = ["id", *(field.name for field in self.inputs)]
    path = os.path.join(folder, f"test_predictions{rows.suffix}.jsonl")
    with files.open_atomic(path, "w") as writer:
      for number, answer in enumerate(answers):
        example = rows.examples[number] if rows.examples else None
        given = example if isinstance(example, dict) else {}
        parts = {name: given[name] for name in names if name in given}
        line = {"id": str(number), **parts, **self.public(answer)}
        writer.write(json.dumps(line, ensure_ascii=False) + "\n")
    logging.info("%s: %s", path, plural(len(rows.examples or ()), "line"))
    return None

  def section(self, key: str, evaluation: Evaluation) -> str:
    """The HTML of an evaluation in report.html; `key` is unique in the page."""
    return ""

  # Settings and variables. Most tasks keep the methods from here on.

  @classmethod
  def default_settings(cls, config: modeling.BertConfig) -> Settings:
    """The settings of a model that records none."""
    length = min(cls.Settings.max_seq_length, config.max_position_embeddings)
    return cls.Settings(max_seq_length=length)

  @classmethod
  def settings_of(cls, head: huggingface_config.Head) -> dict:
    """The settings that a config.json in Hugging Face's format records."""
    del head
    return {}

  def prepare(self, model: Model) -> None:
    """Called with the model before `head_shapes`."""

  def optional_variables(self) -> Collection[str]:
    """Variables that a checkpoint may lack when the model is used."""
    return () if self.needs_pooler else POOLER

  # Rows and answers.

  def features(
    self, examples: Iterable, is_training: bool
  ) -> Iterator[list[Mapping]]:
    """Yields the rows of each example."""
    for example in examples:
      yield self.rows(example, is_training)

  def answers(self, examples: Sequence, compute: Callable) -> list:
    """The answers to examples; `compute` returns the predictions of rows."""
    groups = list(self.features(examples, False))
    rows = compute([row for group in groups for row in group])
    by_example = sequences.groups_of(rows, map(len, groups))
    return list(map(self.answer, examples, by_example))

  def answers_of(self, model: LoadedModel, examples: Sequence) -> list:
    """The answers of another model of this kind, in the form of `answer`.

    None for an example that a comparison must leave out: that model cannot
    give its right answer, or was trained on it.
    """
    return model.answer_examples(examples)

  def row_sets(self, split: str) -> list[RowSet] | None:
    """Existing rows of a split; None to make them from `examples`."""
    return None

  def texts(self, rows: RowSet) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields the location and the texts of each example of a data set.

    The texts tell whether data sets overlap. Default: those of `inputs`.
    """
    for number, example in enumerate(rows.examples or ()):
      texts = []
      for field in self.inputs:
        value = _part(example, field.name) or ""
        texts += map(str, value if isinstance(value, list) else [value])
      if any(texts):
        yield _part(example, "where") or f"example {number}", texts

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs warnings about the data before training starts."""

  def data_hashes(self) -> dict[str, str]:
    """A hash of each data set that was read, by split, for flags.json."""
    return {
      split: hashlib.sha256(files.read_bytes(path)).hexdigest()
      for split, path in self.paths.items()
    }

  # Training.

  def logged(self, outputs: Mapping, features: Mapping) -> dict:
    """Scalars of a training batch for the log line, by name."""
    return {}

  def row_groups(self, num_rows: int) -> Sequence[np.ndarray]:
    """Indices of training rows, by groups that are drawn equally often.

    Without groups, an epoch has each row once.
    """
    return ()

  def fitted(self, predictions: Iterable[Mapping]) -> dict[str, np.ndarray]:
    """Values of variables of the head that `loss` does not train.

    They are computed from the predictions of training rows, see `answer`,
    before each checkpoint.
    """
    raise NotImplementedError

  def before_updates(self, folder: str) -> None:
    """Deletes the files of a folder that describe its old weights.

    Called before the first update, if there is one to make, and before each
    evaluation that may replace the best weights.
    """

  def finish(self, folder: str, evaluations: Sequence[Evaluation]) -> None:
    """Called after the evaluations of a run."""

  # Learning from a teacher.

  def unlabeled(self, path: str) -> Sequence:
    """The examples of a file without labels: a text or a pair in each line."""
    names = [field.name for field in self.inputs]
    least = sum(field.default is None for field in self.inputs)
    examples = []
    for number, line in enumerate(text_files.read_lines(path), 1):
      parts = text_files.texts_of(line)
      if not line.strip():
        continue
      if not least <= len(parts) <= len(names):
        raise UserError(
          f"{path}:{number} has {plural(len(parts), 'text')}, and the model "
          f"reads {listing(names)}; separate texts by "
          f"{text_files.SEPARATOR!r}"
        )
      examples.append(self.example(*parts))
    return examples

  def reading_with(self, other: Task) -> Task:
    """A copy of this task that reads text with another task's tokenizer."""
    reader = copy.copy(self)
    reader.tokenizer = other.tokenizer
    return reader

  def soft_loss(
    self, outputs: Mapping, features: Mapping, temperature: float
  ) -> tf.Tensor:
    """The loss of the soft targets, with the shape of the loss of the labels.

    Soft targets are features whose names begin with `distillation.PREFIX`.
    """
    losses = []
    for name, axes in self.soft_targets().items():
      mask = None
      if isinstance(axes[-1], str):  # Its end is padding.
        mask = features["input_mask"]
        while mask.shape.rank > outputs[name].shape.rank:
          mask = mask[..., 0]
      targets = features[distillation.PREFIX + name]
      losses.append(
        distillation.divergence(outputs[name], targets, temperature, mask)
      )
    return tf.add_n(losses) / len(losses)


def _part(example, name):
  """An item of a dict or an attribute of an object; None if missing."""
  if isinstance(example, Mapping):
    return example.get(name)
  return getattr(example, name, None)


def score_rows(task: Task, rows: Sequence[Mapping]) -> dict[str, float]:
  """The metrics of predictions with one row per example."""
  answers = (task.answer(None, [row]) for row in rows)
  row_set = RowSet("dev", "", None, len(rows))
  return task.score(row_set, answers).results
