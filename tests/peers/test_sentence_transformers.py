"""sentence-transformers reads our folders and computes the same vectors.

Set SENTENCE_TRANSFORMERS_PYTHON to a Python that has it.
"""

import json
import os
import subprocess

import numpy as np
import pytest

from bert.export import huggingface
from bert.models import task_file

pytestmark = pytest.mark.peers

_SCRIPT = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
folder, texts, output = sys.argv[1:]
model = SentenceTransformer(folder, device="cpu")
texts = json.loads(open(texts).read())
found = {"vectors": model.encode(texts)}
if "query" in model.prompts:
  found["query"] = model.encode(texts, prompt_name="query")
np.savez(output, **found)
"""


@pytest.mark.parametrize("name", ["st-mean-normalized", "st-cls-prompts"])
def test_a_converted_folder(goldens, tmp_path, name):
  golden = goldens / "variants" / name
  ours, theirs = str(tmp_path / "ours"), tmp_path / "theirs"
  huggingface.to_tensorflow(str(golden / "folder"), ours)
  huggingface.to_huggingface(ours, str(theirs))
  assert json.loads((theirs / task_file.NAME).read_text())["task"] == "vectors"
  python = os.environ["SENTENCE_TRANSFORMERS_PYTHON"]
  output = tmp_path / "found.npz"
  subprocess.run(
    [python, "-c", _SCRIPT, theirs, golden / "texts.json", output], check=True
  )
  found = np.load(output)
  for key, wanted in np.load(golden / "outputs.npz").items():
    np.testing.assert_allclose(found[key], wanted, rtol=0, atol=1e-5)
