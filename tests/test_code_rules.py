"""Functions stay short; variables and JSON are each read in one module."""

import ast
import re

import pytest
from source_modules import MODULES, imports, read, tree

# What only one module may do.
ONE_MODULE = {
  r"tf\.Variable\(|v1\.get_variable\(|v1\.variable_scope\(": "bert.variables",
  r"\bjson\.loads?\(": "bert.strict_json",
}


@pytest.mark.parametrize("pattern", ONE_MODULE)
def test_one_module_does_it(pattern):
  users = {name for name in MODULES if re.search(pattern, read(name))}
  assert users <= {ONE_MODULE[pattern]}


def test_functions_are_short():
  for name in MODULES:
    assert name.rpartition(".")[2] != "utils"
    for node in ast.walk(tree(name)):
      if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        length = node.end_lineno - node.lineno + 1
        assert length <= 60, f"{name}.{node.name}"


def test_data_are_read_without_tensorflow():
  for name, (room, _) in MODULES.items():
    if room == "data" or name in ("tokenization", "bert.errors"):
      assert "tensorflow" not in imports(name, tree(name).body), name
