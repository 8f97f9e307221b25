"""Splits a corpus into shards of whole documents, and creates their records.

    config = CorpusConfig(vocab_file="vocab.txt", random_seed=1, ...)
    corpus = scan(["wiki.txt"], shard_bytes=8_000_000, min_documents=2)
    for shard in corpus.shards:
      records, counts = records_of_shard(shard, config)

Each shard is read, processed and shuffled separately, with its own stream of
random numbers. So the size of a shard bounds the memory, and the records depend
only on the text, the config and the seed, not on the number of processes or
machines. A single shard gives the records of the original code.
"""

import contextlib
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from absl import logging

import tokenization
from errors import UserError
from pipeline import files, instances, text_files


class TextRange(NamedTuple):
  """A part of the text of an input file.

  Attributes:
    name: the input file.
    path: the file to read, which holds the uncompressed text.
    start, stop: the first byte, and the one after the last.
  """

  name: str
  path: str
  start: int
  stop: int


@dataclasses.dataclass(frozen=True)
class Shard:
  """Consecutive documents of a corpus.

  Attributes:
    index: its number, from 0.
    ranges: its text.
    documents: the number of documents.
  """

  index: int
  ranges: tuple[TextRange, ...]
  documents: int


@dataclasses.dataclass(frozen=True)
class Corpus:
  """The result of `scan`.

  Attributes:
    shards: the shards, in the order of the text.
    documents: the number of documents.
    size: bytes of uncompressed text.
  """

  shards: list[Shard]
  documents: int
  size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig(instances.InstanceConfig):
  """How text becomes records: an InstanceConfig, a tokenizer and a seed."""

  vocab_file: str | None = None
  spm_model_file: str | None = None
  do_lower_case: bool = True
  random_seed: int


@dataclasses.dataclass(frozen=True)
class Counts:
  """Statistics of records.

  Attributes:
    pieces: word pieces of the text.
    unknown: those that the vocabulary cannot represent.
    instances: records.
    tokens: positions of the records without padding.
  """

  pieces: int = 0
  unknown: int = 0
  instances: int = 0
  tokens: int = 0

  def __add__(self, other: "Counts") -> "Counts":
    mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
    return Counts(*map(sum, zip(mine, others, strict=True)))


def scan(
  paths: Iterable[str],
  shard_bytes: float,
  min_documents: int,
  spool: str | None = None,
) -> Corpus:
  """Reads and checks a corpus once, and splits it into shards.

  The files are read as one text: the end of a file does not end a document.

  Args:
    paths: text files, or gzip files (.gz) of text.
    shard_bytes: a shard ends with the document that reaches this size; 0 for
      one shard.
    min_documents: minimum number of documents of a shard. If fewer are left at
      the end, they are added to the shard before.
    spool: prefix of files to create with the text of gzip files, because shards
      cannot be read from a gzip file without decompressing what precedes them.
      Without it, shards are read from the gzip files all the same.

  Raises:
    UserError: there is no text, or a file cannot be read, see
      `text_files.read_lines`.
  """
  texts = []
  ends = [(0, 0)]  # Bytes and documents of the corpus before each shard.
  continued = []
  size = documents = 0
  is_inside = False
  for is_first, length, line in _sized_lines(paths, spool, texts):
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
      continued.append(texts[-1])
  if not documents:
    raise UserError(
      f"no text in {_names(texts)}; pass files with one sentence per line and "
      f"an empty line between documents"
    )
  if continued:
    logging.info(
      "No empty line ends %s; the last document continues in the next file",
      _names(continued),
    )
  if len(ends) > 1 and documents - ends[-1][1] < min_documents:
    ends.pop()
  ends.append((size, documents))
  shards = [
    Shard(index, _ranges(texts, start, stop), after - before)
    for index, ((start, before), (stop, after)) in enumerate(
      itertools.pairwise(ends)
    )
  ]
  return Corpus(shards, documents, size)


def _sized_lines(paths, spool, texts):
  """Yields whether a line is the first of a file, its size in bytes, and text.

  Appends the TextRange of each file to `texts`, in bytes of the whole corpus.
  """
  size = 0
  for number, path in enumerate(paths):
    start = size
    with contextlib.ExitStack() as stack:
      source, copy = path, None
      if spool and path.lower().endswith(".gz"):
        source = f"{spool}{number:05d}"
        copy = stack.enter_context(files.open_file(source, "wb"))
      for length, line in text_files.sized_lines(path, copy_to=copy):
        yield size == start, length, line
        size += length
    texts.append(TextRange(path, source, start, size))


def _names(texts):
  """The name of the first text, and the number of the others."""
  first, *others = texts
  return f"{first.name} and {len(others)} more" if others else first.name


def _ranges(texts, start, stop):
  """The parts of files that hold these bytes of the corpus."""
  return tuple(
    text._replace(
      start=max(start, text.start) - text.start,
      stop=min(stop, text.stop) - text.start,
    )
    for text in texts
    if max(start, text.start) < min(stop, text.stop)
  )


def shard_lines(shard: Shard) -> Iterator[str]:
  """Yields the lines of a shard."""
  for text in shard.ranges:
    for _, line in text_files.sized_lines(text.path, text.start, text.stop):
      yield line.removesuffix("\n")


def random_stream(seed: int, index: int) -> random.Random:
  """The random numbers of a shard; those of the original for the first."""
  return random.Random(f"{seed}/{index}" if index else seed)


def records_of_shard(
  shard: Shard,
  config: CorpusConfig,
  document_done: Callable[[], object] = lambda: None,
) -> tuple[list[bytes], Counts]:
  """The records of a shard, shuffled, and their statistics.

  Args:
    shard: a Shard.
    config: a CorpusConfig.
    document_done: called after each pass over each document.

  Raises:
    UserError: fewer documents have text than are needed.
  """
  tokenizer, ids = _load_tokenizer(
    config.vocab_file, config.do_lower_case, config.spm_model_file
  )
  # Encoded once, pieces need no look-up whenever they are part of an instance.
  documents = [
    document.encoded(ids)
    for document in instances.read_documents(
      shard_lines(shard), tokenizer.tokenize
    )
  ]
  config.check_documents(len(documents), _names(shard.ranges))
  pieces = instances.pieces_of(tokenizer, config).encoded(ids)
  encode = instances.InstanceEncoder(
    config.max_seq_length, config.max_predictions_per_seq
  )
  rng = random_stream(config.random_seed, shard.index)
  records, tokens = [], 0
  for instance in instances.iterate_instances(
    documents, config, pieces, rng, document_done
  ):
    # Records take a tenth of the memory of instances.
    records.append(encode(instance))
    tokens += len(instance.tokens)
  instances.shuffle(records, rng)
  unknown = ids[tokenizer.wordpiece_tokenizer.unk_token]
  counts = Counts(
    sum(len(document.pieces) for document in documents),
    sum(document.pieces.count(unknown) for document in documents),
    len(records),
    tokens,
  )
  return records, counts


@functools.lru_cache(maxsize=1)
def _load_tokenizer(vocab_file, do_lower_case, spm_model_file):
  """A process's tokenizer, whose cache serves all shards, and `encoded_ids`."""
  tokenizer = tokenization.FullTokenizer(
    vocab_file, do_lower_case, spm_model_file
  )
  return tokenizer, instances.encoded_ids(tokenizer.vocab)
