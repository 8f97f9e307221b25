"""Exports a model for programs that have TensorFlow, ONNX or LiteRT only.

    python export_model.py --model_dir=/tmp/mrpc_output \\
      --output_dir=/tmp/mrpc_saved_model --format=saved_model

--part selects what is exported:
- task: a model that was trained on a task; from any other model, vectors of
  texts. A SavedModel of a classifier or of vectors reads text, others read rows
  of word piece ids;
- encoder and preprocess: SavedModels with TF-Hub's interface for text.

The formats onnx and tflite hold the model without its tokenizer.
"""

import os

import tensorflow as tf
from absl import logging

from bert.contract.task import Task
from bert.data import downloads, files
from bert.engine import loaded_model
from bert.errors import UserError, require_package
from bert.export import huggingface, onnx_model
from bert.export.new_folder import check_is_new, new_folder
from bert.export.readme import readme
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, check_output_folder, table
from bert.models import huggingface_config, model_folder, task_file
from bert.models.resolve import Model, resolve
from bert.scripts import startup
from bert.tasks.embeddings.vectors import POOLINGS

_QUANTIZATIONS = {
  "saved_model": ("none",),
  "onnx": ("none", "dynamic"),
  "tflite": ("none", "dynamic", "float16"),
}

_PARTS = ("task", "encoder", "preprocess")

# Default of --max_seq_length without a trained task, if the model has as many
# positions.
_LENGTH = 128

# Files that a program needs, beside the model, to read text and name answers.
_ASSETS = (
  *model_folder.VOCAB_NAMES,
  *model_folder.CONFIG_NAMES,
  huggingface_config.TOKENIZER_NAME,
  task_file.NAME,
)


# fmt: off
FLAGS = table(
  flag_table.model_dir(),
  (
    Flag("output_dir", None, "New or empty folder for the model.", kind=PATH),
    Flag("format", "saved_model", "Format of the model.",
         choices=tuple(_QUANTIZATIONS)),
    Flag("part", "task",
         "What to export; see above. encoder and preprocess are SavedModels.",
         choices=_PARTS),
    Flag("quantize", "none",
         "Storage of the weights. none: float32; dynamic: int8, with "
         "activations quantized at run time; float16: for tflite only.",
         choices=_QUANTIZATIONS["tflite"]),
    flag_table.MAX_SEQ_LENGTH.but(
      default=None,
      kind=int,
      help="Length of the rows of preprocess, of vectors and of tflite. "
      "Default: that of the trained task, or else 128, or the model's "
      "positions if fewer.",
    ),
    Flag("pooling", "mean",
         "For vectors of texts: see extract_features.py.",
         choices=POOLINGS[1:]),
    Flag("normalize", False, "Scale vectors of texts to length 1."),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks that the flags suit each other, and that packages are installed."""
  flags.require("model_dir", "output_dir")
  given = f"--format={flags.format}"
  is_graph = flags.format == "saved_model"
  for name, known in (
    ("quantize", _QUANTIZATIONS[flags.format]),
    ("part", _PARTS if is_graph else _PARTS[:1]),
  ):
    if flags[name] not in known:
      raise UserError(
        f"--{name}={flags[name]}: {given} has {' or '.join(known)}; pass that"
      )
  if flags.format == "onnx":
    require_package("onnx", given, "requirements-export.txt")
  check_is_new(flags.output_dir)
  check_output_folder(flags.output_dir)


def export_model(
  flags: Flags, model_dir: str, model: Model, folder: str
) -> None:
  """Writes the part of a model that the flags choose into a folder."""
  # Imported here, because they load TensorFlow.
  from bert.export import lite, saved_model, task_graph, text_graph

  length = flags.max_seq_length
  default_length = min(_LENGTH, model.config.max_position_embeddings)
  if flags.part == "encoder":
    module = saved_model.Encoder(model_dir)
  elif flags.part == "preprocess":
    tokenizer = text_graph.GraphTokenizer(model.tokenizer)
    module = saved_model.Preprocessor(tokenizer, length or default_length)
  else:
    options = {}
    if not task_file.read(model_dir)[0]:
      options = {"pooling": flags.pooling, "normalize": flags.normalize}
      options["max_seq_length"] = length or default_length
    loaded = loaded_model.load(model_dir, **options)
    module = task_graph.make_graph(loaded, flags.format == "saved_model")
  if flags.format == "tflite":
    path = os.path.join(folder, "model.tflite")
    lite.write_lite(module, path, length or module.seq_length, flags.quantize)
  else:
    tf.saved_model.save(module, folder, module.serving())
    if flags.part != "preprocess":
      # It has what convert_checkpoint.py cannot derive from variables.
      path = os.path.join(folder, "bert_config.json")
      files.write_file(path, model.config_json())


def warn_of_unused(flags: Flags, has_task: bool) -> None:
  """Warns of flags that have no effect on this model."""
  is_onnx = flags.format == "onnx"  # Rows of any length, without pooling.
  if flags.part == "task" and not (has_task or is_onnx):
    return  # The model gives vectors, so all flags apply.
  names = ["pooling", "normalize"]
  if flags.format != "tflite" and flags.part != "preprocess":
    names.append("max_seq_length")
  flags.warn_if_given("omit it", *names)


def copy_assets(
  model_dir: str, folder: str, task: Task, is_trained: bool
) -> None:
  """Copies what a program needs beside a model without a tokenizer."""
  files.makedirs(folder)
  for name in files.listdir(model_dir):
    if name in _ASSETS or name.endswith(".model"):
      content = files.read_bytes(os.path.join(model_dir, name))
      files.write_file(os.path.join(folder, name), content)
  copied = files.listdir(folder)
  if "tokenizer.json" not in copied and task.tokenizer.splits_words:
    lower_cases = task.tokenizer.basic_tokenizer.do_lower_case
    tokenizer = huggingface.make_tokenizer(task.tokenizer.vocab, lower_cases)
    files.write_file(f"{folder}/tokenizer.json", tokenizer.to_str())
  if is_trained and task_file.NAME not in copied:
    # Folders of other programs record the task in their own files.
    task_file.write(folder, task)


def main(flags: Flags) -> dict[str, str]:
  check_flags(flags)
  model_dir = downloads.local_path(flags.model_dir)
  model = resolve(model_dir)
  model.check_length(flags.max_seq_length or 0)
  is_trained = bool(task_file.read(model_dir)[0])
  warn_of_unused(flags, is_trained)
  with new_folder(flags.output_dir.rstrip("/")) as folder:
    if flags.format == "onnx":
      path = os.path.join(folder, "model.onnx")
      onnx_model.write_onnx(model_dir, path, flags.quantize)
    else:
      export_model(flags, model_dir, model, folder)
    if flags.part == "task":
      # In a SavedModel, this folder is for files that TensorFlow ignores.
      is_graph = flags.format == "saved_model"
      assets = f"{folder}/assets.extra" if is_graph else folder
      task, _ = loaded_model.find_task(model_dir)
      copy_assets(model_dir, assets, task, is_trained)
      if not is_graph:
        length = flags.max_seq_length if flags.format == "tflite" else None
        content = readme(f"model.{flags.format}", task, length, is_trained)
        files.write_file(f"{folder}/README.md", content)
  what = "the model" if flags.part == "task" else f"the part {flags.part}"
  logging.info("Wrote %s to %s", what, flags.output_dir)
  return {"output_dir": flags.output_dir}


run, command = startup.script(main, FLAGS)
