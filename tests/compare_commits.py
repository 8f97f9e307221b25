"""Compares what the scripts of two checkouts write.

    python tests/compare_commits.py [--cache=DIR] [--only=NAME,...] OTHER [THIS]

OTHER and THIS are the roots of two checkouts. The scripts of both run the same
small commands on the same files. What they leave must be the same: rows,
weights, results, answers, settings and converted models to the byte; pages,
logs and records of runs apart from times, speeds, memory and versions. Prints a
line for each run, with the first file that differs. The status is 1 if a run
differs or fails.

With --cache, the files stay in DIR, and a checkout without changes is not run
again for the same commit, commands and inputs. If a run differs, OTHER runs
once more: a file in which OTHER differs from itself says nothing.
"""

import argparse
import concurrent.futures
import contextlib
import csv
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).parent.parent
GOLDENS = ROOT / "tests" / "goldens"
SAMPLES = ROOT / "sample_data"

JOBS = 2  # Others use the machine, too.

MODEL = (
  "--init_checkpoint=model/bert_model.ckpt --vocab_file=model/vocab.txt"
  " --bert_config_file=one_layer.json"
)
SMALL = (
  "--max_seq_length=32 --train_batch_size=4 --num_train_epochs=1"
  " --learning_rate=1e-3 --log_steps=1"
)
ALL = f"--do_train --do_eval --do_predict {SMALL} --output_dir=out"
TABLES = "--train_file=train.csv --dev_file=dev.csv --test_file=test.csv"
OWN = f"run_classifier.py --task_name=custom {TABLES}"
GLUE = "run_classifier.py --data_dir=glue/MRPC --task_name=MRPC"
SQUAD = (
  "--doc_stride=16 --max_query_length=12 --max_seq_length=64"
  " --do_train --do_eval --do_predict --output_dir=out"
)
NER = "run_ner.py --train_file=ner.txt --dev_file=ner.txt --test_file=ner.txt"
CHOICES = "run_multiple_choice.py " + " ".join(
  f"--{split}_file=choices.jsonl" for split in ("train", "dev", "test")
)
VECTORS = f"run_embeddings.py {TABLES} --text_a_column=text"
PRETRAINING = (
  "run_pretraining.py --max_seq_length=64 --max_predictions_per_seq=10"
  " --train_batch_size=4 --eval_batch_size=8 --num_train_steps=3"
  " --num_warmup_steps=1 --max_eval_steps=2 --learning_rate=1e-3 --log_steps=1"
)
RECORDS = (
  "create_pretraining_data.py --input_file=corpus.txt"
  " --vocab_file=model/vocab.txt --max_seq_length=64"
  " --max_predictions_per_seq=10 --dupe_factor=1"
)
EXTRACT = "extract_features.py --input_file=lines.txt"
SEARCH = "search_texts.py --index=index"
CONVERT = "convert_checkpoint.py"

