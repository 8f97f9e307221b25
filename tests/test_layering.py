"""Imports go one way, flags stay in scripts, functions are short."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent

_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef

# A module imports from its own folder and from the ones before it.
FOLDERS = [
  "core",
  "pipeline",
  "training",
  "reports",
  "tasks",
  "export",
  "scripts",
]
CORE = [
  "errors",
  "quiet_start",
  "variables",
  "fusion",
  "layers",
  "packing",
  "modeling",
  "tokenization",
  "loss_scale",
  "optimization",
]


def _modules():
  """Dict from dotted name to (folder, path)."""
  found = {}
  for path in ROOT.glob("*.py"):
    folder = "core" if path.stem in CORE else "scripts"
    found[path.stem] = (folder, path)
  for folder in FOLDERS[1:-1]:
    for path in (ROOT / folder).glob("*.py"):
      if path.stem != "__init__":
        found[f"{folder}.{path.stem}"] = (folder, path)
  return found


MODULES = _modules()


def _tree(name):
  return ast.parse(MODULES[name][1].read_text(encoding="utf-8"))


def _imports(name, nodes=None):
  for node in nodes or ast.walk(_tree(name)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_one_way(name):
  folder = MODULES[name][0]
  for imported in _imports(name):
    if imported in MODULES and imported != name:
      other = MODULES[imported][0]
      assert FOLDERS.index(other) <= FOLDERS.index(folder), imported
      assert not other == folder == "scripts", imported


@pytest.mark.parametrize("name", sorted(MODULES))
def test_module_keeps_the_rules(name):
  folder, path = MODULES[name]
  text = path.read_text(encoding="utf-8")
  assert name.rpartition(".")[2] != "utils"
  knows_flags = folder == "scripts" or name in (
    "training.common_flags",
    "training.flag_checks",
    "training.model_flags",
    "training.settings",
    "training.startup",
  )
  assert knows_flags or not {"absl.flags", "absl.app"} & set(_imports(name))
  if name != "variables":
    for maker in ("tf.Variable(", "v1.get_variable(", "v1.variable_scope("):
      assert maker not in text
  for forbidden in ("tf.keras", "tf.estimator", "tensorflow.python"):
    assert forbidden not in text
  loads_tensorflow = "tensorflow" in set(_imports(name, _tree(name).body))
  without = folder == "pipeline" or name in ("tokenization", "errors")
  assert not (without and loads_tensorflow)


def _is_flag(node):
  """Whether a node is FLAGS.name, FLAGS["name"] or FLAGS["name"].value."""
  while isinstance(node, ast.Attribute | ast.Subscript):
    node = node.value
    if isinstance(node, ast.Name) and node.id == "FLAGS":
      return True
  return False


@pytest.mark.parametrize("name", sorted(MODULES))
def test_flags_are_only_read(name):
  for node in ast.walk(_tree(name)):
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    assert not any(map(_is_flag, targets)), node.lineno


@pytest.mark.parametrize("name", sorted(MODULES))
def test_functions_are_short_and_described(name):
  tree = _tree(name)
  assert ast.get_docstring(tree)
  for node in ast.walk(tree):
    if isinstance(node, _FUNCTIONS):
      assert node.end_lineno - node.lineno + 1 <= 60, node.name
  for node in tree.body:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
      is_public = not node.name.startswith("_") and node.name != "main"
      assert ast.get_docstring(node) or not is_public, node.name
