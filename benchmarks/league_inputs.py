"""The model and the texts that all sides of the league read."""

import csv
import glob
import json
import os
import random
import shutil
from typing import NamedTuple

import machine
import numpy as np
from safetensors import numpy

from bert.data import datasets, downloads
from bert.data.text_files import read_lines
from bert.errors import UserError

SAMPLES = os.path.join(machine.ROOT, "sample_data")
SAMPLE_TEXT = os.path.join(machine.ROOT, "sample_text.txt")

# A model of two layers of width 32 and 64 positions.
TINY = "tests/goldens/variants/st-mean-normalized/folder"


class Inputs(NamedTuple):
  """Where the inputs are. `folder` has, for `stem` train and dev:

  `{stem}.csv` with text_a, text_b and label; `pairs_{stem}.csv`, up to 1,024
  of its rows of label 1; `words_{stem}.txt`, columns; and one.csv, 32 rows of
  train.csv; few.csv; calibration/, a table of texts; vocab.txt, sentences.txt,
  sentence.txt, text.txt and corpus.txt, repetitions of it.
  """

  folder: str
  model: str  # a folder of sentence-transformers
  sentences: int
  is_small: bool
  reasons: dict[str, str]  # why "pairs" or "words" are missing


def make_inputs(flags, folder):
  """Writes the inputs of all rows to a new folder."""
  os.makedirs(folder)
  text, reasons = SAMPLE_TEXT, {}
  count, megabytes = (400, 0) if flags.small else (4000, 20)
  if flags.small:
    source = os.path.join(machine.ROOT, TINY)
    rows = _neighbours(list(filter(None, read_lines(SAMPLE_TEXT))))
    tables = {"train": rows[:128], "dev": rows[128:192]}
  else:
    source = downloads.local_path(flags.model)
    text = next(iter(sorted(glob.glob(f"{flags.data}/text/*.txt"))), text)
    tables = _read_mrpc(flags, reasons)
  _copy_model(source, folder)
  if flags.small:
    _add_positions(f"{folder}/model")
  tables["one"] = tables["train"][:32]
  header = ("text_a", "text_b", "label")
  for stem, rows in tables.items():
    _write_csv(f"{folder}/{stem}.csv", header, rows)
    positive = [row for row in rows if row[2] == "1"]
    _write_csv(f"{folder}/pairs_{stem}.csv", header, positive[:1024])
  _write_words(flags, folder, reasons)
  _write_texts(folder, text, tables["train"], count, megabytes)
  model = f"{folder}/model"
  return Inputs(folder, model, count, flags.small, reasons)


def _copy_model(source, folder):
  """Copies a model, to which nothing must be written, and its vocabulary."""
  if not os.path.exists(f"{source}/modules.json"):
    raise UserError(
      f"--model={source} has no modules.json; pass a folder of "
      f"sentence-transformers"
    )
  shutil.copytree(source, f"{folder}/model")
  with open(f"{source}/tokenizer.json", encoding="utf-8") as reader:
    vocabulary = json.load(reader)["model"]["vocab"]
  with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as writer:
    writer.write("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")


def _add_positions(model):
  """Repeats them to 512: to quantize statically takes 384 in every text."""
  weights = numpy.load_file(f"{model}/model.safetensors")
  name = "embeddings.position_embeddings.weight"
  weights[name] = np.tile(weights[name], [8, 1])
  numpy.save_file(weights, f"{model}/model.safetensors", {"format": "pt"})
  with open(f"{model}/config.json", encoding="utf-8") as reader:
    config = json.load(reader)
  config["max_position_embeddings"] = len(weights[name])
  with open(f"{model}/config.json", "w", encoding="utf-8") as writer:
    json.dump(config, writer)


def _neighbours(lines):
  """Pairs of sentences; the label is 1 if the second follows the first."""
  rng = random.Random(1)
  rows = []
  for n, line in enumerate(lines[:-1]):
    second = lines[n + 1] if n % 2 else rng.choice(lines)
    rows.append((line, second, f"{n % 2}"))
  return rng.sample(rows, len(rows))


def _read_mrpc(flags, reasons):
  """Rows of two texts and a label, by stem."""
  folder = f"{flags.data}/glue/MRPC"
  tables = {"train": [], "dev": []}
  try:
    if not flags.data or not os.path.isdir(folder):
      folder = datasets.fetch_glue("MRPC", f"{flags.cache}/glue")
    for stem, rows in tables.items():
      with open(f"{folder}/{stem}.tsv", encoding="utf-8-sig") as reader:
        _, *found = csv.reader(reader, delimiter="\t", quoting=csv.QUOTE_NONE)
      rows += [(row[3], row[4], row[0]) for row in found]
  except (UserError, OSError) as error:
    reasons["pairs"] = f"no MRPC: {error}"
  return tables


def _write_words(flags, folder, reasons):
  """Up to 1,000 sentences of CoNLL-2003 to train on, and 500 to evaluate on."""
  names, source = ("train", "valid"), f"{flags.data}/conll2003"
  if flags.small:
    names, source = ("train", "dev"), f"{SAMPLES}/ner"
  sources = [f"{source}/{name}.txt" for name in names]
  if not all(map(os.path.exists, sources)):
    reasons["words"] = "CoNLL-2003 may not be downloaded; pass it in --data"
    return
  targets = ("train", 1000), ("dev", 500)
  for path, (stem, count) in zip(sources, targets, strict=True):
    with open(path, encoding="utf-8") as reader:
      sentences = reader.read().split("\n\n")[:count]
    with open(f"{folder}/words_{stem}.txt", "w", encoding="utf-8") as writer:
      writer.write("\n\n".join(sentences) + "\n")


def _write_texts(folder, text, pairs, count, megabytes):
  """The sentences, the documents as labeled rows, and the corpus."""
  with open(text, encoding="utf-8") as reader:
    documents = [x.split("\n") for x in reader.read().strip().split("\n\n")]
  sentences = [line for document in documents for line in document]
  sentences += [text for row in pairs for text in row[:2]]
  sentences = sentences[:count]
  for name, lines in (("sentences", sentences), ("sentence", sentences[:1])):
    with open(f"{folder}/{name}.txt", "w", encoding="utf-8") as writer:
      writer.write("\n".join(lines) + "\n")
  longest = sorted(documents, key=len, reverse=True)[:4]
  topics = [(x, str(n)) for n, lines in enumerate(longest) for x in lines]
  _write_csv(f"{folder}/few.csv", ("text", "label"), topics)
  os.makedirs(f"{folder}/calibration")  # The library datasets reads folders.
  rows = [(text,) for text in sentences[:300]]
  _write_csv(f"{folder}/calibration/train.csv", ("text",), rows)
  shutil.copy(text, f"{folder}/text.txt")
  with (
    open(text, encoding="utf-8") as reader,
    open(f"{folder}/corpus.txt", "w", encoding="utf-8") as writer,
  ):
    content = reader.read().strip() + "\n\n"
    for _ in range(max(1, megabytes * 2**20 // len(content))):
      writer.write(content)


def _write_csv(path, header, rows):
  with open(path, "w", encoding="utf-8", newline="") as writer:
    csv.writer(writer).writerows([header, *rows])
