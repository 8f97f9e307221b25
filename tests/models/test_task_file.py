"""task.json: the task of a folder, whatever else a repository contains."""

import json
import pathlib
import shutil

import pytest
import task_folders

import bert
import run_classifier
import run_squad
from bert.commands import export_model
from bert.engine import loaded_model
from bert.errors import UserError
from bert.models import checkpoints, run_weights, task_file
from bert.tasks.classification.task import ClassificationTask
from bert.tasks.embeddings.vectors import VectorTask
from bert.tasks.squad.task import SquadTask
from bert.tasks.tagging.task import TaggingTask


def write(folder, **contents):
  for name, content in contents.items():
    (folder / f"{name}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("name", task_folders.TASKS)
@pytest.mark.parametrize("has_config", [False, True])
def test_round_trip(tmp_path, name, has_config):
  task = task_folders.TASKS[name]
  content = task_file.content(task.kind, task.settings)
  (tmp_path / "task.json").write_text(content)
  if has_config:
    write(tmp_path, config={"model_type": "bert"})
  assert task_file.read(str(tmp_path))[0] == task.kind
  assert task_file.load(type(task), str(tmp_path)) == task.settings


@pytest.mark.parametrize("labels", [{"0": "b"}, ["b", "a"]])
@pytest.mark.parametrize(
  ("architecture", "cls"),
  [
    (None, None),
    ("BertModel", None),
    ("BertForSequenceClassification", ClassificationTask),
    ("BertForTokenClassification", TaggingTask),
    ("BertForQuestionAnswering", SquadTask),
  ],
)
def test_labels_of_a_hugging_face_repository_are_not_read(
  tmp_path, labels, architecture, cls
):
  config = {"model_type": "bert", "id2label": {"0": "a", "1": "b"}}
  config["architectures"] = [architecture] if architecture else None
  write(tmp_path, config=config, labels=labels)
  kind, _ = task_file.read(str(tmp_path))
  assert kind == (cls and cls.kind)
  if cls in (ClassificationTask, TaggingTask):
    assert task_file.load(cls, str(tmp_path)).labels == ("a", "b")


@pytest.mark.parametrize(
  ("labels", "problem_type", "kind", "found"),
  [
    (["a", "b"], None, "classification", ("a", "b")),
    (["a", "b"], "multi_label_classification", "multilabel", ("a", "b")),
    (["a"], None, "regression", ()),
    (["a"], "single_label_classification", "classification", ("a",)),
  ],
)
def test_the_labels_of_a_hugging_face_head(
  tmp_path, labels, problem_type, kind, found
):
  config = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "id2label": dict(enumerate(labels)),
    "problem_type": problem_type,
  }
  write(tmp_path, config=config)
  settings = task_file.load(ClassificationTask, str(tmp_path))
  assert (settings.kind, settings.labels) == (kind, found)
  assert settings.is_pair is None


@pytest.mark.parametrize(
  ("content", "reason"),
  [
    ('{"task": "squad"', "invalid JSON"),
    ("\xff", "invalid JSON"),
    ("[]", "it has no object"),
  ],
)
def test_damaged(tmp_path, content, reason):
  path = tmp_path / "task.json"
  path.write_bytes(content.encode("latin-1"))
  with pytest.raises(UserError, match=f"{reason}.*; copy it again") as error:
    task_file.read(str(tmp_path))
  assert "\n" not in str(error.value)
  assert str(path) in str(error.value)


@pytest.mark.parametrize(
  ("fields", "reason"),
  [
    ({"labels": "ab"}, 'labels is "ab", not a'),
    ({"kind": "regression", "mean": float("nan")}, "NaN is no number"),
    ({"is_pair": 1}, "is_pair is 1, not true or false"),
    ({"temperatures": [1.0, 0.0]}, "temperatures has 0.0, and must be above 0"),
    ({"kind": "regression", "deviation": -1}, "deviation has -1, and must be"),
    ({"temperatures": [-1.0]}, "temperatures has -1.0, and must be above 0"),
    ({"temperatures": [1, 2]}, "temperatures has 2 numbers, not 1"),
    ({"held_out": "a"}, "held_out has no hashes: "),
    ({"labels": ["a", 1]}, "labels is .*, not a list of strings"),
    ({"ispair": True}, "'ispair'; known .* 'is_pair'"),
  ],
)
def test_damaged_settings(tmp_path, fields, reason):
  write(tmp_path, task={"task": "classification", "labels": ["a"], **fields})
  with pytest.raises(
    UserError, match=rf"task\.json.*{reason}.*; copy it again"
  ):
    task_file.load(ClassificationTask, str(tmp_path))


