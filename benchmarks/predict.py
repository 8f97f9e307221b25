"""Prediction of a table by run_classifier.py, as a whole command.

    python benchmarks/predict.py [--torch=PYTHON] [--rows=10000] [--rounds=5]
        [--layers=6] [--hidden=384] [--words=60]

Trains a classifier with random weights for a few steps, and predicts ROWS texts
of 4 to WORDS words, 32 at a time. These commands take turns: --do_predict; the
same with --pad_to_max_length; --precision=bfloat16; and with --torch, the
Python of an environment with torch and transformers, a script that pads each
batch to its longest row: with the rows sorted by length, and in the order of
the file. Its probabilities and ours must be equal within 1e-4.
"""

import argparse
import functools
import sys
import tempfile

import machine

BATCH = 32

PEER = """
import csv, os, sys
import torch, transformers

folder, table, output, batch, order = sys.argv[1:]
torch.set_num_threads(os.cpu_count())
with open(table, encoding="utf-8", newline="") as reader:
  texts = [line.rstrip("\\n").split("\\t")[0] for line in reader][1:]
tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
model = transformers.BertForSequenceClassification.from_pretrained(folder)
model.eval()
collate = transformers.DataCollatorWithPadding(tokenizer)
encoded = tokenizer(texts, truncation=True, max_length=128)
rows = [
  {name: values[i] for name, values in encoded.items()}
  for i in range(len(texts))
]
indices = list(range(len(rows)))
if order == "sorted":
  indices.sort(key=lambda i: len(rows[i]["input_ids"]))
rows = [rows[i] for i in indices]
loader = torch.utils.data.DataLoader(rows, int(batch), collate_fn=collate)
found = []
with torch.inference_mode():
  for features in loader:
    found += model(**features).logits.softmax(-1).tolist()
with open(output, "w", newline="") as writer:
  table = csv.writer(writer, delimiter="\\t")
  table.writerows(row for _, row in sorted(zip(indices, found)))
"""


def train(folder):
  """Trains a classifier on a few rows."""
  machine.script(
    "run_classifier.py",
    "--task_name=custom",
    "--do_train",
    f"--train_file={folder}/train.tsv",
    f"--init_checkpoint={folder}/release",
    f"--output_dir={folder}/model",
  )


def predict(folder, *flags):
  """Predicts the table."""
  machine.script(
    "run_classifier.py",
    "--task_name=custom",
    "--do_predict",
    f"--test_file={folder}/test.tsv",
    f"--init_checkpoint={folder}/model",
    f"--predict_batch_size={BATCH}",
    f"--output_dir={folder}/ours",
    *flags,
  )


def make_peers(folder, python):
  """Functions that predict the table with transformers, by name."""
  machine.script(
    "convert_checkpoint.py",
    "--to=huggingface",
    f"--model_dir={folder}/model",
    f"--output_dir={folder}/peer_model",
  )
  with open(f"{folder}/peer.py", "w", encoding="utf-8") as writer:
    writer.write(PEER)
  paths = [f"{folder}/{name}" for name in ("peer.py", "peer_model", "test.tsv")]
  command = [python, *paths, f"{folder}/peer", f"{BATCH}"]
  return {
    f"transformers, {order}": functools.partial(machine.run, *command, order)
    for order in ("sorted", "in order")
  }


def largest_difference(folder):
  """Between the probabilities of both sides."""
  tables = []
  for name in ("ours/test_results.tsv", "peer"):
    with open(f"{folder}/{name}", encoding="utf-8") as reader:
      tables.append([float(x) for line in reader for x in line.split("\t")])
  return max(abs(a - b) for a, b in zip(*tables, strict=True))


def parse_flags():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("--torch")
  for name, default in (
    ("rows", 10_000),
    ("rounds", 5),
    ("layers", 6),
    ("hidden", 384),
    ("words", 60),
  ):
    parser.add_argument(f"--{name}", type=int, default=default)
  return parser.parse_args()


def main():
  flags = parse_flags()
  print(machine.describe(), flush=True)
  with tempfile.TemporaryDirectory() as folder:
    machine.write_model(f"{folder}/release", flags.layers, flags.hidden)
    machine.write_table(f"{folder}/train.tsv", machine.make_texts(64))
    texts = machine.make_texts(flags.rows, longest=flags.words)
    machine.write_table(f"{folder}/test.tsv", texts)
    train(folder)
    jobs = {
      "float32": [],
      "float32, padded": ["--pad_to_max_length"],
      "bfloat16": ["--precision=bfloat16"],
    }
    runs = {
      name: functools.partial(predict, folder, *more)
      for name, more in jobs.items()
    }
    if flags.torch:
      runs |= make_peers(folder, flags.torch)
    machine.in_turns(
      {
        name: functools.partial(machine.timed, run)
        for name, run in runs.items()
      },
      flags.rounds,
    )
    if flags.torch:
      predict(folder)
      difference = largest_difference(folder)
      print(f"probabilities differ by {difference:.1e} at most")
      if difference > 1e-4:
        sys.exit("the predictions are not equal within 1e-4")


if __name__ == "__main__":
  main()
