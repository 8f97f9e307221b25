"""A corpus's records on this machine: worker processes that share its shards.

    found = corpus.scan(["wiki.txt"], shard_bytes=8_000_000, min_documents=2)
    write_records(found, recipe, ["wiki.tfrecord"], num_workers=8)

The files are the same however many workers there are.
"""

import collections
import contextlib
import glob
import itertools
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import tensorflow as tf

from pipeline import files
from pipeline.corpus import Corpus, Counts, Recipe, records_of_shard


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
  with contextlib.ExitStack() as stack:
    # From here on the files, and so their parts, are no other process's.
    partials = [
      stack.enter_context(files.atomic_write(path)) for path in outputs
    ]
    _remove_parts(outputs)
    stack.callback(_remove_parts, outputs)
    if num_workers == 1:
      return _write_shards(corpus.shards, recipe, partials, document_done)
    written = _write_parts(corpus.shards, recipe, outputs, num_workers)
    return _join_parts(
      # After an error no worker may write what is deleted then.
      stack.enter_context(contextlib.closing(written)),
      partials,
      lambda shard: document_done(shard.documents * recipe.dupe_factor),
    )


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
  waiting = iter(shards)
  begun = collections.deque()
  lifeline, held = context.Pipe(duplex=False)
  with contextlib.closing(lifeline), contextlib.closing(held):
    try:
      while True:
        busy = {w.receiver: w for w in begun if w.counts is None}
        idle = min(num_workers - len(busy), 2 * num_workers - len(begun))
        for shard in itertools.islice(waiting, idle):
          with _interrupted_later():
            begun.append(_Worker(context, lifeline, shard, recipe, outputs))
          busy[begun[-1].receiver] = begun[-1]
        if not begun:
          return
        if begun[0].counts is not None:
          worker = begun.popleft()
          yield worker.shard, worker.parts, worker.counts
        else:
          for receiver in multiprocessing.connection.wait(list(busy)):
            busy[receiver].finish()
    finally:
      for worker in begun:
        worker.end()


@contextlib.contextmanager
def _interrupted_later():
  """Lets Ctrl-C wait for the end of what must not be left half done."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  interrupts = []
  handler = signal.signal(signal.SIGINT, lambda *args: interrupts.append(args))
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, handler)
  if interrupts:
    raise KeyboardInterrupt


class _Worker:
  """A process that writes the records of one shard, and gives its memory back.

  Attributes:
    shard: the Shard.
    parts: paths of the files, one for each output.
    receiver: ready when the process has come to its end.
    counts: its Counts, once `finish` has been called.
  """

  def __init__(self, context, lifeline, shard, recipe, outputs):
    self.shard = shard
    self.parts = [f"{path}.shard-{shard.index:05d}.partial" for path in outputs]
    self.counts = None
    self.receiver, sender = context.Pipe(duplex=False)
    with contextlib.closing(sender):
      self._process = context.Process(
        target=_write_part,
        args=(lifeline, sender, shard, recipe, self.parts),
        daemon=True,
      )
      self._process.start()

  def finish(self):
    """Waits for the process; raises what it has raised."""
    try:
      outcome = self.receiver.recv()
    except EOFError:
      raise OSError(
        "a worker process was killed, perhaps for want of memory; pass fewer "
        "--num_workers or a smaller --shard_mb"
      ) from None
    if isinstance(outcome, Exception):
      raise outcome
    self.counts = outcome
    self.end()

  def end(self):
    """Stops the process, if it is not done."""
    self._process.terminate()
    self._process.join()
    self.receiver.close()


def _write_part(lifeline, sender, shard, recipe, parts):
  """Sends the Counts of a shard that it writes, or what went wrong."""
  threading.Thread(
    target=_end_with_parent, args=[lifeline], daemon=True
  ).start()
  try:
    sender.send(_write_shards([shard], recipe, parts, lambda count: None))
  except (ValueError, OSError) as error:
    sender.send(error)
  except tf.errors.OpError as error:
    # It may hold what cannot go from process to process.
    sender.send(OSError(error.message))


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


def _end_with_parent(lifeline: Connection) -> None:
  """Ends this process as soon as the other end of a pipe is closed.

  The system closes it when the parent is killed.
  """
  with contextlib.suppress(EOFError, OSError):
    lifeline.recv()
  os._exit(1)
