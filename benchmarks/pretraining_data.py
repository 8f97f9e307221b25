"""Compares creating pre-training data with a straightforward implementation.

    python benchmarks/pretraining_data.py VOCAB_FILE TEXT_FILE [ROUNDS]

Both sides go from text (one sentence per line, an empty line between documents)
to a TFRecord file: sequences of 128, 20 predictions, 5 passes. They take turns
in one process on one core, and their records must be equal. Prints instances
per second and the ratio.
"""

import os
import random
import statistics
import sys
import tempfile
import time

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine
import plain_tokenizer
import tensorflow as tf

import tokenization
from bert.data import corpus, corpus_workers

ROUNDS = 5
MAX_SEQ_LENGTH = 128
MAX_PREDICTIONS_PER_SEQ = 20
DUPE_FACTOR = 5
MASKED_LM_PROB = 0.15
SHORT_SEQ_PROB = 0.1
RANDOM_SEED = 12345


def ours(vocab_file, text_file, output_file):
  """Writes the records with this repository's code; returns their number."""
  config = corpus.CorpusConfig(
    vocab_file=vocab_file,
    spm_model_file=None,
    do_lower_case=True,
    max_seq_length=MAX_SEQ_LENGTH,
    dupe_factor=DUPE_FACTOR,
    short_seq_prob=SHORT_SEQ_PROB,
    masked_lm_prob=MASKED_LM_PROB,
    max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
    random_seed=RANDOM_SEED,
  )
  with corpus_workers.workspace([output_file]) as (paths, prefix):
    found = corpus.scan([text_file], 0, 2, prefix)
    counts = corpus_workers.write_records(found, config, paths, prefix, 1)
  corpus._load_tokenizer.cache_clear()  # Each round starts without words.
  return counts["instances"]


def plain(vocab_file, text_file, output_file):
  """The same step by step, without caching or other optimization."""
  rng = random.Random(RANDOM_SEED)
  vocab = tokenization.load_vocab(vocab_file)
  words = list(vocab)
  documents = plain_documents(vocab_file, text_file)
  rng.shuffle(documents)
  rows = []
  for _ in range(DUPE_FACTOR):
    for index in range(len(documents)):
      for tokens_a, tokens_b, is_random in plain_pairs(documents, index, rng):
        plain_truncation(tokens_a, tokens_b, rng)
        tokens, segment_ids = ["[CLS]"], [0]
        for token in tokens_a:
          tokens.append(token)
          segment_ids.append(0)
        tokens.append("[SEP]")
        segment_ids.append(0)
        for token in [*tokens_b, "[SEP]"]:
          tokens.append(token)
          segment_ids.append(1)
        masked = plain_masking(tokens, words, rng)
        rows.append((tokens, segment_ids, masked, is_random))
  rng.shuffle(rows)
  with tf.io.TFRecordWriter(output_file) as writer:
    for row in rows:
      writer.write(plain_record(vocab, *row))
  return len(rows)


def plain_documents(vocab_file, text_file):
  tokenize = plain_tokenizer.make_tokenizer(vocab_file)
  documents = [[]]
  with tf.io.gfile.GFile(text_file, "r") as reader:
    while line := reader.readline():
      line = line.strip()
      if not line:
        documents.append([])
      pieces = tokenize(line)
      if pieces:
        documents[-1].append(pieces)
  return [document for document in documents if document]


def plain_pairs(documents, index, rng):
  """Yields A, B before truncation, and whether B is random."""
  target = MAX_SEQ_LENGTH - 3
  if rng.random() < SHORT_SEQ_PROB:
    target = rng.randint(2, MAX_SEQ_LENGTH - 3)
  waiting = list(documents[index])
  while waiting:
    chunk, size = [], 0
    while waiting and size < target:
      sentence = waiting.pop(0)
      chunk.append(sentence)
      size += len(sentence)
    count_a = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
    tokens_a = [token for sentence in chunk[:count_a] for token in sentence]
    is_random = len(chunk) == 1 or rng.random() < 0.5
    if is_random:
      waiting = chunk[count_a:] + waiting
      other = index
      while other == index:
        other = rng.randint(0, len(documents) - 1)
      first = rng.randint(0, len(documents[other]) - 1)
      tokens_b = []
      for sentence in documents[other][first:]:
        tokens_b.extend(sentence)
        if len(tokens_b) >= target - len(tokens_a):
          break
    else:
      tokens_b = [token for sentence in chunk[count_a:] for token in sentence]
    yield tokens_a, tokens_b, is_random


