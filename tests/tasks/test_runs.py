"""The models that a command of run_classifier.py trains or uses."""

import json

import pytest

import run_classifier
from bert.contract.task import RowSet
from bert.errors import UserError
from bert.flags.values import Flags
from bert.models import task_file
from bert.flags.flag_table import wanted_splits
from bert.tasks.classification import glue, label_types, runs
from bert.tasks.classification.task import ClassifierSettings


# The flag of a run that reads a split.
ASKS = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}


def request(splits=("test",), table=None, **changes):
  """The Flags of a command that predicts STS-B."""
  values = {"task_name": ["STS-B"], "data_dir": "data", "output_dir": "none"}
  values |= {"seed": 1, **changes, **(table or {})}
  values |= {ASKS[split]: True for split in splits}
  return Flags(run_classifier.FLAGS, values)


def write_model(folder, label_type, is_pair=False):
  """Writes what a model folder has beside the weights of a classifier."""
  settings = ClassifierSettings(is_pair=is_pair).with_label_type(label_type)
  content = task_file.content("classification", settings)
  (folder / "task.json").write_text(content)


def make_task(tmp_path, **changes):
  """The task of the only run, which begins with the model in `tmp_path`."""
  asked = request(init_checkpoint=str(tmp_path), **changes)
  (run,) = runs.make_runs(asked)
  return runs.make_task(asked, run, None)


def test_all_is_expanded_beside_other_tasks():
  asked = request(task_name=["XNLI", "All", "mrpc"], init_checkpoint="model")
  names = [run.task for run in runs.make_runs(asked)]
  assert names == ["xnli", *glue.GLUE_TASKS]


def test_a_model_is_trained_before_another_task_uses_it():
  asked = request(task_name=["AX", "MNLI"], splits=("train", "test"))
  names = [run.task for run in runs.make_runs(asked)]
  assert names == ["mnli", "ax"]


def test_a_model_of_numbers_keeps_its_scale_in_another_task(tmp_path):
  write_model(tmp_path, label_types.Regression(250.0, 30.0))
  settings = make_task(tmp_path).settings
  assert (settings.mean, settings.deviation) == (250.0, 30.0)


@pytest.mark.parametrize(
  ("numbers", "mean", "deviation"),
  [(["0.1"] * 10, 0.1, 1.0), (["1", "5", "5", "1"], 3.0, 2.0)],
)
def test_the_scale_of_numbers(tmp_path, numbers, mean, deviation):
  path = tmp_path / "rows.tsv"
  rows = [f"text\t{number}\n" for number in numbers]
  path.write_text("text\tlabel\n" + "".join(rows))
  table = {"train_file": str(path), "dev_file": str(path)}
  changes = {"task_name": ["custom"], "splits": ("train",), "table": table}
  changes |= {"regression": True, "output_dir": str(tmp_path / "out")}
  settings = make_task(tmp_path, **changes).settings
  assert settings.mean == pytest.approx(mean)
  assert settings.deviation == deviation


def test_a_trained_model_recalls_how_its_table_was_read(tmp_path):
  write_model(tmp_path, label_types.Classification("ab"))
  flags = {"task_name": "custom", "encoding": "cp1252", "seed": 3}
  (tmp_path / "flags.json").write_text(json.dumps({"flags": flags}))
  assert runs.recall_flags("none", str(tmp_path)) == {
    "task_name": ["custom"],
    "encoding": "cp1252",
  }


def write_table(path, start, stop):
  """A table with the rows "text START" and so on; returns its flags."""
  rows = [f"text {i}\t{'yes' if i % 2 else 'no'}\n" for i in range(start, stop)]
  path.write_text("text\tlabel\n" + "".join(rows))
  return {"train_file": str(path), "dev_file": None, "text_b_column": None}


def train(asked):
  """The task of the first run, after it has read its examples; and these."""
  task = runs.make_task(asked, runs.make_runs(asked)[0], None)
  splits = wanted_splits(asked)
  found = {split: task.examples(split)[""] for split in splits}
  task.log_data({})
  return task, found


@pytest.fixture
def split_model(tmp_path):
  """A trained model in `tmp_path`: its table, and its development set."""
  table = write_table(tmp_path / "rows.tsv", 0, 40)
  task, found = train(
    request(
      task_name=["custom"],
      splits=("train", "dev"),
      output_dir=str(tmp_path / "none"),
      seed=7,
      table={**table, "dev_fraction": 0.25},
    )
  )
  assert len(found["dev"]) == 10
  content = task_file.content(task.kind, task.settings)
  (tmp_path / "task.json").write_text(content)
  return table, found["dev"]


def texts(examples):
  return [example.text_a for example in examples]


@pytest.mark.parametrize(("seed", "dev_fraction"), [(7, 0.3), (1, 0.25)])
def test_rows_that_were_trained_on_are_not_evaluated(
  tmp_path, split_model, seed, dev_fraction, caplog
):
  table, dev = split_model
  changes = {"task_name": ["custom"], "splits": ("dev",), "seed": seed}
  changes["table"] = table | {"dev_fraction": dev_fraction}
  task = make_task(tmp_path, **changes)
  assert texts(task.examples("dev")[""]) == texts(dev)
  # No row of another table was trained on.
  with open(table["train_file"], "a") as file:
    file.write("new\tyes\n")
  task = make_task(tmp_path, **changes)
  assert texts(task.examples("dev")[""]) == [*texts(dev), "new"]
  assert "may have been trained on" not in caplog.text


