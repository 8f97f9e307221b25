"""Classification of texts and pairs: a linear layer on BERT's pooled output.

Devlin et al. (2019), section 4.1. The outputs are one label, several labels, or
a number; see `bert/tasks/labels.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert import layers
import modeling
import tokenization
from bert.errors import UserError, listing, plural
from bert.data import files
from bert.reports import classification as classification_report
from bert.reports import training_page
from bert.tasks import glue, prediction_files, tabular, tagging
from bert.tasks import labels as label_types
from bert.tasks.examples import (
  LONG_TEXT,
  DataProcessor,
  InputExample,
  content_hash,
  convert_example,
  feature_row,
  feature_spec,
  label_id,
  least_length,
  without_label,
)
from bert.training import estimator, huggingface_config, metrics, model_folder
from bert.training.task import Outputs, RowSet, Task, model_fn_builder_of

# The files of a classifier in a model folder, beside bert_config.json.
LABELS_NAME = "labels.json"
SETTINGS_NAME = "classifier.json"

# Its name in Hugging Face's format, and theirs of the kinds of labels.
ARCHITECTURE = "BertForSequenceClassification"
PROBLEM_TYPES = {
  "classification": "single_label_classification",
  "multilabel": "multi_label_classification",
  "regression": "regression",
}


@dataclasses.dataclass(frozen=True)
class Reading:
  """How a classifier reads text.

  Attributes:
    max_seq_length: maximum sequence length, S.
    long_text: how longer text is read; one of `examples.LONG_TEXT`.
    is_pair: whether an example has two texts.
  """

  max_seq_length: int = 128
  long_text: str = "head"
  is_pair: bool = False


def compute_logits(
  bert: modeling.BertModel, num_labels: int, is_training: bool
) -> tf.Tensor:
  """Logits [B, C] of BERT's pooled output."""
  return layers.task_logits(bert.get_pooled_output(), num_labels, is_training)


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  labels: tf.Tensor,
  num_labels: int,
  use_one_hot_embeddings: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
  """BERT with a softmax classifier.

  Args:
    bert_config: a BertConfig.
    is_training: whether dropout is on.
    input_ids, input_mask, segment_ids: integer [B, S].
    labels: integer [B].
    num_labels: number of labels, C.
    use_one_hot_embeddings: see BertModel.

  Returns:
    loss (scalar), per_example_loss [B], logits [B, C], probabilities [B, C].
  """
  bert = modeling.BertModel(
    bert_config,
    is_training,
    input_ids,
    input_mask,
    segment_ids,
    use_one_hot_embeddings,
  )
  logits = compute_logits(bert, num_labels, is_training)
  label_type = label_types.Classification([None] * num_labels)
  per_example_loss = label_type.per_example_loss(logits, labels)
  loss = tf.reduce_mean(per_example_loss)
  return loss, per_example_loss, logits, label_type.probabilities(logits)


