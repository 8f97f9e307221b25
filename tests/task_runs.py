"""A small training of each kind of task: its script, its files, its flags."""

import csv
import json
import shutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

import scripts
import tiny_task

SAMPLES = scripts.ROOT / "sample_data"

# Each step leaves a checkpoint, so that a run can be killed between any two.
SMALL = {
  "num_train_epochs": 1,
  "train_batch_size": 4,
  "save_checkpoints_steps": 1,
  "keep_checkpoint_max": 0,
}


class Run(NamedTuple):
  """How a kind of task is trained, evaluated and asked.

  Attributes:
    kind: the kind, as the registry and `bert.load` name it.
    script: path of the script, in the root, or in the folder of files.
    write: writes files into a folder; returns the flags that name them.
    predictions: names of the files of predictions, the first with the answers
      to `questions`.
    questions: from the folder of files to inputs of `bert.load`.
    answers: what a file of predictions says of each, in numbers and texts.
    of_model: the same of an answer of `bert.load`.
    other_batches: flags of batches that evaluate the same rows.
  """

  kind: str
  script: str
  write: Callable
  predictions: tuple[str, ...] = ()
  questions: Callable = lambda folder: ["the [MASK] is in the north", "it"]
  answers: Callable | None = None
  of_model: Callable = lambda answer: answer
  other_batches: Mapping = {"eval_batch_size": 3, "predict_batch_size": 1}


def read_table(text):
  """The rows of a table with a header, as dicts."""
  return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def read_lines(text):
  """The objects of JSON Lines."""
  return list(map(json.loads, text.splitlines()))


def _write_pairs(folder):
  data = {"task_name": "MRPC", "data_dir": folder / "data"}
  return {**data, "train_batch_size": 10, **tiny_task.HEAD_ONLY}


def _write_few_pairs(folder):
  """A head over vectors, which a release gives, too; its layer is trained."""
  changes = {"few_shot": True, "class_weights": "balanced"}
  return {**_write_pairs(folder), **changes, "freeze_layers": 0}


def _pairs(folder):
  lines = (folder / "data" / "test.tsv").read_text("utf-8").splitlines()[1:]
  return [tuple(line.split("\t")[3:]) for line in lines]


def _probabilities(text):
  return [[float(x) for x in line.split("\t")] for line in text.splitlines()]


def _write_squad(folder):
  found = {}
  squad = json.loads((folder / "squad.json").read_text("utf-8"))
  (article,) = squad["data"]
  paragraphs = article["paragraphs"]
  for flag, part in (("train", paragraphs[:3]), ("predict", paragraphs[4:6])):
    path = found[f"{flag}_file"] = folder / f"{flag}_squad.json"
    content = {"data": [{**article, "paragraphs": part}]}
    path.write_text(json.dumps(content), encoding="utf-8")
  windows = {"max_seq_length": 96, "doc_stride": 40, "max_query_length": 24}
  return {**found, **windows, **tiny_task.HEAD_ONLY}


def _questions(folder):
  squad = json.loads((folder / "predict_squad.json").read_text("utf-8"))
  return [
    (question["question"], paragraph["context"])
    for paragraph in squad["data"][0]["paragraphs"]
    for question in paragraph["qas"]
  ]


def _write_sentences(folder):
  found = {}
  for split in ("train", "dev", "test"):
    text = (SAMPLES / "ner" / f"{split}.txt").read_text("utf-8")
    path = found[f"{split}_file"] = folder / f"{split}.txt"
    path.write_text("\n\n".join(text.split("\n\n")[:25]) + "\n", "utf-8")
  return {**found, "max_seq_length": 32, **tiny_task.HEAD_ONLY}


def _sentences(folder):
  sentences = (folder / "test.txt").read_text("utf-8").split("\n\n")
  texts = [" ".join(sentence.split()) for sentence in sentences]
  return [text for text in texts if text and not text.startswith("-DOCSTART")]


def _write_choices(folder):
  found = {}
  for split in ("train", "dev", "test"):
    lines = (SAMPLES / "multiple_choice" / f"{split}.jsonl").read_text("utf-8")
    path = found[f"{split}_file"] = folder / f"{split}_choices.jsonl"
    tiny_task.write_lines(path, lines.splitlines()[:16])
  return {**found, **tiny_task.HEAD_ONLY}


def _choices(folder):
  rows = read_lines((folder / "test_choices.jsonl").read_text("utf-8"))
  return [{name: row[name] for name in ("context", "choices")} for row in rows]


