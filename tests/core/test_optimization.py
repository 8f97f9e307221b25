"""Schedules, Adam and LAMB against the original's numbers and arithmetic."""

import math

import numpy as np
import pytest
import tensorflow as tf

import optimization
from bert import variables
from optimization import Optimization


@pytest.mark.parametrize(("total", "warmup"), [(100, 10), (50, 0), (1000, 100)])
def test_learning_rates_are_the_originals(golden, total, warmup):
  for step, expected in golden.arrays[f"lr/{total}_{warmup}"]:
    rate = optimization.learning_rate_schedule(
      tf.constant(int(step), tf.int64), 5e-5, total, warmup
    )
    np.testing.assert_allclose(rate, expected, rtol=1e-6, atol=1e-12)


def test_other_schedules_by_hand():
  def rates(schedule, warmup):
    return [
      optimization.learning_rate_schedule(step, 8.0, 12, warmup, schedule)
      for step in (0, 2, 4, 8, 12, 13)
    ]

  np.testing.assert_allclose(rates("constant", 4), [0, 4, 8, 8, 8, 8])
  np.testing.assert_allclose(rates("constant", None), [8] * 6)
  # Halfway between warm-up and end, at step 8, the cosine is 0.
  np.testing.assert_allclose(
    rates("cosine", 4), [0, 4, 8, 4, 0, 0], rtol=1e-6, atol=1e-6
  )
  without_warmup = [4 + 4 * math.cos(math.pi * x / 12) for x in (0, 2, 4, 8)]
  np.testing.assert_allclose(
    rates("cosine", 0), [*without_warmup, 0, 0], rtol=1e-6, atol=1e-6
  )
  with pytest.raises(ValueError, match="schedule='cubic'"):
    rates("cubic", 0)


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


def _adam_in_numpy(m, v, grad, step, is_corrected):
  """The moments and the direction of algorithm 1 of Kingma & Ba (2015)."""
  m = 0.9 * m + 0.1 * grad
  v = 0.999 * v + 0.001 * grad**2
  c1, c2 = (1 - 0.9**step, 1 - 0.999**step) if is_corrected else (1, 1)
  return m, v, (m / c1) / (np.sqrt(v / c2) + 1e-6)


def _lamb_in_numpy(weight, direction, decay):
  """The update of algorithm 2 of You et al. (2020), without the rate."""
  update = direction + decay * weight
  norms = np.linalg.norm(weight), np.linalg.norm(update)
  return update * (norms[0] / norms[1] if all(norms) else 1.0)


@pytest.mark.parametrize(
  ("name", "is_corrected", "is_compiled"),
  [("adamw", True, True), ("lamb", False, True), ("lamb", True, False)],
)
def test_updates_are_the_papers(name, is_corrected, is_compiled):
  large = [256, 128]  # Updates of 2**15 elements are compiled.
  rng = np.random.default_rng(0)
  initial = {
    "a/kernel": rng.normal(size=large),
    "b/kernel": 100 * rng.normal(size=large),
    "zeros/kernel": np.zeros(large),
    "a/bias": rng.normal(size=[3]),
    "a/LayerNorm/gamma": rng.normal(size=[3]),
  }
  weights = {
    name: tf.Variable(value, dtype=tf.float32, name=name)
    for name, value in initial.items()
  }
  expected = dict(initial)
  moments = dict.fromkeys(initial, (0.0, 0.0))
  optimizer_class = {
    "adamw": optimization.AdamWeightDecayOptimizer,
    "lamb": optimization.LambOptimizer,
  }[name]
  with variables.VariableStore():
    for step in range(1, 6):
      grads = {name: rng.normal(size=v.shape) for name, v in initial.items()}
      optimizer = optimizer_class(
        0.1,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=["LayerNorm", "bias"],
        count=tf.constant(step) if is_corrected else None,
        is_compiled=is_compiled,
      )
      optimizer.apply_gradients(
        (tf.constant(grads[name], tf.float32), weights[name]) for name in grads
      )
      for key, grad in grads.items():
        *moments[key], update = _adam_in_numpy(
          *moments[key], grad, step, is_corrected
        )
        if key.endswith("kernel"):
          before = expected[key]
          if name == "lamb":
            update = _lamb_in_numpy(before, update, 0.01)
          else:
            update = update + 0.01 * before
        expected[key] = expected[key] - 0.1 * update
        np.testing.assert_allclose(
          weights[key], expected[key], rtol=2e-5, atol=1e-5, err_msg=key
        )


