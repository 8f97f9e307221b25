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

from absl import flags, logging

from bert.errors import UserError, plural
from bert.data import progress, text_files
from bert.tasks import feature_files, features, loaded_model
from bert.tasks.loaded_model import LoadedModel
from bert.training import (
  common_flags,
  devices,
  flag_checks,
  model_flags,
  model_folder,
  runtimes,
  startup,
  task_file,
)

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(
    128,
    "Longer text is read as --long_text says. The default is lower for a model "
    "with fewer positions.",
  )
  common_flags.define_tpu_flags()
  common_flags.define_input_flag()
  common_flags.define_runtime_flag()
  flags.DEFINE_string(
    "output_file",
    None,
    "File to write, by its extension in the format .npz, .parquet, or else "
    "JSON Lines; - is standard output.",
  )
  flags.DEFINE_enum(
    "dtype", "float32", features.DTYPES, "Type in .npz and .parquet."
  )
  flags.DEFINE_integer("batch_size", 32, "Lines per batch.", lower_bound=1)
  flags.DEFINE_bool(
    "use_one_hot_embeddings",
    False,
    "Look up word pieces by a matrix product, which is faster on a TPU.",
  )
  _define_vector_flags()


def _define_vector_flags():
  flags.DEFINE_string(
    "layers",
    ",".join(map(str, features.LAYERS)),
    "Layers, separated by commas: -1 is the highest, 0 the lowest. The default "
    "is all layers for a model with fewer than four.",
  )
  flags.DEFINE_enum(
    "pooling",
    "none",
    features.POOLINGS,
    "none: a vector of each word piece and layer. One vector per line: cls, "
    "that of [CLS]; pooled, the pooler's output; mean or max over all word "
    "pieces; mean_sqrt_len, their sum divided by the square root of their "
    "number. Default: as the model was trained, or else none.",
  )
  flags.DEFINE_string(
    "prompt",
    "",
    "Name of the prompt of the model, such as query, that is put before each "
    "text.",
  )
  flags.DEFINE_enum(
    "layer_combination",
    "last",
    features.LAYER_COMBINATIONS,
    "How --pooling combines --layers: last takes the highest, concat "
    "concatenates them, mean takes their mean.",
  )
  flags.DEFINE_enum(
    "long_text",
    features.LONG_TEXT[0],
    features.LONG_TEXT,
    "Which part of a text longer than --max_seq_length is read: head, or all "
    "of it in overlapping windows, over which --pooling takes the mean.",
  )
  flags.DEFINE_bool(
    "normalize", False, "With --pooling, scale vectors to length 1."
  )
  flags.DEFINE_bool(
    "exclude_special",
    False,
    "Exclude [CLS] and [SEP] from --pooling=mean, max and mean_sqrt_len.",
  )


def check_flags() -> None:
  """Checks the files in the flags."""
  flag_checks.require("input_file", "output_file", "init_checkpoint")
  if FLAGS.input_file != text_files.STREAM:
    flag_checks.require_file("input_file")
  if FLAGS.output_file == text_files.STREAM:
    flag_checks.check_standard_output()
  else:
    flag_checks.check_output_files(
      "output_file",
      [FLAGS.output_file],
      [FLAGS.input_file, *model_flags.model_files()],
    )
  feature_files.check_output(FLAGS.output_file, FLAGS.dtype)
  flag_checks.check_device_flags()
  if FLAGS.use_tpu and FLAGS.runtime != "tensorflow":
    raise UserError(
      f"--runtime={FLAGS.runtime} does not run on a TPU; omit --use_tpu"
    )
  runtimes.check_runtime(FLAGS.runtime, common_flags.run_precision())


def load_model() -> LoadedModel:
  """The model of vectors that the flags, or else its folder, describe."""
  tokenizer = model_flags.load_tokenizer()
  config = model_flags.load_config(tokenizer)
  folder = model_folder.weights_folder("", FLAGS.init_checkpoint)
  is_recorded = task_file.read(folder)[0] == features.VectorTask.kind
  names = (
    *("pooling", "layer_combination", "normalize", "exclude_special"),
    *("long_text", "dtype", "prompt"),
  )
  options = {
    name: FLAGS[name].value
    for name in names
    if FLAGS[name].present or not is_recorded
  }
  if not is_recorded:
    options["layers"] = features.LAYERS[: config.num_hidden_layers]
  if not is_recorded or FLAGS["max_seq_length"].present:
    options["max_seq_length"] = model_flags.sequence_length(config)
  if FLAGS["layers"].present:
    options["layers"] = features.parse_layers(FLAGS.layers)
    if FLAGS.pooling == "pooled":
      raise UserError(
        "--layers has no effect with --pooling=pooled; omit one of them"
      )
    # Finding the devices loads TensorFlow, so this is checked before.
    features.layer_indices(options["layers"], config.num_hidden_layers)
  return loaded_model.load_task(
    model_folder.Model(config, tokenizer, FLAGS.init_checkpoint),
    features.VectorTask.kind,
    folder,
    batch_size=FLAGS.batch_size,
    runtime=FLAGS.runtime,
    use_one_hot_embeddings=FLAGS.use_one_hot_embeddings,
    strategy=devices.make_strategy(
      devices.choose("auto", FLAGS.use_tpu, None), common_flags.tpu()
    ),
    pad_to_max_length=FLAGS.use_tpu,
    precision=common_flags.run_precision(),
    **options,
  )


def main() -> None:
  check_flags()
  model = load_model()
  start = time.monotonic()
  length = model.task.settings.max_seq_length
  lines = long = 0
  with (
    feature_files.open_features(FLAGS.output_file, model) as write,
    progress.bar(unit="line") as bar,
  ):
    texts = feature_files.read_texts(FLAGS.input_file)
    for window in feature_files.windows(model, texts, bar.update):
      write(window)
      lines += len(window)
      long += sum(f.was_cut or len(f.tokens) > length for f in window)
      del window  # Free it before the next is computed.
  logging.info(
    "Wrote the features of %s to %s in %.1f s; %d %s --max_seq_length=%d",
    plural(lines, "line"),
    FLAGS.output_file,
    time.monotonic() - start,
    long,
    "truncated to"
    if model.task.settings.long_text == "head"
    else "read in windows of",
    length,
  )


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)


if __name__ == "__main__":
  command()
