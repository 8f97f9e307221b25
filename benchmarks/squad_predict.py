"""Compares SQuAD's prediction on cut batches with batches of fixed length.

    python benchmarks/squad_predict.py BERT_DIR SQUAD_FILE [ROUNDS]

Writes the windows of the file's questions (384 positions, stride 128, 64 for
the question), and predicts their logits in turns: sorted by length and cut to
the longest row of a batch, as run_squad.py does, and padded to 384, as the
original does. Prints the median seconds of ROUNDS (3) rounds of each side,
their ratio, windows per second, and the largest difference between the logits
at real positions.
"""

import functools
import itertools
import statistics
import sys
import tempfile
import time

import machine
import numpy as np

import modeling
import tokenization
from bert.tasks import squad, squad_model
from bert.training import estimator, inputs, record_files

BATCH = 8


def make_model(bert_dir, folder, is_padded):
  """An Estimator of the model with a new output layer, equal on both sides."""
  config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
  model_fn = squad_model.model_fn_builder(
    config, f"{bert_dir}/bert_model.ckpt", 1e-5, None, None, False, False
  )
  run_config = estimator.RunConfig(folder, pad_to_max_length=is_padded)
  return estimator.Estimator(model_fn, run_config)


def predict(model, input_fn):
  """Seconds, and start and end logits of each window."""
  start = time.perf_counter()
  rows = [
    (row["start_logits"], row["end_logits"])
    for row in model.predict(input_fn, BATCH)
  ]
  return time.perf_counter() - start, rows


def main(bert_dir, squad_file, rounds=3):
  print(machine.describe(), flush=True)
  settings = squad.ReadingSettings()
  tokenizer = tokenization.FullTokenizer(f"{bert_dir}/vocab.txt")
  examples = squad.read_squad_examples(squad_file, is_training=False)
  windows = list(
    itertools.chain.from_iterable(
      squad.iterate_windows(examples, tokenizer, settings, False)
    )
  )
  lengths = [len(window.tokens) for window in windows]
  print(
    f"{len(examples)} questions, {len(lengths)} windows of "
    f"{statistics.mean(lengths):.0f} pieces on average",
    flush=True,
  )
  with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/eval.tf_record"
    with squad.FeatureWriter(path, False) as writer:
      for window in windows:
        writer.process_feature(window)
    spec = squad.feature_spec(settings.max_seq_length, False)
    read = functools.cache(lambda: record_files.RecordFiles([path], spec))
    input_fn = inputs.lazy_input_fn(read, False)
    models = {
      name: make_model(bert_dir, folder, name == "padded")
      for name in ("cut", "padded")
    }
    # The first round compiles.
    logits = {name: predict(m, input_fn)[1] for name, m in models.items()}
    times = {name: [] for name in models}
    for _ in range(rounds):
      for name, model in models.items():
        times[name].append(predict(model, input_fn)[0])
  medians = {name: statistics.median(found) for name, found in times.items()}
  for name, seconds in medians.items():
    rate = len(lengths) / seconds
    print(f"{name}: {seconds:.2f} s, {rate:.1f} windows/s")
  print(f"padded to cut: {medians['padded'] / medians['cut']:.2f}")
  pairs = [
    (cut[:length], padded[:length])
    for length, *sides in zip(lengths, *logits.values(), strict=True)
    for cut, padded in zip(*sides, strict=True)
  ]
  largest = max(np.abs(cut).max() for cut, _ in pairs)
  difference = max(np.abs(cut - padded).max() for cut, padded in pairs)
  print(f"largest difference of logits: {difference:.1e}, up to {largest:.2f}")
  if difference > 1e-4:
    sys.exit("the two sides' logits are not equal within 1e-4")


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
