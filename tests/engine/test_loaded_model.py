"""`bert.load`: the same call for the model of every task."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scripts
import task_folders

import bert
from bert.contract import registry
from bert.errors import UserError
from bert.tasks.classification.task import ClassificationTask


@pytest.fixture(scope="module")
def folders(tmp_path_factory, golden, goldens):
  """The folder of a model of each task."""
  found = {}
  for name in task_folders.INPUTS:
    path = tmp_path_factory.mktemp(name.replace(" ", "_") or "encoder")
    found[name] = task_folders.write(path, name, golden, goldens)
  return found


def test_probabilities_of_choices_have_sum_1(folders):
  model = bert.load(folders["multiple choice"])
  two = model(("the city", ["is old", "is in the north"]))["probabilities"]
  assert sum(two) == pytest.approx(1)
  # An empty choice only fills up the list.
  found = model(("the city", ["is old", "", "is in the north"]))
  assert found["probabilities"][1] == 0
  np.testing.assert_allclose(found["probabilities"][::2], two, atol=1e-6)


def test_labels(folders):
  labels = bert.load(folders["tagging"]).labels
  assert labels == task_folders.TAGS
  assert bert.load(folders[""]).labels == ()


class Best(ClassificationTask):
  """A task of a user's own, with the variables of a classifier."""

  kind = "best"

  def public(self, answer):
    return {"best": self.labels[answer.logits.argmax()]}


def test_an_own_task_reads_a_model_of_another_kind(folders):
  bert.register(Best)
  folder, text = folders["classification"], "Jim Henson"
  trained, own = bert.load(folder), bert.load(folder, task="best")
  assert own.kind == "best"
  assert own.task.settings == trained.task.settings
  assert own(text) == {"best": trained(text)["label"]}


def test_an_own_task_needs_the_variables_of_its_head(folders):
  bert.register(Best)
  with pytest.raises(UserError, match="lacks output_weights") as error:
    bert.load(folders["squad"], task="best", max_seq_length=16)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize("task", registry.UNTRAINED)
def test_what_any_model_answers_ignores_its_training(task, folders):
  found = bert.load(folders["classification"], task=task).task.settings
  assert found.max_seq_length > task_folders.LENGTH


class Column:
  """A column of a data frame, such as a Series of pandas."""

  def __init__(self, values):
    self._values = values

  def tolist(self):
    return self._values


@pytest.mark.parametrize(
  ("name", "inputs"),
  [
    ("classification", ["the city", "Jim Henson"]),
    ("multilabel", [("the city", "Jim"), ("Henson", "the north")]),
  ],
)
def test_arrays_and_columns_are_lists(name, inputs, folders):
  model = bert.load(folders[name])
  array = np.empty(len(inputs), object)
  array[:] = inputs
  for values in (array, Column(inputs)):
    assert model(values) == model(inputs)
  if name == "classification":
    assert model(np.array(inputs)) == model(inputs)


@pytest.mark.parametrize(
  ("name", "inputs", "words"),
  [
    ("classification", ("a", "b"), ["not an object with 'text',"]),
    ("multilabel", "a", ["'text_a', 'text_b', or a tuple (text_a, text_b)"]),
    ("squad", [("a", "b"), {"question": "a"}], ["input 2", "context"]),
    (
      "classification",
      {"text": "a", "lang": "de"},
      ["the input also has 'lang'", "pass only 'text'"],
    ),
    ("tagging", ["a", 5], ["input 2", "'text'"]),
  ],
)
def test_wrong_inputs_are_named(name, inputs, words, folders):
  model = bert.load(folders[name])
  with pytest.raises(UserError) as error:
    model(inputs)
  for word in words:
    assert word in str(error.value)


@pytest.mark.parametrize("layers", ["-1,-2", [-1, -2], (-1, -2), "1,0"])
def test_layers_are_a_list_or_the_text_of_the_flag(layers, folders):
  options = {"task": "vectors", "pooling": "none"}
  found = bert.load(folders["classification"], layers=layers, **options)
  layers = found.task.settings.layers
  assert layers in ((-1, -2), (1, 0))
  one = bert.load(folders["classification"], layers=layers[1], **options)
  values, wanted = (model("Jim Henson")["vectors"] for model in (found, one))
  np.testing.assert_allclose(values[:, 1:], wanted, rtol=1e-5, atol=1e-6)
  with pytest.raises(UserError, match="--layers=all must be different layers"):
    bert.load(folders["classification"], layers="all", **options)(["a"])


def test_the_columns_of_the_training_are_named(folders):
  record = pathlib.Path(folders["multilabel"]) / "flags.json"
  columns = {"text_a_column": "question", "text_b_column": "answer"}
  record.write_text(json.dumps({"flags": columns, "data": {}}))
  model = bert.load(folders["multilabel"])
  with pytest.raises(UserError) as error:
    model({"question": "a", "answer": "b"})
  record.unlink()
  words = "text_a was the column 'question' and text_b was the column 'answer'"
  assert str(error.value).endswith(f"; in the training, {words}")


@pytest.mark.parametrize(
  ("options", "words"),
  [
    ({"task": "translation"}, ["task='translation'", "'tagging'"]),
    ({"task": "squad"}, ["task='squad'", "'tagging', 'vectors'"]),
    ({"pooling": "mean"}, ["pooling", "tagging model"]),
    ({"max_seq_len": 3}, ["'max_seq_length', 'max_context', 'batch_size'"]),
    ({"task": "vectors", "prompt": "q"}, ["prompt='q' is not known"]),
  ],
)
def test_wrong_options_are_named(options, words, folders):
  with pytest.raises(UserError) as error:
    bert.load(folders["tagging"], **options)
  for word in words:
    assert word in str(error.value)


def test_the_package_alone_loads_nothing(tmp_path):
  script = tmp_path / "script.py"
  script.write_text(
    "import sys\n"
    f"sys.path.insert(0, {str(scripts.ROOT)!r})\n"
    "import bert\n"
    "loaded = {'numpy', 'tensorflow.python'} & set(sys.modules)\n"
    "print(bert.load.__name__, loaded)\n"
  )

  found = subprocess.run(
    [sys.executable, script], capture_output=True, text=True, check=True
  )
  assert found.stdout == "load set()\n"
