"""One update of pre-training against the peak of matrix products.

    python benchmarks/pretraining_step.py [PRECISION LAYERS HIDDEN BATCH LENGTH]

By default float32, 12 layers of width 768, batch 8, length 128, 20 masked
positions a row, 30,522 word pieces. As training_step.py, the products of a
forward pass are counted, those with the vocabulary among them, and twice that
for the backward pass; the peak is that of float32 in either precision.
"""

import sys

import machine  # noqa: F401  First, to find the code beside this folder.
import numpy as np
import tensorflow as tf
import training_step

from bert import fusion
from bert import variables
from optimization import Optimization
from bert.tasks import pretraining
from bert.training import estimator
from bert.training import startup
from bert.training.task import build_model_fn

PREDICTIONS = 20


def forward_flop(config, batch, length):
  """FLOP of the matrix products that pre-training's forward pass makes."""
  layers = training_step.layer_flop(config, batch, length, length)
  hidden = config.hidden_size
  # The transformation of what is masked, and its products with all words.
  masked = 2 * batch * PREDICTIONS * hidden * (hidden + config.vocab_size)
  return layers * config.num_hidden_layers + masked


def build_step(config, precision, batch, length, gradient_checkpointing=False):
  """A function that makes one update on fixed random rows."""
  store = variables.VariableStore()
  model_fn = build_model_fn(
    pretraining.PretrainingTask(config, {}, True),
    config,
    None,
    Optimization(1e-4, 1000, 10),
    precision=precision,
    gradient_checkpointing=gradient_checkpointing,
  )
  rng = np.random.default_rng(0)

  def drawn(below, *shape):
    return tf.constant(rng.integers(0, below, shape), tf.int32)

  features = {
    "input_ids": drawn(config.vocab_size, batch, length),
    "input_mask": tf.ones([batch, length], tf.int32),
    "segment_ids": tf.zeros([batch, length], tf.int32),
    "masked_lm_positions": drawn(length, batch, PREDICTIONS),
    "masked_lm_ids": drawn(config.vocab_size, batch, PREDICTIONS),
    "masked_lm_weights": tf.ones([batch, PREDICTIONS]),
    "next_sentence_labels": drawn(2, batch, 1),
  }

  @tf.function(autograph=False)
  def step():
    with store, fusion.enabled(True):
      spec = model_fn(features, None, estimator.ModeKeys.TRAIN, {})
    return {"loss": spec.loss, **spec.logged}

  return lambda: step()["loss"].numpy()


def main(precision="float32", layers=12, hidden=768, batch=8, length=128):
  startup.keep_freed_memory()
  layers, hidden, batch, length = map(int, (layers, hidden, batch, length))
  config = training_step.make_config(layers, hidden)
  training_step.measure(
    f"{precision}, {layers} x {hidden}, batch {batch}, length {length}",
    build_step(config, precision, batch, length),
    3 * forward_flop(config, batch, length),
  )


if __name__ == "__main__":
  main(*sys.argv[1:])
