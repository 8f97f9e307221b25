"""Converts a model to Hugging Face's format, or from it to a release's.

    python convert_checkpoint.py --to=huggingface \\
      --model_dir=/tmp/mrpc_output --output_dir=/tmp/mrpc_huggingface

`--to=tensorflow` writes `bert_model.ckpt`, `bert_config.json` and `vocab.txt`.
"""

import tempfile

from bert.errors import UserError
from bert.export import huggingface, saved_model_weights
from bert.export.new_folder import check_is_new
from bert.data import downloads, files
from bert.training import flag_table, startup
from bert.training.flags import PATH, Flag, Flags, check_output_folder, table


# fmt: off
FLAGS = table(
  flag_table.model_dir(
    more=" Or a checkpoint in such a folder, or the SavedModel of an encoder, "
    "of which only variables are read."
  ),
  (
    Flag("to", None, "The format to write.",
         choices=("huggingface", "tensorflow")),
    Flag("output_dir", None, "New folder to write.", kind=PATH),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Raises UserError if a flag is missing or the folder cannot be written."""
  flags.require("to", "model_dir", "output_dir")
  check_output_folder(flags.output_dir)
  check_is_new(flags.output_dir)


def convert_saved_model(flags: Flags, model_dir: str) -> None:
  """Converts the encoder of a SavedModel."""
  if flags.to == "tensorflow":
    saved_model_weights.write_release(model_dir, flags.output_dir)
    return
  with tempfile.TemporaryDirectory() as folder:
    saved_model_weights.write_release(model_dir, folder)
    if not files.exists(f"{folder}/vocab.txt"):
      raise UserError(
        f"--model_dir={flags.model_dir} has no assets/vocab.txt; pass "
        f"--to=tensorflow, copy the model's vocab.txt to the result, and "
        f"convert that"
      )
    huggingface.to_huggingface(folder, flags.output_dir)


def main(flags: Flags) -> dict[str, str]:
  check_flags(flags)
  model_dir = downloads.local_path(flags.model_dir)
  if saved_model_weights.is_saved_model(model_dir):
    convert_saved_model(flags, model_dir)
  elif flags.to == "huggingface":
    huggingface.to_huggingface(model_dir, flags.output_dir)
  else:
    huggingface.to_tensorflow(model_dir, flags.output_dir)
  return {"output_dir": flags.output_dir}


run, command = startup.script(main, FLAGS)
