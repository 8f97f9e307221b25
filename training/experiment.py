"""Runs a task: checks the input, writes rows, trains, evaluates and predicts.

    settings = Settings.from_flags(do_predict=False)
    model = ModelFiles(config, common_flags.release_files(config))
    results = Experiment(task, model, settings).run()

`training/task.py` defines the interface of a task.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags, logging

import modeling
import optimization
from errors import UserError, plural
from pipeline import files, records
from training import (
  best_checkpoint,
  checkpoints,
  common_flags,
  data_checks,
  devices,
  estimator,
  inputs,
  memory,
  model_folder,
  packed_batches,
  plan,
  record_files,
  run_record,
)
from training.task import RowSet, Task, build_model_fn

FLAGS = flags.FLAGS

# Names of the files of rows, by split.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}

# Values of --use_xla as `RunConfig` takes them.
_USE_XLA = {"auto": None, "true": True, "false": False}


class ModelFiles(NamedTuple):
  """The model of an experiment.

  Attributes:
    config: its BertConfig.
    contents: dict from name to content of the files that, beside the weights,
      make a model folder.
  """

  config: modeling.BertConfig
  contents: Mapping[str, str | bytes]


@dataclasses.dataclass(frozen=True)
class Settings:
  """Values of the shared flags, by flag name.

  Attributes:
    splits: the splits to read: any of "train", "dev" and "test".
    flags: all flags by name, for flags.json.
    make_strategy: returns the strategy for the devices; None for one device.
  """

  splits: tuple[str, ...]
  output_dir: str
  init_checkpoint: str | None
  do_eval: bool
  train_batch_size: int
  eval_batch_size: int
  learning_rate: float
  save_checkpoints_steps: int
  keep_checkpoint_max: int
  log_steps: int
  eval_steps: int
  seed: int
  pad_to_max_length: bool | None
  precision: str
  flags: Mapping[str, object]
  use_tpu: bool = False
  make_strategy: Callable[[], tf.distribute.Strategy | None] = lambda: None
  predict_batch_size: int = 8
  num_train_epochs: float | None = None
  num_train_steps: int | None = None
  warmup_proportion: float = 0.0
  num_warmup_steps: int | None = None
  keep_best: str | None = None
  early_stopping_patience: int | None = None
  freeze_layers: int | None = None
  layerwise_lr_decay: float = 1.0
  optimizer: str = "adamw"
  lr_schedule: str = "linear"
  adam_bias_correction: bool = False
  weight_decay: float = 0.01
  max_grad_norm: float = 1.0
  gradient_checkpointing: bool = False
  gradient_accumulation_steps: int = 1
  pack_sequences: bool = False
  iterations_per_loop: int | None = None
  dry_run: bool = False
  use_xla: str = "auto"

  @classmethod
  def from_flags(cls, splits: Iterable[str], **changes) -> Settings:
    """Settings from the flags; `changes` override values.

    flags.json records the values that are used.

    Raises:
      UserError: there is no such TPU, or it lacks the precision.
    """
    common_flags.check_precision()
    names = {field.name for field in dataclasses.fields(cls)} & set(FLAGS)
    fields = {name: FLAGS[name].value for name in names}
    fields |= {k: v for k, v in changes.items() if k in names}
    kind = common_flags.device_kind()
    fields["use_tpu"] = kind == "tpu"
    fields["make_strategy"] = functools.partial(
      devices.make_strategy,
      kind,
      devices.Tpu(
        FLAGS.tpu_name or FLAGS.master,
        FLAGS.tpu_zone,
        FLAGS.gcp_project,
        FLAGS.num_tpu_cores,
      ),
      common_flags.cluster(),
      FLAGS.worker_timeout,
    )
    recorded = common_flags.flag_values() | changes
    settings = cls(splits=tuple(splits), flags=recorded, **fields)
    if kind in ("multi_worker", "tpu"):
      settings.strategy  # noqa: B018  Hosts must meet before one locks a folder.
    return settings

  @functools.cached_property
  def strategy(self) -> tf.distribute.Strategy | None:
    """The strategy for the devices. To know them, TensorFlow must load."""
    return self.make_strategy()

  @property
  def num_replicas(self) -> int:
    """Number of devices that share a batch."""
    return getattr(self.strategy, "num_replicas_in_sync", 1)

  @property
  def do_train(self) -> bool:
    """Whether to train."""
    return "train" in self.splits

  @property
  def evaluates_in_training(self) -> bool:
    """Whether to evaluate while training."""
    asked = self.eval_steps or self.keep_best or self.early_stopping_patience
    return self.do_train and bool(asked)


class Experiment:
  """Trains, evaluates and uses one model in one folder.

  The constructor reads and checks all inputs. It writes no files.

  Args:
    task: a Task.
    model: its ModelFiles.
    settings: Settings.

  Raises:
    UserError: a flag or a file is wrong.
  """

  def __init__(self, task: Task, model: ModelFiles, settings: Settings):
    self._task = task
    self._model = model
    self._settings = settings
    self._packings = {}
    if settings.dry_run and not settings.do_train:
      raise UserError("--dry_run plans a training; add --do_train")
    check_packing(settings, task)
    self._read_output_dir()
    check_init_path(settings.init_checkpoint)
    self._layer_rates()
    if files.isdir(settings.output_dir):
      with checkpoints.lock_folder(settings.output_dir):
        pass  # Fail before reading the data if another process uses it.
    self._row_sets = {split: task.row_sets(split) for split in settings.splits}
    self._examples = {
      split: task.examples(split)
      for split, row_sets in self._row_sets.items()
      if row_sets is None
    }
    for examples in self._examples.get("train", {}).values():
      self._check_training_set(examples)
    # These checks take longer, because TensorFlow loads.
    self._check_init_checkpoint()
    check_batch_sizes(settings)

  def _check_init_checkpoint(self):
    settings, task = self._settings, self._task
    has_heads = check_init_checkpoint(
      self._model.config,
      task.variable_shapes(self._model.config),
      settings.init_checkpoint,
    )
    if not (settings.do_train or has_heads or self._is_trained):
      raise UserError(
        f"no trained {task.name} model in --output_dir={settings.output_dir} "
        f"or --init_checkpoint={settings.init_checkpoint}; add --do_train"
      )

  def run(self) -> dict[str, float]:
    """Runs the requested steps and returns the evaluation metrics.

    With `dry_run`, it prints a Plan instead, and returns nothing.
    """
    settings, task = self._settings, self._task
    if settings.dry_run:
      print("\n".join([task.name, *self.plan().lines()]))
      return {}
    files.makedirs(settings.output_dir)
    with (
      checkpoints.lock_folder(settings.output_dir),
      devices.hosts_end_together(settings.strategy),
    ):
      self._read_output_dir()  # Another process may have just left it.
      record = run_record.keep_record(
        settings.output_dir,
        run_record.make_record(
          {**settings.flags, "task_name": task.name}, task.data_hashes()
        ),
        settings.do_train,
        self._is_trained,
      )
      self._make_row_sets()
      model = self._build_estimator()
      self._get_weights(model)
      dev_sets = self._row_sets["dev"] if settings.do_eval else []
      evaluations, results = [], {}
      for rows in dev_sets:
        evaluations.append(self._evaluate(model, rows))
        self._write_results(rows.suffix, evaluations[-1])
        for name, value in evaluations[-1].results.items():
          results[name + rows.suffix] = value
      if evaluations or settings.do_train:
        task.report(settings.output_dir, evaluations, record)
      for rows in self._row_sets.get("test", ()):
        self._predict(model, rows, record)
    return results

  def _read_output_dir(self):
    """Checks what an earlier run left in the folder."""
    settings, config = self._settings, self._model.config
    self._is_trained = check_output_dir(
      modeling.variable_shapes(config) | self._task.variable_shapes(config),
      settings.output_dir,
      settings.do_train,
    )
    self._best = self._make_best_checkpoint()

  def _make_best_checkpoint(self):
    """The BestCheckpoint of the training, or None if no flag needs one."""
    settings, task = self._settings, self._task
    metric = (settings.keep_best or "").removeprefix("eval_")
    known = [*task.metrics, *(["loss"] if task.has_eval_loss else [])]
    if settings.keep_best and metric not in known:
      raise UserError(
        f"--keep_best={settings.keep_best} is not a metric of {task.name}; "
        f"pass one of {', '.join(known)}"
      )
    keeps = metric or settings.early_stopping_patience
    if not (keeps and settings.do_train):
      return None
    return best_checkpoint.BestCheckpoint(
      settings.output_dir,
      metric or task.metrics[0],
      settings.early_stopping_patience,
    )

  # Rows.

  def _make_row_sets(self):
    settings = self._settings
    uses_dev = settings.do_eval or settings.evaluates_in_training
    for split, examples in self._examples.items():
      self._row_sets[split] = [
        self._write_rows(split, suffix, examples[suffix])
        for suffix in examples
        if split != "dev" or uses_dev
      ]
    self._task.log_data(self._row_sets)

  def _write_rows(self, split, suffix, examples):
    """Writes the rows of a data set to a file in the output folder."""
    task, is_training = self._task, split == "train"
    for rows in self._row_sets.get("dev") or ():
      if split == "test" and rows.examples is examples:
        return dataclasses.replace(rows, split=split)
    path = os.path.join(
      files.writable_folder(self._settings.output_dir),
      f"{_RECORD_NAMES[split]}{suffix}.tf_record",
    )
    spec = task.feature_spec(is_training)
    counts = []

    def rows():
      for rows_of_example in task.features(examples, is_training):
        counts.append(len(rows_of_example))
        yield from rows_of_example

    read = functools.cache(lambda: record_files.RecordFiles([path], spec))
    num_rows = records.write_records(path, rows(), spec)
    logging.info(
      "%s: %s of %s",
      path,
      plural(num_rows, "row"),
      plural(len(counts), "example"),
    )
    return RowSet(
      split,
      suffix,
      examples,
      inputs.lazy_input_fn(read, is_training, is_training),
      num_rows,
      None if set(counts) <= {1} else np.array(counts, np.int64),
      read,
    )

  def _choose_packings(self):
    """The Packing of each mode, which the input of its rows receives, too."""
    settings, packings = self._settings, {}
    modes = {
      "train": (estimator.ModeKeys.TRAIN, settings.train_batch_size),
      "dev": (estimator.ModeKeys.EVAL, settings.eval_batch_size),
      "test": (estimator.ModeKeys.PREDICT, settings.predict_batch_size),
    }
    for split, row_sets in self._row_sets.items():
      if not (settings.pack_sequences and row_sets):
        continue
      mode, size = modes[split]
      parts = settings.num_replicas
      if split == "train":
        parts *= settings.gradient_accumulation_steps
      else:  # Only an update depends on which rows its batch has.
        size, parts = size // parts, 1
      found = packings[mode] = packed_batches.choose_packing(
        [rows.read().lengths[: rows.num_rows] for rows in row_sets],
        size,
        row_sets[0].read().spec["input_ids"].shape[0],
        parts,
      )
      self._row_sets[split] = [
        dataclasses.replace(rows, input_fn=_with(rows.input_fn, packing=found))
        for rows in row_sets
      ]
      logging.info(
        "%s: %s packed into %s of %d positions",
        row_sets[0].name,
        plural(len(found.capacities), "sequence"),
        plural(found.num_rows, "row"),
        found.length,
      )
    return packings

  # Training.

  def _check_training_set(self, examples):
    """Raises UserError if the training set is too small for one step."""
    if not examples:
      raise UserError(f"{self._task.name} has no example to train on")
    count = len(examples)
    if self._task.epoch_counts_rows and not self._num_steps(count):
      # Convert the examples only if needed: each may have several rows.
      count = sum(map(len, self._task.features(examples, is_training=True)))
    self._check_num_steps(count)

  def _num_steps(self, count):
    """Number of training steps, with `count` rows or examples in an epoch."""
    settings = self._settings
    if settings.num_train_steps is not None:
      return settings.num_train_steps
    epochs = settings.num_train_epochs
    return int(count / settings.train_batch_size * epochs)

  def _check_num_steps(self, count):
    settings = self._settings
    if self._num_steps(count) < 1:
      unit = "row" if self._task.epoch_counts_rows else "example"
      raise UserError(
        f"--num_train_epochs={settings.num_train_epochs} over "
        f"{plural(count, unit)} does not fill a batch of "
        f"--train_batch_size={settings.train_batch_size}; raise the number of "
        f"epochs or lower the batch size"
      )

  def _layer_rates(self):
    """The learning rates of layers, as the flags describe them."""
    frozen, decay = (
      self._settings.freeze_layers,
      self._settings.layerwise_lr_decay,
    )
    num_layers = self._model.config.num_hidden_layers
    if frozen is not None and frozen > num_layers:
      raise UserError(
        f"--freeze_layers={frozen} exceeds the {num_layers} layers of the "
        f"model; lower it"
      )
    if not 0 < decay <= 1:
      raise UserError(
        f"--layerwise_lr_decay={decay} must be greater than 0 and at most 1"
      )
    return optimization.LayerRates(num_layers, decay, frozen)

  def _optimization(self, steps):
    """The Optimization of a training of that many steps."""
    settings = self._settings
    warmup = settings.num_warmup_steps
    if warmup is None:
      warmup = int(steps * settings.warmup_proportion)
    return optimization.Optimization(
      settings.learning_rate,
      steps,
      warmup,
      self._layer_rates(),
      optimizer=settings.optimizer,
      lr_schedule=settings.lr_schedule,
      adam_bias_correction=settings.adam_bias_correction,
      weight_decay=settings.weight_decay,
      max_grad_norm=settings.max_grad_norm,
      gradient_accumulation_steps=settings.gradient_accumulation_steps,
      compiles_gradients=settings.use_xla == "true"
      and settings.num_replicas > 1
      and not settings.use_tpu,
    )

  def _build_model_fn(self, update, gradient_checkpointing):
    settings = self._settings
    return build_model_fn(
      self._task,
      self._model.config,
      settings.init_checkpoint,
      update,
      settings.use_tpu,
      settings.precision,
      gradient_checkpointing,
      self._packings,
    )

  def _build_estimator(self):
    settings = self._settings
    self._update = None
    if settings.do_train:
      (rows,) = self._row_sets["train"]
      counts_rows = self._task.epoch_counts_rows
      count = rows.num_rows if counts_rows else len(rows.examples)
      self._check_num_steps(count)
      steps = self._num_train_steps = self._num_steps(count)
      self._update = self._optimization(steps)
    self._packings = self._choose_packings()
    model_fn = self._build_model_fn(
      self._update, settings.gradient_checkpointing
    )
    compiles = _USE_XLA[settings.use_xla]
    pads = settings.pad_to_max_length
    if pads is None:
      pads = bool(settings.use_tpu or compiles)
    config = estimator.RunConfig(
      model_dir=settings.output_dir,
      seed=settings.seed,
      save_checkpoints_steps=settings.save_checkpoints_steps,
      keep_checkpoint_max=settings.keep_checkpoint_max,
      log_steps=settings.log_steps,
      strategy=settings.strategy,
      pad_to_max_length=pads,
      iterations_per_loop=settings.iterations_per_loop
      or (1000 if settings.use_tpu else 1),
      use_xla=compiles,
    )
    return estimator.Estimator(model_fn, config)

  def _get_weights(self, model):
    """Trains the model, or loads the best weights of an earlier training."""
    best = checkpoints.best_checkpoint(self._settings.output_dir)
    if self._settings.do_train:
      self._train(model)
    elif self._is_trained and best:
      model.use(best)

  def _train(self, model):
    """Trains, and turns `output_dir` into a model folder."""
    settings = self._settings
    for name, content in self._task.assets().items():
      # Written first: without them a checkpoint cannot be used.
      files.write_file(os.path.join(settings.output_dir, name), content)
    evaluate_at, eval_steps = None, settings.eval_steps
    if settings.evaluates_in_training:
      evaluate_at = functools.partial(self._evaluate_at, model)
      epochs = settings.num_train_epochs or 1
      eval_steps = eval_steps or math.ceil(self._num_train_steps / epochs)
    (rows,) = self._row_sets["train"]
    logging.info(
      "Training for %s of %s, %.3g epochs of %s",
      plural(self._num_train_steps, "step"),
      plural(settings.train_batch_size, "row"),
      self._num_train_steps * settings.train_batch_size / rows.num_rows,
      plural(rows.num_rows, "row"),
    )
    steps, best = self._num_train_steps, self._best
    if not best:
      best_checkpoint.delete_history(settings.output_dir)
    size = settings.train_batch_size
    model.train(self._train_input_fn(), size, steps, evaluate_at, eval_steps)
    if best and best.checkpoint:
      model.use(best.checkpoint)
    weights = {**model.weights, "global_step": np.int64(model.global_step)}
    checkpoints.write_release(
      settings.output_dir, weights, self._model.contents
    )
    logging.info("The trained model is in %s", settings.output_dir)

  def _train_input_fn(self):
    (rows,) = self._row_sets["train"]
    pads = self._settings.pad_to_max_length
    if pads is None and self._task.pads_training:
      return _with(rows.input_fn, pad_to_max_length=True)
    return rows.input_fn

  # Planning.

  def plan(self) -> plan.Plan:
    """What the training would take, with some steps of it; leaves no file."""
    with tempfile.TemporaryDirectory() as folder:
      self._settings = dataclasses.replace(self._settings, output_dir=folder)
      self._make_row_sets()
      (rows,) = self._row_sets["train"]
      data_checks.log_data_checks(rows, self._model.contents)
      process, available = memory.used_bytes(), memory.available_bytes()
      model = self._build_estimator()
      found = self._predict_memory(model, process)
      if available is not None:
        found = dataclasses.replace(found, limit=process + available)
      return self._measure(model, found) if found.fits else found

  def _predict_memory(self, model, process):
    """The Plan without measurements."""
    settings = self._settings
    micro_batches = settings.gradient_accumulation_steps
    size = settings.train_batch_size // settings.num_replicas // micro_batches
    (rows,) = self._row_sets["train"]
    params = {"batch_size": size, "pad_to_max_length": True}
    spec = rows.input_fn(params).element_spec
    update = dataclasses.replace(
      self._update, gradient_accumulation_steps=1, compiles_gradients=False
    )

    def row_bytes(checkpointing):
      model_fn = self._build_model_fn(update, checkpointing)
      return memory.activation_bytes(model.trace(model_fn, spec)) / size

    num_layers = self._model.config.num_hidden_layers
    row = row_bytes(False)
    # One layer at a time is computed again.
    checkpointed = row_bytes(True) + row / num_layers
    weights = model.weights
    trained = [n for n in weights if self._update.layer_rates(n)]
    predicted = plan.Memory(
      process=process,
      weights=_float32_bytes(weights.values()),
      trained=_float32_bytes(weights[name] for name in trained),
      row=checkpointed if settings.gradient_checkpointing else row,
      rows=size,
      is_accumulated=micro_batches > 1,
    )
    return plan.Plan(
      num_steps=self._num_train_steps,
      batch_size=settings.train_batch_size,
      num_devices=settings.num_replicas,
      micro_batches=micro_batches,
      length=spec["input_ids"].shape[-1],
      memory=predicted,
      checkpointed=dataclasses.replace(predicted, row=checkpointed),
    )

  def _measure(self, model, found):
    """The Plan with time and memory of some steps."""
    size, input_fn = self._settings.train_batch_size, self._train_input_fn()
    # The peak is that of a batch whose longest row has the full length.
    model.time_steps(_with(input_fn, pad_to_max_length=True), size, 0)
    peak = memory.peak_bytes()
    seconds = model.time_steps(input_fn, size, 3)
    return dataclasses.replace(found, seconds=tuple(seconds), peak=peak)

  def _evaluate_at(self, model, step):
    """Evaluates after `step` updates; returns a reason to stop, or None."""
    if self._best and self._best.has_evaluated(step):
      return self._best.stop_reason
    first = None
    for rows in self._row_sets["dev"]:
      results = self._evaluate(model, rows).results
      first = first or results
      step = results.pop("global_step")
      model.summaries.write(
        step, {f"dev/{n}{rows.suffix}": v for n, v in results.items()}
      )
      shown = sorted(results.keys() - {"loss"})
      if metrics := self._task.metrics:
        known = (*metrics, "loss")
        shown = [name for name in shown if name.removeprefix("eval_") in known]
      logging.info(
        "step %d, %s: %s",
        step,
        rows.name,
        ", ".join(f"{name} {results[name]:.4f}" for name in shown),
      )
    return self._best and self._best.add(step, first, model.weights)

  # Evaluation and prediction.

  def _evaluate(self, model, rows):
    """The task's Evaluation of a data set, with loss and step."""
    losses = []
    mode, size = estimator.ModeKeys.EVAL, self._settings.eval_batch_size
    if not self._task.has_eval_loss:  # The program of the prediction will do.
      mode = estimator.ModeKeys.PREDICT
    predictions = _by_example(
      _collect_losses(model.predict(rows.input_fn, size, mode), losses), rows
    )
    evaluation = self._task.score(rows, predictions)
    if losses:
      mean = float(np.mean(losses, dtype=np.float64))
      evaluation.results.setdefault("loss", mean)
    evaluation.results["global_step"] = model.global_step
    return evaluation

  def _predict(self, model, rows, record):
    """Writes the predictions, and evaluates them if labels are known."""
    size, folder = self._settings.predict_batch_size, self._settings.output_dir
    predictions = _by_example(model.predict(rows.input_fn, size), rows)
    evaluation = self._task.write_predictions(folder, rows, predictions)
    if evaluation:
      evaluation.results["global_step"] = model.global_step
      self._write_results(rows.suffix, evaluation)
      self._task.report(folder, [evaluation], record)

  def _write_results(self, suffix, evaluation):
    stem = os.path.join(self._settings.output_dir, f"eval_results{suffix}")
    run_record.write_results(stem, evaluation.results, evaluation.details)


