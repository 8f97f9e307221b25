"""MRPC the original's way: a v1 graph in a Session, every batch padded to 128.

    python benchmarks/original.py BERT_DIR MRPC_DIR [STEPS]

Trains STEPS steps (20) and evaluates, and prints as JSON when the first step
ended (seconds of the clock), the seconds of a step (the median), and those of
the evaluation in batches of 8. The tokenizer is ours, so the start takes less
time than in the original.
"""

import contextlib
import functools
import json
import statistics
import sys
import time

import machine  # noqa: F401  Finds the code.
import numpy as np
import tensorflow as tf

from bert import layers
import modeling
import optimization
import tokenization
from bert.tasks import classification, examples, glue

LENGTH = 128
NAMES = ("input_ids", "input_mask", "segment_ids", "label_id")


def read(data_dir, bert_dir, set_type):
  """Features as arrays, by name."""
  tokenizer = tokenization.FullTokenizer(f"{bert_dir}/vocab.txt")
  processor = glue.MrpcProcessor()
  features = examples.convert_examples_to_features(
    getattr(processor, f"get_{set_type}_examples")(data_dir),
    processor.get_labels(),
    LENGTH,
    tokenizer,
  )
  return {n: np.array([getattr(f, n) for f in features]) for n in NAMES}


def build(bert_dir, is_training):
  """(placeholders, outputs) of a graph for training or evaluation."""
  config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
  inputs = {
    name: tf.compat.v1.placeholder(
      tf.int32, [None] + [LENGTH] * (name != "label_id")
    )
    for name in NAMES
  }
  loss, _, logits, _ = classification.create_model(
    config, is_training, *(inputs[n] for n in NAMES), 2, False
  )
  if not is_training:
    return inputs, logits
  variables = tf.compat.v1.trainable_variables()
  checkpoint = f"{bert_dir}/bert_model.ckpt"
  found, _ = modeling.get_assignment_map_from_checkpoint(variables, checkpoint)
  tf.compat.v1.train.init_from_checkpoint(checkpoint, found)
  return inputs, [
    loss,
    optimization.create_optimizer(loss, 5e-5, 343, 34, False),
  ]


def feed(inputs, rows, indices):
  return {inputs[name]: rows[name][indices] for name in NAMES}


@contextlib.contextmanager
def computation():
  """Replaces what we compute in another way than the original.

  The original leaves the derivative of GELU to TensorFlow, and computes the
  last layer at all positions where one is read.
  """
  gelu, block = layers.gelu, modeling.transformer_block

  def whole_block(x, mask, weights, config, seed, select):
    x, probs = block(x, mask, weights, config, seed)
    return (select(x), probs[:, :, :1]) if select else (x, probs)

  layers.gelu = functools.partial(tf.nn.gelu, approximate=True)
  modeling.transformer_block = whole_block
  try:
    yield
  finally:
    layers.gelu, modeling.transformer_block = gelu, block


def main(bert_dir, data_dir, steps=20):
  rows, dev = (read(data_dir, bert_dir, name) for name in ("train", "dev"))
  rng = np.random.default_rng(1)
  ends = []
  graph = tf.Graph()
  with computation(), graph.as_default(), tf.compat.v1.Session() as session:
    inputs, update = build(bert_dir, True)
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(steps):
      chosen = rng.choice(len(rows["label_id"]), 32, replace=False)
      session.run(update, feed(inputs, rows, chosen))
      ends.append(time.time())
  since = time.time()
  # Of fresh weights, which take as long.
  graph = tf.Graph()
  with computation(), graph.as_default(), tf.compat.v1.Session() as session:
    inputs, logits = build(bert_dir, False)
    session.run(tf.compat.v1.global_variables_initializer())
    for start in range(0, len(dev["label_id"]), 8):
      chosen = np.arange(start, min(start + 8, len(dev["label_id"])))
      session.run(logits, feed(inputs, dev, chosen))
  evaluation = time.time() - since
  found = {
    "first_step": ends[0],
    "step": statistics.median(np.diff(ends)[1:]),
    "evaluation": evaluation,
  }
  print(json.dumps(found))


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:3], *map(int, sys.argv[3:]))