# Commands by the name of a run, which start in a folder with the files of
# `write_inputs`. A script is in the checkout, or else in that folder. "kill
# PATH" ends a command by SIGTERM as soon as there is that path; what such a
# command and the next one log depends on the moment. "ask JSON" starts a server
# and asks it.
RUNS = {
  "glue": [
    f"{GLUE} {MODEL} {ALL}",
    """answers.py out '[["He ate.", "the city"]]'""",
  ],
  "labels": [
    f"{OWN} {MODEL} {ALL} --calibrate --class_weights=balanced --eval_steps=2"
    " --keep_best=accuracy --id_column=id --save_checkpoints_steps=2",
    "run_classifier.py --output_dir=out --predict_file=lines.txt",
  ],
  "multilabel": [f"{OWN} {MODEL} {ALL} --multilabel --label_column=tags"],
  "regression": [f"{OWN} {MODEL} {ALL} --regression --label_column=number"],
  "pair": [
    f"{OWN} {MODEL} {ALL} --text_b_column=other --freeze_layers=0",
    f"{OWN} {ALL} --text_b_column=other --init_checkpoint=out"
    " --output_dir=more --early_stopping_patience=1 --lr_schedule=cosine",
  ],
  "windows": [
    f"{OWN} {MODEL} {ALL} --text_a_column=long --long_text=mean_windows"
  ],
  "random": [
    f"{OWN} {ALL} --vocab_file=model/vocab.txt --optimizer=lamb"
    " --bert_config_file=model/bert_config.json --gradient_checkpointing"
    " --layerwise_lr_decay=0.9 --text_a_column=long --long_text=head_tail"
  ],
  "bfloat16": [f"{OWN} {MODEL} {ALL} --precision=bfloat16"],
  "accumulation": [f"{OWN} {MODEL} {ALL} --gradient_accumulation_steps=2"],
  "teacher": [
    f"{OWN} {MODEL} {SMALL} --do_train --output_dir=teacher",
    f"{OWN} {MODEL} {ALL} --teacher=teacher --unlabeled_file=lines.txt"
    " --seed=2",
  ],
  "seeds": [f"{OWN} {MODEL} {ALL} --num_seeds=2 --freeze_layers=1"],
  "tasks": [
    "run_classifier.py --task_name=CoLA,MRPC --data_dir=glue"
    f" {MODEL} {ALL} --freeze_layers=1"
  ],
  "devices": [
    f"two_devices.py {OWN} {MODEL} {ALL} --distribution_strategy=mirrored"
  ],
  "killed": [
    f"kill out/model.ckpt-2.index {OWN} {MODEL} {ALL} --num_train_epochs=3"
    " --save_checkpoints_steps=1 --keep_checkpoint_max=0",
    f"{OWN} {MODEL} {ALL} --num_train_epochs=3"
    " --save_checkpoints_steps=1 --keep_checkpoint_max=0",
  ],
  "family": [f"{OWN} {ALL} --init_checkpoint=roberta"],
  "squad1": [
    "run_squad.py --train_file=squad1_train.json"
    f" --predict_file=squad1_dev.json {MODEL} {SMALL} {SQUAD}",
    """answers.py out '[["Who ?", "the city is in the north"]]'""",
  ],
  "squad2": [
    "run_squad.py --train_file=squad2_train.json"
    f" --predict_file=squad2_dev.json {MODEL} {SMALL} {SQUAD}"
    " --version_2_with_negative --null_score_diff_threshold=auto"
  ],
  "ner": [
    f"{NER} {MODEL} {ALL} --max_context",
    "run_ner.py --output_dir=out --predict_file=lines.txt",
  ],
  "choices": [
    f"{CHOICES} {MODEL} {ALL}",
    """answers.py out '[{"context": "He", "choices": ["ate", "is old"]}]'""",
  ],
  "pairs": [
    f"{VECTORS} --text_b_column=other {MODEL} {ALL} --dimensions=32,8"
    " --gradient_accumulation_steps=2 --both_directions",
    """answers.py out '["the city", "He ate."]'""",
  ],
  "triplets": [
    f"{VECTORS} --text_b_column=other --negative_column=wrong {ALL}"
    " --init_checkpoint=sentences"
  ],
  "scores": [
    f"{VECTORS} --text_b_column=other --score_column=score {MODEL} {ALL}"
    " --loss=cosent --query_prompt=the"
  ],
  "vectors_teacher": [
    f"{VECTORS} --text_b_column=other {MODEL} {SMALL} --do_train"
    " --output_dir=teacher",
    f"{VECTORS} --text_b_column=other {ALL} --vocab_file=model/vocab.txt"
    " --bert_config_file=narrow.json --teacher=teacher --pooling=max",
  ],
  "pretraining": [
    f"{PRETRAINING} --input_file=default.tfrecord --do_train --do_eval"
    f" --output_dir=out {MODEL}"
  ],
  "pretraining_teacher": [
    f"{RECORDS} --output_file=rows.tfrecord --no_masking",
    f"{PRETRAINING} --input_file=rows.tfrecord --do_train --output_dir=out"
    " --bert_config_file=narrow.json --vocab_file=model/vocab.txt"
    " --dynamic_masking --do_whole_word_mask --teacher=model"
    " --distill_layers=0:1 --distill_targets=hidden,relations",
    f"{PRETRAINING} --input_file=default.tfrecord --do_train --output_dir=alike"
    f" {MODEL} --teacher=model --distill_layers=0:1"
    " --distill_targets=attention",
  ],
  "records": [
    f"{RECORDS} --output_file=rows.tfrecord --dupe_factor=2",
    f"{RECORDS} --output_file=a.tfrecord,b.tfrecord --do_whole_word_mask"
    " --random_seed=7 --num_workers=2",
    f"{RECORDS} --output_file=c.tfrecord --nonext_sentence_prediction",
    "build_vocab.py --input_file=corpus.txt --output_file=pieces.txt"
    " --vocab_size=300",
  ],
  "features": [
    f"{EXTRACT} --init_checkpoint=model --output_file=pieces.jsonl"
    " --layers=-1,-2",
    f"{EXTRACT} --init_checkpoint=roberta --output_file=mean.npz"
    " --pooling=mean --max_seq_length=16 --long_text=mean_windows",
    f"{EXTRACT} --init_checkpoint=sentences --output_file=vectors.jsonl"
    " --prompt=query --runtime=onnxruntime",
  ],
  "masks": [
    "fill_mask.py --model_dir=model --input_file=masks.txt"
    " --output_file=out.jsonl",
    "fill_mask.py --model_dir=roberta_masks --input_file=short.txt",
  ],
  "conversions": [
    f"{CONVERT} --model_dir=model --to=huggingface --output_dir=theirs",
    f"{CONVERT} --model_dir=theirs --to=tensorflow --output_dir=back",
    f"{CONVERT} --model_dir=model --to=tensorflow --output_dir=smaller"
    " --keep_layers=1 --keep_vocabulary=lines.txt",
    f"{OWN} {ALL} --init_checkpoint=theirs --freeze_layers=1",
    f"{CONVERT} --model_dir=out --to=huggingface --output_dir=their_task",
  ],
  "exports": [
    f"{OWN} {MODEL} {ALL} --freeze_layers=1 --do_eval=false",
    "export_model.py --model_dir=out --output_dir=saved",
    "export_model.py --model_dir=out --output_dir=onnx --format=onnx",
    "export_model.py --model_dir=model --output_dir=small --format=onnx"
    " --quantize=dynamic",
    "run_classifier.py --output_dir=out --predict_file=lines.txt"
    " --runtime=onnxruntime",
  ],
  "search": [
    f"{SEARCH} --input_file=train.csv --model_dir=model",
    f"{SEARCH} --query_file=lines.txt --output_file=found.jsonl --top_k=3",
    f"{SEARCH} --input_file=test.csv --remove_ids=r1,r2 --ann=hnsw",
    f"{SEARCH} --mine_negatives=train.csv --text_a_column=text"
    " --text_b_column=other --output_file=triplets.jsonl",
  ],
  "server": ["""ask '{"text": "the city"}' serve.py --model_dir=model"""],
}