def _float32_bytes(tensors):
  return 4 * sum(math.prod(tensor.shape) for tensor in tensors)


def _with(input_fn, **changes):
  """An `input_fn` whose params are changed."""
  return lambda params: input_fn({**params, **changes})


def _collect_losses(rows, losses):
  """Yields the rows, and appends the loss that each has to a list."""
  for row in rows:
    if "batch_loss" in row:
      losses.append(row.pop("batch_loss"))
    yield row


def _by_example(rows: Iterator[dict], row_set: RowSet) -> Iterator[list[dict]]:
  """Yields the rows of each example as a list."""
  counts = row_set.rows_per_example
  for count in itertools.repeat(1) if counts is None else counts:
    group = list(itertools.islice(rows, count))
    if not group and counts is None:
      return
    if len(group) != count:
      raise ValueError(f"{row_set.name}: rows are missing at the end")
    yield group


def find_weights() -> tuple[str | None, str | None]:
  """The initial checkpoint of a run that the flags describe, and its folder.

  A run that does not train uses the model in --output_dir, by default.
  """
  init_checkpoint, output_dir = FLAGS.init_checkpoint, FLAGS.output_dir
  if not FLAGS.do_train:
    init_checkpoint = model_folder.initial_weights(output_dir, init_checkpoint)
  return init_checkpoint, model_folder.weights_folder(
    output_dir, init_checkpoint
  )


