"""The story of every task: check, train, evaluate, predict."""

import functools
import os
from collections.abc import Mapping

import tensorflow as tf
from absl import flags

import modeling
from errors import UserError
from training import checkpoints, common_flags, estimator

FLAGS = flags.FLAGS


def check_init_checkpoint(
  config: modeling.BertConfig,
  heads: Mapping[str, list[int]],
  init_checkpoint: str | None,
) -> bool:
  """Raises ValueError unless a checkpoint to start from fits the model.

  Args:
    config: a BertConfig.
    heads: dict from name to shape of the variables of the task's own, which
      may be missing.
    init_checkpoint: --init_checkpoint, or what stands for it; or None.

  Returns:
    Whether the checkpoint holds these, too.
  """
  if init_checkpoint is None:
    return False
  if not init_checkpoint:
    raise UserError("--init_checkpoint is empty; pass a path, or leave it out")
  checkpoint = checkpoints.Checkpoint(
    checkpoints.find_checkpoint(init_checkpoint)
  ).verify()
  _, fresh, _ = checkpoints.audit(
    checkpoint, {**modeling.variable_shapes(config), **heads}, fresh=heads
  )
  return not fresh


def check_output_dir(
  config: modeling.BertConfig, heads: Mapping[str, list[int]], output_dir: str
) -> bool:
  """Raises ValueError if an output folder holds checkpoints of another model.

  Args:
    config: a BertConfig.
    heads: dict from name to shape of the variables of the task's own.
    output_dir: --output_dir, or a folder in it.

  Returns:
    Whether it holds a whole checkpoint.
  """
  common_flags.check_output_folder(output_dir)
  release = os.path.join(output_dir, checkpoints.RELEASE_NAME)
  newest = checkpoints.newest_whole(output_dir)
  if FLAGS.do_train and not newest and tf.io.gfile.exists(release + ".index"):
    raise UserError(
      f"--output_dir={output_dir} holds a model, {release}, that training "
      f"would overwrite; pass another folder"
    )
  if newest:
    shapes = newest.shapes
    for name, shape in {**modeling.variable_shapes(config), **heads}.items():
      if shapes.get(name) != shape:
        difference = f"it lacks {name}"
        if name in shapes:
          difference = (
            f"{name} has shape {shapes[name]} there, and {shape} here"
          )
        raise UserError(
          f"--output_dir={output_dir} holds another model: {difference}; pass "
          f"another folder"
        )
  return newest is not None


@functools.cache
def strategy() -> tf.distribute.Strategy | None:
  """The one strategy of this process, for the devices that the flags name.

  Raises:
    ValueError: there is no such TPU.
  """
  return estimator.make_strategy(
    FLAGS.use_tpu,
    FLAGS.tpu_name or FLAGS.master,
    FLAGS.tpu_zone,
    FLAGS.gcp_project,
  )


def check_devices() -> None:
  """Raises ValueError unless the devices are there and can share a batch."""
  replicas = strategy().num_replicas_in_sync if strategy() else 1
  if FLAGS.train_batch_size % replicas:
    raise UserError(
      f"--train_batch_size={FLAGS.train_batch_size} cannot be shared out among "
      f"{replicas} devices; pass a multiple of {replicas}"
    )


def run_config(output_dir: str, seed: int) -> estimator.RunConfig:
  """The RunConfig that the flags describe, for one folder and seed."""
  pad = FLAGS.pad_to_max_length
  return estimator.RunConfig(
    model_dir=output_dir,
    seed=seed,
    save_checkpoints_steps=FLAGS.save_checkpoints_steps,
    keep_checkpoint_max=FLAGS.keep_checkpoint_max,
    log_steps=FLAGS.log_steps,
    strategy=strategy(),
    pad_to_max_length=FLAGS.use_tpu if pad is None else pad,
  )
