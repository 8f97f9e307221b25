"""One update of a classifier against the peak of matrix products.

    python benchmarks/training_step.py [LAYERS HIDDEN BATCH LENGTH]

By default 12 layers of width 768, batch 8, length 128, in float32. The products
of a forward pass are counted, and twice that for the backward pass; what the
update costs beside them (softmax, normalization, dropout, Adam) lowers the
share. Peak and step are measured in turn, in one run.
"""

import statistics
import sys

import machine
import numpy as np
import tensorflow as tf

from bert import fusion
import modeling
import run_classifier
from bert import variables
from bert.training import estimator

ROUNDS, STEPS = 3, 4


def make_config(layers, hidden):
  """A BertConfig of the usual proportions, with BERT's English vocabulary."""
  return modeling.BertConfig(
    30522,
    hidden_size=hidden,
    num_hidden_layers=layers,
    num_attention_heads=max(1, hidden // 64),
    intermediate_size=4 * hidden,
    type_vocab_size=2,
  )


def layer_flop(config, batch, length, queries):
  """FLOP of a layer's matrix products, of that many positions' outputs."""
  hidden, wide = config.hidden_size, config.intermediate_size
  projections = 2 * hidden * hidden * (queries + length)  # q, output; k, v
  attention = 2 * queries * length * hidden
  feed_forward = 2 * queries * hidden * wide
  return 2 * batch * (projections + attention + feed_forward)


def forward_flop(config, batch, length):
  """FLOP of the matrix products that a classifier's forward pass makes.

  The last layer's first position is all that the classifier reads, so its
  queries and feed-forward part count for one position.
  """
  whole = layer_flop(config, batch, length, length)
  first = layer_flop(config, batch, length, 1)
  return whole * (config.num_hidden_layers - 1) + first


def build_step(config, batch, length, precision="float32", store=None):
  """A function that makes one update on fixed random rows."""
  store = store or variables.VariableStore()
  model_fn = run_classifier.model_fn_builder(
    config,
    2,
    None,
    1e-5,
    1000,
    10,
    use_tpu=False,
    use_one_hot_embeddings=False,
    precision=precision,
  )
  rng = np.random.default_rng(0)
  shape = [batch, length]
  features = {
    "input_ids": tf.constant(rng.integers(0, config.vocab_size, shape)),
    "input_mask": tf.ones(shape, tf.int32),
    "segment_ids": tf.zeros(shape, tf.int32),
    "label_ids": tf.constant(rng.integers(0, 2, batch)),
  }

  @tf.function(autograph=False)
  def step():
    with store, fusion.enabled(True):
      return model_fn(features, None, estimator.ModeKeys.TRAIN, {}).loss

  return lambda: step().numpy()


def measure(name, step, flop):
  """Prints the time of a step, of that many FLOP, in turns with the peak."""
  shares = []
  print(machine.describe())
  for _ in range(ROUNDS):
    peak = machine.matmul_peak(repetitions=5)
    median, fastest, slowest = machine.seconds(step, STEPS)
    shares.append(flop / median / peak)
    print(
      f"{name}: {median:.3f} s a step (min {fastest:.3f}, max {slowest:.3f}), "
      f"{flop / median / 1e9:.0f} GFLOP/s; peak {peak / 1e9:.0f} GFLOP/s",
      flush=True,
    )
  print(f"median share of the peak: {statistics.median(shares):.0%}")


def main(layers=12, hidden=768, batch=8, length=128):
  config = make_config(layers, hidden)
  measure(
    f"{layers} x {hidden}, batch {batch}, length {length}",
    build_step(config, batch, length),
    3 * forward_flop(config, batch, length),
  )


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
