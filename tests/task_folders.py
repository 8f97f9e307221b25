"""A model folder of each task: the golden model, with an output layer."""

import json
import pathlib

import numpy as np

from golden_classifier import LABEL_TYPES

from bert.contract.task import Settings
from bert.models import checkpoints, task_file
from bert.tasks.classification import label_types
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)
from bert.tasks.multiple_choice import task as multiple_choice
from bert.tasks.squad import task as squad_model
from bert.tasks.squad.task import SquadSettings
from bert.tasks.tagging import task as tagging

LENGTH = 32
TAGS = ("O", "B-X", "I-X")

_classifiers = {
  kind: ClassificationTask(
    ClassifierSettings(LENGTH, is_pair=pair).with_label_type(label_type)
  )
  for (kind, label_type), pair in zip(
    {**LABEL_TYPES, "regression": label_types.Regression(3.0, 2.0)}.items(),
    (False, True, False),
    strict=True,
  )
}

TASKS = {
  **_classifiers,
  "squad": squad_model.SquadTask(
    SquadSettings(LENGTH, doc_stride=8, max_query_length=8)
  ),
  "tagging": tagging.TaggingTask(tagging.TaggerSettings(LENGTH, TAGS, "IOB2")),
  "multiple choice": multiple_choice.MultipleChoiceTask(Settings(LENGTH)),
}

# Inputs of each task, and of a model without one.
INPUTS = {
  "classification": [{"text": "Jim Henson"}, {"text": "the north of " * 9}],
  "multilabel": [{"text_a": "Jim", "text_b": "Henson"}],
  "regression": [{"text": "Jim Henson"}],
  "squad": [
    {"question": "Who is it?", "context": "It is Jim, Henson.\n The north."},
    {"question": "Where?", "context": "In the north of the city. " * 8},
  ],
  "tagging": [{"text": "Jim Henson made puppets."}, {"text": "north"}],
  "multiple choice": [
    {"context": "He", "choices": ["runs", "is the north"]},
    {"context": "She", "question": "Who?", "choices": ["a", "b", "c"]},
  ],
  "": [{"text": "Jim"}, {"text": "the mountains of the north"}],
}


def write(folder, name, golden, goldens, seed=5):
  """Writes the folder of a task, or of no task if the name is ""; returns it.

  The weights of the output layer are random and tell texts apart.
  """
  draw = np.random.default_rng(seed).normal
  weights = checkpoints.Checkpoint(golden.checkpoint)
  values = {variable: weights[variable] for variable in weights.shapes}
  contents = {
    "bert_config.json": golden.config.to_json_string(),
    "vocab.txt": (goldens / "vocab.txt").read_bytes(),
  }
  if name:
    task = TASKS[name]
    for variable, shape in task.head_shapes(golden.config).items():
      values[variable] = draw(size=shape).astype(np.float32)
    contents[task_file.NAME] = task_file.content(task.kind, task.settings)
  checkpoints.write_release(str(folder), values, contents)
  return str(folder)


def write_nli(folder, golden, goldens):
  """Writes the folder of a classifier of premise and hypothesis; returns it."""
  write(folder, "classification", golden, goldens)
  path = pathlib.Path(folder) / task_file.NAME
  labels = ["contradiction", "entailment", "neutral"]
  fields = {**json.loads(path.read_text()), "labels": labels, "is_pair": True}
  path.write_text(json.dumps(fields))
  return str(folder)
