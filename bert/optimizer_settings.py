"""How weights are updated: what flags say, and `optimization.minimize` does.

Loads no TensorFlow, so that the table of flags can take its defaults from here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class LayerRates:
  """Multiples of the learning rate, by variable name.

  The pooler and the task's own layers have the full rate. Each layer below has
  `decay` times the rate of the one above, and the embeddings have the lowest
  (Howard & Ruder 2018, section 3.2).
  """

  num_layers: int  # L, of the encoder
  decay: float = 1.0  # 1 for equal rates
  # The embeddings and so many of the lowest layers are not trained, if any.
  frozen_layers: int | None = None

  def __call__(self, name: str) -> float:
    """The multiple for a variable; 0 if it is frozen."""
    layer = re.match(r"bert/encoder/layer_(\d+)/", name)
    if not layer and not name.startswith("bert/embeddings"):
      return 1.0
    # Embeddings count as the layer below layer 0.
    index = int(layer[1]) if layer else -1
    if self.frozen_layers is not None and index < self.frozen_layers:
      return 0.0
    return self.decay ** (self.num_layers - index)


@dataclasses.dataclass(frozen=True)
class Optimization:
  """How weights are updated. The defaults are those of the original.

  `RunSettings.make_optimization` makes it of the flags, and
  `optimization.minimize` follows it in each step.
  """

  learning_rate: float  # the peak of `optimization.learning_rate_schedule`
  num_train_steps: int  # see `learning_rate_schedule`
  num_warmup_steps: int | None
  # From a variable's name to its multiple of the learning rate; a variable with
  # 0 is not trained.
  layer_rates: Callable[[str], float] = lambda name: 1.0
  optimizer: str = "adamw"  # or "lamb"
  lr_schedule: str = "linear"  # see `learning_rate_schedule`
  adam_bias_correction: bool = False  # of the moments
  weight_decay: float = 0.01  # not of LayerNorm and biases
  max_grad_norm: float = 1.0  # larger gradients are scaled to this global norm
  # Parts of a batch, see `bert/training/micro_batches.py`.
  gradient_accumulation_steps: int = 1
  loss_scaling: bool = False  # for float16
  compiles_gradients: bool = False  # with XLA, on each replica
