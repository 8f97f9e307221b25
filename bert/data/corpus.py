"""Splits a corpus into shards of whole documents, and creates their records.

    config = CorpusConfig(vocab_file="vocab.txt", random_seed=1, ...)
    corpus = scan(["wiki.txt"], shard_bytes=8_000_000, min_documents=2)
    for shard in corpus.shards:
      records, counts = records_of_shard(shard, config)

Each shard has its own stream of random numbers, so the records depend only on
the text, the config and the seed, not on the number of processes or machines. A
single shard gives the records of the original code.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import tokenization
from bert.data import files, instances, records, text_files


class TextRange(NamedTuple):
  """The bytes from `start` to `stop` of the text of an input file."""

  name: str
  path: str  # A file with its uncompressed text.
  start: int
  stop: int


class Shard(NamedTuple):
  """Consecutive documents of a corpus; `index` counts shards from 0."""

  index: int
  ranges: tuple[TextRange, ...]
  num_documents: int


class Corpus(NamedTuple):
  """The shards of a corpus in order, and its bytes of uncompressed text."""

  shards: list[Shard]
  num_documents: int
  size: int


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
  """How text becomes records; see `create_instances_from_document`."""

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
    min_documents: minimum of a shard. If fewer are left at the end, the
      previous shard gets them.
    spool: prefix of new files with the text of gzip files. Without it, reading
      a shard of a gzip file decompresses all that precedes the shard.
  """
  texts = []
  ends = [(0, 0)]  # Bytes and documents of the corpus before each shard.
  size = documents = 0
  is_inside = False
  for length, line in _sized_lines(paths, spool, texts):
    size += length
    if not line.strip():
      is_full = 0 < shard_bytes <= size - ends[-1][0]
      if is_inside and is_full and documents - ends[-1][1] >= min_documents:
        ends.append((size, documents))
      is_inside = False
    elif not is_inside:
      documents += 1
      is_inside = True
  instances.check_documents(documents, min_documents > 1, _names(texts))
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
  """Yields sizes and texts of lines; appends each file's TextRange to `texts`.

  The ranges are in bytes of the whole corpus.
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
        yield length, line
        size += length
    texts.append(TextRange(path, source, start, size))


def _names(texts):
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
  """The random numbers of a shard; the first shard has the original's."""
  return random.Random(f"{seed}/{index}" if index else seed)


def records_of_shard(
  shard: Shard,
  config: CorpusConfig,
  document_done: Callable[[], object] = lambda: None,
) -> tuple[list[bytes], collections.Counter]:
  """The records of a shard, shuffled, and their statistics.

  Calls `document_done` after each pass over each document. The counts are
  `pieces`, `unknown` pieces and, with whole words, `continuations` of the text;
  `instances`, their `tokens` without padding, and `cut_words`, the instances
  whose only masked word is masked in part.
  """
  tokenizer, ids = _load_tokenizer(
    config.vocab_file, config.do_lower_case, config.spm_model_file
  )
  read = instances.read_documents(shard_lines(shard), tokenizer.tokenize)
  # Pieces are represented by their encoded ids, the parts of a record.
  documents = [
    instances.Document(list(map(ids.__getitem__, pieces)), starts)
    for pieces, starts in read
  ]
  rng = random_stream(config.random_seed, shard.index)
  lengths = (config.max_seq_length, config.max_predictions_per_seq)
  of_vocabulary = instances.vocabulary_settings(
    tokenizer, config.do_whole_word_mask, lengths[1], ids.get
  )
  records, tokens, cut_words = [], 0, 0
  for instance in instances.iterate_instances(
    documents,
    config.dupe_factor,
    rng,
    document_done,
    _names(shard.ranges),
    max_seq_length=config.max_seq_length,
    short_seq_prob=config.short_seq_prob,
    masked_lm_prob=config.masked_lm_prob,
    max_predictions_per_seq=config.max_predictions_per_seq,
    next_sentence_prediction=config.next_sentence_prediction,
    **of_vocabulary,
  ):
    tokens += len(instance.tokens)
    cut_words += instance.has_cut_word
    # Records take a tenth of the memory of instances.
    records.append(instances.encode_instance(instance, *lengths))
  instances.shuffle(records, rng)
  pieces = collections.Counter(
    itertools.chain.from_iterable(document.pieces for document in documents)
  )
  counts = collections.Counter(
    pieces=pieces.total(),
    unknown=pieces[ids[tokenizer.unk_token]],
    instances=len(records),
    tokens=tokens,
    cut_words=cut_words,
  )
  if continuations := of_vocabulary["words"].continuations:
    counts["continuations"] = sum(pieces[piece] for piece in continuations)
  return records, counts


@functools.lru_cache(maxsize=1)
def _load_tokenizer(vocab_file, do_lower_case, spm_model_file):
  """The tokenizer of a process, with one cache for all shards; encoded ids."""
  tokenizer = tokenization.FullTokenizer(
    vocab_file, do_lower_case, spm_model_file
  )
  vocab = tokenizer.vocab
  return tokenizer, {piece: records.varint(vocab[piece]) for piece in vocab}
