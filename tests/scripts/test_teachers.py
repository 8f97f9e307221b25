"""The training scripts with a teacher: --teacher and --unlabeled_file."""

import json

import numpy as np
import pytest
import scripts
import task_folders
import tensorflow as tf
import tiny_task

from bert.data import records
from bert.tasks.features import VectorSettings
from bert.training import checkpoints, task_file

DATA = scripts.ROOT / "sample_data"
QUESTIONS = {
  "context": "It is Jim Henson.",
  "qas": [{"id": str(i), "question": "Who?"} for i in (1, 2)],
}
LENGTHS = ("max_seq_length", "doc_stride", "max_query_length")
WEIGHTS = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  return tiny_task.make_files(tmp_path_factory.mktemp("files"), goldens)


@pytest.fixture(scope="module")
def teach(files, tmp_path_factory):
  """A function: the flags of a student, and those of a teacher from a training.

  Its arguments are a script, and changes of the flags of `tiny_task`.
  """

  def teach(script, *more, **changes):
    folder = tmp_path_factory.mktemp("taught")
    changes = {"task_name": None, "data_dir": None, **changes}
    command = tiny_task.flags(
      files, folder / "teacher", **changes, num_train_epochs=1
    )
    scripts.fork(script, *command, *more, "--do_train")
    # The student reads as its teacher.
    changes |= dict.fromkeys(LENGTHS)
    student = tiny_task.flags(
      files, folder / "student", teacher=folder / "teacher", **changes
    )
    return folder, [*student, *more]

  return teach


def _rows(folder):
  """The features of the rows of a training, and whether each has a label."""
  found = records.read_records(str(folder / "student/train.tf_record"))
  parsed = [tf.train.Example.FromString(row).features.feature for row in found]
  names = (*records.SEQUENCES, "is_labeled")
  return [{n: list(row[n].int64_list.value) for n in names} for row in parsed]


@pytest.fixture(scope="module")
def taught(teach, files, tmp_path_factory):
  """The folder of a student and its teacher on MRPC, and the command."""
  lines = tmp_path_factory.mktemp("lines") / "lines.txt"
  tiny_task.write_lines(lines, ["the city ||| he ate"] * 9)
  folder, command = teach(
    "run_classifier.py",
    task_name="MRPC",
    data_dir=files / "data",
    unlabeled_file=None,
  )
  command = [*command, "--do_train", f"--unlabeled_file={lines}"]
  scripts.fork("run_classifier.py", *command, "--do_eval")
  return folder, command


def test_rows_without_labels_are_trained_on(taught):
  folder, _ = taught
  rows = _rows(folder)
  assert [row["is_labeled"] for row in rows] == [[1]] * 40 + [[0]] * 9
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
  _, command = taught
  data = tmp_path / "data"
  data.mkdir()
  for name in ("train", "dev"):
    first, *lines = (files / "data" / f"{name}.tsv").read_text().splitlines()
    wrong = [str(1 - int(line[0])) + line[1:] for line in lines]
    tiny_task.write_lines(data / f"{name}.tsv", [first, *wrong])
  weights = []
  for name, path in (("right", files / "data"), ("wrong", data)):
    out = tmp_path / name
    flags = f"--output_dir={out}", f"--data_dir={path}", "--distill_weight=1"
    scripts.fork("run_classifier.py", *command, *flags)
    weights.append((out / WEIGHTS[1]).read_bytes())
  assert weights[0] == weights[1]


