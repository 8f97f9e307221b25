"""The soft targets of each task, and the files that keep them."""

import dataclasses
import functools
import logging
import shutil
import types

import numpy as np
import pytest
import scipy.special
import task_folders
from computed_task import columns

import bert
import tokenization
from bert.engine.predictor import Predictor
from bert.errors import UserError
from bert.export import smaller_model
from bert.models import task_file
from bert.tasks.embeddings.data import Pair
from bert.tasks.embeddings.task import EmbeddingTask
from bert.tasks.embeddings.vectors import VectorSettings
from bert.training.teacher import FOLDER, Teacher

KINDS = [name for name in task_folders.INPUTS if name]


@pytest.fixture(scope="module")
def load(tmp_path_factory, golden, goldens):
  """A function from a kind of task to a trained model and its examples."""

  @functools.cache
  def load(kind, seed=5):
    folder = tmp_path_factory.mktemp("teacher")
    model = bert.load(task_folders.write(folder, kind, golden, goldens, seed))
    inputs = map(model.parse, task_folders.INPUTS[kind])
    examples = [model.task.example(*texts) for texts in inputs]
    return types.SimpleNamespace(
      model=model, task=model.task, examples=examples, folder=model.folder
    )

  return load


def _targets(teacher, examples, folder):
  """Each soft target of the rows, padded: [rows, ...] by name."""
  rows = [row for group in teacher.rows(examples, folder) for row in group]
  return {
    name: np.stack([row[name] for row in rows])
    for name in rows[0]
    if name.startswith("teacher/")
  }


@pytest.mark.parametrize("kind", KINDS)
def test_targets_are_what_the_model_computes(load, tmp_path, kind):
  own = load(kind)
  student = own.task
  if kind == "multiple choice":  # All rows have as many choices.
    data = {"train": own.examples}
    student = type(student)(student.settings, student.tokenizer, data)
  teacher = Teacher(own.folder, student, own.examples)
  found = _targets(teacher, [], str(tmp_path))
  groups = own.task.features(own.examples, False)
  rows = [row for group in groups for row in group]
  expected = columns(own.model.predictor(rows))
  for index, row in enumerate(rows):
    count = int(np.sum(np.atleast_2d(row["input_mask"]).any(0)))
    if kind == "squad":
      for name in ("start_logits", "end_logits"):
        values = found[f"teacher/{name}"][index]
        np.testing.assert_allclose(
          values[:count], expected[name][index], rtol=1e-4, atol=1e-4
        )
        assert not values[count:].any()
    elif kind == "tagging":
      logits = found["teacher/logits"][index, :count]
      np.testing.assert_allclose(
        scipy.special.softmax(logits, -1).max(-1),
        expected["probabilities"][index],
        rtol=1e-3,
      )
    else:
      name = "probabilities" if kind == "regression" else "logits"
      values = expected[name][index]
      np.testing.assert_allclose(
        found[f"teacher/{name}"][index][: len(values)],
        values,
        rtol=1e-4,
        atol=1e-4,
      )


def test_a_second_run_reads_the_files(load, tmp_path, caplog):
  own = load("tagging")
  with caplog.at_level(logging.INFO, "absl"):
    first = _targets(Teacher(own.folder, own.task), own.examples, str(tmp_path))
    assert "Computing" in caplog.text
    caplog.clear()
    second = _targets(
      Teacher(own.folder, own.task), own.examples, str(tmp_path)
    )
    assert "Computing" not in caplog.text
  np.testing.assert_array_equal(
    first["teacher/logits"], second["teacher/logits"]
  )


def test_other_rows_or_another_teacher_get_new_files(load, tmp_path):
  own, other = load("classification"), load("classification", seed=6)
  calibrated = shutil.copytree(own.folder, tmp_path / "calibrated")
  settings = dataclasses.replace(own.task.settings, temperatures=(2.0,))
  content = task_file.content("classification", settings)
  (calibrated / task_file.NAME).write_text(content)
  names = []
  for folder, examples in (
    (own.folder, own.examples),
    (own.folder, own.examples[:1]),
    (other.folder, own.examples),
    (str(calibrated), own.examples),
  ):
    list(Teacher(folder, own.task).rows(examples, str(tmp_path)))
    names += [path.name for path in (tmp_path / FOLDER).iterdir()]
  assert len(set(names)) == 4  # Those of before are deleted.


def test_a_dry_run_does_not_wait_for_the_teacher(load, tmp_path, caplog):
  own = load("tagging")
  teacher = Teacher(own.folder, own.task, is_dry_run=True)
  with caplog.at_level(logging.INFO, "absl"):
    found = _targets(teacher, own.examples, str(tmp_path))
  assert "Computing" not in caplog.text
  length, labels = task_folders.LENGTH, len(task_folders.TAGS)
  assert found["teacher/logits"].shape == (2, length, labels)


