"""Flags stay in scripts, variables in one module, functions stay short."""

import ast
import re

import pytest
from source_modules import MODULES, imports, read, tree

_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef

# Modules that define and parse flags.
_ABSL_FLAGS = ("bert.flags.values", "bert.scripts.startup")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_flags_and_variables_stay_in_their_modules(name):
  room, _ = MODULES[name]
  assert name.rpartition(".")[2] != "utils"
  known = set(imports(name))
  assert name in _ABSL_FLAGS or not {"absl.flags", "absl.app"} & known
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
  without = room == "data" or name in ("tokenization", "bert.errors")
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
