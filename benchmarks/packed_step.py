"""Training steps of MRPC at one static shape, packed and not, in turns.

    python benchmarks/packed_step.py BERT_DIR MRPC_DIR [ROUNDS BATCH PRECISION]

In each of ROUNDS rounds (20), one step with --pack_sequences follows one with
--pad_to_max_length and one with neither, each on its next batch of BATCH (32)
examples of up to 128 word pieces, in PRECISION (float32). Prints rows per
batch, and the medians of the milliseconds per example and of the ratios.
"""

import statistics
import sys
import time

import machine
import mrpc_step
import numpy as np
import original
import tensorflow as tf

from bert import fusion
import modeling
from bert import variables
from optimization import Optimization
from bert.tasks import classification, examples
from bert.tasks import labels as label_types
from bert.training import estimator, inputs, packed_batches, startup
from bert.training.task import build_model_fn


def read_rows(bert_dir, data_dir):
  """The training set of MRPC."""
  features = mrpc_step.read_features(bert_dir, data_dir)
  spec = examples.feature_spec(original.LENGTH)
  return inputs.Rows(map(examples.feature_row, features), spec)


def step_of(bert_dir, precision, packing, element_spec):
  """A function that trains on a batch."""
  config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
  label_type = label_types.Classification(["0", "1"])
  model_fn = build_model_fn(
    classification.ClassificationTask("MRPC", None, label_type),
    config,
    f"{bert_dir}/bert_model.ckpt",
    Optimization(5e-5, 343, 34),
    precision=precision,
    packings={estimator.ModeKeys.TRAIN: packing} if packing else None,
  )
  store = variables.VariableStore()

  @tf.function(autograph=False, input_signature=[element_spec])
  def step(features):
    with store, fusion.enabled(True):
      return model_fn(features, None, estimator.ModeKeys.TRAIN, {}).loss

  return lambda features: step(features).numpy()


def main(bert_dir, data_dir, rounds=20, batch_size=32, precision="float32"):
  startup.keep_freed_memory()
  rounds, batch_size = int(rounds), int(batch_size)
  print(machine.describe(), flush=True)
  rows = read_rows(bert_dir, data_dir)
  packing = packed_batches.choose_packing(
    [rows.lengths], batch_size, original.LENGTH
  )
  ways = {
    "cut": {},
    "padded": {"pad_to_max_length": True},
    "packed": {"packing": packing},
  }
  input_fn = inputs.input_fn_from_rows(rows, is_training=True)
  steps, batches = {}, {}
  for name, params in ways.items():
    dataset = input_fn({"batch_size": batch_size, "seed": 1, **params})
    chosen = params.get("packing")
    steps[name] = step_of(bert_dir, precision, chosen, dataset.element_spec)
    batches[name] = iter(dataset)
    steps[name](next(batches[name]))  # Compiles.
  times = {name: [] for name in ways}
  for _ in range(rounds):
    for name, step in steps.items():
      batch = next(batches[name])
      start = time.perf_counter()
      step(batch)
      times[name].append((time.perf_counter() - start) / batch_size)
  filled = np.mean(rows.lengths) * batch_size / original.LENGTH
  print(
    f"{precision}: {batch_size} examples in {packing.num_rows} rows of "
    f"{original.LENGTH}, {filled / packing.num_rows:.0%} filled"
  )
  for name, seconds in times.items():
    ratios = map(float.__truediv__, times["padded"], seconds)
    print(
      f"{name}: {1000 * statistics.median(seconds):.1f} ms per example, "
      f"{statistics.median(ratios):.2f} times as fast as padded"
    )


if __name__ == "__main__":
  if len(sys.argv) not in range(3, 7):
    sys.exit(__doc__)
  main(*sys.argv[1:])
