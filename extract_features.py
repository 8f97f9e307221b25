"""Writes fixed vectors of texts, from the layers of a trained encoder.

    python extract_features.py --input_file=/tmp/input.txt \\
      --output_file=/tmp/output.jsonl \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --layers=-1,-2,-3,-4 --max_seq_length=128 --batch_size=8

The input has one text a line, or a pair, `A ||| B`. The output has a vector of
each word piece and layer, or, by --pooling, one of the line; what is in its
files stands at the top of feature_files.py.
"""

import quiet_start  # noqa: F401  Before TensorFlow.
from training import common_flags
import time

from absl import flags, logging

from errors import plural
from tasks import feature_files, features
from tasks.features import FeatureExtractor
from training import model_folder, summaries
from training import experiment
from training import startup

# For notebooks.
__all__ = ["FeatureExtractor"]

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(max_seq_length=128)
  common_flags.define_tpu_flags()
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  _define_file_flags()
  _define_vector_flags()


def _define_file_flags():
  flags.DEFINE_string(
    "input_file",
    None,
    "Text in UTF-8, or a gzip file of it (.gz); - for standard input. One text "
    "a line, or a pair, A ||| B.",
  )
  flags.DEFINE_string(
    "output_file", None, "File to write; - for standard output."
  )
  flags.DEFINE_enum(
    "output_format",
    None,
    feature_files.FORMATS,
    "Format of --output_file. Default: by its extension, or jsonl.",
  )
  flags.DEFINE_enum(
    "dtype",
    "float32",
    ["float32", "float16"],
    "Type of the numbers in a binary format.",
  )
  flags.DEFINE_integer(
    "batch_size", 32, "Lines that are computed at a time.", lower_bound=1
  )
  flags.DEFINE_bool(
    "use_one_hot_embeddings",
    False,
    "Look word pieces up by a matrix product, which suits a TPU.",
  )


def _define_vector_flags():
  flags.DEFINE_string(
    "layers",
    ",".join(map(str, features.LAYERS)),
    "Layers to take, separated by commas: -1 is the highest, 0 the lowest. A "
    "model with fewer than four gives all by default.",
  )
  flags.DEFINE_enum(
    "pooling",
    "none",
    features.POOLINGS,
    "none: a vector of each word piece and layer. Others: one vector a line, "
    "that of [CLS], the pooler's, or the mean, the maximum, or the sum divided "
    "by the root of the number of all word pieces.",
  )
  flags.DEFINE_enum(
    "layer_combination",
    "last",
    features.LAYER_COMBINATIONS,
    "With --pooling, what is made of --layers: last, the highest of them; "
    "concat, all, one after another; mean.",
  )
  flags.DEFINE_bool(
    "normalize", False, "With --pooling, scale vectors to length 1."
  )
  flags.DEFINE_bool(
    "exclude_special",
    False,
    "Leave [CLS] and [SEP] out of --pooling=mean, max and mean_sqrt_len.",
  )


def check_flags() -> str:
  """Checks the flags that stand for themselves; returns the format to write.

  Raises:
    ValueError: a flag is wrong.
  """
  common_flags.require("input_file", "output_file", "init_checkpoint")
  if FLAGS.input_file != feature_files.STREAM:
    common_flags.require_file("input_file")
  if FLAGS.output_file != feature_files.STREAM:
    common_flags.check_output_files(
      "output_file",
      [FLAGS.output_file],
      [FLAGS.input_file, *common_flags.model_files()],
    )
  file_format = FLAGS.output_format or feature_files.format_of(
    FLAGS.output_file
  )
  feature_files.check_output(FLAGS.output_file, file_format, FLAGS.dtype)
  return file_format


def load_extractor() -> FeatureExtractor:
  """The model that the flags name, checked.

  Raises:
    ValueError: a flag or one of its files is wrong.
  """
  layers = None
  if FLAGS["layers"].present:
    layers = features.parse_layers(FLAGS.layers)
  tokenizer = common_flags.load_tokenizer()
  config = common_flags.load_config(tokenizer)
  return FeatureExtractor(
    model_folder.Model(config, tokenizer, FLAGS.init_checkpoint),
    layers=layers,
    pooling=FLAGS.pooling,
    layer_combination=FLAGS.layer_combination,
    normalize=FLAGS.normalize,
    exclude_special=FLAGS.exclude_special,
    max_seq_length=FLAGS.max_seq_length,
    batch_size=FLAGS.batch_size,
    precision=FLAGS.precision,
    use_one_hot_embeddings=FLAGS.use_one_hot_embeddings,
    strategy=experiment.make_strategy(FLAGS.use_tpu, FLAGS.master, None, None),
    pad_to_max_length=FLAGS.use_tpu,
    dtype=FLAGS.dtype,
  )


def main() -> None:
  file_format = check_flags()
  extractor = load_extractor()
  layout = feature_files.layout_of(extractor)
  since = time.monotonic()
  lines = cut = 0
  with (
    feature_files.open_features(
      FLAGS.output_file, file_format, layout
    ) as write,
    summaries.bar(unit="line") as bar,
  ):
    texts = feature_files.read_texts(FLAGS.input_file)
    for window in extractor.windows(texts, bar.update):
      write(window)
      lines += len(window)
      cut += sum(found.is_cut for found in window)
      del window  # Or it would stay until the next is there.
  seconds = time.monotonic() - since
  logging.info(
    "%s, %d of them cut at --max_seq_length=%d, in %.1f s, %.0f lines/s: "
    "the features are in %s",
    plural(lines, "line"),
    cut,
    FLAGS.max_seq_length,
    seconds,
    lines / seconds,
    FLAGS.output_file,
  )


if __name__ == "__main__":
  startup.run(main, define_flags)
