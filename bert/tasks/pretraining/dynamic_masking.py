"""Masks rows of pre-training data as they are read, anew in each epoch."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

import tokenization
from bert.data import instances


def dynamic_masking(
  tokenizer: tokenization.FullTokenizer,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  do_whole_word_mask: bool,
  seed: int,
) -> Callable[[Mapping[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]:
  """Returns a function that masks batches, for the functions of `inputs`.

  The masks of a row are drawn from (seed, ordinal), where the ordinal is its
  number in the whole training. So each epoch has new masks, and a resumed
  training has the same masks as an uninterrupted one. `instances` explains the
  arguments. The function adds `masked_lm_positions`, `masked_lm_ids` and
  `masked_lm_weights` [B, P].
  """
  special = tokenizer.special
  pieces = list(tokenizer.vocab)
  words = instances.PIECES
  if do_whole_word_mask:
    words = instances.whole_words(tokenizer)

  def mask_row(ids, ordinal):
    row = [tokenizer.inv_vocab[i] for i in ids.tolist()]
    tokens, positions, _ = instances.create_masked_lm_predictions(
      row,
      masked_lm_prob,
      max_predictions_per_seq,
      pieces,
      random.Random(f"{seed}/{ordinal}"),
      special,
      words,
    )
    labels = ids[positions]
    ids[positions] = [tokenizer.vocab[tokens[p]] for p in positions]
    return positions, labels

  return functools.partial(_mask_batch, mask_row, max_predictions_per_seq)


def _mask_batch(mask_row, max_predictions_per_seq, features, ordinals):
  """Masks a batch; `mask_row` masks ids in place, returns positions, labels."""
  input_ids = features["input_ids"]
  shape = [input_ids.shape[0], max_predictions_per_seq]

  def mask(input_ids, input_mask, ordinals):
    masked = input_ids.copy()
    positions, labels = np.zeros([2, len(masked), shape[1]], np.int32)
    weights = np.zeros_like(labels, np.float32)
    ends = np.sum(input_mask, axis=1)
    for row, ordinal in enumerate(ordinals.tolist()):
      chosen, original = mask_row(masked[row, : ends[row]], ordinal)
      positions[row, : len(chosen)] = chosen
      labels[row, : len(chosen)] = original
      weights[row, : len(chosen)] = 1.0
    return masked, positions, labels, weights

  masked = tf.numpy_function(
    mask,
    [input_ids, features["input_mask"], ordinals],
    [tf.int32, tf.int32, tf.int32, tf.float32],
  )
  masked[0].set_shape(input_ids.shape)
  for tensor in masked[1:]:
    tensor.set_shape(shape)
  names = (f"masked_lm_{name}" for name in ("positions", "ids", "weights"))
  return {**features, **dict(zip(("input_ids", *names), masked, strict=True))}