def next_request(tmp_path, table, **changes):
  """A training that begins with the model in `tmp_path`."""
  return request(
    **{
      "task_name": ["custom"],
      "splits": ("train", "dev"),
      "output_dir": str(tmp_path / "next"),
      "init_checkpoint": str(tmp_path),
      "table": {**table, "dev_fraction": 0.25},
      **changes,
    }
  )


def test_a_later_training_holds_out_the_same_rows(tmp_path, split_model):
  _, dev = split_model
  table = write_table(tmp_path / "more.tsv", 0, 80)
  path = tmp_path / "more.tsv"
  # A label is corrected, and a program changed white space.
  path.write_text(path.read_text().replace("text 3\tyes", "text  3 \tno"))
  _, found = train(next_request(tmp_path, table, seed=2))
  old, new = found["dev"][:10], found["dev"][10:]
  assert [" ".join(text.split()) for text in texts(old)] == texts(dev)
  # A quarter of the new rows is held out, too.
  assert len(new) == 10
  assert all(int(text.split()[1]) >= 40 for text in texts(new))
  assert len(found["train"]) == 60
  assert not {*texts(found["train"])} & {*texts(found["dev"])}


def test_rows_stay_where_they_were_through_all_ancestors(tmp_path, split_model):
  table, dev = split_model
  others = write_table(tmp_path / "others.tsv", 100, 140)
  task, _ = train(next_request(tmp_path, others))
  content = task_file.content(task.kind, task.settings)
  (tmp_path / "task.json").write_text(content)
  _, found = train(next_request(tmp_path, table, seed=9))
  assert texts(found["dev"]) == texts(dev)


def test_a_training_on_seen_rows_needs_a_development_file(
  tmp_path, split_model, caplog
):
  table, dev = split_model
  path = tmp_path / "rows.tsv"
  header, *rows = path.read_text().splitlines()
  seen = [row for row in rows if row.split("\t")[0] not in texts(dev)]
  path.write_text("\n".join([header, *seen]) + "\n")
  asked = next_request(tmp_path, table)
  with pytest.raises(UserError, match=r"no row for evaluation .* --dev_file$"):
    train(asked)
  _, found = train(next_request(tmp_path, table, splits=("train",)))
  assert len(found["train"]) == 30
  # The user may still pass them.
  asked = next_request(tmp_path, {**table, "dev_file": str(path)})
  task, found = train(asked)
  sets = {split: [RowSet(split, "", found[split], 0)] for split in found}
  task.log_data(sets)
  assert "was trained on 30 of the 30 development examples" in caplog.text


@pytest.mark.parametrize(
  ("start", "forgets"), [(40, True), (15, False), (0, False)]
)
def test_a_training_on_new_rows_alone_may_forget_the_old_ones(
  tmp_path, split_model, caplog, start, forgets
):
  table = write_table(tmp_path / "later.tsv", start, 80)
  train(next_request(tmp_path, table))
  found = "later.tsv: 30 of the 30 rows that the initial model was trained on"
  assert (found in caplog.text) == forgets
  assert ("put old and new rows into one table" in caplog.text) == forgets


def test_it_may_be_unknown_what_a_model_was_trained_on(
  tmp_path, split_model, caplog
):
  table, _ = split_model
  write_model(tmp_path, label_types.Classification(["no", "yes"]))
  for splits in (("dev",), ("train", "dev")):
    caplog.clear()
    train(next_request(tmp_path, table, splits=splits))
    assert "may have been trained on some of the rows" in caplog.text
  caplog.clear()
  (tmp_path / "task.json").unlink()  # As a release.
  train(next_request(tmp_path, table))
  assert "may have been trained on" not in caplog.text


def test_ids_do_not_change_the_rows_to_evaluate(tmp_path, split_model):
  table, dev = split_model
  changes = {"task_name": ["custom"], "splits": ("dev",), "seed": 1}
  # The texts of these rows are unique.
  changes["table"] = table | {"id_column": "text"}
  task = make_task(tmp_path, **changes)
  found = [example.guid for example in task.examples("dev")[""]]
  assert found == texts(dev)


@pytest.mark.parametrize(
  ("labels", "fault"),
  [
    ([0, 1], "the label 0 is not a string"),
    (["a", "b", "b"], "the label 'b' occurs 2 times"),
  ],
)
def test_a_processor_returns_distinct_texts(
  tmp_path, monkeypatch, labels, fault
):
  processor = glue.PROCESSORS["mrpc"]
  monkeypatch.setattr(processor, "get_labels", lambda self: labels)
  with pytest.raises(
    ValueError, match=f"^get_labels of MrpcProcessor: {fault}$"
  ):
    make_task(tmp_path, task_name=["MRPC"], splits=("train",))


@pytest.mark.parametrize(
  ("name", "is_pair", "message"),
  [
    ("MRPC", True, None),
    ("MRPC", False, "the dev set has pairs of texts, .* on single texts; pass"),
    ("MRPC", None, None),
    ("SST-2", True, "the dev set has single texts, .* on pairs of texts; pass"),
    ("SST-2", False, None),
  ],
)
def test_a_model_of_another_number_of_texts(tmp_path, name, is_pair, message):
  write_model(tmp_path, label_types.Classification(["0", "1"]), is_pair)
  text = "1\t1\t1\tA\tB\n"  # A row of either task.
  (tmp_path / "dev.tsv").write_text(f"header\n{text}")
  changes = {"splits": ("dev",), "data_dir": str(tmp_path)}
  task = make_task(tmp_path, task_name=[name], **changes)
  if message:
    with pytest.raises(UserError, match=f"--task_name={name}: {message} "):
      task.examples("dev")
  else:
    assert len(task.examples("dev")[""]) == 1
