"""Imports go one way: a module imports from its own room and those before."""

import ast

import pytest
from source_modules import MODULES, ROOMS, imports, tree


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_one_way(name):
  room, _ = MODULES[name]
  for imported in _used_imports(name):
    if imported in MODULES and imported != name:
      other, _ = MODULES[imported]
      assert ROOMS.index(other) <= ROOMS.index(room), imported
      is_launcher = imported == f"bert.commands.{name}"
      assert is_launcher or not other == room == "commands", imported


def test_modules_do_not_import_each_other_in_a_circle():
  waiting = {n: {*_used_imports(n)} & MODULES.keys() - {n} for n in MODULES}
  while waiting:
    free = [name for name, needed in waiting.items() if not needed]
    assert free, f"a circle among {sorted(waiting)}"
    for name in free:
      del waiting[name]
    waiting = {n: needed - set(free) for n, needed in waiting.items()}


def _used_imports(name):
  """What a module imports for more than type hints."""
  hints = {
    imported
    for node in ast.walk(tree(name))
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for imported in imports(name, ast.walk(node))
  }
  return set(imports(name)) - hints
