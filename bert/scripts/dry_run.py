"""Estimates memory and time of a training from a few steps, for --dry_run."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import multiprocessing
import tempfile
from collections.abc import Callable, Mapping
from concurrent import futures

import numpy as np
import tensorflow as tf
from absl import logging

from bert.engine import devices
from bert.errors import plural
from bert.scripts.experiment import Experiment
from bert.scripts.rows import check_rows, make_rows
from bert.scripts.training_run import (
  make_update,
  model_fn_maker,
  train_input_fn,
  with_params,
)
from bert.training import estimator, memory


@dataclasses.dataclass(frozen=True)
class Estimate:
  """The estimated memory and time of a training."""

  num_steps: int
  batch_size: int  # rows of a step, on all devices
  num_devices: int
  micro_batches: int  # parts that each device computes in turn
  length: int  # S, positions of a row
  num_parameters: int
  # Peak memory in bytes by rows per device, for two numbers of rows; empty if
  # even the smaller one does not fit.
  peaks: Mapping[int, int]
  limit: int | None = None  # bytes available to the process; None if unknown
  peak: int | None = None  # measured bytes; None if it was not measured
  seconds: tuple[float, ...] = ()  # of a few steps; empty if not measured

  @property
  def _row(self):
    """Bytes per additional row."""
    few, many = sorted(self.peaks)
    return max(1, (self.peaks[many] - self.peaks[few]) // (many - few))

  def predicted(self, micro_batches: int) -> int:
    """The peak in bytes of a step with `micro_batches` parts per device."""
    rows = self.batch_size // self.num_devices // micro_batches
    # The gradients are summed.
    summed = 4 * self.num_parameters if micro_batches > 1 else 0
    few = min(self.peaks)
    return self.peaks[few] + (rows - few) * self._row + summed

  def fits(self, micro_batches: int | None = None) -> bool:
    """Whether the memory suffices, or its limit is unknown."""
    if self.limit is None:
      return True
    parts = micro_batches or self.micro_batches
    return bool(self.peaks) and self.predicted(parts) <= self.limit

  def _remedy(self):
    rows = self.batch_size // self.num_devices
    for parts in range(1, rows + 1):
      if rows % parts == 0 and self.fits(parts):
        return (
          f"Pass --gradient_accumulation_steps={parts} "
          f"({_gigabytes(self.predicted(parts))}) or --gradient_checkpointing."
        )
    return "Try --gradient_checkpointing, or choose a smaller model."

  def lines(self) -> list[str]:
    """The estimate as text, one line per quantity."""
    lines = [
      f"parameters     {self.num_parameters:,}",
      f"steps          {self.num_steps:,} of {plural(self.batch_size, 'row')}",
    ]
    if self.peaks:
      rows = self.batch_size // self.num_devices // self.micro_batches
      lines += [
        f"each row       {_gigabytes(self._row)}  ({self.length} positions)",
        f"predicted peak {_gigabytes(self.predicted(self.micro_batches))}  "
        f"({plural(rows, 'row')} at a time)",
      ]
    if self.peak is not None:
      lines.append(f"measured peak  {_gigabytes(self.peak)}")
    if self.limit is None:
      lines.append("available      unknown, so the batch may not fit")
    else:
      lines.append(f"available      {_gigabytes(self.limit)}")
    if self.seconds:
      step = sorted(self.seconds)[len(self.seconds) // 2]
      total = _duration(step * self.num_steps)
      lines.append(
        f"time           {step:.3g} s a step, {total} without evaluations"
      )
    if not self.fits():
      lines.append(f"This batch does not fit. {self._remedy()}")
    return lines


def peaks_of_rows(
  make_model_fn: Callable[[], estimator.ModelFn],
  config: estimator.RunConfig,
  features: Mapping[str, np.ndarray],
  most: int,
) -> dict[int, int]:
  """The peak memory of steps with few rows, by their number; see `Estimate`.

  On one CPU, each peak is measured in a separate process, which the system may
  kill when memory runs out, so `make_model_fn` must be picklable. `features`
  are arrays [8 * devices, ...] of a batch of full length, and `most` is the
  number of rows per device in training.
  """
  strategy = config.strategy or tf.distribute.get_strategy()

  def peak(count):
    size = count * strategy.num_replicas_in_sync
    batch = {name: value[:size] for name, value in features.items()}
    return _peak(make_model_fn, config, batch, devices.is_one_cpu(strategy))

  # With one row, the update often sets the peak, not the activations.
  for counts in ((8, 4), (2, 1)) if most >= 8 else ((2, 1),):
    with contextlib.suppress(
      futures.BrokenExecutor, tf.errors.ResourceExhaustedError
    ):
      return {count: peak(count) for count in counts}
  return {}


def _peak(make_model_fn, config, batch, apart):
  if not apart:
    return step_peak(make_model_fn, config, batch)
  context = multiprocessing.get_context("spawn")
  with futures.ProcessPoolExecutor(1, context) as process:
    return process.submit(step_peak, make_model_fn, config, batch).result()


def step_peak(
  make_model_fn: Callable[[], estimator.ModelFn],
  config: estimator.RunConfig,
  features: Mapping[str, np.ndarray],
) -> int:
  """The peak in bytes of a training step on a batch [B, ...]."""
  memory.reset_peak()
  model = estimator.Estimator(make_model_fn(), config)
  size = len(features["input_ids"])
  model.time_steps(lambda _: tf.data.Dataset.from_tensors(features), size, 0)
  return memory.peak_bytes()


def _gigabytes(size):
  return f"{size / 1e9:.2f} GB"


def _duration(seconds):
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours:,} h {minutes:02d} min"
  return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def print_estimate(experiment: Experiment) -> None:
  """Measures a few training steps, and prints the estimate."""
  logging.info("--dry_run: measuring a few steps, which takes a minute or more")
  with (
    devices.hosts_end_together(experiment.settings.strategy),
    tempfile.TemporaryDirectory() as folder,
  ):
    tried = copy.copy(experiment)
    tried.settings = experiment.settings.changed(output_dir=folder)
    row_sets = make_rows(tried)
    check_rows(tried, row_sets)
    estimate = _measure(tried, row_sets)
  print("\n".join([experiment.name, *estimate.lines()]))


def _measure(experiment, row_sets):
  """The Estimate of a training that writes to a temporary folder."""
  settings, (rows,) = experiment.settings, row_sets["train"]
  process, available = memory.used_bytes(), memory.available_bytes()
  update = make_update(experiment, row_sets)
  make_model_fn = model_fn_maker(experiment, update)
  model = estimator.Estimator(make_model_fn(), settings.run_config())
  input_fn = train_input_fn(experiment, rows)
  padded = with_params(input_fn, pad_to_max_length=True)
  batch = next(iter(padded({"batch_size": 8 * settings.num_replicas})))
  estimate = Estimate(
    num_steps=update.num_train_steps,
    batch_size=settings.train_batch_size,
    num_devices=settings.num_replicas,
    micro_batches=settings.gradient_accumulation_steps,
    length=batch["input_ids"].shape[-1],
    num_parameters=sum(map(math.prod, experiment.shapes.values())),
    peaks=peaks_of_rows(
      make_model_fn,
      settings.run_config(),
      {name: value.numpy() for name, value in batch.items()},
      settings.train_batch_size
      // settings.num_replicas
      // settings.gradient_accumulation_steps,
    ),
    limit=None if available is None else process + available,
  )
  # Either all hosts make a step, or none.
  if not all(devices.exchange(settings.strategy, estimate.fits())):
    if estimate.fits():
      logging.warning("Another host lacks memory, so no step is measured")
    return estimate
  # Measure the peak with a batch of the full length.
  memory.reset_peak()
  earlier = memory.peak_bytes()
  size = settings.train_batch_size
  model.time_steps(padded, size, 0)
  peak = memory.peak_bytes()
  seconds = model.time_steps(input_fn, size, 20)
  # A peak that an earlier task reached cannot be reset.
  peak = peak if peak > earlier else None
  return dataclasses.replace(estimate, seconds=tuple(seconds), peak=peak)
