"""The goldens of BERT's family: what transformers computes of tiny models."""

import json
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "goldens" / "variants"
FAMILIES = ("distilbert", "roberta", "xlm-roberta", "electra", "albert")
HEADS = (
  *("Model", "ForMaskedLM", "ForSequenceClassification"),
  *("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
)


def path(family: str, head: str = "Model") -> str:
  """The folder of a model."""
  return str(FOLDER / family / head)


def texts(family: str) -> list[dict]:
  """The six texts and two pairs, with tokens, ids and offsets."""
  return json.loads((FOLDER / family / "tokens.json").read_text("utf-8"))


def outputs(family: str, head: str, kind: str) -> tuple[dict, dict]:
  """The features of "single" texts or a "pair", and the outputs for them.

  The goldens were computed without segments.
  """
  arrays = np.load(FOLDER / family / head / "outputs.npz")
  found = {
    name.removeprefix(f"{kind}/"): arrays[name]
    for name in arrays.files
    if name.startswith(kind)
  }
  ids, mask = found.pop("input_ids"), found.pop("attention_mask")
  features = {
    "input_ids": ids,
    "input_mask": mask,
    "segment_ids": np.zeros_like(ids),
  }
  return features, found
