"""JSON files of model folders, whatever is in them: a model or one line."""

import json
import shutil

import hypothesis
import pytest
import task_folders
from hypothesis import strategies as st

from bert.engine import loaded_model
from bert.errors import UserError

# Folders of goldens with every file that is read, and a tokenizer of each kind.
_VARIANTS = (
  *("st-cls-prompts/folder", "distilbert/ForSequenceClassification"),
  "roberta/ForTokenClassification",
)
_MISSING = "\0missing"
_SCALARS = (
  st.none()
  | st.booleans()
  | st.integers(-(10**20), 10**20)
  | st.sampled_from([-1, 0, 1, 2_000_000_000, -1.0, 1e300, "0", _MISSING])
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text(max_size=5)
)
_NAMES = st.text(max_size=2) | st.sampled_from(["0", "type", "normalizers"])
_LISTS = st.lists(_SCALARS | st.lists(_SCALARS, max_size=2), max_size=2)
_OBJECTS = st.dictionaries(_NAMES, _SCALARS | _LISTS, max_size=2)
# All three alike; `|` would draw few lists and objects.
_VALUES = st.sampled_from((_SCALARS, _LISTS, _OBJECTS)).flatmap(lambda x: x)


@pytest.fixture(scope="module")
def keys(tmp_path_factory, golden, goldens):
  """Each key of the files of model folders once, with its folder and file."""
  parent = tmp_path_factory.mktemp("folders")
  for name in task_folders.TASKS:
    (parent / name).mkdir()
    task_folders.write(parent / name, name, golden, goldens)
  for number, name in enumerate(_VARIANTS):
    shutil.copytree(goldens / "variants" / name, parent / str(number))
  found = {}
  for file in sorted(parent.rglob("*.json")):
    content = json.loads(file.read_text("utf-8"))
    folder = parent / file.relative_to(parent).parts[0]
    # Tokenizers and models of different kinds have different keys.
    kind = content["model"]["type"] if file.name == "tokenizer.json" else None
    if file.name == "config.json":
      kind = content.get("model_type")
    for path in _keys(content):
      found.setdefault((file.name, kind, path), (folder, file, path))
  return list(found.values())


def _keys(value, path=()):
  """The paths of all keys, and of the first elements of lists."""
  yield path
  parts = {}
  if isinstance(value, dict):
    parts = value if len(value) < 100 else dict(list(value.items())[:1])
  elif isinstance(value, list):
    parts = dict(enumerate(value[:1]))
  for name, part in parts.items():
    yield from _keys(part, (*path, name))


def _changed(content, path, value):
  """The content with another value of a key, or without the key."""
  if not path:
    return None if value == _MISSING else value
  changed = parent = json.loads(json.dumps(content))
  for name in path[:-1]:
    parent = parent[name]
  parent[path[-1]] = value
  if value == _MISSING:
    del parent[path[-1]]
  return changed


@hypothesis.settings(max_examples=200)
@hypothesis.given(number=st.integers(0, 10**6), value=_VALUES)
@hypothesis.example(number=None, value=_MISSING)
@hypothesis.example(number=None, value=None)
@hypothesis.example(number=None, value=[[1]])
@hypothesis.example(number=None, value={"type": "Sequence", "normalizers": [1]})
def test_any_value_of_any_key_gives_a_model_or_one_line(keys, number, value):
  """Of a key by number, or, without one, of every key."""
  for key in keys if number is None else [keys[number % len(keys)]]:
    problem = _load(*key, value)
    assert problem is None or "\n" not in problem
    assert problem is None or str(key[0]) in problem


def _load(folder, file, path, value):
  """The error of a changed folder, which is as before then; or None."""
  text = file.read_text("utf-8")
  file.write_text(json.dumps(_changed(json.loads(text), path, value)), "utf-8")
  try:
    task, model = loaded_model.find_task(str(folder))
    task.head_shapes(model.config)
  except UserError as error:
    return str(error)
  finally:
    file.write_text(text, "utf-8")
  return None
