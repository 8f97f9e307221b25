"""Exports a model for programs that have TensorFlow, ONNX or LiteRT only.

    python export_model.py --model_dir=/tmp/mrpc_output \\
      --output_dir=/tmp/mrpc_saved_model --format=saved_model

--part selects what is exported:
- task: a model that was trained on a task; from any other model, vectors of
  texts. A SavedModel of a classifier or of vectors reads text, others read rows
  of word piece ids;
- fill_mask: the masked words of a pre-trained model, in ONNX;
- encoder and preprocess: SavedModels with TF-Hub's interface for text.

An ONNX folder is a model folder: serve.py, bert.load and the scripts answer
from it without TensorFlow. The format tflite holds the model without its
tokenizer.
"""

import os

import tensorflow as tf
from absl import logging

from bert import runtimes
from bert.contract.task import Task
from bert.data import downloads, files
from bert.engine import loaded_model
from bert.errors import UserError, require_package
from bert.export import huggingface, onnx_model
from bert.export.new_folder import check_is_new, new_folder
from bert.export.readme import readme
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, check_output_folder, table
from bert.models import checkpoints, task_file
from bert.models.resolve import Model, resolve
from bert.reports import model_card
from bert.scripts import startup
from bert.tasks.embeddings.vectors import POOLINGS

_QUANTIZATIONS = {
  "saved_model": ("none",),
  "onnx": ("none", "dynamic"),
  "tflite": ("none", "dynamic", "float16"),
}

_PARTS = {
  "saved_model": ("task", "encoder", "preprocess"),
  "onnx": ("task", "fill_mask"),
  "tflite": ("task",),
}

# Default of --max_seq_length without a trained task, if the model has as many
# positions.
_LENGTH = 128

