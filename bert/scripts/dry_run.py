"""What a training would take, measured with a few steps; for --dry_run."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent import futures

import numpy as np
import tensorflow as tf

from bert.engine import devices
from bert.errors import plural
from bert.training import estimator, memory


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a training would take."""

  num_steps: int
  batch_size: int  # rows of a step, on all devices
  num_devices: int
  micro_batches: int  # parts that each device divides its rows into
  length: int  # S, positions of a row
  num_parameters: int
  # Bytes at the peak by rows on a device, for two numbers of rows; empty if
  # even the smaller ones do not fit.
  peaks: Mapping[int, int]
  limit: int | None = None  # bytes that the process may have; None if unknown
  peak: int | None = None  # measured bytes; None if it was not measured
  seconds: tuple[float, ...] = ()  # of a few steps; empty if not measured

  @property
  def _row(self):
    """Bytes that each further row takes."""
    few, many = sorted(self.peaks)
    return max(1, (self.peaks[many] - self.peaks[few]) // (many - few))

  def predicted(self, micro_batches: int) -> int:
    """The bytes of a step whose rows each device divides into parts."""
    rows = self.batch_size // self.num_devices // micro_batches
    # The gradients are summed.
    summed = 4 * self.num_parameters if micro_batches > 1 else 0
    few = min(self.peaks)
    return self.peaks[few] + (rows - few) * self._row + summed

  def fits(self, micro_batches: int | None = None) -> bool:
    """Whether the memory is available; True if the limit is unknown."""
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
    """The plan as text, one line for each quantity."""
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
  """The peaks of steps with few rows, by their number; see `Plan`.

  On one CPU, each is measured in a process of its own, which the system may
  end when memory runs out; so `make_model_fn` can be pickled. `features` are
  arrays [8 * devices, ...] of a batch of full length, and `most` is the number
  of rows on each device in training.
  """
  strategy = config.strategy or tf.distribute.get_strategy()

  def peak(count):
    size = count * strategy.num_replicas_in_sync
    batch = {name: value[:size] for name, value in features.items()}
    return _peak(make_model_fn, config, batch, devices.is_one_cpu(strategy))

  # The peak of one row is often that of the update, not that of activations.
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
  """The peak of this process in a training step of a batch [B, ...]."""
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
