"""Experiments that are refused, stopped and continued."""

import contextlib
import dataclasses
import json
import pathlib

import pytest
import tensorflow as tf
import tiny_task

import modeling
from bert import variables
from bert.contract.task import Evaluation, Settings, Task
from bert.data import folder_lock, records
from bert.engine import devices
from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import parse, table
from bert.models import checkpoints, task_file
from bert.models.resolve import Model
from bert.scripts import dry_run, experiment, script
from bert.scripts.run_one import run_one
from bert.scripts.settings import RunSettings
from bert.training import estimator, summaries

CONFIG = modeling.BertConfig(
  vocab_size=20,
  hidden_size=8,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=16,
  max_position_embeddings=16,
)


TABLE = table(flag_table.fine_tuning("", ""))


def settings(folder, splits, **changes):
  """Settings of a tiny run."""
  values = {
    "output_dir": folder,
    "do_eval": "dev" in splits,
    "train_batch_size": 4,
    "eval_batch_size": 3,
    "predict_batch_size": 3,
    "learning_rate": 1e-3,
    "num_train_epochs": 2.0,
    "save_checkpoints_steps": 100,
    "log_steps": 2,
    **changes,
  }
  return RunSettings(parse(TABLE, values), splits)


def run(task, folder, *splits, **changes):
  model = Model(CONFIG, None, "")
  asked = settings(folder, splits, **changes)
  return run_one(experiment.Experiment(task, model, asked))


class Tagging(Task):
  """A number for each word. Examples are lists of word ids."""

  name = "tagging"
  metrics = ("score",)

  def __init__(self, examples):
    super().__init__()
    self._examples = examples
    self.predicted = []

  def examples(self, split):
    return {"": self._examples}

  def head_shapes(self, config):
    return {"toy/kernel": [config.hidden_size, 1]}

  def feature_spec(self, is_training):
    names = (*records.SEQUENCES, "label_ids")
    return {name: records.sequence_feature(16) for name in names}

  def features(self, examples, is_training):
    for ids in examples:
      padding = [0] * (16 - len(ids))
      yield [
        {
          "input_ids": ids + padding,
          "input_mask": [1] * len(ids) + padding,
          "segment_ids": [0] * 16,
          "label_ids": ids + padding,
        }
      ]

  def head(self, ops, bert, features):
    kernel = variables.get_variable(
      "toy/kernel", [CONFIG.hidden_size, 1], modeling.create_initializer()
    )
    return {
      "values": tf.tensordot(bert.get_sequence_output(), kernel, 1)[..., 0]
    }

  def output_axes(self):
    return {"values": (records.POSITION,)}

  def loss(self, outputs, features):
    labels = tf.cast(features["label_ids"], tf.float32)
    return tf.reduce_mean(tf.square(outputs["values"] - labels), axis=1)

  def answer(self, example, predictions):
    return predictions

  def write(self, folder, rows, answers):
    self.predicted = [row for (row,) in answers]


LENGTHS = [2, 9, 4, 4, 16, 3, 5, 2, 7, 11]
TOKENS = [[1 + (i + k) % 19 for k in range(n)] for i, n in enumerate(LENGTHS)]


def test_flags_that_data_replace_are_recorded_as_used(tmp_path):
  @dataclasses.dataclass(frozen=True)
  class Scale(Settings):
    mean: float = 0.0

  class Scaled(Tagging):
    Settings = Scale

    def examples(self, split):
      self.settings = dataclasses.replace(self.settings, mean=2.5)
      return super().examples(split)

  values = {"output_dir": tmp_path, "train_batch_size": 4}
  flags = parse(script.flags_of(Scaled), values)
  asked, model = RunSettings(flags, ("train",)), Model(CONFIG, None, "")
  made = experiment.Experiment(Scaled(TOKENS), model, asked)
  assert made.record.content["flags"]["mean"] == 2.5


def test_a_locked_folder_is_refused_before_data_are_read(tmp_path, monkeypatch):
  @contextlib.contextmanager
  def in_use(folder):
    raise UserError(f"{folder} is in use")
    yield

  def read(split):
    raise AssertionError("the data are read")

  monkeypatch.setattr(folder_lock, "lock_folder", in_use)
  task, model = Tagging(TOKENS), Model(CONFIG, None, "")
  task.examples = task.row_sets = read
  asked = settings(tmp_path, ("train",))
  with pytest.raises(UserError, match="is in use"):
    experiment.Experiment(task, model, asked)