def test_weights_without_gradient_are_left_alone():
  used, unused = tf.Variable([1.0], name="a"), tf.Variable([1.0], name="b")
  optimizer = optimization.AdamWeightDecayOptimizer(0.5, 0.01)
  with variables.VariableStore() as store:
    optimizer.apply_gradients([(tf.ones([1]), used), (None, unused)])
  assert unused.numpy() == [1.0]
  assert set(dict(store.items())) == {"a/adam_m", "a/adam_v"}


def test_variables_of_one_name_do_not_share_moments():
  first, second = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
  optimizer = optimization.AdamWeightDecayOptimizer(0.5, epsilon=0.0)
  pairs = [(tf.ones([2]), first), (tf.ones([2]), second)]
  with variables.VariableStore():
    with pytest.raises(ValueError, match="two variables named Variable would"):
      optimizer.apply_gradients(pairs)
    assert [first.numpy().tolist(), second.numpy().tolist()] == [[1, 2], [3, 4]]
  # In stores of their own, each gets an update of 0.5 * 3.1623.
  for pair in pairs:
    with variables.VariableStore():
      optimizer.apply_gradients([pair])
  np.testing.assert_allclose(first, [-0.581139, 0.418861], rtol=1e-5)
  np.testing.assert_allclose(second, [1.418861, 2.418861], rtol=1e-5)


def _lookup_loss():
  """A loss whose gradient has norm 85, of which 13 are of words' rows."""
  table = variables.get_variable("table", [5, 2])
  kernel = variables.get_variable("kernel", [2])
  # Rows (3, 0) and (4, 0) are of one word; summed, they would count as 7.
  words = tf.gather(table, [1, 1, 3]) * [[3.0, 0.0], [4.0, 0.0], [0.0, 12.0]]
  return tf.reduce_sum(words) + tf.reduce_sum(kernel * [0.0, 84.0])


def test_minimize_logs_rate_and_norm_and_clips_by_it():
  store = variables.VariableStore()

  @tf.function(autograph=False)
  def step():
    with store:
      return optimization.minimize(_lookup_loss(), Optimization(1e-3, 10, 4))[1]

  found = [step()]
  expected = np.zeros([5, 2])
  expected[1, 0], expected[3, 1] = 7, 12
  for name, gradient in (("table", expected), ("kernel", np.array([0, 84]))):
    np.testing.assert_allclose(store[f"{name}/adam_m"], gradient / 850, 1e-5)
  found += [step() for _ in range(5)]
  assert all(set(f) == {"learning rate", "gradient norm"} for f in found)
  # A quarter more at each update of the warm-up; then what is left of ten.
  np.testing.assert_allclose(
    [f["learning rate"] for f in found],
    [0, 0.25e-3, 0.5e-3, 0.75e-3, 0.6e-3, 0.5e-3],
    rtol=1e-6,
  )
  # Before clipping: 3^2 + 4^2 + 12^2 + 84^2 = 85^2.
  norms = [f["gradient norm"] for f in found]
  np.testing.assert_allclose(norms, [85.0] * 6, rtol=1e-6)
  assert {norm.dtype for norm in norms} == {tf.float32}
  assert store["global_step"].numpy() == 6


