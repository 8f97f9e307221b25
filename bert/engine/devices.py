"""The devices of a run: one, several of a machine, several hosts, or a TPU.

Several hosts run the same command. The chief, the first host, writes all files.
The others compute the same steps on their own rows, and read what the chief has
written. The environment variable TF_CONFIG lists the hosts and identifies this
one:

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
     "task": {"type": "worker", "index": 0}}

A host with the job `chief`, if there is one, is the chief.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping

from typing import NamedTuple

import tensorflow as tf
from absl import logging

from bert import runtimes, strict_json, termination
from bert.data import files
from bert.errors import UserError, first_line, shortened


class LostWorkerError(UserError):
  """Another host, or the TPU, has stopped; all must be started again."""

  status = 75  # EX_TEMPFAIL of sysexits.h: trying again may help.


class Cluster(NamedTuple):
  """The hosts of a run."""

  # Name, such as `worker 1`, and address of each host; the chief is first.
  tasks: tuple[tuple[str, str], ...]
  index: int  # of this host in `tasks`


def read_cluster(text: str | None) -> Cluster | None:
  """The Cluster that a TF_CONFIG describes; None without one."""
  if not text:
    return None
  try:
    config = strict_json.loads(text)
    jobs = config["cluster"]
    if any(isinstance(hosts, str) for hosts in jobs.values()):
      raise TypeError("the hosts of a job are not a list")
    tasks = tuple(
      (f"{job} {number}", str(address))
      for job in ("chief", "worker")
      for number, address in enumerate(jobs.get(job, ()))
    )
    this = f"{config['task']['type']} {config['task']['index']}"
    return Cluster(tasks, [name for name, _ in tasks].index(this))
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise UserError(
      f"TF_CONFIG={text!r}: expected JSON with a `cluster` of jobs, "
      f"lists of addresses, and a `task` whose `type` and `index` name this "
      f"host; correct or unset it"
    ) from error


def choose(kind: str, use_tpu: bool, cluster: Cluster | None) -> str:
  """The kind of strategy; "auto" stays on a single host without a TPU."""
  if use_tpu:
    return "tpu"
  hosts, remedy = len(cluster.tasks) if cluster else 0, None
  if kind == "multi_worker" and not hosts:
    remedy = "set it"
  elif kind in ("one_device", "mirrored") and hosts > 1:
    # Each host would train alone, and all would write the same files.
    remedy = "pass multi_worker, or unset it"
  if remedy:
    raise UserError(
      f"--distribution_strategy={kind}: the environment variable TF_CONFIG "
      f"names {hosts or 'no'} hosts; {remedy}"
    )
  return "multi_worker" if kind == "auto" and hosts > 1 else kind


def num_threads() -> int:
  """Number of threads that TensorFlow divides an operation among."""
  return (
    tf.config.threading.get_intra_op_parallelism_threads()
    or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
    or runtimes.num_cores()
  )


def use_threads(count: int) -> None:
  """Makes TensorFlow divide each operation among this number of threads.

  Matrix products add up their terms in an order that depends on this number,
  but not on the number of cores that run the threads.

  Raises:
    UserError: TensorFlow has already started with another number.
  """
  started = num_threads()
  if count == started:
    return
  try:
    tf.config.threading.set_intra_op_parallelism_threads(count)
  except RuntimeError as error:
    raise UserError(
      f"--threads={count}: TensorFlow already uses {started} in this process; "
      f"pass --threads={started}, or start another process"
    ) from error


@functools.cache
def make_strategy(
  kind: str, cluster: Cluster | None = None, worker_timeout: float = 600.0
) -> tf.distribute.Strategy | None:
  """The strategy of this process, of a kind from `choose`; None for one device.

  With several hosts, call this before TensorFlow computes anything. From then
  on, only the chief writes files of the run. The process ends if the other
  hosts do not connect within `worker_timeout` seconds.
  """
  if kind == "tpu":
    return _make_tpu_strategy()
  if kind == "multi_worker":
    return _make_multi_worker_strategy(cluster, worker_timeout)
  if kind == "auto" and len(tf.config.list_physical_devices("GPU")) > 1:
    kind = "mirrored"
  if kind == "mirrored":
    # All GPUs, or else all logical CPUs.
    gpus = tf.config.list_logical_devices("GPU")
    names = [d.name for d in gpus or tf.config.list_logical_devices("CPU")]
    if len(names) == 1:
      logging.warning(
        "--distribution_strategy=mirrored finds one device, %s, and so has one "
        "replica",
        *names,
      )
    return tf.distribute.MirroredStrategy(names)
  return None


def _make_tpu_strategy():
  tf.get_logger().setLevel("WARNING")  # It logs its initialization.
  try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
  except (tf.errors.OpError, ValueError, RuntimeError) as error:
    raise UserError(
      f"this machine has no TPU ({shortened(first_line(error))}); omit "
      f"--use_tpu and --distribution_strategy=tpu"
    ) from error
  return tf.distribute.TPUStrategy(resolver)


# Several hosts.


def _make_multi_worker_strategy(cluster, timeout):
  logging.info(
    "This is %s of %d hosts; waiting for the others, which run the same "
    "command, for --worker_timeout=%g seconds",
    cluster.tasks[cluster.index][0],
    len(cluster.tasks),
    timeout,
  )
  handler = signal.getsignal(signal.SIGTERM)
  tf.get_logger().setLevel("WARNING")  # It logs each collective operation.
  with _end_after(timeout):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
  if handler is not None and _is_main_thread():
    signal.signal(signal.SIGTERM, handler)  # TensorFlow has replaced it.
  if cluster.index:
    files.write_only_in(_scratch_folder().name)
    logging.info(
      "From now on, only %s writes files and log lines", cluster.tasks[0][0]
    )
    if logging.get_verbosity() == logging.INFO:
      logging.set_verbosity(logging.WARNING)
  return strategy


@contextlib.contextmanager
def _end_after(seconds):
  """Ends this process if the body of the context takes longer.

  TensorFlow waits for other hosts without a timeout, and blocks all threads.
  """
  if not _is_main_thread():
    yield
    return
  with termination.default_handlers():
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def _is_main_thread():
  return threading.current_thread() is threading.main_thread()


@functools.cache
def _scratch_folder():
  """A folder that is deleted when this process ends."""
  return tempfile.TemporaryDirectory(prefix="worker-")


def _has_workers(strategy):
  return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def check_batch_size(
  name: str, batch_size: int, replicas: int = 1, micro_batches: int = 1
) -> None:
  """Raises UserError unless replicas and micro-batches divide a batch."""
  parts = replicas * micro_batches
  if batch_size % parts:
    divisor = [f"{replicas} devices"] if replicas > 1 else []
    if micro_batches > 1:
      divisor.append(f"--gradient_accumulation_steps={micro_batches}")
    raise UserError(
      f"{name}={batch_size} cannot be divided evenly among "
      f"{' and '.join(divisor)}; pass a multiple of {parts}"
    )


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Marks a dataset without end as such.

  Otherwise, TPUStrategy prepares for a smaller last batch: it makes the batch
  size dynamic, and synchronizes all cores at each step.
  """
  count = tf.data.INFINITE_CARDINALITY
  return dataset.apply(tf.data.experimental.assert_cardinality(count))


