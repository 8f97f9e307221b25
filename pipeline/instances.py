"""From documents to what BERT is pre-trained on (paper, 3.1 and A.2).

    rng = random.Random(12345)
    instances = create_training_instances(
      ["wiki.txt"], tokenizer, max_seq_length=128, dupe_factor=10,
      short_seq_prob=0.1, masked_lm_prob=0.15, max_predictions_per_seq=20,
      rng=rng)
    write_instance_to_example_files(instances, tokenizer, 128, 20, [output])

Text has one sentence a line and an empty line between documents. An instance is
`[CLS] A [SEP] B [SEP]`, where B follows A in its document or comes from another
one, and some pieces of it are to be predicted.

All chance comes from one `random.Random`, drawn from in the original's order:
equal text, settings and seed give the original's instances.
"""

import contextlib
import dataclasses
import functools
import itertools
import random
import re
import struct
from collections.abc import (
  Callable,
  Container,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)

import tensorflow as tf

import tokenization
from errors import UserError
from pipeline import files, records, text_files

# A sentence is a list of word pieces, a document a list of sentences.
Document = Sequence[Sequence[str]]

_CLS, _SEP, _MASK = "[CLS]", "[SEP]", "[MASK]"
_NEVER_MASKED = frozenset((_CLS, _SEP))

# What SentencePiece puts before the first piece of a word.
_WORD_START = "\u2581"

# The weight of a prediction, as a record holds it.
_ONE = struct.pack("<f", 1)


@dataclasses.dataclass(slots=True)
class TrainingInstance:
  """One row of pre-training data, not yet in ids.

  Attributes:
    tokens: word pieces, masked ones replaced, with [CLS] and [SEP]; n of them.
    segment_ids: n numbers, 0 for [CLS] A [SEP], 1 for B [SEP].
    masked_lm_positions: where a piece is to be predicted, ascending.
    masked_lm_labels: the pieces that stood there.
    is_random_next: whether B comes from another document; None without B.
  """

  tokens: list[str]
  segment_ids: list[int]
  masked_lm_positions: list[int]
  masked_lm_labels: list[str]
  is_random_next: bool | None


def create_training_instances(
  input_files: Iterable[str],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
  dupe_factor: int,
  short_seq_prob: float,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  rng: random.Random,
  do_whole_word_mask: bool = False,
  next_sentence_prediction: bool = True,
) -> list[TrainingInstance]:
  """The instances of text files, shuffled; all of them are held in memory.

  Args:
    input_files: paths of text files, or of gzip files of text (.gz). They are
      read as one text: the end of a file does not end a document.
    tokenizer: cuts a line into word pieces.
    max_seq_length: S, the most pieces of an instance, [CLS] and [SEP] included.
    dupe_factor: how often each document is gone through, with new masks.
    short_seq_prob: how often a document's instances are made shorter than S, so
      that training and later use differ less in length.
    masked_lm_prob: the part of an instance's pieces to be predicted.
    max_predictions_per_seq: P, at most so many; 0 masks nothing.
    rng: where chance comes from.
    do_whole_word_mask: mask all pieces of a word, or none.
    next_sentence_prediction: make pairs A and B; or A alone.

  Raises:
    ValueError: a file cannot be read, or `iterate_instances` raises it.
  """
  lines = itertools.chain.from_iterable(map(text_files.read_lines, input_files))
  instances = list(
    iterate_instances(
      read_documents(lines, tokenizer),
      tokenizer,
      max_seq_length,
      dupe_factor,
      short_seq_prob,
      masked_lm_prob,
      max_predictions_per_seq,
      rng,
      do_whole_word_mask,
      next_sentence_prediction,
    )
  )
  _shuffle(instances, rng)
  return instances


def read_documents(
  lines: Iterable[str], tokenizer: tokenization.FullTokenizer
) -> list[list[list[str]]]:
  """Documents of sentences of word pieces, from lines of text.

  A blank line ends a document. Sentences and documents without pieces are left
  out.
  """
  documents = [[]]
  for line in lines:
    line = line.strip()
    if not line:
      documents.append([])
    elif tokens := tokenizer.tokenize(line):
      documents[-1].append(tokens)
  return [document for document in documents if document]