def test_hosts_have_equally_many_rows(tmp_path, monkeypatch):
  monkeypatch.setattr(devices, "exchange", lambda strategy, number: [number, 3])
  message = rf"train\.tf_record has .* \[{len(TOKENS)}, 3\]; .* the same data$"
  with pytest.raises(UserError, match=message):
    run(Tagging(TOKENS), tmp_path, "train")


@pytest.fixture
def peaks(monkeypatch):
  """The peaks of steps with one and two rows, without processes for them."""
  found = {1: 10**8, 2: 2 * 10**8}
  monkeypatch.setattr(dry_run, "peaks_of_rows", lambda *_: found)


@pytest.mark.usefixtures("peaks")
def test_hosts_decide_together_whether_a_plan_is_measured(
  tmp_path, monkeypatch, capsys, caplog
):
  def exchange(strategy, number):
    # The batch does not fit on the second host.
    return [number, number if number == len(TOKENS) else 0]

  monkeypatch.setattr(devices, "exchange", exchange)
  changes = {"dry_run": True, **tiny_task.HEAD_ONLY}
  run(Tagging(TOKENS), tmp_path / "out", "train", **changes)
  printed = capsys.readouterr().out
  assert "predicted peak" in printed
  assert "measured peak" not in printed
  assert "s a step" not in printed
  assert "Another host lacks memory" in caplog.text


@pytest.mark.usefixtures("peaks")
def test_a_plan_for_a_tpu_measures_time_only(tmp_path, monkeypatch, capsys):
  # Less than any model needs. A TPU does not use the memory of its host.
  texts = {"/proc/meminfo": "MemAvailable: 1 kB\n"}
  monkeypatch.setattr(
    pathlib.Path, "read_text", lambda path, *_: texts.get(str(path), "")
  )
  monkeypatch.setattr(
    tf.config, "list_logical_devices", lambda kind: ["a TPU"] * (kind == "TPU")
  )
  changes = {"dry_run": True, **tiny_task.HEAD_ONLY}
  run(Tagging(TOKENS), tmp_path / "out", "train", **changes)
  printed = capsys.readouterr().out
  assert "available      unknown" in printed
  assert "s a step" in printed
  assert "does not fit" not in printed
  assert "measured peak" not in printed


@pytest.mark.parametrize(
  ("splits", "refused"),
  [
    (("test",), "--predict_batch_size=3"),
    (("dev",), "--eval_batch_size=3"),
    (("train",), None),
  ],
)
def test_only_batches_in_use_must_suit_the_devices(tmp_path, splits, refused):
  class TwoDevices:
    num_replicas_in_sync = 2

  asked = settings(tmp_path, splits).changed(strategy=TwoDevices())
  if refused is None:
    asked.check_batch_sizes()
    return
  with pytest.raises(UserError, match=f"{refused} .* multiple of 2"):
    asked.check_batch_sizes()


def test_files_of_an_abandoned_training_do_not_decide_the_task(
  tmp_path, monkeypatch
):
  def stop(*args):
    raise KeyboardInterrupt

  task = Tagging(TOKENS)
  task.kind = "tagging"
  with monkeypatch.context() as patch:
    patch.setattr(estimator.Estimator, "train", stop)
    with pytest.raises(KeyboardInterrupt):
      run(task, tmp_path, "train")
  assert task_file.read(str(tmp_path)) == ("tagging", {"max_seq_length": 128})
  task.kind = ""
  run(task, tmp_path, "train", **tiny_task.HEAD_ONLY)
  assert task_file.read(str(tmp_path))[0] is None
  # A task of no kind, as the pre-training, has no report.
  assert not (tmp_path / "report.html").exists()


def test_a_new_training_forgets_the_best_of_another(tmp_path):
  """Its checkpoints are gone, and the new one may be killed at any time."""
  (tmp_path / "best.json").write_text(
    json.dumps({"metric": "score", "evaluations": [[2, 0.9]]})
  )

  class Killed(Tagging):
    def loss(self, outputs, features):
      assert not (tmp_path / "best.json").exists()
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    run(Killed(TOKENS), tmp_path, "train", "dev", keep_best="score")


