"""Masks that are drawn as rows are read."""

import random

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.data import instances, records, sequences
from bert.engine import inputs, record_files
from bert.tasks.pretraining import dynamic_masking

ADDED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def _unmasked(vocab, texts, length):
  """Features of rows [CLS] A [SEP], of the ids of A."""
  first, last = vocab["[CLS]"], vocab["[SEP]"]
  rows = [[first, *text, last] for text in texts]
  input_ids = np.array(
    [sequences.padded(row, length) for row in rows], np.int32
  )
  return {
    "input_ids": tf.constant(input_ids),
    "input_mask": tf.constant((input_ids > 0).astype(np.int32)),
    "next_sentence_labels": tf.zeros([len(rows), 1], tf.int32),
  }


# The pieces that are words begin behind the specials, of which the last is 13.
TEXTS = st.lists(
  st.lists(st.integers(14, 1000), min_size=1, max_size=30),
  min_size=1,
  max_size=4,
)


@given(
  TEXTS,
  st.floats(0.05, 0.9),
  st.integers(1, 12),
  st.booleans(),
  st.integers(0, 2**40),
)
def test_dynamic_masks(tokenizer, texts, prob, limit, whole_word, start):
  mask = dynamic_masking.dynamic_masking(tokenizer, prob, limit, whole_word, 7)
  features = _unmasked(tokenizer.vocab, texts, 32)
  ordinals = start + np.arange(len(texts))
  masked = mask(features, ordinals)
  assert masked.keys() == {*features, *ADDED}
  for name in ("input_mask", "next_sentence_labels"):
    assert masked[name] is features[name]
  arrays = {name: masked[name].numpy() for name in ("input_ids", *ADDED)}
  for row, text in enumerate(texts):
    ids, positions, labels, weights = (a[row] for a in arrays.values())
    tokens, where, words = instances.create_masked_lm_predictions(
      ["[CLS]", *map(tokenizer.inv_vocab.get, text), "[SEP]"],
      prob,
      limit,
      list(tokenizer.vocab),
      random.Random(f"7/{start + row}"),
      words=(
        instances.whole_words(tokenizer) if whole_word else instances.PIECES
      ),
    )
    assert ids[: len(tokens)].tolist() == (
      tokenizer.convert_tokens_to_ids(tokens)
    )
    label_ids = tokenizer.convert_tokens_to_ids(words)
    for found, wanted in (
      (positions, where),
      (labels, label_ids),
      (weights, [1.0] * len(where)),
    ):
      assert found.tolist() == sequences.padded(wanted, limit)


def _unmasked_files(folder, tokenizer, texts):
  """RecordFiles of rows of 32 positions."""
  spec = instances.feature_spec(32, 0)
  features = _unmasked(tokenizer.vocab, texts, 32)
  features["segment_ids"] = tf.zeros_like(features["input_ids"])
  rows = [
    {name: features[name][i].numpy() for name in spec}
    for i in range(len(texts))
  ]
  records.write_records(str(folder / "rows"), rows, spec)
  return record_files.RecordFiles([str(folder / "rows")], spec, 1001)


def test_masking_keeps_static_shapes(tokenizer, tmp_path):
  files = _unmasked_files(tmp_path, tokenizer, [range(20, 40), range(20, 24)])
  transform = dynamic_masking.dynamic_masking(tokenizer, 0.15, 6, False, 1)
  input_fn = inputs.input_fn_from_rows(files, True, transform=transform)
  for pad, length in ((True, 32), (False, None)):
    dataset = input_fn({"batch_size": 4, "pad_to_max_length": pad})
    shapes = {k: v.shape.as_list() for k, v in dataset.element_spec.items()}
    assert shapes["input_ids"] == shapes["input_mask"] == [4, length]
    assert all(shapes[name] == [4, 6] for name in ADDED)


def test_evaluation_masks_rows_alike_in_batches_of_any_size(
  tokenizer, tmp_path
):
  texts = [range(20, 30 + i) for i in range(7)]
  files = _unmasked_files(tmp_path, tokenizer, texts)
  transform = dynamic_masking.dynamic_masking(tokenizer, 0.3, 6, False, 1)
  found = []
  for batch_size in (2, 7):
    input_fn = inputs.input_fn_from_rows(files, False, transform=transform)
    rows = {}
    for batch in input_fn({"batch_size": batch_size}):
      for i, index in enumerate(batch["row_index"].numpy()):
        if batch["is_real_example"][i]:
          rows[index] = [batch[name][i].numpy().tolist() for name in ADDED]
    found.append(rows)
  alone = enumerate(inputs.EachRow(files, 7, transform))
  rows = {i: [row[name].tolist() for name in ADDED] for i, row in alone}
  assert found[0] == found[1] == rows
  assert found[0].keys() == set(range(7))
