"""Extracting features: against the original's way, and against PyTorch.

    python benchmarks/extract_features.py BERT_DIR TEXT [--rounds=5]
      [--python=TORCH_VENV/bin/python] [--lines=10000]

TEXT has a sentence a line. First its first 395 lines, four layers, batches of
32: the original's way (v1 graph in a Session, padded to 128, each number
rounded and written by Python), ours to JSON Lines, to npz in float16, and to
npz with --precision=bfloat16 take turns in one process, start-up left out; then
extract_features.py is timed as a whole process. Prints medians of the seconds,
and of the ratios of each round.

With --python, which names a Python that has transformers and PyTorch, then
--lines sentence vectors (mean of the last layer, float32): that side takes
batches of 32 in the given order and pads each to its longest, where ours sorts
the lines by length. Both sides do a fifth of the lines at a time, in turns;
ours keeps the memory that it frees, as all our scripts do. Prints the sums of
the seconds, their ratio, and the least cosine between two vectors of a line.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.tasks import feature_files, features
from bert.training import checkpoints
from bert.training import startup

LINES, LENGTH, BATCH = 395, 128, 32
LAYERS = features.LAYERS
PARTS = 5

# Reads a line, does a part of the lines, says the seconds; another line...
TORCH_SIDE = """
import json, sys, time
import numpy as np, torch, transformers

folder, parts, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(folder + "/config.json") as reader:
  model = transformers.BertModel(transformers.BertConfig(**json.load(reader)))
weights = np.load(folder + "/weights.npz")
model.load_state_dict({name: torch.tensor(weights[name]) for name in weights})
model.eval()
tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
with open(folder + "/lines.json") as reader:
  lines = json.load(reader)

def vectors(texts):
  for start in range(0, len(texts), batch):
    encoded = tokenizer(
      texts[start : start + batch], padding=True, truncation=True,
      max_length=128, return_tensors="pt",
    )
    with torch.inference_mode():
      found = model(**encoded).last_hidden_state
    weights = encoded["attention_mask"].unsqueeze(-1).float()
    yield ((found * weights).sum(1) / weights.sum(1)).numpy()

list(vectors(lines[: 2 * batch]))
print(torch.__version__, transformers.__version__, torch.get_num_threads(),
      flush=True)