def test_a_student_may_have_another_vocabulary(load, tmp_path):
  own = load("classification")
  texts = [example.text_a for example in own.examples]
  pieces = smaller_model.used_pieces(own.task.tokenizer, texts)
  path = tmp_path / "vocab.txt"
  path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
  student = type(own.task)(
    own.task.settings, tokenization.FullTokenizer(str(path))
  )
  found = [
    _targets(Teacher(own.folder, task), own.examples, str(tmp_path))
    for task in (own.task, student)
  ]
  np.testing.assert_array_equal(*(f["teacher/logits"] for f in found))
  (row,) = student.rows(own.examples[0], False)
  assert max(row["input_ids"]) < len(pieces)


def test_positions_must_be_those_of_the_teacher(load, tmp_path):
  own = load("squad")
  path = tmp_path / "vocab.txt"
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]
  pieces += [f"##{piece}" for piece in pieces[4:]]
  path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
  student = type(own.task)(
    own.task.settings, tokenization.FullTokenizer(str(path))
  )
  teacher = Teacher(own.folder, student, own.examples[:1])
  with pytest.raises(UserError, match="other word pieces than the student"):
    list(teacher.rows([], str(tmp_path)))


def test_labels_must_be_the_same(load):
  own = load("classification")
  settings = dataclasses.replace(own.task.settings, labels=("a", "b"))
  student = type(own.task)(settings, own.task.tokenizer)
  with pytest.raises(UserError, match=r"labels red, green, blue .*a, b"):
    Teacher(own.folder, student)
  multilabel = load("multilabel")
  with pytest.raises(UserError, match=r"\(multilabel\).*\(classification\)"):
    Teacher(multilabel.folder, own.task)


def test_lines_without_labels(load, tmp_path):
  path = tmp_path / "lines.txt"
  path.write_text("A text.\n\nAnother ||| and its pair\n", encoding="utf-8")
  settings = dataclasses.replace(
    load("classification").task.settings, is_pair=None
  )
  task = type(load("classification").task)(settings)
  first, second = task.unlabeled(str(path))
  assert (first.text_a, first.text_b) == ("A text.", None)
  assert (second.text_a, second.text_b) == ("Another", "and its pair")
  with pytest.raises(
    UserError, match=r"lines.txt:3 has 2 texts, .* reads 'text'"
  ):
    load("tagging").task.unlabeled(str(path))


class TestVectors:
  """Each row of a training on vectors has several texts."""

  @pytest.fixture
  def folder(self, tmp_path, golden, goldens):
    """A teacher with prompts of its own."""
    task_folders.write(tmp_path, "", golden, goldens)
    settings = VectorSettings(
      task_folders.LENGTH,
      pooling="max",
      prompts=(("query", "city "), ("document", "north ")),
    )
    content = task_file.content("vectors", settings)
    (tmp_path / task_file.NAME).write_text(content)
    return tmp_path

  def make_teacher(self, folder, tokenizer):
    pairs = [
      Pair("", "Jim", "the mountains of the north", ("ate", "Jim")),
      Pair("", "he", "the mountains of the north"),
    ]
    task = EmbeddingTask(
      VectorSettings(
        task_folders.LENGTH, pooling="cls", prompts=(("query", "the "),)
      ),
      tokenizer,
      {"train": pairs},
    )
    lines = [Pair("", "south", ""), Pair("", "south", "city")]
    (examples,) = task.examples("train").values()
    return Teacher(str(folder), task, lines), examples

  def test_they_are_those_of_the_model(self, folder, tokenizer, tmp_path):
    teacher, examples = self.make_teacher(folder, tokenizer)
    groups = teacher.rows(examples, str(tmp_path))
    found = np.stack([row["teacher/vectors"] for (row,) in groups])
    model = bert.load(folder)
    far = "the mountains of the north"
    texts = [["Jim", far, "ate", "Jim"], ["he", far], ["south"]]
    for index, row in enumerate([*texts, ["south", "city"]]):
      inputs = [
        {"text": text, "prompt": "document" if place else "query"}
        for place, text in enumerate(row)
      ]
      expected = [answer["vector"] for answer in model(inputs)]
      np.testing.assert_allclose(found[index, : len(row)], expected, atol=1e-5)
      assert not found[index, len(row) :].any()

  def test_a_text_is_computed_once(
    self, folder, tokenizer, tmp_path, monkeypatch
  ):
    teacher, examples = self.make_teacher(folder, tokenizer)
    counts, compute = [], Predictor.__call__

    def count(self, rows):
      counts.append(len(rows))
      return compute(self, rows)

    monkeypatch.setattr(Predictor, "__call__", count)
    list(teacher.rows(examples, str(tmp_path)))
    # "Jim" and "he" as queries, three documents; then two of the lines.
    assert counts == [5, 2]
    again, _ = self.make_teacher(folder, tokenizer)
    list(again.rows(examples, str(tmp_path)))
    assert counts == [5, 2]  # The files are read.
