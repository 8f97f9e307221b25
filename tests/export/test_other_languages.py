"""Exported folders hold all that a program without this repository needs.

The answers here are computed by `tokenizers` and onnxruntime alone, as the
README.md in the folder says.
"""

import functools
import json

import numpy as np
import onnxruntime
import pytest
import task_folders
import tokenizers

import bert
from bert.commands import export_model
from bert.export import readme


class Reader:
  """A program in another language."""

  def __init__(self, folder):
    path = str(folder / "tokenizer.json")
    self.tokenizer = tokenizers.Tokenizer.from_file(path)
    self.task = json.loads((folder / "task.json").read_text("utf-8"))
    self.session = onnxruntime.InferenceSession(
      folder / "model.onnx", providers=["CPUExecutionProvider"]
    )

  def split(self, text):
    return self.tokenizer.encode(text, add_special_tokens=False)

  def run(self, a, b=()):
    """The outputs of a row of ids."""
    cls, sep = map(self.tokenizer.token_to_id, ("[CLS]", "[SEP]"))
    a, b = list(a), list(b)
    room = self.task["max_seq_length"] - (3 if b else 2)
    while len(a) + len(b) > room:
      (a if len(a) > len(b) else b).pop()
    ids = [cls, *a, sep] + ([*b, sep] if b else [])
    segments = [0] * (len(a) + 2) + ([1] * (len(b) + 1) if b else [])
    names = [output.name for output in self.session.get_outputs()]
    row = {
      "input_ids": np.array([ids]),
      "input_mask": np.ones([1, len(ids)], np.int64),
      "segment_ids": np.array([segments]),
    }
    return dict(zip(names, self.session.run(None, row), strict=True))


@pytest.fixture(scope="module")
def export(tmp_path_factory, golden, goldens):
  """A function from a task to a model and its exported folder."""

  @functools.cache
  def export(name):
    base = tmp_path_factory.mktemp("export")
    (base / "model").mkdir()
    folder = task_folders.write(base / "model", name, golden, goldens)
    export_model.run(model_dir=folder, output_dir=base / "out", format="onnx")
    return bert.load(folder), base / "out"

  return export


LONG = "the north of the city, " * 12


@pytest.mark.parametrize(
  "pair", [("Jim", "Henson made puppets."), (LONG, "Jim"), (LONG, LONG)]
)
def test_labels_of_pairs(export, pair):
  model, folder = export("multilabel")
  reader = Reader(folder)
  found = reader.run(*(reader.split(text).ids for text in pair))
  answer = model(pair)
  assert reader.task["labels"] == answer["labels"]
  np.testing.assert_allclose(
    found["probabilities"][0], answer["probabilities"], atol=1e-5
  )


def test_labels_of_words(export):
  model, folder = export("tagging")
  reader = Reader(folder)
  text = "Jim Henson made puppets."
  encoded = reader.split(text)
  found = reader.run(encoded.ids)["labels"][0]
  labels = [reader.task["labels"][index] for index in found]
  # The first piece of a word decides.
  starts = {0: 1}
  for i, (_, end) in enumerate(encoded.offsets[:-1]):
    start = encoded.offsets[i + 1][0]
    if start > end:
      starts[start] = i + 2
  first = {labels[index][2:] for index in starts.values()} - {""}
  assert first == {entity["type"] for entity in model(text)["entities"]}


def test_the_answer_to_a_question(export):
  model, folder = export("squad")
  reader = Reader(folder)
  question, context = "Who?", "It is Jim Henson."
  a, b = reader.split(question), reader.split(context)
  found = reader.run(a.ids, b.ids)
  first = len(a.ids) + 2
  size = len(b.ids)
  start, end = (found[f"{name}_logits"][0] for name in ("start", "end"))
  scores = {
    (i, j): start[first + i] + end[first + j]
    for i in range(size)
    for j in range(i, size)
  }
  i, j = max(scores, key=scores.get)
  answer = model((question, context))
  assert context[b.offsets[i][0] : b.offsets[j][1]] == answer["answer"]


@pytest.mark.parametrize(
  ("name", "inputs", "wanted"),
  [
    ("multilabel", "`text_a` and `text_b`", "`probabilities`: probabilities"),
    ("regression", "`text`", "`probabilities`: the predicted numbers"),
    ("", "`text`", "`sequence_output`"),
  ],
)
def test_the_readme_says_how(export, name, inputs, wanted):
  text = (export(name)[1] / "README.md").read_text("utf-8")
  _, _, text = text.partition("## Use it in a program of your own\n")
  assert len(text.splitlines()) <= 20
  is_pair = name == "multilabel"
  assert ("[SEP], or [CLS] A [SEP] if B is empty." in text) == is_pair
  for part in (
    f"An input consists of {inputs}.",
    "`model.onnx` computes",
    "are int64 [rows, length]",
    "to 32 pieces" if name else "pieces",
    wanted,
  ):
    assert part in text


@pytest.mark.parametrize("name", ["multiple choice", ""])
def test_the_readme_of_a_lite_file(export, name):
  task = export(name)[0].task
  text = readme.readme("model.tflite", task, 16, has_task=bool(name))
  shape = "[1, 1, 16]" if name == "multiple choice" else "[1, 16]"
  assert f"are int32 {shape}" in text
  assert "to 16 pieces" in text
  assert ("`vectors`" if not name else "`logits`") in text
