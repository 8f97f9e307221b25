"""The house stands as designed: imports go down, flags stay in scripts."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# Floors from the ground up; a module imports from below its own place.
FLOORS = [
  "quiet_start",
  "variables",
  "modeling",
  "tokenization",
  "optimization",
  "checkpoints",
  "releases",
  "inputs",
  "text_files",
  "instances",
  "corpus",
  "corpus_workers",
  "corpus_beam",
  "shuffled_records",
  "heads",
  "metrics",
  "summaries",
  "run_record",
  "pages",
  "estimator",
  "pretraining",
  "best",
  "common_flags",
  "tables",
  "examples",
  "custom",
  "glue",
  "squad",
  "squad_records",
  "squad_scores",
  "squad_answers",
  "squad_report",
  "question_answering",
  "squad_results",
  "squad_reader",
  "runs",
  "classifier",
  "features",
  "feature_files",
  "attention_page",
  "embeddings_map",
  "answers",
  "report",
  "fine_tuning",
]
MODULES = {path.stem: path for path in ROOT.glob("*.py")}
SCRIPTS = sorted(MODULES.keys() - set(FLOORS))


def _tree(name):
  return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def _imports(name):
  for node in ast.walk(_tree(name)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module


def test_every_floor_is_there():
  assert set(FLOORS) <= MODULES.keys()
  assert "utils" not in MODULES


@pytest.mark.parametrize("name", FLOORS)
def test_imports_go_down(name):
  above = set(FLOORS[FLOORS.index(name) :]) | set(SCRIPTS)
  assert not above & set(_imports(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_no_script(name):
  assert not set(SCRIPTS) & set(_imports(name))


@pytest.mark.parametrize("name", sorted(set(FLOORS) - {"common_flags"}))
def test_only_scripts_and_common_flags_touch_flags(name):
  absl = {"absl.flags", "absl.app"}
  for node in ast.walk(_tree(name)):
    if isinstance(node, ast.ImportFrom) and node.module == "absl":
      assert {alias.name for alias in node.names} <= {"logging"}
    assert not (isinstance(node, ast.Name) and node.id == "FLAGS")
  assert not absl & set(_imports(name))


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"variables"}))
def test_only_variables_makes_variables(name):
  text = MODULES[name].read_text(encoding="utf-8")
  for machinery in ("tf.Variable", "v1.get_variable", "v1.variable_scope"):
    assert f"{machinery}(" not in text


@pytest.mark.parametrize("name", sorted(MODULES))
def test_functions_are_short(name):
  for node in ast.walk(_tree(name)):
    if isinstance(node, ast.FunctionDef):
      assert node.end_lineno - node.lineno + 1 <= 60, node.name


@pytest.mark.parametrize("name", sorted(MODULES))
def test_public_names_have_docstrings(name):
  tree = _tree(name)
  assert ast.get_docstring(tree)
  for node in tree.body:
    public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not (
      node.name.startswith("_") or node.name == "main"
    )
    assert not public or ast.get_docstring(node), node.name


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_keras_no_estimator_no_private_tensorflow(name):
  text = MODULES[name].read_text(encoding="utf-8")
  for forbidden in ("tf.keras", "tf.estimator", "tensorflow.python"):
    assert forbidden not in text
