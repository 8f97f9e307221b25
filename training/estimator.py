"""Trains, evaluates and predicts with a `model_fn`, on any `tf.distribute`.

    def model_fn(features, labels, mode, params):
      ...
      return EstimatorSpec(mode, loss=loss, predictions={...})

The function is traced for each mode and asks `variables` for its weights; the
Estimator owns their store, feeds batches, counts steps and keeps checkpoints.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

import variables
from errors import UserError
from training import checkpoints, summaries


class ModeKeys:
  """What a `model_fn` is called for."""

  TRAIN = "train"
  EVAL = "eval"
  PREDICT = "infer"


@dataclasses.dataclass
class EstimatorSpec:
  """What a `model_fn` returns.

  Attributes:
    mode: a ModeKeys value.
    loss: scalar, the mean over the real rows of the batch; for TRAIN and EVAL.
    train_op: result of `create_optimizer`; for TRAIN.
    logged: dict of scalars for the log line and TensorBoard; for TRAIN.
    eval_metrics: (metric_fn, tensors): `metric_fn` gets, by keyword, each
      tensor [B, ...] of the dict as an array over all real rows, in order of
      the input, and returns a dict of numbers; for EVAL.
    predictions: dict of tensors [B, ...]; for PREDICT.
  """

  mode: str
  loss: tf.Tensor | None = None
  train_op: object = None
  logged: dict = dataclasses.field(default_factory=dict)
  eval_metrics: tuple | None = None
  predictions: dict | None = None


@dataclasses.dataclass
class RunConfig:
  """How a run goes, whatever the task.

  Attributes:
    model_dir: where checkpoints and TensorBoard's event files are kept.
    seed: fixes initial weights, order of rows and dropout.
    save_checkpoints_steps: updates between checkpoints.
    keep_checkpoint_max: how many of them stay; 0 for all.
    log_steps: updates between log lines.
    strategy: a `tf.distribute.Strategy`; one device when None.
    pad_to_max_length: one static shape for every batch.
  """

  model_dir: str
  seed: int = 1
  save_checkpoints_steps: int = 1000
  keep_checkpoint_max: int = 5
  log_steps: int = 50
  strategy: tf.distribute.Strategy | None = None
  pad_to_max_length: bool = False


class Estimator:
  """One model: its `model_fn`, its weights, and what is done with them.

  The weights start from the newest whole checkpoint in `model_dir`; without
  one, from whatever the `model_fn` asks for.

  Args:
    model_fn: (features, labels, mode, params) -> EstimatorSpec; labels are
      among the features, and the argument is None.
    config: a RunConfig.
    params: dict passed to `model_fn`, and, with more in it, to `input_fn`.
  """

  def __init__(
    self,
    model_fn: Callable[..., EstimatorSpec],
    config: RunConfig,
    params: Mapping | None = None,
  ):
    self._model_fn = model_fn
    self._config = config
    self._params = dict(params or {})
    self._strategy = config.strategy or tf.distribute.get_strategy()
    self._store = variables.VariableStore(config.seed)
    self._summaries = summaries.Summaries(config.model_dir)
    self._programs = {}
    self._audited = False
    tf.io.gfile.makedirs(config.model_dir)
    resumed = checkpoints.newest_whole(config.model_dir)
    if resumed:
      self._store.initial_values = resumed
      logging.info("Continuing from %s", resumed.prefix)

  @property
  def model_dir(self) -> str:
    """Where its checkpoints are kept."""
    return self._config.model_dir

  @property
  def global_step(self) -> int:
    """Number of updates made so far."""
    with self._strategy.scope(), self._store:
      return int(variables.global_step().numpy())

  @property
  def weights(self) -> dict[str, tf.Variable | np.ndarray]:
    """Dict of the model's variables, without step and moments."""
    values = dict(self._store.items())
    checkpoint = self._store.initial_values
    if checkpoint and not self._store.trainable():
      # Nothing was run, so all is as the checkpoint has it.
      values = {name: checkpoint[name] for name in checkpoint.shapes}
    return {
      name: value
      for name, value in values.items()
      if not checkpoints.is_training_state(name)
    }

  def use(self, checkpoint: str) -> None:
    """Takes weights and step from a checkpoint, to evaluate or predict with.

    Moments that the checkpoint lacks stay as they are, so training goes on
    from here only if it is a training checkpoint.

    Args:
      checkpoint: its prefix, such as `.../best_model.ckpt`.

    Raises:
      ValueError: it cannot be read, or does not fit the model.
    """
    prefix = checkpoints.find_checkpoint(checkpoint)
    values = checkpoints.Checkpoint(prefix).verify()
    shapes = {name: v.shape.as_list() for name, v in self._store.items()}
    loaded, _, _ = checkpoints.audit(
      values, shapes, [n for n in shapes if checkpoints.is_training_state(n)]
    )
    with self._strategy.scope():
      for name in loaded:
        self._store[name].assign(values[name])
    # For the variables that are yet to come.
    self._store.initial_values = values
    logging.info("Using the weights of %s", prefix)

  def train(
    self,
    input_fn: Callable[[dict], tf.data.Dataset],
    batch_size: int,
    max_steps: int,
    evaluate: Callable[[int], bool] | None = None,
    eval_steps: int = 0,
  ) -> None:
    """Updates the weights until `max_steps` updates have been made in all.

    Args:
      input_fn: params -> dataset of feature dicts without end; params hold
        `batch_size`, `pad_to_max_length`, `seed` and `first_step`, the number
        of batches that are done already.
      batch_size: rows of one update, over all replicas.
      max_steps: int.
      evaluate: step -> whether to stop; called after the last update and after
        each `eval_steps`, always with a checkpoint of that step saved. It is
        called again for the step that a run starts from, which may have been
        killed before the evaluation was over.
      eval_steps: updates between evaluations; 0 for the last one only.

    Raises:
      ValueError: the batch cannot be shared out among the replicas, or the
        loss is no finite number any more.
    """
    self._check_batch_size(batch_size)
    step = self.global_step
    self._tidy_model_dir(step)

    def evaluates(step):
      last = step >= max_steps
      due = eval_steps > 0 and step % eval_steps == 0
      return evaluate is not None and (last or due)

    if step and evaluates(step) and evaluate(step) and step < max_steps:
      logging.info("Stopped at step %d of %d already", step, max_steps)
    elif step >= max_steps:
      logging.info(
        "Nothing left to train: %d of %d steps are done already",
        step,
        max_steps,
      )
    else:
      self._train(input_fn, batch_size, max_steps, evaluate, evaluates)

  def _train(self, input_fn, batch_size, max_steps, evaluate, evaluates):
    """The updates that are left; `evaluates` tells after which to evaluate."""
    first_step = step = self.global_step
    dataset = self._dataset(
      input_fn, batch_size, seed=self._config.seed, first_step=first_step
    )
    progress = summaries.Progress(step, max_steps, batch_size, self._summaries)
    with contextlib.closing(progress):
      for step in self._updates(dataset, first_step, max_steps, progress):
        saves = step % self._config.save_checkpoints_steps == 0
        saves |= step == max_steps or evaluates(step)
        if saves or step % self._config.log_steps == 0:
          progress.log()
        if saves:
          self._save(step)
        if evaluates(step):
          if evaluate(step) and step < max_steps:
            logging.info("Stopped at step %d of %d", step, max_steps)
            return
          progress.restart_clock()
      if first_step < step < max_steps:
        progress.log()
        logging.info("The input ended after step %d of %d", step, max_steps)
        self._save(step)
        if evaluate is not None and not evaluates(step):
          evaluate(step)

  def _updates(self, dataset, step, max_steps, progress):
    """Makes one update after the other; yields how many have been made."""
    program = self._program(ModeKeys.TRAIN, dataset)
    for features in dataset:
      progress.add(program.run(features))
      step += 1
      self._log_audit_once()
      yield step
      if step == max_steps:
        return

  def evaluate(
    self, input_fn: Callable[[dict], tf.data.Dataset], batch_size: int
  ) -> dict[str, float]:
    """The metrics over a dataset, each real row once.

    Args:
      input_fn: params -> dataset of feature dicts, among them `row_index` and
        `is_real_example`; params hold `batch_size` and `pad_to_max_length`.
      batch_size: rows at a time.

    Returns:
      Dict: what `metric_fn` returns, `loss` (the batches' losses, each
      weighted by its real rows) and `global_step`.

    Raises:
      ValueError: there is no real row.
    """
    metric_fn, arrays, loss = self._evaluate(input_fn, batch_size)
    return {
      **metric_fn(**arrays),
      "loss": loss,
      "global_step": self.global_step,
    }

  def evaluation_arrays(
    self, input_fn: Callable[[dict], tf.data.Dataset], batch_size: int
  ) -> tuple[Callable[..., dict], dict[str, np.ndarray]]:
    """What `evaluate` computes its metrics from; it has the same arguments.

    Returns:
      metric_fn, and the arrays [rows, ...] that it takes by keyword, over all
      real rows in order of the input.
    """
    metric_fn, arrays, _ = self._evaluate(input_fn, batch_size)
    return metric_fn, arrays

  def _evaluate(self, input_fn, batch_size):
    """`evaluation_arrays`, and the mean loss of the rows."""
    dataset = self._dataset(input_fn, batch_size)
    program = self._program(ModeKeys.EVAL, dataset)
    batches = []
    for features in summaries.bar(dataset):
      tensors = _to_numpy(program.run(features))
      self._log_audit_once()
      real = tensors["is_real_example"] == 1
      batches.append({name: t[real] for name, t in tensors.items()})
    arrays = _in_input_order(batches)
    loss = float(np.mean(arrays.pop("batch_loss"), dtype=np.float64))
    return program.metric_fn, arrays, loss

  def write_scalars(self, prefix: str, results: Mapping[str, float]) -> None:
    """Writes results of `evaluate` to TensorBoard, at the step they are of.

    Args:
      prefix: of the tags, such as `dev` for `dev/eval_accuracy`.
      results: dict of numbers, with `global_step`.
    """
    scalars = {f"{prefix}/{name}": value for name, value in results.items()}
    step = scalars.pop(f"{prefix}/global_step")
    self._summaries.write(step, scalars)

  def predict(
    self, input_fn: Callable[[dict], tf.data.Dataset], batch_size: int
  ) -> Iterator[dict]:
    """Yields a dict of arrays for each real row, in order of the input.

    The arguments are those of `evaluate`.
    """
    dataset = self._dataset(input_fn, batch_size)
    program = self._program(ModeKeys.PREDICT, dataset)
    waiting = {}
    due = 0
    for features in summaries.bar(dataset):
      tensors = _to_numpy(program.run(features))
      self._log_audit_once()
      is_real = tensors.pop("is_real_example")
      for place, row in enumerate(tensors.pop("row_index")):
        # Rows that fill up a batch repeat earlier ones of the same batch.
        waiting.setdefault(row, None)
        if is_real[place]:
          waiting[row] = {name: t[place] for name, t in tensors.items()}
      while due in waiting:
        row = waiting.pop(due)
        due += 1
        if row is not None:
          yield row
    # Rows that the input left out, by `drop_remainder`, leave gaps.
    for _, row in sorted(waiting.items()):
      if row is not None:
        yield row

  def _dataset(self, input_fn, batch_size, **params):
    dataset = input_fn(
      {
        **self._params,
        **params,
        "batch_size": batch_size,
        "pad_to_max_length": self._config.pad_to_max_length,
      }
    )
    return self._strategy.experimental_distribute_dataset(dataset)

  def _program(self, mode, dataset):
    """The compiled step of a mode for the batches of a dataset, made once."""
    key = (mode, tuple(sorted(dataset.element_spec.items())))
    if key not in self._programs:
      self._programs[key] = self._compile(mode, dataset.element_spec)
    return self._programs[key]

  def _compile(self, mode, element_spec):
    """A mode's step for each replica, as one program.

    Its signature is the dataset's: where lengths vary there, one trace serves
    them all, and where they do not, every shape is static.
    """
    program = _Program()

    def step(features):
      with self._store:
        spec = self._model_fn(features, None, mode, self._params)
      if mode == ModeKeys.EVAL:
        program.metric_fn = spec.eval_metrics[0]
      return _OUTPUTS[mode](spec, features)

    @tf.function(autograph=False, input_signature=[element_spec])
    def run(features):
      return self._strategy.run(step, args=(features,))

    def run_and_merge(features):
      with self._strategy.scope():
        return self._merge(run(features))

    program.run = run_and_merge
    return program

  def _merge(self, structure):
    """Per-replica values as one: rows joined, scalars averaged."""

    def merge(value):
      parts = self._strategy.experimental_local_results(value)
      if parts[0].shape.rank == 0:
        return tf.reduce_mean(tf.stack(parts))
      return tf.concat(parts, axis=0)

    if self._strategy.num_replicas_in_sync == 1:
      return structure
    return tf.nest.map_structure(merge, structure)

  def _tidy_model_dir(self, step):
    """Ends what a killed run was about to do."""
    folder = self._config.model_dir
    checkpoints.remove_partial_files(folder)
    newest = checkpoints.training_checkpoints(folder)[-1:]
    # One that is newer than ours is damaged, so that ours must not go.
    if newest and newest[0].endswith(f"-{step}"):
      checkpoints.record_checkpoints(folder, self._config.keep_checkpoint_max)

  def _check_batch_size(self, batch_size):
    replicas = self._strategy.num_replicas_in_sync
    if batch_size % replicas:
      raise UserError(
        f"a batch of {batch_size} rows cannot be shared out among {replicas} "
        f"devices; pass a multiple of {replicas}"
      )

  def _log_audit_once(self):
    if not self._audited:
      checkpoints.log_audit(self._store)
      self._audited = True

  def _save(self, step):
    if self.global_step != step:
      raise RuntimeError(
        f"global_step is {self.global_step} after {step} steps; the model_fn "
        f"must call create_optimizer once for TRAIN"
      )
    prefix = checkpoints.save_training_checkpoint(
      self._config.model_dir,
      step,
      dict(self._store.items()),
      self._config.keep_checkpoint_max,
    )
    logging.info("Saved %s", prefix)