def _shares(text):
  return [
    [float(v) for name, v in row.items() if name.startswith("choice_") and v]
    for row in read_table(text)
  ]


def _write_embeddings(folder):
  found = {"text_a_column": "question", "text_b_column": "answer"}
  for split, name in (("train", "train"), ("dev", "dev"), ("test", "dev")):
    lines = (SAMPLES / "embeddings" / f"{name}.csv").read_text("utf-8")
    path = found[f"{split}_file"] = folder / f"{split}_pairs.csv"
    tiny_task.write_lines(path, lines.splitlines()[:17])
  return found


def _texts(folder):
  with open(folder / "test_pairs.csv", encoding="utf-8") as reader:
    return [row["question"] for row in csv.DictReader(reader)]


def _write_records(folder):
  path = folder / "default.tfrecord"
  return {
    "input_file": path,
    "eval_input_file": path,
    "max_seq_length": 64,
    "max_predictions_per_seq": 10,
    "max_eval_steps": 2,
    "num_train_steps": 4,
    "num_warmup_steps": 1,
    "num_train_epochs": None,
    **tiny_task.HEAD_ONLY,
  }


def _write_ratings(folder):
  """The task of docs/add-a-task.md, which no module here knows."""
  page = (scripts.ROOT / "docs" / "add-a-task.md").read_text("utf-8")
  code = page.split("```python\n")[1].split("```")[0]
  (folder / "rating.py").write_text(code, "utf-8")
  texts = {"travel": "the city", "food": "the bread"}
  ends = {"is old and great": 2, "was in the war": 1.5}
  lines = [
    f"{start} {end},{topic},{stars}"
    for topic, start in texts.items()
    for end, stars in ends.items()
  ]
  found = {}
  for split, count in (("train", 4), ("dev", 2), ("test", 1)):
    path = found[f"{split}_file"] = folder / f"{split}_ratings.csv"
    tiny_task.write_lines(path, ["text,topic,stars", *lines * count])
  return {**found, **tiny_task.HEAD_ONLY}


RUNS = {
  "classification": Run(
    "classification",
    "run_classifier.py",
    _write_pairs,
    ("test_results.tsv", "test_predictions.tsv"),
    _pairs,
    _probabilities,
    lambda answer: answer["probabilities"],
  ),
  "few_shot": Run(
    "classification",
    "run_classifier.py",
    _write_few_pairs,
    ("test_results.tsv", "test_predictions.tsv"),
    _pairs,
    _probabilities,
    lambda answer: answer["probabilities"],
  ),
  "squad": Run(
    "squad",
    "run_squad.py",
    _write_squad,
    ("predictions.json", "nbest_predictions.json"),
    _questions,
    lambda text: list(json.loads(text).values()),
    lambda answer: answer["answer"],
  ),
  "tagging": Run(
    "tagging",
    "run_ner.py",
    _write_sentences,
    ("entities.jsonl", "test_predictions.txt"),
    _sentences,
    lambda text: [row["entities"] for row in read_lines(text)],
    lambda answer: answer["entities"],
  ),
  "multiple choice": Run(
    "multiple choice",
    "run_multiple_choice.py",
    _write_choices,
    ("test_predictions.tsv",),
    _choices,
    _shares,
    lambda answer: answer["probabilities"],
  ),
  "vectors": Run(
    "vectors",
    "run_embeddings.py",
    _write_embeddings,
    ("test_predictions.jsonl",),
    _texts,
  ),
  "fill_mask": Run(
    "fill_mask",
    "run_pretraining.py",
    _write_records,
    other_batches={"eval_batch_size": 4, "max_eval_steps": 4},
  ),
  "rating": Run(
    "rating",
    "rating.py",
    _write_ratings,
    ("test_predictions.jsonl",),
    lambda folder: ["the city is old and great", "the city was in the war"],
    lambda text: [
      {name: row[name] for name in ("topic", "stars")}
      for row in read_lines(text)
    ],
  ),
}


def make_files(folder, goldens):
  """Writes the files of all runs into a folder; returns it."""
  tiny_task.make_files(folder, goldens)
  shutil.copy(goldens / "squad_v1.json", folder / "squad.json")
  shutil.copy(goldens / "pretraining_data" / "default.tfrecord", folder)
  return folder


def command(name, files, out, **changes):
  """The script and the flags of a kind, as changed."""
  run = RUNS[name]
  changes = {"task_name": None, "data_dir": None, **SMALL, **changes}
  root = scripts.ROOT if (scripts.ROOT / run.script).exists() else files
  return [root / run.script, *tiny_task.flags(files, out, **changes)]
