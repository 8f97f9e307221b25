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
_VALUES = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-(10**20), 10**20)
  | st.sampled_from([-1, 0, 1, 2_000_000_000, -1.0, 1e300, "0", _MISSING])
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text(max_size=5),
  lambda parts: (
    st.lists(parts, max_size=2)
    | st.dictionaries(st.text(max_size=2) | st.just("type"), parts, max_size=2)
  ),
  max_leaves=4,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, golden, goldens):
  """A model folder for each task, and those of other libraries."""
  parent = tmp_path_factory.mktemp("folders")
  for name in task_folders.TASKS:
    (parent / name).mkdir()
    task_folders.write(parent / name, name, golden, goldens)
  for number, name in enumerate(_VARIANTS):
    shutil.copytree(goldens / "variants" / name, parent / str(number))
  return sorted(parent.iterdir())


def _keys(value, path=()):
  """The paths of all keys and of the first elements of lists."""
  yield path
  parts = {}
  if isinstance(value, dict):
    parts = value if len(value) < 100 else dict(list(value.items())[:3])
  elif isinstance(value, list):
    parts = dict(enumerate(value[:2]))
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


@hypothesis.settings(max_examples=700)
@hypothesis.given(data=st.data())
def test_any_value_of_any_key_gives_a_model_or_one_line(folders, data):
  folder = data.draw(st.sampled_from(folders))
  file = data.draw(st.sampled_from(sorted(folder.rglob("*.json"))))
  text = file.read_text("utf-8")
  path = data.draw(st.sampled_from(list(_keys(json.loads(text)))))
  changed = _changed(json.loads(text), path, data.draw(_VALUES))
  file.write_text(json.dumps(changed), "utf-8")
  try:
    task, model = loaded_model.find_task(str(folder))
    task.head_shapes(model.config)
    problem = None
  except UserError as error:
    problem = str(error)
  finally:
    file.write_text(text, "utf-8")
  assert problem is None or (str(folder) in problem and "\n" not in problem)
