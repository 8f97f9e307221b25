"""Steps in loops of different lengths (`--iterations_per_loop`), in turns.

    python benchmarks/device_loops.py [LAYERS HIDDEN BATCH LENGTH]

By default 1 layer of width 32, batch 8, length 32, where the time between two
steps counts most. In each of ROUNDS rounds, a training makes STEPS steps with
each value. Prints the medians over the rounds.
"""

import statistics
import sys
import tempfile

import machine
import numpy as np
import tensorflow as tf
from training_step import make_config

import run_classifier
from bert.training import estimator, startup, summaries

ROUNDS, STEPS, LENGTHS = 9, 100, (1, 10, 100)


def make_input_fn(config, batch, length):
  """An input_fn that repeats one batch of random rows."""
  rng = np.random.default_rng(0)
  ids = rng.integers(0, config.vocab_size, [batch, length])
  features = {
    "input_ids": tf.constant(ids, tf.int32),
    "input_mask": tf.ones([batch, length], tf.int32),
    "segment_ids": tf.zeros([batch, length], tf.int32),
    "label_ids": tf.constant(rng.integers(0, 2, batch), tf.int32),
  }
  dataset = tf.data.Dataset.from_tensors(features).repeat()
  return lambda params: dataset.prefetch(2)


def main(layers=1, hidden=32, batch=8, length=32):
  startup.keep_freed_memory()
  print(machine.describe(), flush=True)
  config = make_config(layers, hidden)
  model_fn = run_classifier.model_fn_builder(
    config, 2, None, 1e-5, 10**6, 10, False, use_one_hot_embeddings=False
  )
  input_fn = make_input_fn(config, batch, length)
  folders = {loop: tempfile.mkdtemp() for loop in LENGTHS}
  models = {
    loop: estimator.Estimator(
      model_fn,
      estimator.RunConfig(
        folder,
        save_checkpoints_steps=10**9,
        keep_checkpoint_max=1,
        log_steps=10**9,
        iterations_per_loop=loop,
      ),
    )
    for loop, folder in folders.items()
  }
  for number in range(1, ROUNDS + 1):
    # The first step of each is not timed.
    for model in models.values():
      model.train(input_fn, batch, number * (STEPS + 1))
  for loop, folder in folders.items():
    rates = [rate for _, rate in summaries.read_scalars(folder)["examples/s"]]
    print(f"loops of {loop}: {1e3 * batch / statistics.median(rates):.2f} ms")


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
