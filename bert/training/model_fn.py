"""A step of training, evaluation or prediction, as the original writes it.

model_fn = build_model_fn(task, config, init_checkpoint, update)
spec = model_fn(features, None, ModeKeys.TRAIN, {})
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

import modeling
import optimization
from bert.contract import ops
from bert.contract.task import Task, score_rows
from bert.data import sequences
from bert.engine import graph_encoder as engines
from bert.engine.encoding import encode
from bert.layers import POOLER
from bert.models import checkpoints
from bert.training import batch_gradients, estimator, micro_batches


def build_model_fn(
  task: Task,
  config: modeling.BertConfig,
  init_checkpoint: str | None,
  update: optimization.Optimization | None,
  use_one_hot_embeddings: bool = False,
  precision: str = "float32",
  gradient_checkpointing: bool = False,
  kept_rows: Mapping[str, Sequence[int | None]] | None = None,
  cuts: bool = True,
  encoder: engines.GraphEncoder | None = None,
) -> estimator.ModelFn:
  """The `model_fn` of a task, for `estimator.Estimator`; see BertModel.

  Args:
    update: how to train; None if the model is only used.
    kept_rows: see `checkpoints.load_weights`.
    cuts: see `cuts_groups` of `batch_gradients.compute_gradients`.
    encoder: computes the encoder in place of TensorFlow; not for training.
  """
  if update is not None and precision == "float16":
    update = dataclasses.replace(update, loss_scaling=True)
  options = use_one_hot_embeddings, precision, gradient_checkpointing

  def compute(features, mode):
    head = functools.partial(task.outputs, features=features, mode=mode)
    if encoder:
      outputs = encoder(features, head)
    else:
      outputs = head(encode(config, features, mode == "train", *options))
    return outputs, _loss(outputs, features, mode == "train")

  def forward(features):
    outputs, loss = compute(features, "train")
    return loss, outputs.logged

  def train(features):
    if task.spans_batch:
      vectors = functools.partial(_vectors, task, config, options)
      loss, gradients = batch_gradients.compute_gradients(
        vectors, task.batch_loss, features, update, cuts
      )
      scalars = {}
    else:
      loss, scalars, gradients = micro_batches.compute_gradients(
        forward, features, update
      )
    train_op, logged = optimization.minimize(gradients, update)
    return estimator.EstimatorSpec("train", loss, train_op, logged | scalars)

  def model_fn(features, labels, mode, params):
    del labels, params  # Labels are among the features.
    _initialize(init_checkpoint, task, config, kept_rows or {})
    if mode == "train":
      return train(features)
    return _inference_spec(task, mode, *compute(features, mode))

  return model_fn


def _vectors(task, config, options, sequences):
  bert = encode(config, sequences, True, *options)
  return task.encode(ops.TensorOps(True), bert, sequences)


def _inference_spec(task, mode, outputs, loss):
  return estimator.EstimatorSpec(
    mode,
    loss,
    eval_metrics=(functools.partial(_score, task), outputs.predictions),
    predictions=outputs.predictions,
    loss_terms=outputs.loss_terms,
  )


def _initialize(init_checkpoint, task, config, kept_rows):
  """Makes the variables start from a checkpoint, which may lack the task's."""
  head_shapes = task.head_shapes(config)
  wanted = modeling.variable_shapes(config) | head_shapes
  optional = {*head_shapes, *POOLER}
  checkpoints.initialize_from(init_checkpoint, wanted, optional, kept_rows)


def _loss(outputs, features, is_training):
  """The loss of a batch, or None without labels."""
  if outputs.loss is not None or outputs.per_example_loss is None:
    return outputs.loss
  if is_training:
    return tf.reduce_mean(outputs.per_example_loss)
  return estimator.mean_over_real_rows(outputs.per_example_loss, features)


def _score(task, **predictions):
  """The metrics of predictions, arrays [rows, ...], of one row per example."""
  return score_rows(task, list(sequences.rows_of(predictions)))


def model_fn_builder_of(
  make_task: Callable[[modeling.BertConfig], Task],
) -> Callable[..., estimator.ModelFn]:
  """The original's `model_fn_builder` for the task of a BertConfig."""

  def model_fn_builder(
    bert_config,
    init_checkpoint,
    learning_rate,
    num_train_steps,
    num_warmup_steps,
    use_tpu,
    use_one_hot_embeddings,
    precision="float32",
  ):
    """The `model_fn` of a task; see `create_optimizer` and BertModel."""
    del use_tpu  # The strategy knows the device.
    update = optimization.Optimization(
      learning_rate, num_train_steps, num_warmup_steps
    )
    return build_model_fn(
      make_task(bert_config),
      bert_config,
      init_checkpoint,
      update,
      use_one_hot_embeddings,
      precision,
    )

  return model_fn_builder
