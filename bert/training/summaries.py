"""The progress of a run: a bar, log lines, and curves for TensorBoard.

All curves of a run are in the event files of one folder. Their tags are `loss`
and `learning_rate` in training, `dev/eval_accuracy` in evaluations; TensorBoard
groups them by the part before the slash. Each process writes one file. If a
killed run and its successor wrote the same step, the later value counts.
"""

from __future__ import annotations

import collections
import glob
import itertools
import json
import os
import time
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from bert.data import files, sequences
from bert.data.progress import bar
from bert.errors import UserError

# Log lines show the last value of these, not the mean.
_CURRENT = ("learning rate", "loss scale", "skipped steps")

# The rows of a batch whose loss or gradient is not finite.
FAILED_BATCH = "failed_batch.json"

# Seconds between writes to a remote folder. In gs://, each write uploads the
# whole file.
_WAIT_SECONDS = 120.0


class Summaries:
  """Writes scalars for TensorBoard; the first write creates the event file."""

  def __init__(self, folder: str):
    self._folder = folder
    self._writer = None
    self._waiting = []
    self._flushed = time.monotonic()

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """Writes one number of a step for each tag, to a local folder at once."""
    if not files.writes(self._folder):
      return
    self._waiting.append((step, scalars))
    waited = time.monotonic() - self._flushed
    if not files.is_remote(self._folder) or waited >= _WAIT_SECONDS:
      self.flush()

  def flush(self) -> None:
    """Writes the pending numbers to disk."""
    self._flushed = time.monotonic()
    if not self._waiting:
      return
    if self._writer is None:
      # The queue is written only at the end of the context below.
      self._writer = tf.summary.create_file_writer(
        self._folder, max_queue=2**30, flush_millis=2**30
      )
    # `tf.summary.scalar` does the same, but needs TensorBoard.
    metadata = tf.compat.v1.SummaryMetadata(
      plugin_data={"plugin_name": "scalars"}
    )
    with self._writer.as_default():
      for step, scalars in self._waiting:
        for tag, value in scalars.items():
          tf.summary.write(
            tag.replace(" ", "_"), np.float32(value), step, metadata
          )
    self._waiting = []


def read_scalars(
  folder: str | os.PathLike,
) -> dict[str, list[tuple[int, float]]]:
  """The curves in a folder's event files: (step, value) pairs by tag.

  The last value of a step counts. Values of other programs are ignored if they
  are not numbers.
  """
  events = itertools.chain.from_iterable(
    map(_read_events, _event_files(folder))
  )
  curves = collections.defaultdict(dict)
  for event in sorted(events, key=lambda event: event.wall_time):
    for value in event.summary.value:
      number = _number(value)
      if number is not None:
        curves[value.tag][event.step] = number
  return {tag: sorted(curve.items()) for tag, curve in curves.items()}


def _number(value):
  if value.HasField("simple_value"):  # TensorFlow 1, and the original.
    return value.simple_value
  if not value.HasField("tensor") or value.tensor.tensor_shape.dim:
    return None
  array = tf.make_ndarray(value.tensor)
  is_number = np.issubdtype(array.dtype, np.number)
  return float(array) if is_number and array.ndim == 0 else None


def delete_curves(folder: str) -> None:
  """Deletes a folder's event files."""
  for path in _event_files(folder):
    files.remove(path)


def _event_files(folder):
  folder = glob.escape(os.fspath(folder))
  return files.find(os.path.join(folder, "events.out.tfevents.*"))


def _read_events(path):
  try:
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
      yield tf.compat.v1.Event.FromString(record)
  except tf.errors.DataLossError:
    # A killed run leaves a part of a record.
    logging.warning("Skipping a damaged record at the end of %s", path)


