r"""Shows what a model does with text.

    python visualize.py attention --text="The cat sat on the mat" \
      --output_file=attention.html ...
    python visualize.py embeddings --input_file=sentences.txt \
      --output_dir=/tmp/map ...

The first writes a page with the attention of every head. The second maps the
sentences of a file, one a line, by the mean of their tokens' vectors in the
last layer: `embeddings.png`, and files for `tensorboard --logdir=/tmp/map`.
Both take --vocab_file, --bert_config_file and --init_checkpoint.
"""

import quiet_start  # noqa: F401  Before TensorFlow.
from training import common_flags
import os
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import flags, logging

import modeling
import tokenization
import variables
from errors import UserError, plural, shortened
from pipeline import files, text_files
from reports import attention, embedding_map
from tasks import features
from training import checkpoints, model_folder
from training import experiment
from training import startup

FLAGS = flags.FLAGS

# Each command, and the flags that are its alone: those it needs come first.
COMMANDS = {
  "attention": (("text", "output_file"), ("text_b",)),
  "embeddings": (("input_file", "output_dir"), ("labels", "method")),
}


def define_flags() -> None:
  """Defines the flags; the command, which comes first, becomes one."""
  if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
    sys.argv[1] = f"--command={sys.argv[1]}"
  flags.DEFINE_enum(
    "command", None, list(COMMANDS), "What to show; --command= may be left out."
  )
  flags.DEFINE_string("text", None, "attention: the text to read.")
  flags.DEFINE_string("text_b", None, "attention: the second text of a pair.")
  flags.DEFINE_string("output_file", None, "attention: the page to write.")
  flags.DEFINE_string(
    "input_file", None, "embeddings: UTF-8 text, one sentence a line."
  )
  flags.DEFINE_string("output_dir", None, "embeddings: folder for the map.")
  flags.DEFINE_bool(
    "labels",
    False,
    "embeddings: lines are label<TAB>sentence; labels show as colours.",
  )
  flags.DEFINE_enum(
    "method",
    "pca",
    embedding_map.METHODS,
    "embeddings: the projection; pca keeps variance, tsne neighbours.",
  )
  common_flags.define_model_flags(
    max_seq_length=128, longer_text="is cut by embeddings, refused by attention"
  )
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.


def check_flags() -> None:
  """Raises ValueError for a flag that no run could do with."""
  if not FLAGS.command:
    raise UserError(
      f"say what to show: python visualize.py {' or '.join(COMMANDS)} --..."
    )
  for command, (needed, more) in COMMANDS.items():
    for name in (*needed, *more):
      if command != FLAGS.command and FLAGS[name].present:
        raise UserError(
          f"--{name} is a flag of {command}, not of {FLAGS.command}; leave it "
          f"out"
        )
  common_flags.require(*COMMANDS[FLAGS.command][0])
  common_flags.require("init_checkpoint")
  read = [FLAGS.input_file, *common_flags.model_files()]
  if FLAGS.output_file:
    common_flags.check_output_files("output_file", [FLAGS.output_file], read)
  if FLAGS.output_dir:
    common_flags.check_output_folder(FLAGS.output_dir)
    # A folder that is yet to be made holds none of them.
    if tf.io.gfile.isdir(FLAGS.output_dir):
      paths = [
        os.path.join(FLAGS.output_dir, name) for name in embedding_map.FILES
      ]
      common_flags.check_output_files("output_dir", paths, read)


def load_model() -> model_folder.Model:
  """The model that the flags name, checked; its weights are yet to be read."""
  tokenizer = common_flags.load_tokenizer()
  config = common_flags.load_config(tokenizer)
  shapes = modeling.variable_shapes(config)
  pooler = {n: shapes[n] for n in shapes if n.startswith("bert/pooler/")}
  # Neither command needs the pooler, which some encoders come without.
  experiment.check_init_checkpoint(config, pooler, FLAGS.init_checkpoint)
  return model_folder.Model(config, tokenizer, FLAGS.init_checkpoint)


def read_texts(
  texts: Sequence[str], tokenizer: tokenization.FullTokenizer, limit: int
) -> tuple[list[str], list[int]]:
  """The tokens of a text or pair, and the segment of each.

  Args:
    texts: one or two.
    tokenizer: a FullTokenizer.
    limit: most tokens, [CLS] and [SEP] among them.

  Raises:
    ValueError: a text has no tokens, or there are more than that.
  """
  tokens, segment_ids = ["[CLS]"], [0]
  for segment, (name, text) in enumerate(
    zip(("text", "text_b"), texts, strict=False)
  ):
    pieces = tokenizer.tokenize(text)
    if not pieces:
      raise UserError(
        f"--{name}={text!r} holds nothing to read; pass some words"
      )
    tokens += [*pieces, "[SEP]"]
    segment_ids += [segment] * (len(pieces) + 1)
  if len(tokens) > limit:
    raise UserError(
      f"the text has {len(tokens)} tokens, [CLS] and [SEP] among them, more "
      f"than --max_seq_length={limit}; shorten it, or raise that as far as the "
      f"model's positions go"
    )
  return tokens, segment_ids


