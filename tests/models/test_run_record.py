"""The record of a run is kept as long as its training continues."""

import json
import math

import pytest

import bert
from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import Flags, table
from bert.models import run_record

TABLE = table(flag_table.MODEL, flag_table.TRAINING)
FLAGS = {"do_train": True, "learning_rate": 1e-3, "log_steps": 5}


def _record(train="a", **flags):
  given = Flags(TABLE, FLAGS).changed(**{"task_name": "MRPC", **flags})
  return run_record.RunRecord(given, {"train": train})


def test_files_are_hashed(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_bytes(b"abc")
  # FIPS 180-2, appendix B.1.
  expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
  assert _record(vocab_file=str(path)).content["data"] == {
    "train": "a",
    "vocab_file": expected,
  }


def test_a_new_training_replaces_the_record_and_others_keep_it(tmp_path):
  folder = str(tmp_path)
  first = _record()
  assert first.keep(folder, True, False) == first.content
  second = _record("b", learning_rate=2e-3)
  for is_training, continues in ((False, False), (False, True)):
    assert second.keep(folder, is_training, continues) == first.content
  assert second.keep(folder, True, False) == second.content
  assert json.loads((tmp_path / "flags.json").read_text()) == second.content


def test_the_record_without_a_training_is_of_the_last_run(tmp_path):
  folder, path = str(tmp_path), tmp_path / "flags.json"
  first, second, training = (
    _record(learning_rate=rate, do_train=rate == 3.0)
    for rate in (1.0, 2.0, 3.0)
  )
  for record in (first, second, training):
    is_training = record == training
    kept = record.keep(folder, is_training, False)
    assert kept == record.content == json.loads(path.read_text())
  # A model that was trained there is used, not trained further.
  assert first.keep(folder, False, False) == training.content


def test_flags_of_a_training_that_continues(tmp_path, caplog):
  folder = str(tmp_path)
  first = _record()
  first.keep(folder, True, False)
  rates = {3: 2e-3, 5: 2e-3, 8: 3e-3}
  for step, rate in rates.items():
    changed = _record(learning_rate=rate, log_steps=7)
    kept = changed.keep(folder, True, True)
    changed.note_changes(folder, kept, step)
    line = caplog.records[-1].getMessage()
    assert line.startswith(f"--learning_rate={rate}: the training in {folder} ")
  assert len(caplog.records) == len(rates)
  assert {**kept, "changes": {}} == first.content
  # At step 5 it was the same again.
  known = {"3": {"learning_rate": 2e-3}, "8": {"learning_rate": 3e-3}}
  assert kept["changes"] == known
  assert run_record.read_record(folder) == kept


def test_changes_of_lost_updates(tmp_path):
  folder, first = str(tmp_path), _record()
  kept = first.keep(folder, True, False)
  for step, rate in [(10, 0.5), (15, 0.25)]:
    _record(learning_rate=rate).note_changes(folder, kept, step)
  # The checkpoints of steps 11 to 15 are lost.
  first.note_changes(folder, kept, 10)
  assert kept["changes"] == {}
  assert run_record.read_record(folder) == kept


def test_a_training_on_another_task_is_an_error(tmp_path):
  _record().keep(str(tmp_path), True, False)
  with pytest.raises(UserError, match="holds a training on MRPC"):
    _record(task_name="RTE").keep(str(tmp_path), True, True)


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("vocab_file", "--vocab_file=.*: .* began with another file; pass"),
    ("spm_model_file", "--spm_model_file=.*: .* another file"),
    ("bert_config_file", None),
    ("init_checkpoint", None),
  ],
)
def test_changed_files_of_a_training(tmp_path, caplog, name, message):
  path = tmp_path / name
  file = path.with_suffix(".index" if name == "init_checkpoint" else "")
  file.write_text("a")
  _record(**{name: str(path)}).keep(str(tmp_path), True, False)
  file.write_text("b")
  record = _record(**{name: str(path)})
  if message:
    with pytest.raises(UserError, match=message):
      record.keep(str(tmp_path), True, True)
  else:
    record.keep(str(tmp_path), True, True)
    assert f"--{name} is not the one that the training in" in caplog.text