size = -(-len(lines) // parts)
results = []
for part in range(parts):
  sys.stdin.readline()
  since = time.perf_counter()
  results += vectors(lines[part * size : (part + 1) * size])
  print(time.perf_counter() - since, flush=True)
np.save(folder + "/torch.npy", np.concatenate(results))
"""


def gelu(x):
  """By its formula, each operation on its own, as the original has it."""
  inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
  return 0.5 * x * (1 + tf.tanh(inner))


class OriginalWay:
  """A function from texts to a file of features."""

  def __init__(self, bert_dir):
    self._tokenizer = tokenization.FullTokenizer(f"{bert_dir}/vocab.txt")
    config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
    config.hidden_act = gelu
    checkpoint = f"{bert_dir}/bert_model.ckpt"
    with tf.Graph().as_default() as graph:
      self._inputs = [
        tf.compat.v1.placeholder(tf.int32, [None, LENGTH]) for _ in range(3)
      ]
      model = modeling.BertModel(config, False, *self._inputs)
      layers = model.get_all_encoder_layers()
      self._layers = [layers[i] for i in LAYERS]
      found, _ = modeling.get_assignment_map_from_checkpoint(
        tf.compat.v1.trainable_variables(), checkpoint
      )
      tf.compat.v1.train.init_from_checkpoint(checkpoint, found)
      initial = tf.compat.v1.global_variables_initializer()
    self._session = tf.compat.v1.Session(graph=graph)
    self._session.run(initial)

  def __call__(self, texts, path):
    rows = [self._row(text) for text in texts]
    with open(path, "w", encoding="utf-8") as writer:
      for start in range(0, len(rows), BATCH):
        tokens, *fed = zip(*rows[start : start + BATCH], strict=True)
        layers = self._session.run(
          self._layers, dict(zip(self._inputs, map(np.array, fed), strict=True))
        )
        for place, names in enumerate(tokens):
          line = self._line(start + place, names, [x[place] for x in layers])
          writer.write(json.dumps(line) + "\n")

  def _row(self, text):
    pieces = self._tokenizer.tokenize(text)[: LENGTH - 2]
    tokens = ["[CLS]", *pieces, "[SEP]"]
    ids = self._tokenizer.convert_tokens_to_ids(tokens)
    padding = [0] * (LENGTH - len(ids))
    return tokens, ids + padding, [1] * len(ids) + padding, [0] * LENGTH

  def _line(self, number, tokens, layers):
    """What a line of the file holds; every number passes through Python."""
    described = [
      {
        "token": token,
        "layers": [
          {"index": index, "values": [round(float(x), 6) for x in rows[place]]}
          for index, rows in zip(LAYERS, layers, strict=True)
        ],
      }
      for place, token in enumerate(tokens)
    ]
    return {"linex_index": number, "features": described}


def write_ours(extractor, texts, path):
  with feature_files.open_features(path, extractor) as write:
    for window in extractor.windows([texts]):
      write(window)


def timed(run, *arguments):
  since = time.perf_counter()
  run(*arguments)
  return time.perf_counter() - since


def against_the_original(bert_dir, texts, folder, rounds):
  original = OriginalWay(bert_dir)
  ours = features.FeatureExtractor(bert_dir)
  half = features.FeatureExtractor(bert_dir, dtype="float16")
  bfloat16 = features.FeatureExtractor(
    bert_dir, dtype="float16", precision="bfloat16"
  )
  npz = f"{folder}/ours.npz"
  sides = {
    "original": lambda part: original(part, f"{folder}/original.jsonl"),
    "jsonl": lambda part: write_ours(ours, part, f"{folder}/ours.jsonl"),
    "npz": lambda part: write_ours(half, part, npz),
    "npz, bfloat16": lambda part: write_ours(bfloat16, part, npz),
  }
  for run in sides.values():
    run(texts[:BATCH])
  seconds = {name: [] for name in sides}
  for _ in range(rounds):
    for name, run in sides.items():
      seconds[name].append(timed(run, texts))
  for name, times in seconds.items():
    ratios = map(float.__truediv__, seconds["original"], times)
    print(
      f"{name}: {statistics.median(times):.2f} s, ratio "
      f"{statistics.median(ratios):.1f}",
      flush=True,
    )
  print(f"greatest difference: {greatest_difference(folder):.1e}")


def greatest_difference(folder):
  """Between the numbers of the two files of JSON Lines."""
  greatest = 0.0
  with (
    open(f"{folder}/original.jsonl", encoding="utf-8") as theirs,
    open(f"{folder}/ours.jsonl", encoding="utf-8") as ours,
  ):
    for lines in zip(theirs, ours, strict=True):
      found = [json.loads(line)["features"] for line in lines]
      for a, b in zip(*found, strict=True):
        assert a["token"] == b["token"]
        values = [[x["values"] for x in side["layers"]] for side in (a, b)]
        greatest = max(greatest, np.abs(np.subtract(*values)).max())
  return greatest


def whole_process(bert_dir, texts, folder, rounds):
  """Median seconds of extract_features.py to JSON Lines."""
  with open(f"{folder}/input.txt", "w", encoding="utf-8") as writer:
    writer.write("\n".join(texts) + "\n")
  command = [
    sys.executable,
    f"{machine.ROOT}/extract_features.py",
    f"--input_file={folder}/input.txt",
    f"--output_file={folder}/whole.jsonl",
    f"--vocab_file={bert_dir}/vocab.txt",
    f"--bert_config_file={bert_dir}/bert_config.json",
    f"--init_checkpoint={bert_dir}/bert_model.ckpt",
    "--verbosity=-1",
  ]
  # What keeps TensorFlow quiet here would be taken for the user's wish there.
  environment = {**os.environ}
  environment.pop("TF_CPP_MIN_LOG_LEVEL", None)

  def run():
    subprocess.run(command, env=environment, check=True)

  times = [timed(run) for _ in range(rounds)]
  return statistics.median(times)


def torch_name(name):
  """A variable's name in transformers."""
  name = name.removeprefix("bert/").replace("/layer_", "/layer/")
  name = name.replace("LayerNorm/gamma", "LayerNorm/weight")
  name = name.replace("LayerNorm/beta", "LayerNorm/bias")
  name = name.replace("_embeddings", "_embeddings/weight")
  return name.replace("kernel", "weight").replace("/", ".")


def write_for_torch(bert_dir, lines, folder):
  config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
  fields = {**config.to_dict(), "hidden_act": "gelu_pytorch_tanh"}
  checkpoint = checkpoints.Checkpoint(f"{bert_dir}/bert_model.ckpt")
  weights = {}
  for name in modeling.variable_shapes(config):
    value = checkpoint[name]
    is_kernel = name.endswith("kernel")
    weights[torch_name(name)] = value.T if is_kernel else value
  np.savez(f"{folder}/weights.npz", **weights)
  for name, content in (
    ("config.json", json.dumps(fields)),
    ("lines.json", json.dumps(lines)),
  ):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as writer:
      writer.write(content)
  with open(f"{bert_dir}/vocab.txt", "rb") as reader:
    vocab = reader.read()
  with open(f"{folder}/vocab.txt", "wb") as writer:
    writer.write(vocab)


def against_torch(bert_dir, lines, folder, python):
  write_for_torch(bert_dir, lines, folder)
  extractor = features.FeatureExtractor(bert_dir, pooling="mean")
  extractor.vectors(lines[: 2 * BATCH])
  with subprocess.Popen(
    [python, "-c", TORCH_SIDE, folder, str(PARTS), str(BATCH)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    versions = process.stdout.readline().split()
    if not versions:
      print(f"skipped: {python} cannot run transformers with PyTorch")
      return
    print("PyTorch {}, transformers {}, {} threads".format(*versions))
    size = -(-len(lines) // PARTS)
    ours, theirs, vectors = [], [], []
    for part in range(PARTS):
      mine = lines[part * size : (part + 1) * size]
      # The sides take turns to go first.
      for is_ours in (True, False) if part % 2 == 0 else (False, True):
        if is_ours:
          since = time.perf_counter()
          vectors.append(extractor.vectors(mine))
          ours.append(time.perf_counter() - since)
        else:
          print(file=process.stdin, flush=True)
          theirs.append(float(process.stdout.readline()))
    process.wait()
  a, b = np.concatenate(vectors), np.load(f"{folder}/torch.npy")
  norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
  cosines = np.sum(a * b, axis=1, dtype=np.float64) / norms
  ratios = map(float.__truediv__, theirs, ours)
  print(
    f"{len(lines)} vectors: {sum(ours):.1f} s, PyTorch {sum(theirs):.1f} s, "
    f"ratio {sum(theirs) / sum(ours):.2f}, median of parts "
    f"{statistics.median(ratios):.2f}; least cosine {cosines.min():.8f}"
  )


def main():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("bert_dir")
  parser.add_argument("text")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--python")
  parser.add_argument("--lines", type=int, default=10_000)
  flags = parser.parse_args()
  startup.keep_freed_memory()
  print(machine.describe(), flush=True)
  with open(flags.text, encoding="utf-8") as reader:
    sentences = [line.strip() for line in reader if line.strip()]
  with tempfile.TemporaryDirectory() as folder:
    texts = sentences[:LINES]
    if flags.rounds:
      against_the_original(flags.bert_dir, texts, folder, flags.rounds)
      whole = whole_process(flags.bert_dir, texts, folder, flags.rounds)
      print(f"extract_features.py, whole, to jsonl: {whole:.1f} s")
    if not flags.python or not os.path.exists(flags.python):
      print("skipped the vectors: --python names no Python with PyTorch")
      return
    lines = list(itertools.islice(itertools.cycle(sentences), flags.lines))
    against_torch(flags.bert_dir, lines, folder, flags.python)


if __name__ == "__main__":
  main()
