"""Batches: who shares one, what a fault and a client that leaves change."""

import asyncio
import threading

import pytest

from bert.serving.batching import Batcher, QueueFullError, StoppedError


def run(scenario, answer=None, **options):
  """Runs a scenario with a Batcher; returns its result, and the batches."""
  batches = []

  def compute(items):
    batches.append(list(items))
    return answer(items) if answer else [item.upper() for item in items]

  async def main():
    settings = {"max_batch": 4, "max_length": 50, "max_wait": 0.05}
    settings |= {"max_queue": 100, **options}
    batcher = Batcher(compute, len, **settings)
    batcher.start()
    try:
      return await scenario(batcher)
    finally:
      await batcher.stop()

  return asyncio.run(main()), batches


async def all_of(batcher, *requests):
  return await asyncio.gather(*map(batcher.submit, requests))


def test_requests_share_a_batch():
  answers, batches = run(lambda b: all_of(b, ["a"], ["bb", "c"], ["d"]))
  assert answers == [["A"], ["BB", "C"], ["D"]]
  assert batches == [["a", "c", "d", "bb"]]


def test_a_batch_has_similar_lengths():
  """The oldest is in the next batch, with those nearest to it."""
  texts = ["aaaaa", "b", "cccc", "d", "eeeee", "ff"]
  answers, batches = run(lambda b: all_of(b, texts), max_batch=3)
  assert answers == [[text.upper() for text in texts]]
  assert [sorted(map(len, batch)) for batch in batches] == [
    [4, 5, 5],
    [1, 1, 2],
  ]


def test_a_batch_has_a_length():
  """A text that is longer is computed alone."""
  texts = ["a" * 9, "b" * 3, "c" * 4]
  _, batches = run(lambda b: all_of(b, texts), max_length=8)
  assert batches == [["a" * 9], ["b" * 3, "c" * 4]]


def test_without_batching():
  _, batches = run(lambda b: all_of(b, ["a"], ["b"]), max_batch=1, max_wait=9)
  assert sorted(batches) == [["a"], ["b"]]


def test_a_text_does_not_wait_for_ever():
  answers, batches = run(lambda b: all_of(b, ["a"]), max_wait=0.01)
  assert (answers, batches) == ([["A"]], [["a"]])


def test_a_bad_text_fails_alone():
  def answer(items):
    if "bad" in items:
      raise ValueError("a bad text")
    return list(map(str.upper, items))

  async def scenario(batcher):
    requests = [batcher.submit([text]) for text in ("a", "bad", "c")]
    return await asyncio.gather(*requests, return_exceptions=True)

  (first, error, last), batches = run(scenario, answer)
  assert (first, last) == (["A"], ["C"])
  assert str(error) == "a bad text"
  assert len(batches) == 4  # Together, and then each alone.


def test_a_full_queue_refuses():
  async def scenario(batcher):
    waiting = asyncio.ensure_future(batcher.submit(["a", "b"]))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError, match="the queue holds 2 texts"):
      await batcher.submit(["c", "d"])
    assert await batcher.submit(["c"]) == ["C"]
    return await waiting

  answers, _ = run(scenario, max_queue=3)
  assert answers == ["A", "B"]


def test_a_client_that_leaves_is_not_computed():
  async def scenario(batcher):
    gone = asyncio.ensure_future(batcher.submit(["gone"]))
    stays = asyncio.ensure_future(batcher.submit(["stays"]))
    await asyncio.sleep(0)
    assert len(batcher) == 2
    gone.cancel()
    await asyncio.sleep(0.01)
    assert len(batcher) == 1
    return await stays

  answers, batches = run(scenario, max_wait=0.5)
  assert answers == ["STAYS"]
  assert batches == [["stays"]]


def test_a_missing_answer_fails_alone():
  """Nobody can tell to which text an answer belongs."""

  def answer(items):
    return [item.upper() for item in items if item != "none"]

  async def scenario(batcher):
    requests = [batcher.submit([text]) for text in ("a", "none", "c")]
    found = await asyncio.gather(*requests, return_exceptions=True)
    assert batcher.is_alive()
    return [*found, await batcher.submit(["d"])]

  (first, error, third, last), _ = run(scenario, answer)
  assert (first, third, last) == (["A"], ["C"], ["D"])
  assert str(error) == "0 answers to 1 text"


def test_too_many_answers_fail():
  async def scenario(batcher):
    with pytest.raises(ValueError, match=r"^2 answers to 1 text$"):
      await batcher.submit(["a"])

  run(scenario, lambda items: [*items, "b"])


def test_a_fault_of_its_own_ends_it(caplog):
  """Nobody waits then for an answer that will not come."""
  threads = []

  def answer(items):
    threads.append(threading.current_thread())
    return items

  def fail(size, seconds):
    raise RuntimeError("a full disk")

  async def scenario(batcher):
    assert batcher.is_alive()
    requests = [batcher.submit([text]) for text in ("a", "b")]
    found = await asyncio.wait_for(
      asyncio.gather(*requests, return_exceptions=True), 20
    )
    assert not batcher.is_alive()
    with pytest.raises(StoppedError, match="the model does not answer"):
      await asyncio.wait_for(batcher.submit(["c"]), 20)
    return found

  found, batches = run(scenario, answer, max_batch=1, on_batch=fail)
  assert list(map(type, found)) == [StoppedError] * 2
  assert batches == [["a"]]
  assert "a full disk" in caplog.text
  assert not threads[0].is_alive()
