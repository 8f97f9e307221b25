"""Exported folders hold all that a program without this repository needs.

The answers here are computed by `tokenizers` and onnxruntime alone, as the
README.md in the folder says.
"""

import functools
import json
import re
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import task_folders
import tokenizers

import bert
from bert.commands import export_model


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
  """A function from a task and a format to a model and its exported folder."""

  @functools.cache
  def export(name, format_="onnx"):
    base = tmp_path_factory.mktemp("export")
    (base / "model").mkdir()
    folder = task_folders.write(base / "model", name, golden, goldens)
    out, length = base / "out", None if format_ == "onnx" else 16
    export_model.run(
      model_dir=folder, output_dir=out, format=format_, max_seq_length=length
    )
    return bert.load(folder), out

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


def example_of(folder, second="The text_b."):
  """README.md, and what its example prints, for this second text."""
  text = (folder / "README.md").read_text("utf-8")
  (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
  assert len(code.splitlines()) <= 20
  code = code.replace("The text_b.", second)
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=folder, capture_output=True, check=True
  )
  return text, done.stdout.decode()


@pytest.mark.parametrize(
  ("name", "inputs", "printed"),
  [
    ("multilabel", "`text_a` and `text_b`", ("The text_a.", "The text_b.")),
    ("multilabel", "`text_a` and `text_b`", ("The text_a.", "")),
    ("multilabel", "`text_a` and `text_b`", ("The text_a.", LONG)),
    ("regression", "`text`", "The text."),
    ("", "`text`", None),
  ],
)
def test_the_readme_says_how(export, name, inputs, printed):
  model, folder = export(name)
  is_pair = isinstance(printed, tuple)
  text, output = example_of(folder, printed[1] if is_pair else "")
  assert len(text.splitlines()) <= 44
  assert ("[SEP], or [CLS] A [SEP] if B is empty." in text) == is_pair
  wanted = [f"An input consists of {inputs}.", "`model.onnx` computes"]
  wanted += ["are int64 [rows, length]"]
  if name:
    wanted += ["to 32 pieces", "`logits`: scores before", "not probabilities"]
    meaning = "the predicted numbers" if name == "regression" else "from 0 to 1"
    wanted += [
      f"`probabilities`: {meaning}" if name == "regression" else meaning
    ]
    answer = model(printed)
    for number in answer.get("probabilities") or [answer["value"]]:
      assert f"{number:.4f}"[:5] in output
  else:
    wanted += ["`sequence_output`", "`pooled_output`"]
  for part in wanted:
    assert part in text


@pytest.mark.parametrize("name", ["multiple choice", ""])
def test_the_readme_of_a_lite_file(export, name):
  text, output = example_of(export(name, "tflite")[1])
  shape = "[1, 1, 16]" if name == "multiple choice" else "[1, 16]"
  assert f"are int32 {shape}" in text
  assert "to 16 pieces" in text
  for output_name in ("vectors",) if not name else ("logits", "probabilities"):
    assert f"`{output_name}`" in text
    assert f"'{output_name}': array(" in output
