"""BERT's pre-training objectives: masked words and next sentences.

Devlin et al. (2019), section 3.1. P is the maximum number of masked
positions per row; unused ones have weight 0. Rows without
`next_sentence_labels` are trained on masked words alone.

    update = optimization.Optimization(1e-4, 100000, 10000)
    task = PretrainingTask(config, {}, True)
    model_fn = model_fn.build_model_fn(task, config, None, update)
    model = estimator.Estimator(model_fn, estimator.RunConfig("/tmp/bert"))
    model.train(inputs.input_fn_from_rows(files, True), 32, 100000)
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
from bert import layers, variables
from bert.contract.batch_means import EPSILON, Term, weighted_mean
from bert.contract.task import Evaluation, RowSet, Task
from bert.data import instances
from bert.engine import inputs, record_files
from bert.errors import plural
from bert.flags.values import Flags
from bert.models.resolve import Model
from bert.tasks.pretraining.dynamic_masking import dynamic_masking
from bert.tasks.pretraining.records import (
  check_layout,
  find_records,
  record_flags,
)


def variable_shapes(
  bert_config: modeling.BertConfig, next_sentence_prediction: bool = True
) -> dict[str, list[int]]:
  """Name and shape of the variables that pre-training adds to BERT."""
  hidden, width = bert_config.hidden_size, bert_config.embedding_width
  shapes = {
    "cls/predictions/transform/dense/kernel": [hidden, width],
    "cls/predictions/transform/dense/bias": [width],
    "cls/predictions/transform/LayerNorm/beta": [width],
    "cls/predictions/transform/LayerNorm/gamma": [width],
    "cls/predictions/output_bias": [bert_config.vocab_size],
  }
  if next_sentence_prediction:
    shapes |= layers.output_shapes(hidden, 2, "cls/seq_relationship/")
  return shapes


def gather_indexes(
  sequence_tensor: tf.Tensor, positions: tf.Tensor
) -> tf.Tensor:
  """The vectors [B * P, H] at positions [B, P] of a sequence [B, S, H]."""
  sequence_tensor = tf.convert_to_tensor(sequence_tensor)
  positions = tf.convert_to_tensor(positions)
  batch, seq, width = modeling.get_shape_list(sequence_tensor, expected_rank=3)
  row_starts = tf.cast(tf.range(batch) * seq, positions.dtype)
  flat_positions = tf.reshape(positions + row_starts[:, tf.newaxis], [-1])
  return tf.gather(
    tf.reshape(sequence_tensor, [batch * seq, width]), flat_positions
  )


def masked_lm_logits(
  bert_config: modeling.BertConfig,
  x: tf.Tensor,
  output_weights: tf.Tensor | tf.Variable,
) -> tf.Tensor:
  """Logits [rows, V] of all word pieces from vectors [rows, H]."""
  shape = [bert_config.hidden_size, bert_config.embedding_width]
  with variables.variable_scope("cls/predictions"):
    with variables.variable_scope("transform"):
      weights = layers.dense_weights(
        "dense", shape, bert_config.initializer_range
      )
      x = layers.affine(
        x, weights, modeling.get_activation(bert_config.hidden_act)
      )
      x = modeling.layer_norm(x, epsilon=bert_config.layer_norm_eps)
    bias = variables.get_variable("output_bias", [bert_config.vocab_size])
  return tf.nn.bias_add(tf.matmul(x, output_weights, transpose_b=True), bias)


def get_masked_lm_output(
  bert_config: modeling.BertConfig,
  input_tensor: tf.Tensor,
  output_weights: tf.Tensor | tf.Variable,
  positions: tf.Tensor,
  label_ids: tf.Tensor,
  label_weights: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Masked LM loss and log-probabilities (section 3.1, task 1).

  Args:
    input_tensor: float [B, S, H], the last layer.
    output_weights: float [V, E], the table of word embeddings.
    positions, label_ids: integer [B, P], with the original pieces.
    label_weights: float [B, P], 0 for unused positions.

  Returns:
    loss (scalar, weighted), per_example_loss [B * P], log_probs [B * P, V].
  """
  x = gather_indexes(input_tensor, positions)
  logits = masked_lm_logits(bert_config, x, output_weights)
  losses = _cross_entropy(logits, label_ids)
  weights = tf.reshape(tf.cast(label_weights, tf.float32), [-1])
  return _weighted_mean(losses, weights), losses, tf.nn.log_softmax(logits)


