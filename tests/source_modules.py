"""The modules of the project: their folders, files and imports."""

import ast
import pathlib
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).parent.parent

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
_SUBFOLDERS = ["pipeline", "training", "reports", "tasks", "export"]


def _modules():
  """Dict from dotted name to (folder, path)."""
  found = {}
  for path in ROOT.glob("*.py"):
    folder = "core" if path.stem in CORE else "scripts"
    found[path.stem] = (folder, path)
  for folder in _SUBFOLDERS:
    for path in (ROOT / folder).glob("*.py"):
      if path.stem != "__init__":
        found[f"{folder}.{path.stem}"] = (folder, path)
  return found


MODULES = _modules()


def read(name: str) -> str:
  """The text of a module."""
  return MODULES[name][1].read_text(encoding="utf-8")


def tree(name: str) -> ast.Module:
  """The syntax tree of a module."""
  return ast.parse(read(name))


def imports(name: str, nodes: Iterable[ast.AST] | None = None) -> Iterator[str]:
  """Yields what a module, or some of its nodes, import."""
  for node in nodes or ast.walk(tree(name)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module
      yield from (f"{node.module}.{alias.name}" for alias in node.names)
