"""run_ner.py from the shell, on the sample sentences."""

import gzip
import json
import re

import mistakes
import numpy as np
import pytest
import scripts
import task_folders
import tiny_task

import tokenization
from bert.engine import record_files
from bert.models import checkpoints
from bert.tasks.tagging.task import TaggerSettings, TaggingTask

DATA = scripts.ROOT / "sample_data" / "ner"
TEXT = "Anna saw Oslo"


def flags(files, out, **changes):
  changes = {
    "task_name": None,
    "data_dir": DATA,
    "max_seq_length": 32,
  } | changes
  return tiny_task.flags(files, out, **changes)


def test_plain_text_is_labeled_by_character(tmp_path, golden, goldens):
  # Random weights find an entity in this text.
  out = task_folders.write(tmp_path, "tagging", golden, goldens)
  answer, _ = scripts.fork(
    "run_ner.py", f"--output_dir={out}", "--predict_file=-", stdin=f"{TEXT}\n\n"
  )
  first, empty = map(json.loads, answer.splitlines())
  assert first["text"] == TEXT
  assert empty == {"text": "", "entities": []}
  assert first["entities"]
  for entity in first["entities"]:
    assert TEXT[entity["start"] : entity["end"]] == entity["text"]
  text, _ = scripts.fork(
    "run_ner.py", f"--output_dir={out}", "--interactive", stdin=f"{TEXT}\n"
  )
  shown = re.findall(r"^(?:> )?(\w+) +[\d.]+%  (.*)$", text, re.M)
  assert shown == [(e["type"], e["text"]) for e in first["entities"]]


def test_parts_of_speech_are_labels_without_entities(files, tmp_path):
  path = tmp_path / "tags.jsonl"
  rows = [{"tokens": ["a", "city"], "labels": ["DT", "NN"]}] * 8
  path.write_text("\n".join(map(json.dumps, rows)))
  data = {"data_dir": None, "train_file": path, "dev_file": path}
  _, log = scripts.fork(
    "run_ner.py",
    *flags(files, tmp_path / "out", **data, label_all_tokens=True),
    *("--do_train", "--do_eval", "--num_train_epochs=1", "--freeze_layers=1"),
  )
  before = checkpoints.Checkpoint(str(files / "model" / "bert_model.ckpt"))
  after = checkpoints.Checkpoint(str(tmp_path / "out" / "bert_model.ckpt"))
  changed = [
    name
    for name in after.shapes
    if name in before and not np.array_equal(after[name], before[name])
  ]
  # The encoder's only layer is frozen, and tagging does not read the pooler.
  assert changed == []
  sizes = {name: int(np.prod(after.shapes[name])) for name in after.shapes}
  head = sum(n for name, n in sizes.items() if name.startswith("output_"))
  total = sum(n for name, n in sizes.items() if name != "global_step")
  assert f"Training {head:,} of {total:,} parameters" in log
  assert "2 labels, no entities" in log
  results = (tmp_path / "out" / "eval_results.txt").read_text()
  assert "eval_accuracy = " in results
  assert "eval_f1" not in results
  details = json.loads((tmp_path / "out" / "eval_results.json").read_text())
  assert details["labels"]["NN"]["support"] == 8


@pytest.fixture(scope="module")
def reads_context(files, tmp_path_factory):
  """A folder trained on a compressed file with context, and its log."""
  folder = tmp_path_factory.mktemp("context")
  sentence = ["Ada B-PER", "King E-PER", "saw O", "unaffable S-X", ""]
  with gzip.open(folder / "train.txt.gz", "wt", encoding="utf-8") as writer:
    writer.writelines(f"{line}\n" for line in sentence * 8)
  tiny_task.write_lines(folder / "valid.txt", sentence * 3)
  reading = {"data_dir": folder, "max_context": True, "label_all_tokens": True}
  changes = {"num_train_epochs": 1, **reading, **tiny_task.HEAD_ONLY}
  _, log = scripts.fork(
    "run_ner.py",
    *flags(files, folder / "out", **changes),
    *("--do_train", "--do_eval"),
  )
  return folder / "out", log


def test_valid_txt_is_the_development_set(reads_context):
  out, log = reads_context
  assert "4 labels, which mark entities by IOBES" in log
  details = json.loads((out / "eval_results.json").read_text())
  support = {k: found["support"] for k, found in details["entities"].items()}
  assert support == {"all": 6, "PER": 3, "X": 3}


def test_the_trained_model_says_how_to_read(
  reads_context, files, tmp_path, goldens
):
  folder, _ = reads_context
  sentences = [["the", "city"], ["of", "the", "unaffable"]]
  path, out = tmp_path / "test.jsonl", tmp_path / "out"
  rows = [{"tokens": words, "document": "a"} for words in sentences]
  tiny_task.write_lines(path, map(json.dumps, rows))
  data = {"data_dir": None, "test_file": path, "init_checkpoint": folder}
  scripts.fork("run_ner.py", *flags(files, out, **data), "--do_predict")
  used = json.loads((out / "flags.json").read_text())["flags"]
  assert used["max_context"] is used["label_all_tokens"] is True
  # Each row has both sentences.
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
  count = sum(len(tokenizer.tokenize(" ".join(s))) for s in sentences)
  spec = TaggingTask(TaggerSettings(32)).feature_spec(False)
  found = record_files.RecordFiles([str(out / "predict.tf_record")], spec)
  assert found.lengths.tolist() == [count + 2] * 2


def test_a_long_sentence_counts_once(reads_context, files, tmp_path):
  path, out = tmp_path / "test.jsonl", tmp_path / "out"
  path.write_text(json.dumps({"tokens": ["city"] * 80}) + "\n")
  data = {
    "data_dir": None,
    "test_file": path,
    "init_checkpoint": reads_context[0],
  }
  command = flags(files, out, **data)
  _, log = scripts.fork("run_ner.py", *command, "--do_predict")
  assert re.search(
    r"predict\.tf_record: [2-9] rows of 1 example, 1 in windows\n", log
  )
  assert "entities.jsonl: 1 sentence\n" in log


MISTAKES = """
--data_dir=FILES/model
  --train_file is required; pass it, or a --data_dir with train.txt
--data_dir=
  --train_file is required ... --data_dir
--do_train= --data_dir= --predict_file=FILES/rows.jsonl
  rows.jsonl would be read as lines of text ... --test_file
--train_file=FILES/outside.txt
  outside.txt: all words have the label 'O' ... last column
--dev_file=FILES/unknown.txt --do_eval
  unknown.txt:1 ... 'B-CITY' of 'Oslo' is not one of 'B-LOC'
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(files, mistake):
  for name, lines in {
    "outside.txt": ["Oslo B-CITY O", "is O O"],
    "unknown.txt": ["Oslo B-CITY"],
    "rows.jsonl": ["{}"],
  }.items():
    tiny_task.write_lines(files / name, lines)
  good = [*flags(files, files / "out"), "--do_train"]
  mistakes.check(mistake, "run_ner.py", files, good, FILES=files)
