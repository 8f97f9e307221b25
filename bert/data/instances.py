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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import tokenization
from bert.data import files, records, sequences, text_files
from bert.errors import UserError

SPECIAL = tokenization.SpecialPieces()


class WholeWords(NamedTuple):
  """How pieces form the words that are masked as a whole, if any."""

  continuations: frozenset = frozenset()  # Pieces that continue the previous
  lone: frozenset = frozenset()  # piece, unless it is one of these.


PIECES = WholeWords()  # Mask pieces independently.

_ONE = records.encode_floats([1.0])


@dataclasses.dataclass(slots=True)
class TrainingInstance:
  """A row of pre-training data."""

  tokens: list  # n word pieces with [CLS] and [SEP], after masking.
  segment_ids: list[int]  # n numbers: 1 for `B [SEP]`, otherwise 0.
  masked_lm_positions: list[int]  # The positions to predict, ascending.
  masked_lm_labels: list  # The original pieces at these positions.
  is_random_next: bool | None  # B is from another document; None without B.
  has_cut_word: bool = False  # Its only predictions are a part of a word.


class Document(NamedTuple):
  """The pieces of a document, the start of each sentence, and the end."""

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
  """The documents in lines, separated by blank lines, without empty ones."""
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


def check_documents(count: int, is_paired: bool, source: str) -> None:
  """Raises UserError for too few documents with text; pairs need two."""
  needed = 2 if is_paired else 1
  if count < needed:
    what, remedy = "no text that the tokenizer keeps", "pass other text"
    if count:
      what = "1 document with text that the tokenizer keeps, fewer than 2"
      remedy = "separate documents by empty lines, pass "
      remedy += "--next_sentence_prediction=false"
    raise UserError(
      f"{source} has {what}; {remedy}, or raise --shard_mb if it is set"
    )


def check_length(
  max_seq_length: int,
  next_sentence_prediction: bool,
  special: tokenization.SpecialPieces = SPECIAL,
) -> int:
  """The room for text beside [CLS] and [SEP]; UserError if it is too small."""
  specials = special.count(2 if next_sentence_prediction else 1)
  if max_seq_length < specials + 2:
    raise UserError(
      f"--max_seq_length={max_seq_length} leaves too little room for text; "
      f"pass {specials + 2} or more"
    )
  return max_seq_length - specials


def vocabulary_settings(
  tokenizer: tokenization.FullTokenizer,
  do_whole_word_mask: bool,
  max_predictions_per_seq: int,
  represent: Callable[[str], object] = str,
) -> dict:
  """Arguments of `create_instances_from_document` for represented pieces."""
  special = tokenizer.special
  has_masks = max_predictions_per_seq > 0
  tokenization.check_special_pieces(tokenizer, has_masks=has_masks)
  words = whole_words(tokenizer) if do_whole_word_mask else PIECES
  cls, sep, mask = map(represent, special[:3])
  return {
    "vocab_words": [represent(piece) for piece in tokenizer.vocab],
    "words": WholeWords(*(frozenset(map(represent, p)) for p in words)),
    "special": special._replace(cls=cls, sep=sep, mask=mask),
  }


def word_continuations(tokenizer: tokenization.FullTokenizer) -> frozenset[str]:
  """The pieces of a vocabulary that continue a word."""
  if tokenizer.splits_words:
    return frozenset(p for p in tokenizer.vocab if p.startswith("##"))
  return tokenizer.wordpiece_tokenizer.continuations()


