"""cleanlab finds a wrong label in what a training writes, as the page says.

Set CLEANLAB_PYTHON to a Python that has cleanlab.
"""

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

from bert.tasks.classification import label_types, prediction_files
from bert.tasks.classification.examples import InputExample

pytestmark = pytest.mark.peers

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "own-data.md"


@pytest.mark.parametrize("text_b", [None, "a second text"])
def test_a_wrong_label_is_found(tmp_path, text_b):
  (code,) = re.findall(
    r"^```python\n(.*?cleanlab.*?)^```", PAGE.read_text("utf-8"), re.S | re.M
  )
  label_type = label_types.Classification(["bad", "good"])
  truth = np.arange(40) % 2
  probabilities = np.where(np.arange(2) == truth[:, None], 0.95, 0.05)
  given = [label_type.labels[index] for index in truth]
  given[7] = "bad"  # The model is sure that it is good.
  examples = [
    InputExample(str(row), f"text {row}", text_b, label)
    for row, label in enumerate(given)
  ]
  table = prediction_files.predictions_table(
    label_type, examples, probabilities, shows_given=True
  )
  (tmp_path / "dev_predictions.tsv").write_text(table, "utf-8")
  task = json.dumps({"task": "classification", "labels": label_type.labels})
  (tmp_path / "task.json").write_text(task, "utf-8")
  code = code.replace("/tmp/reviews/output", str(tmp_path))
  found = subprocess.run(
    [os.environ["CLEANLAB_PYTHON"], "-c", code],
    check=True,
    capture_output=True,
    text=True,
  ).stdout
  assert re.findall(r"text \d+", found) == ["text 7"]
