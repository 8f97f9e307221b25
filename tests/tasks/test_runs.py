"""The models that a command of run_classifier.py trains or uses."""

import json

import pytest

from bert.errors import UserError
from bert.tasks import glue, runs, tabular
from bert.tasks import labels as label_types
from bert.tasks.classification import ClassifierSettings
from bert.tasks.examples import content_hash
from bert.training import task_file


def request(**changes):
  """The Request of a command that predicts STS-B."""
  values = {
    "task_name": ["STS-B"],
    "splits": ("test",),
    "data_dir": "data",
    "output_dir": "none",
    "init_checkpoint": None,
    "seed": 1,
    "num_seeds": 1,
    "max_seq_length": None,
    "long_text": None,
    "class_weights": "none",
    "xnli_language": "zh",
    "regression": False,
    "multilabel": False,
    "table": {},
  }
  return runs.Request(**values | changes)


def assets_of(label_type, is_pair=False):
  """The files of a classifier, beside its weights."""
  settings = ClassifierSettings(is_pair=is_pair).with_label_type(label_type)
  return {"task.json": task_file.content("classification", settings)}


def make_task(tmp_path, assets, **changes):
  """The task of the only run, with the files of a model."""
  for name, text in assets.items():
    (tmp_path / name).write_text(text)
  asked = request(init_checkpoint=str(tmp_path), **changes)
  (run,) = runs.make_runs(asked)
  return runs.make_task(asked, run, None)


def test_all_is_expanded_beside_other_tasks():
  asked = request(task_name=["XNLI", "All", "mrpc"], init_checkpoint="model")
  names = [run.task for run in runs.make_runs(asked)]
  assert names == ["xnli", *glue.GLUE_TASKS]


def test_a_model_of_numbers_keeps_its_scale_in_another_task(tmp_path):
  scaled = label_types.Regression(250.0, 30.0)
  settings = make_task(tmp_path, assets_of(scaled)).settings
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
  settings = make_task(tmp_path, {}, **changes).settings
  assert settings.mean == pytest.approx(mean)
  assert settings.deviation == deviation


@pytest.fixture
def split_model(tmp_path):
  """A model of the second of two seeds, its table, and its development set."""
  path = tmp_path / "rows.tsv"
  rows = [f"text {i}\t{'yes' if i % 2 else 'no'}\n" for i in range(40)]
  path.write_text("text\tlabel\n" + "".join(rows))
  table = {"train_file": str(path), "dev_file": None, "text_b_column": None}
  trained = tabular.TableProcessor(**table, dev_fraction=0.25, split_seed=7)
  record = {
    "flags": {"seed": 8, "num_seeds": 2, "dev_fraction": 0.25},
    "data": {"train": content_hash(trained.get_train_examples())},
  }
  assets = assets_of(label_types.Classification(["no", "yes"]))
  assets["flags.json"] = json.dumps(record)
  return assets, table, trained.get_dev_examples()


def ids(examples):
  return [example.guid for example in examples]


@pytest.mark.parametrize(
  ("seed", "dev_fraction"), [(7, 0.25), (7, 0.3), (1, 0.25), (8, 0.25)]
)
def test_rows_that_were_trained_on_are_not_evaluated(
  tmp_path, split_model, seed, dev_fraction, caplog
):
  assets, table, dev = split_model
  changes = {"task_name": ["custom"], "splits": ("dev",), "seed": seed}
  changes["table"] = table | {"dev_fraction": dev_fraction}
  task = make_task(tmp_path, assets, **changes)
  assert ids(task.examples("dev")[""]) == ids(dev)
  assert "may have been trained on" not in caplog.text
  # Another table has another development set.
  with open(table["train_file"], "a") as file:
    file.write("new\tyes\n")
  task = make_task(tmp_path, assets, **changes)
  own = tabular.TableProcessor(**changes["table"], split_seed=seed)
  assert ids(task.examples("dev")[""]) == ids(own.get_dev_examples())
  assert "may have been trained on some of the rows" in caplog.text


def test_a_copied_model_may_know_the_rows(tmp_path, split_model, caplog):
  assets, table, _ = split_model
  del assets["flags.json"]  # Which tells the rows that it was trained on.
  changes = {"task_name": ["custom"], "splits": ("dev",), "table": table}
  make_task(tmp_path, assets, **changes).examples("dev")
  assert "may have been trained on some of the rows" in caplog.text


def test_ids_do_not_change_the_rows_to_evaluate(tmp_path, split_model, caplog):
  assets, table, dev = split_model
  changes = {"task_name": ["custom"], "splits": ("dev",), "seed": 1}
  # The texts of these rows are unique.
  changes["table"] = table | {"id_column": "text"}
  task = make_task(tmp_path, assets, **changes)
  assert ids(task.examples("dev")[""]) == [example.text_a for example in dev]
  assert "may have been trained on" not in caplog.text


def test_a_table_with_equal_rows(tmp_path, split_model):
  assets, table, _ = split_model
  # Splits with the same rows for training have the same rows for evaluation,
  # also if rows are equal.
  with open(table["train_file"]) as file:
    header, *rows = file.readlines()
  with open(table["train_file"], "w") as file:
    file.writelines([header, *(row for row in rows for _ in range(2))])
  trained = tabular.TableProcessor(**table, dev_fraction=0.25, split_seed=7)
  record = json.loads(assets["flags.json"])
  record["data"]["train"] = content_hash(trained.get_train_examples())
  assets["flags.json"] = json.dumps(record)
  changes = {"task_name": ["custom"], "splits": ("dev",), "seed": 1}
  task = make_task(tmp_path, assets, **changes, table=table)
  found = task.examples("dev")[""]
  wanted = trained.get_dev_examples()
  assert [e.text_a for e in found] == [e.text_a for e in wanted]


