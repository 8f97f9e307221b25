"""The kinds of tasks by name."""

import pytest

from bert.contract import registry
from bert.contract.task import Task
from bert.errors import UserError
from bert.models import huggingface_names
from bert.tasks.squad.task import SquadTask

MODULE = """
from bert.tasks.squad.task import SquadTask
from bert.contract.task import Task

class Base(Task):
  pass

class First(Base):
  kind = "{0} first"

class Second(SquadTask):
  kind = "{0} second"

number = 5
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
  """The name of a module with two tasks of its own, each with a new kind."""
  name = f"own_{abs(hash(request.node.name))}"
  (tmp_path / f"{name}.py").write_text(MODULE.format(name))
  monkeypatch.syspath_prepend(tmp_path)
  return name


@pytest.mark.parametrize(
  ("kind", "architecture", "name"),
  [
    ("classification", "BertForSequenceClassification", "ClassificationTask"),
    ("tagging", "BertForTokenClassification", "TaggingTask"),
    ("squad", "BertForQuestionAnswering", "SquadTask"),
    ("multiple choice", "BertForMultipleChoice", "MultipleChoiceTask"),
    ("vectors", None, "VectorTask"),
    ("fill_mask", None, "MaskTask"),
  ],
)
def test_our_own(kind, architecture, name):
  assert kind in registry.kinds()
  assert registry.task_class(kind).__name__ == name
  assert registry.task_class(kind).kind == kind
  head = huggingface_names.head_of(kind)
  assert (head and f"Bert{head}") == architecture
  if architecture:
    for name in (architecture, f"Roberta{head}", f"XLMRoberta{head}"):
      assert huggingface_names.kind_of(name) == kind
    assert huggingface_names.kind_of(f"GPT2{head}") is None


def test_a_class():
  class Own(Task):
    kind = "own class"

  registry.register(Own)
  assert registry.task_class("own class") is Own
  assert "own class" in registry.kinds()
  assert huggingface_names.head_of("own class") is None


@pytest.mark.parametrize("suffix", ["", ".py", ":First"])
def test_a_module_or_a_class_in_it(module, suffix):
  registry.register(module + suffix)
  assert registry.task_class(f"{module} first").__name__ == "First"
  second = f"{module} second"
  assert (second in registry.kinds()) == (suffix != ":First")
  # What it imports is not its own.
  assert registry.task_class("squad") is SquadTask


@pytest.mark.parametrize(
  ("place", "message"),
  [
    ("{}:Third", ":Third is not a subclass of bert.Task with a kind"),
    ("{}:number", ":number is not a subclass"),
    ("{}:Base", ":Base is not a subclass"),
    ("json", "json is not a subclass"),
    ("no_such_module", "there is no module no_such_module; pass one in"),
    ("no_such_module:A", "there is no module no_such_module; pass one in"),
    ("folder/own.py", "there is no module folder/own; pass one in"),
  ],
)
def test_wrong_names(module, place, message):
  with pytest.raises(UserError, match=message) as error:
    registry.register(place.format(module))
  assert "\n" not in str(error.value)


def test_a_module_that_lacks_another_says_so(tmp_path, monkeypatch):
  (tmp_path / "own_lacking.py").write_text("import no_such_module")
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(ModuleNotFoundError, match="no_such_module"):
    registry.register("own_lacking")


def test_an_unknown_kind():
  with pytest.raises(
    UserError, match=r"task 'no' is not one of .*'squad'.*; if"
  ):
    registry.task_class("no")
