"""The task of a folder, whatever else a repository contains."""

import json

import pytest

from bert.tasks.find_task import find_task
from bert.tasks import classification, tagging
from bert.tasks import labels as label_types
from bert.tasks.tagged_rows import Reading


def _write(folder, **contents):
  for name, content in contents.items():
    (folder / f"{name}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("labels", [{"0": "b"}, ["b", "a"]])
@pytest.mark.parametrize(
  ("architectures", "task"),
  [
    (None, None),
    (["BertModel"], None),
    (["BertForSequenceClassification"], "classification"),
    (["BertForTokenClassification"], "tagging"),
  ],
)
def test_labels_of_a_hugging_face_repository_are_not_read(
  tmp_path, labels, architectures, task
):
  config = {"model_type": "bert", "id2label": {"0": "a", "1": "b"}}
  config["architectures"] = architectures
  _write(tmp_path, config=config, labels=labels)
  assert find_task(str(tmp_path)) == task
  label_type, _ = classification.read_assets(str(tmp_path))
  if task == "tagging":
    assert tagging.read_assets(str(tmp_path))[0] == ["a", "b"]
  if task == "classification":
    assert label_type.labels == ["a", "b"]
  else:
    assert label_type is None


@pytest.mark.parametrize("has_config", [False, True])
@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_our_labels_are_read_beside_our_settings(tmp_path, task, has_config):
  assets = tagging.assets(["O", "B-A"], "IOB2", Reading())
  if task == "classification":
    label_type = label_types.Classification(["a", "b"])
    assets = classification.assets(label_type, classification.Reading())
  for name, text in assets.items():
    (tmp_path / name).write_text(text)
  if has_config:
    _write(tmp_path, config={"model_type": "bert"})
  assert find_task(str(tmp_path)) == task


def test_a_classifier_may_have_labels_alone(tmp_path):
  assert find_task(str(tmp_path)) is None
  _write(tmp_path, labels=["a", "b"])
  assert find_task(str(tmp_path)) == "classification"