# Checks.


def check_init_path(init_checkpoint: str | None) -> None:
  """Raises UserError unless a checkpoint, if one is wanted, exists."""
  if init_checkpoint is None:
    return
  if not init_checkpoint:
    raise UserError("--init_checkpoint is empty; pass a path, or omit it")
  checkpoints.find_checkpoint(init_checkpoint)


def check_init_checkpoint(
  config: modeling.BertConfig,
  head_shapes: Mapping[str, list[int]],
  init_checkpoint: str | None,
) -> bool:
  """Raises UserError unless a checkpoint, if there is one, fits the model.

  Returns:
    Whether it has the task's own variables, `head_shapes`, too.
  """
  if init_checkpoint is None:
    return False
  wanted = {**modeling.variable_shapes(config), **head_shapes}
  optional = {*head_shapes, *checkpoints.POOLER}
  weights = checkpoints.load_weights(init_checkpoint, wanted, optional)
  skipped = weights.verify().skipped
  if not skipped.isdisjoint(checkpoints.POOLER):
    logging.warning("%s has no pooler; it starts from random", weights.prefix)
  return skipped.isdisjoint(head_shapes)


def check_output_dir(
  shapes: Mapping[str, list[int]], output_dir: str, do_train: bool
) -> bool:
  """Raises UserError if an output folder holds another model.

  Returns:
    Whether it holds a valid checkpoint of a training of the variables `shapes`.
  """
  common_flags.check_output_folder(output_dir)
  release = os.path.join(output_dir, checkpoints.RELEASE_NAME)
  newest = checkpoints.latest_valid(output_dir)
  if not newest:
    if do_train and checkpoints.exists(release):
      raise UserError(
        f"--output_dir={output_dir} holds a model, {release}, which training "
        f"would overwrite; pass another folder"
      )
    return False
  for name, shape in shapes.items():
    found = newest.shapes.get(name)
    if found != shape:
      difference = f"has shape {found}, expected {shape}"
      raise UserError(
        f"--output_dir={output_dir} holds another model: {name} "
        f"{'is missing' if found is None else difference}; pass another folder"
      )
  return True


def check_batch_sizes(settings: Settings) -> None:
  """Raises UserError unless batches can be divided among the devices."""
  evaluates = settings.do_eval or settings.evaluates_in_training
  micro_batches = settings.gradient_accumulation_steps
  for name, is_used, parts in (
    ("train_batch_size", settings.do_train, micro_batches),
    ("eval_batch_size", evaluates, 1),
    ("predict_batch_size", "test" in settings.splits, 1),
  ):
    if is_used:
      size = getattr(settings, name)
      estimator.check_batch_size(
        f"--{name}", size, settings.num_replicas, parts
      )


def check_packing(settings: Settings, task: Task) -> None:
  """Raises UserError if --pack_sequences is given but cannot be followed."""
  if not settings.pack_sequences:
    return
  if not task.can_pack:
    raise UserError(
      f"--pack_sequences does not work with {task.name or 'this task'}; omit it"
    )
  if settings.pad_to_max_length is False:
    raise UserError(
      "--pack_sequences fills rows of --max_seq_length, so it excludes "
      "--pad_to_max_length=false; omit one"
    )
