"""Writes the checkpoints of a training in a thread, while training continues.

The thread writes a snapshot of the values, which is in main memory. Writing
some GB to a network folder can take a minute.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from bert.models import checkpoints
from bert.training import memory


class CheckpointWriter:
  """A context manager that writes one checkpoint after another.

  At its end, all checkpoints are complete, also after an exception.
  """

  def __init__(self, model_dir: str, keep_max: int):
    self._model_dir = model_dir
    self._keep_max = keep_max
    self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
    self._written = None

  def __enter__(self) -> CheckpointWriter:
    return self

  def __exit__(self, exception_type, *exc_info):
    self._thread.shutdown()  # Waits for the last checkpoint.
    try:
      self.wait()
    except Exception as error:
      if exception_type is None:
        raise
      logging.error("%s", error)

  def save(self, step: int, tensors: Mapping[str, tf.Variable]) -> None:
    """Starts to write `model.ckpt-STEP` once the previous one is written.

    The variables may change as soon as this returns.
    """
    self.wait()
    with tf.device("CPU:0"):
      snapshot = {name: tf.identity(value) for name, value in tensors.items()}
    size = sum(x.shape.num_elements() * x.dtype.size for x in snapshot.values())
    self._written = self._thread.submit(self._write, step, snapshot)
    # A CPU copies the values only when updates change them, and the memory
    # may not suffice for that.
    if memory.spare_host_bytes() < 2 * size:
      self.wait()

  def _write(self, step, snapshot):
    name = f"{checkpoints.TRAINING_NAME}-{step}"
    prefix = os.path.join(self._model_dir, name)
    checkpoints.write_checkpoint(prefix, snapshot)
    checkpoints.record_checkpoints(self._model_dir, self._keep_max, step)
    logging.info("Saved %s", prefix)

  def check(self) -> None:
    """Raises the error of a checkpoint that could not be written."""
    if self._written and self._written.done():
      self.wait()

  def wait(self) -> None:
    """Waits until the pending checkpoint, if any, is written."""
    written, self._written = self._written, None
    if written:
      written.result()
