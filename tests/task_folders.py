"""A model folder of each task: the golden model, with an output layer."""

import numpy as np

from golden_classifier import LABEL_TYPES
from bert.tasks import classification, multiple_choice, squad_model, tagging
from bert.tasks import labels as label_types
from bert.tasks.squad import ReadingSettings
from bert.tasks.tagged_rows import Reading
from bert.training import checkpoints

LENGTH = 32
TAGS = ["O", "B-X", "I-X"]

_classifiers = {
  kind: classification.ClassificationTask(
    kind, None, label_type, reading=classification.Reading(LENGTH, "head", pair)
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
    {},
    None,
    ReadingSettings(max_seq_length=LENGTH, doc_stride=8, max_query_length=8),
  ),
  "tagging": tagging.TaggingTask({}, TAGS, "IOB2", None, Reading(LENGTH)),
  "multiple choice": multiple_choice.MultipleChoiceTask(
    {"train": [multiple_choice.Example("", "", "", ["a", "b"])]}, None, LENGTH
  ),
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
    for variable, shape in task.variable_shapes(golden.config).items():
      values[variable] = draw(size=shape).astype(np.float32)
    contents |= task.assets()
  checkpoints.write_release(str(folder), values, contents)
  return str(folder)
