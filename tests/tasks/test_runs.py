"""The models that a command of run_classifier.py trains or uses."""

import pytest

from errors import UserError
from tasks import classification, glue, runs
from tasks import labels as label_types


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


def make_task(tmp_path, assets, **changes):
  """The task of the only run, with the files of a model."""
  for name, text in assets.items():
    (tmp_path / name).write_text(text)
  asked = request(init_checkpoint=str(tmp_path), **changes)
  (run,) = runs.plan(asked)
  return runs.make_task(asked, run, None)


def test_all_is_expanded_beside_other_tasks():
  asked = request(task_name=["XNLI", "All", "mrpc"], init_checkpoint="model")
  names = [run.task for run in runs.plan(asked)]
  assert names == ["xnli", *glue.GLUE_TASKS]


def test_a_model_of_numbers_keeps_its_scale_in_another_task(tmp_path):
  scaled = label_types.Regression(250.0, 30.0)
  task = make_task(
    tmp_path, classification.assets(scaled, classification.Reading())
  )
  assert task.assets()["classifier.json"].count("250.0") == 1


def test_a_tagger_is_no_classifier(tmp_path):
  assets = {"labels.json": '["0", "1"]', "tagger.json": '{"scheme": null}'}
  for name in ("MRPC", "STS-B"):
    with pytest.raises(UserError, match="holds a tagger"):
      make_task(tmp_path, assets, task_name=[name])