def is_endless(
  dataset: tf.data.Dataset | tf.distribute.DistributedDataset,
) -> bool:
  """Whether a dataset is marked as `endless`."""
  count = dataset.cardinality  # A function, unless it is distributed.
  count = count() if callable(count) else count
  return bool(count == tf.data.INFINITE_CARDINALITY)


def distribute(
  strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
  """Batches for `strategy.run`; except on a TPU, `share` divides them.

  Every host reads all batches, so all cut them to the same length. TensorFlow
  starts a tuning thread for each input that it divides among devices, and waits
  for that thread for up to a minute when the input is deleted.
  """
  if not is_tpu(strategy):
    return dataset
  return strategy.experimental_distribute_dataset(dataset)


def share(features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """A replica's part of a batch [B, ...], in the order of replicas.

  If their number does not divide B, the last ones get fewer rows or none.
  """
  replica = tf.distribute.get_replica_context()
  count, index = replica.num_replicas_in_sync, replica.replica_id_in_sync_group

  def part(value):
    rows = value.shape[0]
    if rows is None or rows % count:
      size = -(-tf.shape(value)[0] // count)
      return value[index * size : (index + 1) * size]
    # On a TPU, the index is an input of the program, so a slice that starts
    # there would have a dynamic shape.
    sizes = tf.concat([[count, rows // count], tf.shape(value)[1:]], axis=0)
    return tf.reshape(value, sizes)[index]

  if count == 1:
    return dict(features)
  return {name: part(value) for name, value in features.items()}


def is_tpu(strategy: tf.distribute.Strategy | None) -> bool:
  """Whether models run on a TPU."""
  return isinstance(strategy, tf.distribute.TPUStrategy)


def is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
  """Whether models run on a single CPU."""
  is_single = strategy.num_replicas_in_sync == 1 and not is_tpu(strategy)
  return is_single and not tf.config.list_logical_devices("GPU")


def gather(outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """The outputs of all replicas, if there are several hosts; see `merge`."""
  replica = tf.distribute.get_replica_context()
  if not _has_workers(replica.strategy):
    return dict(outputs)

  def of_all(value):
    if value.shape.rank:
      # TensorFlow needs a device, which inputs of the program do not have.
      return replica.all_gather(tf.identity(value), axis=0)
    mean = replica.all_reduce("MEAN", tf.identity(tf.cast(value, tf.float32)))
    return tf.cast(mean, value.dtype)

  return {name: of_all(value) for name, value in outputs.items()}


def merge(
  strategy: tf.distribute.Strategy, outputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
  """What `gather` returned on all replicas: rows joined, scalars averaged."""

  def merged(value):
    parts = strategy.experimental_local_results(value)
    if len(parts) == 1 or _has_workers(strategy):
      return parts[0]
    if parts[0].shape.rank == 0:
      return tf.reduce_mean(tf.stack(parts))
    return tf.concat(parts, axis=0)

  return {name: merged(value) for name, value in outputs.items()}


def exchange(strategy: tf.distribute.Strategy | None, number: int) -> list[int]:
  """The number of each host, in order; waits until all hosts call it."""
  if not _has_workers(strategy):
    return [number]
  gathered = _exchange_program(strategy)(tf.constant([int(number)], tf.int64))
  of_replicas = strategy.experimental_local_results(gathered)
  return of_replicas[0].numpy().tolist()[:: len(of_replicas)]


@functools.cache
def _exchange_program(strategy):
  @tf.function(autograph=False, input_signature=[tf.TensorSpec([1], tf.int64)])
  def run(number):
    def step():
      replica = tf.distribute.get_replica_context()
      return replica.all_gather(tf.identity(number), axis=0)

    return strategy.run(step)

  return run


def check_hosts_agree(
  strategy: tf.distribute.Strategy | None, number: int, what: str, remedy: str
) -> None:
  """Raises UserError unless a number is the same on all hosts."""
  numbers = exchange(strategy, number)
  if len(set(numbers)) > 1:
    raise UserError(f"{what} on different hosts: {numbers}; {remedy}")


def await_hosts(strategy: tf.distribute.Strategy | None) -> None:
  """Waits for the other hosts, unless one has stopped."""
  # A host that ended at once would close the connections over which a slower
  # one may still be reading the last exchange.
  with contextlib.suppress(*_lost_connection()):
    exchange(strategy, 0)


def _lost_connection():
  """The errors of TensorFlow when a host does not answer."""
  return (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
  )


@contextlib.contextmanager
def hosts_end_together(strategy: tf.distribute.Strategy | None) -> Iterator:
  """Waits for the other hosts at the end; reports a host that has stopped."""
  try:
    yield
    exchange(strategy, 0)
  except _lost_connection() as error:
    # Wrong paths raise FailedPreconditionError as well.
    may_be_path = isinstance(error, tf.errors.FailedPreconditionError)
    if is_tpu(strategy) and not may_be_path:
      raise LostWorkerError(
        f"the TPU has stopped ({first_line(error)}); run the same command "
        f"again to continue from the newest checkpoint"
      ) from error
    if not _has_workers(strategy):
      raise
    own = f"{strategy.cluster_resolver.task_type} "
    own += str(strategy.cluster_resolver.task_id)
    tasks = re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", error.message)
    others = [name for name in map(" ".join, tasks) if name != own]
    raise LostWorkerError(
      f"{[*others, 'another host'][0]} of TF_CONFIG has stopped; start the "
      f"same command on every host to continue from the newest checkpoint"
    ) from error
  await_hosts(strategy)
