"""Exports a model for programs that have TensorFlow, ONNX or LiteRT only.

    python export_model.py --model_dir=/tmp/mrpc_output \\
      --output_dir=/tmp/mrpc_saved_model --format=saved_model

--part selects what is exported:
- task: a model that was trained on a task, with text as its input and answers
  as its output; from any other model, vectors of texts;
- encoder and preprocess: SavedModels with TF-Hub's interface for text.

The formats onnx and tflite hold the model without its tokenizer.
"""

import importlib.util
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
from bert.tasks.find_task import ASSETS, find_task
from bert.training import (
  common_flags,
  flag_checks,
  huggingface_config,
  model_folder,
  startup,
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
  *ASSETS,
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
  flags.DEFINE_enum(
    "tokenizer",
    "graph",
    ["graph", "tensorflow_text"],
    "Tokenizer of the SavedModel: TensorFlow's own operations, or those of "
    "tensorflow-text, which is then needed to load the SavedModel.",
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
  if FLAGS.part == "encoder" and FLAGS.tokenizer != "graph":
    raise UserError(
      f"--tokenizer={FLAGS.tokenizer}: --part=encoder reads no text; omit"
      f" --tokenizer"
    )
  if FLAGS.format != "saved_model":
    for name, value in (("part", "task"), ("tokenizer", "graph")):
      if FLAGS[name].value != value:
        raise UserError(
          f"--{name}={FLAGS[name].value} needs --format=saved_model; omit it"
        )
  if FLAGS.format == "onnx":
    require_package("onnx", given, "requirements-export.txt")
  check_is_new(FLAGS.output_dir)
  flag_checks.check_output_folder(FLAGS.output_dir)


def export_model(
  model_dir: str, model: model_folder.Model, folder: str
) -> None:
  """Writes what the flags choose of a model into a folder."""
  # Here, because these modules load TensorFlow.
  from bert.export import (
    lite,
    load_task,
    package_tokenizer,
    saved_model,
    text_graph,
  )

  tokenizer = None
  if FLAGS.format == "saved_model" and FLAGS.part != "encoder":
    known = {
      "graph": text_graph.GraphTokenizer,
      "tensorflow_text": package_tokenizer.PackageTokenizer,
    }
    tokenizer = known[FLAGS.tokenizer](model.tokenizer)
  length = FLAGS.max_seq_length
  vector_length = length or min(_LENGTH, model.config.max_position_embeddings)
  if FLAGS.part == "encoder":
    module = saved_model.Encoder(model_dir)
  elif FLAGS.part == "preprocess":
    module = saved_model.Preprocessor(tokenizer, vector_length)
  else:
    module = load_task.load_task(
      model_dir, tokenizer, FLAGS.pooling, FLAGS.normalize, vector_length
    )
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
  task = find_task(model_dir)
  _check_tokenizer(model_dir, task)
  has_task = task is not None
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


def _check_tokenizer(model_dir, task):
  if FLAGS.tokenizer != "tensorflow_text":
    return
  if task == "squad" and FLAGS.part == "task":
    raise UserError(
      "--tokenizer=tensorflow_text is not for question answering; omit it"
    )
  vocabulary = model_folder.find_vocabulary(model_dir) or ""
  if vocabulary.endswith(".model"):
    return  # SentencePiece is an error in any case, when the model is loaded.
  if importlib.util.find_spec("tensorflow_text") is None:
    raise UserError(
      "--tokenizer=tensorflow_text needs the package of this name; run pip "
      "install tensorflow-text, or omit the flag"
    )


def copy_assets(model_dir: str, folder: str) -> None:
  """Copies what a program needs beside a model without a tokenizer."""
  for name in files.listdir(model_dir):
    if name in _ASSETS or name.endswith(".model"):
      content = files.read_bytes(os.path.join(model_dir, name))
      files.write_file(os.path.join(folder, name), content)


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
    if FLAGS.format != "saved_model":
      copy_assets(model_dir, folder)
  logging.info("%s: %s, %s", FLAGS.output_dir, FLAGS.format, FLAGS.part)


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
