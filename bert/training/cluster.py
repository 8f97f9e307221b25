"""The hosts of a run, which the environment variable TF_CONFIG names.

All run the same command. TF_CONFIG also says which of them this one is:

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
     "task": {"type": "worker", "index": 0}}

The first one is the chief. If there is a job `chief`, it is that one.
"""

import contextlib
import json
import re
import socket
import time
from typing import NamedTuple

from bert.errors import UserError

# Seconds between two attempts to reach the chief.
_RETRY_SECONDS = 0.2

# Seconds that the chief gives each of the others to answer.
_ANSWER_SECONDS = 5

# What the chief sends to the others when all are there.
_GO = b"go\n"


class Cluster(NamedTuple):
  """The hosts of a run.

  Attributes:
    tasks: name, such as `worker 1`, and address of each host; first the chief.
    index: number of this host among them.
  """

  tasks: tuple[tuple[str, str], ...]
  index: int


def read_cluster(text: str | None) -> Cluster | None:
  """The Cluster that a TF_CONFIG describes; None without one.

  Raises:
    UserError: it is wrong.
  """
  if not text:
    return None
  try:
    config = json.loads(text)
    jobs = config["cluster"]
    if not all(isinstance(hosts, list) for hosts in jobs.values()):
      raise TypeError("the hosts of a job are not a list")
    kind, index = config["task"]["type"], int(config["task"]["index"])
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise UserError(
      f"TF_CONFIG={text!r}: expected JSON with lists of addresses in a "
      f"`cluster`, and the `type` and `index` of a `task`; correct or unset it"
    ) from error
  unknown = sorted(jobs.keys() - {"chief", "worker"})
  tasks = tuple(
    (f"{job} {number}", str(address))
    for job in ("chief", "worker")
    for number, address in enumerate(jobs.get(job, ()))
  )
  names = [name for name, _ in tasks]
  addresses = [address for _, address in tasks]
  wrong = [address for address in addresses if not _is_address(address)]
  repeated = [a for a in addresses if addresses.count(a) > 1]
  problem = None
  if unknown:
    problem = f"there is a job {unknown[0]}; name chief and worker only"
  elif not tasks or len(jobs.get("chief", ())) > 1:
    problem = "the cluster must name one chief, or workers; add them"
  elif wrong:
    problem = (
      f"{wrong[0]!r} is not an address; pass host:port, a port below 65536"
    )
  elif repeated:
    problem = f"two hosts have the address {repeated[0]}; name each host once"
  elif f"{kind} {index}" not in names:
    problem = (
      f"the task {kind} {index} is not in the cluster: {', '.join(names)}; "
      f"pass one of these"
    )
  if problem:
    raise UserError(f"TF_CONFIG: {problem}")
  return Cluster(tasks, names.index(f"{kind} {index}"))


def _is_address(text):
  found = re.fullmatch(r".+:(\d{1,5})", text)
  return bool(found) and 0 < int(found[1]) < 2**16


def await_workers(cluster: Cluster, timeout: float) -> None:
  """Waits until every host of a cluster has called this function.

  TensorFlow itself waits without end, and cannot be interrupted. The chief
  listens at its address, which TensorFlow uses afterwards, as the other hosts
  do at theirs.

  Args:
    cluster: the Cluster.
    timeout: seconds.

  Raises:
    UserError: a host has not come, or the address of this host is in use.
  """
  chief, address = cluster.tasks[0]
  host, _, port = address.rpartition(":")
  deadline = time.monotonic() + timeout
  if cluster.index:
    _listen(*cluster.tasks[cluster.index]).close()
    try:
      _greet(host.strip("[]"), int(port), cluster.index, deadline)
    except OSError as error:
      raise UserError(
        f"TF_CONFIG: {chief} at {address} has not started all hosts within "
        f"--worker_timeout={timeout:g} seconds; start the same command on "
        f"every host"
      ) from error
  elif len(cluster.tasks) > 1:
    with _listen(chief, address) as listener:
      missing = _admit(listener, len(cluster.tasks), deadline)
    if missing:
      names = ", ".join(" at ".join(cluster.tasks[n]) for n in missing)
      raise UserError(
        f"TF_CONFIG: {names} did not connect within "
        f"--worker_timeout={timeout:g} seconds; start the same command on "
        f"every host"
      )


def _listen(name, address):
  """A socket at the port of this host."""
  has_both = socket.has_dualstack_ipv6()
  family = socket.AF_INET6 if has_both else socket.AF_INET
  port = int(address.rpartition(":")[2])
  try:
    return socket.create_server(
      ("", port), family=family, dualstack_ipv6=has_both
    )
  except OSError as error:
    raise UserError(
      f"TF_CONFIG: {name} cannot listen at {address}: {error.strerror}; "
      f"stop the process that uses it, or pass another port"
    ) from error


def _admit(listener, count, deadline):
  """Lets `count` hosts start together; the numbers of those that are missing.

  The host number 0 is this one.
  """
  connections = {}
  with contextlib.ExitStack() as stack:
    while missing := set(range(1, count)) - connections.keys():
      try:
        listener.settimeout(max(deadline - time.monotonic(), 0.01))
        connection = stack.enter_context(listener.accept()[0])
      except TimeoutError:
        return sorted(missing)
      with contextlib.suppress(OSError, ValueError):  # It was somebody else.
        connection.settimeout(_ANSWER_SECONDS)
        connections[int(connection.recv(16))] = connection
      connections = {n: c for n, c in connections.items() if _is_open(c)}
    for connection in connections.values():
      with contextlib.suppress(OSError):
        connection.settimeout(_ANSWER_SECONDS)
        connection.sendall(_GO)
        # They close first, so that our port is free at once.
        connection.recv(1)
  return []


def _is_open(connection):
  """Whether the other side still waits for us."""
  try:
    connection.setblocking(False)
    return connection.recv(1, socket.MSG_PEEK) != b""
  except BlockingIOError:
    return True  # There is nothing to read.
  except OSError:
    return False


def _greet(host, port, index, deadline):
  """Tells the chief that this host is there, and waits for its answer."""
  while True:
    try:
      with connect(host, port, deadline) as connection:
        connection.sendall(str(index).encode())
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        if connection.recv(len(_GO)) == _GO:
          return
    except ConnectionError:
      pass
    if time.monotonic() > deadline:  # It was somebody else.
      raise TimeoutError(f"{host}:{port} is not the chief")
    time.sleep(_RETRY_SECONDS)


def connect(host: str, port: int, deadline: float) -> socket.socket:
  """A connection, as soon as the other side listens.

  Args:
    host, port: address of the other side.
    deadline: time by `time.monotonic`.

  Raises:
    OSError: it does not until the deadline.
  """
  while True:
    left = deadline - time.monotonic()
    try:
      return socket.create_connection((host, port), max(min(left, 10), 0.01))
    except OSError:
      if left < _RETRY_SECONDS:
        raise
    time.sleep(_RETRY_SECONDS)