def whole_words(tokenizer: tokenization.FullTokenizer) -> WholeWords:
  """How pieces form the words that are masked as a whole.

  WordPiece separates Chinese characters and punctuation. In other vocabularies,
  pieces of only such characters are words of their own.
  """
  continuations, lone = word_continuations(tokenizer), frozenset()
  if not tokenizer.splits_words:
    lone = frozenset(
      piece
      for piece in tokenizer.vocab
      if tokenization.stands_alone(tokenizer.text_of(piece))
    )
  return WholeWords(continuations - lone, lone)


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
    input_files: text files, or gzip files (.gz) of text, read as one text.
    dupe_factor: passes over the documents, each with different masks.
    do_whole_word_mask: mask either all pieces of a word or none.
    others: see `create_instances_from_document`.
  """
  lines = itertools.chain.from_iterable(map(text_files.read_lines, input_files))
  made = iterate_instances(
    read_documents(lines, tokenizer.tokenize),
    dupe_factor,
    rng,
    max_seq_length=max_seq_length,
    short_seq_prob=short_seq_prob,
    masked_lm_prob=masked_lm_prob,
    max_predictions_per_seq=max_predictions_per_seq,
    next_sentence_prediction=next_sentence_prediction,
    **vocabulary_settings(
      tokenizer, do_whole_word_mask, max_predictions_per_seq
    ),
  )
  instances = list(made)
  shuffle(instances, rng)
  return instances


def iterate_instances(
  documents: Iterable[Document],
  dupe_factor: int,
  rng: random.Random,
  document_done: Callable[[], object] = lambda: None,
  source: str = "the input",
  **settings,
) -> Iterator[TrainingInstance]:
  """Yields the instances of all passes over the documents, in random order.

  The settings are other arguments of `create_instances_from_document`.
  """
  documents = list(documents)
  is_paired = settings.get("next_sentence_prediction", True)
  check_documents(len(documents), is_paired, source)
  shuffle(documents, rng)
  for _ in range(dupe_factor):
    for index in range(len(documents)):
      yield from create_instances_from_document(
        documents, index, rng=rng, **settings
      )
      document_done()


def create_instances_from_document(
  all_documents: Sequence[Sequence],
  document_index: int,
  max_seq_length: int,
  short_seq_prob: float,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence,
  rng: random.Random,
  next_sentence_prediction: bool = True,
  special: tokenization.SpecialPieces = SPECIAL,
  words: WholeWords = PIECES,
) -> list[TrainingInstance]:
  """The instances of one pass over a document, in order.

  Args:
    all_documents: Documents, or lists of sentences, which are lists of pieces:
      str, or any objects that represent them.
    document_index: the document. Random next sentences come from the others.
    max_seq_length: S, maximum length of an instance with [CLS] and [SEP].
    short_seq_prob: probability that the instances are shorter than S.
    masked_lm_prob: fraction of the pieces to predict.
    max_predictions_per_seq: P, maximum number of predictions; 0 masks nothing.
    vocab_words: the pieces that random replacements are drawn from.
    next_sentence_prediction: create pairs of texts instead of single texts.
    special: the pieces [CLS], [SEP] and [MASK], represented like the others.
    words: how pieces form words.
  """
  check_documents(len(all_documents), next_sentence_prediction, "the input")
  room = check_length(max_seq_length, next_sentence_prediction, special)
  is_short = rng.random() < short_seq_prob
  target = rng.randint(2, room) if is_short else room
  texts = _pairs if next_sentence_prediction else _single_texts
  instances = []
  for text_a, text_b, is_random_next in texts(
    all_documents, document_index, room, target, rng
  ):
    pair = (text_a, text_b) if text_b else (text_a,)
    tokens, segment_ids = sequences.join_texts(special, *pair)
    candidates = _positions_of_text(special, *pair)
    masked, positions, labels = create_masked_lm_predictions(
      tokens,
      masked_lm_prob,
      max_predictions_per_seq,
      vocab_words,
      rng,
      special,
      words,
      candidates,
    )
    made = masked, segment_ids, positions, labels, is_random_next
    is_cut = bool(words.continuations and positions) and not any(
      map(set(positions).issuperset, _words(tokens, candidates, words))
    )
    instances.append(TrainingInstance(*made, is_cut))
  return instances


def _positions_of_text(special, text_a, text_b=()):
  """The positions in `sequences.join_texts` that are not special pieces."""
  middle = len(text_a) + 1
  start = middle + special.between
  return [*range(1, middle), *range(start, start + len(text_b))]


def _pairs(documents, index, room, target, rng):
  """Yields text A, text B, and whether B is random."""
  # Sentences up to the target length are divided into A and B. If a random text
  # replaces B, the sentences of B are used next.
  pieces, starts = Document.of(documents[index])
  size = len(starts) - 1
  first = 0
  while first < size:
    start = starts[first]
    end = bisect.bisect_left(starts, start + target, first + 1, size)
    middle = first + 1
    if end > middle:
      middle += rng.randrange(end - middle)
    text_a = pieces[start : starts[middle]]
    is_random_next = end == first + 1 or rng.random() < 0.5
    if is_random_next:
      text_b = _random_next(documents, index, target - len(text_a), rng)
      first = middle
    else:
      text_b = pieces[starts[middle] : starts[end]]
      first = end
    truncate_seq_pair(text_a, text_b, room, rng)
    yield text_a, text_b, is_random_next


def _random_next(documents, index, wanted, rng):
  """Sentences of another document from a random start, of `wanted` pieces."""
  other = index
  # The original gives up after ten draws, and takes B from A's own document.
  while other == index:
    other = rng.randrange(len(documents))
  pieces, starts = Document.of(documents[other])
  size = len(starts) - 1
  first = rng.randrange(size)
  end = bisect.bisect_left(starts, starts[first] + wanted, first + 1, size)
  return pieces[starts[first] : starts[end]]


def _single_texts(documents, index, room, target, rng):
  """Yields as many whole sentences as fit, or a part of a longer one."""
  pieces, starts = Document.of(documents[index])
  first = 0
  while first < len(starts) - 1:
    start = starts[first]
    first = max(first + 1, bisect.bisect_right(starts, start + target) - 1)
    for begin in range(start, starts[first], room):
      yield pieces[begin : min(begin + room, starts[first])], [], None


def truncate_seq_pair(
  tokens_a: list, tokens_b: list, max_num_tokens: int, rng: random.Random
) -> None:
  """Shortens two lists in place until they hold `max_num_tokens` together.

  The longer list, B on a tie, loses a piece from its start or end at random, so
  that neither end of a text is favored.
  """
  while len(tokens_a) + len(tokens_b) > max_num_tokens:
    longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
    del longer[0 if rng.random() < 0.5 else -1]


def create_masked_lm_predictions(
  tokens: Sequence,
  masked_lm_prob: float,
  max_predictions_per_seq: int,
  vocab_words: Sequence,
  rng: random.Random,
  special: tokenization.SpecialPieces = SPECIAL,
  words: WholeWords = PIECES,
  candidates: list[int] | None = None,
) -> tuple[list, list[int], list]:
  """Chooses and masks the pieces to predict (paper, section 3.1).

  80 % of them become [MASK], 10 % a random piece, and 10 % keep their piece,
  because [MASK] never occurs when the model is used later. A word that exceeds
  the number of predictions left is skipped. If all words are too long, random
  pieces of one of them are chosen.

  `candidates` are positions that may be chosen, by default all but those of
  [CLS] and [SEP], and are shuffled. See `create_instances_from_document` for
  the others. Returns the pieces after masking, the chosen positions in
  ascending order, and the original pieces at these positions.
  """
  output = list(tokens)
  if not max_predictions_per_seq:
    return output, [], []
  wanted = min(
    max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob))
  )
  if candidates is None:
    ends = special[:2]
    candidates = [i for i, token in enumerate(tokens) if token not in ends]
  if words.continuations:
    candidates = _choose_words(_words(tokens, candidates, words), wanted, rng)
  else:
    shuffle(candidates, rng)
  positions = candidates[:wanted]
  draw, mask = rng.random, special.mask
  for position in positions:
    if draw() < 0.8:
      output[position] = mask
    elif draw() >= 0.5:
      output[position] = rng.choice(vocab_words)
  positions.sort()
  labels = [tokens[position] for position in positions]
  return output, positions, labels


def _words(tokens, candidates, words):
  continuations, lone = words
  groups = []
  for position in candidates:
    # As in the original, a continuation at the start of a text belongs to the
    # word before it, even across [SEP].
    is_inside = groups and tokens[position] in continuations
    if is_inside and not (lone and tokens[groups[-1][-1]] in lone):
      groups[-1].append(position)
    else:
      groups.append([position])
  return groups


def _choose_words(words, wanted, rng):
  """At most `wanted` positions of random words, or of one that is too long."""
  shuffle(words, rng)
  chosen = []
  for word in words:
    if len(chosen) + len(word) <= wanted:
      chosen += word
  if words and not chosen:
    chosen = words[0]
    shuffle(chosen, rng)
  return chosen


def shuffle(items: list, rng: random.Random) -> None:
  """`rng.shuffle(items)`: the same draws and order in half the time."""
  getrandbits = rng.getrandbits
  # Fisher-Yates: each item, from the last to the second, is swapped with a
  # random item up to itself. The outer loop is over the bits that a draw needs.
  stop = len(items)
  for bits in range(stop.bit_length(), 1, -1):
    first = (1 << bits - 1) - 1
    for index in range(stop - 1, first - 1, -1):
      while (other := getrandbits(bits)) > index:
        pass
      items[index], items[other] = items[other], items[index]
    stop = first


def feature_spec(
  max_seq_length: int,
  max_predictions_per_seq: int,
  next_sentence_prediction: bool = True,
) -> dict[str, records.Feature]:
  """The spec of a record: sequences [S], predictions [P], next sentence [1]."""
  spec = records.sequence_spec(max_seq_length)
  if max_predictions_per_seq:
    shape = (max_predictions_per_seq,)
    spec["masked_lm_positions"] = records.Feature(shape)
    spec["masked_lm_ids"] = records.Feature(shape)
    spec["masked_lm_weights"] = records.Feature(shape, "float32")
  if next_sentence_prediction:
    spec["next_sentence_labels"] = records.Feature((1,))
  return spec


def encode_instance(
  instance: TrainingInstance, max_seq_length: int, max_predictions_per_seq: int
) -> bytes:
  """An instance as a serialized `tf.train.Example` of `feature_spec`.

  Its pieces are encoded ids, see `records.varint`. ValueError if the instance
  exceeds one of the lengths.
  """
  size, count = len(instance.tokens), len(instance.masked_lm_positions)
  feature, encode = records.encode_feature, records.encode_ints
  padding = bytes(max_seq_length - size)  # A number below 128 takes one byte.
  features = [
    feature("input_ids", b"".join(instance.tokens) + padding),
    feature("input_mask", b"\x01" * size + padding),
  ]
  if max_predictions_per_seq:
    unused = max_predictions_per_seq - count
    positions = encode(instance.masked_lm_positions) + bytes(unused)
    ids = b"".join(instance.masked_lm_labels) + bytes(unused)
    weights = _ONE * count + bytes(4 * unused)
    features += [
      feature("masked_lm_ids", ids),
      feature("masked_lm_positions", positions),
      feature("masked_lm_weights", weights, is_float=True),
    ]
  if instance.is_random_next is not None:
    features.append(
      feature("next_sentence_labels", bytes([instance.is_random_next]))
    )
  features.append(
    feature("segment_ids", encode(instance.segment_ids) + padding)
  )
  return records.encode_example(features)


def write_instance_to_example_files(
  instances: Iterable[TrainingInstance],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
  max_predictions_per_seq: int,
  output_files: Sequence[str],
) -> int:
  """Writes instances to TFRecord files in turn; returns their number."""

  def encoded_pieces(pieces):
    return list(map(records.varint, tokenizer.convert_tokens_to_ids(pieces)))

  lengths = (max_seq_length, max_predictions_per_seq)
  count = 0
  with contextlib.ExitStack() as stack:
    enter = stack.enter_context
    paths = [enter(files.atomic_write(path)) for path in output_files]
    writers = [enter(files.open_file(path, "wb")) for path in paths]
    for instance, writer in zip(instances, itertools.cycle(writers)):
      # Any class with the same attributes will do.
      encoded = TrainingInstance(
        encoded_pieces(instance.tokens),
        instance.segment_ids,
        instance.masked_lm_positions,
        encoded_pieces(instance.masked_lm_labels),
        instance.is_random_next,
      )
      record = encode_instance(encoded, *lengths)
      writer.write(records.framed(record))
      count += 1
  return count
