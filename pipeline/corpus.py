"""A corpus in shards of whole documents, and the records of each.

    found = scan(["wiki.txt"], shard_bytes=8_000_000, min_documents=2)
    for shard in found.shards:
      records, counts = records_of_shard(shard, recipe)

Each shard is read, made into instances and shuffled for itself, with a random
stream of its own. So memory is bounded by the size of a shard, and the records
depend on the text, the settings and the seed alone: not on how many processes
or machines share the work, nor on which of them is faster. One shard gives what
the original gives.
"""

import bisect
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator

from absl import logging

import tokenization
from errors import UserError
from pipeline import instances, text_files


@dataclasses.dataclass(frozen=True)
class Shard:
  """Documents that lie one after another in a corpus.

  Attributes:
    index: its number, from 0.
    ranges: where it lies: path, start and stop in bytes of the file's text,
      unzipped.
    documents: how many it holds.
  """

  index: int
  ranges: tuple[tuple[str, int, int], ...]
  documents: int


@dataclasses.dataclass(frozen=True)
class Corpus:
  """What `scan` finds.

  Attributes:
    shards: all of the text, in order; no document lies in two.
    documents: how many empty lines part.
    size: bytes of the text, unzipped.
  """

  shards: list[Shard]
  documents: int
  size: int


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How text becomes records; `instances` says what each setting means."""

  vocab_file: str | None
  spm_model_file: str | None
  do_lower_case: bool
  max_seq_length: int
  dupe_factor: int
  short_seq_prob: float
  masked_lm_prob: float
  max_predictions_per_seq: int
  random_seed: int
  do_whole_word_mask: bool = False
  next_sentence_prediction: bool = True

  @property
  def min_documents(self) -> int:
    """Fewest documents that instances can be made of."""
    return 2 if self.next_sentence_prediction else 1


@dataclasses.dataclass(frozen=True)
class Counts:
  """What was read and made.

  Attributes:
    pieces: word pieces of the text.
    unknown: those among them that stand for what the vocabulary cannot spell.
    instances: records.
    tokens: positions of the records that are not padding.
  """

  pieces: int = 0
  unknown: int = 0
  instances: int = 0
  tokens: int = 0

  def __add__(self, other: "Counts") -> "Counts":
    mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
    return Counts(*map(sum, zip(mine, others, strict=True)))


def scan(
  paths: Iterable[str], shard_bytes: float, min_documents: int
) -> Corpus:
  """Reads a corpus once, checks it, and cuts it into shards.

  The files are read as one text: the end of a file does not end a document.

  Args:
    paths: text files, or gzip files of text (.gz).
    shard_bytes: a shard ends with the document that brings it to this size; 0
      for one shard.
    min_documents: fewest documents of a shard. What is left at the end with
      fewer goes to the shard before.

  Raises:
    ValueError: there is no text, a file is no whole gzip file, or a line is
      not UTF-8; the message names it.
  """
  files = []  # Path, and the bytes of the corpus where it starts and stops.
  ends = [(0, 0)]  # Bytes and documents of the corpus before each shard.
  going_on = []
  size = documents = 0
  is_inside = False
  for path in paths:
    start = size
    for length, line in text_files.sized_lines(path):
      is_first = size == start
      size += length
      if not line.strip():
        is_full = 0 < shard_bytes <= size - ends[-1][0]
        if is_inside and is_full and documents - ends[-1][1] >= min_documents:
          ends.append((size, documents))
        is_inside = False
      elif not is_inside:
        documents += 1
        is_inside = True
      elif is_first:
        going_on.append(files[-1][0])
    files.append((path, start, size))
  if not documents:
    raise UserError(
      f"no text in {_named(path for path, _, _ in files)}; pass files with "
      f"one sentence a line and an empty line between documents"
    )
  if going_on:
    logging.info(
      "No empty line ends %s; the last document goes on in the next file",
      _named(going_on),
    )
  if len(ends) > 1 and documents - ends[-1][1] < min_documents:
    ends.pop()
  ends.append((size, documents))
  shards = [
    Shard(index, _ranges(files, start, stop), after - before)
    for index, ((start, before), (stop, after)) in enumerate(
      itertools.pairwise(ends)
    )
  ]
  return Corpus(shards, documents, size)


def _named(paths):
  """The first of some paths, and how many others there are."""
  first, *others = paths
  return f"{first} and {len(others)} more" if others else first


def _ranges(files, start, stop):
  """Where these bytes of a corpus lie in its files."""
  place = bisect.bisect_right(files, start, key=lambda file: file[1]) - 1
  ranges = []
  while start < stop:
    path, first, last = files[place]
    if first < last:
      ranges.append((path, start - first, min(stop, last) - first))
      start = last
    place += 1
  return tuple(ranges)


def shard_lines(shard: Shard) -> Iterator[str]:
  """Yields the lines of a shard."""
  for path, start, stop in shard.ranges:
    for _, line in text_files.sized_lines(path, start, stop):
      yield line.removesuffix("\n")


def random_stream(seed: int, index: int) -> random.Random:
  """Where a shard's chance comes from; the first one's as the original's."""
  return random.Random(f"{seed}/{index}" if index else seed)


