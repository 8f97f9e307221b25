"""The best checkpoint is the best, wherever the run was killed."""

import json
import os

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
import toy_model

from bert.data import files
from bert.models import checkpoints
from bert.training import best_checkpoint

NAN = float("nan")


def _finish(folder, values, metric="score", patience=None):
  """A BestCheckpoint after evaluations at 10, 20, ...; what `add` returned."""
  os.makedirs(folder, exist_ok=True)
  kept = best_checkpoint.BestCheckpoint(str(folder), metric, patience)
  reasons = []
  for step, value in enumerate(values, 1):
    weights = {"weight": np.float32(step)}
    reasons.append(kept.add(10 * step, {metric: value}, weights))
  return kept, reasons


def _history(folder):
  return json.loads((folder / "best.json").read_text())


@pytest.mark.parametrize(
  ("values", "patience", "expected"),
  [
    ([1, 2, 3], 1, [False, False, False]),
    ([3, 2], 1, [False, True]),
    # The same value again is nothing new.
    ([3, 3, 3], 2, [False, False, True]),
    ([1, 0, 0, 2, 0, 0, 0], 3, [False] * 6 + [True]),
    ([1, 0, 0, 0, 0], None, [False] * 5),
    ([NAN, NAN], 2, [False, True]),
    ([1, NAN, NAN], 2, [False, False, True]),
    ([NAN, 1, 0], 2, [False, False, False]),
    ([float("inf"), 1], 1, [True, False]),
  ],
)
def test_patience(tmp_path, values, patience, expected):
  kept, reasons = _finish(tmp_path, values, patience=patience)
  assert [bool(reason) for reason in reasons] == expected
  assert kept.stop_reason == reasons[-1]


@hypothesis.settings(max_examples=20)
@hypothesis.given(
  values=st.lists(st.floats(-3, 3) | st.just(NAN), min_size=1, max_size=5),
  metric=st.sampled_from(["score", "eval_loss", "mse"]),
)
def test_the_best_is_on_disk(tmp_path_factory, values, metric):
  folder = tmp_path_factory.mktemp("best")
  kept, _ = _finish(folder, values, metric)
  numbers = [None if np.isnan(v) else v for v in values]
  history = _history(folder)
  assert history["metric"] == metric
  assert history["evaluations"] == [
    [10 * step, value] for step, value in enumerate(numbers, 1)
  ]
  if all(number is None for number in numbers):
    assert kept.checkpoint is history["best_step"] is None
    assert os.listdir(folder) == ["best.json"]
    return
  extreme = (np.nanmax if metric == "score" else np.nanmin)(values)
  step = 1 + values.index(extreme)
  assert (kept.best_step, kept.best_value) == (10 * step, extreme)
  assert (history["best_step"], history["best_value"]) == (10 * step, extreme)
  written = checkpoints.Checkpoint(kept.checkpoint)
  assert written["global_step"] == 10 * step
  assert written["weight"] == step


def _training_checkpoint(folder, step):
  checkpoints.write_checkpoint(
    str(folder / f"model.ckpt-{step}"), {"global_step": np.int64(step)}
  )


def test_a_history_outlives_its_process(tmp_path):
  before, _ = _finish(tmp_path, [2, NAN, 1], patience=2)
  _training_checkpoint(tmp_path, 30)
  after = best_checkpoint.BestCheckpoint(str(tmp_path), "score", 2)
  assert (
    after.evaluations == before.evaluations == [(10, 2), (20, None), (30, 1)]
  )
  assert (after.best_step, after.best_value) == (10, 2)
  assert after.checkpoint == before.checkpoint
  assert after.stop_reason
  known = filter(after.has_evaluated, (10, 20, 25, 30, 40))
  assert list(known) == [10, 20, 30]
  assert not best_checkpoint.BestCheckpoint(
    str(tmp_path), "score", 3
  ).stop_reason


def test_what_lies_ahead_is_dropped(tmp_path):
  _finish(tmp_path, [2, 1, 1], patience=2)
  _training_checkpoint(tmp_path, 20)
  kept = best_checkpoint.BestCheckpoint(str(tmp_path), "score", 2)
  assert kept.evaluations == [(10, 2), (20, 1)]
  assert kept.best_step == 10
  assert not kept.stop_reason
  kept.add(15, {"score": 3}, {"weight": np.float32(7)})
  assert kept.evaluations == [(10, 2), (15, 3)]
  assert checkpoints.Checkpoint(kept.checkpoint)["weight"] == 7


def test_a_damaged_training_checkpoint_does_not_count(tmp_path):
  """An evaluation is repeated if the training resumes before it."""
  _finish(tmp_path, [2, 1, 1], patience=2)
  _training_checkpoint(tmp_path, 20)
  _training_checkpoint(tmp_path, 30)
  (tmp_path / "model.ckpt-30.data-00000-of-00001").write_bytes(b"")
  kept = best_checkpoint.BestCheckpoint(str(tmp_path), "score", 2)
  assert kept.evaluations == [(10, 2), (20, 1)]
  assert kept.stop_reason is None


