"""The golden model: its inputs, its weights, what the original made of them."""

import numpy as np

import modeling
from bert import variables
from bert.models import checkpoints


class GoldenModel:
  """What `goldens/model` holds.

  Attributes:
    config: BertConfig without dropout.
    checkpoint: prefix of the weights.
    arrays: the original's outputs.
    inputs: dict from name to integer or float array.
  """

  def __init__(self, goldens):
    self.config = modeling.BertConfig.from_json_file(
      str(goldens / "bert_config_no_dropout.json")
    )
    self.checkpoint = str(goldens / "model" / "bert_model.ckpt")
    self.arrays = np.load(goldens / "model" / "outputs.npz")
    self.inputs = {
      name.removeprefix("in/"): self.arrays[name]
      for name in self.arrays.files
      if name.startswith("in/")
    }

  def store(self, task=None):
    """A fresh store that starts from the weights, and from a task's head."""
    weights = checkpoints.Checkpoint(self.checkpoint)
    values = {name: weights[name] for name in weights.shapes}
    prefix = f"{task}/init/"
    for name in self.arrays.files:
      if name.startswith(prefix):
        values[name.removeprefix(prefix)] = self.arrays[name]
    return variables.VariableStore(initial_values=values)