def attention_probs(
  model: model_folder.Model,
  tokens: Sequence[str],
  segment_ids: Sequence[int],
  precision: str = "float32",
) -> np.ndarray:
  """The attention of every head, float32 [L, N, S, S]."""
  weights = checkpoints.Checkpoint(
    checkpoints.find_checkpoint(model.checkpoint), weights_only=True
  )
  store = variables.VariableStore(initial_values=weights)

  # Eagerly the model would compute them twice, see get_all_attention_probs.
  @tf.function(autograph=False)
  def run(input_ids, segments):
    with store:
      bert = modeling.BertModel(
        model.config, False, input_ids, None, segments, precision=precision
      )
    return bert.get_all_attention_probs()

  ids = model.tokenizer.convert_tokens_to_ids(tokens)
  return np.concatenate(run(tf.constant([ids]), tf.constant([segment_ids])))


def read_sentences(
  path: str, labelled: bool
) -> tuple[list[str], list[str] | None]:
  """The sentences of a file, and their labels if its lines have such.

  Lines of white space are passed over.

  Raises:
    ValueError: a line is not as it should be, or there are fewer than 3.
  """
  text = text_files.decode_utf8(path, files.read_bytes(path))
  rows = []
  for number, line in enumerate(text_files.split_lines(text), 1):
    if not line.strip():
      continue
    label, tab, sentence = line.partition("\t")
    if labelled and not (tab and sentence.strip()):
      raise UserError(
        f"{path}:{number}: {shortened(line)!r} is not label<TAB>"
        f"sentence; write it so, or leave out --labels"
      )
    rows.append((label, sentence) if labelled else (None, line.strip()))
  if len(rows) < 3:
    raise UserError(
      f"{path} holds {plural(len(rows), 'sentence')}; a map needs 3 or more"
    )
  labels, sentences = map(list, zip(*rows, strict=True))
  return sentences, labels if labelled else None


def show_attention() -> None:
  """Writes the page of a text, or pair of texts."""
  texts = [FLAGS.text] + ([] if FLAGS.text_b is None else [FLAGS.text_b])
  model = load_model()
  tokens, segment_ids = read_texts(texts, model.tokenizer, FLAGS.max_seq_length)
  config = model.config
  attention.check_size(
    config.num_hidden_layers, config.num_attention_heads, len(tokens)
  )
  probs = attention_probs(model, tokens, segment_ids, FLAGS.precision)
  attention.write_page(FLAGS.output_file, texts, tokens, segment_ids, probs)
  layers, heads = probs.shape[:2]
  print(
    f"{FLAGS.output_file}: {len(tokens)} tokens, {layers} layers of {heads} "
    f"heads"
  )


def show_embeddings() -> None:
  """Writes the map of a file of sentences."""
  common_flags.require_file("input_file")
  sentences, labels = read_sentences(FLAGS.input_file, FLAGS.labels)
  extractor = features.FeatureExtractor(
    load_model(),
    layers=(-1,),
    pooling="mean",
    max_seq_length=FLAGS.max_seq_length,
    precision=FLAGS.precision,
  )
  logging.info("Reading %d sentences", len(sentences))
  found = extractor(sentences)
  cut = sum(text.is_cut for text in found)
  if cut:
    logging.warning(
      "%s longer than --max_seq_length=%d: cut",
      plural(cut, "sentence"),
      FLAGS.max_seq_length,
    )
  vectors = np.stack([text.vector for text in found])
  points, axes = embedding_map.project(vectors, FLAGS.method)
  tf.io.gfile.makedirs(FLAGS.output_dir)
  chart = os.path.join(FLAGS.output_dir, embedding_map.CHART)
  title = os.path.basename(FLAGS.input_file)
  embedding_map.write_chart(chart, points, axes, sentences, labels, title)
  embedding_map.write_projector(FLAGS.output_dir, vectors, sentences, labels)
  print(
    f"{chart}: {len(sentences)} sentences; for the vectors themselves, "
    f"tensorboard --logdir={FLAGS.output_dir}"
  )


def main() -> None:
  check_flags()
  if FLAGS.command == "attention":
    show_attention()
  else:
    show_embeddings()


if __name__ == "__main__":
  startup.run(main, define_flags)
