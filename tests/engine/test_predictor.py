"""The Predictor: batches, padding and threads, against the golden model."""

import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from computed_task import ComputedTask, columns

from bert import kernels, termination, variables
from bert.data import records
from bert.engine import predictor
from bert.errors import UserError
from bert.models import checkpoints
from bert.models.resolve import Model

tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices("CPU")[0],
  [tf.config.LogicalDeviceConfiguration()] * 2,
)

AXES = {"tokens": (records.POSITION, None), "pooled": (None,)}
ROW_AXES = dict.fromkeys(records.SEQUENCES, (records.POSITION,))


@pytest.fixture(scope="module")
def model(golden, tokenizer):
  return Model(golden.config, tokenizer, golden.checkpoint)


@pytest.fixture(scope="module")
def rows(golden):
  """The golden batch, a dict of padded lists for each row."""
  columns = {name: golden.inputs[name].tolist() for name in records.SEQUENCES}
  count = len(columns["input_ids"])
  return [{n: column[i] for n, column in columns.items()} for i in range(count)]


@pytest.fixture(scope="module")
def run(model):
  return predictor.Predictor(model, ENCODE, batch_size=3)


def encode(bert, features):
  """The highest layer of each token, and the pooled [CLS]."""
  del features
  return {
    "tokens": bert.get_sequence_output(),
    "pooled": bert.get_pooled_output(),
  }


ENCODE = ComputedTask(encode, AXES)


def echo(bert, features):
  """What the Predictor feeds."""
  del bert
  return {name: value + 0 for name, value in features.items()}


def length_of(row):
  return int(np.sum(row["input_mask"]))


def cut(row):
  return {name: values[: length_of(row)] for name, values in row.items()}


def expected_tokens(golden, row):
  size = int(golden.inputs["input_mask"][row].sum())
  return golden.arrays["forward/encoder_layer_1"][row, :size]


def test_a_lost_signal_ends_it(run, rows, monkeypatch):
  again = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(termination, "raise_if_signaled", again)
  with pytest.raises(KeyboardInterrupt):
    list(run(rows))


def on_two_devices(model, rows):
  """A Predictor that two devices share."""
  spec = records.sequence_spec(len(rows[0]["input_ids"]))
  return predictor.Predictor(
    model,
    ComputedTask(encode, AXES, spec),
    batch_size=4,
    strategy=tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
  )


class TestOutputs:
  @pytest.mark.parametrize("is_padded", [True, False])
  def test_are_the_originals(self, golden, rows, run, is_padded):
    outputs = columns(run(rows if is_padded else list(map(cut, rows))))
    assert outputs.keys() == {"tokens", "pooled"}
    pooled = golden.arrays["forward/pooled_output"]
    np.testing.assert_allclose(outputs["pooled"], pooled, rtol=0, atol=2e-5)
    for row, tokens in enumerate(outputs["tokens"]):
      np.testing.assert_allclose(
        tokens, expected_tokens(golden, row), rtol=0, atol=2e-5
      )
      assert tokens.base is None  # A view would keep its batch in memory.

  def test_rows_of_similar_length_share_a_batch(self, model):
    shapes = []

    def compute(bert, features):
      tf.py_function(
        lambda x: shapes.append(x.shape.as_list()), [features["input_ids"]], []
      )
      return echo(bert, features)

    task = ComputedTask(compute, ROW_AXES)
    run = predictor.Predictor(model, task, batch_size=2)
    lengths = [2, 9, 3, 8, 1]
    rows = [
      {"input_ids": [7] * n, "input_mask": [1] * n, "segment_ids": [0] * n}
      for n in lengths
    ]
    counts = []
    outputs = columns(run(rows, counts.append))
    assert sorted(shapes) == [[1, 1], [2, 3], [2, 9]]
    assert counts == [2, 2, 1]
    assert [ids.tolist() for ids in outputs["input_ids"]] == [
      row["input_ids"] for row in rows
    ]

  def test_it_is_traced_once_for_all_shapes(self, model, rows):
    traces = []

    def compute(bert, features):
      traces.append(features)
      return encode(bert, features)

    task = ComputedTask(compute, AXES)
    run = predictor.Predictor(model, task, batch_size=2)
    list(run(rows))
    list(run([cut(rows[0])]))
    assert len(traces) == 1

  def test_several_devices_share_a_batch(self, golden, model, rows):
    outputs = columns(on_two_devices(model, rows)(rows[:3]))
    assert outputs["pooled"].shape == (3, 32)
    for row, tokens in enumerate(outputs["tokens"]):
      np.testing.assert_allclose(
        tokens, expected_tokens(golden, row), rtol=0, atol=2e-5
      )

  def test_axes_that_differ_must_be_named(self, model):
    with pytest.raises(
      ValueError, match=r"tokens, \(None, None, 32\), differs"
    ):
      predictor.Predictor(model, ComputedTask(encode, {"tokens": (None, None)}))

  def test_an_error_drops_the_batches_that_have_not_begun(self, model, rows):
    begun = []

    def fail(ids):
      begun.append(ids)
      time.sleep(0.01)
      raise RuntimeError("no more")

    def compute(bert, features):
      tf.py_function(fail, [features["input_ids"]], [])
      return echo(bert, features)

    task = ComputedTask(compute, ROW_AXES)
    run = predictor.Predictor(model, task, batch_size=1)
    with pytest.raises(tf.errors.UnknownError, match="no more"):
      list(run(rows[:1] * 1000))
    # The threads may have begun others by the time the first has failed.
    assert len(begun) < 900


