"""Where dropout seeds come from, and what frees variables."""

import gc
import types

import numpy as np
import pytest
import tensorflow as tf

from bert import variables


def _seed(site="site", seed=1, scope="bert"):
  with variables.VariableStore(seed), variables.variable_scope(scope):
    return tuple(variables.dropout_seed(site).numpy())


def test_a_seed_differs_by_run_scope_and_site():
  seeds = [_seed(), _seed("other"), _seed(seed=2), _seed(scope="cls")]
  # The full name counts.
  seeds += [_seed("b/c", scope="a"), _seed("c", scope="a/b")]
  assert len(set(seeds)) == 5
  assert seeds[-1] == seeds[-2]
  assert _seed() == seeds[0]


def test_a_seed_differs_by_step_micro_batch_and_replica(monkeypatch):
  replica = types.SimpleNamespace(num_replicas_in_sync=2)
  monkeypatch.setattr(tf.distribute, "get_replica_context", lambda: replica)
  seeds = []
  with variables.VariableStore():
    for _ in range(3):
      for index in range(2):
        replica.replica_id_in_sync_group = index
        for micro_batch in (0, 1, tf.constant(2)):
          with variables.micro_batch(micro_batch):
            seeds.append(tuple(variables.dropout_seed("site").numpy()))
      variables.global_step().assign_add(1)
    assert len(set(seeds)) == 3 * 2 * 3
    # Afterwards, the micro-batch is 0 again.
    seeds.append(tuple(variables.dropout_seed("site").numpy()))
  assert len(set(seeds)) == 3 * 2 * 3 + 1


def test_sites_without_a_name_are_numbered_in_each_scope():
  def draw():
    return tuple(variables.dropout_seed().numpy())

  with variables.VariableStore():
    first, second = draw(), draw()
    with variables.variable_scope("cls"):
      head = draw()
    with variables.variable_scope("cls"):
      assert draw() == head
    third = draw()
  assert len({first, second, head, third}) == 4
  with variables.VariableStore():
    # Other scopes do not count.
    with variables.variable_scope("bert"):
      draw()
    assert (draw(), draw()) == (first, second)


def test_scopes_are_those_of_a_v1_graph():
  def names(outer, scope):
    with (
      variables.variable_scope(outer, default_name="outer"),
      variables.variable_scope(scope, default_name="bert"),
      variables.variable_scope("embeddings"),
    ):
      return variables.get_variable("kernel", [1]).name

  for outer in (None, "", "a"):
    for scope in (None, "", "x"):
      with tf.Graph().as_default():
        expected = names(outer, scope)
      with variables.VariableStore():
        assert names(outer, scope) == expected
  assert expected == "a/x/embeddings/kernel:0"


def test_a_v1_graph_has_no_seeds():
  with tf.Graph().as_default() as graph:
    assert variables.dropout_seed("site") is None
    assert not graph.get_operations()


def test_a_shape_that_differs_is_an_error():
  values = {"kernel": np.zeros([3])}
  with variables.VariableStore(initial_values=values) as store:
    with pytest.raises(ValueError, match=r"kernel has shape \[3\]"):
      variables.get_variable("kernel", [2])
    assert "kernel" not in store


def test_a_graph_with_a_gradient_of_our_own_keeps_no_weights():
  @tf.custom_gradient
  def double(x):
    return 2 * x, lambda upstream: 2 * upstream

  @tf.function(autograph=False)
  def run(store):
    with store:
      return double(variables.get_variable("w", [1000], tf.ones))

  class Owner:
    pass

  owner, store = Owner(), variables.VariableStore()
  store.free_with(owner)
  assert run(store).numpy().sum() == 2000
  handle = store["w"].handle
  read = tf.raw_ops.ReadVariableOp
  assert read(resource=handle, dtype=tf.float32).shape == [1000]
  kept = store["w"]
  del owner
  gc.collect()
  assert read(resource=handle, dtype=tf.float32).shape == [1000]
  np.testing.assert_array_equal(kept, np.ones(1000))
  del kept
  gc.collect()
  assert read(resource=handle, dtype=tf.float32).shape == [0]
