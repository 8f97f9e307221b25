"""Writes feature vectors of texts, from the layers of a trained encoder.

    python extract_features.py --input_file=/tmp/input.txt \\
      --output_file=/tmp/output.jsonl \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --layers=-1,-2,-3,-4 --max_seq_length=128 --batch_size=8

Each line of the input is a text, or a pair of texts, `A ||| B`. The output
contains a vector of each word piece and layer or, with --pooling, one vector
per line. docs/features.md describes the file formats.
"""

import time

from absl import logging

import modeling  # noqa: F401  Users read these from the original's scripts.
import optimization  # noqa: F401
import tokenization  # noqa: F401
from bert import runtimes
from bert.data import progress, text_files
from bert.engine import devices, loaded_model
from bert.engine.loaded_model import LoadedModel
from bert.errors import plural
from bert.flags import flag_table
from bert.flags.values import COUNT, PATH, Flag, Flags, table
from bert.models import checkpoints, model_folder, task_file
from bert.models.resolve import Overrides, resolve
from bert.scripts import settings, startup
from bert.tasks.embeddings import feature_files, vectors


# fmt: off
FLAGS = table(
  flag_table.MODEL,
  flag_table.TPU,
  (
    flag_table.sequence_length(
      "Longer text is read as --long_text says. The default is lower for a "
      "model with fewer positions."
    ),
    flag_table.INPUT_FILE,
    flag_table.RUNTIME,
    flag_table.THREADS,
    flag_table.RUN_PRECISION,
    Flag("output_file", None,
         "File to write. Its extension selects the format: .npz, .parquet, or "
         "else JSON Lines. - is standard output.", kind=PATH),
    Flag("dtype", "float32", "Type in .npz and .parquet.",
         choices=vectors.DTYPES),
    Flag("batch_size", 32, "Lines per batch.", check=COUNT),
    Flag("use_one_hot_embeddings", False,
         "Look up word pieces by a matrix product, which is faster on a TPU."),
    Flag("layers", ",".join(map(str, vectors.LAYERS)),
         "Layers, separated by commas: -1 is the highest, 0 the lowest. The "
         "default is all layers for a model with fewer than four."),
    Flag("pooling", "none",
         "none: a vector of each word piece and layer. One vector per line: "
         "cls, the vector of [CLS]; pooled, the pooler's output; mean or max "
         "over all word pieces; mean_sqrt_len, their sum divided by the square "
         "root of their number. Default: as the model was trained, or else "
         "none.", choices=vectors.POOLINGS),
    Flag("prompt", "",
         "Name of a prompt of the model, such as query, to prepend to each "
         "text."),
    Flag("layer_combination", "last",
         "How --pooling combines --layers: last takes the highest, concat "
         "concatenates them, mean takes their mean.",
         choices=vectors.LAYER_COMBINATIONS),
    Flag("long_text", vectors.LONG_TEXT[0],
         "Which part of a text longer than --max_seq_length is read: head, or "
         "all of it in overlapping windows, over which --pooling takes the "
         "mean.", choices=vectors.LONG_TEXT),
    Flag("normalize", False, "With --pooling, scale vectors to length 1."),
    Flag("exclude_special", False,
         "Exclude [CLS] and [SEP] from --pooling=mean, max and "
         "mean_sqrt_len."),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> None:
  """Checks the flags and the files that they name."""
  flags.require("input_file", "output_file", "init_checkpoint")
  if flags.input_file != text_files.STREAM:
    flags.require_file("input_file")
  if flags.output_file != text_files.STREAM:
    flags.check_output_files(
      "output_file",
      [flags.output_file],
      [
        flags.input_file,
        flags.vocab_file,
        flags.spm_model_file,
        flags.bert_config_file,
        *model_folder.input_files(flags.init_checkpoint),
      ],
    )
  feature_files.check_output(flags.output_file)
  on_tpu = ["tpu"] if settings.check_devices(flags) else []
  flags.warn_of_unused("data", *on_tpu)
  runtimes.check_runtime(flags.runtime, flags.given.get("precision"))


def load_model(flags: Flags) -> LoadedModel:
  """The model, with the vector settings of the flags or else of its folder."""
  model = resolve(flags.init_checkpoint, Overrides.of(flags.given))
  config, folder = model.config, model.folder
  is_recorded = task_file.read(folder)[0] == vectors.VectorTask.kind
  names = (
    *("pooling", "layer_combination", "normalize", "exclude_special"),
    *("long_text", "dtype", "prompt"),
  )
  options = flags.given_of(names)
  if not is_recorded:
    options = {name: flags[name] for name in names}
    options["layers"] = vectors.LAYERS[: config.num_hidden_layers]
  if not is_recorded or "max_seq_length" in flags.given:
    options["max_seq_length"] = model.sequence_length(
      flags.given.get("max_seq_length"), flags.max_seq_length
    )
  if "layers" in flags.given:
    # Check this before finding the devices, which loads TensorFlow.
    options["layers"] = vectors.parse_layers(
      flags.layers, config.num_hidden_layers
    )
  strategy = None
  if not checkpoints.is_graph(model.checkpoint):  # This loads TensorFlow.
    kind = devices.choose("auto", flags.use_tpu, None)
    strategy = devices.make_strategy(kind)
  return loaded_model.load_task(
    model,
    vectors.VectorTask.kind,
    folder,
    batch_size=flags.batch_size,
    runtime=flags.runtime,
    use_one_hot_embeddings=flags.use_one_hot_embeddings,
    strategy=strategy,
    pad_to_max_length=flags.use_tpu,
    precision=flags.given.get("precision"),
    **options,
  )


def main(flags: Flags) -> dict[str, int]:
  check_flags(flags)
  model = load_model(flags)
  start = time.monotonic()
  length = model.task.settings.max_seq_length
  lines = long = 0
  with (
    feature_files.open_features(flags.output_file, model) as write,
    progress.bar(unit="line") as bar,
  ):
    texts = feature_files.read_texts(flags.input_file)
    for window in feature_files.windows(model, texts, bar.update):
      write(window)
      lines += len(window)
      long += sum(f.was_cut or len(f.tokens) > length for f in window)
      del window  # Free it before computing the next one.
  logging.info(
    "Wrote the features of %s to %s in %.1f s; %d %s --max_seq_length=%d",
    plural(lines, "line"),
    flags.output_file,
    time.monotonic() - start,
    long,
    "truncated to"
    if model.task.settings.long_text == "head"
    else "read in windows of",
    length,
  )
  return {"lines": lines}


run, command = startup.script(main, FLAGS)

if __name__ == "__main__":
  command()
