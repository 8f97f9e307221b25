"""Estimates memory, time and the largest batch of a training.

The prediction of memory counts what a step keeps: the weights, two moments of
Adam for each, the gradients with what their update needs, and the activations,
which `memory.activation_bytes` reads from the graph of the step. The constants
were fitted to measurements on CPUs (`benchmarks/memory_plan.py`).
"""

import dataclasses

from bert.errors import plural

# Copies of the weights that gradients and their update take on average.
_UPDATE_COPIES = 1.5

# Share of the activations in memory at the peak. A backward pass frees them
# while its gradients come.
_ACTIVATIONS_AT_PEAK = 0.8

# What TensorFlow takes beside the tensors of a step.
_RUNTIME_BYTES = 150 * 10**6


@dataclasses.dataclass(frozen=True)
class Memory:
  """Memory of a training step on one device, in bytes.

  Attributes:
    process: of the process before it builds the model.
    weights, trained: of all weights, and of those that are trained.
    row: activations of one row of full length.
    rows: rows that are computed at once.
    is_accumulated: whether gradients of micro-batches are summed.
  """

  process: int
  weights: int
  trained: int
  row: float
  rows: int
  is_accumulated: bool = False

  @property
  def parts(self) -> dict[str, float]:
    """The memory by kind."""
    copies = _UPDATE_COPIES + self.is_accumulated
    return {
      "weights": self.weights,
      "moments": 2 * self.trained,
      "gradients": copies * self.trained,
      "activations": _ACTIVATIONS_AT_PEAK * self.row * self.rows,
      "process": self.process + _RUNTIME_BYTES,
    }

  @property
  def total(self) -> float:
    """The predicted peak."""
    return sum(self.parts.values())

  def largest_rows(self, limit: float) -> int:
    """The largest number of rows at once with a peak below the limit."""
    fixed = self.total - self.parts["activations"]
    return max(0, int((limit - fixed) / (_ACTIVATIONS_AT_PEAK * self.row)))


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a training would take.

  Attributes:
    num_steps: number of steps of the training.
    batch_size: rows of a step, on all devices.
    num_devices: devices that share a batch.
    micro_batches: parts that each device divides its rows into.
    length: S, positions of a row.
    memory: the predicted Memory of a device.
    checkpointed: the same with --gradient_checkpointing.
    limit: bytes that the process may have; None if unknown.
    peak: measured bytes; None if it was not measured.
    seconds: of a few steps; empty if they were not measured.
  """

  num_steps: int
  batch_size: int
  num_devices: int
  micro_batches: int
  length: int
  memory: Memory
  checkpointed: Memory
  limit: int | None = None
  peak: int | None = None
  seconds: tuple[float, ...] = ()

  @property
  def fits(self) -> bool:
    """Whether the memory is available; True if the limit is unknown."""
    return self.limit is None or self.memory.total <= self.limit

  def remedies(self) -> list[str]:
    """The flags that would make the batch fit, each with its memory."""
    if self.fits:
      return []
    options = [([], self.memory)]
    if self.checkpointed != self.memory:  # Else the flag is already given.
      options.append((["--gradient_checkpointing"], self.checkpointed))
    found = []
    for flags, memory in options:
      parts = self._micro_batches(memory)
      if parts is None:
        continue
      rows = self.batch_size // self.num_devices // parts
      memory = dataclasses.replace(memory, rows=rows, is_accumulated=parts > 1)
      if parts != self.micro_batches:
        flags = [*flags, f"--gradient_accumulation_steps={parts}"]
      found.append(f"{' '.join(flags)} ({_gigabytes(memory.total)})")
    return found

  def _micro_batches(self, memory):
    """The smallest number of micro-batches that fits, or None."""
    rows = self.batch_size // self.num_devices
    for parts in range(1, rows + 1):
      part = dataclasses.replace(
        memory, rows=rows // parts, is_accumulated=parts > 1
      )
      if rows % parts == 0 and part.total <= self.limit:
        return parts
    return None

  def lines(self) -> list[str]:
    """The plan as text, one line for each quantity."""
    rows = f"{plural(self.memory.rows, 'row')} of {self.length} positions"
    lines = [
      f"parameters     {self.memory.weights // 4:,}",
      f"steps          {self.num_steps:,} of {plural(self.batch_size, 'row')}",
    ]
    for name, size in self.memory.parts.items():
      note = f"  ({rows})" if name == "activations" else ""
      lines.append(f"{name:14s} {_gigabytes(size)}{note}")
    lines.append(f"predicted peak {_gigabytes(self.memory.total)}")
    if self.peak is not None:
      lines.append(f"measured peak  {_gigabytes(self.peak)}")
    if self.limit is None:
      lines.append("available      unknown, so the batch may not fit")
    else:
      lines.append(f"available      {_gigabytes(self.limit)}")
      largest = self.memory.largest_rows(self.limit)
      largest *= self.num_devices * self.micro_batches
      lines.append(f"largest batch  {plural(largest, 'row')}")
    if self.seconds:
      step = sorted(self.seconds)[len(self.seconds) // 2]
      total = _duration(step * self.num_steps)
      lines.append(
        f"time           {step:.3g} s a step, {total} without evaluations"
      )
    if not self.fits:
      remedies = " or ".join(self.remedies()) or "a smaller model"
      lines.append(f"This batch does not fit. Pass {remedies}.")
    return lines


def _gigabytes(size):
  return f"{size / 1e9:.2f} GB"


def _duration(seconds):
  """Seconds as text, such as 2 h 05 min."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours:,} h {minutes:02d} min"
  return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
