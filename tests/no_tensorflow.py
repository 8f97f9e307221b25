"""Processes without TensorFlow, and without what only training needs."""

import json
import os
import subprocess
import sys

import scripts

# Packages that requirements-runtime.txt does not install.
MISSING = (
  *("tensorflow", "keras", "tensorboard", "scipy", "sklearn", "matplotlib"),
  *("onnx", "openvino", "ai_edge_litert", "pyarrow", "faiss", "apache_beam"),
)

# Python's own finder, for all other packages.
_START = f"""
import json, os, runpy, sys
from importlib.machinery import PathFinder

class Finder:
  def find_spec(self, name, path=None, target=None):
    if name.partition(".")[0] not in {MISSING!r}:
      return PathFinder.find_spec(name, path, target)

sys.meta_path = [Finder() if f is PathFinder else f for f in sys.meta_path]
sys.path.insert(0, {str(scripts.ROOT)!r})
"""

_SCRIPT = """
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(code, *arguments, status=0, stdin="", **kwargs):
  """What Python code prints, and its log."""
  process = subprocess.run(
    [sys.executable, "-c", _START + code, *map(str, arguments)],
    input=stdin,
    capture_output=True,
    text=True,
    **{"cwd": scripts.ROOT, **kwargs},
  )
  assert process.returncode == status, process.stdout + process.stderr
  return process.stdout, process.stderr


def run_script(script, *flags, **kwargs):
  """What a script prints, and its log."""
  path = os.path.join(scripts.ROOT, script)
  return run(_SCRIPT, path, *flags, **kwargs)


_ASK = """
import bert
from bert.serving import rest
options = json.load(sys.stdin)
sys.path[:0] = options["path"]
if options["module"]:
  bert.register(options["module"])
model = bert.load(options["folder"], **options["options"])
asked = options["questions"]
asked = [tuple(x) if isinstance(x, list) else x for x in asked]
print(json.dumps(list(map(rest.to_json, model(asked)))))
"""


def answers(folder, questions, path=(), module=None, python=None, **options):
  """The answers of `bert.load`, as JSON.

  `python` is that of another environment, in which the project is installed.
  """
  asked = {
    "folder": str(folder),
    "questions": questions,
    "path": list(map(str, path)),
    "module": module,
    "options": options,
  }
  asked, code = json.dumps(asked), _ASK
  if python:
    command = [python, "-c", f"import json, sys\n{code}"]
    output = subprocess.check_output(command, input=asked, text=True, cwd="/")
  else:
    output, _ = run(code, stdin=asked)
  return json.loads(output.splitlines()[-1])