# In the folder of inputs.
SCRIPTS = {
  "answers.py": """
import json, sys
import bert, numpy
questions = json.loads(sys.argv[2])
questions = [tuple(q) if isinstance(q, list) else q for q in questions]
for answer in bert.load(sys.argv[1])(questions):
  print(json.dumps(answer, default=lambda x: numpy.asarray(x).tolist()))
""",
  "two_devices.py": """
import runpy, sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices("CPU")[0],
  [tf.config.LogicalDeviceConfiguration()] * 2)
del sys.argv[0]
runpy.run_module(sys.argv[0].removesuffix(".py"), run_name="__main__")
""",
}


# Inputs.


def write_inputs(folder):
  """Writes the files that all runs may read."""
  shutil.copytree(GOLDENS / "model", folder / "model")
  (folder / "model" / "outputs.npz").unlink()
  shutil.copy(GOLDENS / "vocab.txt", folder / "model")
  config = json.loads((GOLDENS / "bert_config.json").read_text())
  config["num_hidden_layers"] = 1
  narrow = {**config, "hidden_size": 16, "num_attention_heads": 2}
  (folder / "one_layer.json").write_text(json.dumps(config))
  (folder / "narrow.json").write_text(json.dumps(narrow))
  for name, path in {
    "roberta": "roberta/Model",
    "roberta_masks": "roberta/ForMaskedLM",
    "sentences": "st-cls-prompts/folder",
  }.items():
    shutil.copytree(GOLDENS / "variants" / path, folder / name)
  shutil.copy(GOLDENS / "corpus.txt", folder)
  shutil.copy(GOLDENS / "pretraining_data" / "default.tfrecord", folder)
  for name, text in SCRIPTS.items():
    (folder / name).write_text(text)
  write_texts(folder)
  write_squad(folder)
  sentences = (SAMPLES / "ner" / "train.txt").read_text("utf-8")
  some = "\n\n".join(sentences.split("\n\n")[:12]) + "\n"
  (folder / "ner.txt").write_text(some, "utf-8")
  choices = (SAMPLES / "multiple_choice" / "train.jsonl").read_text("utf-8")
  write_lines(folder / "choices.jsonl", choices.splitlines()[:8])