def test_a_best_that_lies_ahead_gives_way_to_the_next(tmp_path):
  _finish(tmp_path, [2, 1, 3], patience=2)
  _training_checkpoint(tmp_path, 20)
  kept = best_checkpoint.BestCheckpoint(str(tmp_path), "score", 1)
  assert kept.evaluations == [(10, 2), (20, 1)]
  assert kept.checkpoint is None
  # Weights of step 10 are there no more, so there is no stopping yet.
  assert not kept.stop_reason
  assert not kept.add(30, {"score": 0}, {"weight": np.float32(7)})
  assert kept.best_step == _history(tmp_path)["best_step"] == 30
  assert checkpoints.Checkpoint(kept.checkpoint)["weight"] == 7


def test_a_run_without_training_checkpoints_starts_anew(tmp_path):
  _finish(tmp_path, [2, 1])
  # Nor does it matter what the run before was judged by.
  kept = best_checkpoint.BestCheckpoint(str(tmp_path), "loss", 1)
  assert kept.evaluations == []
  assert kept.checkpoint is None
  assert not kept.stop_reason


def test_a_history_by_another_metric_does_not_count(tmp_path):
  _finish(tmp_path, [2, 1], "eval_score")
  _training_checkpoint(tmp_path, 20)
  assert best_checkpoint.BestCheckpoint(str(tmp_path), "score").best_value == 2
  kept = best_checkpoint.BestCheckpoint(str(tmp_path), "accuracy")
  assert (kept.evaluations, kept.checkpoint) == ([], None)


def _run(folder, patience=1):
  """What a script does: train, keep the best, use it, evaluate.

  The weight is 1, 3, 6, 10 or nearly so after each update, and 3 is aimed at.
  """
  model, _ = toy_model.toy(
    folder, target=3.0, noise=0.01, keep_checkpoint_max=2
  )
  kept = best_checkpoint.BestCheckpoint(str(folder), "score", patience)
  dev = toy_model.input_fn_of([1, 2, 3])

  def evaluate(step):
    if kept.has_evaluated(step):
      return kept.stop_reason
    return kept.add(step, model.evaluate(dev, 2), model.weights)

  if not kept.stop_reason:
    model.train(toy_model.TRAIN, 2, 4, evaluate, eval_steps=1)
  model.use(kept.checkpoint)
  return kept, model.evaluate(dev, 2)


def _content(folder):
  return {
    name: (folder / name).read_bytes()
    for name in os.listdir(folder)
    if "tfevents" not in name
  }


class _Killed(BaseException):
  """Nothing catches it, and nothing is cleaned up after it."""


def _kill_at(monkeypatch, at):
  """Lets change number `at` to a file name, and all later, fail."""
  count = 0

  def mortal(change):
    def wrapped(*args, **kwargs):
      nonlocal count
      count += 1
      if count > at:
        raise _Killed
      return change(*args, **kwargs)

    return wrapped

  for name in ("rename", "remove"):
    monkeypatch.setattr(tf.io.gfile, name, mortal(getattr(tf.io.gfile, name)))
    monkeypatch.setattr(files, name, mortal(getattr(files, name)))
  return lambda: count


def test_killed_anywhere_ends_the_same(tmp_path, monkeypatch):
  with monkeypatch.context() as patch:
    changes = _kill_at(patch, 10**9)
    kept, results = _run(tmp_path / "whole")
  # The third evaluation is the first in vain.
  assert [step for step, _ in kept.evaluations] == [1, 2, 3]
  assert kept.best_step == results["global_step"] == 2
  assert abs(results["eval_score"]) < 0.1
  expected = _content(tmp_path / "whole")
  names = {"best.json", "best_model.ckpt.index", "model.ckpt-3.index"}
  assert names <= set(expected)
  assert "model.ckpt-1.index" not in expected
  for at in range(0, changes(), 3):
    folder = tmp_path / str(at)
    with monkeypatch.context() as patch:
      _kill_at(patch, at)
      with pytest.raises(_Killed):
        _run(folder)
    assert _run(folder)[1] == results
    assert _content(folder) == expected, at


def test_a_repeated_command_changes_nothing(tmp_path):
  _run(tmp_path)
  before = _content(tmp_path)
  _, results = _run(tmp_path)
  assert results["global_step"] == 2
  assert _content(tmp_path) == before
  # More patience lets it go on to the end.
  kept, _ = _run(tmp_path, patience=10)
  assert [step for step, _ in kept.evaluations] == [1, 2, 3, 4]
  assert kept.best_step == 2


def test_without_a_history_no_weights_are_the_best(tmp_path):
  folder = str(tmp_path)
  _finish(tmp_path, [1, 2], patience=1)
  _training_checkpoint(tmp_path, 20)
  (tmp_path / "best.json").unlink()
  assert checkpoints.best_checkpoint(folder) is None
  # The weights are there still, and no run takes them for its own.
  assert checkpoints.Checkpoint(f"{folder}/best_model.ckpt")["weight"] == 2
  again = best_checkpoint.BestCheckpoint(folder, "accuracy", 1)
  assert again.evaluations == []
  assert again.checkpoint is None
  assert not again.stop_reason