def test_minimize_leaves_a_small_gradient_as_it_is():
  store = variables.VariableStore()

  @tf.function(autograph=False)
  def step():
    with store:
      weight = variables.get_variable("kernel", [2])
      loss = tf.reduce_sum(weight * [0.3, 0.4])
      _, logged = optimization.minimize(loss, Optimization(1.0, 10, None))
      return logged["gradient norm"]

  np.testing.assert_allclose(step(), 0.5, rtol=1e-6)
  np.testing.assert_allclose(store["kernel/adam_m"], [0.03, 0.04], rtol=1e-5)


def test_optimizers_in_v1_scopes_have_moments_of_their_own():
  v1 = tf.compat.v1
  with tf.Graph().as_default(), v1.Session() as session:
    weight = v1.get_variable("w", [1], initializer=v1.ones_initializer())
    for scope, scale in {"a": 0.5, "b": -2.0}.items():
      optimizer = optimization.AdamWeightDecayOptimizer(0.1)
      with v1.variable_scope(scope):
        gradient = tf.constant([scale])
        train_op = optimizer.apply_gradients([(gradient, weight)])
      session.run(v1.global_variables_initializer())
      session.run(train_op)
    with pytest.raises(ValueError, match="a/w/adam_m"), v1.variable_scope("a"):
      optimizer.apply_gradients([(gradient, weight)])
    moments = {
      variable.name: session.run(variable)
      for variable in v1.global_variables()
      if variable.name.endswith("adam_m:0")
    }
  # The initializer ran again before the second one's update.
  np.testing.assert_allclose(moments.pop("a/w/adam_m:0"), [0])
  np.testing.assert_allclose(moments.pop("b/w/adam_m:0"), [-0.2], rtol=1e-6)
  assert not moments


@pytest.mark.parametrize("in_v1_graph", [False, True])
def test_minimize_follows_the_settings(in_v1_graph):
  update = Optimization(
    0.1,
    10,
    None,
    optimizer="lamb",
    lr_schedule="constant",
    adam_bias_correction=True,
    weight_decay=0.5,
    max_grad_norm=2.0,
  )

  def minimize():
    ones = tf.compat.v1.ones_initializer()
    kernel = variables.get_variable("kernel", [2], ones)
    # The gradient of norm 50 is scaled to (1.2, -1.6).
    loss = tf.reduce_sum(kernel * [30.0, -40.0])
    return kernel, optimization.minimize(loss, update)[0]

  if in_v1_graph:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
      kernel, train_op = minimize()
      session.run(v1.global_variables_initializer())
      for _ in range(2):
        session.run(train_op)
      weight = session.run(kernel)
  else:
    store = variables.VariableStore()

    @tf.function(autograph=False)
    def step():
      with store:
        minimize()

    step()
    step()
    weight = store["kernel"].numpy()
    np.testing.assert_allclose(
      store["kernel/adam_m"], [0.19 * 1.2, -0.19 * 1.6], rtol=1e-5
    )
  expected = np.ones([2])
  for _ in range(2):
    # With corrected moments, the direction of a constant gradient is its sign.
    expected -= 0.1 * _lamb_in_numpy(expected, np.array([1, -1]), 0.5)
  np.testing.assert_allclose(weight, expected, rtol=1e-5)


def test_a_loss_without_variables_is_an_error():
  @tf.function(autograph=False)
  def step():
    with variables.VariableStore():
      variables.get_variable("kernel", [2])
      optimization.minimize(tf.constant(1.0), Optimization(1.0, 10, None))

  with pytest.raises(ValueError, match="no trainable variable contributes"):
    step()


