"""The settings of a run, derived from its flags, and checks of them."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterable

import tensorflow as tf
from absl import logging

import optimization
from bert import runtimes
from bert.data import text_files
from bert.engine import devices
from bert.errors import UserError, plural
from bert.flags import flag_table
from bert.flags.values import Flags, table
from bert.models import checkpoints, run_record, run_weights
from bert.models.resolve import Model, Overrides, resolve
from bert.training import estimator

# Value of --use_xla -> `RunConfig.use_xla`.
_USE_XLA = {"auto": None, "true": True, "false": False}

# Defaults of flags that a script does not have.
_SHARED = table(flag_table.fine_tuning("", ""))


class RunSettings:
  """The values of a run's flags, as attributes, and what follows from them.

  `splits` are the splits to read, of "train", "dev" and "test"; `changes`
  override flags. The attribute `flags` holds all flags with these changes.
  """

  num_train_steps = num_warmup_steps = None  # See `num_steps`.
  calibrate = False

  def __init__(self, flags: Flags, splits: Iterable[str], **changes):
    self.flags = flags.changed(**changes)
    vars(self).update({name: row.default for name, row in _SHARED.items()})
    vars(self).update(self.flags.values)
    self.splits = tuple(splits)
    self.do_train = "train" in self.splits
    evaluates = flag_table.asks_to_evaluate(flags)
    self.evaluates_in_training = self.do_train and evaluates
    self._cluster = devices.read_cluster(os.environ.get("TF_CONFIG"))
    self._kind = devices.choose(
      flags.distribution_strategy, flags.use_tpu, self._cluster
    )
    self.use_tpu = self._kind == "tpu"
    if self.do_train and (threads := self.threads or self._earlier_threads()):
      devices.use_threads(threads)
    if self._kind in ("multi_worker", "tpu"):
      self.strategy  # noqa: B018  Hosts must meet before one locks a folder.

  def _earlier_threads(self):
    """The number of threads of the training that continues, or None."""
    began = run_record.recorded_flags(self.output_dir)
    threads = began.get("threads") if began.get("do_train") else None
    if threads not in (None, runtimes.num_cores()):
      logging.info(
        "--threads=%d by default, as the training in %s began",
        threads,
        self.output_dir,
      )
    return threads

  def changed(self, **changes) -> RunSettings:
    """The same settings with other values of flags."""
    copied = copy.copy(self)
    vars(copied).update(changes)
    return copied

  @functools.cached_property
  def strategy(self) -> tf.distribute.Strategy | None:
    """The strategy for the devices; the first access loads TensorFlow."""
    return devices.make_strategy(self._kind, self._cluster, self.worker_timeout)

  @property
  def num_replicas(self) -> int:
    """Number of devices that share a batch."""
    return getattr(self.strategy, "num_replicas_in_sync", 1)

  def run_config(self) -> estimator.RunConfig:
    """The RunConfig of the Estimator."""
    compiles = _USE_XLA[self.use_xla]
    if self.runtime != runtimes.TENSORFLOW:
      compiles = False  # XLA cannot compile calls of another runtime.
    return estimator.RunConfig(
      model_dir=self.output_dir,
      seed=self.seed,
      save_checkpoints_steps=self.save_checkpoints_steps,
      keep_checkpoint_max=self.keep_checkpoint_max,
      log_steps=self.log_steps,
      strategy=self.strategy,
      pad_to_max_length=bool(self.use_tpu or self.pad_to_max_length),
      rounds_lengths=bool(compiles) and self.pad_to_max_length is None,
      iterations_per_loop=self.iterations_per_loop
      or (1000 if self.use_tpu else 1),
      use_xla=compiles,
    )

  def check_batch_sizes(self) -> None:
    """Raises UserError unless batches can be divided among the devices."""
    evaluates = self.do_eval or self.evaluates_in_training
    for name, is_used, parts in (
      ("train_batch_size", self.do_train, self.gradient_accumulation_steps),
      ("eval_batch_size", evaluates, 1),
      ("predict_batch_size", "test" in self.splits, 1),
    ):
      if is_used:
        size = getattr(self, name)
        devices.check_batch_size(f"--{name}", size, self.num_replicas, parts)

  def num_steps(self, count: int) -> int:
    """Number of updates, with `count` rows or examples in an epoch."""
    if self.num_train_steps is not None:
      return self.num_train_steps
    return int(count / self.train_batch_size * self.num_train_epochs)

  def check_num_steps(self, count: int, counts_rows: bool) -> None:
    """Raises UserError if `count` rows, or examples, do not fill a batch."""
    if self.num_steps(count) < 1:
      unit = "row" if counts_rows else "example"
      parts = self.gradient_accumulation_steps * self.num_replicas
      sizes = range(parts, min(count, self.train_batch_size) + 1, parts)
      sizes = [n for n in sizes if int(count / n * self.num_train_epochs)]
      remedy = f"pass --train_batch_size={sizes[-1]}" if sizes else "add data"
      raise UserError(
        f"--num_train_epochs={self.num_train_epochs} over "
        f"{plural(count, unit)} does not fill a batch of "
        f"--train_batch_size={self.train_batch_size}; {remedy}, or raise the "
        f"number of epochs"
      )

  def layer_rates(self, num_layers: int) -> optimization.LayerRates:
    """The learning rates of the layers of a model."""
    frozen, decay = self.freeze_layers, self.layerwise_lr_decay
    if frozen is not None and frozen > num_layers:
      raise UserError(
        f"--freeze_layers={frozen} exceeds the {num_layers} layers of the "
        f"model; lower it"
      )
    return optimization.LayerRates(num_layers, decay, frozen)

  def make_optimization(
    self, num_steps: int, num_layers: int
  ) -> optimization.Optimization:
    """The Optimization that the flags describe."""
    warmup = self.num_warmup_steps
    if warmup is None:
      warmup = int(num_steps * self.warmup_proportion)
    return optimization.Optimization(
      self.learning_rate,
      num_steps,
      warmup,
      self.layer_rates(num_layers),
      optimizer=self.optimizer,
      lr_schedule=self.lr_schedule,
      adam_bias_correction=self.adam_bias_correction,
      weight_decay=self.weight_decay,
      max_grad_norm=self.max_grad_norm,
      gradient_accumulation_steps=self.gradient_accumulation_steps,
      compiles_gradients=self.use_xla == "true"
      and self.num_replicas > 1
      and not self.use_tpu,
    )


def check_devices(flags: Flags) -> bool:
  """Whether to run on a TPU."""
  if not (flags.use_tpu or flags.get("distribution_strategy") == "tpu"):
    return False
  flag = "tpu_name" if flags.tpu_name else "master"
  name = flags[flag] or "local"
  if name != "local":
    raise UserError(
      f"--{flag}={name}: run this command on the virtual machine of the TPU "
      f"with --{flag}=local"
    )
  return True


def check_training(flags: Flags, *runs: str) -> None:
  """Checks the flags of a training, and warns of those without effect."""
  flags.require("output_dir")
  if flags.dry_run:
    flags.require("do_train", value="it; --dry_run estimates a training")
  if flags.do_train:  # The number of devices is not known yet.
    devices.check_batch_size(
      "--train_batch_size",
      flags.train_batch_size,
      micro_batches=flags.gradient_accumulation_steps,
    )
  on_tpu = ["tpu"] if check_devices(flags) else []
  flags.warn_of_unused("data", *runs, *on_tpu)


def check_fine_tuning(
  flags: Flags, questions: Iterable[str], *runs: str
) -> None:
  """Checks the flags of a fine-tuning run, and warns of those it ignores.

  `questions` are the flags that ask a trained model instead; `runs` are further
  uses of flags, see `Flag.used`.
  """
  splits = flag_table.wanted_splits(flags)
  for name in ("runtime", "precision") if flags.do_train else ():
    if flags[name] not in (runtimes.TENSORFLOW, *runtimes.PRECISIONS):
      raise UserError(
        f"--{name}={flags[name]} is for a trained model; omit it, or --do_train"
      )
  runtimes.check_runtime(flags.runtime, flags.precision)
  sample = [] if flags.get("dev_file") else ["sample"]
  taught = ["teacher"] if flags.teacher else []
  check_training(flags, *splits, *sample, *taught, *runs)
  if flags.teacher and flags.unlabeled_file:
    flags.require_file("unlabeled_file")
    flags.refuse_pipes("unlabeled_file", [flags.unlabeled_file])
  flags.require_one("do_train", "do_eval", "do_predict", *questions)


def check_questions(flags: Flags, *names: str) -> None:
  """Checks the flags of a command that asks a model by one of `names`."""
  flags.require("output_dir")
  flags.check_exclusive(*names, "do_train", "do_eval", "do_predict")
  path = flags.get("predict_file")
  if path and path != text_files.STREAM:
    flags.require_file("predict_file")
    name = path.lower().removesuffix(".gz")
    if name.endswith((".csv", ".json", ".jsonl", ".parquet")):
      raise UserError(
        f"--predict_file={path} would be read as lines of text; pass a table "
        f"as --test_file, with --do_predict"
      )
  flags.warn_of_unused()


def engine_options(flags: Flags) -> dict[str, object]:
  """The options of `bert.load` for a command that asks a trained model."""
  options = {"precision": flags.precision, "runtime": flags.runtime}
  runtimes.check_runtime(**options)
  return {"batch_size": flags.predict_batch_size, **options}


def load_model(flags: Flags, needs_tokenizer: bool = True) -> Model:
  """The model that a run starts from or uses, as the flags change it.

  A run that does not train uses the model in --output_dir, by default.
  """
  init_checkpoint, output_dir = flags.init_checkpoint, flags.output_dir
  if not flags.do_train:
    init_checkpoint = run_weights.trained_weights(output_dir, init_checkpoint)
  if init_checkpoint is not None:
    checkpoints.find_checkpoint(init_checkpoint)
  return load_model_of(
    flags, output_dir, init_checkpoint, flags.do_train, needs_tokenizer
  )


def load_model_of(
  flags: Flags,
  output_dir: str,
  init_checkpoint: str | None,
  do_train: bool,
  needs_tokenizer: bool = True,
) -> Model:
  """Like `load_model`, for other folders than those of the flags.

  A run that does not train prefers the weights in `output_dir`, and the
  settings that a training recorded there.
  """
  source = init_checkpoint
  folder = run_weights.weights_folder(output_dir, init_checkpoint)
  if not do_train:
    if not folder:
      raise no_trained_model(output_dir, init_checkpoint)
    is_named = run_weights.own_checkpoint(output_dir, init_checkpoint)
    source = folder if folder == output_dir and not is_named else source
  overrides = Overrides.of(flags.given)
  model = resolve(source, overrides, do_train, needs_tokenizer)
  return model._replace(folder=folder or "", init_checkpoint=init_checkpoint)


def no_trained_model(output_dir: str, init_checkpoint: str | None) -> UserError:
  """The error of an evaluation or prediction without a trained model."""
  if graph := checkpoints.find_graph(output_dir):
    return checkpoints.no_weights(graph)
  folders = f"--output_dir={output_dir}"
  if init_checkpoint:
    folders += f" or --init_checkpoint={init_checkpoint}"
  return UserError(
    f"no trained model in {folders}; add --do_train, or pass the model as "
    f"--init_checkpoint"
  )
