"""A training step in float32 and bfloat16: its time, and its share of the peak.

    python benchmarks/training_step.py [--pretraining] [--torch=PYTHON]
        [--layers=12] [--hidden=768] [--batch=8] [--length=128] [--rounds=7]

Fine-tunes a classifier with random weights on random rows, or pre-trains with
--pretraining. The share is that of the peak of matrix multiplication, measured
in the same rounds: FLOP of the matrix products of a forward pass, times three.
With --torch, the Python of an environment with torch and transformers, the same
update of transformers takes turns with ours.
"""

import argparse
import os
import statistics
import subprocess

import machine
import numpy as np
import tensorflow as tf

import modeling
from bert import kernels, variables
from bert.scripts import startup
from bert.tasks.pretraining import task as pretraining
from bert.training import estimator
from bert.training.model_fn import ModelOptions, build_model_fn
from optimization import Optimization
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)

PREDICTIONS = 20
STEPS = 2


def layer_flop(config, batch, length, queries):
  """FLOP of the matrix products of a layer for this number of outputs."""
  hidden, wide = config.hidden_size, config.intermediate_size
  projections = 2 * hidden * hidden * (queries + length)  # q, output; k, v
  attention = 2 * queries * length * hidden
  feed_forward = 2 * queries * hidden * wide
  return 2 * batch * (projections + attention + feed_forward)


def forward_flop(config, batch, length, is_pretraining):
  """FLOP of the matrix products of a forward pass.

  A classifier needs one position of the last layer. Pre-training is counted
  with the whole last layer and the products with the vocabulary.
  """
  whole = layer_flop(config, batch, length, length)
  if not is_pretraining:
    first = layer_flop(config, batch, length, 1)
    return whole * (config.num_hidden_layers - 1) + first
  hidden = config.hidden_size
  masked = 2 * batch * PREDICTIONS * hidden * (hidden + config.vocab_size)
  return whole * config.num_hidden_layers + masked


def make_features(config, batch, length, is_pretraining):
  """One batch of random rows."""
  rng = np.random.default_rng(0)

  def drawn(below, *shape):
    return tf.constant(rng.integers(0, below, shape), tf.int32)

  features = {
    "input_ids": drawn(config.vocab_size, batch, length),
    "input_mask": tf.ones([batch, length], tf.int32),
    "segment_ids": tf.zeros([batch, length], tf.int32),
  }
  if not is_pretraining:
    return {**features, "label_ids": drawn(2, batch)}
  return {
    **features,
    "masked_lm_positions": drawn(length, batch, PREDICTIONS),
    "masked_lm_ids": drawn(config.vocab_size, batch, PREDICTIONS),
    "masked_lm_weights": tf.ones([batch, PREDICTIONS]),
    "next_sentence_labels": drawn(2, batch, 1),
  }


def make_config(layers, hidden):
  """A BertConfig with the usual proportions and 30,522 word pieces."""
  return modeling.BertConfig(
    30522,
    hidden_size=hidden,
    num_hidden_layers=layers,
    num_attention_heads=max(1, hidden // 64),
    intermediate_size=4 * hidden,
    type_vocab_size=2,
  )


def make_model_fn(config, precision, is_pretraining):
  """The model_fn of a classifier, or of pre-training."""
  task = pretraining.PretrainingTask(config, {}, True)
  if not is_pretraining:
    task = ClassificationTask(ClassifierSettings(labels=("0", "1")))
  return build_model_fn(
    task,
    config,
    None,
    Optimization(1e-5, 1000, 10),
    ModelOptions(precision=precision),
  )


def build_step(config, batch, length, precision, is_pretraining):
  """A function that makes one update."""
  store = variables.VariableStore()
  model_fn = make_model_fn(config, precision, is_pretraining)
  features = make_features(config, batch, length, is_pretraining)

  @tf.function(autograph=False)
  def step():
    with store, kernels.enabled(True):
      spec = model_fn(features, None, estimator.ModeKeys.TRAIN, {})
    return {"loss": spec.loss, **spec.logged}

  return lambda: step()["loss"].numpy()


def torch_side(python, sizes):
  """A function (job, precision) -> median seconds in another process.

  Args:
    python: a Python with torch and transformers.
    sizes: layers, hidden size, batch size, sequence length.
  """
  peer = os.path.join(os.path.dirname(__file__), "torch_steps.py")
  # Waiting threads must not take the processor from the other side.
  process = subprocess.Popen(
    [python, peer, *map(str, sizes)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    env=os.environ | {"OMP_WAIT_POLICY": "passive"},
  )
  print("PyTorch, transformers", process.stdout.readline().strip())

  def seconds(job, precision):
    process.stdin.write(f"{job} {precision} {STEPS}\n")
    process.stdin.flush()
    return float(process.stdout.readline())

  return seconds


def parse_flags():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("--pretraining", action="store_true")
  parser.add_argument("--torch")
  for name, default in (
    ("layers", 12),
    ("hidden", 768),
    ("batch", 8),
    ("length", 128),
    ("rounds", 7),
  ):
    parser.add_argument(f"--{name}", type=int, default=default)
  return parser.parse_args()


def main():
  flags = parse_flags()
  startup.keep_freed_memory()
  print(machine.describe(), flush=True)
  config = make_config(flags.layers, flags.hidden)
  sizes = config, flags.batch, flags.length
  flop = 3 * forward_flop(*sizes, flags.pretraining)
  job = "pretraining" if flags.pretraining else "update"
  peer = flags.torch and torch_side(
    flags.torch, (flags.layers, flags.hidden, flags.batch, flags.length)
  )
  for precision in ("float32", "bfloat16"):
    step = build_step(*sizes, precision, flags.pretraining)
    peaks = []

    def peak(precision=precision, peaks=peaks):
      peaks.append(machine.matmul_peak(precision))
      return flop / peaks[-1]

    sides = {
      f"{precision}": lambda step=step: machine.median_seconds(step, STEPS),
      f"{precision}, at the peak": peak,
    }
    if peer:
      sides["PyTorch"] = lambda precision=precision: peer(job, precision)
    times = machine.in_turns(sides, flags.rounds, warmups=2)
    ours, at_peak = list(times.values())[:2]
    share = statistics.median(b / a for a, b in zip(ours, at_peak, strict=True))
    print(
      f"{share:.0%} of {statistics.median(peaks) / 1e9:.0f} GFLOP/s", flush=True
    )


if __name__ == "__main__":
  main()