class TestChoices:
  """Rows of several sequences, [N, S], and other features."""

  SPEC = {
    name: records.Feature((4, 9), cut_axes=("choice", "position"))
    for name in records.SEQUENCES
  } | {
    "label_ids": records.Feature(),
    "weights": records.Feature((2,), "float32"),
  }

  def row(self, lengths, label):
    return {
      "input_ids": [[7] * n for n in lengths],
      "input_mask": [[1] * n for n in lengths],
      "segment_ids": [[0] * n for n in lengths],
      "label_ids": label,
      "weights": [0.5, label],
    }

  @pytest.mark.parametrize("pads", [False, True])
  def test_both_axes_are_cut(self, model, pads):
    axes = dict.fromkeys(records.SEQUENCES, ("choice", "position"))
    axes |= {"label_ids": (), "weights": (2,)}
    run = predictor.Predictor(
      model,
      ComputedTask(echo, axes, self.SPEC),
      batch_size=2,
      pad_to_max_length=pads,
    )
    rows = [self.row([2, 5], 0), self.row([9], 1), self.row([1, 2, 3, 4], 2)]
    # A choice of padding alone, and the padding of the others.
    rows[0]["input_mask"].append([0, 0])
    rows[0]["input_mask"][0] += [0] * 7
    outputs = columns(run(rows))
    shapes = [value.shape for value in outputs["input_ids"]]
    assert shapes == [(2, 5), (1, 9), (4, 4)]
    assert outputs["input_ids"][2].tolist() == [
      [7, 0, 0, 0],
      [7, 7, 0, 0],
      [7, 7, 7, 0],
      [7, 7, 7, 7],
    ]
    assert outputs["label_ids"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(
      outputs["weights"], [[0.5, 0], [0.5, 1], [0.5, 2]]
    )


def head(bert, features):
  """Logits [B, C] of a head on the pooled output."""
  weights = variables.get_variable("output_weights", [3, 32])
  bias = variables.get_variable("output_bias", [3])
  pooled = encode(bert, features)["pooled"]
  return {"logits": tf.matmul(pooled, weights, transpose_b=True) + bias}


HEAD = ComputedTask(
  head, {"logits": (3,)}, shapes={"output_weights": [3, 32], "output_bias": [3]}
)


class TestModel:
  @pytest.fixture
  def changed(self, tmp_path, golden, model):
    """A function from changed weights to a Model; None leaves one out."""

    def save(**changes):
      checkpoint = checkpoints.Checkpoint(golden.checkpoint)
      weights = {name: checkpoint[name] for name in checkpoint.shapes} | changes
      prefix = str(tmp_path / "other.ckpt")
      checkpoints.write_checkpoint(
        prefix, {n: x for n, x in weights.items() if x is not None}
      )
      return model._replace(checkpoint=prefix)

    return save

  def test_a_missing_variable_is_named(self, model, changed):
    with pytest.raises(ValueError, match="lacks output_weights and 1 more"):
      predictor.Predictor(model, HEAD)
    name = "bert/encoder/layer_1/output/dense/bias"
    with pytest.raises(ValueError, match=f"lacks {name} and 0 more"):
      predictor.Predictor(changed(**{name: None}), ENCODE)
    with pytest.raises(ValueError, match=rf"{name} has shape \[7\] there"):
      predictor.Predictor(changed(**{name: np.zeros(7, np.float32)}), ENCODE)

  def test_what_is_optional_may_be_missing(self, golden, rows, changed):
    name = "bert/pooler/dense/kernel"
    task = ComputedTask(encode, AXES, optional=[name])
    run = predictor.Predictor(changed(**{name: None}), task)
    tokens = columns(run(rows[:1]))["tokens"][0]
    np.testing.assert_allclose(
      tokens, expected_tokens(golden, 0), rtol=0, atol=2e-5
    )

  @pytest.mark.parametrize("precision", ["fp16", 16])
  def test_an_unknown_precision(self, model, precision):
    message = f"^--precision={precision} is not one of float32, .*; pass one$"
    with pytest.raises(UserError, match=message):
      predictor.Predictor(model, ENCODE, precision=precision)


@pytest.mark.parametrize(
  ("precision", "compiles"), [("float32", False), ("bfloat16", True)]
)
def test_many_batches_are_compiled_where_onednn_combines_nothing(
  model, rows, monkeypatch, precision, compiles
):
  monkeypatch.setattr(kernels, "has_onednn", lambda: True)
  traces = []

  def compute(bert, features):
    traces.append(features)
    return encode(bert, features)

  run = predictor.Predictor(
    model, ComputedTask(compute, AXES), batch_size=1, precision=precision
  )
  alone = columns(run(rows[:1]))["pooled"]
  pooled = columns(run(rows[:1] * 50))["pooled"]
  assert len(traces) == 1 + compiles  # Another program, if it is needed.
  np.testing.assert_allclose(pooled[0], alone[0], atol=0.02)