def records_of_shard(
  shard: Shard,
  recipe: Recipe,
  document_done: Callable[[int], object] = lambda count: None,
) -> tuple[list[bytes], Counts]:
  """A shard's records, shuffled, and what they hold.

  Args:
    shard: a Shard.
    recipe: a Recipe.
    document_done: is called with 1 after each pass over each document.

  Raises:
    ValueError: fewer documents hold text than instances can be made of.
  """
  tokenizer = _tokenizer(
    recipe.vocab_file, recipe.do_lower_case, recipe.spm_model_file
  )
  documents = instances.read_documents(shard_lines(shard), tokenizer)
  _check_documents(documents, shard, recipe)
  rng = random_stream(recipe.random_seed, shard.index)
  records, tokens = [], 0
  for instance in instances.iterate_instances(
    documents,
    tokenizer,
    recipe.max_seq_length,
    recipe.dupe_factor,
    recipe.short_seq_prob,
    recipe.masked_lm_prob,
    recipe.max_predictions_per_seq,
    rng,
    recipe.do_whole_word_mask,
    recipe.next_sentence_prediction,
    lambda: document_done(1),
  ):
    # Its bytes take a tenth of the room that its lists do.
    records.append(
      instances.encode_instance(
        instance,
        tokenizer.vocab,
        recipe.max_seq_length,
        recipe.max_predictions_per_seq,
      )
    )
    tokens += len(instance.tokens)
  rng.shuffle(records)
  sentences = list(itertools.chain.from_iterable(documents))
  unknown = tokenizer.wordpiece_tokenizer.unk_token
  counts = Counts(
    sum(map(len, sentences)),
    sum(sentence.count(unknown) for sentence in sentences),
    len(records),
    tokens,
  )
  return records, counts


@functools.lru_cache(maxsize=1)
def _tokenizer(vocab_file, do_lower_case, spm_model_file):
  """A process's tokenizer, which remembers words from shard to shard."""
  return tokenization.FullTokenizer(vocab_file, do_lower_case, spm_model_file)


def _check_documents(documents, shard, recipe):
  """Raises ValueError unless a shard holds enough documents with text."""
  if len(documents) >= recipe.min_documents:
    return
  places = _named(path for path, _, _ in shard.ranges)
  if documents:
    raise UserError(
      f"{places}: one document alone has no random next sentence from another; "
      f"part documents by empty lines, raise --shard_mb if it is set, or pass "
      f"--next_sentence_prediction=false"
    )
  raise UserError(
    f"no text in {places} but characters that the tokenizer drops; pass files "
    f"with one sentence a line, or raise --shard_mb if it is set"
  )