def iterate_instances(
  documents: Sequence[Document],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
  dupe_factor: int,
  short_seq_prob: float,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  rng: random.Random,
  do_whole_word_mask: bool = False,
  next_sentence_prediction: bool = True,
  document_done: Callable[[], None] = lambda: None,
) -> Iterator[TrainingInstance]:
  """Yields instances as they come: pass by pass, document by document.

  The order of the documents is drawn first; `documents` itself stays as it is.

  Args:
    documents: as from `read_documents`.
    document_done: is called after each document of each pass.
    others: as for `create_training_instances`.

  Raises:
    ValueError: there are too few documents, `max_seq_length` has too little
      room, or the vocabulary lacks a special piece.
  """
  documents = list(documents)
  _check_documents(documents, next_sentence_prediction)
  _check_vocabulary(tokenizer.vocab, max_predictions_per_seq)
  continuations = word_continuations(tokenizer) if do_whole_word_mask else ()
  vocab_words = list(tokenizer.vocab)
  _shuffle(documents, rng)
  for _ in range(dupe_factor):
    for document_index in range(len(documents)):
      yield from create_instances_from_document(
        documents,
        document_index,
        max_seq_length,
        short_seq_prob,
        masked_lm_prob,
        max_predictions_per_seq,
        vocab_words,
        rng,
        continuations,
        next_sentence_prediction,
      )
      document_done()


def _check_documents(documents, next_sentence_prediction):
  if not documents:
    raise UserError(
      "the input holds no text; give a file with one sentence a line and an "
      "empty line between documents"
    )
  if next_sentence_prediction and len(documents) < 2:
    raise UserError(
      "the input holds 1 document, and a random next sentence must come from "
      "another; part documents by empty lines, or pass "
      "--next_sentence_prediction=false"
    )


def _check_vocabulary(vocab, max_predictions_per_seq):
  needed = [_CLS, _SEP, _MASK] if max_predictions_per_seq else [_CLS, _SEP]
  for special in needed:
    if special not in vocab:
      raise UserError(
        f"the vocabulary has no piece {special}; add it, or pass the "
        f"vocabulary of a released model"
      )


def word_continuations(tokenizer: tokenization.FullTokenizer) -> frozenset[str]:
  """The pieces of a vocabulary that go on with a word begun before them."""
  if not isinstance(
    tokenizer.wordpiece_tokenizer, tokenization.SentencePieceTokenizer
  ):
    return frozenset(p for p in tokenizer.vocab if p.startswith("##"))
  return frozenset(
    piece
    for piece in tokenizer.vocab
    if not piece.startswith(_WORD_START) and not re.fullmatch(r"\[\w+\]", piece)
  )


def create_instances_from_document(
  all_documents: Sequence[Document],
  document_index: int,
  max_seq_length: int,
  short_seq_prob: float,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence[str],
  rng: random.Random,
  continuations: Container[str] = (),
  next_sentence_prediction: bool = True,
) -> list[TrainingInstance]:
  """The instances of one pass over one document, in its order.

  Args:
    all_documents: where random next sentences come from, this one among them.
    document_index: which one it is.
    vocab_words: the pieces from which a random one is drawn.
    continuations: the pieces that go on with a word, to mask whole words; if
      empty, each piece is masked by itself.
    others: as for `create_training_instances`.

  Raises:
    ValueError: there are too few documents, or too little room for text.
  """
  _check_documents(all_documents, next_sentence_prediction)
  specials = 3 if next_sentence_prediction else 2
  room = max_seq_length - specials
  if room < 2:
    raise UserError(
      f"--max_seq_length={max_seq_length} leaves too little room for text; "
      f"pass {specials + 2} or more"
    )
  is_short = rng.random() < short_seq_prob
  target = rng.randint(2, room) if is_short else room
  if next_sentence_prediction:
    texts = _pairs(all_documents, document_index, room, target, rng)
  else:
    texts = _packed(all_documents[document_index], room, target)
  instances = []
  for tokens, segment_ids, is_random_next in texts:
    masked = create_masked_lm_predictions(
      tokens,
      masked_lm_prob,
      max_predictions_per_seq,
      vocab_words,
      rng,
      continuations,
    )
    tokens, positions, labels = masked
    instances.append(
      TrainingInstance(tokens, segment_ids, positions, labels, is_random_next)
    )
  return instances


def _pairs(documents, index, room, target, rng):
  """Yields [CLS] A [SEP] B [SEP], its segments, and whether B is random.

  A chunk of whole sentences that fills the target is cut between two of them:
  A, and B, unless that is drawn from another document. What B would have been
  then begins the next chunk.
  """
  document = documents[index]
  start = 0
  while start < len(document):
    end, size = start, 0
    while end < len(document) and size < target:
      size += len(document[end])
      end += 1
    count = end - start
    middle = start + (rng.randint(1, count - 1) if count > 1 else 1)
    tokens_a = _joined(document[start:middle])
    is_random_next = count == 1 or rng.random() < 0.5
    if is_random_next:
      tokens_b = _random_next(documents, index, target - len(tokens_a), rng)
    else:
      tokens_b = _joined(document[middle:end])
    start = middle if is_random_next else end
    truncate_seq_pair(tokens_a, tokens_b, room, rng)
    tokens = [_CLS, *tokens_a, _SEP, *tokens_b, _SEP]
    segment_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
    yield tokens, segment_ids, is_random_next