def test_a_variable_that_is_not_trained_is_a_warning(monkeypatch):
  warnings = []
  monkeypatch.setattr(
    optimization.logging,
    "log_first_n",
    lambda level, text, n, *values: warnings.append(text % values),
  )
  own = tf.Variable([3.0, 4.0])
  teacher, store = variables.VariableStore(), variables.VariableStore()

  def train(factor):
    @tf.function(autograph=False)
    def step():
      with teacher:
        other = variables.get_variable("kernel", [2])
      with store:
        kernel = variables.get_variable("kernel", [2])
        loss = tf.reduce_sum((kernel + other) * factor())
        optimization.create_optimizer(loss, 0.1, 10, 0, False)

    step()
    return store["kernel"].numpy().tolist()

  train(lambda: tf.stop_gradient(own))
  # What another store has is left alone on purpose.
  assert not warnings
  train(lambda: 2 * own)
  train(lambda: tf.gather(own, [1, 0]))
  first, second = warnings
  assert "not train the variables that 'ReadVariableOp" in first
  assert "not train the variables that 'Gather" in second
  assert own.numpy().tolist() == [3, 4]
  assert max(store["kernel"].numpy()) < 0
  assert teacher["kernel"].numpy().tolist() == [0, 0]


def test_create_optimizer_is_not_for_eager_code():
  with variables.VariableStore(), pytest.raises(RuntimeError, match="function"):
    optimization.create_optimizer(tf.constant(1.0), 1.0, 1, 0, use_tpu=False)


LAYERS = ("embeddings", "encoder/layer_0", "encoder/layer_1", "pooler")


@pytest.mark.parametrize(
  ("frozen", "expected"),
  [
    (None, [0.125, 0.25, 0.5, 1.0]),
    (0, [0.0, 0.25, 0.5, 1.0]),
    (1, [0.0, 0.0, 0.5, 1.0]),
    (2, [0.0, 0.0, 0.0, 1.0]),
  ],
)
def test_updates_follow_the_rates_of_layers(frozen, expected):
  rates = optimization.LayerRates(2, 0.5, frozen)
  names = [*(f"bert/{layer}/bias" for layer in LAYERS), "output_bias"]
  expected = [*expected, 1.0]
  assert list(map(rates, names)) == expected
  store = variables.VariableStore()

  @tf.function(autograph=False)
  def step():
    with store:
      weights = [
        variables.get_variable(name, [size])
        for size, name in enumerate(names, start=1)
      ]
      loss = tf.add_n(list(map(tf.reduce_sum, weights))) * 0.1
      optimization.minimize(loss, Optimization(1.0, 10, None, rates))

  step()
  # All gradients are equal, so the updates differ by their rates alone.
  updates = [np.unique(store[name].numpy()).item() for name in names]
  np.testing.assert_allclose(updates, np.multiply(expected, updates[-1]), 1e-6)
  assert updates[-1] < 0
  for name, rate in zip(names, expected, strict=True):
    assert (f"{name}/adam_m" in store) == (rate > 0)


@pytest.mark.parametrize("runs_in_replicas", [True, False])
def test_a_strategy_of_one_device_updates_each_variable(runs_in_replicas):
  """Its variables of equal shape are not mistaken for each other."""
  strategy = tf.distribute.MirroredStrategy(["CPU:0"])
  store = variables.VariableStore()

  def step():
    with store:
      first, second = (store.get(name, [2**15], None) for name in "ab")
      loss = tf.reduce_sum(first) + 2 * tf.reduce_sum(second)
      optimization.create_optimizer(loss, 0.1, 10, 0, False)

  def run():
    return strategy.run(step) if runs_in_replicas else step()

  with strategy.scope(), store:
    for name in "ab":
      variable = store.get(name, [2**15], None)
      variables.get_slot(variable, "adam_m")
      variables.get_slot(variable, "adam_v")
    variables.global_step()
  tf.function(run, autograph=False)()
  # The gradients, 1 and 2, are clipped to a norm of 1.
  clipped = np.array([1, 2]) / np.sqrt(2**15 * (1 + 4))
  for name, gradient in zip("ab", clipped, strict=True):
    moment = store[f"{name}/adam_m"].numpy()
    np.testing.assert_allclose(moment, np.full(2**15, 0.1 * gradient), 1e-5)
    assert (store[name].numpy() < 0).all()
