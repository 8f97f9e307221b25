"""Applies BERT to the rows of a batch, for all tasks."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

import modeling
from bert.data import records


def encode(
  config: modeling.BertConfig,
  features: Mapping[str, tf.Tensor],
  is_training: bool,
  use_one_hot_embeddings: bool = False,
  precision: str = "float32",
  gradient_checkpointing: bool = False,
) -> modeling.BertModel:
  """The BertModel of a batch, whose three sequences are [B, ..., S]."""

  def rows(ids):
    if ids.shape.rank == 2:
      return ids
    return tf.reshape(ids, [-1, modeling.get_shape_list(ids)[-1]])

  return modeling.BertModel(
    config,
    is_training,
    *(rows(features[name]) for name in records.SEQUENCES),
    use_one_hot_embeddings,
    precision=precision,
    gradient_checkpointing=gradient_checkpointing,
  )