# fmt: off
FLAGS = table(
  flag_table.model_dir(),
  (
    Flag("output_dir", None, "New or empty folder for the model.", kind=PATH),
    Flag("format", "saved_model", "Format of the model.",
         choices=tuple(_QUANTIZATIONS)),
    Flag("part", "task",
         "What to export; see above. encoder and preprocess are SavedModels, "
         "fill_mask is ONNX.",
         choices=(*_PARTS["saved_model"], "fill_mask")),
    Flag("precision", "float32",
         "Of onnx: int8 stores the weights in eight bits, and quantizes "
         "activations at run time.", choices=("float32", runtimes.INT8)),
    Flag("quantize", "none",
         "Storage of the weights. none: float32; float16: for tflite only; "
         "dynamic: int8, which is the same as --precision=int8 for onnx.",
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
  for name, by_format in ("quantize", _QUANTIZATIONS), ("part", _PARTS):
    known = by_format[flags.format]
    if flags[name] not in known:
      raise UserError(
        f"--{name}={flags[name]}: {given} has {' or '.join(known)}; pass that"
      )
  if flags.format == "onnx":
    require_package("onnx", given, runtimes.REQUIREMENTS)
    if is_int8(flags):
      require_package("onnxruntime", "--precision=int8", runtimes.REQUIREMENTS)
  elif flags.precision != "float32":
    raise UserError(
      f"--precision={flags.precision}: {given} has float32; omit it, or pass "
      f"--format=onnx{', or --quantize' if flags.format == 'tflite' else ''}"
    )
  check_is_new(flags.output_dir)
  check_output_folder(flags.output_dir)


def is_int8(flags: Flags) -> bool:
  """Whether the flags ask for an ONNX folder in int8."""
  is_asked = flags.precision == runtimes.INT8 or flags.quantize == "dynamic"
  return flags.format == "onnx" and is_asked


def export_model(
  flags: Flags, model_dir: str, model: Model, folder: str
) -> None:
  """Writes the part of a model that the flags choose into a folder."""
  # Imported here, because they load TensorFlow.
  from bert.export import lite, saved_model, task_graph, text_graph

  length = flags.max_seq_length
  if flags.part == "encoder":
    module = saved_model.Encoder(model_dir)
  elif flags.part == "preprocess":
    tokenizer = text_graph.GraphTokenizer(model.tokenizer)
    length = length or _default_length(model)
    module = saved_model.Preprocessor(tokenizer, length)
  else:
    loaded = loaded_model.load(model_dir, **settings_of(flags, model))
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


def settings_of(flags: Flags, model: Model) -> dict[str, object]:
  """The settings of the task that the flags choose for a release."""
  if flags.part != "task" or task_file.read(model.folder)[0]:
    return {}
  return {
    "pooling": flags.pooling,
    "normalize": flags.normalize,
    "max_seq_length": flags.max_seq_length or _default_length(model),
  }


def _default_length(model):
  return min(_LENGTH, model.config.max_position_embeddings)


def warn_of_unused(flags: Flags, has_task: bool) -> None:
  """Warns of flags that have no effect on this model."""
  if flags.part == "task" and not has_task:
    return  # The model gives vectors, so all flags apply.
  names = ["pooling", "normalize"]
  if flags.format != "tflite" and flags.part != "preprocess":
    names.append("max_seq_length")
  flags.warn_if_given("omit it", *names)


def write_assets(
  model: Model, folder: str, task: Task, source: str | None
) -> None:
  """Writes what a program needs beside a model without a tokenizer.

  `source` is the folder to name in task.json; without it, there is none.
  """
  files.makedirs(folder)
  contents = model.contents()
  if "tokenizer.json" not in contents and task.tokenizer.splits_words:
    lower_cases = task.tokenizer.basic_tokenizer.do_lower_case
    tokenizer = huggingface.make_tokenizer(task.tokenizer.vocab, lower_cases)
    contents["tokenizer.json"] = tokenizer.to_str()
  if source:
    contents[task_file.NAME] = task_file.content(
      task.kind, task.settings, source
    )
  for name, content in contents.items():
    files.write_file(os.path.join(folder, name), content)


def main(flags: Flags) -> dict[str, str]:
  check_flags(flags)
  model_dir = downloads.local_path(flags.model_dir)
  model = resolve(model_dir)
  model.check_length(flags.max_seq_length or 0)
  is_trained = bool(task_file.read(model_dir)[0])
  warn_of_unused(flags, is_trained)
  is_local = os.path.isdir(flags.model_dir)
  source = os.path.abspath(model_dir) if is_local else flags.model_dir
  with new_folder(flags.output_dir.rstrip("/")) as folder:
    if flags.format != "onnx":
      export_model(flags, model_dir, model, folder)
    if flags.part in ("task", "fill_mask"):
      kind = flags.part if flags.part == "fill_mask" else None
      settings = settings_of(flags, model)
      task, _ = loaded_model.find_task(model_dir, kind, **settings)
      # In a SavedModel, this folder is for files that TensorFlow ignores.
      is_graph = flags.format == "saved_model"
      assets = f"{folder}/assets.extra" if is_graph else folder
      is_recorded = is_trained or flags.format == "onnx"
      write_assets(model, assets, task, source if is_recorded else None)
      if flags.format == "onnx":
        path = os.path.join(folder, checkpoints.GRAPH_NAME)
        onnx_model.write_onnx(model_dir, path, is_int8(flags), kind, **settings)
      if not is_graph:
        content = readme(
          f"model.{flags.format}",
          task,
          flags.max_seq_length if flags.format == "tflite" else None,
          is_recorded,
          is_release=not is_trained and kind is None,
          metrics=_measured(flags, folder, task, model),
        )
        if flags.format == "onnx":
          name = os.path.basename(flags.output_dir.rstrip("/"))
          code = model_card.python_code(task, name)
          content = model_card.converted(model_dir, task, code) + content
        files.write_file(f"{folder}/README.md", content)
  what = "the model" if flags.part == "task" else f"the part {flags.part}"
  logging.info("Wrote %s to %s", what, flags.output_dir)
  return {"output_dir": flags.output_dir}


def _measured(flags, folder, task, model):
  """The metrics of a quantized ONNX folder, see `precision_loss.measure`."""
  if not is_int8(flags):
    return None
  from bert.engine import precision_loss, predictor  # They load TensorFlow.

  small = predictor.load(resolve(folder), task)
  return precision_loss.measure(model, task, small, runtimes.TENSORFLOW)


run, command = startup.script(main, FLAGS)
