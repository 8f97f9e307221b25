"""transformers reads the family's models that are written here.

Set TRANSFORMERS_PYTHON to a Python that has torch and transformers.
"""

import json
import os
import subprocess

import numpy as np
import pytest

import families
from bert.export import huggingface
from bert.models.resolve import resolve

pytestmark = pytest.mark.peers

PEER = """
import json
import pathlib
import sys
import numpy as np
import torch
import transformers

base = pathlib.Path(sys.argv[1])
for folder in sorted(base.glob("*/*/there")):
  (name,) = json.loads((folder / "config.json").read_text())["architectures"]
  model, info = getattr(transformers, name).from_pretrained(
    folder, output_loading_info=True
  )
  assert not info["missing_keys"] and not info["unexpected_keys"], info
  batch = np.load(folder.parent / "inputs.npz")
  inputs = {
    "input_ids": torch.tensor(batch["input_ids"]).long(),
    "attention_mask": torch.tensor(batch["input_mask"]).long(),
  }
  if name.endswith("ForMultipleChoice"):
    inputs = {name: value[None] for name, value in inputs.items()}
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  texts = json.loads((folder.parent / "texts.json").read_text())
  ids = [tokenizer(*text)["input_ids"] for text in texts]
  (folder.parent / "ids.json").write_text(json.dumps(ids))
  model.eval()
  with torch.no_grad():
    outputs = model(**inputs)
    if not name.endswith("ForMultipleChoice"):
      model(**tokenizer("one two", return_tensors="pt"))  # It reads these.
  found = {n: v.numpy() for n, v in outputs.items() if hasattr(v, "numpy")}
  np.savez(folder.parent / "outputs.npz", **found)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
  """A folder for each model, with what transformers makes of it."""
  python = os.environ.get("TRANSFORMERS_PYTHON")
  if not python:
    pytest.skip("TRANSFORMERS_PYTHON is not set")
  base = tmp_path_factory.mktemp("families")
  for family in families.FAMILIES:
    texts = [
      [row["text"], *([row["pair"]] if "pair" in row else [])]
      for row in families.texts(family)
    ]
    for head in families.HEADS:
      folder = base / family / head
      ours = folder / "ours"
      huggingface.to_tensorflow(families.path(family, head), str(ours))
      huggingface.to_huggingface(str(ours), str(folder / "there"))
      features, _ = families.outputs(family, head, "single")
      np.savez(folder / "inputs.npz", **features)
      (folder / "texts.json").write_text(json.dumps(texts))
  subprocess.run([python, "-c", PEER, str(base)], check=True)
  return base


@pytest.mark.parametrize("head", families.HEADS)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_written_models_compute_the_same(base, family, head):
  features, wanted = families.outputs(family, head, "single")
  found = np.load(base / family / head / "outputs.npz")
  for name, theirs in wanted.items():
    ours = found[name]
    if head == "ForMaskedLM":
      ours = ours[:2, :8]
    real = np.ones(theirs.shape[:2], bool)
    if theirs.shape[:2] == features["input_mask"].shape:
      real = features["input_mask"] > 0
    np.testing.assert_allclose(ours[real], theirs[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_written_tokenizers_give_the_same_ids(base, family):
  folder = base / family / "Model"
  wanted = [row["ids"] for row in families.texts(family)]
  assert json.loads((folder / "ids.json").read_text()) == wanted
  tokenizer = resolve(str(folder / "there")).tokenizer
  text = families.texts(family)[0]
  pieces = tokenizer.tokenize(text["text"])
  assert tokenizer.convert_tokens_to_ids(pieces) == text["ids"][1:-1]
