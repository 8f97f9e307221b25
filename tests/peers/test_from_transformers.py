"""docs/from-transformers.md computes what transformers computes.

Set TRANSFORMERS_PYTHON to a Python that has torch and transformers.
"""

import os
import re
import subprocess

import numpy as np
import pytest
import scripts
import task_folders

from bert.export import huggingface

pytestmark = pytest.mark.peers

PEER = """
import sys
import numpy as np
import torch
import transformers

folder, encoder, path = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
auto = transformers.AutoModelForSequenceClassification
model = auto.from_pretrained(folder).eval()
bert = transformers.AutoModel.from_pretrained(encoder).eval()

def inputs(*texts):
  return tokenizer(list(texts), padding=True, return_tensors="pt")

names = model.config.id2label
with torch.no_grad():
  probabilities = model(**inputs("A fine film.", "A waste of time."))
  logits = model(**inputs("A fine film.", "No."))
  hidden = bert(**inputs("A fine film."))
np.savez(
  path,
  labels=[names[int(i)] for i in probabilities.logits.argmax(1)],
  probabilities=probabilities.logits.softmax(1).max(1).values.numpy(),
  logits=logits.logits.numpy(),
  last_hidden_state=hidden.last_hidden_state.numpy(),
  pooler_output=hidden.pooler_output.numpy(),
)
"""


def test_the_page_gives_the_numbers_of_transformers(tmp_path, golden, goldens):
  python = os.environ.get("TRANSFORMERS_PYTHON")
  if not python:
    pytest.skip("TRANSFORMERS_PYTHON is not set")
  folders = {}
  for name, task in (("classifier", "classification"), ("my_bert", "")):
    ours, folders[name] = tmp_path / f"our_{name}", str(tmp_path / name)
    ours.mkdir()
    task_folders.write(ours, task, golden, goldens)
    huggingface.to_huggingface(str(ours), folders[name])
  outputs = tmp_path / "outputs.npz"
  subprocess.run([python, "-c", PEER, *folders.values(), outputs], check=True)
  expected = np.load(outputs)

  page = (scripts.ROOT / "docs" / "from-transformers.md").read_text("utf-8")
  found = {}
  for block in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
    exec(block.replace("/tmp/", f"{tmp_path}/"), found)
  answers = found["answers"]
  assert [a["label"] for a in answers] == expected["labels"].tolist()
  found["probabilities"] = [max(a["probabilities"]) for a in answers]
  for name in expected.files[1:]:
    np.testing.assert_allclose(
      found[name], expected[name], atol=1e-5, err_msg=name
    )
