"""TF_CONFIG is checked, and hosts wait for each other."""

import contextlib
import json
import socket
import threading

import pytest

from bert.errors import UserError
from bert.training import cluster

HOSTS = ["10.0.0.1:2222", "10.0.0.2:2222", "[::1]:2222"]


def _config(jobs, kind="worker", index=0):
  return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})


def test_the_hosts_of_a_run():
  assert cluster.read_cluster(None) is cluster.read_cluster("") is None
  found = cluster.read_cluster(_config({"worker": HOSTS}, index=2))
  names = ["worker 0", "worker 1", "worker 2"]
  assert found.tasks == tuple(zip(names, HOSTS, strict=True))
  assert found.index == 2
  jobs = {"worker": HOSTS[1:], "chief": HOSTS[:1]}
  assert cluster.read_cluster(_config(jobs, "chief")).index == 0
  found = cluster.read_cluster(_config(jobs))
  assert found.tasks[0] == ("chief 0", HOSTS[0])
  assert found.index == 1


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("{", r"TF_CONFIG='\{': expected JSON"),
    ("[]", "expected JSON"),
    ('{"cluster": {"worker": ["a:1"]}}', "`type` and `index` of a `task`"),
    (_config(["a:1"]), "expected JSON"),
    (_config({"worker": "a:1"}), "expected JSON with lists of addresses in"),
    (_config({"worker": HOSTS}, index="first"), "expected JSON"),
    (_config({}), "must name one chief, or workers"),
    (_config({"worker": []}), "must name one chief, or workers"),
    (_config({"chief": HOSTS}), "must name one chief"),
    (_config({"worker": HOSTS, "ps": ["a:1"]}), "a job ps; name chief and"),
    (
      _config({"worker": ["10.0.0.1"]}),
      "'10.0.0.1' is not an address; pass host:",
    ),
    (
      _config({"worker": ["a:65536"]}),
      "'a:65536' is not an address; .* a port",
    ),
    (_config({"worker": ["a:0"]}), "'a:0' is not an address"),
    (_config({"worker": [*HOSTS, HOSTS[1]]}), "two hosts have .* 10.0.0.2"),
    (_config({"chief": ["a:1"], "worker": ["a:1"]}), "two hosts have .* a:1;"),
    (_config({"worker": HOSTS}, index=3), "worker 3 is not in .* worker 2;"),
    (_config({"worker": HOSTS}, "chief"), "chief 0 is not in the cluster"),
  ],
)
def test_what_is_wrong_with_it(text, message):
  with pytest.raises(UserError, match=f"(?=TF_CONFIG).*{message}"):
    cluster.read_cluster(text)


@pytest.fixture
def port():
  """A port that nobody uses; nor the one before and the three after."""
  while True:
    with contextlib.ExitStack() as stack:
      server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
      port = server.getsockname()[1]
      with contextlib.suppress(OSError, OverflowError):
        for other in (port - 1, port + 1, port + 2, port + 3):
          stack.enter_context(socket.create_server(("127.0.0.1", other)))
        return port


def _cluster(port, index, count, host):
  addresses = [f"{host}:{port + n}" for n in range(count)]
  return cluster.Cluster(
    tuple((f"worker {n}", a) for n, a in enumerate(addresses)), index
  )


def _await(port, index, results, timeout=20, count=3, host="127.0.0.1"):
  try:
    cluster.await_workers(_cluster(port, index, count, host), timeout)
    results[index] = "came"
  except UserError as error:
    results[index] = str(error)


def test_all_hosts_start_together(port):
  results = {}
  threads = {
    index: threading.Thread(target=_await, args=(port, index, results, 20, 4))
    for index in (2, 0, 1, 3)
  }
  threads[2].start()  # It waits until the chief listens.
  threads[0].start()
  # One that is none of ours, and one that stops before all are there.
  for greeting in (b"GET /", b"1"):
    for _ in range(200):
      try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
          connection.sendall(greeting)
          break
      except ConnectionError:
        threads[0].join(0.02)
    else:
      pytest.fail("the chief does not listen")
  # The chief looks again whether the others are there when the last one comes.
  threads[1].start()
  threads[3].start()
  for thread in threads.values():
    thread.join()
  assert results == dict.fromkeys(range(4), "came")
  # TensorFlow listens at the same address afterwards.
  socket.create_server(("127.0.0.1", port)).close()


def test_a_host_that_does_not_come(port):
  results = {}
  worker = threading.Thread(target=_await, args=(port, 1, results, 2))
  worker.start()
  _await(port, 0, results, 2)
  worker.join()
  assert results[0].startswith(
    f"TF_CONFIG: worker 2 at 127.0.0.1:{port + 2} did not connect within "
    f"--worker_timeout=2 seconds"
  )
  assert "worker 0" in results[1]
  assert "--worker_timeout=2" in results[1]
  _await(port, 2, results, 0.1)
  assert "worker 0" in results[2]


@pytest.mark.skipif(
  not socket.has_dualstack_ipv6(), reason="this machine has no IPv6"
)
def test_hosts_meet_over_ipv6(port):
  results = {}
  arguments = (port, 1, results, 20, 2, "[::1]")
  worker = threading.Thread(target=_await, args=arguments)
  worker.start()
  _await(port, 0, results, 20, 2, "[::1]")
  worker.join()
  assert results == {0: "came", 1: "came"}


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0"])
def test_another_program_at_the_address_of_the_chief(port, answer):
  with socket.create_server(("127.0.0.1", port)) as listener:

    def answer_all():
      with contextlib.suppress(OSError):  # The listener is closed at the end.
        while True:
          connection, _ = listener.accept()
          with connection:
            connection.sendall(answer)

    threading.Thread(target=answer_all, daemon=True).start()
    results = {}
    worker = threading.Thread(
      target=_await, args=(port, 1, results, 1), daemon=True
    )
    worker.start()
    worker.join(20)
    listener.shutdown(socket.SHUT_RDWR)
  assert "worker 0" in results[1]
  assert "--worker_timeout=1" in results[1]


def test_an_address_in_use(port):
  results = {}
  with socket.create_server(("", port)):
    _await(port, 0, results)
    # Worker 1 of a cluster that begins one port before.
    _await(port - 1, 1, results)
  assert "worker 0 cannot listen at" in results[0]
  assert f"worker 1 cannot listen at 127.0.0.1:{port}: " in results[1]
