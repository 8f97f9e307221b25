"""training/memory.py: compared with arithmetic."""

import numpy as np
import tensorflow as tf

from training import memory


def test_activations_are_those_that_gradients_read():
  weights = tf.Variable(np.ones([6, 5], np.float32))

  @tf.function(autograph=False)
  def step():
    x = tf.random.uniform([4, 3, 6])
    matrix = tf.reshape(x, [12, 6])  # Has no memory of its own.
    y = tf.tanh(tf.matmul(matrix, weights))
    loss = tf.reduce_sum(tf.nn.relu(2 * y))  # The product by 2 keeps nothing.
    return tf.gradients(loss, [weights])

  graph = step.get_concrete_function().graph
  # x for the kernel's gradient, tanh for its own, and relu for its own.
  assert memory.activation_bytes(graph) == 4 * (12 * 6 + 12 * 5 + 12 * 5)


def test_a_large_array_is_seen():
  before = memory.used_bytes()
  available = memory.available_bytes()
  array = np.ones(2**26, np.uint8)
  assert memory.used_bytes() - before > 2**25
  assert memory.peak_bytes() >= memory.used_bytes() - 2**20
  assert array.nbytes < available < 2**45
