"""docs/add-a-task.md gives the probabilities of transformers' pipeline.

Set TRANSFORMERS_PYTHON to a Python that has torch and transformers.
"""

import json
import os
import re
import subprocess

import numpy as np
import pytest
import scripts
import task_folders

import bert
from bert.export import huggingface

pytestmark = pytest.mark.peers

INPUTS = [
  ("The striker scored twice.", ["politics", "sport"]),
  ("the city is in the north of the mountains", ["travel", "war", "food"]),
]

PEER = """
import json
import sys
import transformers

classify = transformers.pipeline(
  "zero-shot-classification", model=sys.argv[1], device="cpu"
)
found = []
for text, labels in json.loads(sys.argv[2]):
  answer = classify(text, labels)
  scores = dict(zip(answer["labels"], answer["scores"]))
  found.append([scores[label] for label in labels])
print(json.dumps(found))
"""


def test_the_page_gives_the_probabilities_of_transformers(
  tmp_path, golden, goldens
):
  python = os.environ.get("TRANSFORMERS_PYTHON")
  if not python:
    pytest.skip("TRANSFORMERS_PYTHON is not set")
  (tmp_path / "ours").mkdir()
  ours = task_folders.write_nli(tmp_path / "ours", golden, goldens)
  theirs = str(tmp_path / "theirs")
  huggingface.to_huggingface(ours, theirs)
  command = [python, "-c", PEER, theirs, json.dumps(INPUTS)]
  output = subprocess.run(command, check=True, capture_output=True, text=True)
  expected = json.loads(output.stdout.splitlines()[-1])

  page = (scripts.ROOT / "docs" / "add-a-task.md").read_text("utf-8")
  *_, code = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
  exec(code.replace("/tmp/mnli_output", theirs), {})
  for folder in (ours, theirs):
    answers = bert.load(folder, task="zero_shot")(INPUTS)
    for answer, wanted in zip(answers, expected, strict=True):
      np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-6)
