"""BERT's pre-training objectives: masked words and next sentences.

Devlin et al. (2019), section 3.1. P is the number of masked positions that a
row has room for; unused ones have weight 0. Rows without `next_sentence_labels`
are trained on masked words alone.

    model_fn = model_fn_builder(config, None, 1e-4, 100000, 10000, False, False)
    model = estimator.Estimator(model_fn, estimator.RunConfig("/tmp/bert"))
    model.train(shuffled_records.training_input_fn(files), 32, 100000)
"""

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import variables
from errors import plural
from training import estimator, inputs, shuffled_records
from training.task import (
  Evaluation,
  Optimization,
  Outputs,
  RowSet,
  Task,
  build_model_fn,
)

# Keeps a mean over no weight at all at 0.
_EPSILON = 1e-5


def variable_shapes(
  bert_config: modeling.BertConfig, next_sentence_prediction: bool = True
) -> dict[str, list[int]]:
  """Name and shape of the variables that pre-training adds to BERT."""
  hidden = bert_config.hidden_size
  shapes = {
    "cls/predictions/transform/dense/kernel": [hidden, hidden],
    "cls/predictions/transform/dense/bias": [hidden],
    "cls/predictions/transform/LayerNorm/beta": [hidden],
    "cls/predictions/transform/LayerNorm/gamma": [hidden],
    "cls/predictions/output_bias": [bert_config.vocab_size],
  }
  if next_sentence_prediction:
    shapes["cls/seq_relationship/output_weights"] = [2, hidden]
    shapes["cls/seq_relationship/output_bias"] = [2]
  return shapes


def gather_indexes(
  sequence_tensor: tf.Tensor, positions: tf.Tensor
) -> tf.Tensor:
  """The vectors at some positions of each row.

  Args:
    sequence_tensor: float [B, S, H].
    positions: integer [B, P].

  Returns:
    float [B * P, H].
  """
  sequence_tensor = tf.convert_to_tensor(sequence_tensor)
  positions = tf.convert_to_tensor(positions)
  batch, seq, width = modeling.get_shape_list(sequence_tensor, expected_rank=3)
  row_starts = tf.cast(tf.range(batch) * seq, positions.dtype)
  flat_positions = tf.reshape(positions + row_starts[:, tf.newaxis], [-1])
  return tf.gather(
    tf.reshape(sequence_tensor, [batch * seq, width]), flat_positions
  )


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
    bert_config: a BertConfig.
    input_tensor: float [B, S, H], the last layer.
    output_weights: float [V, H], the table of word embeddings.
    positions: integer [B, P].
    label_ids: integer [B, P], the pieces that stood there.
    label_weights: float [B, P], 0 where a row has no more to predict.

  Returns:
    loss (scalar, their weighted mean), per_example_loss [B * P], log_probs
    [B * P, V].
  """
  x = gather_indexes(input_tensor, positions)
  initializer = modeling.create_initializer(bert_config.initializer_range)
  with variables.variable_scope("cls/predictions"):
    with variables.variable_scope("transform"):
      activation = modeling.get_activation(bert_config.hidden_act)
      x = modeling.dense(x, bert_config.hidden_size, activation, initializer)
      x = modeling.layer_norm(x)
    bias = variables.get_variable(
      "output_bias", [bert_config.vocab_size], tf.compat.v1.zeros_initializer()
    )
  logits = tf.nn.bias_add(tf.matmul(x, output_weights, transpose_b=True), bias)
  per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=tf.reshape(label_ids, [-1]), logits=logits
  )
  weights = tf.reshape(tf.cast(label_weights, tf.float32), [-1])
  loss = _weighted_mean(per_example_loss, weights)
  return loss, per_example_loss, tf.nn.log_softmax(logits)


def get_next_sentence_output(
  bert_config: modeling.BertConfig, input_tensor: tf.Tensor, labels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Next-sentence loss and log-probabilities (section 3.1, task 2).

  Args:
    bert_config: a BertConfig.
    input_tensor: float [B, H], the pooled output.
    labels: integer [B] or [B, 1], 0 where B follows A, 1 where it is random.

  Returns:
    loss (scalar), per_example_loss [B], log_probs [B, 2].
  """
  with variables.variable_scope("cls/seq_relationship"):
    weights = variables.get_variable(
      "output_weights",
      [2, bert_config.hidden_size],
      modeling.create_initializer(bert_config.initializer_range),
    )
    bias = variables.get_variable(
      "output_bias", [2], tf.compat.v1.zeros_initializer()
    )
  logits = tf.nn.bias_add(
    tf.matmul(input_tensor, weights, transpose_b=True), bias
  )
  per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=tf.reshape(labels, [-1]), logits=logits
  )
  loss = tf.reduce_mean(per_example_loss)
  return loss, per_example_loss, tf.nn.log_softmax(logits)


