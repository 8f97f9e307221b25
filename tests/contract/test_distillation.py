"""The losses of a student, against SciPy and arithmetic."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from bert.contract import distillation
from bert.contract.distillation import Distillation

DRAW = np.random.default_rng(7).normal
STUDENT, TEACHER = (DRAW(size=[4, 3]).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_the_divergence_is_that_of_kullback_and_leibler(temperature):
  found = distillation.divergence(STUDENT, TEACHER, temperature)
  p, q = (
    scipy.special.softmax(x / temperature, -1) for x in (TEACHER, STUDENT)
  )
  expected = temperature**2 * scipy.special.rel_entr(p, q).sum(-1)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_padding_is_no_class():
  padding = [[0.0, 9.0]] * 4
  mask = [[1, 1, 1, 0, 0]] * 4
  student, teacher = (
    tf.constant(np.concatenate([x, y], 1), tf.float32)
    for x, y in ((STUDENT, padding), (TEACHER, np.zeros([4, 2])))
  )
  found = distillation.divergence(student, teacher, 2.0, tf.constant(mask))
  expected = distillation.divergence(STUDENT, TEACHER, 2.0)
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_divergence_of_independent_labels():
  found = distillation.binary_divergence(STUDENT, TEACHER, 3.0)
  p, q = (scipy.special.expit(x / 3.0) for x in (TEACHER, STUDENT))
  terms = scipy.special.rel_entr(p, q) + scipy.special.rel_entr(1 - p, 1 - q)
  np.testing.assert_allclose(found, 9 * terms.mean(-1), rtol=1e-4, atol=1e-6)


def test_gradients_keep_their_size():
  """For small logits, the gradient is that of half the squared difference.

  Hinton et al. (2015), section 2.1, for logits whose mean is zero: the
  derivative of the cross-entropy is (z - v) / (N T^2).
  """
  student = tf.constant(STUDENT - STUDENT.mean(-1, keepdims=True))
  teacher = TEACHER - TEACHER.mean(-1, keepdims=True)
  with tf.GradientTape() as tape:
    tape.watch(student)
    loss = tf.reduce_sum(distillation.divergence(student, teacher, 1000.0))
  found = tape.gradient(loss, student)
  np.testing.assert_allclose(found, (student - teacher) / 3, atol=2e-3)


@pytest.mark.parametrize("shape", [[2], [2, 3]])
def test_only_soft_targets_count_without_a_label(shape):
  hard, soft = tf.fill(shape, 8.0), tf.fill(shape, 4.0)
  found = Distillation(0.25).mix(hard, soft, tf.constant([1, 0]))
  np.testing.assert_array_equal(found[0], np.full(shape[1:], 7.0))
  np.testing.assert_array_equal(found[1], np.full(shape[1:], 4.0))
