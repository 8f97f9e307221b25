"""Combines the texts of several requests into batches.

batcher = Batcher(model.answer, length_of, max_batch=32, max_length=20_000,
                  max_wait=0.005, max_queue=256)
await batcher.submit([texts])  # [answer]
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent import futures

from absl import logging

from bert.errors import plural


class QueueFullError(Exception):
  """More texts are waiting than the queue holds."""


class StoppedError(Exception):
  """A Batcher has ended."""


class _Waiting:
  def __init__(self, item, length):
    self.item = item
    self.length = length
    self.arrival = time.monotonic()
    self.future = asyncio.get_running_loop().create_future()


class Batcher:
  """Answers batches one after another, in a thread of its own.

  A batch is formed when `max_batch` texts are waiting, or when the oldest has
  waited for `max_wait` seconds. It contains the oldest and the texts nearest to
  it in length, so that it needs little padding. A batch cannot be interrupted,
  so the sum of the lengths is limited to `max_length`, too.

  Args:
    answer: answers a list of items; returns the list of answers.
    length: returns the length of an item.
    max_queue: number of items that may wait.
    on_batch: called with the size of each batch, and the seconds it took.
  """

  def __init__(
    self,
    answer: Callable[[Sequence], list],
    length: Callable[[object], int],
    max_batch: int,
    max_length: int,
    max_wait: float,
    max_queue: int,
    on_batch: Callable[[int, float], object] = lambda size, seconds: None,
  ):
    self._answer = answer
    self._length = length
    self._max_batch = max_batch
    self._max_length = max_length
    self._max_wait = max_wait
    self._max_queue = max_queue
    self._on_batch = on_batch
    self._waiting = []
    self._arrived = asyncio.Event()
    self._thread = futures.ThreadPoolExecutor(1)
    self._task = None

  def __len__(self) -> int:
    """Number of items that are waiting."""
    return len(self._waiting)

  def start(self) -> None:
    """Starts to answer, in the running event loop."""
    self._task = asyncio.create_task(self._run())

  def is_alive(self) -> bool:
    return self._task is not None and not self._task.done()

  async def stop(self) -> None:
    """Ends after the current batch."""
    self._task.cancel()
    try:
      with contextlib.suppress(asyncio.CancelledError):
        await self._task
    finally:
      self._thread.shutdown()

  async def submit(self, items: Sequence) -> list:
    """The answers to items; raises what `answer` raises for one of them."""
    if not self.is_alive():
      raise StoppedError("the model does not answer")
    if len(self._waiting) + len(items) > self._max_queue:
      raise QueueFullError(
        f"the queue holds {plural(len(self._waiting), 'text')}; try again later"
      )
    new = [_Waiting(item, self._length(item)) for item in items]
    self._waiting += new
    self._arrived.set()
    try:
      return await asyncio.gather(*(waiting.future for waiting in new))
    finally:
      for waiting in new:
        waiting.future.cancel()
      self._waiting = [w for w in self._waiting if not w.future.done()]

  async def _run(self):
    batch = []
    try:
      while True:
        batch = await self._next_batch()
        await self._answer_batch(batch)
    except Exception:
      logging.exception("No more texts are answered")
      error = StoppedError("the model does not answer")
      for waiting in [*batch, *self._waiting]:
        if not waiting.future.done():
          waiting.future.set_exception(error)

  async def _answer_batch(self, batch):
    start = time.monotonic()
    answers = await self._compute([waiting.item for waiting in batch])
    self._on_batch(len(batch), time.monotonic() - start)
    for waiting, answer in zip(batch, answers, strict=True):
      if waiting.future.done():
        continue
      if isinstance(answer, Exception):
        waiting.future.set_exception(answer)
      else:
        waiting.future.set_result(answer)

  async def _next_batch(self):
    """Waits for items, and removes those of a batch from the queue."""
    while True:
      self._arrived.clear()
      rest = None
      if self._waiting:
        rest = self._waiting[0].arrival + self._max_wait - time.monotonic()
        if len(self._waiting) >= self._max_batch or rest <= 0:
          break
      with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(self._arrived.wait(), rest)
    oldest = self._waiting[0]
    nearest = sorted(
      self._waiting[1:], key=lambda w: abs(w.length - oldest.length)
    )
    batch, length = [oldest], oldest.length
    for waiting in nearest[: self._max_batch - 1]:
      length += waiting.length
      if length > self._max_length:
        break
      batch.append(waiting)
    self._waiting = [w for w in self._waiting if w not in batch]
    return batch

  async def _compute(self, items):
    """The answer to each item, or the exception that it raises."""
    loop = asyncio.get_running_loop()
    try:
      answers = await loop.run_in_executor(self._thread, self._answer, items)
      # It is unknown which text an answer belongs to.
      if len(answers) != len(items):
        raise ValueError(
          f"{plural(len(answers), 'answer')} to {plural(len(items), 'text')}"
        )
      return answers
    except Exception as error:
      if len(items) == 1:
        return [error]
    # One bad text must not fail the others.
    return [answer for item in items for answer in await self._compute([item])]
