"""Multiple choice: a vector scores each of several continuations.

Devlin et al. (2019), section 4.4. Each choice is a sequence of its own, `[CLS]
context [SEP] question choice [SEP]`. Its score is the product of the pooled
output and a vector; a softmax runs over the choices of a row.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert import layers
import modeling
import tokenization
from bert.errors import UserError, plural
from bert.data import files, records, sequences
from bert.reports import multiple_choice as page
from bert.reports import training_page
from bert.tasks import prediction_files
from bert.tasks.choices import Example
from bert.training import estimator, huggingface_config, model_folder
from bert.training.task import Outputs, RowSet, Task

SETTINGS_NAME = "multiple_choice.json"

# Its name in Hugging Face's format, which does not tell the sequence length.
ARCHITECTURE = "BertForMultipleChoice"
DEFAULT_LENGTH = 128

CHOICE = "choice"  # The axis of choices.


def make_row(
  example: Example, tokenizer: tokenization.FullTokenizer, max_seq_length: int
) -> dict[str, list]:
  """The row of an example: its N sequences [N, S], and the label."""
  columns = {name: [] for name in records.SEQUENCES}
  context = tokenizer.tokenize(example.context)
  question = tokenizer.tokenize(example.question)
  for choice in example.choices:
    pieces = tokenizer.tokenize(choice)
    kept_a, kept_b = sequences.share_room(
      len(context), len(question) + len(pieces), max_seq_length - 3
    )
    # If only the end were cut, a long question would leave no choice.
    kept, asked = sequences.share_room(len(pieces), len(question), kept_b)
    text_b = question[:asked] + pieces[:kept]
    row = sequences.input_row(tokenizer, context[:kept_a], text_b)
    for name, values in row.items():
      columns[name].append(sequences.padded(values, max_seq_length))
  return {**columns, "label_ids": example.label or 0}


def feature_spec(num_choices: int, max_seq_length: int) -> records.Spec:
  """The three sequences [N, S], cut to a batch's most choices and pieces."""
  feature = records.Feature(
    (num_choices, max_seq_length), cut_axes=(CHOICE, records.POSITION)
  )
  return dict.fromkeys(records.SEQUENCES, feature)


def compute_scores(bert: modeling.BertModel, is_training: bool) -> tf.Tensor:
  """The score of each sequence: float [rows], from the pooled output."""
  return layers.task_logits(bert.get_pooled_output(), 1, is_training)[:, 0]