@pytest.mark.parametrize("kind", ["tagging", "a task of one's own"])
def test_the_model_of_another_task(tmp_path, kind, golden, goldens):
  task_folders.write(tmp_path, "", golden, goldens)
  write(tmp_path, task={"task": kind, "labels": ["O"]})
  wanted = (
    rf"{tmp_path} holds a model of another kind \({kind}, not squad\); pa"
  )
  for load in (
    lambda folder: task_file.load(SquadTask, folder),
    lambda folder: task_file.load(SquadTask, folder, is_required=False),
    lambda folder: loaded_model.load_trained(folder, "squad"),
    lambda folder: run_squad.run(output_dir=folder, interactive=True),
    lambda folder: run_squad.run(
      output_dir=folder, interactive=True, max_seq_length=64
    ),
  ):
    with pytest.raises(UserError, match=wanted):
      load(str(tmp_path))
  found = task_file.load(VectorTask, str(tmp_path), is_required=False)
  assert found == VectorTask.Settings()


def test_a_model_without_a_task(tmp_path):
  write(tmp_path, other={})
  with pytest.raises(
    UserError, match=r"not hold a trained model \(squad\); pa"
  ):
    task_file.load(SquadTask, str(tmp_path))
  with pytest.raises(UserError, match="none does not exist; pass the --output"):
    task_file.load(SquadTask, str(tmp_path / "none"))
  for folder in (None, str(tmp_path)):
    found = task_file.load(SquadTask, folder, is_required=False)
    assert found == SquadTask.Settings()


@pytest.mark.parametrize("kind", ["classification", "tagging", "squad"])
def test_weights_that_are_missing_are_named(tmp_path, kind):
  """By one line, whatever the task that a script wants."""
  config = pathlib.Path(__file__).parent.parent / "cases/distilbert_config.json"
  shutil.copy(config, tmp_path / "config.json")
  wanted = f"{tmp_path} has a config.json but no model.safetensors; copy it"
  for load in (
    bert.load,
    lambda folder: loaded_model.load_trained(folder, kind),
    lambda folder: run_squad.run(output_dir=folder, interactive=True),
    lambda folder: export_model.run(
      model_dir=folder, output_dir=tmp_path / "out"
    ),
  ):
    with pytest.raises(UserError, match=wanted):
      load(str(tmp_path))


@pytest.mark.parametrize(
  ("name", "script", "flags"),
  [
    ("classification", run_classifier, {"task_name": "mrpc", "data_dir": "x"}),
    ("squad", run_squad, {}),
  ],
)
def test_a_trained_model_that_would_not_be_used(
  tmp_path, golden, goldens, name, script, flags
):
  for folder in ("out", "other", "release"):
    (tmp_path / folder).mkdir()
  out, other = (
    task_folders.write(tmp_path / folder, name, golden, goldens, seed)
    for seed, folder in enumerate(("out", "other"))
  )
  with pytest.raises(UserError) as error:
    script.run(
      do_predict=True,
      **flags,
      predict_file=None if flags else __file__,
      init_checkpoint=other,
      output_dir=out,
    )
  assert str(error.value) == (
    f"--init_checkpoint={other} would not be used, because --output_dir={out} "
    f"holds another trained model; omit --init_checkpoint to use that one, or "
    f"pass another --output_dir"
  )
  # The command of a training names what it began with, as the original's does.
  release = task_folders.write(tmp_path / "release", "", golden, goldens)
  for given in (None, release, out, f"{out}/bert_model.ckpt"):
    assert run_weights.trained_weights(out, given) == f"{out}/bert_model.ckpt"
  data = {"init_checkpoint": checkpoints.hash_of_weights(other)}
  write(tmp_path / "out", flags={"flags": {}, "data": data})
  assert run_weights.trained_weights(out, other) == f"{out}/bert_model.ckpt"