def get_next_sentence_output(
  bert_config: modeling.BertConfig, input_tensor: tf.Tensor, labels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Next-sentence loss and log-probabilities (section 3.1, task 2).

  The input is the pooled output [B, H]; labels, [B] or [B, 1], are 0 where B
  follows A, and 1 where it is random. Also returns per_example_loss [B], and
  log_probs [B, 2].
  """
  with variables.variable_scope("cls/seq_relationship"):
    logits = layers.output_layer(input_tensor, 2, bert_config.initializer_range)
  losses = _cross_entropy(logits, labels)
  return tf.reduce_mean(losses), losses, tf.nn.log_softmax(logits)


def _cross_entropy(logits, labels):
  return layers.cross_entropy(logits, tf.reshape(labels, [-1]))


class PretrainingTask(Task):
  """Masked words and next sentences, from files of records.

  Args:
    read: dict from split, "train" or "dev", to a function that returns its
      RecordFiles.
    next_sentence_prediction: whether the records have next-sentence labels.
    max_eval_rows: number of records to evaluate on; None for all.
    mask_batch: masks batches as they are read; see `dynamic_masking`.
  """

  name = "pre-training"
  truncates = False

  def __init__(
    self,
    config: modeling.BertConfig,
    read: Mapping[str, Callable[[], record_files.RecordFiles]],
    next_sentence_prediction: bool,
    max_eval_rows: int | None = None,
    mask_batch: inputs.Transform | None = None,
  ):
    super().__init__()
    self._config = config
    self._read = read
    self._next_sentence_prediction = next_sentence_prediction
    self._max_eval_rows = max_eval_rows
    self._mask_batch = mask_batch

  @classmethod
  def from_flags(cls, flags: Flags, model: Model) -> PretrainingTask:
    files = find_records(flags)
    layout = check_layout(flags, files)
    mask_batch, vocab_size = None, model.config.vocab_size
    if flags.dynamic_masking:
      vocab_size = max(model.tokenizer.vocab.values()) + 1
      mask_batch = dynamic_masking(
        model.tokenizer,
        flags.masked_lm_prob,
        flags.max_predictions_per_seq,
        flags.do_whole_word_mask,
        flags.seed,
      )
    spec = instances.feature_spec(*layout)

    @functools.cache  # Reads the same files only once.
    def read(*names):
      records = record_files.RecordFiles(names, spec, vocab_size)
      count = plural(len(records), "record")
      logging.info("Checked %s in %s", count, plural(len(names), "file"))
      return records

    task = cls(
      model.config,
      {
        split: functools.partial(read, *files[name])
        for split, name in record_flags(flags).items()
      },
      layout.next_sentence_prediction,
      flags.max_eval_steps * flags.eval_batch_size,
      mask_batch,
    )
    task.tokenizer = model.tokenizer
    return task

  def __getstate__(self):
    # A process that measures steps for --dry_run reads no records.
    return {**vars(self), "_read": {}, "_mask_batch": None}

  def row_sets(self, split: str) -> list[RowSet]:
    read, mask = self._read[split], self._mask_batch
    records, is_training = read(), split == "train"
    count = len(records)
    if not is_training:
      count = min(count, self._max_eval_rows or count)
    return [RowSet(split, "", None, count, read=read, transform=mask)]

  def data_hashes(self) -> dict[str, str]:
    hashes = {s: read().fingerprint for s, read in self._read.items()}
    if self.distillation:
      hashes["teacher"] = self.distillation.hash
    return hashes

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs the model size, and warns if both splits have the same records."""
    config = self._config
    shapes = modeling.variable_shapes(config) | self.head_shapes(config)
    logging.info("%s parameters", f"{sum(map(math.prod, shapes.values())):,}")
    hashes = self.data_hashes()
    if "train" in hashes and hashes["train"] == hashes.get("dev"):
      logging.warning(
        "Evaluating on the training records; pass others as --eval_input_file"
      )

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    return variable_shapes(config, self._next_sentence_prediction)

  def head(self, ops, bert, features: Mapping) -> dict:
    """The logits of masked words, and loss and accuracy of each prediction."""
    del ops
    # A batch is cut to its longest row, and records of other programs may fill
    # up `masked_lm_positions` with positions after that.
    last = modeling.get_shape_list(features["input_ids"])[1] - 1
    positions = tf.minimum(features["masked_lm_positions"], last)
    logits = masked_lm_logits(
      self._config,
      modeling.reshape_to_matrix(bert.sequence_output_at(positions)),
      bert.get_embedding_table(),
    )
    labels = features["masked_lm_ids"]
    losses = tf.reshape(_cross_entropy(logits, labels), tf.shape(labels))
    outputs = {
      "masked_lm_positions": positions,
      "masked_lm_logits": logits,
      "masked_lm_loss": losses,
      "masked_lm_accuracy": _is_best(logits, labels, losses),
    }
    if "next_sentence_labels" in features:
      labels = features["next_sentence_labels"]
      _, losses, log_probs = get_next_sentence_output(
        self._config, bert.get_pooled_output(), labels
      )
      outputs["next_sentence_loss"] = losses
      outputs["next_sentence_accuracy"] = _is_best(log_probs, labels, losses)
    return outputs

  def output_axes(self) -> dict[str, Sequence[None]]:
    of_words = dict.fromkeys(("masked_lm_loss", "masked_lm_accuracy"), (None,))
    names = ("next_sentence_loss", "next_sentence_accuracy")
    return {**of_words, **dict.fromkeys(names, ())}

  def loss(self, outputs: Mapping, features: Mapping) -> list[Term]:
    """The losses of masked words, and of next sentences."""
    terms = [(outputs["masked_lm_loss"], features["masked_lm_weights"])]
    if "next_sentence_loss" in outputs:
      terms.append((outputs["next_sentence_loss"], None))
    return terms

  def logged(self, outputs: Mapping, features: Mapping) -> dict:
    """The accuracy of both objectives."""
    is_right = outputs["masked_lm_accuracy"]
    weights = features["masked_lm_weights"]
    scalars = {"masked LM accuracy": weighted_mean(is_right, weights)}
    if "next_sentence_accuracy" in outputs:
      mean = tf.reduce_mean(outputs["next_sentence_accuracy"])
      scalars["next sentence accuracy"] = mean
    return scalars

  def answer(self, example: None, predictions: Sequence[dict]) -> dict:
    return predictions[0]

  def score(self, rows: RowSet, answers: Iterable[dict]) -> Evaluation:
    """Mean loss and accuracy of both objectives.

    Masked LM means are over masked pieces, next-sentence means over rows.
    """
    sums = collections.defaultdict(float)
    counts = collections.defaultdict(float)
    for row in answers:
      masked = row["masked_lm_weights"].astype(np.float64)
      for name in filter(row.__contains__, self.output_axes()):
        weights = masked if name.startswith("masked_lm") else np.float64(1)
        sums[name] += float(np.sum(row[name] * weights))
        counts[name] += float(np.sum(weights))
    return Evaluation(
      {name: sums[name] / max(counts[name], EPSILON) for name in sums}
    )


def _is_best(logits, labels, like):
  """1.0 where a label is the most probable class, else 0.0; shaped `like`."""
  best = tf.reshape(tf.argmax(logits, axis=-1), tf.shape(like))
  labels = tf.cast(tf.reshape(labels, tf.shape(like)), best.dtype)
  return tf.cast(tf.equal(best, labels), tf.float32)


def _weighted_mean(values, weights):
  return tf.reduce_sum(values * weights) / (tf.reduce_sum(weights) + EPSILON)