def _random_next(documents, index, wanted, rng):
  """Sentences from a random place of a random other document on.

  As many as hold `wanted` pieces, at least one, at most to its end.
  """
  other = index
  # The original gives up after ten draws, and takes B from A's own document.
  while other == index:
    other = rng.randint(0, len(documents) - 1)
  document = documents[other]
  tokens = []
  for place in range(rng.randint(0, len(document) - 1), len(document)):
    tokens += document[place]
    if len(tokens) >= wanted:
      break
  return tokens


def _packed(document, room, target):
  """Yields [CLS] A [SEP], its segments, and None.

  A is as many whole sentences as fit the target, or a longer one by itself;
  one that is longer than the room is cut.
  """
  chunk = []
  for sentence in itertools.chain(document, [None]):
    if chunk and (sentence is None or len(chunk) + len(sentence) > target):
      for begin in range(0, len(chunk), room):
        part = chunk[begin : begin + room]
        yield [_CLS, *part, _SEP], [0] * (len(part) + 2), None
      chunk = []
    chunk += sentence or []


def _joined(sentences):
  return list(itertools.chain.from_iterable(sentences))


def truncate_seq_pair(
  tokens_a: list[str],
  tokens_b: list[str],
  max_num_tokens: int,
  rng: random.Random,
) -> None:
  """Shortens two lists in place until they hold `max_num_tokens` together.

  The longer one loses a piece, B where both are as long; the first or the last
  one, by chance, so that neither end of a text is favoured.
  """
  size_a, size_b = len(tokens_a), len(tokens_b)
  start_a = start_b = 0
  while size_a + size_b > max_num_tokens:
    from_start = rng.random() < 0.5
    if size_a > size_b:
      start_a += from_start
      size_a -= 1
    else:
      start_b += from_start
      size_b -= 1
  tokens_a[:] = tokens_a[start_a : start_a + size_a]
  tokens_b[:] = tokens_b[start_b : start_b + size_b]


def create_masked_lm_predictions(
  tokens: Sequence[str],
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence[str],
  rng: random.Random,
  continuations: Container[str] = (),
) -> tuple[list[str], list[int], list[str]]:
  """Chooses the pieces to be predicted, and hides them (paper, 3.1).

  Eight in ten become [MASK]. One becomes a random piece and one stays, as there
  is no [MASK] in what the model is used on later.

  Args:
    tokens: an instance's pieces, with [CLS] and [SEP], which are never chosen.
    masked_lm_prob: the part of them to be predicted; at least one is.
    max_predictions_per_seq: at most so many; 0 leaves `tokens` as they are.
    vocab_words: the pieces from which a random one is drawn.
    rng: where chance comes from.
    continuations: the pieces that stay together with the one before them; a
      word that would be too many is passed over.

  Returns:
    The pieces after hiding; the positions chosen, ascending; what stood there.
  """
  output = list(tokens)
  if not max_predictions_per_seq:
    return output, [], []
  wanted = min(
    max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob))
  )
  chosen = _chosen_positions(tokens, wanted, rng, continuations)
  draw = rng.random
  for position in chosen:
    if draw() < 0.8:
      output[position] = _MASK
    elif draw() >= 0.5:
      output[position] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
  chosen.sort()
  return output, chosen, [tokens[position] for position in chosen]


def _chosen_positions(tokens, wanted, rng, continuations):
  """At most `wanted` positions in the order drawn, those of a word together."""
  places = [i for i, token in enumerate(tokens) if token not in _NEVER_MASKED]
  if not continuations:
    _shuffle(places, rng)
    return places[:wanted]
  words = []
  for place in places:
    # A piece whose word was cut off goes with the word before, over a [SEP]
    # too, as in the original.
    if words and tokens[place] in continuations:
      words[-1].append(place)
    else:
      words.append([place])
  _shuffle(words, rng)
  chosen = []
  for word in words:
    if len(chosen) + len(word) <= wanted:
      chosen += word
  return chosen


def _shuffle(items, rng):
  """`rng.shuffle(items)`: the same draws and the same order, in half the time.

  From the last item to the second, each changes places with one of those up to
  itself. Where that is one of n, `random.Random` draws as many bits as n has,
  until they are less than n.
  """
  getrandbits = rng.getrandbits
  last = len(items) - 1
  for bits in range(len(items).bit_length(), 1, -1):
    # The items for which n has so many bits.
    first = (1 << bits - 1) - 1
    for place in range(last, first - 1, -1):
      other = getrandbits(bits)
      while other > place:
        other = getrandbits(bits)
      items[place], items[other] = items[other], items[place]
    last = first - 1


