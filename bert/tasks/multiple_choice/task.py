"""Multiple choice: a vector scores each of several continuations.

Devlin et al. (2019), section 4.4. Each choice is a separate sequence, `[CLS]
context [SEP] question choice [SEP]`. Its score is the product of the pooled
output and a vector; a softmax runs over the choices of a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert import layers
from bert.contract.task import Field, RowSet, Settings, Task
from bert.data import files, records, sequences
from bert.errors import UserError, plural
from bert.reports import verdict
from bert.tasks.classification import prediction_files
from bert.tasks.classification.examples import content_hash
from bert.tasks.multiple_choice import page
from bert.tasks.multiple_choice.data import Example, read_examples

CHOICE = "choice"  # The axis of choices.


def make_row(
  example: Example, tokenizer: tokenization.FullTokenizer, max_seq_length: int
) -> dict[str, list]:
  """The row of an example: its N sequences [N, S], and the label."""
  columns = {name: [] for name in records.SEQUENCES}
  context = tokenizer.tokenize(example.context)
  question = tokenizer.tokenize(example.question)
  for choice in example.choices:
    if not choice.strip():  # Padding of a list of choices.
      for values in columns.values():
        values.append([0] * max_seq_length)
      continue
    pieces = tokenizer.tokenize(choice)
    room = max_seq_length - tokenizer.special.count(2)
    kept_a, kept_b = sequences.share_room(
      len(context), len(question) + len(pieces), room
    )
    # Truncate both: a long question would otherwise leave no choice.
    kept, asked = sequences.share_room(len(pieces), len(question), kept_b)
    text_b = question[:asked] + pieces[:kept]
    row = sequences.input_row(tokenizer, context[:kept_a], text_b)
    for name, values in row.items():
      columns[name].append(sequences.padded(values, max_seq_length))
  return {**columns, "label_ids": example.label or 0}


class Choices(NamedTuple):
  """The answer to an example: the probability of each choice, and the loss."""

  example: Example
  probabilities: list[float]
  loss: float


class MultipleChoiceTask(Task):
  """SWAG, or other questions with several choices.

  `paths` has the file of each split, or its Examples.
  """

  kind = "multiple choice"
  name = "multiple choice"
  inputs = (
    Field("context"),
    Field("question", default=""),
    Field("choices", is_list=True),
  )
  output_types = (("choice", "DT_INT64"), ("probabilities", "DT_FLOAT"))
  metrics = ("accuracy",)
  style = page.STYLE
  section = staticmethod(page.section)

  def __init__(
    self,
    settings: Settings | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    paths: Mapping[str, str | Sequence[Example]] | None = None,
  ):
    super().__init__(settings, tokenizer, paths)
    self._examples = {
      split: read_examples(source, split != "test")
      if isinstance(source, str)
      else source
      for split, source in self.paths.items()
    }
    counts = (len(e.choices) for es in self._examples.values() for e in es)
    self._num_choices = max(counts, default=1)

  # Inference.

  def example(self, context: str, question: str, choices: list[str]) -> Example:
    if len(list(filter(str.strip, choices))) < 2:
      raise UserError("pass two or more choices that are not empty")
    return Example("", context, question, list(choices))

  def rows(self, example: Example, is_training: bool) -> list[dict]:
    """The row of an example, padded to the largest number of choices."""
    row = make_row(example, self.tokenizer, self.settings.max_seq_length)
    for name in records.SEQUENCES:
      missing = self._num_choices - len(row[name])
      row[name] += [[0] * self.settings.max_seq_length] * missing
    return [row]

  def feature_spec(self, is_training: bool) -> records.Spec:
    """The three sequences [N, S], and the label."""
    shape = (self._num_choices, self.settings.max_seq_length)
    feature = records.Feature(shape, cut_axes=(CHOICE, records.POSITION))
    spec = dict.fromkeys(records.SEQUENCES, feature)
    return {**spec, "label_ids": records.Feature()}

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    """The vector that scores choices [1, H], and a bias [1]."""
    return layers.output_shapes(config.hidden_size, 1)

  def head(self, ops, bert, features: Mapping) -> dict:
    """The scores of the choices [B, N], and their probabilities."""
    # Padding choices get no probability.
    is_choice = ops.take(features["input_mask"], 0)
    scores = ops.output_layer(bert.get_pooled_output(), 1)
    scores = ops.reshaped(scores, is_choice)
    logits = ops.masked(scores, is_choice, layers.MASKED_SCORE)
    return {"logits": logits, "probabilities": ops.softmax(logits)}

  def output_axes(self) -> dict[str, Sequence[str]]:
    return {"logits": (CHOICE,), "probabilities": (CHOICE,)}

  def soft_targets(self) -> dict[str, Sequence[str]]:
    return {"logits": (CHOICE,)}

  def unlabeled(self, path: str) -> Sequence[Example]:
    examples = read_examples(path, is_labeled=False)
    counts = (len(example.choices) for example in examples)
    self._num_choices = max(self._num_choices, *counts)
    return examples

  def answer(self, example: Example, predictions: Sequence[Mapping]) -> Choices:
    (row,) = predictions
    probabilities = row["probabilities"].tolist()
    if example is not None:  # The row has the largest number of choices.
      probabilities = (probabilities + [0.0] * len(example.choices))[
        : len(example.choices)
      ]
    return Choices(example, probabilities, float(row.get("losses", 0.0)))

  def public(self, answer: Choices) -> dict:
    """The most probable `choice`, from 0, and the `probabilities` of all."""
    row = answer.probabilities
    return {"choice": row.index(max(row)), "probabilities": row}

  def describe(self, answer: Choices) -> str:
    pairs = zip(answer.probabilities, answer.example.choices, strict=True)
    return "\n".join(f"{p:6.1%}  {text}" for p, text in sorted(pairs)[::-1])

  # Training.

  def examples(self, split: str) -> dict[str, Sequence[Example]]:
    return {"": self._examples[split]}

  def data_hashes(self) -> dict[str, str]:
    return {
      split: content_hash(example[1:] for example in examples)
      for split, examples in self._examples.items()
    }

  def loss(self, outputs: Mapping, features: Mapping) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=features["label_ids"], logits=outputs["logits"]
    )

  # Evaluation and prediction.

  def score(self, rows: RowSet, answers: Iterable[Choices]) -> ScoredChoices:
    return ScoredChoices(rows.name, list(answers))

  def write(
    self, folder: str, rows: RowSet, answers: Iterable[Choices]
  ) -> None:
    path = f"{folder}/test_predictions.tsv"
    names = [f"choice_{number}" for number in range(self._num_choices)]
    with files.open_atomic(path, "w") as writer:
      table = prediction_files.table_writer(writer)
      table.writerow(["id", "prediction", *names])
      for number, answer in enumerate(answers):
        shown = [f"{probability:.6f}" for probability in answer.probabilities]
        shown += [""] * (len(names) - len(shown))
        table.writerow([number, self.public(answer)["choice"], *shown])
    logging.info("%s: %s", path, plural(rows.num_rows, "row"))


@dataclasses.dataclass
class ScoredChoices:
  """An Evaluation for the report; `answers` are tuples as `Choices`."""

  name: str
  answers: list[tuple[Example, list[float], float]]

  def __post_init__(self):
    right = [int(np.argmax(p)) == e.label for e, p, _ in self.answers]
    self.right, count, correct = np.array(right), len(right), sum(right)
    loss = float(np.mean([loss for *_, loss in self.answers]))
    self.results = {"eval_accuracy": correct / count, "eval_loss": loss}
    self.details = {"examples": count, "correct": correct}
    self.counts = {"examples": count, "wrong": count - correct}

  def sample(self) -> verdict.Sample:
    guess = np.mean([1 / len(p) for _, p, _ in self.answers])
    return verdict.Sample(
      "accuracy",
      len(self.right),
      lambda rows: float(self.right[rows].mean()),
      baseline=("a random choice", float(guess)),
    )
