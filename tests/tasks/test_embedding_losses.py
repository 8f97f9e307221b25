"""The losses of vectors against arithmetic in NumPy."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from bert.tasks.embeddings import losses as embedding_losses

SCALE = 20.0


def unit(*shape, seed=3):
  values = np.random.default_rng(seed).normal(size=shape)
  return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype("f4")


def cross_entropy(scores, right, left_out=()):
  others = [x for i, x in enumerate(scores) if i not in left_out]
  return special.logsumexp(others) - scores[right]


def ranking(vectors, ids, both_ways=False):
  return float(
    embedding_losses.ranking(
      tf.constant(vectors), tf.constant(ids), SCALE, both_ways
    )
  )


def test_each_text_finds_its_partner_among_all_candidates():
  vectors = unit(4, 4, 6)
  ids = np.arange(1, 17).reshape(4, 4)
  candidates = np.concatenate([vectors[:, 1], vectors[:, 2:].reshape(-1, 6)])
  forward = [
    cross_entropy(SCALE * candidates @ vectors[i, 0], i) for i in range(4)
  ]
  backward = [
    cross_entropy(SCALE * vectors[:, 0] @ vectors[i, 1], i) for i in range(4)
  ]
  assert ranking(vectors, ids) == pytest.approx(np.mean(forward), rel=1e-5)
  both = (np.mean(forward) + np.mean(backward)) / 2
  assert ranking(vectors, ids, True) == pytest.approx(both, rel=1e-5)


# The topics of questions A, B, C and answers x, y, z. Texts of one topic have
# equal vectors, and other topics are orthogonal, so the loss of a row is ln(n)
# if n candidates have its topic. A row is text A, text B, hard negative.
TOPIC = {"A": 0, "B": 0, "x": 0, "y": 0, "C": 1, "z": 1, "": 2}


@pytest.mark.parametrize(
  ("rows", "both_ways", "wanted"),
  [
    (["Bx ", "Byx", "Cz "], False, 0.0),  # x is a negative, but not of B.
    (["Ax", "Bx", "By", "Cz"], False, math.log(2) / 4),  # y, of A.
    (["Ax", "Bx", "By", "Cz"], True, math.log(2) / 4),  # A, of y.
    (["Ax ", "Cz ", "CzA"], False, 0.0),  # The text itself.
    (["Ax", "xA", "Cz"], True, 0.0),  # Symmetric pairs.
    (["Ax", "BA", "Cz"], False, math.log(2) / 3),  # x, of B.
  ],
)
def test_a_partner_in_any_row_is_no_negative(rows, both_ways, wanted):
  rows = [[text.strip() for text in row] for row in rows]
  names = sorted(TOPIC)  # The empty text has the id 0.
  vectors = np.eye(3, dtype=np.float32)[[[TOPIC[t] for t in r] for r in rows]]
  ids = np.array([[names.index(text) for text in row] for row in rows])
  assert ranking(vectors, ids, both_ways) == pytest.approx(wanted, abs=1e-6)


def test_cosines_are_compared_with_scores():
  # Their cosines are 0.5 and 0.
  vectors = tf.constant([[[1, 0], [0.5, 0.75**0.5]], [[1, 0], [0, 1]]])
  training = embedding_losses.Training("cosine")
  scores = tf.constant([1.0, 0.1])
  found = embedding_losses.compute(training, vectors, None, scores)
  assert float(found) == pytest.approx((0.25 + 0.01) / 2)


def test_cosent_counts_pairs_in_the_wrong_order():
  cosines = np.array([0.1, 0.4, -0.2, 0.3], np.float32)
  scores = np.array([2.0, 1.0, 1.0, 5.0], np.float32)
  total = 1.0
  for i in range(4):
    for j in range(4):
      if scores[i] > scores[j]:
        total += np.exp(SCALE * (cosines[j] - cosines[i]))
  found = embedding_losses.cosent(
    tf.constant(cosines), tf.constant(scores), SCALE
  )
  assert float(found) == pytest.approx(np.log(total), rel=1e-5)
  equal = embedding_losses.cosent(
    tf.constant(cosines), tf.constant([1.0] * 4), SCALE
  )
  assert float(equal) == 0.0


IDS = np.array([[1, 2, 3], [4, 0, 0], [5, 2, 0], [6, 7, 8]])


def test_student_and_teacher_compare_all_texts():
  """KL of the softmax over the other texts, by SciPy; widths differ."""
  own, theirs = unit(4, 3, 6), unit(4, 3, 9, seed=4)
  temperature, flat = 3.0, IDS.ravel()
  expected = np.zeros(12)
  for i in range(12):
    others = [j for j in range(12) if flat[j] not in (0, flat[i])]
    found, wanted = (
      special.softmax(
        SCALE * (x[others] @ x[i]).astype(np.float64) / temperature
      )
      for x in (own.reshape(12, 6), theirs.reshape(12, 9))
    )
    expected[i] = temperature**2 * special.rel_entr(wanted, found).sum()
  mask = IDS > 0
  expected = (expected.reshape(4, 3) * mask).sum(1) / mask.sum(1)
  found = embedding_losses.similarity_divergence(
    *map(tf.constant, (own, theirs, IDS)), SCALE, temperature
  )
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_text_without_another_has_no_loss():
  found = embedding_losses.similarity_divergence(
    *map(tf.constant, (unit(1, 2, 6), unit(1, 2, 6, seed=4), [[1, 0]])),
    SCALE,
    2.0,
  )
  np.testing.assert_array_equal(found, [0.0])


@pytest.mark.parametrize("loss", embedding_losses.LOSSES)
def test_rows_without_a_label_have_no_part_in_the_loss(loss):
  training = embedding_losses.Training(loss, both_ways=True)
  vectors, ids = unit(6, 3, 5), np.arange(1, 19).reshape(6, 3)
  ids[2, 1:] = ids[4, 2] = 0
  is_labeled = np.array([1, 1, 0, 1, 0, 1])
  scores = np.linspace(0, 1, 6, dtype=np.float32)

  def compute(rows, *mask):
    arrays = (x[rows] for x in (vectors, ids, scores))
    return float(
      embedding_losses.compute(training, *map(tf.constant, arrays), *mask)
    )

  found = compute(np.arange(6), tf.constant(is_labeled))
  expected = compute(np.flatnonzero(is_labeled))
  assert found == pytest.approx(expected, rel=1e-5)
  assert compute(np.arange(6), tf.zeros(6, tf.int32)) == 0
