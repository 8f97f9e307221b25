"""Throughput and latency of serve.py on loopback, and its answers under faults.

    python benchmarks/serving.py MODEL_DIR [RUNTIME] [SECONDS] [REQUESTS]

Starts serve.py with the model, with batches (--max_batch=32) and without
(--max_batch=1), and asks it for SECONDS (10) from 1, 8 and 32 clients at once,
each of which sends its next request when it has the answer to the last. Texts
have 4 to 40 words of the vocabulary. Prints requests per second, and the
median and 99th percentile of the latency in milliseconds, in turns.

Then it sends REQUESTS (10,000) from 32 clients. A third of them are at fault:
damaged JSON, other types, too many bytes, a client that leaves early. Prints
how many answers of each status came, whether any is missing or differs from
that to the same text alone, and the memory of the server along the way.
"""

import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

import machine

CLIENTS = (1, 8, 32)
FAULTS = ("json", "type", "large", "leaves")


def free_port():
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    return listener.getsockname()[1]


@contextlib.contextmanager
def serving(model_dir, runtime, *flags):
  """A running server; yields its process id and port."""
  port = free_port()
  command = [sys.executable, os.path.join(machine.ROOT, "serve.py")]
  command += [f"--model_dir={model_dir}", f"--port={port}", *flags]
  command += [f"--runtime={runtime}", "--model_name=model", "--verbosity=-1"]
  # What keeps TensorFlow quiet here would be taken for the user's wish there.
  environment = {**os.environ}
  environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
  with subprocess.Popen(command, env=environment) as process:
    try:
      while True:
        assert process.poll() is None, "the server has ended"
        with contextlib.suppress(OSError):
          Client(port).get("/healthz")
          break
        time.sleep(0.2)
      yield process.pid, port
    finally:
      process.terminate()
      assert process.wait(60) == 0


class Client:
  """A connection that is kept for many requests."""

  def __init__(self, port):
    self._port = port
    self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

  def _send(self, *request):
    try:
      self._connection.request(*request)
      response = self._connection.getresponse()
      return response.status, response.read()
    except (http.client.HTTPException, OSError):
      # The server closes a connection after some faults.
      self._connection.close()
      raise

  def get(self, path):
    return self._send("GET", path)

  def post(self, body):
    return self._send("POST", "/answer", body)

  def leave(self, body):
    """Sends a request, and does not wait for its answer."""
    head = f"POST /answer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", self._port)) as leaving:
      leaving.sendall(f"{head}\r\n\r\n".encode() + body)


def make_bodies(model_dir, port, count):
  """Requests with random texts."""
  with open(f"{model_dir}/vocab.txt", encoding="utf-8") as reader:
    words = [w for w in reader.read().split("\n") if re.fullmatch("[a-z]+", w)]
  _, content = Client(port).get("/v1/models/model/metadata")
  signatures = json.loads(content)["metadata"]["signature_def"]["signature_def"]
  names = list(signatures["serving_default"]["inputs"])
  rng = random.Random(1)

  def text():
    return " ".join(rng.choices(words, k=rng.randint(4, 40)))

  return [
    json.dumps({name: text() for name in names}).encode() for _ in range(count)
  ]


def load(port, bodies, clients, seconds):
  """Latencies in seconds of all requests, and the requests per second."""
  latencies, end = [], time.perf_counter() + seconds

  def run(offset):
    client = Client(port)
    for body in itertools.cycle(bodies[offset:] + bodies[:offset]):
      start = time.perf_counter()
      if start > end:
        return
      status, content = client.post(body)
      assert status == 200, content
      latencies.append(time.perf_counter() - start)

  start = time.perf_counter()
  with concurrent.futures.ThreadPoolExecutor(clients) as pool:
    step = len(bodies) // clients
    list(pool.map(run, range(0, step * clients, step)))
  return latencies, len(latencies) / (time.perf_counter() - start)


def compare_batching(model_dir, runtime, seconds):
  with (
    serving(model_dir, runtime, "--max_batch=32") as (_, batching),
    serving(model_dir, runtime, "--max_batch=1") as (_, single),
  ):
    bodies = make_bodies(model_dir, batching, 1000)
    for port in (batching, single):
      load(port, bodies, 32, 2)  # Warm up.
    for clients in CLIENTS:
      for name, port in (("batches", batching), ("no batches", single)):
        latencies, rate = load(port, bodies, clients, seconds)
        p99 = statistics.quantiles(latencies, n=100)[98]
        print(
          f"{clients:2} clients, {name}: {rate:.0f} requests/s, median "
          f"{1000 * statistics.median(latencies):.1f} ms, 99 % "
          f"{1000 * p99:.1f} ms",
          flush=True,
        )


def memory(pid):
  """Memory of a process in MB."""
  with open(f"/proc/{pid}/status", encoding="utf-8") as reader:
    return int(re.search(r"VmRSS:\s+(\d+)", reader.read())[1]) / 1024


def faulty(client, fault, body):
  """Sends a request that is at fault; returns the status, or None."""
  if fault == "leaves":
    client.leave(body)
    return None
  wrong = {"json": body[:-3], "type": b"[1, 2]", "large": body * 9000}[fault]
  try:
    return client.post(wrong)[0]
  except (http.client.HTTPException, OSError):
    return "closed"  # Before it had read all of a large request.


def numbers(value):
  """The numbers in an answer."""
  if isinstance(value, dict):
    value = list(value.values())
  if isinstance(value, list):
    return [number for part in value for number in numbers(part)]
  return [value] if isinstance(value, int | float) else []


def endure(model_dir, runtime, requests):
  counts, done, lock = (
    collections.Counter(),
    itertools.count(1),
    threading.Lock(),
  )
  largest = 0.0
  with serving(model_dir, runtime, "--max_batch=32") as (pid, port):
    bodies = make_bodies(model_dir, port, 200)
    alone = [json.loads(Client(port).post(body)[1]) for body in bodies]

    def run(seed):
      nonlocal largest
      rng, client = random.Random(seed), Client(port)
      for _ in range(seed, requests, 32):
        index = rng.randrange(len(bodies))
        fault = rng.choice(FAULTS) if rng.random() < 1 / 3 else "none"
        if fault == "none":
          status, content = client.post(bodies[index])
          pairs = zip(
            numbers(json.loads(content)), numbers(alone[index]), strict=True
          )
          difference = max(abs(a - b) for a, b in pairs)
        else:
          status, difference = faulty(client, fault, bodies[index]), 0.0
        with lock:
          counts[fault, status] += 1
          largest = max(largest, difference)
          number = next(done)
        if number % (requests // 10) == 0:
          print(f"{number} requests: {memory(pid):.0f} MB", flush=True)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
      list(pool.map(run, range(32)))
  for (fault, status), count in sorted(counts.items(), key=str):
    print(f"fault {fault}, status {status}: {count}")
  lost = requests - sum(counts.values())
  print(f"{lost} lost; largest difference from alone: {largest:.1e}")


def main(model_dir, runtime="tensorflow", seconds=10, requests=10_000):
  print(machine.describe(), flush=True)
  compare_batching(model_dir, runtime, float(seconds))
  endure(model_dir, runtime, int(requests))


if __name__ == "__main__":
  main(*sys.argv[1:])
