"""Imports go one way: a module imports from its own folder and those before."""

import pytest
from source_modules import MODULES, imports

ORDER = ["core", "data", "reports", "training", "tasks", "export", "scripts"]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_one_way(name):
  folder, _ = MODULES[name]
  for imported in imports(name):
    if imported in MODULES and imported != name:
      other, _ = MODULES[imported]
      assert ORDER.index(other) <= ORDER.index(folder), imported
      is_launcher = imported == f"bert.commands.{name}"
      assert is_launcher or not other == folder == "scripts", imported
