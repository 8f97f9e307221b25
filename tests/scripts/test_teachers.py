"""The training scripts with a teacher: --teacher and --unlabeled_file."""

import json

import mistakes
import numpy as np
import pytest
import scripts
import task_folders
import tensorflow as tf
import tiny_task

import bert
from bert.data import records
from bert.models import task_file
from bert.tasks.embeddings.vectors import VectorSettings

DATA = scripts.ROOT / "sample_data"
WEIGHTS = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")


def _is_labeled(folder):
  """Whether each row of a training has a label."""
  rows = records.read_records(str(folder / "student" / "train.tf_record"))
  parsed = [tf.train.Example.FromString(row).features.feature for row in rows]
  return [row["is_labeled"].int64_list.value[0] for row in parsed]


@pytest.fixture(scope="module")
def taught(files, tmp_path_factory):
  """The folder of a student and its teacher on MRPC, and the command.

  The student learns from the teacher alone.
  """
  folder = tmp_path_factory.mktemp("taught")
  changes = dict(tiny_task.HEAD_ONLY)
  command = tiny_task.flags(
    files, folder / "teacher", **changes, num_train_epochs=1
  )
  scripts.fork("run_classifier.py", *command, "--do_train")
  lines = folder / "lines.txt"
  tiny_task.write_lines(lines, ["the city ||| he ate"] * 9)
  changes |= {"teacher": folder / "teacher", "unlabeled_file": lines}
  changes["distill_weight"] = 1
  command = tiny_task.flags(files, folder / "student", **changes)
  command.append("--do_train")
  scripts.fork("run_classifier.py", *command, "--do_eval")
  return folder, command


def test_rows_without_labels_are_trained_on(taught):
  folder, _ = taught
  assert _is_labeled(folder) == [1] * 40 + [0] * 9
  # int(49 / 8 * 2)
  lines = (folder / "student" / "eval_results.txt").read_text()
  assert "global_step = 12\n" in lines
  record = json.loads((folder / "student" / "flags.json").read_text())
  assert len(record["data"]["teacher"]) == 64


def test_a_killed_student_ends_in_the_same_bytes(taught, tmp_path):
  folder, command = taught
  out = tmp_path / "out"
  command = [*command, f"--output_dir={out}"]
  scripts.kill_when(out / "train.tf_record", "run_classifier.py", *command)
  _, log = scripts.fork("run_classifier.py", *command)
  assert "The teacher" not in log  # Its outputs are kept.
  for name in WEIGHTS:
    assert (out / name).read_bytes() == (folder / "student" / name).read_bytes()


def test_a_student_learns_from_the_teacher_alone(taught, files, tmp_path):
  """Labels have no weight: all of them may be wrong."""
  folder, command = taught
  data = tmp_path / "data"
  data.mkdir()
  for name in ("train", "dev"):
    first, *lines = (files / "data" / f"{name}.tsv").read_text().splitlines()
    wrong = [str(1 - int(line[0])) + line[1:] for line in lines]
    tiny_task.write_lines(data / f"{name}.tsv", [first, *wrong])
  out = tmp_path / "out"
  flags = f"--output_dir={out}", f"--data_dir={data}"
  scripts.fork("run_classifier.py", *command, *flags)
  for name in WEIGHTS:
    assert (out / name).read_bytes() == (folder / "student" / name).read_bytes()


def test_vectors_of_a_wider_teacher(files, golden, goldens, tmp_path):
  """Of the pairs, and of lines without labels."""
  teacher = tmp_path / "teacher"
  teacher.mkdir()
  task_folders.write(teacher, "", golden, goldens)
  settings = VectorSettings(32, prompts=(("query", "the "),))
  content = task_file.content("vectors", settings)
  (teacher / task_file.NAME).write_text(content)
  lines = tmp_path / "lines.txt"
  tiny_task.write_lines(lines, ["the city", "he ate ||| the north"] * 3)
  config = json.loads((files / "model" / "bert_config.json").read_text())
  config |= {"hidden_size": 16, "num_attention_heads": 2}
  narrow = tmp_path / "narrow.json"
  narrow.write_text(json.dumps(config))
  changes = {
    "task_name": None,
    "data_dir": None,
    "init_checkpoint": None,
    "bert_config_file": narrow,
    "train_file": DATA / "embeddings/dev.csv",
    "text_a_column": "question",
    "text_b_column": "answer",
    "teacher": teacher,
    "unlabeled_file": lines,
    "num_train_epochs": 1,
  }
  out = tmp_path / "student"
  command = tiny_task.flags(files, out, **changes)
  scripts.fork("run_embeddings.py", *command, "--do_train")
  assert _is_labeled(tmp_path) == [1] * 20 + [0] * 6
  vectors = [answer["vector"] for answer in bert.load(out)(["the city", "a"])]
  assert np.shape(vectors) == (2, 16)
  assert np.isfinite(vectors).all()


MISTAKES = """
--teacher=TAGGER
  another kind (tagging, not classification)
--teacher=TAGGER --distill_weight=2
  --distill_weight=2.0 must be
--teacher=nowhere
  nowhere
--teacher=TAGGER --unlabeled_file=nowhere
  --unlabeled_file=nowhere
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(files, golden, goldens, tmp_path, mistake):
  tagger = task_folders.write(tmp_path, "tagging", golden, goldens)
  good = [*tiny_task.flags(files, tmp_path / "out"), "--do_train"]
  mistakes.check(mistake, "run_classifier.py", tmp_path, good, TAGGER=tagger)
