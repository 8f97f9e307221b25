"""The contract between a task and an experiment, and the model_fn of a task.

A task converts text to rows, computes the outputs of the model and scores the
predictions. `bert/training/experiment.py` implements all other steps.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import modeling
import optimization
from bert.packing import UNPACKED, Packing
from bert.data import records, sequences
from bert.training import (
  checkpoints,
  estimator,
  inputs,
  micro_batches,
  record_files,
)

# Added to a sum of weights, so that a mean without weights is 0.
EPSILON = 1e-5


@dataclasses.dataclass
class Outputs:
  """Loss and predictions for a batch.

  Attributes:
    per_example_loss: float [B]. The loss is its mean; in evaluation over the
      rows with `is_real_example`. Several replicas average their losses.
    loss: scalar, if the loss is not such a mean. In evaluation the task itself
      must ignore the rows without `is_real_example`.
    loss_terms: see EstimatorSpec.
    predictions: dict of tensors [B, ...], for evaluation and prediction.
    logged: dict of scalars for the log line of training.
  """

  per_example_loss: tf.Tensor | None = None
  loss: tf.Tensor | None = None
  predictions: dict[str, tf.Tensor] = dataclasses.field(default_factory=dict)
  logged: dict[str, tf.Tensor] = dataclasses.field(default_factory=dict)
  loss_terms: Sequence[tuple[tf.Tensor, tf.Tensor]] = ()


@dataclasses.dataclass
class Evaluation:
  """Metrics of a labeled data set.

  Attributes:
    results: dict from metric to number, for eval_results.txt.
    details: more for eval_results.json.
  """

  results: dict[str, float]
  details: Mapping = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class RowSet:
  """The rows of a data set, ready to be read.

  Attributes:
    split: "train", "dev" or "test".
    suffix: part of the names of its result files, such as "_mm".
    examples: the examples, or None if the data come as rows.
    input_fn: params -> `tf.data.Dataset`, as `Estimator` takes it.
    num_rows: number of rows.
    rows_per_example: int [examples]; None if each example has one row.
    read: returns the rows that `input_fn` reads; for --pack_sequences and
      --dry_run.
  """

  split: str
  suffix: str
  examples: Sequence | None
  input_fn: inputs.InputFn
  num_rows: int
  rows_per_example: np.ndarray | None = None
  read: Callable[[], inputs.Rows | record_files.RecordFiles] | None = None

  @property
  def name(self) -> str:
    """Its name in messages."""
    return f"{self.suffix.strip('_')} {self.split} set".strip()


class Task:
  """Base class of tasks.

  A subclass implements the methods that raise NotImplementedError. `examples`
  is called before the other methods. docs/architecture.md lists all of them.

  Attributes:
    name: the task's name in messages and in flags.json.
    metrics: names for --keep_best; --early_stopping_patience uses the first one
      without it.
    labels: names of the labels of rows, for messages, if they have any.
    usual_label: the label that most rows or words have in ordinary data, so
      that a dry run does not warn of it; None if there is none.
    pads_training: whether training batches are padded to the full length
      unless --pad_to_max_length says otherwise.
    epoch_counts_rows: whether an epoch is counted in rows, not in examples.
    has_eval_loss: whether an evaluation has a loss, from `outputs` or `score`.
      If not, its mode is PREDICT.
    can_pack: whether --pack_sequences is allowed. Each row then has one
      sequence, and `outputs` reads BERT only through its getters. Needs
      `has_eval_loss`.
    truncates: whether a row of full length may have lost text, so that a dry
      run warns of many such rows.
    finds_duplicates: whether `log_data` warns of examples in both data sets.
  """

  name = ""
  metrics: Sequence[str] = ()
  labels: Sequence[str] = ()
  usual_label: str | None = None
  pads_training = False
  epoch_counts_rows = True
  has_eval_loss = True
  can_pack = False
  truncates = True
  finds_duplicates = False

  # Input.

  def examples(self, split: str) -> Mapping[str, Sequence]:
    """The data sets of a split: dict from suffix of result files to examples.

    "train" has exactly one data set.

    Raises:
      UserError: a file is missing or wrong.
    """
    raise NotImplementedError

  def features(
    self, examples: Iterable, is_training: bool
  ) -> Iterator[list[Mapping]]:
    """Yields the rows of each example: one, or one for each window."""
    raise NotImplementedError

  def feature_spec(self, is_training: bool) -> records.Spec:
    """The spec of a row; a batch cuts the `cut_axes` to its longest row."""
    raise NotImplementedError

  def row_sets(self, split: str) -> list[RowSet] | None:
    """Existing rows of a split; None to make them from `examples`."""
    return None

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs warnings about the data before training starts."""

  def data_hashes(self) -> dict[str, str]:
    """A hash of each data set that was read, by split, for flags.json."""
    return {}

  # Model.

  def variable_shapes(
    self, config: modeling.BertConfig
  ) -> dict[str, list[int]]:
    """Name and shape of the variables that the task adds to BERT."""
    raise NotImplementedError

  def outputs(
    self, bert: modeling.BertModel, features: Mapping[str, tf.Tensor], mode: str
  ) -> Outputs:
    """What the task computes from BERT's vectors of a batch."""
    raise NotImplementedError

  def before_updates(self, folder: str) -> None:
    """Deletes files of a folder that describe the weights before a training.

    It is called before the first update, unless none is left to make, and
    before each evaluation that may replace the best weights.

    Raises:
      UserError: the run needs such a file.
    """

  # Evaluation and prediction.

  def score(
    self, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> Evaluation:
    """The metrics of a labeled data set.

    Args:
      rows: the data set.
      predictions: a lazy iterator, consumed once. For each example, in order,
        it yields the predictions of its rows: a list of dicts of arrays. Axes
        in `cut_axes` are as long as in the row's batch, so lengths vary.

    The names of the results are those in `metrics`, or `eval_` and such a name.
    Higher is better, unless the name contains `loss` or `mse`. `loss`, unless
    the task returns it, and `global_step` are added.
    """
    raise NotImplementedError

  def write_predictions(
    self, folder: str, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> Evaluation | None:
    """Writes the predictions; returns their Evaluation if labels are known."""
    raise NotImplementedError

  def report(
    self, folder: str, evaluations: Sequence[Evaluation], record: Mapping
  ) -> None:
    """Writes the page on a run, or other files, after its evaluations.

    `record` is the content of flags.json.
    """

  def assets(self) -> dict[str, str]:
    """The files, by name, that say how to read texts for the trained model."""
    return {}


def build_model_fn(
  task: Task,
  config: modeling.BertConfig,
  init_checkpoint: str | None,
  update: optimization.Optimization | None,
  use_one_hot_embeddings: bool = False,
  precision: str = "float32",
  gradient_checkpointing: bool = False,
  packings: Mapping[str, Packing] | None = None,
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of a task, for `estimator.Estimator`.

  Args:
    task: a Task.
    config: a BertConfig.
    init_checkpoint: initial weights, or None.
    update: how to train; None if the model is only used.
    use_one_hot_embeddings, precision, gradient_checkpointing: see BertModel.
    packings: dict from mode to the Packing of a replica's batch.
  """
  if update is not None and precision == "float16":
    update = dataclasses.replace(update, loss_scaling=True)

  def compute(features, mode, packings=packings):
    bert = modeling.BertModel(
      config,
      mode == estimator.ModeKeys.TRAIN,
      *(as_sequences(features[name]) for name in records.SEQUENCES),
      use_one_hot_embeddings,
      precision=precision,
      gradient_checkpointing=gradient_checkpointing,
      packing=(packings or {}).get(mode, UNPACKED),
    )
    outputs = task.outputs(bert, features, mode)
    return outputs, _loss(outputs, features, mode)

  def forward(features, packings=packings):
    outputs, loss = compute(features, estimator.ModeKeys.TRAIN, packings)
    return loss, outputs.logged

  def model_fn(features, labels, mode, params):
    del labels, params  # Labels are among the features.
    _initialize(init_checkpoint, task, config)
    if mode != estimator.ModeKeys.TRAIN:
      outputs, loss = compute(features, mode)
      return estimator.EstimatorSpec(
        mode,
        loss=loss,
        eval_metrics=(functools.partial(_score, task), outputs.predictions),
        predictions=outputs.predictions,
        loss_terms=outputs.loss_terms,
      )
    # A Packing is for a micro-batch, not for the whole batch.
    loss, scalars, gradients = micro_batches.compute_gradients(
      forward, features, update, functools.partial(forward, packings=None)
    )
    train_op, logged = optimization.minimize(gradients, update)
    return estimator.EstimatorSpec(mode, loss, train_op, {**logged, **scalars})

  return model_fn


def _initialize(init_checkpoint, task, config):
  """Makes the variables start from a checkpoint, which may lack the task's."""
  head_shapes = task.variable_shapes(config)
  wanted = modeling.variable_shapes(config) | head_shapes
  optional = {*head_shapes, *checkpoints.POOLER}
  checkpoints.initialize_from(init_checkpoint, wanted, optional)


def model_fn_builder_of(
  make_task: Callable[[modeling.BertConfig], Task],
) -> Callable[..., Callable[..., estimator.EstimatorSpec]]:
  """The original's `model_fn_builder` for a task.

  Args:
    make_task: creates the task for a BertConfig.
  """

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
    """The `model_fn` of a task, for `estimator.Estimator`.

    Args:
      bert_config: a BertConfig.
      init_checkpoint: initial weights, or None.
      learning_rate, num_train_steps, num_warmup_steps: see `create_optimizer`.
      use_tpu: has no effect; the strategy knows the device.
      use_one_hot_embeddings, precision: see BertModel.
    """
    del use_tpu
    return build_model_fn(
      make_task(bert_config),
      bert_config,
      init_checkpoint,
      optimization.Optimization(
        learning_rate, num_train_steps, num_warmup_steps
      ),
      use_one_hot_embeddings,
      precision,
    )

  return model_fn_builder


def _score(task, **predictions):
  """The metrics of predictions, arrays [rows, ...], of one row per example."""
  rows = [[row] for row in sequences.rows_of(predictions)]
  row_set = RowSet("dev", "", None, None, len(rows))
  return task.score(row_set, iter(rows)).results


def as_sequences(ids: tf.Tensor) -> tf.Tensor:
  """[B, ..., S] as [rows, S]: each of an example's sequences is a row."""
  if ids.shape.rank == 2:
    return ids
  return tf.reshape(ids, [-1, modeling.get_shape_list(ids)[-1]])


def _loss(outputs, features, mode):
  """The loss of a batch, or None without labels."""
  if outputs.loss is not None or outputs.per_example_loss is None:
    return outputs.loss
  if mode == estimator.ModeKeys.TRAIN:
    return tf.reduce_mean(outputs.per_example_loss)
  return estimator.mean_over_real_rows(outputs.per_example_loss, features)


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  """The mean of values by weight over a batch that may be divided.

  The losses of replicas and of micro-batches are averaged. The mean of what
  each returns is the mean over the weights of all. The weights must depend on
  features only.
  """
  total = tf.reduce_sum(weights) + EPSILON
  mean = tf.reduce_sum(values * weights) / total
  mean_total = micro_batches.mean_total(total)
  return mean if mean_total is total else mean * total / mean_total
