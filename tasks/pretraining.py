"""What BERT is pre-trained by: masked words and next sentences (section 3.1).

    model_fn = model_fn_builder(config, None, 1e-4, 100000, 10000, False, False)
    model = estimator.Estimator(model_fn, estimator.RunConfig("/tmp/bert"))
    model.train(shuffled_records.training_input_fn(files), 32, 100000)

P is the number of masked positions that a row has room for; those that it does
not use have weight 0. Rows without `next_sentence_labels` are trained on masked
words alone.
"""

import functools
import random
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

import modeling
import optimization
import tokenization
import variables
from errors import UserError
from pipeline import instances
from training import checkpoints, estimator

_MASK = "[MASK]"

# Keeps a mean over no weight at all at 0.
_EPSILON = 1e-5


def head_shapes(
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
  """How well the masked pieces are predicted (section 3.1, task 1).

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
  """How well it is told whether B follows A (section 3.1, task 2).

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

  `init_checkpoint` is where weights start from, or None; `precision` is that of
  BertModel, and the two tasks on top of it are float32. The other arguments are
  those of BertModel and `optimization.create_optimizer`.
  """
  del use_tpu  # What it decided, `use_one_hot_embeddings` and the strategy do.

  def model_fn(features, labels, mode, params):
    del labels, params
    checkpoints.initialize_from(
      init_checkpoint,
      head_shapes(bert_config, "next_sentence_labels" in features),
    )
    is_training = mode == estimator.ModeKeys.TRAIN
    model = modeling.BertModel(
      bert_config,
      is_training,
      features["input_ids"],
      features["input_mask"],
      features["segment_ids"],
      use_one_hot_embeddings,
      precision=precision,
    )
    if is_training:
      loss, accuracies = _training_loss(bert_config, model, features)
      train_op, logged = optimization.minimize(
        loss, learning_rate, num_train_steps, num_warmup_steps
      )
      return estimator.EstimatorSpec(
        mode, loss, train_op, {**logged, **accuracies}
      )
    loss, evaluated, predictions = _evaluation(bert_config, model, features)
    return estimator.EstimatorSpec(
      mode,
      loss=loss,
      eval_metrics=(evaluate_arrays, evaluated),
      predictions=predictions,
    )

  return model_fn


def _training_loss(bert_config, model, features):
  """The sum of the tasks' losses, and a dict of accuracies for the log."""
  weights = features["masked_lm_weights"]
  loss, _, predicted = _masked_lm(bert_config, model, features, weights)
  # Replicas' losses are averaged, whatever number of masks each of them has.
  share = _share_of_replicas(weights)
  is_right = _is_equal(predicted, features["masked_lm_ids"])
  accuracies = {"masked LM accuracy": share * _weighted_mean(is_right, weights)}
  loss *= share
  if "next_sentence_labels" in features:
    next_loss, _, is_right = _next_sentence(bert_config, model, features)
    loss += next_loss
    accuracies["next sentence accuracy"] = tf.reduce_mean(is_right)
  return loss, accuracies


def _evaluation(bert_config, model, features):
  """The loss of a batch, what `evaluate_arrays` takes, and the predictions."""
  is_real = tf.cast(features["is_real_example"], tf.float32)
  weights = features["masked_lm_weights"] * is_real[:, tf.newaxis]
  loss, losses, predicted = _masked_lm(bert_config, model, features, weights)
  arrays = {
    "masked_lm_weights": weights,
    "masked_lm_losses": losses,
    "masked_lm_right": _is_equal(predicted, features["masked_lm_ids"]),
  }
  if "next_sentence_labels" in features:
    _, losses, is_right = _next_sentence(bert_config, model, features)
    loss += estimator.mean_over_real_rows(losses, features)
    arrays |= {"next_sentence_losses": losses, "next_sentence_right": is_right}
  return loss, arrays, {"masked_lm_ids": predicted}


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


def evaluate_arrays(
  masked_lm_weights: np.ndarray,
  masked_lm_losses: np.ndarray,
  masked_lm_right: np.ndarray,
  next_sentence_losses: np.ndarray | None = None,
  next_sentence_right: np.ndarray | None = None,
) -> dict[str, float]:
  """Mean losses and accuracies of both tasks, over masked pieces and over rows.

  Args:
    masked_lm_weights: float [rows, P].
    masked_lm_losses: float [rows, P].
    masked_lm_right: 1 and 0 [rows, P].
    next_sentence_losses: float [rows], or None without that task.
    next_sentence_right: 1 and 0 [rows], or None.
  """
  weights = masked_lm_weights.astype(np.float64)
  total = max(np.sum(weights), _EPSILON)
  results = {
    "masked_lm_accuracy": float(np.sum(masked_lm_right * weights) / total),
    "masked_lm_loss": float(np.sum(masked_lm_losses * weights) / total),
  }
  for name, values in (
    ("next_sentence_accuracy", next_sentence_right),
    ("next_sentence_loss", next_sentence_losses),
  ):
    if values is not None:
      results[name] = float(np.mean(values, dtype=np.float64))
  return results


def dynamic_masking(
  tokenizer: tokenization.FullTokenizer,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  do_whole_word_mask: bool,
  seed: int,
) -> Callable[[Mapping[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]:
  """What masks rows as they come, for `shuffled_records`' input functions.

  A row is masked by what is drawn from (seed, ordinal), its number in the whole
  training; so each epoch has new masks, and a run that is taken up again has
  the masks that it would have had.

  Args:
    tokenizer: that of the records.
    masked_lm_prob, do_whole_word_mask: as `instances` takes them.
    max_predictions_per_seq: P.
    seed: int.

  Returns:
    A function of a batch of unmasked features and of ordinals, integer [B],
    that returns the features masked, with `masked_lm_positions`,
    `masked_lm_ids` and `masked_lm_weights` [B, P].

  Raises:
    ValueError: the vocabulary has no [MASK].
  """
  if _MASK not in tokenizer.vocab:
    raise UserError(
      f"the vocabulary has no piece {_MASK}, which --dynamic_masking needs; "
      f"pass the vocabulary that the records were made with"
    )
  pieces = list(tokenizer.vocab)
  continuations = (
    instances.word_continuations(tokenizer) if do_whole_word_mask else ()
  )

  def mask_row(ids, ordinal):
    tokens, positions, _ = instances.create_masked_lm_predictions(
      [tokenizer.inv_vocab[i] for i in ids.tolist()],
      masked_lm_prob,
      max_predictions_per_seq,
      pieces,
      random.Random(f"{seed}/{ordinal}"),
      continuations,
    )
    labels = ids[positions]
    ids[positions] = [tokenizer.vocab[tokens[p]] for p in positions]
    return positions, labels

  return functools.partial(_mask_batch, mask_row, max_predictions_per_seq)


def _mask_batch(mask_row, max_predictions_per_seq, features, ordinals):
  """The function that `dynamic_masking` returns.

  `mask_row` masks ids in place, and returns positions and what stood there.
  """
  input_ids = features["input_ids"]
  shape = [input_ids.shape[0], max_predictions_per_seq]

  def mask(input_ids, input_mask, ordinals):
    masked = input_ids.copy()
    positions, labels = np.zeros([2, len(masked), shape[1]], np.int32)
    weights = np.zeros_like(labels, np.float32)
    ends = np.sum(input_mask, axis=1)
    for row, ordinal in enumerate(ordinals.tolist()):
      chosen, stood_there = mask_row(masked[row, : ends[row]], ordinal)
      positions[row, : len(chosen)] = chosen
      labels[row, : len(chosen)] = stood_there
      weights[row, : len(chosen)] = 1.0
    return masked, positions, labels, weights

  masked = tf.numpy_function(
    mask,
    [input_ids, features["input_mask"], ordinals],
    [tf.int32, tf.int32, tf.int32, tf.float32],
  )
  masked[0].set_shape(input_ids.shape)
  for tensor in masked[1:]:
    tensor.set_shape(shape)
  names = ("positions", "ids", "weights")
  added = {
    f"masked_lm_{name}": tensor
    for name, tensor in zip(names, masked[1:], strict=True)
  }
  return {**features, "input_ids": masked[0], **added}
