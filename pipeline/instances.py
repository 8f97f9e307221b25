"""Pre-training instances from documents (paper, sections 3.1 and A.2).

    rng = random.Random(12345)
    instances = create_training_instances(
      ["wiki.txt"], tokenizer, max_seq_length=128, dupe_factor=10,
      short_seq_prob=0.1, masked_lm_prob=0.15, max_predictions_per_seq=20,
      rng=rng)
    write_instance_to_example_files(instances, tokenizer, 128, 20, [output])

Input text has one sentence per line and an empty line between documents. An
instance is `[CLS] A [SEP] B [SEP]` with some of its word pieces masked. B
follows A in its document, or is drawn from another document.

All random numbers come from one `random.Random`, in the order of the original
code: equal text, options and seed give the instances of the original.
"""

import bisect
import contextlib
import dataclasses
import itertools
import random
import re
from collections.abc import (
  Callable,
  Container,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import Any, NamedTuple

import tokenization
from errors import UserError
from pipeline import files, records, text_files

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
  segment_ids: Sequence[int]
  masked_lm_positions: list[int]
  masked_lm_labels: list
  is_random_next: bool | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceConfig:
  """How documents become instances.

  Attributes:
    max_seq_length: S, maximum length of an instance with [CLS] and [SEP].
    short_seq_prob: probability that the instances of a document are shorter
      than S, which makes the lengths of pre-training resemble later use.
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
    if self.room < 2:
      raise UserError(
        f"--max_seq_length={self.max_seq_length} leaves too little room for "
        f"text; pass {self.max_seq_length - self.room + 2} or more"
      )

  @property
  def room(self) -> int:
    """Maximum number of pieces beside [CLS] and [SEP]."""
    return self.max_seq_length - (3 if self.next_sentence_prediction else 2)

  @property
  def min_documents(self) -> int:
    """Minimum number of documents: random next sentences need two."""
    return 2 if self.next_sentence_prediction else 1

  def check_documents(self, count: int, source: str = "the input") -> None:
    """Raises UserError if there are too few documents to create instances."""
    if not count:
      raise UserError(
        f"{source} has no text that the tokenizer keeps; pass files with one "
        f"sentence per line and an empty line between documents"
      )
    if count < self.min_documents:
      raise UserError(
        f"{source} has only 1 document, but random next sentences come from "
        f"another one; separate documents by empty lines, raise --shard_mb if "
        f"it is set, or pass --next_sentence_prediction=false"
      )


class Document(NamedTuple):
  """The word pieces of a document.

  Attributes:
    pieces: the pieces of all sentences.
    starts: the index in `pieces` where each sentence starts, and the end.
  """

  pieces: list
  starts: list[int]

  def encoded(self, ids: Mapping[str, bytes]) -> "Document":
    """The same document with `encoded_ids` as pieces."""
    return Document(list(map(ids.__getitem__, self.pieces)), self.starts)


class Pieces(NamedTuple):
  """The vocabulary from which instances are made.

  Pieces are str, or whatever else documents are made of.

  Attributes:
    words: the pieces that random replacements are drawn from.
    continuations: the pieces that continue a word, for whole word masking.
    cls, sep, mask: the special pieces.
    occur_in_text: whether [CLS] and [SEP] may be pieces of text.
  """

  words: Sequence
  continuations: Container = ()
  cls: Any = "[CLS]"
  sep: Any = "[SEP]"
  mask: Any = "[MASK]"
  occur_in_text: bool = True

  def encoded(self, ids: Mapping[str, bytes]) -> "Pieces":
    """The same vocabulary with `encoded_ids` as pieces."""
    return Pieces(
      [ids[word] for word in self.words],
      frozenset(ids[piece] for piece in self.continuations),
      *map(ids.get, (self.cls, self.sep, self.mask)),
      self.occur_in_text,
    )

  def maskable(self, tokens: Sequence, positions: Iterable[int]) -> list[int]:
    """The positions that hold neither [CLS] nor [SEP]."""
    ends = {self.cls, self.sep}
    return [i for i in positions if tokens[i] not in ends]


def pieces_of(
  tokenizer: tokenization.FullTokenizer, config: InstanceConfig
) -> Pieces:
  """The vocabulary of a tokenizer.

  Raises:
    UserError: it lacks a special piece.
  """
  for special in ("[CLS]", "[SEP]", "[MASK]"):
    is_needed = special != "[MASK]" or config.max_predictions_per_seq
    if is_needed and special not in tokenizer.vocab:
      raise UserError(
        f"the vocabulary has no piece {special}; add it, or pass the "
        f"vocabulary of a released model"
      )
  continuations = ()
  if config.do_whole_word_mask:
    continuations = word_continuations(tokenizer)
  return Pieces(
    list(tokenizer.vocab),
    continuations,
    # BasicTokenizer splits text at brackets.
    occur_in_text=_is_sentencepiece(tokenizer),
  )


def _is_sentencepiece(tokenizer):
  return isinstance(
    tokenizer.wordpiece_tokenizer, tokenization.SentencePieceTokenizer
  )


def word_continuations(tokenizer: tokenization.FullTokenizer) -> frozenset[str]:
  """The pieces of a vocabulary that continue a word."""
  if not _is_sentencepiece(tokenizer):
    return frozenset(p for p in tokenizer.vocab if p.startswith("##"))
  return frozenset(
    piece
    for piece in tokenizer.vocab
    if not piece.startswith(_WORD_START) and not re.fullmatch(r"\[\w+\]", piece)
  )


def encoded_ids(vocab: Mapping[str, int]) -> dict[str, bytes]:
  """Each piece with its id as records encode it."""
  return {piece: records.varint(index) for piece, index in vocab.items()}


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
    tokenizer: splits a line into word pieces.
    rng: the source of random numbers.
    others: see `InstanceConfig`.

  Raises:
    UserError: a file cannot be read, there are too few documents, or the
      vocabulary lacks a special piece.
  """
  config = InstanceConfig(
    max_seq_length=max_seq_length,
    short_seq_prob=short_seq_prob,
    masked_lm_prob=masked_lm_prob,
    max_predictions_per_seq=max_predictions_per_seq,
    dupe_factor=dupe_factor,
    do_whole_word_mask=do_whole_word_mask,
    next_sentence_prediction=next_sentence_prediction,
  )
  lines = itertools.chain.from_iterable(map(text_files.read_lines, input_files))
  documents = read_documents(lines, tokenizer.tokenize)
  pieces = pieces_of(tokenizer, config)
  instances = list(iterate_instances(documents, config, pieces, rng))
  for instance in instances:
    instance.segment_ids = list(instance.segment_ids)
  shuffle(instances, rng)
  return instances


def read_documents(
  lines: Iterable[str], tokenize: Callable[[str], list]
) -> list[Document]:
  """The documents of lines of text; a blank line ends a document.

  Sentences and documents without pieces are left out.
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


def iterate_instances(
  documents: Sequence[Document],
  config: InstanceConfig,
  pieces: Pieces,
  rng: random.Random,
  document_done: Callable[[], None] = lambda: None,
) -> Iterator[TrainingInstance]:
  """Yields the instances of all passes, in the order of creation.

  Args:
    documents: as from `read_documents`; they are shuffled once, in a copy.
    config: an InstanceConfig.
    pieces: the vocabulary of the documents.
    rng: the source of random numbers.
    document_done: called after each document of each pass.

  Raises:
    UserError: there are too few documents.
  """
  config.check_documents(len(documents))
  documents = list(documents)
  shuffle(documents, rng)
  for _ in range(config.dupe_factor):
    for index in range(len(documents)):
      yield from _instances_of_document(documents, index, config, pieces, rng)
      document_done()


def create_instances_from_document(
  all_documents: Sequence[Sequence[Sequence[str]]],
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
  """The instances of one pass over a document, in order.

  Args:
    all_documents: lists of sentences, which are lists of word pieces.
    document_index: the document. Random next sentences come from the others.
    vocab_words: the pieces that random replacements are drawn from.
    rng: the source of random numbers.
    continuations: the pieces that continue a word, to mask whole words; empty
      to mask single pieces.
    others: see `InstanceConfig`.

  Raises:
    UserError: there are too few documents, or too little room for text.
  """
  config = InstanceConfig(
    max_seq_length=max_seq_length,
    short_seq_prob=short_seq_prob,
    masked_lm_prob=masked_lm_prob,
    max_predictions_per_seq=max_predictions_per_seq,
    next_sentence_prediction=next_sentence_prediction,
  )
  config.check_documents(len(all_documents))
  instances = list(
    _instances_of_document(
      _Flattened(all_documents),
      document_index,
      config,
      Pieces(vocab_words, continuations),
      rng,
    )
  )
  for instance in instances:
    instance.segment_ids = list(instance.segment_ids)
  return instances


class _Flattened:
  """Lists of sentences as a sequence of Documents, converted when needed."""

  def __init__(self, documents):
    self._documents = documents

  def __len__(self):
    return len(self._documents)

  def __getitem__(self, index):
    sentences = self._documents[index]
    pieces = list(itertools.chain.from_iterable(sentences))
    return Document(
      pieces, list(itertools.accumulate(map(len, sentences), initial=0))
    )


def _instances_of_document(documents, index, config, pieces, rng):
  """Yields the instances of one pass; `segment_ids` are bytes."""
  is_short = rng.random() < config.short_seq_prob
  target = rng.randint(2, config.room) if is_short else config.room
  texts = _pairs if config.next_sentence_prediction else _single_texts
  for text_a, text_b, is_random_next in texts(
    documents, index, config.room, target, rng
  ):
    tokens = [pieces.cls, *text_a, pieces.sep]
    segment_ids = bytes(len(tokens))
    candidates = [*range(1, len(tokens) - 1)]
    if text_b:
      candidates += range(len(tokens), len(tokens) + len(text_b))
      tokens += text_b
      tokens.append(pieces.sep)
      segment_ids += b"\1" * (len(text_b) + 1)
    if pieces.occur_in_text:
      candidates = pieces.maskable(tokens, candidates)
    masked = _mask(
      tokens,
      candidates,
      config.masked_lm_prob,
      config.max_predictions_per_seq,
      pieces,
      rng,
    )
    yield TrainingInstance(tokens, segment_ids, *masked, is_random_next)


def _pairs(documents, index, room, target, rng):
  """Yields text A, text B, and whether B is random.

  A chunk of whole sentences that reaches the target length is split between
  two of them into A and B. If B is replaced by a random text, the next chunk
  starts with the replaced sentences.
  """
  pieces, starts = documents[index]
  size = len(starts) - 1
  first = 0
  while first < size:
    start = starts[first]
    end = bisect.bisect_left(starts, start + target, first + 1, size)
    count = end - first
    middle = first + 1
    if count > 1:
      middle += _random_below(count - 1, rng)
    stop = starts[middle]
    is_random_next = count == 1 or rng.random() < 0.5
    if is_random_next:
      text_b = _random_next(documents, index, target - (stop - start), rng)
    else:
      text_b = pieces, stop, starts[end]
    pieces_b, start_b, stop_b = text_b
    cut_a, cut_b = _truncation(stop - start, stop_b - start_b, room, rng)
    yield (
      pieces[start + cut_a[0] : stop - cut_a[1]],
      pieces_b[start_b + cut_b[0] : stop_b - cut_b[1]],
      is_random_next,
    )
    first = middle if is_random_next else end


def _random_next(documents, index, wanted, rng):
  """Consecutive sentences of another document, from a random one.

  They are as many as have `wanted` pieces, at least one, at most to the end of
  the document.

  Returns:
    The pieces of the document, and where the sentences start and stop.
  """
  other = index
  # The original gives up after ten draws, and takes B from A's own document.
  while other == index:
    other = _random_below(len(documents), rng)
  pieces, starts = documents[other]
  size = len(starts) - 1
  first = _random_below(size, rng)
  end = bisect.bisect_left(starts, starts[first] + wanted, first + 1, size)
  return pieces, starts[first], starts[end]


def _single_texts(documents, index, room, target, rng):
  """Yields text A, an empty text B, and None.

  A has as many whole sentences as fit the target, or a single longer one. A
  sentence longer than the room is split.
  """
  pieces, starts = documents[index]
  first = 0
  while first < len(starts) - 1:
    start = starts[first]
    first = max(first + 1, bisect.bisect_right(starts, start + target) - 1)
    stop = starts[first]
    for begin in range(start, stop, room):
      yield pieces[begin : min(begin + room, stop)], [], None


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


def _truncation(size_a, size_b, room, rng):
  """How many pieces A and B lose at their (start, end)."""
  excess = size_a + size_b - room
  if excess <= 0:
    return (0, 0), (0, 0)
  draw = rng.random
  from_start = [draw() < 0.5 for _ in range(excess)]
  # The longer text loses all until both are equally long. Then they alternate.
  longer = from_start[: abs(size_a - size_b)]
  rest = from_start[len(longer) :]
  lost_a, lost_b = rest[1::2], rest[::2]
  if size_a > size_b:
    lost_a += longer
  else:
    lost_b += longer
  cut_a, cut_b = sum(lost_a), sum(lost_b)
  return (cut_a, len(lost_a) - cut_a), (cut_b, len(lost_b) - cut_b)


def create_masked_lm_predictions(
  tokens: Sequence[str],
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence[str],
  rng: random.Random,
  continuations: Container[str] = (),
) -> tuple[list[str], list[int], list[str]]:
  """Chooses and masks the pieces to predict (paper, section 3.1).

  80 % of them become [MASK], 10 % a random piece, and 10 % keep their piece,
  because [MASK] never occurs when the model is used later.

  Args:
    tokens: the pieces of an instance. [CLS] and [SEP] are never chosen.
    masked_lm_prob: the fraction of `tokens` to predict; at least one is.
    max_predictions_per_seq: maximum number of predictions; 0 masks nothing.
    vocab_words: the pieces that random replacements are drawn from.
    rng: the source of random numbers.
    continuations: pieces that are masked together with the piece before them.
      A word that exceeds the number of predictions left is skipped.

  Returns:
    The pieces after masking, the chosen positions in ascending order, and the
    original pieces at these positions.
  """
  output = list(tokens)
  pieces = Pieces(vocab_words, continuations)
  positions, labels = _mask(
    output,
    pieces.maskable(tokens, range(len(tokens))),
    masked_lm_prob,
    max_predictions_per_seq,
    pieces,
    rng,
  )
  return output, positions, labels


def _mask(
  tokens, candidates, masked_lm_prob, max_predictions_per_seq, pieces, rng
):
  """Masks some of the candidate positions in place.

  Returns:
    The positions, and the original pieces there.
  """
  if not max_predictions_per_seq:
    return [], []
  wanted = min(
    max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob))
  )
  if pieces.continuations:
    words = _words(tokens, candidates, pieces.continuations)
    shuffle(words, rng)
    chosen = []
    for word in words:
      if len(chosen) + len(word) <= wanted:
        chosen += word
  else:
    shuffle(candidates, rng)
    chosen = candidates[:wanted]
  positions = sorted(chosen)
  labels = [tokens[position] for position in positions]
  draw, mask = rng.random, pieces.mask
  for position in chosen:
    if draw() < 0.8:
      tokens[position] = mask
    elif draw() >= 0.5:
      tokens[position] = pieces.words[_random_below(len(pieces.words), rng)]
  return positions, labels


def _words(tokens, positions, continuations):
  """The positions grouped by word."""
  words = []
  for position in positions:
    # As in the original, a continuation at the start of a text belongs to the
    # word before it, even across [SEP].
    if words and tokens[position] in continuations:
      words[-1].append(position)
    else:
      words.append([position])
  return words


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


class InstanceEncoder:
  """Serializes instances as `tf.train.Example` of `feature_spec`.

  Sequences and predictions are padded with 0; the weight of padding is 0. The
  features that depend only on the size of an instance are encoded once.

  Args:
    max_seq_length: S.
    max_predictions_per_seq: P.
  """

  def __init__(self, max_seq_length: int, max_predictions_per_seq: int):
    feature, one = records.encode_feature, records.encode_floats([1.0])
    # A number below 128 takes one byte.
    self._padding = [bytes(n) for n in range(max_seq_length, -1, -1)]
    self._unused = [bytes(n) for n in range(max_predictions_per_seq, -1, -1)]
    self._masks = [
      feature("input_mask", b"\1" * size + padding)
      for size, padding in enumerate(self._padding)
    ]
    self._weights = [
      feature("masked_lm_weights", one * count + unused * 4, is_float=True)
      for count, unused in enumerate(self._unused)
    ]
    self._labels = {
      is_random: feature("next_sentence_labels", bytes([is_random]))
      for is_random in (False, True)
    }
    self._labels[None] = b""

  def __call__(self, instance: TrainingInstance) -> bytes:
    """The record of an instance whose pieces are `encoded_ids`.

    Raises:
      IndexError: the instance has more than S pieces or P predictions.
    """
    head = records.feature_head
    size, count = len(instance.tokens), len(instance.masked_lm_positions)
    padding, unused = self._padding[size], self._unused[count]
    ids = b"".join(instance.tokens) + padding
    parts = [head("input_ids", len(ids)), ids, self._masks[size]]
    if len(self._unused) > 1:
      labels = b"".join(instance.masked_lm_labels) + unused
      positions = records.encode_ints(instance.masked_lm_positions) + unused
      parts += [
        head("masked_lm_ids", len(labels)),
        labels,
        head("masked_lm_positions", len(positions)),
        positions,
        self._weights[count],
      ]
    segment_ids = bytes(instance.segment_ids) + padding
    parts += [
      self._labels[instance.is_random_next],
      head("segment_ids", len(segment_ids)),
      segment_ids,
    ]
    return records.encode_example(parts)


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
  encode = InstanceEncoder(max_seq_length, max_predictions_per_seq)
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
      writer.write(records.framed(encode(encoded)))
      count += 1
  return count
