"""Losses of vectors of texts, which compare the rows of a batch.

All take vectors of length 1, so their products are cosines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from bert import layers
from bert.contract import distillation
from bert.errors import UserError
from bert.tasks.embeddings import data

LOSSES = ("ranking", "cosine", "cosent")


@dataclasses.dataclass(frozen=True)
class Training:
  """How vectors are trained."""

  loss: str = "ranking"  # one of LOSSES
  scale: float = 20.0  # factor of the cosines, for "ranking" and "cosent"
  both_ways: bool = False  # with "ranking", text_b must find text_a, too
  # The loss is the mean over the vectors cut to each of these sizes (Kusupati
  # et al. 2022); none for whole vectors.
  dimensions: tuple[int, ...] = ()
  batch_size: int = 32


def check(training: Training, pairs: Sequence[data.Pair], size: int) -> None:
  """Raises UserError if pairs and vectors of a size do not suit a Training."""
  wrong = [n for n in training.dimensions if not 0 < n <= size]
  if wrong:
    raise UserError(
      f"--dimensions: {wrong[0]} is not from 1 to {size}, the size of the "
      f"vectors; pass smaller sizes"
    )
  if problem := _problem_of(training, pairs):
    raise UserError(f"--loss={training.loss} {problem}")


def _problem_of(training, pairs):
  """Why pairs do not suit a loss, with the remedy; or None."""
  loss, scores = training.loss, [pair.score for pair in pairs]
  if loss == "ranking":
    if set(scores) <= {None, 0.0, 1.0}:
      return None
    return "reads no scores; pass --loss=cosent, or --label_column"
  if scores[0] is None:
    return "needs --score_column or --label_column; pass one"
  for flag, is_given in (
    ("negative_column", any(pair.negatives for pair in pairs)),
    ("both_directions", training.both_ways),
  ):
    if is_given:
      return f"does not use --{flag}; omit it, or train by --loss=ranking"
  wrong = [pair for pair in pairs if not 0 <= pair.score <= 1]
  if loss == "cosine" and wrong:
    return (
      f"needs scores from 0 to 1, and that of {wrong[0].where} is "
      f"{wrong[0].score:g}; divide all scores by {max(scores):g}, or pass "
      f"--loss=cosent, which reads only their order"
    )
  return None


def why_nothing_is_learnt(
  training: Training, pairs: Sequence[data.Pair]
) -> str | None:
  """Why nothing can be learnt from pairs; None if something can."""
  if any(pair.negatives for pair in pairs):
    return None
  if training.loss != "cosine" and min(training.batch_size, len(pairs)) == 1:
    return "a batch has a single pair; raise --train_batch_size"
  columns = ("text_a", "text_b") if training.loss == "ranking" else ("score",)
  for column in columns:
    if len({getattr(pair, column) for pair in pairs}) == 1:
      return f"all pairs have the same {column}; add other pairs"
  return None


def compute(
  training: Training,
  vectors: tf.Tensor,
  text_ids: tf.Tensor,
  scores: tf.Tensor,
  is_labeled: tf.Tensor | None = None,
) -> tf.Tensor:
  """The loss of a batch, a scalar; ignores `dimensions`.

  See `ranking` for `vectors` and `text_ids`; `scores` are float [B], and
  `is_labeled` is 0 for rows to ignore, else 1, integer [B]; None if all count.
  """
  scale, both_ways = training.scale, training.both_ways
  if training.loss == "ranking":
    return ranking(vectors, text_ids, scale, both_ways, is_labeled)
  cosines = tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)
  if training.loss == "cosine":
    return _mean(tf.square(cosines - scores), is_labeled)
  return cosent(cosines, scores, scale, is_labeled)


def similarity_divergence(
  vectors: tf.Tensor,
  targets: tf.Tensor,
  text_ids: tf.Tensor,
  scale: float,
  temperature: float,
) -> tf.Tensor:
  """How much student and teacher differ in comparing a batch's texts, [B].

  The cosines of a text with all others of the batch, times `scale`, are the
  logits of a softmax. The loss of a row is the mean over its texts of
  T^2 KL(teacher, student). Vectors of student and teacher are never compared
  with each other, so `targets`, the teacher's vectors, may have another size.
  """
  flat = (tf.reshape(x, [-1, x.shape[-1]]) for x in (vectors, targets))
  student, teacher = (scale * tf.matmul(x, x, transpose_b=True) for x in flat)
  ids = tf.reshape(text_ids, [-1])
  is_other = (ids[:, tf.newaxis] != ids) & (ids != 0)
  counts = tf.cast((ids != 0) & tf.reduce_any(is_other, axis=1), tf.float32)
  losses = counts * distillation.divergence(
    student, teacher, temperature, is_other
  )
  totals, counts = (
    tf.reduce_sum(tf.reshape(x, tf.shape(text_ids)), axis=1)
    for x in (losses, counts)
  )
  return tf.math.divide_no_nan(totals, counts)


def ranking(
  vectors: tf.Tensor,
  text_ids: tf.Tensor,
  scale: float,
  both_ways: bool,
  is_labeled: tf.Tensor | None = None,
) -> tf.Tensor:
  """In-batch negatives: each text must find its partner among all (scalar).

  The cross-entropy of a softmax over the partners of all rows, and all hard
  negatives (Henderson et al. 2017, section 4). A candidate is excluded if a row
  of the batch pairs it with the text, or if it is the text itself.

  Args:
    vectors: float [B, 2 + N, D]: of the text, its partner, and N negatives.
    text_ids: integer [B, 2 + N]: equal texts have equal ids; 0 is no text.
    scale, both_ways: see `Training`; the mean of both ways counts.
    is_labeled: see `compute`. The texts of other rows are not candidates.
  """
  if is_labeled is not None:
    text_ids *= tf.cast(is_labeled, text_ids.dtype)[:, tf.newaxis]
  queries, partners = vectors[:, 0], vectors[:, 1]
  negatives = tf.reshape(vectors[:, 2:], [-1, vectors.shape[-1]])
  negative_ids = tf.reshape(text_ids[:, 2:], [-1])
  candidates = tf.concat([partners, negatives], axis=0)
  candidate_ids = tf.concat([text_ids[:, 1], negative_ids], axis=0)
  logits = scale * tf.matmul(queries, candidates, transpose_b=True)
  excluded = _no_negatives(text_ids, text_ids[:, 0], candidate_ids)
  loss = _softmax_loss(logits, excluded, is_labeled)
  if not both_ways:
    return loss
  logits = scale * tf.matmul(partners, queries, transpose_b=True)
  excluded = _no_negatives(text_ids, text_ids[:, 1], text_ids[:, 0])
  return (loss + _softmax_loss(logits, excluded, is_labeled)) / 2.0


def _no_negatives(text_ids, ids, candidate_ids):
  """Which candidates are no negatives of texts: bool [B, C]; see `ranking`."""
  first, second = text_ids[:, 0], text_ids[:, 1]
  ones = tf.concat([first, second], axis=0)  # Each pair, in both orders.
  others = tf.concat([second, first], axis=0)
  pairs = _equal(ids, ones), _equal(others, candidate_ids)
  is_paired = tf.matmul(*(tf.cast(x, tf.float32) for x in pairs)) > 0
  return is_paired | _equal(ids, candidate_ids) | (candidate_ids == 0)


def _equal(a, b):
  """Whether a[i] == b[j], bool [A, B]."""
  return a[:, tf.newaxis] == b


def _softmax_loss(logits, excluded, is_labeled):
  """The mean cross-entropy; candidate i is the target of row i."""
  rows, columns = (tf.range(tf.shape(logits)[axis]) for axis in (0, 1))
  excluded &= ~_equal(rows, columns)
  logits += tf.where(excluded, layers.MASKED_SCORE, 0.0)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(rows, logits)
  return _mean(losses, is_labeled)


def _mean(losses, is_labeled):
  """The mean loss of labeled rows; 0 if there are none."""
  if is_labeled is None:
    return tf.reduce_mean(losses)
  weights = tf.cast(is_labeled, tf.float32)
  total = tf.reduce_sum(losses * weights)
  return tf.math.divide_no_nan(total, tf.reduce_sum(weights))


def cosent(
  cosines: tf.Tensor,
  scores: tf.Tensor,
  scale: float,
  is_labeled: tf.Tensor | None = None,
) -> tf.Tensor:
  """log(1 + sum exp(scale (c_j - c_i))) over all pairs with score_i > score_j.

  Only the order of the scores matters. Cosines and scores are float [B].
  """
  differences = scale * (cosines - cosines[:, tf.newaxis])  # c_j - c_i at i, j.
  is_wrong_if_positive = scores[:, tf.newaxis] > scores
  if is_labeled is not None:
    is_wrong_if_positive &= is_labeled[:, tf.newaxis] * is_labeled > 0
  differences = tf.where(is_wrong_if_positive, differences, layers.MASKED_SCORE)
  return tf.reduce_logsumexp(
    tf.concat([tf.reshape(differences, [-1]), [0.0]], axis=0)
  )
