"""Checkpoints are written while the training continues, and hold their step."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import toy_model

import optimization
from bert import variables
from bert.errors import UserError
from bert.models import checkpoints
from bert.training import memory
from bert.training.checkpoint_writer import CheckpointWriter


def read(folder, step):
  checkpoint = checkpoints.Checkpoint(f"{folder}/model.ckpt-{step}")
  return {name: checkpoint[name] for name in checkpoint.shapes}


@pytest.fixture(autouse=True)
def enough_memory(monkeypatch):
  monkeypatch.setattr(memory, "spare_host_bytes", lambda: 2**40)


def test_a_snapshot_stays(tmp_path, monkeypatch):
  """Also if compiled programs update variables in place."""
  may_write, write = threading.Event(), checkpoints.write_checkpoint

  def write_late(prefix, tensors):
    assert may_write.wait(60)
    write(prefix, tensors)

  monkeypatch.setattr(checkpoints, "write_checkpoint", write_late)
  with variables.VariableStore() as store:
    # The first is large enough for a compiled update, the others are not.
    for name, shape in (("w", [2**15, 1]), ("x", [3, 3]), ("bias", [3])):
      variables.get_variable(name, shape)

    @tf.function(autograph=False)
    def update():
      optimizer = optimization.AdamWeightDecayOptimizer(0.1, is_compiled=True)
      weights = store.trainable()
      optimizer.apply_gradients((tf.ones(v.shape), v) for v in weights)
      variables.global_step().assign_add(1)

    with CheckpointWriter(str(tmp_path), 1) as writer:
      update()
      expected = {name: value.numpy() for name, value in store.items()}
      writer.save(1, dict(store.items()))
      for _ in range(3):
        update()
      assert not np.any(store["w"] == expected["w"])
      may_write.set()
  found = read(tmp_path, 1)
  assert found.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
  ("spare", "is_written"), [(0, True), (7999, True), (8000, False)]
)
def test_with_little_memory_it_is_written_at_once(
  tmp_path, monkeypatch, spare, is_written
):
  may_write, write = threading.Event(), checkpoints.write_checkpoint

  def write_late(prefix, tensors):
    assert is_written or may_write.wait(60)
    write(prefix, tensors)

  monkeypatch.setattr(memory, "spare_host_bytes", lambda: spare)
  monkeypatch.setattr(checkpoints, "write_checkpoint", write_late)
  with CheckpointWriter(str(tmp_path), 1) as writer:
    writer.save(1, {"w": tf.Variable(tf.zeros([1000]))})
    prefixes = checkpoints.training_checkpoints(str(tmp_path))
    assert bool(prefixes) == is_written
    may_write.set()


def test_an_evaluation_finds_it_written(tmp_path, monkeypatch):
  write = checkpoints.write_checkpoint

  def write_slowly(prefix, tensors):
    time.sleep(0.1)
    write(prefix, tensors)

  monkeypatch.setattr(checkpoints, "write_checkpoint", write_slowly)
  evaluated = []

  def evaluate(step):
    assert read(tmp_path, step)["global_step"] == step
    evaluated.append(step)

  model, _ = toy_model.toy(tmp_path)
  model.train(toy_model.TRAIN, 2, 5, evaluate, 2)
  assert evaluated == [2, 4, 5]


def test_a_failure_ends_the_training_at_the_next_line(tmp_path, monkeypatch):
  def fail(*args):
    raise UserError("the disk is full")

  class WithoutThread(concurrent.futures.Executor):
    def __init__(self, *_):
      pass

    def submit(self, function, *args):
      future = concurrent.futures.Future()
      with pytest.raises(UserError) as error:
        function(*args)
      future.set_exception(error.value)
      return future

  lines, check = [], CheckpointWriter.check

  def counted_check(writer):
    lines.append(True)
    check(writer)

  monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", WithoutThread)
  monkeypatch.setattr(checkpoints, "write_checkpoint", fail)
  monkeypatch.setattr(CheckpointWriter, "check", counted_check)
  model, _ = toy_model.toy(tmp_path, save_checkpoints_steps=3, log_steps=2)
  with pytest.raises(UserError, match="the disk is full"):
    model.train(toy_model.TRAIN, 2, 100)
  assert len(lines) == 3  # After updates 2, 3, which is saved, and 4.


def test_a_failure_at_the_end_is_reported(tmp_path):
  (tmp_path / "file").write_text("")
  with (
    pytest.raises(UserError, match=r"file/model.ckpt-1 cannot be written"),
    CheckpointWriter(str(tmp_path / "file"), 1) as writer,
  ):
    writer.save(1, {"w": tf.Variable(1.0)})


@pytest.mark.parametrize("is_fault", [False, True])
def test_an_error_of_the_training_is_not_replaced(
  tmp_path, caplog, monkeypatch, is_fault
):
  (tmp_path / "file").write_text("")

  def fail(*_):
    raise RuntimeError(f"{tmp_path}/file/model.ckpt-1 cannot be written")

  if is_fault:
    monkeypatch.setattr(checkpoints, "write_checkpoint", fail)

  def train():
    with CheckpointWriter(str(tmp_path / "file"), 1) as writer:
      writer.save(1, {"w": tf.Variable(1.0)})
      raise ZeroDivisionError

  with pytest.raises(ZeroDivisionError):
    train()
  (message,) = caplog.messages
  assert message.startswith(f"{tmp_path}/file/model.ckpt-1 cannot be written")


def test_it_waits_for_the_last_one(tmp_path, caplog):
  with (
    caplog.at_level("INFO", "absl"),
    CheckpointWriter(str(tmp_path), 1) as writer,
  ):
    writer.save(1, {"w": tf.Variable(1.0)})
    writer.save(2, {"w": tf.Variable(2.0)})
  assert read(tmp_path, 2) == {"w": 2.0}
  assert caplog.messages == [
    f"Saved {tmp_path}/model.ckpt-{step}" for step in (1, 2)
  ]
  newest = f"{tmp_path}/model.ckpt-2"
  assert checkpoints.training_checkpoints(str(tmp_path)) == [newest]
