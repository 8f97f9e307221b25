"""Predicting a table of sentences with whole commands: ours and transformers'.

    python benchmarks/predict_command.py BERT_DIR TEXT_FILE PEER_PYTHON \\
      [ROWS] [ROUNDS]

Trains a classifier for a few steps, converts it for transformers, and predicts
ROWS (10,000) sentences of TEXT_FILE (one a line, repeated as needed) in turns
with `run_classifier.py --do_predict` and with a script that PEER_PYTHON runs:
PyTorch on all cores, batches in the order of the file, each padded to its
longest row. Both are processes of their own, compute in float32, 32 rows at a
time, with sentences of up to 128 pieces. Prints the seconds of ROUNDS (5) runs
of each side and their ratio. The predictions must be equal within 1e-4.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine

BATCH = 32

PEER = """
import csv, os, sys
import torch, transformers

folder, table, output, batch = sys.argv[1:]
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
loader = torch.utils.data.DataLoader(rows, int(batch), collate_fn=collate)
with torch.inference_mode(), open(output, "w", newline="") as writer:
  table = csv.writer(writer, delimiter="\\t")
  for features in loader:
    table.writerows(model(**features).logits.softmax(-1).tolist())
"""


def write_tables(folder, text_file, rows):
  """Writes train.tsv and test.tsv, both with two labels."""
  with open(text_file, encoding="utf-8") as reader:
    lines = [line.strip() for line in reader]
  # Quotes and tabs have a meaning in tables.
  texts = [x for x in lines if x and not set('"\t') & set(x)]
  for name, size in (("train", 64), ("test", rows)):
    chosen = itertools.islice(itertools.cycle(texts), size)
    with open(f"{folder}/{name}.tsv", "w", encoding="utf-8") as writer:
      writer.write("text\tlabel\n")
      for row, text in enumerate(chosen):
        writer.write(f"{text}\t{'yes' if row % 2 else 'no'}\n")


def run(*command):
  """Seconds of a process."""
  start = time.perf_counter()
  finished = subprocess.run(command, capture_output=True, text=True)
  seconds = time.perf_counter() - start
  if finished.returncode:
    sys.exit(f"{command[1]} failed:\n{finished.stderr}")
  return seconds


def script(name, *flags):
  """Seconds of one of this repository's commands."""
  return run(sys.executable, os.path.join(machine.ROOT, name), *flags)


def make_models(folder, bert_dir):
  """Trains a classifier, and converts it to transformers' format."""
  script(
    "run_classifier.py",
    "--task_name=custom",
    "--do_train",
    f"--train_file={folder}/train.tsv",
    f"--vocab_file={bert_dir}/vocab.txt",
    f"--bert_config_file={bert_dir}/bert_config.json",
    f"--init_checkpoint={bert_dir}/bert_model.ckpt",
    f"--output_dir={folder}/model",
  )
  script(
    "convert_checkpoint.py",
    "--to=huggingface",
    f"--model_dir={folder}/model",
    f"--output_dir={folder}/peer_model",
  )
  with open(f"{folder}/peer.py", "w", encoding="utf-8") as writer:
    writer.write(PEER)


def read_numbers(path):
  """The rows of a table of probabilities."""
  with open(path, encoding="utf-8") as reader:
    return [list(map(float, line.split("\t"))) for line in reader]


def main(bert_dir, text_file, peer_python, rows=10_000, rounds=5):
  print(machine.describe(), flush=True)
  version = (
    "import torch, transformers as t; print(torch.__version__, t.__version__)"
  )
  print("PyTorch, transformers:", flush=True, end=" ")
  subprocess.run([peer_python, "-c", version], check=True)
  with tempfile.TemporaryDirectory() as folder:
    write_tables(folder, text_file, rows)
    make_models(folder, bert_dir)

    def ours():
      return script(
        "run_classifier.py",
        "--task_name=custom",
        "--do_predict",
        f"--test_file={folder}/test.tsv",
        f"--init_checkpoint={folder}/model",
        f"--vocab_file={bert_dir}/vocab.txt",
        f"--bert_config_file={bert_dir}/bert_config.json",
        f"--predict_batch_size={BATCH}",
        f"--output_dir={folder}/ours",
      )

    def peer():
      paths = [f"{folder}/peer_model", f"{folder}/test.tsv"]
      return run(
        peer_python, f"{folder}/peer.py", *paths, f"{folder}/peer", f"{BATCH}"
      )

    times = {ours: [], peer: []}
    for _ in range(rounds):
      for side, found in times.items():
        found.append(side())
        print(f"{side.__name__}: {found[-1]:.1f} s", flush=True)
    pairs = zip(
      read_numbers(f"{folder}/ours/test_results.tsv"),
      read_numbers(f"{folder}/peer"),
      strict=True,
    )
    difference = max(
      abs(a - b) for rows in pairs for a, b in zip(*rows, strict=True)
    )
  for side, found in times.items():
    print(f"{side.__name__}: median {statistics.median(found):.1f} s")
  ratios = [b / a for a, b in zip(*times.values(), strict=True)]
  print(
    f"ratio: median {statistics.median(ratios):.2f} (min {min(ratios):.2f}, "
    f"max {max(ratios):.2f}); probabilities differ by {difference:.1e} at most"
  )
  if difference > 1e-4:
    sys.exit("the predictions are not equal within 1e-4")


if __name__ == "__main__":
  if len(sys.argv) not in (4, 5, 6):
    sys.exit(__doc__)
  main(*sys.argv[1:4], *map(int, sys.argv[4:]))
