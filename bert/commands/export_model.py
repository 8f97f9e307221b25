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

from bert import quiet_start  # noqa: F401  Before TensorFlow.
import tensorflow as tf
from absl import flags, logging

import modeling
from bert.errors import UserError, require_package
from bert.export import onnx_model
from bert.export.new_folder import check_is_new, new_folder
from bert.data import downloads, files
from bert.tasks.features import POOLINGS
from bert.tasks import loaded_model
from bert.training import (
  common_flags,
  flag_checks,
  huggingface_config,
  model_folder,
  startup,
  task_file,
)

FLAGS = flags.FLAGS

_QUANTIZATIONS = {
  "saved_model": ("none",),
  "onnx": ("none", "dynamic"),
  "tflite": ("none", "dynamic", "float16"),
}

# Default of --max_seq_length without a trained task, if the model has the
# positions.
_LENGTH = 128

# What a program needs, beside the model, to read text and to name answers.
_ASSETS = (
  *model_folder.VOCAB_NAMES,
  *model_folder.CONFIG_NAMES,
  huggingface_config.TOKENIZER_NAME,
  task_file.NAME,
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_dir_flag()
  flags.DEFINE_string("output_dir", None, "New or empty folder for the model.")
  flags.DEFINE_enum(
    "format", "saved_model", list(_QUANTIZATIONS), "Format of the model."
  )
  flags.DEFINE_enum(
    "part",
    "task",
    ["task", "encoder", "preprocess"],
    "What to export; see above. encoder and preprocess are SavedModels.",
  )
  flags.DEFINE_enum(
    "quantize",
    "none",
    list(_QUANTIZATIONS["tflite"]),
    "Storage of the weights. none: float32; dynamic: int8, with activations "
    "quantized at run time; float16: for tflite only.",
  )
  flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Length of the rows of preprocess, of vectors and of tflite. Default: that "
    "of the trained task, or else 128, or the model's positions if fewer.",
    lower_bound=3,
  )
  flags.DEFINE_enum(
    "pooling",
    "mean",
    POOLINGS[1:],
    "For vectors of texts: see extract_features.py.",
  )
  flags.DEFINE_bool("normalize", False, "Scale vectors of texts to length 1.")


def check_flags() -> None:
  """Raises UserError if a flag, or a package that it needs, is missing.

  Flags that contradict each other are errors, too.
  """
  flag_checks.require("model_dir", "output_dir")
  given = f"--format={FLAGS.format}"
  if FLAGS.quantize not in _QUANTIZATIONS[FLAGS.format]:
    known = " or ".join(_QUANTIZATIONS[FLAGS.format])
    raise UserError(f"--quantize={FLAGS.quantize}: {given} has {known}")
  if FLAGS.format != "saved_model" and FLAGS.part != "task":
    raise UserError(f"--part={FLAGS.part} needs --format=saved_model; omit it")
  if FLAGS.format == "onnx":
    require_package("onnx", given, "requirements-export.txt")
  check_is_new(FLAGS.output_dir)
  flag_checks.check_output_folder(FLAGS.output_dir)


def export_model(
  model_dir: str, model: model_folder.Model, folder: str
) -> None:
  """Writes what the flags choose of a model into a folder."""
  # Here, because these modules load TensorFlow.
  from bert.export import lite, saved_model, task_graph, text_graph

  length = FLAGS.max_seq_length
  default_length = min(_LENGTH, model.config.max_position_embeddings)
  if FLAGS.part == "encoder":
    module = saved_model.Encoder(model_dir)
  elif FLAGS.part == "preprocess":
    tokenizer = text_graph.GraphTokenizer(model.tokenizer)
    module = saved_model.Preprocessor(tokenizer, length or default_length)
  else:
    options = {}
    if not task_file.read(model_dir)[0]:
      options = {"pooling": FLAGS.pooling, "normalize": FLAGS.normalize}
      options["max_seq_length"] = length or default_length
    loaded = loaded_model.load(model_dir, **options)
    module = task_graph.make_graph(loaded, FLAGS.format == "saved_model")
  if FLAGS.format == "tflite":
    path = os.path.join(folder, "model.tflite")
    lite.write_lite(module, path, length or module.seq_length, FLAGS.quantize)
  else:
    tf.saved_model.save(module, folder, module.serving())
    if FLAGS.part != "preprocess":
      # It says what convert_checkpoint.py cannot tell from variables.
      path = os.path.join(folder, "bert_config.json")
      files.write_file(path, model.config_json())


def check_task_flags(model_dir: str, config: modeling.BertConfig) -> None:
  """Raises UserError if a flag does not suit the model, or lacks a package."""
  has_task = task_file.read(model_dir)[0] is not None
  is_onnx = FLAGS.format == "onnx"  # Rows of any length, without pooling.
  makes_vectors = not has_task and FLAGS.part == "task" and not is_onnx
  kind = f"--part={FLAGS.part} of a {'trained task' if has_task else 'model'}"
  for name in ("max_seq_length", "pooling", "normalize"):
    flag = FLAGS[name]
    is_read = name == "max_seq_length" and (
      FLAGS.format == "tflite" or FLAGS.part == "preprocess"
    )
    if flag.present and not is_read and not makes_vectors:
      raise UserError(
        f"--{name}={flag.value} has no effect on "
        f"{'--format=onnx' if is_onnx else kind}; omit it"
      )
  limit = config.max_position_embeddings
  if (FLAGS.max_seq_length or 0) > limit:
    raise UserError(
      f"--max_seq_length={FLAGS.max_seq_length} is more than the {limit} "
      f"positions of the model; lower it"
    )


def copy_assets(model_dir: str, folder: str) -> None:
  """Copies what a program needs beside a model without a tokenizer."""
  files.makedirs(folder)
  for name in files.listdir(model_dir):
    if name in _ASSETS or name.endswith(".model"):
      content = files.read_bytes(os.path.join(model_dir, name))
      files.write_file(os.path.join(folder, name), content)
  is_recorded = task_file.NAME in files.listdir(model_dir)
  if task_file.read(model_dir)[0] and not is_recorded:
    # Folders of other programs record the task in files of theirs.
    task, _ = loaded_model.find_task(model_dir)
    content = task_file.content(task.kind, task.settings)
    files.write_file(os.path.join(folder, task_file.NAME), content)


def main() -> None:
  check_flags()
  model_dir = downloads.local_path(FLAGS.model_dir)
  model = model_folder.find_model(model_dir)
  check_task_flags(model_dir, model.config)
  with new_folder(FLAGS.output_dir.rstrip("/")) as folder:
    if FLAGS.format == "onnx":
      path = os.path.join(folder, "model.onnx")
      onnx_model.write_onnx(model_dir, path, FLAGS.quantize)
    else:
      export_model(model_dir, model, folder)
    if FLAGS.part == "task":
      # In a SavedModel, this folder is for files that TensorFlow ignores.
      is_graph = FLAGS.format == "saved_model"
      copy_assets(model_dir, f"{folder}/assets.extra" if is_graph else folder)
  logging.info("%s: %s, %s", FLAGS.output_dir, FLAGS.format, FLAGS.part)


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