@pytest.mark.parametrize(
  ("script", "changes"),
  [
    (
      "run_ner.py",
      {
        "train_file": DATA / "ner/dev.txt",
        "max_seq_length": 32,
        "unlabeled_file": "Jim Henson made puppets .\nthe city\n",
      },
    ),
    (
      "run_multiple_choice.py",
      {
        "train_file": DATA / "multiple_choice/dev.jsonl",
        "unlabeled_file": '{"context": "He", "choices": ["a", "b", "c"]}\n' * 2,
      },
    ),
    (
      "run_squad.py",
      {
        "train_file": "SQUAD",
        "max_seq_length": 64,
        "doc_stride": 32,
        "max_query_length": 16,
        "unlabeled_file": json.dumps({"data": [{"paragraphs": [QUESTIONS]}]}),
      },
    ),
  ],
)
def test_every_kind_of_task_has_students(
  teach, goldens, tmp_path, script, changes
):
  unlabeled = tmp_path / "unlabeled.json"
  if script == "run_multiple_choice.py":
    unlabeled = tmp_path / "unlabeled.jsonl"
  unlabeled.write_text(changes.pop("unlabeled_file"), encoding="utf-8")
  if script == "run_squad.py":
    squad = json.loads((goldens / "squad_v1.json").read_text())
    del squad["data"][0]["paragraphs"][2:]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(squad), encoding="utf-8")
    changes["train_file"] = path
  folder, command = teach(script, **changes, **tiny_task.HEAD_ONLY)
  _, log = scripts.fork(
    script, *command, "--do_train", f"--unlabeled_file={unlabeled}"
  )
  assert "unlabeled.json" in log
  assert log.count(" by default, as in the training of ") == 1
  used, wanted = (
    json.loads((folder / name / "flags.json").read_text())["flags"]
    for name in ("student", "teacher")
  )
  assert used["max_seq_length"] == changes.get("max_seq_length", 48)
  assert [used.get(n) for n in LENGTHS] == [wanted.get(n) for n in LENGTHS]
  rows = _rows(folder)
  labeled = [row["is_labeled"] for row in rows]
  assert labeled[-2:] == [[0], [0]]
  assert labeled[0] == [1]
  assert list((folder / "student" / "teacher_outputs").iterdir())
  weights = checkpoints.Checkpoint(str(folder / "student" / "bert_model.ckpt"))
  name = next(n for n in weights.shapes if n.endswith("output_weights"))
  assert np.isfinite(weights[name]).all()


def test_vectors_of_a_wider_teacher(files, golden, goldens, tmp_path):
  """Training on two parts of each batch, and on lines without labels."""
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
    "gradient_accumulation_steps": 2,
  }
  whole, killed = tmp_path / "student", tmp_path / "killed"
  command = [*tiny_task.flags(files, whole, **changes), "--do_train"]
  scripts.fork("run_embeddings.py", *command)
  labeled = [row["is_labeled"] for row in _rows(tmp_path)]
  assert labeled == [[1]] * 20 + [[0]] * 6
  command = [*tiny_task.flags(files, killed, **changes), "--do_train"]
  scripts.kill_when(
    killed / "model.ckpt-3.index", "run_embeddings.py", *command
  )
  _, log = scripts.fork("run_embeddings.py", *command)
  assert "The teacher" not in log  # Its vectors are kept.
  for name in WEIGHTS:
    assert (whole / name).read_bytes() == (killed / name).read_bytes()


def test_wrong_flags_are_one_line(files, golden, goldens, tmp_path):
  teacher = tmp_path / "teacher"
  teacher.mkdir()
  task_folders.write(teacher, "tagging", golden, goldens)
  out = tmp_path / "out"
  for changes, message in (
    ({"teacher": teacher}, "another kind (tagging, not classification)"),
    ({"teacher": teacher, "distill_weight": 2}, "--distill_weight=2.0 must be"),
    ({"teacher": tmp_path / "none"}, f"{tmp_path}/none"),
    (
      {"teacher": teacher, "unlabeled_file": tmp_path / "none"},
      f"--unlabeled_file={tmp_path}/none",
    ),
  ):
    command = tiny_task.flags(files, out, **changes)
    _, log = scripts.fork("run_classifier.py", *command, "--do_train", status=2)
    line = log.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert not out.exists()
