"""Checks of the checkpoint that a training starts from."""

import numpy as np
import pytest

from bert.errors import UserError
from bert.models import checkpoints
from bert.training import start_checks


@pytest.fixture
def write(golden, tmp_path):
  """Writes the golden weights, some of them changed; returns the prefix."""

  def write(drop="-", **changes):
    found = checkpoints.Checkpoint(golden.checkpoint)
    weights = {n: found[n] for n in found.shapes if not n.startswith(drop)}
    prefix = str(tmp_path / "new.ckpt")
    checkpoints.write_checkpoint(prefix, weights | changes)
    return prefix

  return write


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_checkpoint_of_a_training_that_diverged(golden, write, value):
  name = "bert/pooler/dense/bias"
  size = golden.config.hidden_size
  prefix = write(**{name: np.full([size], value, np.float32)})
  with pytest.raises(UserError, match=f"{prefix} gives {name} that"):
    start_checks.check_init_checkpoint(golden.config, {}, prefix)


@pytest.mark.parametrize(
  ("drop", "warns"), [("cls/predictions/", True), ("-", False)]
)
def test_a_missing_head_for_pretraining(golden, write, caplog, drop, warns):
  config = golden.config
  heads = {"output_weights": [2, config.hidden_size]}
  heads |= {
    "cls/predictions/output_bias": [config.vocab_size],
    "cls/seq_relationship/output_bias": [2],
  }
  caplog.set_level("WARNING", "absl")
  start_checks.check_init_checkpoint(config, heads, write(drop))
  message = "has no cls/predictions/output_bias for pre-training"
  assert (message in caplog.text) == warns