class Progress:
  """The bar, log lines and curves of a training run."""

  def __init__(
    self, step: int, max_steps: int, batch_size: int, summaries: Summaries
  ):
    self._step, self._max_steps = step, max_steps
    self._batch_size, self._summaries = batch_size, summaries
    self._results = []
    self._window = {}  # The values that the last line averaged.
    self._is_warm = False  # Whether a step has been made, and compiled.
    self._timed_steps = 0
    self._bar = bar(total=max_steps, initial=step, unit="step")
    self.restart_clock()

  def restart_clock(self) -> None:
    """Restarts the clock for the rate in the next line."""
    self._since = time.monotonic()
    self._timed_steps = 0

  def add(self, results: Mapping[str, tf.Tensor]) -> int:
    """Keeps the scalars of some steps, each [steps]; returns their number."""
    self._results.append(results)
    count = results["loss"].shape[0]
    self._timed_steps += count
    self._bar.update(count)
    if not self._is_warm:
      results["loss"].numpy()  # Waits for the step to end.
      seconds = time.monotonic() - self._since
      logging.info("First step, with compilation: %.1f seconds", seconds)
      self._is_warm = True
      self.restart_clock()
    return count

  def close(self) -> None:
    """Removes the bar, and writes the pending numbers."""
    self._bar.close()
    self._summaries.flush()

  def first_failure(self) -> dict[str, float] | None:
    """The scalars and `step` of the first step that failed, or None.

    A step fails if its loss or gradient norm is not finite: then all weights
    are NaN. With a loss scale, a step with such a gradient norm is skipped.
    """
    values = self._values()
    if not values:
      return None
    is_finite = np.isfinite(values["loss"])
    if "loss scale" not in values:
      is_finite &= np.isfinite(values.get("gradient norm", 0.0))
    failed = np.flatnonzero(~is_finite)
    if not failed.size:
      return None
    scalars = {name: float(v[failed[0]]) for name, v in values.items()}
    return {"step": self._step + 1 + int(failed[0]), **scalars}

  def _values(self):
    """Dict of the scalars since the last line, [steps]."""
    names = self._results[-1] if self._results else ()
    return {
      name: np.concatenate([results[name] for results in self._results])
      for name in names
    }

  def log(self) -> None:
    """Logs one line for the steps since the last line, if there are any."""
    if not self._results:
      return
    # Reading a loss waits for its step to end, so read it before the clock.
    values = self._values()
    count = len(values["loss"])
    # The final line has fewer steps, so their mean alone would be noisy.
    size = max(count, *map(len, self._window.values()), 0)
    for name, new in values.items():
      earlier = self._window.get(name, new[:0])
      self._window[name] = np.concatenate([earlier, new])[-size:]
    scalars = {name: _summarize(name, self._window[name]) for name in values}
    seconds = time.monotonic() - self._since
    if scalars.get("loss scale", 1) < 1:
      raise UserError(
        f"the gradients after step {self._step} are too large for float16; "
        f"pass --precision=bfloat16 or float32, or lower --learning_rate"
      )
    shown = f"loss {scalars['loss']:.4f}"
    logged = "".join(
      f", {name} {value:.3g}"
      for name, value in scalars.items()
      if name != "loss"
    )
    rate = ""
    if self._timed_steps:
      scalars["examples/s"] = self._timed_steps * self._batch_size / seconds
      rate = f", {scalars['examples/s']:.1f} examples/s"
    self._step += count
    self._results = []
    self._bar.clear()
    logging.info(
      "step %d/%d: %s", self._step, self._max_steps, shown + logged + rate
    )
    # The next step draws it, so that a short run shows no bar.
    self._bar.set_postfix_str(shown + rate, refresh=False)
    self._summaries.write(self._step, scalars)
    self.restart_clock()


def _summarize(name, values):
  """The number for several steps in a log line."""
  if name in _CURRENT:
    return values[-1]
  finite = values[np.isfinite(values)]  # Skipped steps have no gradient.
  return np.mean(finite if finite.size and name != "loss" else values)


def write_failed_batch(
  folder: str, scalars: Mapping[str, float], features: Mapping[str, np.ndarray]
) -> str:
  """Writes FAILED_BATCH, with one line per row, and returns its path."""
  rows = [
    json.dumps({name: _plain(value.tolist()) for name, value in row.items()})
    for row in sequences.rows_of(
      {n: np.asarray(x) for n, x in features.items()}
    )
  ]
  plain_scalars = {name: _plain(value) for name, value in scalars.items()}
  text = json.dumps(plain_scalars, indent=0).removesuffix("\n}")
  path = os.path.join(folder, FAILED_BATCH)
  text += ',\n"rows": [\n' + ",\n".join(rows) + "\n]\n}\n"
  files.write_file(path, text)
  return path


def _plain(value):
  """Numbers, nested as they are, with strings for NaN, which JSON lacks."""
  if isinstance(value, list):
    return list(map(_plain, value))
  return value if np.isfinite(value) else str(value)
