"""A classifier of pairs in each format of export_model.py: size, time, answers.

    python benchmarks/exported.py MODEL_DIR MRPC_DIR [ROWS]

Exports the trained classifier in MODEL_DIR to each format, and answers the
development set of MRPC (all, or its first ROWS rows), one pair at a time, with
each runtime in turn. Prints a table: the size of the model in MB, the median
time of a pair, the largest difference of a probability from `bert.load`, the
number of other labels, and the accuracy.
"""

import collections
import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine  # First: it puts the folder of the code on the path.
import numpy as np
import onnxruntime
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import bert
from bert.data import records
from bert.tasks.classification.glue import MrpcProcessor

FORMATS = {
  "saved_model": ["none"],
  "onnx": ["none", "dynamic"],
  "tflite": ["none", "float16", "dynamic"],
}


def export(model_dir, folder, form, quantize):
  """Runs export_model.py; returns the size in MB of what it wrote."""
  command = [sys.executable, os.path.join(machine.ROOT, "export_model.py")]
  flags = {
    "model_dir": model_dir,
    "output_dir": folder,
    "format": form,
    "quantize": quantize,
  }
  command += [f"--{name}={value}" for name, value in flags.items()]
  subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
  paths = [f"{base}/{n}" for base, _, names in os.walk(folder) for n in names]
  if form != "saved_model":
    paths = [path for path in paths if path.endswith(form)]
  return sum(map(os.path.getsize, paths)) / 1e6


def load(folder, form):
  """A function from a pair of texts and its row to probabilities [C]."""
  if form == "saved_model":
    model = tf.saved_model.load(folder).signatures["serving_default"]

    def run(pair, row):
      texts = map(tf.constant, ([pair[0]], [pair[1]]))
      names = ("text_a", "text_b")
      outputs = model(**dict(zip(names, texts, strict=True)))
      return outputs["probabilities"].numpy()[0]

  elif form == "onnx":
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx")

    def run(pair, row):
      size = sum(row["input_mask"])
      feed = {n: np.array([v[:size]], np.int64) for n, v in row.items()}
      return session.run(["probabilities"], feed)[0][0]

  else:
    path = f"{folder}/model.tflite"
    model = Interpreter(path, num_threads=os.cpu_count())
    runner = model.get_signature_runner()

    def run(pair, row):
      feed = {n: np.array([v], np.int32) for n, v in row.items()}
      return runner(**feed)["probabilities"][0].copy()

  return run


def main(model_dir, mrpc_dir, count=None):
  print(machine.describe(), flush=True)
  model = bert.load(model_dir)
  examples = MrpcProcessor().get_dev_examples(mrpc_dir)[:count]
  pairs = [(example.text_a, example.text_b) for example in examples]
  rows = [
    {name: row[name] for name in records.SEQUENCES}
    for (row,) in model.task.features(examples, False)
  ]
  truth = [model.task.label_type.encode(e.label) for e in examples]
  known = np.array([answer["probabilities"] for answer in model(pairs)])
  times, answers = collections.defaultdict(list), collections.defaultdict(list)
  runs, sizes = {}, {}
  with tempfile.TemporaryDirectory() as parent:
    for form, quantizations in FORMATS.items():
      for quantize in quantizations:
        name, folder = f"{form}, {quantize}", f"{parent}/{form}_{quantize}"
        sizes[name] = export(model_dir, folder, form, quantize)
        runs[name] = load(folder, form)
    runs["bert.load"] = lambda pair, row: model(pair)["probabilities"]
    for run in runs.values():  # The first call takes longer.
      run(pairs[0], rows[0])
    for pair, row in zip(pairs, rows, strict=True):
      for name, run in runs.items():
        start = time.perf_counter()
        answers[name].append(run(pair, row))
        times[name].append(time.perf_counter() - start)
  print("| | MB | ms | difference | other labels | accuracy |")
  print("| --- | --- | --- | --- | --- | --- |")
  for name, found in answers.items():
    labels = np.argmax(found, axis=1)
    print(
      f"| {name} | {sizes.get(name, 0):.1f} "
      f"| {1e3 * statistics.median(times[name]):.1f} "
      f"| {np.abs(found - known).max():.1g} "
      f"| {np.sum(labels != np.argmax(known, axis=1))} "
      f"| {np.mean(labels == truth):.3f} |"
    )


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:3], *map(int, sys.argv[3:]))