class MultipleChoiceTask(Task):
  """SWAG, or other questions with several choices.

  Args:
    examples: dict from split to its Examples.
    tokenizer: a FullTokenizer.
    max_seq_length: maximum length S of a choice with its context.
  """

  name = "multiple choice"
  metrics = ("accuracy",)

  def __init__(
    self,
    examples: Mapping[str, Sequence[Example]],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
  ):
    self._examples = examples
    self._tokenizer = tokenizer
    self._length = max_seq_length
    self._num_choices = max(
      len(e.choices) for found in examples.values() for e in found
    )

  def examples(self, split: str) -> dict[str, Sequence[Example]]:
    """The Examples of a split."""
    return {"": self._examples[split]}

  def features(
    self, examples: Iterable[Example], is_training: bool
  ) -> Iterator[list[dict]]:
    """Yields the row of each example, padded to the most choices of all."""
    for example in examples:
      row = make_row(example, self._tokenizer, self._length)
      for name in records.SEQUENCES:
        missing = self._num_choices - len(row[name])
        row[name] += [[0] * self._length] * missing
      yield [row]

  def feature_spec(self, is_training: bool) -> records.Spec:
    """The three sequences [N, S], and the label."""
    spec = feature_spec(self._num_choices, self._length)
    return {**spec, "label_ids": records.Feature()}

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of the texts and labels of each split."""
    return {
      split: hashlib.sha256(
        json.dumps([example[1:] for example in found]).encode()
      ).hexdigest()
      for split, found in self._examples.items()
    }

  def variable_shapes(
    self, config: modeling.BertConfig
  ) -> dict[str, list[int]]:
    """The vector that scores choices [1, H], and a bias [1]."""
    return layers.output_shapes(config.hidden_size, 1)

  def outputs(
    self, bert: modeling.BertModel, features: Mapping, mode: str
  ) -> Outputs:
    """The scores of the choices [B, N], and the loss of each row."""
    is_training = mode == estimator.ModeKeys.TRAIN
    # The padding of a row with fewer choices gets no probability.
    is_choice = tf.cast(features["input_mask"][:, :, 0], tf.float32)
    scores = compute_scores(bert, is_training)
    logits = tf.reshape(scores, tf.shape(is_choice)) + (is_choice - 1) * 1e9
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=features["label_ids"], logits=logits
    )
    predictions = {"probabilities": tf.nn.softmax(logits), "losses": losses}
    return Outputs(losses, predictions=predictions)

  def score(
    self, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> ScoredChoices:
    """The accuracy."""
    answers = []
    for example, (row,) in zip(rows.examples, predictions, strict=True):
      found = row["probabilities"][: len(example.choices)].tolist()
      answers.append((example, found, float(row["losses"])))
    return ScoredChoices(rows.name, answers)

  def write_predictions(
    self, folder: str, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> None:
    """Writes test_predictions.tsv: row, prediction and probabilities."""
    path = f"{folder}/test_predictions.tsv"
    names = [f"choice_{number}" for number in range(self._num_choices)]
    with files.open_atomic(path, "w") as writer:
      table = prediction_files.table_writer(writer)
      table.writerow(["id", "prediction", *names])
      for number, (example, (row,)) in enumerate(
        zip(rows.examples, predictions, strict=True)
      ):
        found = row["probabilities"][: len(example.choices)]
        shown = [f"{probability:.6f}" for probability in found]
        shown += [""] * (len(names) - len(shown))
        table.writerow([number, int(np.argmax(found)), *shown])
    logging.info("%s: %s", path, plural(rows.num_rows, "row"))

  def report(
    self, folder: str, evaluations: Sequence[ScoredChoices], record: Mapping
  ) -> None:
    """Writes report.html."""
    training_page.write_run(
      folder, self.name, evaluations, page.section, record, page.STYLE
    )

  def assets(self) -> dict[str, str]:
    """multiple_choice.json."""
    return assets(self._length)


def assets(max_seq_length: int) -> dict[str, str]:
  """The model's file in a model folder: dict from name to content."""
  settings = {"max_seq_length": max_seq_length}
  return {SETTINGS_NAME: json.dumps(settings, indent=2) + "\n"}


@dataclasses.dataclass
class ScoredChoices:
  """A task's Evaluation, as the report takes it.

  Attributes:
    name: the data set, such as "dev set".
    answers: for each example, (Example, probabilities, loss).
  """

  name: str
  answers: list[tuple[Example, list[float], float]]

  def __post_init__(self):
    right = [int(np.argmax(p)) == e.label for e, p, _ in self.answers]
    loss = float(np.mean([loss for *_, loss in self.answers]))
    self.results = {
      "eval_accuracy": float(np.mean(right)),
      "eval_loss": loss,
      "loss": loss,
    }
    self.details = {"examples": len(right), "correct": sum(right)}
    self.counts = {"examples": len(right), "wrong": len(right) - sum(right)}


def read_assets(folder: str) -> int:
  """The maximum sequence length of the model in a folder.

  Raises:
    UserError: the folder holds no such model.
  """
  path = os.path.join(folder, SETTINGS_NAME)
  settings = files.read_json(path, dict)
  if settings is None:
    head = huggingface_config.read_head(folder)
    if head.architecture == ARCHITECTURE:
      return model_folder.default_length(folder, DEFAULT_LENGTH)
    raise UserError(
      f"{folder} does not hold a trained model for multiple choice, which has "
      f"a {SETTINGS_NAME}; pass the --output_dir of a finished training"
    )
  files.check_settings(path, settings, {"max_seq_length": DEFAULT_LENGTH})
  if not settings:
    raise UserError(files.damaged(path, "max_seq_length is missing"))
  length = settings["max_seq_length"]
  files.check_least(path, "max_seq_length", length, 3)
  return length
