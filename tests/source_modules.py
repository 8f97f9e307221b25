"""The modules of the project: their folders, files and imports."""

import ast
import pathlib
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).parent.parent

_CORE = ["modeling", "tokenization", "optimization"]

# In the order of imports: a room imports from those before it.
ROOMS = [
  *("core", "data", "flags", "reports", "contract", "models", "engine"),
  *("training", "scripts", "tasks", "search", "export", "serving", "commands"),
]

# The modules at the root that `bert` has under its own name, too.
ALIASES = [
  *_CORE,
  "run_classifier",
  "run_squad",
  "run_pretraining",
  "create_pretraining_data",
  "extract_features",
]


def _modules():
  """Dict from dotted name to (room, path)."""
  found = {}
  for path in ROOT.glob("*.py"):
    found[path.stem] = ("core" if path.stem in _CORE else "commands", path)
  for path in (ROOT / "bert").rglob("*.py"):
    parts = path.relative_to(ROOT).with_suffix("").parts
    if path.stem == "__init__" or parts[1:] in [(name,) for name in ALIASES]:
      continue
    room = parts[1] if len(parts) > 2 else "core"
    if path.stem == "keras":
      room = "commands"  # Nothing imports it.
    found[".".join(parts)] = (room, path)
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
