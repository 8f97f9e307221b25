"""Tasks whose sequences share rows have the same losses and predictions."""

import numpy as np
import pytest
import tensorflow as tf

from bert import packing
from bert.tasks import pretraining, tagging
from bert.tasks import labels as label_types
from bert.tasks.classification import ClassificationTask, ClassifierSettings
from bert.training.task import build_model_fn

# The golden batch has sequences of 32, 20, 9 and 3 tokens.
PACKINGS = {"eval": packing.best_fit([32, 20, 9, 3], 32)}
NAMES = ("a", "b", "c")
TASKS = {
  **{
    kind.kind: lambda golden, kind=kind: ClassificationTask(
      ClassifierSettings().with_label_type(
        label_types.make_label_type(kind.kind, NAMES)
      )
    )
    for kind in label_types.KINDS.values()
  },
  "tagging": lambda golden: tagging.TaggingTask(
    tagging.TaggerSettings(labels=NAMES)
  ),
  "pre-training": lambda golden: pretraining.PretrainingTask(
    golden.config, {}, True
  ),
}


def labels_of(golden, name):
  """`label_ids` as the task has them; 0 marks a position without a label."""
  ids, mask = golden.inputs["label_ids"], golden.inputs["input_mask"]
  return {
    "multilabel": np.eye(3, dtype=np.int32)[ids],
    "regression": ids.astype(np.float32),
    "tagging": mask * (1 + np.arange(32, dtype=np.int32) % 3),
  }.get(name, ids)


@pytest.mark.parametrize("name", TASKS)
def test_losses_and_predictions_are_the_same(golden, name):
  task = TASKS[name](golden)
  assert task.can_pack
  features = {
    **golden.inputs,
    "label_ids": labels_of(golden, name),
    "is_real_example": np.ones(4, np.int32),
  }
  features = {key: tf.constant(value) for key, value in features.items()}
  alone, packed = (
    build_model_fn(task, golden.config, None, None, packings=packings)
    for packings in (None, PACKINGS)
  )
  with golden.store():
    expected, found = (f(features, None, "eval", {}) for f in (alone, packed))
  if expected.loss is not None:
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-5)
  assert found.predictions.keys() == expected.predictions.keys()
  weights = {
    "tagging": golden.inputs["input_mask"],
    "masked_lm": golden.inputs["masked_lm_weights"],
  }
  for key, value in found.predictions.items():
    # Outputs at padding are arbitrary. Features are what they were.
    weight = weights.get(name, weights.get(key[:9], 1))
    weight = 1 if key in features else weight
    wanted = expected.predictions[key]
    np.testing.assert_allclose(
      value * weight, wanted * weight, rtol=1e-5, atol=1e-5, err_msg=key
    )
