"""Every step of every task compiles at static shapes, as a TPU needs it."""

import numpy as np
import pytest
import tensorflow as tf

import modeling
from bert import variables
from optimization import Optimization
from bert.contract.task import Settings
from bert.data import records
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)
from bert.tasks.multiple_choice import task as multiple_choice
from bert.tasks.multiple_choice.data import Example
from bert.tasks.pretraining import task as pretraining
from bert.tasks.squad import task as squad_model
from bert.tasks.tagging import task as tagging
from bert.training.estimator import ModeKeys
from bert.training.model_fn import build_model_fn

ROWS, LENGTH, NAMES = 4, 8, ("a", "b", "c")
CONFIG = modeling.BertConfig(
  vocab_size=20,
  hidden_size=8,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=16,
  max_position_embeddings=LENGTH,
)
QUESTION = Example("", "", "", list(NAMES))
TASKS = {
  "classification": ClassificationTask(ClassifierSettings(labels=NAMES)),
  "squad": squad_model.SquadTask(),
  "pre-training": pretraining.PretrainingTask(CONFIG, {}, True),
  "tagging": tagging.TaggingTask(tagging.TaggerSettings(labels=NAMES)),
  "multiple choice": multiple_choice.MultipleChoiceTask(
    Settings(LENGTH), paths={"train": [QUESTION]}
  ),
}


def make_features(name):
  """A batch with every feature of a task."""
  number = np.arange(ROWS)
  one_of_three = {"label_ids": number % 3}
  own = {
    "squad": {
      "unique_ids": number,
      "start_positions": number,
      "end_positions": number + 2,
    },
    "pre-training": {
      "masked_lm_positions": number[:, np.newaxis] + [1, 2],
      "masked_lm_ids": number[:, np.newaxis] + [3, 4],
      "masked_lm_weights": np.tile([1.0, 0.0], [ROWS, 1]),
      "next_sentence_labels": number % 2,
    },
    "tagging": {"label_ids": np.tile(np.arange(LENGTH) % 4, [ROWS, 1])},
  }.get(name, one_of_three)
  shape = [ROWS, 3, LENGTH] if name == "multiple choice" else [ROWS, LENGTH]
  ids = np.arange(np.prod(shape)).reshape(shape) % CONFIG.vocab_size
  features = dict.fromkeys(records.SEQUENCES, ids) | own
  features["input_mask"] = features["segment_ids"] = np.ones_like(ids)
  features |= {"is_real_example": number < 3, "row_index": number}
  return {
    key: tf.constant(
      value, tf.float32 if key == "masked_lm_weights" else tf.int32
    )
    for key, value in features.items()
  }


@pytest.mark.parametrize("name", TASKS)
def test_all_steps_compile(name):
  """XLA translates them; what follows does not depend on the task."""
  model_fn = build_model_fn(TASKS[name], CONFIG, None, Optimization(1, 9, 0))
  store = variables.VariableStore()

  @tf.function(jit_compile=True, autograph=False)
  def step(features):
    with store:
      modes = (ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.TRAIN)
      specs = {mode: model_fn(features, None, mode, {}) for mode in modes}
    found = {mode: spec.predictions or {} for mode, spec in specs.items()}
    return found, [s.loss for s in specs.values() if s.loss is not None]

  text = step.experimental_get_compiler_ir(make_features(name))(stage="hlo")
  # XLA knows every shape, and drew dropout's bits.
  assert "<=" not in text
  assert "rng-bit-generator" in text
