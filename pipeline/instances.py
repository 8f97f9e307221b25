"""Creates pre-training instances from documents (paper, sections 3.1 and A.2).

An instance is `[CLS] A [SEP] B [SEP]` with some of its word pieces masked. B
follows A in its document, or is drawn from another document.

All random numbers come from one `random.Random`, in the order of the original
code: equal text, settings and seed give the instances of the original.
"""

import bisect
import contextlib
import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tokenization
from errors import UserError, plural
from pipeline import files, records, text_files

_SPECIALS = ("[CLS]", "[SEP]", "[MASK]")

# What SentencePiece puts before the first piece of a word.
_WORD_START = "\u2581"


@dataclasses.dataclass(slots=True)
class TrainingInstance:
  """A row of pre-training data.

  Attributes:
    tokens: n word pieces with [CLS] and [SEP], after masking.
    segment_ids: n numbers, 0 for `[CLS] A [SEP]` and 1 for `B [SEP]`.
    masked_lm_positions: the positions to predict, ascending.
    masked_lm_labels: the original pieces at these positions.
    is_random_next: whether B comes from another document; None without B.
  """

  tokens: list
  segment_ids: list[int]
  masked_lm_positions: list[int]
  masked_lm_labels: list
  is_random_next: bool | None


@dataclasses.dataclass(frozen=True)
class InstanceConfig:
  """How documents become instances.

  Attributes:
    max_seq_length: S, maximum length of an instance with [CLS] and [SEP].
    short_seq_prob: probability that the instances of a document are shorter
      than S, because shorter sequences also occur in later use.
    masked_lm_prob: fraction of the pieces to predict.
    max_predictions_per_seq: P, maximum number of predictions; 0 masks nothing.
    dupe_factor: passes over the documents, each with different masks.
    do_whole_word_mask: mask either all pieces of a word or none.
    next_sentence_prediction: create pairs of texts instead of single texts.

  Raises:
    UserError: S has too little room for text.
  """

  max_seq_length: int
  short_seq_prob: float
  masked_lm_prob: float
  max_predictions_per_seq: int
  dupe_factor: int = 1
  do_whole_word_mask: bool = False
  next_sentence_prediction: bool = True

  def __post_init__(self):
    shortest = self.max_seq_length - self.room + 2
    if self.max_seq_length < shortest:
      raise UserError(
        f"--max_seq_length={self.max_seq_length} leaves too little room for "
        f"text; pass {shortest} or more"
      )

  @property
  def room(self) -> int:
    """Maximum number of pieces beside [CLS] and [SEP]."""
    return self.max_seq_length - (3 if self.next_sentence_prediction else 2)

  @property
  def min_documents(self) -> int:
    """Minimum number of documents; random next sentences need two."""
    return 2 if self.next_sentence_prediction else 1

  def check_documents(self, count: int, source: str = "the input") -> None:
    """Raises UserError if there are too few documents for instances."""
    if count < self.min_documents:
      raise UserError(
        f"{source} has {plural(count, 'document')} with text that the "
        f"tokenizer keeps, fewer than {self.min_documents}; separate documents "
        f"by empty lines, raise --shard_mb if it is set, or pass "
        f"--next_sentence_prediction=false"
      )


class Document(NamedTuple):
  """The pieces of a document, and the start of each sentence, and the end."""

  pieces: list
  starts: list[int]

  @classmethod
  def of(cls, sentences: Sequence[Sequence]) -> "Document":
    """A Document from lists of pieces, or the Document itself."""
    if isinstance(sentences, Document):
      return sentences
    starts = itertools.accumulate(map(len, sentences), initial=0)
    return cls(list(itertools.chain.from_iterable(sentences)), list(starts))


