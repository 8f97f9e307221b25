"""A step of training, evaluation or prediction, as the original writes it.

model_fn = build_model_fn(task, config, init_checkpoint, update)
spec = model_fn(features, None, ModeKeys.TRAIN, {})
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import modeling
import optimization
from bert.contract import batch_means, ops
from bert.contract.task import Task, score_rows
from bert.data import records, sequences
from bert.engine.encoding import encode
from bert.engine.programs import EstimatorSpec, ModeKeys, ModelFn
from bert.layers import POOLER
from bert.models import checkpoints
from bert.training import batch_gradients, micro_batches

if TYPE_CHECKING:
  from bert.engine.graph_encoder import GraphEncoder

# Features that answers do not need.
_UNREAD = (*records.SEQUENCES, "row_index", "is_real_example")


@dataclasses.dataclass(frozen=True)
class ModelOptions:
  """How a model computes."""

  use_one_hot_embeddings: bool = False  # For these three, see BertModel.
  precision: str = "float32"
  gradient_checkpointing: bool = False
  # Which rows of output layers to load; see `checkpoints.load_weights`.
  kept_rows: Mapping[str, Sequence[int | None]] = dataclasses.field(
    default_factory=dict
  )
  cuts_groups: bool = True  # see `batch_gradients.compute_gradients`
  # Computes the encoder in place of TensorFlow; not for training.
  encoder: GraphEncoder | None = None

  @property
  def of_bert(self) -> tuple[bool, str, bool]:
    """The options of BertModel, in the order of `encode`."""
    return (
      self.use_one_hot_embeddings,
      self.precision,
      self.gradient_checkpointing,
    )


def build_model_fn(
  task: Task,
  config: modeling.BertConfig,
  init_checkpoint: str | None,
  update: optimization.Optimization | None,
  options: ModelOptions | None = None,
) -> ModelFn:
  """The `model_fn` of a task, for `estimator.Estimator`.

  `update` describes the training; None if the model is only used.
  """
  options = options or ModelOptions()
  if update is not None and options.precision == "float16":
    update = dataclasses.replace(update, loss_scaling=True)

  def forward(features, is_training):
    """BERT over a batch, and the outputs of the head."""
    tensor_ops = ops.TensorOps(is_training)

    def head(bert):
      return bert, task.head(tensor_ops, bert, features)

    if options.encoder:
      return options.encoder(features, head)
    return head(encode(config, features, is_training, *options.of_bert))

  def model_fn(features, labels, mode, params):
    del labels, params  # Labels are among the features.
    _initialize(init_checkpoint, task, config, options.kept_rows)
    if mode == ModeKeys.TRAIN:
      inputs = task, forward, features, update
      if task.spans_batch:
        computed = _of_whole_batch(*inputs, options.cuts_groups)
      else:
        computed = _of_rows(*inputs)
      loss, scalars, gradients = computed
      train_op, logged = optimization.minimize(gradients, update)
      return EstimatorSpec(mode, loss, train_op, logged | scalars)
    _, outputs = forward(features, False)
    return _inference_spec(task, mode, outputs, features)

  return model_fn


def _of_rows(task, forward, features, update):
  """Loss, logged scalars and gradients of a batch of independent rows."""

  def loss_of(features):
    bert, outputs = forward(features, True)
    loss = _training_loss(task, bert, outputs, features)
    return loss, task.logged(outputs, features)

  return micro_batches.compute_gradients(loss_of, features, update)


def _of_whole_batch(task, forward, features, update, cuts_groups):
  """Like `_of_rows`, for rows that the loss compares with each other."""
  name = next(iter(task.output_axes()))
  loss, gradients = batch_gradients.compute_gradients(
    lambda sequences: forward(sequences, True)[1][name],
    lambda x, features: _training_loss(task, None, {name: x}, features),
    features,
    update,
    cuts_groups,
  )
  return loss, {}, gradients


def _training_loss(task, bert, outputs, features):
  """The loss of a batch, a scalar, with that of soft targets, if any."""
  (losses, weights), *others = batch_means.terms(task.loss(outputs, features))
  if task.distillation:
    losses = task.distillation.mixed(losses, task, bert, outputs, features)
  return batch_means.mean([(losses, weights), *others])


def _inference_spec(task, mode, outputs, features):
  axes = task.output_axes()
  predictions = {n: x for n, x in features.items() if n not in _UNREAD}
  predictions |= {n: x for n, x in outputs.items() if n in axes}
  spec = EstimatorSpec(mode, predictions=predictions)
  if mode == ModeKeys.EVAL:
    if task.has_eval_loss:
      terms = batch_means.terms(task.loss(outputs, features))
      predictions["losses"] = terms[0][0]
      is_real = features["is_real_example"]
      spec.loss_terms = batch_means.real_sums(terms, is_real)
      spec.loss = batch_means.quotients(spec.loss_terms)
    spec.eval_metrics = functools.partial(_score, task), predictions
  return spec


def _initialize(init_checkpoint, task, config, kept_rows):
  """Initializes variables from a checkpoint, which may lack the task's."""
  head_shapes = task.head_shapes(config)
  shapes = modeling.variable_shapes(config) | head_shapes
  optional = {*head_shapes, *POOLER}
  checkpoints.initialize_from(init_checkpoint, shapes, optional, kept_rows)


def _score(task, **predictions):
  """The metrics of predictions [rows, ...], with one row per example."""
  return score_rows(task, list(sequences.rows_of(predictions)))
