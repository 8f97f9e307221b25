"""A corpus in shards of whole documents, and their records on all cores.

    found = scan(["wiki.txt"], shard_bytes=16_000_000, min_documents=2)
    write_records(found, recipe, ["wiki.tfrecord"], num_workers=8)

Each shard is read, made into instances and shuffled for itself, with a random
stream of its own. So memory is bounded by the size of a shard, and the records
depend on the text, the settings and the seed alone: not on how many processes
or machines share the work, nor on which of them is faster. One shard gives what
the original gives.
"""

import bisect
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import glob
import gzip
import importlib
import itertools
import logging as std_logging
import math
import multiprocessing
import multiprocessing.forkserver
import os
import random
import re
import shutil
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection

import tensorflow as tf
from absl import logging

import checkpoints
import instances
import tokenization

_CHUNK_BYTES = 2**20

# The counters of a Beam pipeline.
_NAMESPACE = "create_pretraining_data"


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
    for length, line in _lines(path):
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
    raise ValueError(
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


def _lines(path, start=0, stop=math.inf):
  """Yields the size in bytes and the text of each line in a part of a file."""
  number, position = 0, start
  with contextlib.ExitStack() as stack:
    reader = stack.enter_context(tf.io.gfile.GFile(path, "rb"))
    if path.lower().endswith(".gz"):
      reader = stack.enter_context(gzip.GzipFile(fileobj=reader))
    try:
      reader.seek(start)
      for line in _byte_lines(reader):
        number += 1
        text = line.decode()
        # It may begin with a byte order mark.
        yield len(line), text if position else text.removeprefix("\ufeff")
        position += len(line)
        if position >= stop:
          return
    except UnicodeDecodeError as error:
      raise ValueError(
        f"{path}:{number}: byte {position + error.start} is not UTF-8; convert "
        f"the file to UTF-8"
      ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
      raise ValueError(
        f"{path} is not a whole gzip file: {error}; fetch or write it again"
      ) from error
  if stop < math.inf:
    raise ValueError(
      f"{path} has become shorter since it was first read; give the same "
      f"command again"
    )


def _byte_lines(reader):
  """Yields the lines of a binary file, each with its end.

  Those that a GFile itself yields have lost each \\r.
  """
  rest = b""
  while chunk := reader.read(_CHUNK_BYTES):
    *lines, rest = (rest + chunk).split(b"\n")
    for line in lines:
      yield line + b"\n"
  if rest:
    yield rest


def shard_lines(shard: Shard) -> Iterator[str]:
  """Yields the lines of a shard."""
  for path, start, stop in shard.ranges:
    for _, line in _lines(path, start, stop):
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
    raise ValueError(
      f"{places}: one document alone has no random next sentence from another; "
      f"part documents by empty lines, raise --shard_mb if it is set, or pass "
      f"--next_sentence_prediction=false"
    )
  raise ValueError(
    f"no text in {places} but characters that the tokenizer drops; pass files "
    f"with one sentence a line, or raise --shard_mb if it is set"
  )


def write_records(
  corpus: Corpus,
  recipe: Recipe,
  outputs: Sequence[str],
  num_workers: int,
  document_done: Callable[[int], object] = lambda count: None,
) -> Counts:
  """Writes a corpus's records to TFRecord files, on this machine.

  The files appear at the end, whole; after an error they do not.

  Args:
    corpus: a Corpus.
    recipe: a Recipe.
    outputs: paths of the files, which records go to in turn: those of shard k
      from the k-th on.
    num_workers: how many processes share the shards; just this one if there is
      but one, of either.
    document_done: is called with a number of documents, `dupe_factor` times
      for each, as they are done.

  Raises:
    ValueError: as `records_of_shard` raises it.
    OSError: a worker was killed, or could not write.
  """
  num_workers = min(num_workers, len(corpus.shards))
  _remove_parts(outputs)
  try:
    with contextlib.ExitStack() as stack:
      partials = [
        stack.enter_context(checkpoints.written_aside(path)) for path in outputs
      ]
      if num_workers == 1:
        return _write_shards(corpus.shards, recipe, partials, document_done)
      written = _write_parts(corpus.shards, recipe, outputs, num_workers)
      return _join_parts(
        # After an error no worker may write what is deleted below.
        stack.enter_context(contextlib.closing(written)),
        partials,
        lambda shard: document_done(shard.documents * recipe.dupe_factor),
      )
  finally:
    _remove_parts(outputs)


def _write_shards(shards, recipe, paths, document_done):
  """Writes the records of shards, one after another; returns their Counts."""
  total = Counts()
  with contextlib.ExitStack() as stack:
    writers = [
      stack.enter_context(tf.io.TFRecordWriter(path)) for path in paths
    ]
    for shard in shards:
      records, counts = records_of_shard(shard, recipe, document_done)
      for place, record in enumerate(records, shard.index):
        writers[place % len(writers)].write(record)
      total += counts
      del records  # Else they would lie beside those of the next shard.
  return total


def _join_parts(written, paths, shard_done):
  """Moves the parts of shards to the files' ends; returns all Counts."""
  total = Counts()
  with contextlib.ExitStack() as stack:
    files = [stack.enter_context(tf.io.gfile.GFile(p, "wb")) for p in paths]
    for shard, parts, counts in written:
      for part, file in zip(parts, files, strict=True):
        with tf.io.gfile.GFile(part, "rb") as reader:
          shutil.copyfileobj(reader, file, 2**20)
        tf.io.gfile.remove(part)
      total += counts
      shard_done(shard)
  return total


def _remove_parts(outputs):
  """Deletes what a run, or one that was killed before, has left."""
  for path in outputs:
    for part in tf.io.gfile.glob(f"{glob.escape(path)}.shard-*.partial"):
      tf.io.gfile.remove(part)


def _write_parts(shards, recipe, outputs, num_workers):
  """Yields each shard with the files its records are in, one for each output.

  They come in the order of the shards. No more are begun than keep the workers
  at work while one shard takes long, so that few parts lie about.
  """
  context = multiprocessing.get_context("forkserver")
  _start_fork_server(context)
  receiver, sender = context.Pipe(duplex=False)
  begun = collections.deque()
  with (
    contextlib.closing(receiver),
    contextlib.closing(sender),
    concurrent.futures.ProcessPoolExecutor(
      num_workers, context, _end_with_parent, (receiver,)
    ) as executor,
  ):
    waiting = iter(shards)
    try:
      while True:
        for shard in itertools.islice(waiting, 2 * num_workers - len(begun)):
          parts = [
            f"{path}.shard-{shard.index:05d}.partial" for path in outputs
          ]
          counts = executor.submit(_write_part, shard, recipe, parts)
          begun.append((shard, parts, counts))
        if not begun:
          return
        shard, parts, counts = begun.popleft()
        yield shard, parts, counts.result()
    except concurrent.futures.process.BrokenProcessPool as error:
      raise OSError(
        "a worker process was killed, perhaps for want of memory; pass fewer "
        "--num_workers or a smaller --shard_mb"
      ) from error
    except BaseException:
      sender.close()  # Else the shards that were begun would be ended first.
      raise


def _write_part(shard, recipe, paths):
  try:
    return _write_shards([shard], recipe, paths, lambda count: None)
  except tf.errors.OpError as error:
    # It may hold what cannot go from process to process.
    raise OSError(error.message) from None


def _start_fork_server(context):
  """Starts what workers are forked from: TensorFlow loaded, no threads.

  It heeds no Ctrl-C, and nor do the workers: they end with this process.
  """
  context.set_forkserver_preload(["quiet_start", __name__])
  environment = dict(os.environ)
  # Python passes its path on to the workers, but not to what they come from.
  os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
  if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3":
    del os.environ["TF_CPP_MIN_LOG_LEVEL"]  # So that quiet_start acts there.
  is_main = threading.current_thread() is threading.main_thread()
  handler = is_main and signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    multiprocessing.forkserver.ensure_running()
  finally:
    if is_main:
      signal.signal(signal.SIGINT, handler)
    os.environ.clear()
    os.environ.update(environment)


def _end_with_parent(receiver: Connection) -> None:
  """Lets a worker end as soon as the other end of a pipe is closed.

  The system closes it when the parent is killed.
  """

  def wait():
    with contextlib.suppress(EOFError, OSError):
      receiver.recv()
    os._exit(1)

  threading.Thread(target=wait, daemon=True).start()


def beam_pipeline(runner: str, arguments: Sequence[str]) -> object:
  """An empty pipeline of Apache Beam.

  Args:
    runner: Beam's --runner.
    arguments: its other options, as --name=value.

  Raises:
    ValueError: Beam is not installed, or knows no such runner or option.
  """
  for argument in arguments:
    if not re.match(r"--?\w", argument):
      raise ValueError(
        f"unexpected argument {argument!r}; flags, Beam's too, are written "
        f"--name=value"
      )
  # It warns of what only Google's cloud needs.
  std_logging.disable(std_logging.WARNING)
  try:
    beam = importlib.import_module("apache_beam")
  except ImportError as error:
    raise ValueError(
      f"--runner={runner} needs Apache Beam, and there is {error}; pip install "
      f"-r requirements-beam.txt, or leave the flag out"
    ) from error
  finally:
    std_logging.disable(std_logging.NOTSET)
  make_options = beam.pipeline.PipelineOptions
  options = make_options([f"--runner={runner}", *arguments])
  known = make_options([]).get_all_options()
  for name in options.get_all_options(retain_unknown_options=True):
    if name not in known:
      raise ValueError(
        f"--{name} is neither a flag of this script nor an option of Apache "
        f"Beam; correct or leave it out"
      )
  return beam.Pipeline(options=options)


def write_records_by_beam(
  corpus: Corpus, recipe: Recipe, outputs: Sequence[str], pipeline: object
) -> Counts | None:
  """Writes the records of `write_records` by a Beam pipeline, in another order.

  The machines that take part need this project's modules and the files.

  Args:
    corpus, recipe, outputs: see `write_records`.
    pipeline: as from `beam_pipeline`.

  Returns:
    Counts, if the runner tells them.
  """
  import apache_beam as beam  # Only those who use it pay for loading it.

  folders = [f"{path}.beam.partial" for path in outputs]
  try:
    dealt = (
      pipeline
      | beam.Create(corpus.shards)
      | beam.Reshuffle()
      | beam.FlatMap(_dealt_records, recipe, len(outputs))
      | beam.Partition(lambda pair, _: pair[0], len(outputs))
    )
    for number, (folder, pairs) in enumerate(zip(folders, dealt, strict=True)):
      _ = (
        pairs
        | f"Records{number}" >> beam.Values()
        | f"Write{number}"
        >> beam.io.WriteToTFRecord(
          os.path.join(folder, "records"), num_shards=1, shard_name_template=""
        )
      )
    result = _run_pipeline(pipeline)
    for folder, path in zip(folders, outputs, strict=True):
      tf.io.gfile.rename(os.path.join(folder, "records"), path, overwrite=True)
    return _beam_counts(result)
  finally:
    for folder in folders:
      if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


def _dealt_records(shard, recipe, num_outputs):
  """Yields a shard's records, each with the number of its output."""
  from apache_beam import metrics

  records, counts = records_of_shard(shard, recipe)
  for name, value in dataclasses.asdict(counts).items():
    metrics.Metrics.counter(_NAMESPACE, name).inc(value)
  for place, record in enumerate(records, shard.index):
    yield place % num_outputs, record


def _run_pipeline(pipeline):
  """The result of a pipeline that has come to its end."""
  # Beam would log a traceback of what is one line.
  logger = std_logging.getLogger("apache_beam.runners.common")
  logger.setLevel(std_logging.CRITICAL)
  try:
    result = pipeline.run()
    result.wait_until_finish()
  except (ValueError, OSError, RuntimeError) as error:
    kind = ValueError if isinstance(error, ValueError) else OSError
    raise kind(re.sub(r" \[while running '.*", "", str(error))) from error
  return result


def _beam_counts(result):
  """The Counts of a pipeline, or None."""
  from apache_beam import metrics

  mine = metrics.MetricsFilter().with_namespace(_NAMESPACE)
  try:
    found = result.metrics().query(mine)["counters"]
  except NotImplementedError:
    return None
  values = {c.key.metric.name: c.committed or c.attempted for c in found}
  return Counts(**values) if values else None
