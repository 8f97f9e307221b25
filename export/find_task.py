"""The task that the model in a folder was trained on, and its files."""

from tasks import classification, multiple_choice, squad_model, tagging
from training import model_folder

# By the file that a folder has, and its name in Hugging Face's format. A tagger
# has labels.json, too, so classification is last.
_TASKS = {
  "squad": (squad_model.SETTINGS_NAME, squad_model.ARCHITECTURE),
  "tagging": (tagging.SETTINGS_NAME, tagging.ARCHITECTURE),
  "multiple choice": (
    multiple_choice.SETTINGS_NAME,
    multiple_choice.ARCHITECTURE,
  ),
  "classification": (classification.LABELS_NAME, classification.ARCHITECTURE),
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
    if model_folder.has_task(model_dir, asset, architecture):
      return task
  return None
