"""Writes the records of a corpus on this machine, with several processes.

    with workspace(["wiki.tfrecord"]) as (paths, prefix):
      corpus = scan(["wiki.txt.gz"], 8_000_000, 2, spool=prefix)
      write_records(corpus, config, paths, prefix, num_workers=8)

The files do not depend on the number of processes.
"""

import collections
import concurrent.futures
import contextlib
import glob
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from bert.data import files, records
from bert.data.corpus import Corpus, CorpusConfig, records_of_shard


@contextlib.contextmanager
def workspace(outputs: Sequence[str]) -> Iterator[tuple[list[str], str]]:
  """Yields temporary paths of the outputs, and a prefix for temporary files.

  Renames all outputs at the end, or none after an exception. Deletes the files
  with the prefix, also those of a killed run.
  """
  with contextlib.ExitStack() as stack:
    paths = [stack.enter_context(files.atomic_write(path)) for path in outputs]
    prefix = f"{paths[0]}.tmp-"
    # From here on no other process uses these files.
    _remove_all(prefix)
    stack.callback(_remove_all, prefix)
    yield paths, prefix


def _remove_all(prefix):
  for path in files.find(f"{glob.escape(prefix)}*"):
    remove = files.remove_tree if files.isdir(path) else files.remove
    remove(path)


def write_records(
  corpus: Corpus,
  config: CorpusConfig,
  paths: Sequence[str],
  prefix: str,
  num_workers: int,
  documents_done: Callable[[int], object] = lambda count: None,
) -> collections.Counter:
  """Writes the records of a corpus to TFRecord files; returns their counts.

  Args:
    paths: the files to write. The records of shard k go to the files in turn,
      beginning with the k-th.
    prefix: prefix of temporary files.
    num_workers: number of processes that share the shards; at most one means
      this process.
    documents_done: called with numbers of documents, `dupe_factor` times in
      total for each document.

  Raises:
    OSError: a worker was killed, or cannot write.
  """
  num_workers = min(num_workers, len(corpus.shards))
  total = collections.Counter()
  with contextlib.ExitStack() as stack:
    writers = [stack.enter_context(files.open_file(p, "wb")) for p in paths]
    if num_workers == 1:
      for shard in corpus.shards:
        total += _write_shard(shard, config, writers, lambda: documents_done(1))
      return total
    results = _results(corpus.shards, config, len(paths), prefix, num_workers)
    stack.enter_context(contextlib.closing(results))
    for shard, parts, counts in results:
      for part, writer in zip(parts, writers, strict=True):
        with files.open_file(part) as reader:
          shutil.copyfileobj(reader, writer, files.WRITE_BYTES)
        files.remove(part)
      total += counts
      documents_done(shard.num_documents * config.dupe_factor)
  return total


def _write_shard(shard, config, writers, document_done=lambda: None):
  """Writes the records of a shard; returns their counts."""
  encoded, counts = records_of_shard(shard, config, document_done)
  for number, writer in enumerate(writers):
    first = (number - shard.index) % len(writers)
    for record in encoded[first :: len(writers)]:
      writer.write(records.framed(record))
  return counts


def _results(shards, config, num_outputs, prefix, num_workers):
  """Yields (shard, files of its records, counts) in the order of the shards."""
  others = set(multiprocessing.active_children())
  executor = concurrent.futures.ProcessPoolExecutor(
    num_workers, multiprocessing.get_context("spawn"), _start_worker
  )
  submitted = []
  try:
    # Ctrl-C ends this process, and then the workers end.
    with _interrupts_ignored():
      for shard in shards:
        stem = f"{prefix}shard-{shard.index:05d}-"
        parts = [f"{stem}{number}" for number in range(num_outputs)]
        task = executor.submit(_write_parts, shard, config, parts)
        submitted.append((shard, parts, task))
    for shard, parts, task in submitted:
      yield shard, parts, task.result()
  except BaseException as error:
    for worker in set(multiprocessing.active_children()) - others:
      worker.terminate()
    if isinstance(error, concurrent.futures.BrokenExecutor):
      raise OSError(
        "a worker process was killed, perhaps for lack of memory; lower "
        "--num_workers or --shard_mb"
      ) from None
    raise
  finally:
    executor.shutdown(cancel_futures=True)


def _write_parts(shard, config, parts):
  with contextlib.ExitStack() as stack:
    writers = [stack.enter_context(files.open_file(p, "wb")) for p in parts]
    return _write_shard(shard, config, writers)


@contextlib.contextmanager
def _interrupts_ignored():
  """Ignores Ctrl-C, also in processes that are started meanwhile."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    yield
  finally:
    # A handler that was not installed from Python is returned as None.
    signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)


def _start_worker():
  """Ends this process when its parent ends, even if the parent is killed."""
  threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
  multiprocessing.parent_process().join()
  os._exit(1)
