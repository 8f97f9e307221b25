"""Compares ways to classify texts with few labels: docs/few-labels.md.

    python benchmarks/few_labels.py METHOD MODEL_DIR TABLE.csv
        [--rows=8,16,64,256] [--seeds=10] [--first_seed=1] [--test=100]

METHOD is `few_shot` or `plain` (run_classifier.py with and without --few_shot),
`logistic` (scikit-learn's logistic regression on the vectors of `bert.load`),
or `setfit`, which runs in an environment with setfit alone, where MODEL_DIR is
a folder of sentence-transformers. TABLE.csv has the columns `text`, `label`
and, for pairs, `text_b`.

Of each label, --test rows are set apart, the same for all seeds. A seed draws
the rows to train on from the others, and is that of the training. Each line is
JSON: accuracy, and seconds from reading the table to the accuracy, which
include compilation. The last line of a number of rows has the mean accuracy,
its standard error, and the lowest and highest one.
"""

import argparse
import collections
import csv
import functools
import json
import os
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

# Of plain fine-tuning: few rows need many epochs.
PLAIN_EPOCHS = {8: 30, 16: 20, 64: 10, 256: 5}


def draw(path, count, held_out, seed):
  """Rows to train on and rows to test: triples of two texts and a label."""
  by_label = collections.defaultdict(list)
  with open(path, encoding="utf-8", newline="") as reader:
    for row in csv.DictReader(reader):
      triple = row["text"], row.get("text_b") or "", row["label"]
      by_label[row["label"]].append(triple)
  train, test = [], []
  rng = random.Random(seed)
  for label in sorted(by_label):
    rows = random.Random(0).sample(by_label[label], len(by_label[label]))
    test += rows[:held_out]
    train += rng.sample(rows[held_out:], count)
  return rng.sample(train, len(train)), test


def accuracy(predicted, test):
  pairs = zip(predicted, test, strict=True)
  return statistics.fmean(label == row[2] for label, row in pairs)


def run_script(flags, train, test, seed):
  """The accuracy of run_classifier.py."""
  import run_classifier

  with tempfile.TemporaryDirectory() as folder:
    for name, rows in (("train", train), ("dev", test)):
      path = os.path.join(folder, f"{name}.csv")
      with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "text_b", "label"), *rows])
      flags = {**flags, f"{name}_file": path}
    if any(row[1] for row in train):
      flags["text_b_column"] = "text_b"
    results = run_classifier.run(
      task_name="custom",
      do_train=True,
      do_eval=True,
      seed=seed,
      output_dir=os.path.join(folder, "out"),
      **flags,
    )
  return results["eval_accuracy"]


def few_shot(model_dir, train, test, seed, count):
  flags = {"few_shot": True, "init_checkpoint": model_dir}
  return run_script(flags, train, test, seed)


def plain(model_dir, train, test, seed, count):
  flags = {
    "init_checkpoint": model_dir,
    "train_batch_size": 16,
    "num_train_epochs": PLAIN_EPOCHS[count],
  }
  return run_script(flags, train, test, seed)


@functools.cache
def load_vectors(model_dir):
  """The model of a folder, and the vectors that it has computed, by texts."""
  import bert

  return bert.load(model_dir, "vectors", pooling="mean", normalize=True), {}


def logistic(model_dir, train, test, seed, count):
  from sklearn import linear_model

  model, known = load_vectors(model_dir)

  def vectors(rows):
    new = list({row[:2] for row in rows} - known.keys())
    answers = model(new)
    known.update((t, a["vector"]) for t, a in zip(new, answers, strict=True))
    return [known[row[:2]] for row in rows]

  regression = linear_model.LogisticRegression(max_iter=1000)
  regression.fit(vectors(train), [row[2] for row in train])
  return accuracy(regression.predict(vectors(test)), test)


def setfit(model_dir, train, test, seed, count):
  import datasets
  import setfit

  def texts(rows):
    return [" [SEP] ".join(filter(None, row[:2])) for row in rows]

  labels = sorted({row[2] for row in train})
  model = setfit.SetFitModel.from_pretrained(
    model_dir, labels=labels, device="cpu"
  )
  model.model_body.max_seq_length = 128
  with tempfile.TemporaryDirectory() as folder:
    arguments = setfit.TrainingArguments(
      seed=seed,
      output_dir=folder,
      save_strategy="no",
      report_to="none",
      logging_strategy="no",
      show_progress_bar=False,
    )
    rows = {"text": texts(train), "label": [labels.index(r[2]) for r in train]}
    data = datasets.Dataset.from_dict(rows)
    setfit.Trainer(model, args=arguments, train_dataset=data).train()
  return accuracy(model.predict(texts(test)), test)


METHODS = {f.__name__: f for f in (few_shot, plain, logistic, setfit)}


def main():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("method", choices=METHODS)
  parser.add_argument("model_dir")
  parser.add_argument("table")
  parser.add_argument("--rows", default="8,16,64,256")
  parser.add_argument("--seeds", type=int, default=10)
  parser.add_argument("--first_seed", type=int, default=1)
  parser.add_argument("--test", type=int, default=100)
  flags = parser.parse_args()
  for count in map(int, flags.rows.split(",")):
    found = []
    for seed in range(flags.first_seed, flags.first_seed + flags.seeds):
      start = time.perf_counter()
      train, test = draw(flags.table, count, flags.test, seed)
      method = METHODS[flags.method]
      found.append(method(flags.model_dir, train, test, seed, count))
      seconds = round(time.perf_counter() - start, 1)
      line = {"rows": count, "seed": seed, "accuracy": found[-1]}
      print(json.dumps({**line, "seconds": seconds}), flush=True)
    deviation = statistics.stdev(found) if found[1:] else 0.0
    summary = {
      "method": flags.method,
      "rows": count,
      "mean": statistics.fmean(found),
      "standard_error": deviation / len(found) ** 0.5,
      "lowest": min(found),
      "highest": max(found),
    }
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
  main()
