"""Trains, evaluates and predicts with a `model_fn`, on any `tf.distribute`.

    def model_fn(features, labels, mode, params):
      ...
      return EstimatorSpec(mode, loss=loss, predictions={...})

The function is traced once for each mode and asks `variables` for its weights.
The Estimator owns their store, feeds batches, counts steps and saves
checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from bert import variables
from bert.data import files, folder_lock
from bert.data.progress import bar
from bert.engine import devices, runner
from bert.engine.batches import Axes, Batching
from bert.engine.inputs import EachRow, InputFn
from bert.engine.programs import (
  EstimatorSpec as EstimatorSpec,
  ModeKeys,
  ModelFn,
  Programs,
)
from bert.errors import UserError, listing
from bert.models import checkpoints
from bert.termination import DeferredTermination, raise_if_signaled
from bert.training import summaries
from bert.training.checkpoint_writer import CheckpointWriter

# Seconds that a call of the device may take. SIGTERM waits for its end, and a
# cluster may leave half a minute for that and the checkpoint.
_CALL_SECONDS = 10.0

# The length of batches varies, so `time_steps` averages steps for this long.
_TIMED_SECONDS = 5.0


@dataclasses.dataclass
class RunConfig:
  """Settings of a run that do not depend on the task."""

  model_dir: str  # for checkpoints and TensorBoard's event files
  seed: int = 1  # of initial weights, order of rows and dropout
  save_checkpoints_steps: int = 1000
  keep_checkpoint_max: int = 5  # 0 for all
  log_steps: int = 50
  strategy: tf.distribute.Strategy | None = None  # None: one device
  pad_to_max_length: bool = False  # pad every batch to one static shape
  rounds_lengths: bool = False  # to one of a few lengths, see `inputs`
  # Maximum number of updates per call of the device, which takes about ten
  # seconds at most. Checkpoints, log lines and evaluations are between calls.
  iterations_per_loop: int = 1
  # Whether to compile the steps with XLA, once for each shape of a batch. None
  # compiles them on a GPU if all batches have one shape. Several replicas
  # cannot compile a training step.
  use_xla: bool | None = False


# Evaluates after a number of updates; returns the reason to stop, if any.
Evaluate = Callable[[int], str | None]


class Estimator:
  """A model: its `model_fn`, its weights, and the programs that use them.

  The weights start from the newest valid checkpoint in `model_dir` or, without
  one, as the `model_fn` initializes them.

  Args:
    model_fn: (features, labels, mode, params) -> EstimatorSpec; labels are
      among the features, and the argument is None.
    config: a RunConfig, or its `model_dir`.
    params: dict passed to `model_fn`, and, with more entries, to `input_fn`.
  """

  def __init__(
    self,
    model_fn: ModelFn,
    config: RunConfig | str,
    params: Mapping | None = None,
  ):
    variables.check_eager()
    if isinstance(config, str):
      config = RunConfig(config)
    self._config = config
    self._model_fn, self._params = model_fn, dict(params or {})
    self._strategy = config.strategy or tf.distribute.get_strategy()
    self._store = variables.VariableStore(config.seed)
    self._store.free_with(self)
    self.summaries = summaries.Summaries(config.model_dir)
    self._programs = Programs(
      model_fn, self._params, self._store, self._strategy, config.use_xla
    )
    self._is_initialization_logged = False
    self._takes_all_weights = False  # From a checkpoint.
    files.makedirs(config.model_dir)
    devices.exchange(self._strategy, 0)  # The chief may still be writing.
    resumed = self._resumed = checkpoints.latest_valid(config.model_dir)
    devices.check_hosts_agree(
      self._strategy,
      resumed.step if resumed else 0,
      f"{config.model_dir} has checkpoints of different steps",
      "pass a folder that all hosts share",
    )
    if resumed:
      self._store.initial_values = resumed
      self._takes_all_weights = True

  @property
  def global_step(self) -> int:
    """Number of updates that the weights have had."""
    return self._step or getattr(self._store.initial_values, "step", 0)

  @property
  def _step(self):
    with self._strategy.scope(), self._store:
      return int(variables.global_step().numpy())

  @property
  def weights(self) -> dict[str, tf.Variable | np.ndarray]:
    """Dict of the model's variables, without step and moments."""
    values = dict(self._store.items())
    checkpoint = self._store.initial_values
    if checkpoint and not self._store.trainable():
      # No mode has been traced yet: the weights are the checkpoint's.
      values = {name: checkpoint[name] for name in checkpoint.shapes}
    return {
      name: value
      for name, value in values.items()
      if not checkpoints.is_training_state(name)
    }

  def use(self, checkpoint: str) -> None:
    """Loads weights and step of a checkpoint, for evaluation or prediction."""
    devices.exchange(self._strategy, 0)  # The chief may still be writing.
    prefix = checkpoints.find_checkpoint(checkpoint)
    values = checkpoints.Checkpoint(prefix).verify()
    shapes = {name: v.shape.as_list() for name, v in self._store.items()}
    optional = [n for n in shapes if checkpoints.is_training_state(n)]
    loaded, _, _ = checkpoints.compare(values, shapes, optional)
    self.assign({name: values[name] for name in loaded})
    # For the variables that have yet to be created.
    self._store.initial_values = values
    self._takes_all_weights = True
    logging.info("Using the weights of %s", prefix)

  def assign(self, values: Mapping[str, np.ndarray]) -> None:
    """Replaces the values of variables, by name."""
    with self._strategy.scope():
      for name, value in values.items():
        self._store[name].assign(value)

  def train(
    self,
    input_fn: InputFn,
    batch_size: int,
    max_steps: int,
    evaluate: Evaluate | None = None,
    eval_steps: int = 0,
    before_updates: Callable[[], None] | None = None,
    before_save: Callable[[], None] | None = None,
  ) -> None:
    """Trains until `max_steps` updates have been made in total.

    SIGTERM or Ctrl-C ends the training after the current call of the device,
    whose updates are saved.

    Args:
      input_fn: params -> infinite dataset of feature dicts; see `inputs`.
      batch_size: rows of one update, over all replicas.
      evaluate: from a step to the reason to stop there, or None. It is called
        after the last update and, unless `eval_steps` is 0, every `eval_steps`
        updates, once the checkpoint of that step is saved. A resumed run calls
        it for its first step again, because it may have been killed there.
      before_updates: called before the first update, if there is one to make.
      before_save: called before each checkpoint.
    """
    with folder_lock.lock_folder(self._config.model_dir):
      step = self._step
      self._remove_leftovers(step)
      is_over = step >= max_steps
      is_due = is_over or (eval_steps and step % eval_steps == 0)
      reason = evaluate(step) if evaluate and step and is_due else None
      if is_over:
        logging.info(
          "Nothing left to train: %d of %d steps are done", step, max_steps
        )
      elif reason:
        _log_stop("Already stopped", step, max_steps, reason)
      else:
        if self._resumed and self._resumed.step == step:
          logging.info("Continuing from %s", self._resumed.prefix)
        if before_updates:
          before_updates()
        self._run_steps(
          input_fn, batch_size, max_steps, evaluate, eval_steps, before_save
        )

  def _run_steps(
    self, input_fn, batch_size, max_steps, evaluate, eval_steps, before_save
  ):
    """The training loop."""
    config, step = self._config, self._step
    reason, is_terminated = None, False
    periods = [config.log_steps, config.save_checkpoints_steps]
    periods += [eval_steps] if evaluate and eval_steps else []
    updates = self._updates(input_fn, batch_size, step, max_steps, periods)
    progress = summaries.Progress(step, max_steps, batch_size, self.summaries)
    with (
      contextlib.closing(progress),
      DeferredTermination() as termination,
      CheckpointWriter(config.model_dir, config.keep_checkpoint_max) as writer,
    ):
      for scalars, is_last in _with_user_errors(updates):
        step += progress.add(scalars)
        self._log_initialization_once()
        is_terminated = self._is_terminated(termination)
        end = is_last or is_terminated
        evaluates = evaluate and (
          is_last or (eval_steps and step % eval_steps == 0)
        )
        saves = end or evaluates or step % config.save_checkpoints_steps == 0
        if saves or step % config.log_steps == 0:
          self._check_loss(progress, input_fn, batch_size)
          progress.log()
          writer.check()
        if saves:
          if before_save:
            before_save()
          self._save(step, writer)
        if end or evaluates:
          writer.wait()
        if is_terminated:
          is_ctrl_c = termination.pending == signal.SIGINT
          reason = "Ctrl-C" if is_ctrl_c else "SIGTERM"
        elif evaluates:
          with termination.suspended():
            reason = evaluate(step)
        if saves:
          progress.restart_clock()
        if end or reason:
          break
      if reason and (is_terminated or step < max_steps):
        _log_stop("Stopped", step, max_steps, reason)
      elif step < max_steps:
        logging.info("The input ended after step %d of %d", step, max_steps)
      if is_terminated:
        devices.await_hosts(self._strategy)

  def _updates(self, input_fn, batch_size, step, max_steps, periods):
    """Yields the scalars [n] of n updates, and whether they are the last.

    With an endless input, several updates form a group. Groups end at each
    multiple of the `periods`.
    """
    dataset = self._dataset(
      input_fn, batch_size, seed=self._config.seed, first_step=step
    )
    most = self._config.iterations_per_loop
    if most > 1 and devices.is_endless(dataset):
      run, size = self._programs.loop(dataset), 1
      while step < max_steps:
        start = time.perf_counter()
        scalars = run(size)
        scalars["loss"].numpy()  # Waits for the end of the call.
        seconds = (time.perf_counter() - start) / size
        step += size
        yield scalars, step == max_steps
        size = max(1, min(most, int(_CALL_SECONDS / seconds)))
        size = min(devices.exchange(self._strategy, size))  # All hosts agree.
        size = min(size, max_steps - step, *(n - step % n for n in periods))
      return
    program = self._programs.get(ModeKeys.TRAIN, dataset.element_spec)
    batches = iter(dataset)
    batch = next(batches, None)
    while batch is not None:
      scalars = {n: x[tf.newaxis] for n, x in program(batch).items()}
      step += 1
      batch = next(batches, None) if step < max_steps else None
      yield scalars, batch is None

  def _is_terminated(self, termination):
    """Whether SIGTERM or Ctrl-C has come to this host or another one."""
    if any(devices.exchange(self._strategy, bool(termination.pending))):
      termination.pending = termination.pending or signal.SIGTERM
    return termination.pending is not None

  def _check_loss(self, progress, input_fn, batch_size):
    """Raises UserError, and writes a batch, if a step failed."""
    failure = progress.first_failure()
    if not failure:
      return
    step = failure["step"]
    params = self._input_params(
      batch_size, seed=self._config.seed, first_step=step - 1
    )
    # The input is a function of the step, so no batch needs to be kept.
    features = next(iter(input_fn(params)))
    folder = self._config.model_dir
    path = summaries.write_failed_batch(folder, failure, features)
    is_loss = not np.isfinite(failure["loss"])
    name = "loss" if is_loss else "gradient norm"
    problem = f"the {name} is {failure[name]} at step {step}"
    if "learning rate" in failure:
      problem += f" with learning rate {failure['learning rate']:.3g}"
    remedy = "lower --learning_rate or correct the input"
    if "loss scale" in failure:
      remedy += ", or pass --precision=bfloat16"
    raise UserError(f"{problem}; see the batch in {path}; {remedy}")

  def time_steps(
    self, input_fn: InputFn, batch_size: int, count: int
  ) -> list[float]:
    """The seconds of up to `count` training steps, without any compilation.

    The weights change, but nothing is saved. If `count` is 0, one step is made.
    """

    # The first step of a batch may compile programs for its length.
    def twice(params):
      batches = input_fn(params).flat_map(
        lambda batch: tf.data.Dataset.from_tensors(batch).repeat(2)
      )
      return devices.endless(batches)

    dataset = self._dataset(twice, batch_size, seed=self._config.seed)
    step = self._programs.get(ModeKeys.TRAIN, dataset.element_spec)
    batches = iter(dataset)
    step(next(batches))
    seconds = []
    for index in range(count):
      if index >= 3 and sum(seconds) > _TIMED_SECONDS:
        break
      if index:
        step(next(batches))
      start = time.perf_counter()
      step(next(batches))["loss"].numpy()
      seconds.append(time.perf_counter() - start)
    return seconds

  def retrace(self) -> None:
    """Makes the next call of each mode compile the model_fn again."""
    self._programs.clear()

  def evaluate(self, input_fn: InputFn, batch_size: int) -> dict[str, float]:
    """The results of `metric_fn` over a dataset, with `global_step` and `loss`.

    For a user's own `model_fn`. It holds all predictions in memory, so
    `run_one` computes metrics from `predict_rows` instead. Arrays whose shape
    varies from batch to batch are padded with zeros.
    """
    rows = list(self.predict(input_fn, batch_size, ModeKeys.EVAL))
    results = {}
    if rows and self._programs.metric_fn:
      arrays = {  # Only real rows are here, so `is_real_example` is 1.
        name: _stack([np.asarray(row.get(name, 1)) for row in rows])
        for name in self._programs.metric_names
      }
      results |= self._programs.metric_fn(**arrays)
    if rows and "batch_loss" in rows[0]:
      losses = [row["batch_loss"] for row in rows]
      results["loss"] = float(np.mean(losses, dtype=np.float64))
    return {**results, "global_step": self.global_step}

  def predict(
    self, input_fn: InputFn, batch_size: int, mode: str = ModeKeys.PREDICT
  ) -> Iterator[dict[str, np.ndarray]]:
    """Yields a dict of arrays for each real row, in input order.

    Row arrays have the shape that they have in their batch.

    Args:
      input_fn: params -> dataset of feature dicts. With `is_real_example` [B],
        rows where it is 0 are left out; `row_index` [B] numbers the rows.
      batch_size: rows at a time, over all replicas.
      mode: PREDICT for the `model_fn`'s predictions; EVAL for these, the
        tensors of `eval_metrics`, and `batch_loss`, if the row's batch has one:
        its mean over all rows is the evaluation's loss.
    """
    dataset = self._dataset(input_fn, batch_size, _numbered)
    program = self._ready_program(mode, dataset.element_spec)
    yield from runner.compute_batches(program, bar(_with_user_errors(dataset)))

  def predict_rows(
    self,
    rows: EachRow,
    batch_size: int,
    mode: str,
    axes: Axes,
    in_order: bool = False,
  ) -> Iterator[dict[str, np.ndarray]]:
    """Like `predict`, for rows; raises InfiniteOutputError, see `runner`.

    Args:
      axes: of outputs; those with a name are cut to the size of the row.
      in_order: form batches of consecutive rows, regardless of their length.
    """
    config, replicas = self._config, self._strategy.num_replicas_in_sync
    devices.check_batch_size("batch_size", batch_size, replicas)
    batching = Batching(
      rows.spec,
      batch_size,
      is_static=config.pad_to_max_length,
      fills=replicas > 1,
      rounds_lengths=config.rounds_lengths,
      in_order=in_order,
    )
    program = runner.in_numpy(
      self._ready_program(mode, runner.signature(batching))
    )
    source = f"the model of step {self.global_step}"
    with bar(total=len(rows)) as progress:
      yield from runner.compute_rows(
        program, batching, rows, axes, source, progress.update
      )

  def _ready_program(self, mode, element_spec):
    """The program of a mode, once all its variables have their values."""
    program = self._programs.get(mode, element_spec)
    self._check_has_weights()
    self._log_initialization_once()
    return program

  def outputs_of_a_row(self, input_fn: InputFn) -> dict[str, np.ndarray]:
    """The outputs of an EVAL step for one row of training.

    {} on a TPU, which cannot run single operations.
    """
    if devices.is_tpu(self._strategy):
      return {}
    params = self._input_params(1, seed=self._config.seed, first_step=0)
    features = next(iter(input_fn(params)))
    outputs = self._programs.run_once(features)
    return {name: np.asarray(value) for name, value in outputs.items()}

  def _check_has_weights(self):
    """Raises UserError if a traced `model_fn` has loaded no weights."""
    store = self._store
    if self._step or not store.trainable():
      return
    if not store.initial_values:
      raise UserError(
        f"there are no trained weights: {self._config.model_dir} has no "
        f"checkpoint, and the model_fn loads none; train the model first, or "
        f"pass an init_checkpoint"
      )
    untrained = [
      name
      for name, variable in store.items()
      if variable.trainable and name not in store.initial_values
    ]
    if untrained and not self._is_initialization_logged:
      verb = "is" if len(untrained) == 1 else "are"
      logging.warning(
        "the model is not trained: %s %s random; train it first",
        listing(untrained),
        verb,
      )

  def _dataset(self, input_fn, batch_size, change=None, **params):
    devices.check_batch_size(
      "batch_size", batch_size, self._strategy.num_replicas_in_sync
    )
    dataset = input_fn(self._input_params(batch_size, **params))
    if not isinstance(dataset.element_spec, Mapping):
      raise TypeError(
        "each element of the input_fn's dataset must be a dict of features; "
        "put labels among them"
      )
    dataset = change(dataset) if change else dataset
    return devices.distribute(self._strategy, dataset)

  def _input_params(self, batch_size, **params):
    return {
      **self._params,
      **params,
      "batch_size": batch_size,
      "pad_to_max_length": self._config.pad_to_max_length,
      "rounds_lengths": self._config.rounds_lengths,
      "fill_batches": self._strategy.num_replicas_in_sync > 1,
    }

  def _remove_leftovers(self, step):
    """Cleans up after an interrupted run."""
    if not files.writes(self._config.model_dir):
      return
    checkpoints.remove_partial_files(self._config.model_dir)
    newest = checkpoints.training_checkpoints(self._config.model_dir)[-1:]
    # A newer checkpoint than ours is damaged. Then ours must not be deleted.
    if newest and newest[0].endswith(f"-{step}"):
      keep_max = self._config.keep_checkpoint_max
      checkpoints.record_checkpoints(self._config.model_dir, keep_max)

  def _log_initialization_once(self):
    if not self._is_initialization_logged:
      if self._takes_all_weights:
        items = self._store.items()
        shapes = {n: v.shape.as_list() for n, v in items if v.trainable}
        # A teacher may be new to the training.
        new = list(filter(checkpoints.is_training_state, shapes))
        checkpoints.compare(self._store.initial_values, shapes, new)
      checkpoints.log_initialization(self._store)
      self._is_initialization_logged = True

  def _save(self, step, writer):
    if self._step != step:
      raise RuntimeError(
        f"global_step is {self._step} after {step} steps; the model_fn "
        f"must call create_optimizer once for TRAIN"
      )
    if not files.writes(self._config.model_dir):
      return
    writer.save(step, dict(self._store.items()))
    self.summaries.flush()


