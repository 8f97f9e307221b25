"""Values of the flags that all training scripts share, and what follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf
from absl import flags

import optimization
from bert.errors import UserError, plural
from bert.training import (
  common_flags,
  devices,
  estimator,
  flag_checks,
  model_flags,
  model_folder,
  start_checks,
)

FLAGS = flags.FLAGS

# Modules whose flags are not ours.
_LIBRARIES = ("absl.", "tensorflow.")

# Values of --use_xla as `RunConfig` takes them.
_USE_XLA = {"auto": None, "true": True, "false": False}


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
  iterations_per_loop: int | None = None
  dry_run: bool = False
  teacher: str | None = None
  distill_weight: float = 0.5
  distill_temperature: float = 2.0
  unlabeled_file: str | None = None
  calibrate: bool = False
  use_xla: str = "auto"

  @classmethod
  def from_flags(cls, splits: Iterable[str], **changes) -> Settings:
    """Settings from the flags; `changes` override values.

    flags.json records the values that are used.

    Raises:
      UserError: there is no such TPU, or it lacks the precision.
    """
    flag_checks.check_device_flags()
    names = {field.name for field in dataclasses.fields(cls)} & set(FLAGS)
    fields = {name: FLAGS[name].value for name in names}
    fields |= {k: v for k, v in changes.items() if k in names}
    kind = common_flags.device_kind()
    fields["use_tpu"] = kind == "tpu"
    fields["make_strategy"] = functools.partial(
      devices.make_strategy,
      kind,
      common_flags.tpu(),
      common_flags.cluster(),
      FLAGS.worker_timeout,
    )
    recorded = _flag_values() | changes
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

  def run_config(self) -> estimator.RunConfig:
    """The RunConfig of the Estimator."""
    compiles = _USE_XLA[self.use_xla]
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
    micro_batches = self.gradient_accumulation_steps
    for name, is_used, parts in (
      ("train_batch_size", self.do_train, micro_batches),
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
      raise UserError(
        f"--num_train_epochs={self.num_train_epochs} over "
        f"{plural(count, unit)} does not fill a batch of "
        f"--train_batch_size={self.train_batch_size}; raise the number of "
        f"epochs or lower the batch size"
      )

  def layer_rates(self, num_layers: int) -> optimization.LayerRates:
    """The learning rates of the layers of a model.

    Raises:
      UserError: the model has fewer layers than are frozen, or the decay is no
        fraction.
    """
    frozen, decay = self.freeze_layers, self.layerwise_lr_decay
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

  def make_optimization(
    self, num_steps: int, num_layers: int
  ) -> optimization.Optimization:
    """The Optimization of a training of that many steps and layers."""
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


def find_weights() -> tuple[str | None, str | None]:
  """The initial checkpoint of a run that the flags describe, and its folder.

  A run that does not train uses the model in --output_dir, by default.

  Raises:
    UserError: such a run has no model.
  """
  init_checkpoint, output_dir = FLAGS.init_checkpoint, FLAGS.output_dir
  if not FLAGS.do_train:
    init_checkpoint = model_folder.initial_weights(output_dir, init_checkpoint)
  start_checks.check_init_path(init_checkpoint)
  folder = model_folder.weights_folder(output_dir, init_checkpoint)
  if not (FLAGS.do_train or folder):
    raise UserError(
      f"no trained model in --output_dir={output_dir}; add --do_train, or pass "
      f"--init_checkpoint"
    )
  return init_checkpoint, folder


def _flag_values() -> dict[str, object]:
  """The project's flags by name, without those of libraries."""
  values = {
    name: FLAGS[name].value
    for name in sorted(FLAGS)
    if not FLAGS.find_module_defining_flag(name).startswith(_LIBRARIES)
  }
  return values | {
    "vocab_file": model_flags.vocab_file(),
    "bert_config_file": model_flags.bert_config_file(),
  }