@dataclasses.dataclass
class _Program:
  """A compiled step, and the `metric_fn` that its trace came upon."""

  run: Callable | None = None
  metric_fn: Callable | None = None


def mean_over_real_rows(
  values: tf.Tensor, features: Mapping[str, tf.Tensor]
) -> tf.Tensor:
  """The mean of `values` [B] over the rows that do not fill up the batch."""
  is_real = tf.cast(features["is_real_example"], values.dtype)
  return tf.math.divide_no_nan(
    tf.reduce_sum(values * is_real), tf.reduce_sum(is_real)
  )


def _bookkeeping(features):
  return {name: features[name] for name in ("row_index", "is_real_example")}


def _train_outputs(spec, features):
  del features
  return {"loss": spec.loss, **spec.logged}


def _eval_outputs(spec, features):
  kept = _bookkeeping(features)
  loss = tf.fill(tf.shape(kept["row_index"]), spec.loss)
  return {**spec.eval_metrics[1], **kept, "batch_loss": loss}


def _predict_outputs(spec, features):
  return {**spec.predictions, **_bookkeeping(features)}


_OUTPUTS = {
  ModeKeys.TRAIN: _train_outputs,
  ModeKeys.EVAL: _eval_outputs,
  ModeKeys.PREDICT: _predict_outputs,
}


