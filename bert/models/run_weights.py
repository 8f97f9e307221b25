"""Which weights a run uses: of --output_dir, or of --init_checkpoint."""

import os

from bert.errors import UserError
from bert.models import checkpoints, run_record, task_file
from bert.models.model_folder import folder_of


def weights_folder(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The folder of the weights of a run: `output_dir` if it has any."""
  if output_dir and (
    checkpoints.training_checkpoints(output_dir)
    or checkpoints.find_graph(output_dir)
  ):
    return output_dir
  return folder_of(init_checkpoint)


def own_checkpoint(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The prefix of a checkpoint that lies in `output_dir`, or None."""
  folders = (output_dir, folder_of(init_checkpoint))
  if all(folders) and len(set(map(os.path.realpath, folders))) == 1:
    return checkpoints.find_checkpoint(init_checkpoint)
  return None


def trained_weights(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The checkpoint of a run that does not train.

  It is the one that `init_checkpoint` names if that lies in `output_dir`, or
  else the finished model in `output_dir`, or else `init_checkpoint`. Raises
  UserError if that would ignore a model of another training.
  """
  own = own_checkpoint(output_dir, init_checkpoint)
  release = os.path.join(output_dir or "", checkpoints.RELEASE_NAME)
  is_finished = output_dir and checkpoints.exists(release)
  used = own or (release if is_finished else init_checkpoint)
  folder = folder_of(init_checkpoint)
  if used in (own, init_checkpoint) or not (
    folder and task_file.read(folder)[0]
  ):
    return used
  data = (run_record.read_record(output_dir) or {}).get("data", {})
  named, model = map(checkpoints.hash_of_weights, (init_checkpoint, used))
  # The command may still name what the training began with.
  if named not in (model, data.get("init_checkpoint")):
    raise UserError(
      f"--init_checkpoint={init_checkpoint} would not be used, because "
      f"--output_dir={output_dir} holds another trained model; omit "
      f"--init_checkpoint to use that one, or pass another --output_dir"
    )
  return used