def write_texts(folder):
  """Writes glue/, tables of many columns, and files of lines."""
  with open(GOLDENS / "mrpc_features.jsonl", encoding="utf-8") as reader:
    examples = list(map(json.loads, reader))
  cola, mrpc = folder / "glue" / "CoLA", folder / "glue" / "MRPC"
  cola.mkdir(parents=True)
  mrpc.mkdir()
  header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
  for split, count in (("train", 16), ("dev", 7), ("test", 5)):
    found = [e for e in examples if e["split"] == split]
    found = sorted(found, key=lambda e: len(e["text_a"]))[:count]
    rows = [(e["label"], "1", "2", e["text_a"], e["text_b"]) for e in found]
    write_lines(mrpc / f"{split}.tsv", [header, *map("\t".join, rows)])
    lines = (SAMPLES / f"{split}.tsv").read_text("utf-8").splitlines()
    write_lines(cola / f"{split}.tsv", lines[:count])
    with open(folder / f"{split}.csv", "w", encoding="utf-8") as file:
      table = list(map(row, range(count), found))
      writer = csv.DictWriter(file, table[0])
      writer.writeheader()
      writer.writerows(table)
  texts = [e["text_a"] for e in examples[20:24]]
  short = ["the city", "He ate."]
  write_lines(folder / "short.txt", short)
  write_lines(folder / "lines.txt", [*texts, *short])
  masks = "the [MASK] is in the north", "He [MASK] ||| the city"
  write_lines(folder / "masks.txt", [*masks, "the city is old"])


def row(index, example):
  """A row of a table, with a column for each kind of label."""
  first, second = example["text_a"], example["text_b"]
  return {
    "id": f"r{index}",
    "text": first,
    "other": second,
    "wrong": f"the city {index}",
    "long": " ".join([first, second] * 2),
    "label": ("red", "green", "blue")[index % 3],
    "tags": ("a", "b|c", "a|b|c", "")[index % 4],
    "number": index % 5 / 2,
    "score": index % 5 / 4,
  }


def write_squad(folder):
  """Writes a few paragraphs of SQuAD for training and for evaluation."""
  for version in (1, 2):
    squad = json.loads((GOLDENS / f"squad_v{version}.json").read_text("utf-8"))
    (article,) = squad["data"]
    for name, part in (("train", slice(2, 5)), ("dev", slice(5, 7))):
      paragraphs = article["paragraphs"][part]
      content = {**squad, "data": [{**article, "paragraphs": paragraphs}]}
      path = folder / f"squad{version}_{name}.json"
      path.write_text(json.dumps(content), "utf-8")


def write_lines(path, lines):
  """Writes lines as UTF-8, each with its end."""
  path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


# Commands.


