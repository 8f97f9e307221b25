"""Flags stay in scripts, variables in one module, and code stays short."""

import ast
import re

import pytest
from source_modules import MODULES, imports, read, tree

_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef

# Modules that define and parse flags.
_ABSL_FLAGS = ("bert.training.flags", "bert.training.startup")

# Modules that read the values of flags, beside the scripts.
_READERS_OF_FLAGS = (
  *_ABSL_FLAGS,
  "bert.training.flag_table",
  "bert.training.model_flags",
  "bert.training.run_record",
  "bert.training.settings",
  "bert.tasks.runs",
  "bert.tasks.script",
)

# A reader shall see a task, and the whole model, at once.
MOST_LINES = dict.fromkeys(
  (
    "run_classifier",
    "run_squad",
    "run_pretraining",
    "bert.commands.run_ner",
    "bert.tasks.tagging",
    "bert.commands.run_multiple_choice",
    "bert.tasks.multiple_choice",
    "bert.commands.run_embeddings",
    "bert.tasks.embeddings",
    "bert.commands.fill_mask",
    "bert.tasks.fill_mask",
  ),
  260,
) | {"modeling": 600}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_flags_and_variables_stay_in_their_modules(name):
  folder, _ = MODULES[name]
  assert name.rpartition(".")[2] != "utils"
  known = set(imports(name))
  assert name in _ABSL_FLAGS or not {"absl.flags", "absl.app"} & known
  reads_flags = folder == "scripts" or name in _READERS_OF_FLAGS
  # What checks a folder alone is no reader.
  readable = {f"bert.training.flags.{n}" for n in ("Flags", "Flag", "parse")}
  assert reads_flags or not readable & known
  text = read(name)
  if name != "bert.variables":
    for maker in ("tf.Variable(", "v1.get_variable(", "v1.variable_scope("):
      assert maker not in text
  if name != "bert.strict_json":  # Which refuses what Python's reader does not.
    assert "json.load(" not in text
    assert not re.search(r"\bjson\.loads\(", text)
  for forbidden in ("tf.keras", "tf.estimator", "tensorflow.python"):
    assert forbidden not in text
  loads_tensorflow = "tensorflow" in set(imports(name, tree(name).body))
  without = folder == "data" or name in ("tokenization", "bert.errors")
  assert not (without and loads_tensorflow)


def _is_flag(node):
  """Whether a node is flags.name or flags["name"]."""
  is_part = isinstance(node, ast.Attribute | ast.Subscript)
  return is_part and getattr(node.value, "id", None) in ("flags", "FLAGS")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_flags_are_only_read(name):
  for node in ast.walk(tree(name)):
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    assert not any(map(_is_flag, targets)), node.lineno


@pytest.mark.parametrize("name", sorted(MODULES))
def test_functions_are_short_and_described(name):
  module = tree(name)
  assert ast.get_docstring(module)
  for node in ast.walk(module):
    if isinstance(node, _FUNCTIONS):
      assert _length(node) <= 60, node.name
  for node in module.body:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
      is_public = not node.name.startswith("_") and node.name != "main"
      assert ast.get_docstring(node) or not is_public, node.name


def _length(function):
  return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("name", MOST_LINES)
def test_modules_stay_short(name):
  assert len(read(name).splitlines()) <= MOST_LINES[name]


def test_attention_fits_one_glance():
  (attention,) = (
    node
    for node in tree("modeling").body
    if isinstance(node, ast.FunctionDef) and node.name == "attention"
  )
  assert _length(attention) <= 30


def test_the_product_stays_small():
  """Whoever adds lines or modules says in the commit what goes instead."""
  assert len(MODULES) <= 168
  assert sum(len(read(name).splitlines()) for name in MODULES) <= 34_300