def model_fn_builder(
  bert_config: modeling.BertConfig,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
  precision: str = "float32",
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of pre-training, for `estimator.Estimator`.

  Args:
    bert_config: a BertConfig.
    init_checkpoint: initial weights, or None.
    learning_rate, num_train_steps, num_warmup_steps: see `create_optimizer`.
    use_tpu: has no effect; the strategy knows the device.
    use_one_hot_embeddings, precision: see BertModel.
  """
  del use_tpu
  return build_model_fn(
    PretrainingTask(bert_config, {}, True),
    bert_config,
    init_checkpoint,
    Optimization(learning_rate, num_train_steps, num_warmup_steps),
    use_one_hot_embeddings,
    precision,
  )


class PretrainingTask(Task):
  """Masked words and next sentences, from files of records.

  Args:
    config: a BertConfig.
    records_of: dict from split, "train" and "dev", to RecordFiles.
    next_sentence_prediction: whether the records have next-sentence labels.
    max_eval_rows: number of records to evaluate on; None for all.
    mask_batch: masks batches as they are read; see `dynamic_masking`.
  """

  name = "pre-training"

  def __init__(
    self,
    config: modeling.BertConfig,
    records_of: Mapping[str, shuffled_records.RecordFiles],
    next_sentence_prediction: bool,
    max_eval_rows: int | None = None,
    mask_batch: inputs.Transform | None = None,
  ):
    self._config = config
    self._records_of = records_of
    self._next_sentence_prediction = next_sentence_prediction
    self._max_eval_rows = max_eval_rows
    self._mask_batch = mask_batch

  def row_sets(self, split: str) -> list[RowSet]:
    """The records of a split."""
    found = self._records_of[split]
    if split == "train":
      input_fn = shuffled_records.training_input_fn(found, self._mask_batch)
    else:
      input_fn = shuffled_records.evaluation_input_fn(
        found, self._max_eval_rows, self._mask_batch
      )
    return [RowSet(split, "", None, input_fn, len(found))]

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of the records of each split."""
    return {name: r.fingerprint for name, r in self._records_of.items()}

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs the sizes of model and data."""
    shapes = modeling.variable_shapes(self._config)
    shapes |= self.variable_shapes(self._config)
    logging.info("%s parameters", f"{sum(map(math.prod, shapes.values())):,}")
    train, dev = map(self._records_of.get, ("train", "dev"))
    if train:
      count = plural(len(train), "record")
      logging.info("%s in %s", count, plural(len(train.paths), "file"))
    if train and train is dev:
      logging.warning(
        "Evaluating on the training records; pass others as --eval_input_file"
      )

  def variable_shapes(
    self, config: modeling.BertConfig
  ) -> dict[str, list[int]]:
    """The variables below `cls`."""
    return variable_shapes(config, self._next_sentence_prediction)

  def outputs(
    self, bert: modeling.BertModel, features: Mapping, mode: str
  ) -> Outputs:
    """The sum of both losses; for evaluation, the losses of each row."""
    if mode == estimator.ModeKeys.TRAIN:
      loss, accuracies = _training_loss(self._config, bert, features)
      return Outputs(loss=loss, logged=accuracies)
    loss, predictions = _evaluation(self._config, bert, features)
    return Outputs(loss=loss, predictions=predictions)

  def score(
    self, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> Evaluation:
    """Mean loss and accuracy of both objectives.

    Masked LM means are over masked pieces, next-sentence means over rows.
    """
    sums = collections.defaultdict(float)
    for (row,) in predictions:
      weights = row["masked_lm_weights"].astype(np.float64)
      sums["pieces"] += np.sum(weights)
      sums["rows"] += 1
      for name, values in row.items():
        if name == "masked_lm_ids":
          continue
        if name.startswith("masked_lm_"):
          sums[name] += float(np.sum(values * weights))
        else:
          sums[name] += float(values)
    results = {}
    for task, count in (("masked_lm", "pieces"), ("next_sentence", "rows")):
      for metric, name in (("accuracy", "correct"), ("loss", "losses")):
        if f"{task}_{name}" in sums:
          mean = sums[f"{task}_{name}"] / max(sums[count], _EPSILON)
          results[f"{task}_{metric}"] = mean
    return Evaluation(results)


def _training_loss(bert_config, model, features):
  """The sum of the tasks' losses, and a dict of accuracies for the log."""
  weights = features["masked_lm_weights"]
  loss, _, predicted = _masked_lm(bert_config, model, features, weights)
  # Replicas' losses are averaged, whatever number of masks each of them has.
  share = _share_of_replicas(weights)
  is_correct = _is_equal(predicted, features["masked_lm_ids"])
  accuracies = {
    "masked LM accuracy": share * _weighted_mean(is_correct, weights)
  }
  loss *= share
  if "next_sentence_labels" in features:
    next_loss, _, is_correct = _next_sentence(bert_config, model, features)
    loss += next_loss
    accuracies["next sentence accuracy"] = tf.reduce_mean(is_correct)
  return loss, accuracies


def _evaluation(bert_config, model, features):
  """The loss of a batch, and the losses and correct answers of its rows."""
  is_real = tf.cast(features["is_real_example"], tf.float32)
  weights = features["masked_lm_weights"] * is_real[:, tf.newaxis]
  loss, losses, predicted = _masked_lm(bert_config, model, features, weights)
  arrays = {
    "masked_lm_weights": weights,
    "masked_lm_losses": losses,
    "masked_lm_correct": _is_equal(predicted, features["masked_lm_ids"]),
    "masked_lm_ids": predicted,
  }
  if "next_sentence_labels" in features:
    _, losses, is_correct = _next_sentence(bert_config, model, features)
    loss += estimator.mean_over_real_rows(losses, features)
    arrays |= {
      "next_sentence_losses": losses,
      "next_sentence_correct": is_correct,
    }
  return loss, arrays


def _masked_lm(bert_config, model, features, weights):
  """Loss (scalar), losses and most probable pieces, each [B, P]."""
  sequence = model.get_sequence_output()
  # A batch is cut to its longest row, and other programs may fill positions up
  # with ones behind that.
  last = modeling.get_shape_list(sequence)[1] - 1
  loss, losses, log_probs = get_masked_lm_output(
    bert_config,
    sequence,
    model.get_embedding_table(),
    tf.minimum(features["masked_lm_positions"], last),
    features["masked_lm_ids"],
    weights,
  )
  shape = tf.shape(weights)
  predicted = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
  return loss, tf.reshape(losses, shape), tf.reshape(predicted, shape)


def _next_sentence(bert_config, model, features):
  """Loss (scalar), losses, and 1 where the answer is right, each [B]."""
  labels = tf.reshape(features["next_sentence_labels"], [-1])
  loss, losses, log_probs = get_next_sentence_output(
    bert_config, model.get_pooled_output(), labels
  )
  predicted = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
  return loss, losses, _is_equal(predicted, labels)


def _is_equal(predicted, labels):
  """1 where they are, else 0, float."""
  return tf.cast(tf.equal(predicted, tf.cast(labels, tf.int32)), tf.float32)


def _weighted_mean(values, weights):
  return tf.reduce_sum(values * weights) / (tf.reduce_sum(weights) + _EPSILON)


def _share_of_replicas(weights):
  """The weights' sum in proportion to its mean over all replicas.

  Replicas' weighted means, each times this, have as their mean the one over the
  weights of all replicas.
  """
  replica = tf.distribute.get_replica_context()
  if replica is None or replica.num_replicas_in_sync == 1:
    return 1.0
  total = tf.reduce_sum(weights) + _EPSILON
  return total / replica.all_reduce(tf.distribute.ReduceOp.MEAN, total)
