"""Schedule and Adam against the original's numbers and arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

import optimization
import variables


@pytest.mark.parametrize(("total", "warmup"), [(100, 10), (50, 0), (1000, 100)])
def test_learning_rates_are_the_originals(golden, total, warmup):
  for step, expected in golden.arrays[f"lr/{total}_{warmup}"]:
    rate = optimization.learning_rate_schedule(
      tf.constant(int(step), tf.int64), 5e-5, total, warmup
    )
    np.testing.assert_allclose(rate, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("as_function", [False, True])
def test_adam_trajectory_is_the_originals(golden, as_function):
  kernel = tf.Variable(
    np.linspace(-1, 1, 6).reshape(2, 3), dtype=tf.float32, name="dense/kernel"
  )
  bias = tf.Variable([0.5, -0.5], name="dense/bias")
  optimizer = optimization.AdamWeightDecayOptimizer(
    0.1,
    weight_decay_rate=0.01,
    exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
  )
  store = variables.VariableStore()

  def update():
    with store:
      # Gradients of sum((w - 0.3)^2) + sum(b^2).
      optimizer.apply_gradients(
        [(2.0 * (kernel - 0.3), kernel), (2.0 * bias, bias)]
      )

  step = tf.function(update, autograph=False) if as_function else update
  for expected in golden.arrays["adam/trajectory"]:
    step()
    actual = np.concatenate([kernel.numpy().ravel(), bias.numpy()])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_first_update_by_hand():
  weight = tf.Variable([1.0, -2.0], name="weight")
  optimizer = optimization.AdamWeightDecayOptimizer(0.5, epsilon=0.0)
  with variables.VariableStore() as store:
    optimizer.apply_gradients([(tf.constant([3.0, -7.0]), weight)])
  # 0.1 g / sqrt(0.001 g^2) = 3.1623 sign(g), whatever the gradient.
  np.testing.assert_allclose(
    weight, [1.0 - 0.5 * 3.1622777, -2.0 + 0.5 * 3.1622777], rtol=1e-5
  )
  np.testing.assert_allclose(store["weight/adam_m"], [0.3, -0.7], rtol=1e-5)
  np.testing.assert_allclose(store["weight/adam_v"], [0.009, 0.049], rtol=1e-5)


def test_weights_without_gradient_are_left_alone():
  used, unused = tf.Variable([1.0], name="a"), tf.Variable([1.0], name="b")
  optimizer = optimization.AdamWeightDecayOptimizer(0.5, 0.01)
  with variables.VariableStore() as store:
    optimizer.apply_gradients([(tf.ones([1]), used), (None, unused)])
  assert unused.numpy() == [1.0]
  assert set(dict(store.items())) == {"a/adam_m", "a/adam_v"}


def test_decay_alone_by_hand():
  names = ("dense/kernel", "dense/bias", "LayerNorm/gamma", "x/layer_norm/g")
  weights = [tf.Variable([2.0], name=name) for name in names]
  optimizer = optimization.AdamWeightDecayOptimizer(
    0.5, 0.01, exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"]
  )
  with variables.VariableStore():
    optimizer.apply_gradients([(tf.zeros([1]), w) for w in weights])
  # 2 - 0.5 * 0.01 * 2 where weights decay.
  np.testing.assert_allclose(
    [w.numpy()[0] for w in weights], [1.99, 2.0, 2.0, 2.0], rtol=1e-6
  )


def test_create_optimizer_clips_and_counts():
  store = variables.VariableStore()

  @tf.function(autograph=False)
  def step():
    with store:
      weight = variables.get_variable("kernel", [2])
      # The gradient (30, 40) of norm 50 is clipped to (0.6, 0.8).
      loss = tf.reduce_sum(weight * [30.0, 40.0])
      optimization.create_optimizer(loss, 1.0, 10, None, use_tpu=False)

  step()
  np.testing.assert_allclose(store["kernel/adam_m"], [0.06, 0.08], rtol=1e-5)
  assert store["global_step"].numpy() == 1


def test_create_optimizer_is_not_for_eager_code():
  with variables.VariableStore(), pytest.raises(RuntimeError, match="function"):
    optimization.create_optimizer(tf.constant(1.0), 1.0, 1, 0, use_tpu=False)
