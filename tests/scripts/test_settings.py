"""The training flags reach the update and the loop."""

import dataclasses
import re
import types

import pytest

from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import parse, table
from bert.scripts.settings import RunSettings

TABLE = table(flag_table.fine_tuning("", ""))


def make(**changes):
  given = {"output_dir": "out", "seed": 5, "log_steps": 3, **changes}
  return RunSettings(parse(TABLE, given), ["train"])


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("learning_rate", 0.5),
    ("optimizer", "lamb"),
    ("lr_schedule", "cosine"),
    ("adam_bias_correction", True),
    ("weight_decay", 0.1),
    ("max_grad_norm", 2.0),
    ("gradient_accumulation_steps", 4),
  ],
)
def test_a_flag_of_the_update(name, value):
  default = make().make_optimization(100, 2)
  assert getattr(default, name) != value
  changed = make(**{name: value}).make_optimization(100, 2)
  assert changed == dataclasses.replace(default, **{name: value})


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("learning_rate", -1),
    ("learning_rate", "nan"),
    ("num_train_epochs", "inf"),
    ("weight_decay", -0.1),
    ("layerwise_lr_decay", 1.5),
    ("warmup_proportion", 2),
    ("early_stopping_patience", 0),
    ("seed", 2**31),
  ],
)
def test_a_flag_has_limits(name, value):
  with pytest.raises(UserError, match=rf"^--{name}=\S+ must be "):
    make(**{name: value})


@pytest.mark.parametrize(
  ("changes", "expected"),
  [
    ({}, 10),
    ({"warmup_proportion": 0}, 0),
    ({"warmup_proportion": 0.15}, 15),
    ({"warmup_proportion": 0.15, "num_warmup_steps": 7}, 7),
  ],
)
def test_steps_of_the_warm_up(changes, expected):
  steps = changes.pop("num_warmup_steps", None)
  found = make(**changes).changed(num_warmup_steps=steps)
  found = found.make_optimization(100, 2)
  assert (found.num_train_steps, found.num_warmup_steps) == (100, expected)


@pytest.mark.parametrize(
  ("changes", "use_xla", "pads", "most"),
  [
    ({}, None, False, 1),
    ({"use_xla": "false"}, False, False, 1),
    ({"use_xla": "true"}, True, False, 1),
    ({"use_xla": "true", "pad_to_max_length": False}, True, False, 1),
    ({"pad_to_max_length": True}, None, True, 1),
    ({"use_tpu": True}, None, True, 1000),
    ({"use_tpu": True, "iterations_per_loop": 50}, None, True, 50),
  ],
)
def test_compilation_padding_and_loops(changes, use_xla, pads, most):
  config = make(**{k: v for k, v in changes.items() if k != "use_tpu"})
  config = config.changed(use_tpu="use_tpu" in changes).run_config()
  assert config.use_xla is use_xla
  assert config.pad_to_max_length is pads
  assert config.rounds_lengths is (changes == {"use_xla": "true"})
  assert config.iterations_per_loop == most
  assert (config.model_dir, config.seed, config.log_steps) == ("out", 5, 3)


def test_each_of_several_replicas_compiles_its_gradients():
  two = types.SimpleNamespace(num_replicas_in_sync=2)
  for count, use_xla in ((1, "true"), (2, "true"), (2, "auto")):
    strategy = {1: None, 2: two}[count]
    settings = make(use_xla=use_xla).changed(strategy=strategy)
    found = settings.make_optimization(100, 2).compiles_gradients
    assert found is (count > 1 and use_xla == "true")


@pytest.mark.parametrize(
  ("rows", "changes", "remedy"),
  [
    (2, {}, "pass --train_batch_size=2, or"),
    (9, {"num_train_epochs": 0.5}, "pass --train_batch_size=4, or"),
    (9, {"gradient_accumulation_steps": 8}, "pass --train_batch_size=8, or"),
    (2, {"gradient_accumulation_steps": 4}, "add data, or"),
  ],
)
def test_too_few_rows_name_a_batch_size_that_works(rows, changes, remedy):
  settings = make(train_batch_size=64, **changes)
  with pytest.raises(UserError, match=f"{remedy} raise the number") as error:
    settings.check_num_steps(rows, True)
  if size := re.search(r"pass --train_batch_size=(\d+)", str(error.value)):
    changes["train_batch_size"] = int(size[1])
    make(**changes).check_num_steps(rows, True)