class Side:
  """A checkout, and the folder that keeps what its runs leave."""

  def __init__(self, root, cache, inputs, besides=None):
    self.root = pathlib.Path(root).resolve()
    self._inputs = inputs
    commit = self._git("rev-parse", "HEAD").strip() or "unknown"
    self.is_changed = bool(
      self._git("status", "--porcelain", "--", ".", *UNUSED)
    )
    self.folder = cache / (f"{commit}-changed" if self.is_changed else commit)
    if self.folder == besides:  # A commit and itself.
      self.is_changed, self.folder = True, cache / f"{commit}-again"
    self.folder.mkdir(parents=True, exist_ok=True)

  def _git(self, *command):
    command = ["git", "-C", self.root, *command]
    return subprocess.run(command, capture_output=True, text=True).stdout

  def run(self, name, again=False):
    """The folder that a run, or its repetition, left; made unless it is there.

    A file FAILED in it says why the run failed.
    """
    kept = self.folder / f"{name}-{self._inputs.key(RUNS[name])}"
    kept = kept.with_name(f"{kept.name}-again") if again else kept
    if kept.exists():
      if not self.is_changed and not (kept / FAILED).exists():
        return kept
      shutil.rmtree(kept)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self.folder))
    before = self._inputs.copy(work)
    try:
      for number, command in enumerate(RUNS[name]):
        self._run_command(work, number, shlex.split(command))
    except RuntimeError as error:
      (work / FAILED).write_text(str(error))
    for path, content in before.items():
      if path.is_file() and path.read_bytes() == content:
        path.unlink()
    replace_paths(work, {work: "WORK", self.root: "CHECKOUT"})
    with contextlib.suppress(OSError):  # Another process was faster.
      work.rename(kept)
    return kept

  def _run_command(self, work, number, command):
    action = None
    if command[0] in ("kill", "ask"):
      action, argument, *command = command
    if action == "ask":
      port = free_port()
      command.append(f"--port={port}")
    script = self.root / command[0]
    script = script if script.exists() else work / command[0]
    streams = [work / f"command-{number}.{name}" for name in ("out", "err")]
    process = FORKS.Process(
      target=run_script, args=(self.root, work, [script, *command[1:]], streams)
    )
    process.start()
    try:
      if action == "kill":
        wait_for(process, (work / argument).exists)
      elif action == "ask":
        answer = wait_for(process, lambda: ask(port, argument))
        (work / f"command-{number}.json").write_bytes(answer or b"")
      if action:
        process.terminate()
      process.join(300)
    finally:
      process.kill()
    if process.exitcode != 0:
      *_, last = ["", *streams[1].read_text("utf-8", "replace").splitlines()]
      raise RuntimeError(f"{command[0]}, status {process.exitcode}: {last}")


FAILED = "failed.txt"

# What no run reads.
UNUSED = (":!tests", ":!docs", ":!*.md", ":!benchmarks")


class Inputs:
  """A folder of inputs, and what tells them and commands from others."""

  def __init__(self, folder):
    write_inputs(folder)
    self._folder = folder
    self._hash = hashlib.sha256(sys.version.encode())
    self._hash.update(importlib.metadata.version("tensorflow").encode())
    for path in sorted(folder.rglob("*")):
      self._hash.update(str(path.relative_to(folder)).encode())
      self._hash.update(path.read_bytes() if path.is_file() else b"")

  def key(self, commands):
    """A part of a name that differs for other inputs and other commands."""
    found = self._hash.copy()
    found.update(json.dumps(commands).encode())
    return found.hexdigest()[:12]

  def copy(self, work):
    """Copies them into a folder; returns their contents by path."""
    shutil.copytree(self._folder, work, dirs_exist_ok=True)
    return {p: p.read_bytes() for p in work.rglob("*") if p.is_file()}


# What all commands read. Each may use one core.
ENVIRONMENT = {
  "PYTHONDONTWRITEBYTECODE": "1",
  "CUDA_VISIBLE_DEVICES": "-1",
  "TF_CPP_MIN_LOG_LEVEL": "3",
  "TF_NUM_INTRAOP_THREADS": "1",
  "OMP_NUM_THREADS": "1",
  "COLUMNS": "80",
}

# Commands are forks of a process that has loaded TensorFlow, which takes longer
# than most of them, and nothing of a checkout.
FORKS = multiprocessing.get_context("forkserver")
PACKAGES = ["tensorflow", "sklearn.metrics", "matplotlib.figure", "tqdm"]


def run_script(root, work, command, streams):
  """Runs a script of a checkout in a process that ends with it."""
  for number, path in enumerate(["/dev/null", *streams]):
    flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
    os.dup2(os.open(path, flags), number)
  sys.stdin = os.fdopen(0)  # multiprocessing has closed it.
  os.chdir(work)
  os.environ["PYTHONPATH"] = str(root)
  sys.argv = list(map(str, command))
  sys.path[0] = str(root)
  sys.path.insert(0, str(work))
  runpy.run_path(sys.argv[0], run_name="__main__")


def wait_for(process, condition):
  """Waits until a condition is true or a process has ended; returns it."""
  deadline = time.monotonic() + 120
  while process.is_alive() and time.monotonic() < deadline:
    if found := condition():
      return found
    time.sleep(0.01)
  return None


def free_port():
  """A port that nobody listens on."""
  with socket.create_server(("127.0.0.1", 0)) as listener:
    return listener.getsockname()[1]