def plain_truncation(tokens_a, tokens_b, rng):
  while len(tokens_a) + len(tokens_b) > MAX_SEQ_LENGTH - 3:
    longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
    longer.pop(0 if rng.random() < 0.5 else -1)


def plain_masking(tokens, words, rng):
  """Masks `tokens` in place; sorted pairs of a position and its piece."""
  places = [
    [place]
    for place, token in enumerate(tokens)
    if token != "[CLS]" and token != "[SEP]"
  ]
  rng.shuffle(places)
  wanted = max(1, round(len(tokens) * MASKED_LM_PROB))
  masked = []
  for group in places:
    if len(masked) >= min(wanted, MAX_PREDICTIONS_PER_SEQ):
      break
    for place in group:
      masked.append((place, tokens[place]))
      if rng.random() < 0.8:
        tokens[place] = "[MASK]"
      elif rng.random() >= 0.5:
        tokens[place] = words[rng.randint(0, len(words) - 1)]
  return sorted(masked)


def plain_record(vocab, tokens, segment_ids, masked, is_random):
  input_ids = [vocab[token] for token in tokens]
  input_mask = [1] * len(input_ids)
  segment_ids = list(segment_ids)
  while len(input_ids) < MAX_SEQ_LENGTH:
    input_ids.append(0)
    input_mask.append(0)
    segment_ids.append(0)
  positions = [place for place, _ in masked]
  masked_ids = [vocab[token] for _, token in masked]
  weights = [1.0] * len(masked_ids)
  while len(positions) < MAX_PREDICTIONS_PER_SEQ:
    positions.append(0)
    masked_ids.append(0)
    weights.append(0.0)
  features = {
    "input_ids": plain_integers(input_ids),
    "input_mask": plain_integers(input_mask),
    "segment_ids": plain_integers(segment_ids),
    "masked_lm_positions": plain_integers(positions),
    "masked_lm_ids": plain_integers(masked_ids),
    "masked_lm_weights": tf.train.Feature(
      float_list=tf.train.FloatList(value=weights)
    ),
    "next_sentence_labels": plain_integers([1 if is_random else 0]),
  }
  example = tf.train.Example(features=tf.train.Features(feature=features))
  return example.SerializeToString()


def plain_integers(values):
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def check_equal(path, other):
  """Asserts that two TFRecord files hold equal examples in the same order."""
  pairs = zip(*map(tf.data.TFRecordDataset, (path, other)), strict=True)
  for number, records in enumerate(pairs):
    one, two = (tf.train.Example.FromString(r.numpy()) for r in records)
    assert one == two, f"record {number} differs"


def compare(vocab_file, text_file, rounds):
  """Runs both sides in turns and prints their times."""
  times = {ours: [], plain: []}
  with tempfile.TemporaryDirectory() as folder:
    paths = {side: f"{folder}/{side.__name__}.tfrecord" for side in times}
    for _ in range(rounds):
      counts = set()
      for side, values in times.items():
        start = time.perf_counter()
        counts.add(side(vocab_file, text_file, paths[side]))
        values.append(time.perf_counter() - start)
    check_equal(*paths.values())
  (count,) = counts
  for side, values in times.items():
    median = statistics.median(values)
    print(
      f"{side.__name__:6s} median {median:.3f} s (min {min(values):.3f}, max "
      f"{max(values):.3f}), {count / median:,.0f} instances/s"
    )
  ratios = [b / a for a, b in zip(*times.values(), strict=True)]
  print(
    f"ratio  median {statistics.median(ratios):.1f} over {rounds} rounds of "
    f"{count:,} instances; records equal"
  )


def main(vocab_file, text_file, rounds=ROUNDS):
  print(
    machine.describe().replace(f"{os.cpu_count()} cores", "1 core used"),
    flush=True,
  )
  compare(vocab_file, text_file, int(rounds))


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:])
