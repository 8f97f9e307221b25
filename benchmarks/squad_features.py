"""Making the windows of SQuAD's questions, against the obvious way to do it.

    python benchmarks/squad_features.py VOCAB_FILE SQUAD_FILE... [ROUNDS]

The questions of the files are repeated, each time with paragraphs of their own,
until there are 10,000. Both sides turn them into windows for training (length
384, stride 128, questions up to 64) by turns, in one process on one core, with
the same tokenizer class; the windows must be equal, one by one. Says questions
a second and the ratio.
"""

import collections
import itertools
import os
import statistics
import sys
import time

if hasattr(os, "sched_setaffinity"):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import machine

import squad
import tokenization

ROUNDS = 5
QUESTIONS = 10_000
MAX_SEQ_LENGTH = 384
DOC_STRIDE = 128
MAX_QUERY_LENGTH = 64


def ours(examples, tokenizer):
  """The windows that this repository's code makes."""
  return squad.iterate_features(
    examples, tokenizer, MAX_SEQ_LENGTH, DOC_STRIDE, MAX_QUERY_LENGTH, True
  )


def plain(examples, tokenizer):
  """The same, question by question, each from the start."""
  unique_id = squad.FIRST_UNIQUE_ID
  for index, example in enumerate(examples):
    query = tokenizer.tokenize(example.question_text)
    if len(query) > MAX_QUERY_LENGTH:
      query = query[:MAX_QUERY_LENGTH]
    tokens, words, starts = [], [], []
    for number, word in enumerate(example.doc_tokens):
      starts.append(len(tokens))
      for piece in tokenizer.tokenize(word):
        words.append(number)
        tokens.append(piece)
    answer = plain_answer(example, tokens, starts, tokenizer)
    room = MAX_SEQ_LENGTH - len(query) - 3
    spans = plain_spans(len(tokens), room)
    for number in range(len(spans)):
      features = plain_window(query, tokens, words, spans, number, tokenizer)
      features.unique_id = unique_id
      features.example_index = index
      features.is_impossible = example.is_impossible
      start, length = spans[number]
      features.cut_pieces = start - starts[words[start]]
      if answer[0] >= start and answer[1] < start + length:
        features.start_position = answer[0] - start + len(query) + 2
        features.end_position = answer[1] - start + len(query) + 2
      else:
        features.start_position = features.end_position = 0
      unique_id += 1
      yield features


def plain_answer(example, tokens, starts, tokenizer):
  first = starts[example.start_position]
  last = len(tokens) - 1
  if example.end_position < len(starts) - 1:
    last = starts[example.end_position + 1] - 1
  wanted = " ".join(tokenizer.tokenize(example.orig_answer_text))
  for start in range(first, last + 1):
    for end in range(last, start - 1, -1):
      if " ".join(tokens[start : end + 1]) == wanted:
        return start, end
  return first, last


def plain_spans(size, room):
  """(start, length) of each window."""
  spans = []
  start = 0
  while start < size:
    length = min(size - start, room)
    spans.append((start, length))
    if start + length == size:
      break
    start += min(length, DOC_STRIDE)
  return spans


def plain_window(query, doc_tokens, words, spans, number, tokenizer):
  tokens, segment_ids = ["[CLS]"], [0]
  for piece in query:
    tokens.append(piece)
    segment_ids.append(0)
  tokens.append("[SEP]")
  segment_ids.append(0)
  word_of, is_max_context = {}, {}
  start, length = spans[number]
  for place in range(start, start + length):
    word_of[len(tokens)] = words[place]
    is_max_context[len(tokens)] = plain_best(spans, place) == number
    tokens.append(doc_tokens[place])
    segment_ids.append(1)
  tokens.append("[SEP]")
  segment_ids.append(1)
  input_ids = tokenizer.convert_tokens_to_ids(tokens)
  input_mask = [1] * len(input_ids)
  while len(input_ids) < MAX_SEQ_LENGTH:
    input_ids.append(0)
    input_mask.append(0)
    segment_ids.append(0)
  return squad.InputFeatures(
    0,
    0,
    number,
    tokens,
    word_of,
    is_max_context,
    input_ids,
    input_mask,
    segment_ids,
  )


def plain_best(spans, place):
  """The number of the window with the most context of a place."""
  best, best_score = None, None
  for number, (start, length) in enumerate(spans):
    end = start + length - 1
    if place < start or place > end:
      continue
    score = min(place - start, end - place) + 0.01 * length
    if best_score is None or score > best_score:
      best, best_score = number, score
  return best


def read(paths):
  """QUESTIONS examples; no two repetitions share a paragraph."""
  repetitions = (
    example
    for _ in itertools.count()
    for path in paths
    for example in squad.read_squad_examples(path, is_training=True)
  )
  return list(itertools.islice(repetitions, QUESTIONS))


def compare(vocab_file, examples, rounds):
  """Both sides by turns, and what they took."""
  times = {ours: [], plain: []}
  for _ in range(rounds):
    for side, values in times.items():
      tokenizer = tokenization.FullTokenizer(vocab_file)
      start = time.perf_counter()
      collections.deque(side(examples, tokenizer), maxlen=0)
      values.append(time.perf_counter() - start)
  sides = (side(examples, tokenizer) for side in times)
  windows = 0
  for one, other in zip(*sides, strict=True):
    assert one == other, f"window {windows} differs"
    windows += 1
  for side, values in times.items():
    median = statistics.median(values)
    print(
      f"{side.__name__:6s} median {median:.3f} s (min {min(values):.3f}, max "
      f"{max(values):.3f}), {len(examples) / median:,.0f} questions/s"
    )
  ratios = [b / a for a, b in zip(*times.values(), strict=True)]
  print(
    f"ratio  median {statistics.median(ratios):.1f} over {rounds} rounds of "
    f"{len(examples):,} questions, {windows:,} windows; all equal"
  )


def main(vocab_file, *paths):
  rounds = ROUNDS
  if paths[-1].isdecimal():
    *paths, rounds = paths
  print(
    machine.describe().replace(f"{os.cpu_count()} cores", "1 core used"),
    flush=True,
  )
  compare(vocab_file, read(paths), int(rounds))


if __name__ == "__main__":
  if len(sys.argv) < 3:
    sys.exit(__doc__)
  main(*sys.argv[1:])
