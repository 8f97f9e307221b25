"""Predicting many short sentences, against the same padded to 128.

    python benchmarks/predict.py BERT_DIR [ROWS]

Makes ROWS (100,000) sentences of 4 to 16 words of the vocabulary, 12 pieces
with [CLS] and [SEP] on average, trains a classifier for a few steps, and times
`run_classifier.py` as a whole process: --do_predict on a table; the same on a
tenth of it, and on this tenth with --pad_to_max_length; and --predict_file on
all and on a tenth. Prints the time and the peak memory of each, the ratio of
the times per row, and whether the labels are equal.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time

import machine

BATCH = 64


def write_table(path, words, rows):
  rng = random.Random(1)
  with open(path, "w", encoding="utf-8") as writer:
    writer.write("text\tlabel\n")
    for row in range(rows):
      text = " ".join(rng.choices(words, k=rng.randint(4, 16)))
      writer.write(f"{text}\t{'yes' if row % 2 else 'no'}\n")


def run(folder, *flags):
  """(seconds, peak of memory in MB) of a run of run_classifier.py."""
  command = [sys.executable, os.path.join(machine.ROOT, "run_classifier.py")]
  with (
    open(os.path.join(folder, "answers.tsv"), "wb") as out,
    open(os.path.join(folder, "log"), "wb") as log,
  ):
    start = time.perf_counter()
    process = subprocess.Popen([*command, *flags], stdout=out, stderr=log)
    _, status, usage = os.wait4(process.pid, 0)
  assert status == 0, flags
  return time.perf_counter() - start, usage.ru_maxrss / 1024


def labels_of(path):
  with open(path, encoding="utf-8") as reader:
    return [line.split("\t")[1] for line in reader][1:]


def main(bert_dir, rows=100_000):
  print(machine.describe(), flush=True)
  with open(f"{bert_dir}/vocab.txt", encoding="utf-8") as reader:
    words = [w for w in reader.read().split("\n") if re.fullmatch("[a-z]+", w)]
  with tempfile.TemporaryDirectory() as folder:
    sizes = {"train": 64, "all": rows, "tenth": rows // 10}
    for name, size in sizes.items():
      write_table(f"{folder}/{name}.tsv", words, size)
    model = f"{folder}/model"
    flags = [
      "--task_name=custom",
      f"--vocab_file={bert_dir}/vocab.txt",
      f"--bert_config_file={bert_dir}/bert_config.json",
      f"--predict_batch_size={BATCH}",
    ]
    train = ["--do_train", f"--train_file={folder}/train.tsv"]
    start = [f"--init_checkpoint={bert_dir}/bert_model.ckpt"]
    run(folder, *flags, *train, *start, f"--output_dir={model}")
    predict = [*flags, "--do_predict", f"--init_checkpoint={model}"]
    sides = {
      "all": ("all", []),
      "tenth": ("tenth", []),
      "padded": ("tenth", ["--pad_to_max_length"]),
    }
    times, labels = {}, {}
    for side, (table, more) in sides.items():
      output = f"{folder}/{side}"
      test = [f"--test_file={folder}/{table}.tsv", f"--output_dir={output}"]
      times[side], memory = run(folder, *predict, *test, *more)
      labels[side] = labels_of(f"{output}/test_predictions.tsv")
      print(f"{side}: {times[side]:.1f} s, {memory:.0f} MB", flush=True)
    per_row = times["padded"] / (rows // 10) / (times["all"] / rows)
    print(f"time a row, padded to all: {per_row:.1f}")
    equal = labels["padded"] == labels["tenth"]
    print(f"labels equal: {equal}")
    for side in ("all", "tenth"):
      with open(f"{folder}/{side}.tsv", encoding="utf-8") as reader:
        texts = [line.split("\t")[0] for line in reader][1:]
      with open(f"{folder}/lines", "w", encoding="utf-8") as writer:
        writer.write("\n".join(texts) + "\n")
      seconds, memory = run(
        folder,
        f"--predict_file={folder}/lines",
        f"--output_dir={model}",
        f"--predict_batch_size={BATCH}",
      )
      assert labels_of(f"{folder}/answers.tsv") == labels[side]
      print(f"--predict_file, {side}: {seconds:.1f} s, {memory:.0f} MB")


if __name__ == "__main__":
  if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
  main(sys.argv[1], *map(int, sys.argv[2:]))
