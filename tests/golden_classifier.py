"""Classifiers on the golden model, with outputs that tell texts apart."""

import numpy as np

import modeling
from bert import variables
from bert.models import checkpoints
from bert.tasks.classification import label_types

LABELS = ["red", "green", "blue"]
LABEL_TYPES = {
  label_type.kind: label_type
  for label_type in (
    label_types.Classification(LABELS),
    label_types.Multilabel(LABELS),
    label_types.Regression(),
  )
}


def golden_values(golden, num_outputs, seed=5):
  """The weights of the golden model and of an output layer."""
  weights = checkpoints.Checkpoint(golden.checkpoint)
  draw = np.random.default_rng(seed).normal
  return {
    **{name: weights[name] for name in weights.shapes},
    "output_weights": draw(size=[num_outputs, 32]).astype(np.float32),
    "output_bias": draw(size=[num_outputs]).astype(np.float32),
  }


def sequences(golden):
  """The golden batch: input_ids, input_mask and segment_ids."""
  names = ("input_ids", "input_mask", "segment_ids")
  return [golden.inputs[name] for name in names]


def logits_of(golden, values, *batch):
  """Logits by definition: the pooled output times the output layer."""
  with variables.VariableStore(initial_values=values):
    model = modeling.BertModel(golden.config, False, *batch)
  pooled = model.get_pooled_output().numpy()
  return pooled @ values["output_weights"].T + values["output_bias"]