def model_fn_builder(
  bert_config: modeling.BertConfig,
  num_labels: int,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
  precision: str = "float32",
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of a softmax classifier, for `estimator.Estimator`.

  Args:
    bert_config: a BertConfig.
    num_labels: number of labels, C.
    init_checkpoint: initial weights, or None.
    learning_rate, num_train_steps, num_warmup_steps: see `create_optimizer`.
    use_tpu: has no effect; the strategy knows the device.
    use_one_hot_embeddings, precision: see BertModel.
  """
  label_type = label_types.Classification([None] * num_labels)
  build = model_fn_builder_of(
    lambda config: ClassificationTask("", None, label_type)
  )
  return build(
    bert_config,
    init_checkpoint,
    learning_rate,
    num_train_steps,
    num_warmup_steps,
    use_tpu,
    use_one_hot_embeddings,
    precision,
  )


class ClassificationTask(Task):
  """A classification or regression task.

  Args:
    name: its name, such as "MRPC".
    processor: a DataProcessor; None if no files are read.
    label_type: its label type.
    data_dir: folder of its files.
    tokenizer: a FullTokenizer.
    reading: how texts are read.
    metric_names: keys of `metrics.METRICS`; the first selects the best model.
    balances_labels: whether to give all labels equal weight in training.
    submission_dir: folder for GLUE's submission files.
    trained_on_pairs: whether the model in use was trained on pairs of texts;
      None if that is unknown, or if the task trains.
  """

  can_pack = True
  finds_duplicates = True

  def __init__(
    self,
    name: str,
    processor: DataProcessor | None,
    label_type: label_types.LabelType,
    data_dir: str | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    reading: Reading | None = None,
    metric_names: Sequence[str] = ("accuracy",),
    balances_labels: bool = False,
    submission_dir: str | None = None,
    trained_on_pairs: bool | None = None,
  ):
    self.name = name
    self.metrics = tuple(metric_names)
    self._processor = processor
    self._data_dir = data_dir
    self._label_type = label_type
    self.labels = label_type.labels
    self._tokenizer = tokenizer
    self.reading = reading or Reading()
    self._balances_labels = balances_labels
    self._label_weights = None
    self._submission_dir = submission_dir
    self._trained_on_pairs = trained_on_pairs
    self._hashes = {}

  # Input.

  def examples(self, split: str) -> dict[str, Sequence[InputExample]]:
    """The InputExamples of a split; the test split has no labels."""
    sets = self._processor.get_example_sets(self._data_dir, split)
    if split == "test":
      sets = {suffix: list(map(without_label, sets[suffix])) for suffix in sets}
    for suffix, examples in sets.items():
      self._check_texts(examples, split)
      self._hashes[split + suffix] = content_hash(examples)
      if split != "test":
        label_ids = [label_id(e, self._label_type) for e in examples]
      if split == "train":
        is_pair = any(e.text_b is not None for e in examples[:1])
        self.reading = dataclasses.replace(self.reading, is_pair=is_pair)
        self._set_weights(label_ids)
    return sets

  def _set_weights(self, label_ids):
    """Computes the label weights, with --class_weights=balanced."""
    if self._balances_labels:
      self._label_weights = self._label_type.balanced_weights(label_ids)

  def _check_texts(self, examples, split):
    """Raises UserError if the model was trained on another number of texts."""
    on_pairs = self._trained_on_pairs
    found = {example.text_b is not None for example in examples}
    if on_pairs is not None and found == {not on_pairs}:
      names = ("single texts", "pairs of texts")
      raise UserError(
        f"--task_name={self.name}: the {split} set has {names[not on_pairs]}, "
        f"but the model was trained on {names[on_pairs]}; pass the task that "
        f"it was trained on"
      )

  def features(
    self, examples: Iterable[InputExample], is_training: bool
  ) -> Iterator[list[Mapping]]:
    """Yields the rows of each example: one, or one for each window."""
    count = truncated = 0
    label_ids = []  # Of rows: the loss counts each window of a text.
    for example in examples:
      rows = convert_example(
        example,
        self._label_type,
        self.reading.max_seq_length,
        self._tokenizer,
        self.reading.long_text,
      )
      count += 1
      truncated += rows[0].was_cut
      label_ids += [row.label_id for row in rows]
      yield list(map(feature_row, rows))
    if is_training:
      self._set_weights(label_ids)
    if truncated:
      logging.info(
        "Truncated %d of %s (%.1f %%) to --max_seq_length=%d",
        truncated,
        plural(count, "example"),
        100 * truncated / count,
        self.reading.max_seq_length,
      )

  def feature_spec(self, is_training: bool) -> dict:
    """The three sequences [S], the label, and `is_real_example`."""
    return feature_spec(self.reading.max_seq_length, self._label_type)

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Warns of rare labels, and of rows in both data sets."""
    for train in row_sets.get("train", ()):
      tabular.log_rare_labels(train.examples, self._label_type)
      if self._label_weights:
        shown = zip(self._label_type.labels, self._label_weights, strict=True)
        logging.info(
          "Label weights: %s", ", ".join(f"{n} {w:.3g}" for n, w in shown)
        )
      for dev in row_sets.get("dev", ()):
        tabular.log_duplicates(self.name, train.examples, dev.examples)

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of each data set."""
    return self._hashes

  # Model.

  def variable_shapes(
    self, config: modeling.BertConfig
  ) -> dict[str, list[int]]:
    """The output layer's weights [C, H] and bias [C]."""
    return layers.output_shapes(
      config.hidden_size, self._label_type.num_outputs
    )

  def outputs(
    self, bert: modeling.BertModel, features: Mapping, mode: str
  ) -> Outputs:
    """Logits [B, C] and the loss of each row."""
    is_training = mode == estimator.ModeKeys.TRAIN
    logits = compute_logits(bert, self._label_type.num_outputs, is_training)
    loss = self._label_type.per_example_loss(
      logits,
      features["label_ids"],
      self._label_weights if is_training else None,
    )
    predictions = {
      "logits": logits,
      "probabilities": self._label_type.probabilities(logits),
      "label_ids": features["label_ids"],
    }
    return Outputs(per_example_loss=loss, predictions=predictions)

  # Evaluation and prediction.

  def score(
    self, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> classification_report.ClassifiedSet:
    """The task's metrics, and the predictions for the report."""
    label_type = self._label_type
    logits, label_ids = [], []
    for group in predictions:
      logits.append(_mean_logits(group))
      label_ids.append(group[0]["label_ids"])
    if not logits:
      raise UserError(f"{self.name}: the {rows.name} has no example")
    logits, label_ids = np.stack(logits), np.array(label_ids)
    losses = label_type.per_example_loss(tf.constant(logits), label_ids).numpy()
    probabilities = np.asarray(label_type.probabilities(logits))
    truth = label_type.truth(label_ids)
    answers = label_type.predictions(probabilities)
    loss = float(np.mean(losses, dtype=np.float64))
    results = metrics.compute(self.metrics, truth, answers)
    results |= {"eval_loss": loss, "loss": loss}
    return classification_report.ClassifiedSet(
      rows.name,
      label_type,
      results,
      truth,
      probabilities,
      losses,
      rows.examples,
    )

  def write_predictions(
    self, folder: str, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> None:
    """Writes test_results.tsv, test_predictions.tsv and GLUE's submission."""
    answers = prediction_files.write_predictions(
      folder,
      rows.suffix,
      self._label_type,
      rows.examples,
      map(_mean_logits, predictions),
      functools.partial(self._submission, rows.suffix),
    )
    path = f"{folder}/test_predictions{rows.suffix}.tsv"
    logging.info("%s: %s", path, plural(len(answers), "row"))

  def _submission(self, suffix, answers):
    """GLUE's file of predictions, if it has one: dict from path to text."""
    task = getattr(self._processor, "task", None)
    # A processor of a user's own may have other labels than its base class.
    has_its_labels = task and self._label_type.labels == list(task.labels)
    if not (has_its_labels and task.submission):
      return {}
    files.makedirs(self._submission_dir)
    path = os.path.join(self._submission_dir, task.submission[suffix])
    return {path: glue.submission_lines(task, answers)}

  def report(
    self,
    folder: str,
    evaluations: Sequence[classification_report.ClassifiedSet],
    record: Mapping,
  ) -> None:
    """Writes report.html."""
    training_page.write_run(
      folder,
      self.name,
      evaluations,
      classification_report.section,
      record,
      classification_report.STYLE,
    )

  def assets(self) -> dict[str, str]:
    """labels.json and classifier.json."""
    return assets(self._label_type, self.reading)


def _mean_logits(group):
  """The mean of the logits [C] of an example's rows."""
  return np.mean([row["logits"] for row in group], axis=0)


def assets(
  label_type: label_types.LabelType, reading: Reading
) -> dict[str, str]:
  """The classifier's files in a model folder: dict from name to content."""
  settings = {"kind": label_type.kind, **dataclasses.asdict(reading)}
  if not label_type.labels:
    settings |= {"mean": label_type.mean, "deviation": label_type.deviation}
  return {
    LABELS_NAME: json.dumps(list(label_type.labels), ensure_ascii=False) + "\n",
    SETTINGS_NAME: json.dumps(settings, indent=2) + "\n",
  }


def has_labels(folder: str) -> bool:
  """Whether a folder has a labels.json of ours.

  Repositories of Hugging Face may have a file of this name with other content.
  """
  return files.exists(os.path.join(folder, LABELS_NAME)) and (
    files.exists(os.path.join(folder, SETTINGS_NAME))
    or not any(huggingface_config.read_head(folder))
  )


def read_assets(
  folder: str | None,
) -> tuple[label_types.LabelType | None, Reading]:
  """The label type and the Reading that `assets` wrote to a folder.

  Without our labels.json, or with that of a tagger, the label type is None,
  unless the folder holds a classifier in Hugging Face's format. Without
  classifier.json, the Reading is the original's, or as long as the model
  allows.

  Raises:
    UserError: one of the files is damaged.
  """
  if not folder:
    return None, Reading()
  defaults = dataclasses.asdict(Reading())
  settings = {"kind": "classification", "mean": 0.0, "deviation": 1.0}
  settings |= defaults
  path = os.path.join(folder, SETTINGS_NAME)
  found = files.read_json(path, dict)
  if found is None and files.exists(
    os.path.join(folder, tagging.SETTINGS_NAME)
  ):
    return None, Reading()  # A tagger has labels.json, too.
  found = found or {}
  files.check_settings(path, found, settings)
  settings |= found
  reading = Reading(**{name: settings.pop(name) for name in defaults})
  _check_reading(path, reading)
  if has_labels(folder):
    labels = label_types.read_labels(os.path.join(folder, LABELS_NAME))
  else:
    head = huggingface_config.read_head(folder)
    if head.architecture != ARCHITECTURE:
      return None, reading
    labels = head.labels
    default = "regression" if len(labels) == 1 else "classification"
    by_type = {theirs: ours for ours, theirs in PROBLEM_TYPES.items()}
    settings["kind"] = by_type.get(head.problem_type, default)
    path = os.path.join(folder, huggingface_config.CONFIG_NAME)
  if "max_seq_length" not in found:
    length = model_folder.default_length(folder, reading.max_seq_length)
    reading = dataclasses.replace(reading, max_seq_length=length)
  try:
    return label_types.make_label_type(labels=labels, **settings), reading
  except ValueError as error:
    raise UserError(files.damaged(path, error)) from error


def _check_reading(path, reading):
  """Raises UserError if classifier.json has values that no text can have."""
  if reading.long_text not in LONG_TEXT:
    reason = f"long_text={reading.long_text!r}; known are {listing(LONG_TEXT)}"
    raise UserError(files.damaged(path, reason))
  least = least_length(reading.long_text)
  files.check_least(path, "max_seq_length", reading.max_seq_length, least)


def trained_on_pairs(folder: str | None) -> bool | None:
  """Whether a folder's model was trained on pairs; None if that is unknown."""
  if not folder:
    return None
  settings = files.read_json(os.path.join(folder, SETTINGS_NAME), dict)
  return (settings or {}).get("is_pair")