def read_documents(
  lines: Iterable[str], tokenize: Callable[[str], list]
) -> list[Document]:
  """The documents of lines of text, which are separated by blank lines.

  Sentences and documents without pieces are omitted.
  """
  documents = []
  pieces, starts = [], [0]
  for line in itertools.chain(lines, [""]):
    line = line.strip()
    if line:
      pieces += tokenize(line)
      if len(pieces) > starts[-1]:
        starts.append(len(pieces))
    elif pieces:
      documents.append(Document(pieces, starts))
      pieces, starts = [], [0]
  return documents


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
    input_files: text files, or gzip files (.gz) of text. They are read as one
      text: the end of a file does not end a document.
    tokenizer: splits lines into word pieces.
    rng: the source of random numbers.
    others: see `InstanceConfig`.

  Raises:
    UserError: a file cannot be read, there are too few documents, or the
      vocabulary lacks a special piece.
  """
  config = InstanceConfig(
    max_seq_length,
    short_seq_prob,
    masked_lm_prob,
    max_predictions_per_seq,
    dupe_factor,
    do_whole_word_mask,
    next_sentence_prediction,
  )
  lines = itertools.chain.from_iterable(map(text_files.read_lines, input_files))
  documents = read_documents(lines, tokenizer.tokenize)
  maker = InstanceMaker.for_tokenizer(tokenizer, config, rng)
  instances = list(maker.iterate(documents))
  shuffle(instances, rng)
  return instances


def create_instances_from_document(
  all_documents: Sequence[Sequence[Sequence[str]]],
  document_index: int,
  max_seq_length: int,
  short_seq_prob: float,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence[str],
  rng: random.Random,
  continuations: frozenset[str] = frozenset(),
  next_sentence_prediction: bool = True,
) -> list[TrainingInstance]:
  """The instances of one pass over a document, in order.

  Args:
    all_documents: lists of sentences, which are lists of word pieces.
    document_index: the document. Random next sentences come from the others.
    vocab_words: the pieces that random replacements are drawn from.
    rng: the source of random numbers.
    continuations: the pieces that continue a word, to mask whole words.
    others: see `InstanceConfig`.

  Raises:
    UserError: there are too few documents, or too little room for text.
  """
  config = InstanceConfig(
    max_seq_length,
    short_seq_prob,
    masked_lm_prob,
    max_predictions_per_seq,
    next_sentence_prediction=next_sentence_prediction,
  )
  config.check_documents(len(all_documents))
  maker = InstanceMaker(config, rng, vocab_words, continuations)
  return list(maker.from_document(all_documents, document_index))


def create_masked_lm_predictions(
  tokens: Sequence[str],
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence[str],
  rng: random.Random,
  continuations: frozenset[str] = frozenset(),
) -> tuple[list[str], list[int], list[str]]:
  """Chooses and masks the pieces to predict (paper, section 3.1).

  80 % of them become [MASK], 10 % a random piece, and 10 % keep their piece,
  because [MASK] never occurs when the model is used later.

  Args:
    tokens: the pieces of an instance. [CLS] and [SEP] are never chosen.
    vocab_words: the pieces that random replacements are drawn from.
    rng: the source of random numbers.
    continuations: the pieces that continue a word, to mask whole words. A word
      that exceeds the number of predictions left is skipped.
    others: see `InstanceConfig`.

  Returns:
    The pieces after masking, the chosen positions in ascending order, and the
    original pieces at these positions.
  """
  config = InstanceConfig(
    len(tokens) + 5, 0, masked_lm_prob, max_predictions_per_seq
  )
  output = list(tokens)
  candidates = [i for i, t in enumerate(tokens) if t not in _SPECIALS[:2]]
  maker = InstanceMaker(config, rng, vocab_words, continuations)
  return output, *maker.mask(output, candidates)


def truncate_seq_pair(
  tokens_a: list[str],
  tokens_b: list[str],
  max_num_tokens: int,
  rng: random.Random,
) -> None:
  """Shortens two lists in place until they hold `max_num_tokens` together.

  Pieces are removed from the longer list, and from B on a tie; randomly from
  its start or its end, so that neither end of a text is favoured.
  """
  cuts = _truncation(len(tokens_a), len(tokens_b), max_num_tokens, rng)
  for tokens, (start, end) in zip((tokens_a, tokens_b), cuts, strict=True):
    tokens[:] = tokens[start : len(tokens) - end]


class InstanceMaker:
  """Creates instances from documents.

  Pieces are str, or any objects that represent them.

  Args:
    config: an InstanceConfig.
    rng: the source of random numbers.
    words: the pieces that random replacements are drawn from.
    continuations: the pieces that continue a word, to mask whole words.
    specials: the pieces for [CLS], [SEP] and [MASK].
  """

  def __init__(
    self,
    config: InstanceConfig,
    rng: random.Random,
    words: Sequence,
    continuations: frozenset = frozenset(),
    specials: Sequence = _SPECIALS,
  ):
    self._config = config
    self._rng = rng
    self._words = words
    self._continuations = continuations
    self._cls, self._sep, self._mask = specials

  @classmethod
  def for_tokenizer(
    cls,
    tokenizer: tokenization.FullTokenizer,
    config: InstanceConfig,
    rng: random.Random,
    encode: Callable[[str], object] = str,
  ) -> "InstanceMaker":
    """A maker for pieces of a tokenizer, represented by `encode(piece)`.

    Raises:
      UserError: the vocabulary lacks a special piece.
    """
    for special in (
      _SPECIALS if config.max_predictions_per_seq else _SPECIALS[:2]
    ):
      if special not in tokenizer.vocab:
        raise UserError(
          f"the vocabulary has no piece {special}; add it, or pass the "
          f"vocabulary of a released model"
        )
    continuations = frozenset()
    if config.do_whole_word_mask:
      continuations = frozenset(map(encode, word_continuations(tokenizer)))
    words = [encode(piece) for piece in tokenizer.vocab]
    return cls(config, rng, words, continuations, [*map(encode, _SPECIALS)])

  def iterate(
    self,
    documents: Iterable[Document],
    document_done: Callable[[], object] = lambda: None,
  ) -> Iterator[TrainingInstance]:
    """Yields the instances of all passes over the documents, in random order.

    Calls `document_done` after each document of each pass.

    Raises:
      UserError: there are too few documents.
    """
    documents = list(documents)
    self._config.check_documents(len(documents))
    shuffle(documents, self._rng)
    for _ in range(self._config.dupe_factor):
      for index in range(len(documents)):
        yield from self.from_document(documents, index)
        document_done()

  def from_document(
    self, documents: Sequence, index: int
  ) -> Iterator[TrainingInstance]:
    """Yields the instances of one pass over a document."""
    target = room = self._config.room
    if self._rng.random() < self._config.short_seq_prob:
      target = self._rng.randint(2, room)
    is_paired = self._config.next_sentence_prediction
    texts = self._pairs if is_paired else self._single_texts
    for text_a, text_b, is_random_next in texts(documents, index, target):
      tokens = [self._cls, *text_a, self._sep]
      segment_ids = [0] * len(tokens)
      candidates = [*range(1, len(tokens) - 1)]
      if text_b:
        candidates += range(len(tokens), len(tokens) + len(text_b))
        tokens += text_b
        tokens.append(self._sep)
        segment_ids += [1] * (len(text_b) + 1)
      masked = self.mask(tokens, candidates)
      yield TrainingInstance(tokens, segment_ids, *masked, is_random_next)

  def _pairs(self, documents, index, target):
    """Yields text A, text B, and whether B is random.

    A chunk of whole sentences that reaches the target length is split between
    two of them into A and B. If B is replaced by a random text, the next chunk
    starts with the replaced sentences.
    """
    rng, room = self._rng, self._config.room
    pieces, starts = Document.of(documents[index])
    size = len(starts) - 1
    first = 0
    while first < size:
      start = starts[first]
      end = bisect.bisect_left(starts, start + target, first + 1, size)
      middle = first + 1
      if end > middle:
        middle += _random_below(end - middle, rng)
      stop = starts[middle]
      pieces_b, start_b, stop_b = pieces, stop, starts[end]
      is_random_next = end == first + 1 or rng.random() < 0.5
      if is_random_next:
        pieces_b, start_b, stop_b = self._random_next(
          documents, index, target - (stop - start)
        )
      cut_a, cut_b = _truncation(stop - start, stop_b - start_b, room, rng)
      yield (
        pieces[start + cut_a[0] : stop - cut_a[1]],
        pieces_b[start_b + cut_b[0] : stop_b - cut_b[1]],
        is_random_next,
      )
      first = middle if is_random_next else end

  def _random_next(self, documents, index, wanted):
    """Consecutive sentences of another document, starting at a random one.

    They have at least `wanted` pieces, unless the document ends before.

    Returns:
      The pieces of the document, and where the sentences start and stop.
    """
    other = index
    # The original gives up after ten draws, and takes B from A's own document.
    while other == index:
      other = _random_below(len(documents), self._rng)
    pieces, starts = Document.of(documents[other])
    size = len(starts) - 1
    first = _random_below(size, self._rng)
    end = bisect.bisect_left(starts, starts[first] + wanted, first + 1, size)
    return pieces, starts[first], starts[end]

  def _single_texts(self, documents, index, target):
    """Yields text A, no text B, and None.

    A has as many whole sentences as fit the target, or a single longer one. A
    sentence longer than the room is split.
    """
    room = self._config.room
    pieces, starts = Document.of(documents[index])
    first = 0
    while first < len(starts) - 1:
      start = starts[first]
      first = max(first + 1, bisect.bisect_right(starts, start + target) - 1)
      stop = starts[first]
      for begin in range(start, stop, room):
        yield pieces[begin : min(begin + room, stop)], [], None

  def mask(self, tokens: list, candidates: list[int]) -> tuple[list[int], list]:
    """Masks some of the candidate positions in place.

    Returns:
      The positions, ascending, and the original pieces there.
    """
    limit = self._config.max_predictions_per_seq
    if not limit:
      return [], []
    wanted = min(
      limit, max(1, round(len(tokens) * self._config.masked_lm_prob))
    )
    if self._continuations:
      candidates = self._whole_words(tokens, candidates, wanted)
    else:
      shuffle(candidates, self._rng)
    chosen = candidates[:wanted]
    positions = sorted(chosen)
    labels = [tokens[position] for position in positions]
    draw, mask = self._rng.random, self._mask
    for position in chosen:
      if draw() < 0.8:
        tokens[position] = mask
      elif draw() >= 0.5:
        index = _random_below(len(self._words), self._rng)
        tokens[position] = self._words[index]
    return positions, labels

  def _whole_words(self, tokens, candidates, wanted):
    """At most `wanted` positions of random whole words."""
    words = []
    for position in candidates:
      # As in the original, a continuation at the start of a text belongs to the
      # word before it, even across [SEP].
      if words and tokens[position] in self._continuations:
        words[-1].append(position)
      else:
        words.append([position])
    shuffle(words, self._rng)
    chosen = []
    for word in words:
      if len(chosen) + len(word) <= wanted:
        chosen += word
    return chosen


def word_continuations(tokenizer: tokenization.FullTokenizer) -> frozenset[str]:
  """The pieces of a vocabulary that continue a word."""
  if not isinstance(
    tokenizer.wordpiece_tokenizer, tokenization.SentencePieceTokenizer
  ):
    return frozenset(p for p in tokenizer.vocab if p.startswith("##"))
  return frozenset(
    piece
    for piece in tokenizer.vocab
    if not piece.startswith(_WORD_START) and not re.fullmatch(r"\[\w+\]", piece)
  )


def _truncation(size_a, size_b, room, rng):
  """How many pieces A and B lose at their start and end, to fit the room."""
  excess = size_a + size_b - room
  if excess <= 0:
    return (0, 0), (0, 0)
  draw = rng.random
  from_start = [draw() < 0.5 for _ in range(excess)]
  # The longer text is cut until both are equally long. Then they alternate.
  longer = from_start[: abs(size_a - size_b)]
  rest = from_start[len(longer) :]
  lost_a, lost_b = rest[1::2], rest[::2]
  if size_a > size_b:
    lost_a += longer
  else:
    lost_b += longer
  cut_a, cut_b = sum(lost_a), sum(lost_b)
  return (cut_a, len(lost_a) - cut_a), (cut_b, len(lost_b) - cut_b)


def _random_below(limit, rng):
  """`rng.randrange(limit)`: the same draws and result in less time."""
  bits = limit.bit_length()
  drawn = rng.getrandbits(bits)
  while drawn >= limit:
    drawn = rng.getrandbits(bits)
  return drawn


def shuffle(items: list, rng: random.Random) -> None:
  """`rng.shuffle(items)`: the same draws and order in half the time.

  From the last item to the second, each is swapped with a random one of those
  up to itself. To choose one of n, `random.Random` draws as many bits as n has
  until they are less than n.
  """
  getrandbits = rng.getrandbits
  last = len(items) - 1
  for bits in range(len(items).bit_length(), 1, -1):
    # The first index for which n has this number of bits.
    first = (1 << bits - 1) - 1
    for index in range(last, first - 1, -1):
      other = getrandbits(bits)
      while other > index:
        other = getrandbits(bits)
      items[index], items[other] = items[other], items[index]
    last = first - 1


def feature_spec(
  max_seq_length: int,
  max_predictions_per_seq: int,
  next_sentence_prediction: bool = True,
) -> dict[str, records.Feature]:
  """The spec of a record: sequences [S], predictions [P], next sentence [1].

  Predictions are omitted if P is 0.
  """
  sequence = records.sequence_feature(max_seq_length)
  spec = dict.fromkeys(records.SEQUENCES, sequence)
  if max_predictions_per_seq:
    shape = (max_predictions_per_seq,)
    spec["masked_lm_positions"] = records.Feature(shape)
    spec["masked_lm_ids"] = records.Feature(shape)
    spec["masked_lm_weights"] = records.Feature(shape, "float32")
  if next_sentence_prediction:
    spec["next_sentence_labels"] = records.Feature((1,))
  return spec


def encoded_ids(vocab: Mapping[str, int]) -> dict[str, bytes]:
  """Each piece with its id as records encode it."""
  return {piece: records.varint(index) for piece, index in vocab.items()}


def encode_instance(
  instance: TrainingInstance, max_seq_length: int, max_predictions_per_seq: int
) -> bytes:
  """An instance as a serialized `tf.train.Example` of `feature_spec`.

  Sequences and predictions are padded with 0; the weight of padding is 0.

  Args:
    instance: a TrainingInstance whose pieces are `encoded_ids`.
    max_seq_length: S.
    max_predictions_per_seq: P.

  Raises:
    ValueError: the instance has more than S pieces or P predictions.
  """
  size, count = len(instance.tokens), len(instance.masked_lm_positions)
  feature = records.encode_feature
  # A number below 128 takes one byte.
  padding = bytes(max_seq_length - size)
  features = [
    feature("input_ids", b"".join(instance.tokens) + padding),
    feature("input_mask", b"\1" * size + padding),
  ]
  if max_predictions_per_seq:
    unused = bytes(max_predictions_per_seq - count)
    positions = records.encode_ints(instance.masked_lm_positions)
    weights = records.encode_floats((1.0,)) * count + unused * 4
    features += [
      feature("masked_lm_ids", b"".join(instance.masked_lm_labels) + unused),
      feature("masked_lm_positions", positions + unused),
      feature("masked_lm_weights", weights, is_float=True),
    ]
  if instance.is_random_next is not None:
    label = bytes([instance.is_random_next])
    features.append(feature("next_sentence_labels", label))
  segment_ids = bytes(instance.segment_ids) + padding
  features.append(feature("segment_ids", segment_ids))
  return records.encode_example(features)


def write_instance_to_example_files(
  instances: Iterable[TrainingInstance],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
  max_predictions_per_seq: int,
  output_files: Sequence[str],
) -> int:
  """Writes instances to TFRecord files, one to each in turn.

  The files appear whole at the end, or not at all after an error.

  Returns:
    The number of instances.
  """
  ids = encoded_ids(tokenizer.vocab)
  count = 0
  with contextlib.ExitStack() as stack:
    writers = []
    for path in output_files:
      partial = stack.enter_context(files.atomic_write(path))
      writers.append(stack.enter_context(files.open_file(partial, "wb")))
    for instance, writer in zip(instances, itertools.cycle(writers)):
      encoded = dataclasses.replace(
        instance,
        tokens=[ids[token] for token in instance.tokens],
        masked_lm_labels=[ids[label] for label in instance.masked_lm_labels],
      )
      record = encode_instance(encoded, max_seq_length, max_predictions_per_seq)
      writer.write(records.framed(record))
      count += 1
  return count