def ask(port, body):
  """What a server answers; None before it listens."""
  url = f"http://127.0.0.1:{port}/answer"
  try:
    with urllib.request.urlopen(url, body.encode(), timeout=60) as response:
      return response.read()
  except OSError:
    return None


def replace_paths(folder, names):
  """Replaces paths of this machine in text files."""
  for path in folder.rglob("*"):
    if path.is_file() and is_text(path):
      text = old = path.read_bytes()
      for found, name in names.items():
        text = text.replace(str(found).encode(), name.encode())
      if text != old:
        path.write_bytes(text)


# Comparison.


def is_text(path):
  """Whether a file is UTF-8."""
  content = path.read_bytes()
  with contextlib.suppress(UnicodeDecodeError):
    return b"\0" not in content and isinstance(content.decode(), str)
  return False


# Times, speeds, sizes and names that differ from run to run.
_UNIT = (
  "(?:s|ms|(?:micro)?seconds?|minutes?|min|hours?|h|[KMG]i?B|[a-z]+/s(?:ec)?)"
)
_VARYING = [
  (r'(?s)<svg[^>]*aria-label="Examples/s.*?</figure>', "SPEEDS"),
  (r"(curve-\d+-[pm])[0-9a-f]+", "CURVE"),
  (r"\d\d:\d\d(:\d\d)?", "TIME"),
  (r"\d{4}-\d\d-\d\d", "DATE"),
  (rf"[\d.,]+ ?{_UNIT}\b", "AMOUNT"),
  (r"Examples/s: [^<]*", "SPEED"),
  (r"127\.0\.0\.1:\d+", "ADDRESS"),
  (r"\.export-\w+", "FOLDER"),
]


def normalized(path):
  """The text of a page, a log or a record without what varies."""
  text = path.read_text("utf-8", "replace")
  if path.name == "flags.json":
    record = json.loads(text)
    record.pop("versions", None)
    return json.dumps(record, indent=1)
  for pattern, name in _VARYING:
    text = re.sub(pattern, name, text)
  return text


def is_left_out(path):
  """Whether a file is compared by another one, or not at all."""
  is_data = re.search(r"\.data-\d+-of-\d+$", path.name)
  return path.suffix == ".pb" or (is_data and has_index(path))


def has_index(path):
  return path.with_name(path.name.rsplit(".data-")[0] + ".index").exists()


def contents(folder, without_logs):
  """The paths to compare by name; event files of a folder have one name."""
  found = {}
  for path in sorted(folder.rglob("*")):
    name = str(path.relative_to(folder))
    is_log = path.name.startswith(("events.out.", "command-"))
    is_log = is_log or path.name == "report.html"
    if not path.is_file() or is_left_out(path) or (is_log and without_logs):
      continue
    if "events.out.tfevents." in name:
      name = re.sub(r"tfevents\..*", "tfevents", name)
    found.setdefault(name, []).append(path)
  return found


def differences(one, other, without_logs=False):
  """How each file differs, by its name; logs are last."""
  first, second = (contents(f, without_logs) for f in (one, other))
  found = {}
  names = sorted(first.keys() | second.keys())
  for name in sorted(names, key=lambda name: name.endswith(".err")):
    if name not in first or name not in second:
      found[name] = "only in " + ("OTHER" if name in first else "THIS")
    elif how := difference(first[name], second[name]):
      found[name] = how
  return found


def difference(old, new):
  """How files of a name differ; "" if they are the same."""
  if "tfevents" in old[0].name:
    return first_line(*("\n".join(map(curves, paths)) for paths in (old, new)))
  (old,), (new,) = old, new
  if old.read_bytes() == new.read_bytes():
    return ""
  if old.suffix == ".index":
    return of_variables(old, new)
  if re.search(r"\.tf_?record", old.name):
    return of_records(old, new)
  if old.suffix in (".html", ".out", ".err") or old.name == "flags.json":
    return first_line(normalized(old), normalized(new))
  if is_text(old) and is_text(new):
    return first_line(old.read_text("utf-8"), new.read_text("utf-8"))
  return f"other bytes ({old.stat().st_size} and {new.stat().st_size})"


