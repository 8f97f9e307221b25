"""Multiple choice: the loss of rows with more and with fewer choices."""

import types

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from bert import layers, variables
from bert.contract.ops import TensorOps
from bert.tasks.multiple_choice import task as multiple_choice
from bert.tasks.multiple_choice.data import Example

# Rows of up to three choices. No right choice is the first of its row.
COUNTS, LABELS = [3, 2, 3, 2], [2, 1, 1, 1]


def test_the_training_loss_runs_over_the_choices_of_a_row(monkeypatch):
  monkeypatch.setattr(layers, "dropout", lambda x, rate: x)
  normal = np.random.default_rng(0).normal
  vectors, weights, bias = normal(size=[4, 3, 5]), normal(size=[1, 5]), [0.5]
  # Had the padding a probability, it would be the largest.
  vectors[1, 2] = vectors[3, 2] = 9 * weights[0]
  mask = np.zeros([4, 3, 7])
  for row, count in enumerate(COUNTS):
    mask[row, :count, : 3 + row] = 1
  bert = types.SimpleNamespace(
    get_pooled_output=lambda: tf.constant(vectors.reshape(12, 5), tf.float32)
  )
  features = {
    "input_mask": tf.constant(mask, tf.int32),
    "label_ids": tf.constant(LABELS, tf.int32),
  }
  example = Example("", "", "", ["a", "b", "c"])
  task = multiple_choice.MultipleChoiceTask(paths={"train": [example]})
  values = {"output_weights": weights, "output_bias": bias}
  with variables.VariableStore(initial_values=values):
    losses = task.loss(task.head(TensorOps(), bert, features), features)
  scores = vectors @ weights[0] + bias
  wanted = [
    -special.log_softmax(scores[row, :count])[label]
    for row, (count, label) in enumerate(zip(COUNTS, LABELS, strict=True))
  ]
  assert losses.numpy().tolist() == pytest.approx(wanted, rel=1e-5)
