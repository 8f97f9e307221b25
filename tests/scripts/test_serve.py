"""serve.py as a command: how it starts, answers, ends, and fails."""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request

import mistakes
import pytest
import scripts
import task_folders

import bert

SCRIPT = "serve.py"

MISTAKES = """
--model_dir=
  --model_dir is required
--model_dir=nowhere
  no folder nowhere
--model_dir=FOLDER/damaged
  task.json is damaged (invalid JSON
--host=1.2.3.4
  --host=1.2.3.4 ... pass another
--allowed_hosts=a.example,https://b.example
  --allowed_hosts=a.example,https://b.example must be ... without scheme
--runtime=onnxruntime --precision=bfloat16
  --precision=bfloat16 ... float32, int8, those of --runtime=onnxruntime
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, golden, goldens):
  folder = tmp_path_factory.mktemp("serve")
  (folder / "moods").mkdir()
  task_folders.write(folder / "moods", "classification", golden, goldens)
  (folder / "damaged").mkdir()
  task_folders.write(folder / "damaged", "squad", golden, goldens)
  (folder / "damaged" / "task.json").write_text("{")
  return folder


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(folder, mistake):
  good = {"model_dir": folder / "moods", "port": 0}
  mistakes.check(mistake, SCRIPT, folder, good, FOLDER=folder)


def metrics(port):
  url = f"http://127.0.0.1:{port}/metrics"
  with urllib.request.urlopen(url, timeout=30) as response:
    return response.read().decode()


def ask(port, path, text=None):
  """The status of a request, and the JSON of its answer."""
  body = None if text is None else json.dumps({"text": text}).encode()
  url = f"http://127.0.0.1:{port}{path}"
  with urllib.request.urlopen(url, body, timeout=30) as response:
    return response.status, json.load(response)


def post(port, path, body):
  """The JSON of the answer to a request."""
  url = f"http://127.0.0.1:{port}{path}"
  content = json.dumps(body).encode()
  with urllib.request.urlopen(url, content, timeout=30) as response:
    return json.load(response)


def start(folder, *flags):
  """A running server that answers, its port, and a time to give up."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  model = f"--model_dir={folder / 'moods'}"
  process = scripts.Fork(SCRIPT, model, f"--port={port}", *flags)
  deadline = time.monotonic() + 60
  while True:
    with contextlib.suppress(OSError):
      if ask(port, "/healthz") == (200, {"status": "ok"}):
        return process, port, deadline
    assert time.monotonic() < deadline
    time.sleep(0.05)


def await_texts(port, count, deadline):
  """Returns when so many texts wait for others to share a batch."""
  while f"\nbert_waiting_texts {count}.0\n" not in metrics(port):
    assert time.monotonic() < deadline
    time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_what_has_arrived(folder, number):
  process, port, deadline = start(folder, "--max_wait_ms=1500")
  with concurrent.futures.ThreadPoolExecutor(3) as pool:
    waiting = [pool.submit(ask, port, "/answer", f"a {n}") for n in range(3)]
    await_texts(port, 3, deadline)
    os.kill(process.pid, number)
    answers = [found.result() for found in waiting]
  assert [status for status, _ in answers] == [200] * 3
  assert answers[0][1].keys() == {"label", "labels", "probabilities"}
  status, _, log = process.wait()
  assert status == 0, log
  assert "Serving moods (classification) at http://127.0.0.1:" in log
  assert "Stopped; all requests are answered" in log


def test_a_second_signal_drops_what_has_arrived(folder):
  process, port, deadline = start(folder, "--max_wait_ms=60000")
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    waiting = pool.submit(ask, port, "/answer", "a")
    await_texts(port, 1, deadline)
    os.kill(process.pid, signal.SIGINT)
    with contextlib.suppress(ConnectionError):  # Since the first.
      while True:
        socket.create_connection(("127.0.0.1", port)).close()
        assert time.monotonic() < deadline
    os.kill(process.pid, signal.SIGINT)
    with pytest.raises(urllib.error.HTTPError) as error:
      waiting.result()
  with error.value as response:
    assert response.code == 503
    assert json.load(response) == {"error": "the server was stopped"}
  status, _, log = process.wait()
  assert status == 0, log
  assert "Traceback" not in log
  assert "all requests are answered" not in log
  assert "Stopped at once; requests were dropped" in log


def test_search_over_an_index(folder, golden, goldens):
  (folder / "release").mkdir()
  task_folders.write(folder / "release", "", golden, goldens)
  (folder / "texts.csv").write_text("id,text\n1,the north\n2,Jim Henson\n")
  index = f"--index={folder / 'index'}"
  release = f"--model_dir={folder / 'release'}"
  rows = f"--input_file={folder / 'texts.csv'}"
  scripts.fork("search_texts.py", index, release, rows)
  process, port, _ = start(folder, index, release)
  found = post(port, "/answer", {"query": "Jim", "top_k": 1})
  assert found["hits"][0].keys() == {"id", "text", "fields", "score"}
  found = post(port, "/v1/embeddings", {"input": ["a", "b"]})
  assert [len(row["embedding"]) for row in found["data"]] == [32, 32]
  body = {"query": "Jim", "documents": ["a", "Jim Henson"]}
  assert len(post(port, "/v1/rerank", body)["results"]) == 2
  with pytest.raises(urllib.error.HTTPError) as error:
    post(port, "/v1/embeddings", {})
  with error.value as response:
    message = json.load(response)["error"]["message"]
    assert "must be an object with 'input'" in message
  url = f"http://127.0.0.1:{port}/"
  with urllib.request.urlopen(url, timeout=30) as response:
    assert 'name="query"' in response.read().decode()
  os.kill(process.pid, signal.SIGTERM)
  status, _, log = process.wait()
  assert status == 0, log
  assert "Serving release (2 texts) at http://" in log


def test_documents_are_ordered_by_the_reranker(tmp_path, golden, goldens):
  for name, kind in (("release", ""), ("pairs", "multilabel")):
    (tmp_path / name).mkdir()
    task_folders.write(tmp_path / name, kind, golden, goldens)
  model = bert.load(tmp_path / "pairs")
  release = f"--model_dir={tmp_path / 'release'}"
  flags = f"--reranker={tmp_path / 'pairs'}", "--relevant_label=blue"
  process, port, _ = start(tmp_path, release, *flags)
  texts = ["the north", "Jim Henson", "a city"]
  body = {"query": "Jim", "documents": texts}
  found = post(port, "/v1/rerank", body)["results"]
  place = model.labels.index("blue")
  answers = model([("Jim", text) for text in texts])
  wanted = [answer["probabilities"][place] for answer in answers]
  scores = {row["index"]: row["relevance_score"] for row in found}
  assert [scores[i] for i in range(3)] == pytest.approx(wanted, abs=1e-5)
  assert [*scores.values()] == sorted(scores.values(), reverse=True)
  assert ask(port, "/v1/models")[1]["data"][0]["id"] == "release"
  os.kill(process.pid, signal.SIGTERM)
  assert process.wait()[0] == 0
