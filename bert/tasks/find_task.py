"""The task that the model in a folder was trained on, and its files."""

import os

from bert import layers
import modeling
from bert.data import files
from bert.tasks import classification, multiple_choice, squad_model, tagging
from bert.training import huggingface_config

# By the file that a folder has, and its name in Hugging Face's format.
_TASKS = {
  "squad": (squad_model.SETTINGS_NAME, squad_model.ARCHITECTURE),
  "tagging": (tagging.SETTINGS_NAME, tagging.ARCHITECTURE),
  "multiple choice": (
    multiple_choice.SETTINGS_NAME,
    multiple_choice.ARCHITECTURE,
  ),
}

# The files of a task beside the weights, whatever the task.
ASSETS = (
  classification.LABELS_NAME,
  classification.SETTINGS_NAME,
  tagging.SETTINGS_NAME,
  squad_model.SETTINGS_NAME,
  squad_model.THRESHOLD_NAME,
  multiple_choice.SETTINGS_NAME,
)


def find_task(model_dir: str) -> str | None:
  """The task: "squad", "tagging", "multiple choice" or "classification".

  None for any other model, such as a release.
  """
  for task, (asset, architecture) in _TASKS.items():
    if files.exists(os.path.join(model_dir, asset)):
      return task
    if huggingface_config.read_head(model_dir).architecture == architecture:
      return task
  # A tagger has labels.json, too, so this is last.
  head = huggingface_config.read_head(model_dir)
  is_classifier = head.architecture == classification.ARCHITECTURE
  if is_classifier or classification.has_labels(model_dir):
    return "classification"
  return None


def head_shapes(
  model_dir: str, config: modeling.BertConfig
) -> dict[str, list[int]]:
  """Name and shape of the variables that the task adds; {} without a task."""
  task, size = find_task(model_dir), config.hidden_size
  if task == "squad":
    return squad_model.variable_shapes(config)
  if task == "multiple choice":
    return layers.output_shapes(size, 1)
  if task == "tagging":
    return layers.output_shapes(size, len(tagging.read_assets(model_dir)[0]))
  if task == "classification":
    label_type, _ = classification.read_assets(model_dir)
    return layers.output_shapes(size, label_type.num_outputs)
  return {}
