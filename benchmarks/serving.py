"""Throughput and latency of serve.py on loopback.

    python benchmarks/serving.py MODEL_DIR [RUNTIME] [SECONDS] [ONNX_DIR]

Starts serve.py with the model, with batches (--max_batch=32) and without
(--max_batch=1), or with the model and with the ONNX folder made of it, and
sends requests for SECONDS (10) from 1, 8 and 32 clients at once. Each client
waits for an answer before it sends its next request. Texts have 4 to 40 words
of the vocabulary. Prints requests per second, and the median and 99th
percentile of the latency in milliseconds, in turns.
"""

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
import time

import machine

CLIENTS = (1, 8, 32)


def free_port():
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    return listener.getsockname()[1]


@contextlib.contextmanager
def serving(model_dir, runtime, *flags):
  """A running server; yields its port."""
  port = free_port()
  command = [sys.executable, os.path.join(machine.ROOT, "serve.py")]
  command += [f"--model_dir={model_dir}", f"--port={port}", *flags]
  command += [f"--runtime={runtime}", "--model_name=model", "--verbosity=-1"]
  # The server would take this setting for that of the user.
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
      yield port
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
      self._connection.close()
      raise

  def get(self, path):
    return self._send("GET", path)

  def post(self, body):
    return self._send("POST", "/answer", body)


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


def compare(sides, seconds):
  """`sides` are the arguments of `serving` by name."""
  with contextlib.ExitStack() as stack:
    ports = {
      name: stack.enter_context(serving(*arguments))
      for name, arguments in sides.items()
    }
    ((model_dir, *_), *_) = sides.values()
    bodies = make_bodies(model_dir, next(iter(ports.values())), 1000)
    for port in ports.values():
      load(port, bodies, 32, 2)  # Warm up.
    for clients in CLIENTS:
      for name, port in ports.items():
        latencies, rate = load(port, bodies, clients, seconds)
        p99 = statistics.quantiles(latencies, n=100)[98]
        print(
          f"{clients:2} clients, {name}: {rate:.0f} requests/s, median "
          f"{1000 * statistics.median(latencies):.1f} ms, 99 % "
          f"{1000 * p99:.1f} ms",
          flush=True,
        )


def main(model_dir, runtime="tensorflow", seconds=10, onnx_dir=None):
  print(machine.describe(), flush=True)
  model, batches = (model_dir, runtime), "--max_batch=32"
  sides = {
    "batches": (*model, batches),
    "no batches": (*model, "--max_batch=1"),
  }
  if onnx_dir:
    folder = onnx_dir, "tensorflow" if runtime == "onnxruntime" else runtime
    sides = {"trained": (*model, batches), "ONNX folder": (*folder, batches)}
  compare(sides, float(seconds))


if __name__ == "__main__":
  main(*sys.argv[1:])
