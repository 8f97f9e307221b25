"""The losses of vectors against arithmetic in NumPy."""

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


def test_the_right_answer_again_is_no_negative():
  """Of another row, as a hard negative, or of the same query."""
  vectors = unit(4, 3, 6)
  ids = np.arange(1, 13).reshape(4, 3)
  ids[2, 1] = ids[0, 1]  # Rows 0 and 2 have the same partner.
  ids[3, 2] = ids[0, 1]  # It is the negative of row 3, too.
  ids[3, 0] = ids[1, 0]  # Rows 1 and 3 have the same query.
  ids[1, 2] = 0  # Row 1 has no negative.
  candidates = np.concatenate([vectors[:, 1], vectors[:, 2]])
  left_out = [{2, 5, 7}, {3, 5}, {0, 5, 7}, {1, 5}]
  forward = [
    cross_entropy(SCALE * candidates @ vectors[i, 0], i, out)
    for i, out in enumerate(left_out)
  ]
  assert ranking(vectors, ids) == pytest.approx(np.mean(forward), rel=1e-5)


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