def _to_numpy(structure):
  return tf.nest.map_structure(lambda t: t.numpy(), structure)


def _in_input_order(batches):
  """Joins batches of arrays and sorts their rows by `row_index`."""
  if not batches:
    raise UserError("there is no row to evaluate on")
  arrays = {
    name: np.concatenate([b[name] for b in batches]) for name in batches[0]
  }
  order = np.argsort(arrays.pop("row_index"), kind="stable")
  del arrays["is_real_example"]
  return {name: array[order] for name, array in arrays.items()}


def make_strategy(
  use_tpu: bool,
  tpu_name: str | None = None,
  tpu_zone: str | None = None,
  gcp_project: str | None = None,
) -> tf.distribute.Strategy | None:
  """The strategy for this machine's devices.

  Args:
    use_tpu: connect to a TPU and use all its cores.
    tpu_name: name or `grpc://` address of the TPU; the local one when None.
    tpu_zone, gcp_project: where to look a name up.

  Returns:
    A TPUStrategy; a MirroredStrategy over several GPUs; else None.

  Raises:
    ValueError: there is no such TPU.
  """
  if not use_tpu:
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return tf.distribute.MirroredStrategy() if several else None
  try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
      tpu_name or "local", zone=tpu_zone, project=gcp_project
    )
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
  except (tf.errors.OpError, ValueError, RuntimeError, ImportError) as error:
    raise UserError(
      f"--use_tpu=True --tpu_name={tpu_name}: no TPU answers "
      f"({str(error).splitlines()[0]}); check the name, or leave out "
      f"--use_tpu"
    ) from error
  return tf.distribute.TPUStrategy(resolver)
