"""Converts a model to Hugging Face's format, or from it to a release's.

    python convert_checkpoint.py --to=huggingface \\
      --model_dir=/tmp/mrpc_output --output_dir=/tmp/mrpc_huggingface

`--to=tensorflow` writes `bert_model.ckpt`, `bert_config.json` and `vocab.txt`.
`--keep_layers` and `--keep_vocabulary` write a smaller model.
"""

import tempfile

from absl import logging

from bert.data import downloads
from bert.export import huggingface, saved_model_weights, smaller_model
from bert.export.new_folder import check_is_new
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, check_output_folder, table
from bert.scripts import startup


# fmt: off
FLAGS = table(
  flag_table.model_dir(
    more=" Or a checkpoint in such a folder, or the SavedModel of an encoder, "
    "whose variables alone are read."
  ),
  (
    Flag("to", None, "The format to write.",
         choices=("huggingface", "tensorflow")),
    Flag("output_dir", None, "New folder to write.", kind=PATH),
    Flag("keep_layers", None, "Keep only these layers of the model, such as "
         "0,2,4. The lowest is 0.", kind=list),
    Flag("keep_vocabulary", None, "Text files, separated by commas. Keep only "
         "the word pieces that occur in them, and single characters."),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks that flags are given, and that the folder can be written."""
  flags.require("to", "model_dir", "output_dir")
  check_output_folder(flags.output_dir)
  check_is_new(flags.output_dir)


def convert(model_dir: str, output_dir: str, to: str) -> str:
  """Writes the model in a folder in the format `to`; returns what it wrote."""
  is_saved_model = saved_model_weights.is_saved_model(model_dir)
  if to == "tensorflow":
    if is_saved_model:
      return saved_model_weights.write_release(model_dir, output_dir)
    return huggingface.to_tensorflow(model_dir, output_dir)
  if not is_saved_model:
    return huggingface.to_huggingface(model_dir, output_dir)
  with tempfile.TemporaryDirectory() as folder:
    saved_model_weights.write_release(model_dir, folder)
    return huggingface.to_huggingface(folder, output_dir)


def main(flags: Flags) -> dict[str, str]:
  check_flags(flags)
  corpus = None
  if flags.keep_vocabulary:
    corpus = flags.find_files("keep_vocabulary")
  model_dir = downloads.local_path(flags.model_dir)
  if flags.keep_layers is None and corpus is None:
    written = convert(model_dir, flags.output_dir, flags.to)
  else:
    with tempfile.TemporaryDirectory() as folder:
      whole, smaller = f"{folder}/whole", f"{folder}/smaller"
      convert(model_dir, whole, "tensorflow")
      smaller_model.write_smaller(whole, smaller, flags.keep_layers, corpus)
      written = convert(smaller, flags.output_dir, flags.to)
  logging.info("Wrote %s: %s", flags.output_dir, written)
  return {"output_dir": flags.output_dir}


run, command = startup.script(main, FLAGS)