def test_seeds_of_a_split_are_not_negative(tmp_path, split_model):
  assets, table, _ = split_model
  trained = tabular.TableProcessor(**table, dev_fraction=0.25, split_seed=0)
  record = {
    "flags": {"seed": 1, "num_seeds": 5, "dev_fraction": 0.25},
    "data": {"train": content_hash(trained.get_train_examples())},
  }
  changes = {"task_name": ["custom"], "splits": ("dev",), "table": table}
  assets["flags.json"] = json.dumps(record)
  task = make_task(tmp_path, assets, **changes)
  assert ids(task.examples("dev")[""]) == ids(trained.get_dev_examples())
  # Another table matches no seed.
  with open(table["train_file"], "a") as file:
    file.write("new\tyes\n")
  assert make_task(tmp_path, assets, **changes).examples("dev")[""]


@pytest.mark.parametrize(
  "record",
  [
    {"data": []},
    {"data": {"train": "x"}},
    {"data": {"train": "x"}, "flags": [0]},
    *(
      {"data": {"train": "x"}, "flags": {"dev_fraction": 0.5, **flags}}
      for flags in (
        {},
        {"seed": "1"},
        {"seed": 1, "num_seeds": None},
        {"seed": 1, "dev_fraction": "0.5"},
        {"seed": 1, "dev_fraction": -1},
        {"seed": 1, "dev_fraction": float("nan")},
      )
    ),
  ],
)
def test_a_damaged_record_is_one_line(tmp_path, split_model, record):
  assets, table, _ = split_model
  assets["flags.json"] = json.dumps(record)
  changes = {"task_name": ["custom"], "splits": ("dev",), "table": table}
  with pytest.raises(
    UserError, match=r"flags.json is damaged.*; copy it"
  ) as error:
    make_task(tmp_path, assets, **changes)
  assert "\n" not in str(error.value)


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
    UserError, match=f"^get_labels of MrpcProcessor: {fault}; return distinct"
  ):
    make_task(tmp_path, {}, task_name=["MRPC"], splits=("train",))


def test_a_model_of_all_rows_needs_a_development_file(tmp_path, split_model):
  assets, table, _ = split_model
  with_dev_file = table | {"dev_file": table["train_file"]}
  rows = tabular.TableProcessor(**with_dev_file).get_train_examples()
  assert len(rows) == 40
  record = json.loads(assets["flags.json"])
  record["data"]["train"] = content_hash(rows)
  assets["flags.json"] = json.dumps(record)
  changes = {"task_name": ["custom"], "splits": ("dev",)}
  with pytest.raises(UserError, match=r"trained on all rows .* --dev_file$"):
    make_task(tmp_path, assets, **changes, table=table)
  task = make_task(tmp_path, assets, **changes, table=with_dev_file)
  assert len(task.examples("dev")[""]) == 40


@pytest.mark.parametrize(
  ("changes", "column", "message"),
  [
    ({"regression": True}, None, "--regression: .* for classification; omit"),
    ({"multilabel": True}, None, "--multilabel: .* for classification; omit"),
    ({}, "other", "--text_b_column=other: .* on single texts; omit it"),
  ],
)
@pytest.mark.parametrize("split", ["dev", "test"])
def test_flags_that_contradict_the_model(
  tmp_path, split_model, changes, column, message, split
):
  assets, table, _ = split_model
  changes = {**changes, "table": table | {"text_b_column": column}}
  with pytest.raises(UserError, match=message):
    make_task(
      tmp_path, assets, task_name=["custom"], splits=(split,), **changes
    )


@pytest.mark.parametrize(
  ("name", "is_pair", "message"),
  [
    ("MRPC", True, None),
    ("MRPC", False, "the dev set has pairs of texts, .* on single texts; pass"),
    ("MRPC", None, None),
    ("SST-2", True, "the dev set has single texts, .* on pairs of texts; pass"),
    ("SST-2", False, None),
    ("SST-2", None, None),
  ],
)
def test_a_model_of_another_number_of_texts(tmp_path, name, is_pair, message):
  label_type = label_types.Classification(["0", "1"])
  assets = assets_of(label_type, is_pair)
  text = "1\t1\t1\tA\tB\n"  # A row of either task.
  (tmp_path / "dev.tsv").write_text(f"header\n{text}")
  changes = {"splits": ("dev",), "data_dir": str(tmp_path)}
  task = make_task(tmp_path, assets, task_name=[name], **changes)
  if message:
    with pytest.raises(UserError, match=f"--task_name={name}: {message} "):
      task.examples("dev")
  else:
    assert len(task.examples("dev")[""]) == 1


def test_a_tagger_is_no_classifier(tmp_path, split_model):
  record = {"flags": {"seed": 1}, "data": {"train": "0"}}
  assets = {
    "task.json": '{"task": "tagging", "labels": ["0", "1"]}',
    "flags.json": json.dumps(record),
  }
  for name in ("MRPC", "STS-B"):
    with pytest.raises(UserError, match=r"holds a model of run_ner\.py"):
      make_task(tmp_path, assets, task_name=[name])
  table = split_model[1]
  with pytest.raises(UserError, match=r"holds a model of run_ner\.py"):
    make_task(
      tmp_path, assets, task_name=["custom"], splits=("dev",), table=table
    )