def _log_stop(what, step, max_steps, reason):
  logging.info("%s at step %d of %d: %s", what, step, max_steps, reason)


def _with_user_errors(batches: Iterable) -> Iterator:
  """Yields batches; unwraps a UserError that TensorFlow has wrapped."""
  try:
    for batch in batches:
      raise_if_signaled()
      yield batch
  except tf.errors.OpError as error:
    wrapped = re.search(r"UserError: (.*)", error.message)
    if wrapped:
      raise UserError(wrapped[1]) from error
    raise


def _numbered(dataset):
  """A dataset of features with `row_index` and `is_real_example`."""
  if {"row_index", "is_real_example"} <= dataset.element_spec.keys():
    return dataset

  def number(start, features):
    count = tf.shape(next(iter(features.values())))[0]
    index = start + tf.range(count)
    is_real = tf.ones_like(index)
    return start + count, {
      "is_real_example": is_real,
      **features,
      "row_index": index,
    }

  return dataset.scan(0, number)


def _stack(arrays):
  """Stacks arrays, padded with zeros at their ends to the largest shape."""
  shape = np.max([array.shape for array in arrays], axis=0).astype(int)
  stacked = np.zeros((len(arrays), *shape), arrays[0].dtype)
  for row, array in enumerate(arrays):
    stacked[(row, *map(slice, array.shape))] = array
  return stacked


def mean_over_real_rows(
  values: tf.Tensor, features: Mapping[str, tf.Tensor]
) -> tf.Tensor:
  """The mean of `values` [B] over the real rows, a scalar."""
  is_real = tf.cast(features["is_real_example"], values.dtype)
  return tf.math.divide_no_nan(
    tf.reduce_sum(values * is_real), tf.reduce_sum(is_real)
  )
