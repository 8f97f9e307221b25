"""The model of each task gives the same answers with another engine."""

import numpy as np
import pytest
import task_folders

import bert

TEXTS = ["Jim Henson was a puppeteer", "the mountains of the north"]
PAIR = tuple(TEXTS)
CONCAT = {"layers": [-1, -2], "layer_combination": "concat"}

# Task, folder, inputs, options.
CASES = [
  (None, "classification", TEXTS, {}),
  (None, "squad", [PAIR], {}),
  (None, "tagging", TEXTS, {}),
  (None, "multiple choice", [("He", TEXTS), ("He", [*TEXTS, "is"])], {}),
  ("fill_mask", "", [PAIR], {}),
  ("vectors", "", TEXTS, CONCAT),
]


def numbers(value):
  """All numbers in an answer, in order."""
  if isinstance(value, dict):
    return [n for _, part in sorted(value.items()) for n in numbers(part)]
  if isinstance(value, list | tuple | np.ndarray):
    return [n for part in value for n in numbers(part)]
  return [] if isinstance(value, str) else [float(value)]


@pytest.mark.parametrize(("task", "name", "inputs", "options"), CASES)
def test_answers_are_those_of_tensorflow(
  tmp_path, golden, goldens, task, name, inputs, options
):
  folder = task_folders.write(tmp_path, name, golden, goldens)
  by_tensorflow, by_engine = (
    numbers(bert.load(folder, task, runtime=runtime, **options)(inputs))
    for runtime in ("tensorflow", "onnxruntime")
  )
  assert by_tensorflow
  assert len(list((tmp_path / "onnx").iterdir())) == 1
  np.testing.assert_allclose(by_engine, by_tensorflow, atol=1e-4)