def first_line(old, new):
  """The first line that differs, from where it does."""
  if old == new:
    return ""
  lines = old.splitlines(), new.splitlines()
  for number, (one, other) in enumerate(zip(*lines, strict=False), 1):
    if one != other:
      pairs = enumerate(zip(one, other, strict=False))
      same = next((i for i, (a, b) in pairs if a != b), 0)
      start = max(0, same - 20)
      one, other = (line[start : start + 60] for line in (one, other))
      return f"line {number}: {one!r}, now {other!r}"
  return f"{len(lines[0])} lines, now {len(lines[1])}"


def curves(path):
  """The numbers of an event file but for speeds, as text."""
  import tensorflow as tf

  lines = []
  for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
    event = tf.compat.v1.Event.FromString(record)
    lines += [
      f"{value.tag} {event.step} {tf.make_ndarray(value.tensor)!r}"
      for value in event.summary.value
      if not re.search(r"/s(ec)?|_per_s", value.tag)
    ]
  return "\n".join(lines)


def of_variables(old, new):
  """How the variables of two checkpoints differ, bit for bit."""
  import tensorflow as tf

  readers = [
    tf.train.load_checkpoint(str(p)[: -len(".index")]) for p in (old, new)
  ]
  names = [reader.get_variable_to_shape_map().keys() for reader in readers]
  for name in sorted(names[0] ^ names[1]):
    return f"{name} only in " + ("OTHER" if name in names[0] else "THIS")
  for name in sorted(names[0]):
    one, other = (reader.get_tensor(name) for reader in readers)
    if not hasattr(one, "dtype"):  # A string, such as a saved object's graph.
      continue
    if (one.dtype, one.shape) != (other.dtype, other.shape):
      return f"{name} {one.dtype}{one.shape}, now {other.dtype}{other.shape}"
    if one.tobytes() != other.tobytes():
      return f"{name} by up to {abs(one.astype(float) - other).max():.2g}"
  return ""


def of_records(old, new):
  """The first record that differs between two TFRecord files."""
  import tensorflow as tf

  rows = [
    list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    for path in (old, new)
  ]
  for number, (one, other) in enumerate(zip(*rows, strict=False)):
    if one != other:
      return f"record {number} (from 0)"
  return f"{len(rows[0])} records, now {len(rows[1])}"


def compare(name, other, this):
  """Compares a run of two checkouts; returns the line to print."""
  old, new = other.run(name), this.run(name)
  for label, folder in (("OTHER", old), ("THIS", new)):
    if (folder / FAILED).exists():
      return f"failed ({label}): {(folder / FAILED).read_text()}"
  without_logs = any(command.startswith("kill ") for command in RUNS[name])
  found = differences(old, new, without_logs)
  if not found:
    return "same"
  unstable = differences(old, other.run(name, again=True), without_logs)
  found = {path: how for path, how in found.items() if path not in unstable}
  if not found:
    return f"same (but OTHER differs from itself: {', '.join(unstable)})"
  path, how = next(iter(found.items()))
  more = f"; {len(found) - 1} more files" if len(found) > 1 else ""
  return f"differs: {path}: {how}{more}"


def parse_arguments():
  parser = argparse.ArgumentParser()
  parser.add_argument("--cache", type=pathlib.Path)
  parser.add_argument("--only", type=lambda text: text.split(","), default=RUNS)
  parser.add_argument("other")
  parser.add_argument("this", nargs="?", default=ROOT)
  arguments = parser.parse_args()
  if unknown := set(arguments.only) - RUNS.keys():
    parser.error(f"--only: {', '.join(unknown)}; there are {', '.join(RUNS)}")
  return arguments


def main(cache, only, other, this):
  os.environ |= ENVIRONMENT
  FORKS.set_forkserver_preload(PACKAGES)
  with tempfile.TemporaryDirectory() as folder:
    cache = (cache or pathlib.Path(folder, "cache")).absolute()
    pathlib.Path(folder, "inputs").mkdir()
    inputs = Inputs(pathlib.Path(folder, "inputs"))
    other = Side(other, cache, inputs)
    this = Side(this, cache, inputs, besides=other.folder)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
      waiting = {pool.submit(compare, name, other, this): name for name in only}
      lines = []
      for done in concurrent.futures.as_completed(waiting):
        lines.append(done.result())
        print(f"{waiting[done]}: {lines[-1]}", flush=True)
  return int(not all(line.startswith("same") for line in lines))


if __name__ == "__main__":
  sys.exit(main(**vars(parse_arguments())))