def test_another_teacher_is_named(tmp_path, caplog):
  """As after it was trained again, or if there was none before."""
  for before, now in (("a", "b"), (None, "a"), ("a", None), ("a", "a")):
    for teacher, continues in ((before, False), (now, True)):
      record = _record()
      record.content["data"] |= {"teacher": teacher} if teacher else {}
      record.content["flags"]["teacher"] = teacher
      kept = record.keep(str(tmp_path), True, continues)
    for step in (20, 30):
      record.note_changes(str(tmp_path), kept, step)
    changes = {"20": {"teacher": now}} if before != now else {}
    assert kept["changes"] == changes
    is_named = "--teacher is not the one that the training in" in caplog.text
    assert is_named == (before != now)
    caplog.clear()


@pytest.mark.parametrize(
  ("hashes", "flags", "wanted"),
  [
    (("a", "a"), ("x", "y"), None),
    (("a", "b"), ("x", "x"), "=x: the training in .* began with another file"),
    (("a", None), ("x", None), "=None: the training in .* began with x; pass"),
    ((None, "a"), (None, "x"), "=x: the training in .* began with None; pass"),
  ],
)
def test_other_examples_without_labels_are_an_error(
  tmp_path, hashes, flags, wanted
):
  records = [_record(), _record()]
  for record, digest, path in zip(records, hashes, flags, strict=True):
    record.content["data"] |= {"unlabeled_file": digest} if digest else {}
    record.content["flags"]["unlabeled_file"] = path
  records[0].keep(str(tmp_path), True, False)
  if not wanted:
    records[1].check(str(tmp_path))
    return
  with pytest.raises(UserError, match=f"--unlabeled_file{wanted}"):
    records[1].check(str(tmp_path))


def test_another_version_is_named(tmp_path, caplog, monkeypatch):
  caplog.set_level("INFO", "absl")
  _record().keep(str(tmp_path), True, False)
  _record().keep(str(tmp_path), True, True)
  assert not caplog.text
  began = bert.__version__
  monkeypatch.setattr(bert, "__version__", "7.8.9")
  _record().keep(str(tmp_path), True, True)
  (line,) = caplog.messages
  assert line.startswith(f"{tmp_path} holds a run of another version")
  assert line.endswith(f": {began}, and this is 7.8.9")


def test_results_that_are_not_finite(tmp_path):
  results, details = {"loss": math.inf}, {"rows": [{"x": math.nan}, 1.5]}
  run_record.write_results(f"{tmp_path}/eval_results", results, details)
  text = (tmp_path / "eval_results.json").read_text()
  found = json.loads(text, parse_constant=pytest.fail)
  assert found == {"results": {"loss": None}, "rows": [{"x": None}, 1.5]}
  assert (tmp_path / "eval_results.txt").read_text() == "loss = inf\n"


def test_results_have_the_digits_of_float32(tmp_path):
  """As the original writes them, whose metrics are float32."""
  results = {"loss": 1 / 3, "eval_accuracy": 345 / 408, "global_step": 343}
  run_record.write_results(f"{tmp_path}/eval_results", results | {"mse": 1e300})
  assert (tmp_path / "eval_results.txt").read_text() == (
    "eval_accuracy = 0.8455882\nglobal_step = 343\nloss = 0.33333334\n"
    "mse = 1e+300\n"
  )
  found = json.loads((tmp_path / "eval_results.json").read_text())
  assert found["results"]["loss"] == 1 / 3


def test_no_results_without_what_they_are_of(tmp_path, monkeypatch):
  """A process that is killed between two files leaves the one with details."""
  write_file = run_record.files.write_file

  def write_one(*arguments):
    write_file(*arguments)
    raise KeyboardInterrupt

  monkeypatch.setattr(run_record.files, "write_file", write_one)
  stem = str(tmp_path / "eval_results")
  with pytest.raises(KeyboardInterrupt):
    run_record.write_results(stem, {"f1": 0.5}, {"predictions": "p.json"})
  assert [path.name for path in tmp_path.iterdir()] == ["eval_results.json"]
  monkeypatch.undo()
  run_record.write_results(stem, {"f1": 0.5}, {"predictions": "p.json"})
  assert (tmp_path / "eval_results.txt").read_text() == "f1 = 0.5\n"
  content = json.loads((tmp_path / "eval_results.json").read_text())
  assert content == {"results": {"f1": 0.5}, "predictions": "p.json"}
