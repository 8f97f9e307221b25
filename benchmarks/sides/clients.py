"""Starts a server of vectors, and measures the answers to clients.

    python clients.py CLIENTS REQUESTS TEXTS_FILE OUTPUT_DIR COMMAND...

COMMAND starts the server at the port that replaces `{port}` in it. Each client
waits for an answer before it sends its next request to /v1/embeddings, of one
text. Prints the seconds of all requests, and the median and 99th percentile of
the milliseconds of an answer; writes result.npy, the vectors of 32 texts.
"""

import concurrent.futures
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

START_SECONDS = 120


def free_port():
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    return listener.getsockname()[1]


class Client(threading.local):
  """A connection for each thread."""

  def __init__(self, port):
    self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

  def __call__(self, text):
    """The vector of a text, and the seconds of the answer."""
    start = time.perf_counter()
    body = json.dumps({"model": "model", "input": text})
    headers = {"Content-Type": "application/json"}
    self.connection.request("POST", "/v1/embeddings", body, headers)
    response = self.connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    vector = json.loads(content)["data"][0]["embedding"]
    return vector, time.perf_counter() - start


def wait(process, port):
  """Waits for the server."""
  for _ in range(START_SECONDS * 5):
    if process.poll() is not None:
      sys.exit("the server has ended")
    with socket.socket() as client:
      if client.connect_ex(("127.0.0.1", port)) == 0:
        return
    time.sleep(0.2)
  sys.exit(f"the server did not start within {START_SECONDS} seconds")


def main(clients, requests, texts_file, output_dir, *command):
  with open(texts_file, encoding="utf-8") as reader:
    texts = (reader.read().splitlines() * int(requests))[: int(requests)]
  port = free_port()
  process = subprocess.Popen([x.replace("{port}", str(port)) for x in command])
  try:
    wait(process, port)
    client = Client(port)
    vectors = [client(text)[0] for text in texts[:32]]  # Warms up, too.
    np.save(f"{output_dir}/result.npy", np.array(vectors, np.float32))
    with concurrent.futures.ThreadPoolExecutor(int(clients)) as pool:
      list(pool.map(client, texts[: 2 * int(clients)]))
      start = time.perf_counter()
      latencies = [seconds for _, seconds in pool.map(client, texts)]
      print(f"seconds = {time.perf_counter() - start}")
  finally:
    process.terminate()
    process.wait()
  print(f"median_ms = {1000 * statistics.median(latencies)}")
  print(f"p99_ms = {1000 * statistics.quantiles(latencies, n=100)[98]}")


if __name__ == "__main__":
  main(*sys.argv[1:])