def feature_spec(
  max_seq_length: int,
  max_predictions_per_seq: int,
  next_sentence_prediction: bool = True,
) -> dict[str, records.Feature]:
  """The spec of a record: sequences [S], predictions [P], next sentence [1].

  Predictions are left out if P is 0.
  """
  spec = {
    name: records.sequence_feature(max_seq_length) for name in records.SEQUENCES
  }
  if max_predictions_per_seq:
    shape = (max_predictions_per_seq,)
    spec["masked_lm_positions"] = records.Feature(shape)
    spec["masked_lm_ids"] = records.Feature(shape)
    spec["masked_lm_weights"] = records.Feature(shape, "float32")
  if next_sentence_prediction:
    spec["next_sentence_labels"] = records.Feature((1,))
  return spec


def encode_instance(
  instance: TrainingInstance,
  vocab: Mapping[str, int],
  max_seq_length: int,
  max_predictions_per_seq: int,
) -> bytes:
  """An instance as a serialized `tf.train.Example` of `feature_spec`.

  Sequences and predictions are filled up with 0, which is their weight then.

  Raises:
    ValueError: the instance has more pieces or predictions than that.
    KeyError: one of its pieces is not in `vocab`.
  """
  size = len(instance.tokens)
  count = len(instance.masked_lm_positions)
  if size > max_seq_length or count > max_predictions_per_seq:
    raise UserError(
      f"an instance of {size} pieces and {count} predictions does not fit "
      f"max_seq_length={max_seq_length} and "
      f"max_predictions_per_seq={max_predictions_per_seq}; raise them"
    )
  encoded = _encoded_ids(vocab)
  # What is less than 128 takes one byte.
  padding = bytes(max_seq_length - size)
  fields = [
    (b"input_ids", b"".join([encoded[t] for t in instance.tokens]) + padding),
    (b"input_mask", b"\1" * size + padding),
  ]
  if max_predictions_per_seq:
    unused = bytes(max_predictions_per_seq - count)
    ids = b"".join([encoded[t] for t in instance.masked_lm_labels])
    places = b"".join([_varint(n) for n in instance.masked_lm_positions])
    fields += [
      (b"masked_lm_ids", ids + unused),
      (b"masked_lm_positions", places + unused),
      (b"masked_lm_weights", _ONE * count + 4 * unused),
    ]
  if instance.is_random_next is not None:
    fields.append((b"next_sentence_labels", bytes([instance.is_random_next])))
  fields.append((b"segment_ids", bytes(instance.segment_ids) + padding))
  features = b"".join(
    [_head(name, len(numbers)) + numbers for name, numbers in fields]
  )
  return b"\n" + _varint(len(features)) + features


# A `tf.train.Example` put together from bytes takes half the time that the
# library takes, and is the same, with the names in alphabetical order. A field
# is a key, the length of what follows, and that.


@functools.lru_cache(2**12)
def _head(name, size):
  """What comes before the `size` bytes of a feature's numbers."""
  list_key = b"\x12" if name == b"masked_lm_weights" else b"\x1a"  # Floats.
  numbers = b"\n" + _varint(size)
  feature = list_key + _varint(len(numbers) + size) + numbers
  name = b"\n" + _varint(len(name)) + name
  value = b"\x12" + _varint(len(feature) + size) + feature
  return b"\n" + _varint(len(name) + len(value) + size) + name + value


@functools.lru_cache(2**12)
def _varint(number):
  """A number's bytes: seven bits in each, the low ones first."""
  if number < 128:
    return bytes([number])
  return bytes([number & 127 | 128]) + _varint(number >> 7)


class _EncodedIds(dict):
  """{piece: the bytes of its id} of a vocabulary, made as needed."""

  def __init__(self, vocab):
    super().__init__()
    self.vocab = vocab

  def __missing__(self, token):
    self[token] = encoded = _varint(self.vocab[token])
    return encoded


_newest_ids = _EncodedIds({})


def _encoded_ids(vocab):
  """The same object for the same vocabulary as last time."""
  global _newest_ids
  if _newest_ids.vocab is not vocab:
    _newest_ids = _EncodedIds(vocab)
  return _newest_ids


def write_instance_to_example_files(
  instances: Iterable[TrainingInstance],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
  max_predictions_per_seq: int,
  output_files: Sequence[str],
) -> int:
  """Writes instances to TFRecord files, one to each in turn.

  The files appear at the end, whole; after an error they do not.

  Returns:
    The number of instances.
  """
  with contextlib.ExitStack() as stack:
    writers = []
    for path in output_files:
      partial = stack.enter_context(files.atomic_write(path))
      writers.append(stack.enter_context(tf.io.TFRecordWriter(partial)))
    count = 0
    for instance, writer in zip(instances, itertools.cycle(writers)):
      writer.write(
        encode_instance(
          instance, tokenizer.vocab, max_seq_length, max_predictions_per_seq
        )
      )
      count += 1
  return count
