"""Few-shot training: pairs of rows train the vectors, then a head is fitted.

Rows with a label in common get close vectors, and other rows distant ones
(Tunstall et al. 2022, Efficient Few-Shot Learning Without Prompts). The pairs
are those within a batch, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert.contract.ops import TensorOps, sigmoid, softmax
from bert.errors import UserError
from bert.flags.values import Flags
from bert.models import model_folder, task_file

# How a vector is made of those of the tokens; see `TensorOps.pool`.
POOLINGS = ("cls", "mean", "max", "mean_sqrt_len", "pooled")

# Defaults of flags in few-shot training.
DEFAULTS = {
  "train_batch_size": 32,
  "num_train_epochs": 20.0,
  "learning_rate": 2e-5,
}

# Up to this number of rows a label, docs/few-labels.md shows a gain.
_FEW_ROWS = 64

# Inverse of the penalty of the weights of the head.
C = 1.0

_EXAMPLE = "such as hf://sentence-transformers/all-MiniLM-L6-v2"


def shown_defaults(defaults: Mapping[str, float] = DEFAULTS) -> str:
  """The defaults as on a command line."""
  return " ".join(f"--{name}={value:g}" for name, value in defaults.items())


def with_defaults(flags: Flags) -> Flags:
  """The flags, with the defaults of few-shot training if they ask for it."""
  if not (flags.do_train and flags.few_shot):
    return flags
  flags.check_exclusive("few_shot", "regression")
  flags.require("init_checkpoint", value=f"a model of vectors, {_EXAMPLE}")
  missing = {n: v for n, v in DEFAULTS.items() if n not in flags.given}
  if missing:
    logging.info("--few_shot sets the defaults %s", shown_defaults(missing))
  return Flags(flags.rows, {**DEFAULTS, **flags.given})


def pooling_of(init_checkpoint: str) -> str:
  """The pooling of a model of vectors, or of a few-shot classifier.

  Raises UserError for a model of another kind.
  """
  kind, fields = task_file.read(model_folder.folder_of(init_checkpoint))
  if kind is None:
    logging.warning(
      "--few_shot: %s does not say that it is a model of vectors; the mean of "
      "its tokens is used",
      init_checkpoint,
    )
    return "mean"
  pooling = fields.get("pooling", "mean" if kind == "vectors" else "")
  if pooling not in POOLINGS:
    raise UserError(
      f"--init_checkpoint={init_checkpoint} holds a model of another kind "
      f"({kind}); --few_shot needs a model of vectors, {_EXAMPLE}"
    )
  return pooling


def advice(num_rows: int, num_labels: int) -> list[str]:
  """A sentence for a training of few rows a label, if they are few."""
  if num_rows >= _FEW_ROWS * num_labels:
    return []
  return [
    f"With fewer than {_FEW_ROWS} rows a label, --few_shot and a model of "
    f"vectors may be better; see docs/few-labels.md."
  ]


def row_groups(label_ids: Sequence, num_rows: int) -> list[np.ndarray]:
  """The rows of each label, those of no label, and those of unknown labels.

  `label_ids`, [N] or [N, C], are of the first rows; of the others, up to
  `num_rows`, labels are unknown.
  """
  ids = np.asarray(label_ids)
  if ids.ndim == 1:
    given = ids[:, np.newaxis] == np.unique(ids)
  else:
    given = np.concatenate([ids > 0, ~ids.any(axis=1, keepdims=True)], axis=1)
  groups = [*map(np.flatnonzero, given.T), np.arange(len(ids), num_rows)]
  return [rows for rows in groups if rows.size]


def pair_losses(vectors: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
  """The mean squared errors of each row's cosines with the others, float [B].

  The cosine of two rows should be that of their labels: 1 if these are equal,
  0 if they have nothing in common. Both cases have the same total weight.

  Args:
    vectors: float [B, H], of length 1.
    labels: the share or probability of each label, float [B, C].
  """
  # Rows without any label agree, too.
  none = 1.0 - tf.reduce_max(labels, axis=1, keepdims=True)
  labels = TensorOps().unit_length(tf.concat([labels, none], axis=1))
  cosines, agreement = (
    tf.matmul(x, x, transpose_b=True) for x in (vectors, labels)
  )
  is_other = 1.0 - tf.eye(tf.shape(vectors)[0])
  losses = []
  for target, weights in ((1.0, agreement), (0.0, 1.0 - agreement)):
    weights *= is_other
    total = tf.reduce_sum(weights * tf.square(cosines - target), axis=1)
    losses.append(tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=1)))
  return tf.add_n(losses)


def fit(
  vectors: np.ndarray,
  targets: np.ndarray,
  weights: np.ndarray,
  is_multilabel: bool,
) -> tuple[np.ndarray, np.ndarray]:
  """Logistic regression: the weights [C, H] and the bias [C] of the head.

  They minimize the cross-entropy summed over the rows, plus the sum of the
  squared weights divided by 2 C, as in scikit-learn.

  Args:
    vectors: float [N, H].
    targets: the probability of each label, float [N, C].
    weights: of each label, float [C].
    is_multilabel: whether labels are independent, or one is right.
  """
  from scipy import optimize, special
  from threadpoolctl import threadpool_limits  # scikit-learn requires it.

  vectors = np.asarray(vectors, np.float64)
  targets = np.asarray(targets, np.float64)
  shape = targets.shape[1], vectors.shape[1] + 1
  factors = weights if is_multilabel else (targets @ weights)[:, np.newaxis]

  def loss(flat):
    kernel, bias = np.split(flat.reshape(shape), [-1], axis=1)
    logits = vectors @ kernel.T + bias[:, 0]
    if is_multilabel:
      gradient = factors * (sigmoid(logits) - targets)
      values = np.logaddexp(0, logits) - targets * logits
    else:
      gradient = factors * (softmax(logits) - targets)
      values = -targets * special.log_softmax(logits, axis=1)
    value = np.sum(factors * values) + np.sum(kernel**2) / (2 * C)
    by_kernel = gradient.T @ vectors + kernel / C
    by_bias = gradient.sum(axis=0)[:, np.newaxis]
    return value, np.concatenate([by_kernel, by_bias], axis=1).ravel()

  start = np.zeros(shape).ravel()
  with threadpool_limits(1):  # Results would depend on the number of cores.
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B")
  kernel, bias = np.split(found.x.reshape(shape), [-1], axis=1)
  return np.float32(kernel), np.float32(bias[:, 0])