def values_of_the_model(folder):
  """What a run that only predicts computes, as lists."""
  task = Tagging(TOKENS)
  run(task, folder, "test")
  return [row["values"].tolist() for row in task.predicted]


def test_the_finished_model_is_used_until_another_is(tmp_path, monkeypatch):
  """A training that is extended, and killed, leaves newer weights."""

  def stop(*args):
    raise KeyboardInterrupt

  changes = {"num_train_epochs": 1.0, **tiny_task.HEAD_ONLY}
  run(Tagging(TOKENS), tmp_path, "train", **changes)
  before = values_of_the_model(tmp_path)
  changes["num_train_epochs"] = 3.0
  with monkeypatch.context() as patch:
    patch.setattr(checkpoints, "write_release", stop)
    with pytest.raises(KeyboardInterrupt):
      run(Tagging(TOKENS), tmp_path, "train", **changes)
  assert values_of_the_model(tmp_path) == before


def test_a_release_beside_a_training_is_not_its_model(tmp_path):
  """The original is often trained in the folder of a release."""
  changes = {"num_train_epochs": 1.0, **tiny_task.HEAD_ONLY}
  run(Tagging(TOKENS), tmp_path, "train", **changes)
  before = values_of_the_model(tmp_path)
  prefix = str(tmp_path / "bert_model.ckpt")
  release = checkpoints.Checkpoint(prefix)
  weights = {n: release[n] * 2 for n in release.shapes if n != "toy/kernel"}
  checkpoints.write_checkpoint(prefix, weights)
  assert values_of_the_model(tmp_path) == before


def test_an_evaluation_that_may_change_the_model_is_told(tmp_path):
  """The run before was killed in its last evaluation."""
  calls = []

  class Told(Tagging):
    def before_updates(self, folder):
      calls.append("told")

    def score(self, rows, answers):
      list(answers)
      calls.append("scored")
      if len(calls) == 3:
        raise KeyboardInterrupt
      return Evaluation({"score": 1.0})

  changes = {"keep_best": "score", "do_eval": False, "num_train_epochs": 1.0}
  changes |= tiny_task.HEAD_ONLY
  with pytest.raises(KeyboardInterrupt):
    run(Told(TOKENS), tmp_path, "train", "dev", **changes)
  assert calls == ["told", "told", "scored"]
  run(Told(TOKENS), tmp_path, "train", "dev", **changes)
  assert calls[3:] == ["told", "scored"]


def test_a_new_training_has_curves_of_its_own(tmp_path):
  curves = summaries.Summaries(str(tmp_path))
  curves.write(99, {"loss": 7.0})
  (tmp_path / "failed_batch.json").write_text("{}")
  run(Tagging(TOKENS), tmp_path, "train", **tiny_task.HEAD_ONLY)
  found = summaries.read_scalars(tmp_path)["loss"]
  assert found
  assert 99 not in dict(found)
  assert not (tmp_path / "failed_batch.json").exists()
  # One that continues adds to them.
  changes = {"num_train_epochs": 3.0, **tiny_task.HEAD_ONLY}
  run(Tagging(TOKENS), tmp_path, "train", **changes)
  later = summaries.read_scalars(tmp_path)["loss"]
  assert later[: len(found)] == found
  assert len(later) > len(found)


def test_a_refused_training_forgets_nothing(tmp_path):
  class Refused(Tagging):
    def before_updates(self, folder):
      raise UserError("a file is needed")

  history = {"metric": "score", "evaluations": [[2, 0.9]]}
  (tmp_path / "best.json").write_text(json.dumps(history))
  with pytest.raises(UserError, match="a file is needed"):
    run(Refused(TOKENS), tmp_path, "train")
  assert (tmp_path / "best.json").exists()


def test_a_training_whose_last_update_diverges(tmp_path):
  """Its loss is that before the update, so it is finite."""
  changes = {"num_train_epochs": 0.5, "warmup_proportion": 0.0}
  with pytest.raises(
    UserError,
    match=r"the model of step 1 gives values that are infinite or not a "
    r"number; its training diverged: lower --learning_rate",
  ):
    run(Tagging(TOKENS), tmp_path, "train", **changes, learning_rate=1e30)
  assert not (tmp_path / "bert_model.ckpt.index").exists()
