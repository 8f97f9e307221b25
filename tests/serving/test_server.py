"""The server on loopback: its formats, its limits, and how it ends."""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
import types
from unittest import mock

import pytest
import task_folders
import uvicorn
import web_page
from served import LIMITS, running

from bert.contract.task import Field
from bert.engine import loaded_model, predictor, runner
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError
from bert.serving import batching, host_guard, rest, server
from bert.tasks.embeddings import vectors as features
from bert.tasks.squad import data as squad, decoding as squad_decoding
from bert.tasks.squad.task import Answered, SquadTask

LABELS = ["no", "yes"]


def classify(items):
  """Says yes to as much as the text is long; some texts do other things."""
  answers = []
  if any(text.startswith("sleep") for (text,) in items):
    time.sleep(1.1)
  for (text,) in items:
    if text == "fault":
      raise RuntimeError("a fault of the program")
    if text == "infinite":
      raise runner.InfiniteOutputError("checkpoint /models/a gives NaN")
    if text == "wrong":
      raise UserError("a text\nthat the model cannot read")
    share = min(len(text), 10) / 10
    answers.append(
      {
        "label": LABELS[share > 0.5],
        "labels": LABELS,
        "probabilities": [round(1 - share, 6), share],
      }
    )
  return answers


class Fake(LoadedModel):
  """A model whose answers a function computes.

  Args:
    inputs: the Fields of an input.
    outputs: the type of each output.
    answer: see `LoadedModel.answer`.
    kind: the kind of task.
  """

  def __init__(self, inputs, outputs, answer, kind=""):
    task = types.SimpleNamespace(
      inputs=inputs,
      output_types=outputs.items(),
      kind=kind,
      labels=(),
      feature_spec=lambda is_training: {},
    )
    model = types.SimpleNamespace(checkpoint="model.ckpt-1", config=None)
    with mock.patch.object(predictor, "load"):
      super().__init__(task, model)
    self.answer = answer


OUTPUTS = dict.fromkeys(("label", "labels", "probabilities"), "DT_STRING")
CLASSIFIER = Fake((Field("text"),), OUTPUTS, classify, "classification")
REGRESSION = Fake(
  (Field("text_a"), Field("text_b")),
  {"value": "DT_FLOAT"},
  lambda items: [{"value": len(a) + len(b) / 2} for a, b in items],
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_it_answers_ends_it(monkeypatch, number):
  run = uvicorn.Server.run

  def run_late(self, sockets=None):
    os.kill(os.getpid(), number)
    run(self, sockets)

  monkeypatch.setattr(uvicorn.Server, "run", run_late)
  handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
  try:
    app = server.make_app(CLASSIFIER, "moods", LIMITS)
    assert server.serve(app, server.open_socket("127.0.0.1", 0), 2.0)
  finally:
    for handled, handler in handlers.items():
      signal.signal(handled, handler)


@pytest.fixture(scope="module")
def client():
  with running(CLASSIFIER, "moods") as client:
    yield client


@pytest.fixture(scope="module")
def regression():
  with running(REGRESSION, "stars") as client:
    yield client


def scored(*shares):
  return [
    {
      "label": LABELS[share > 0.5],
      "labels": LABELS,
      "probabilities": [round(1 - share, 6), share],
    }
    for share in shares
  ]


class TestFormats:
  """TensorFlow Serving's; see tensorflow.org/tfx/serving/api_rest."""

  @pytest.mark.parametrize("version", ["", "/versions/1"])
  def test_rows(self, client, version):
    path = f"/v1/models/moods{version}:predict"
    rows = {"instances": ["ab", {"text": "abcdefgh"}]}
    status, found, headers = client.request(path, rows)
    assert (status, found) == (200, {"predictions": scored(0.2, 0.8)})
    assert headers["content-type"] == "application/json"
    rows["signature_name"] = "serving_default"
    assert client.request(path, rows)[1] == found

  def test_columns(self, client):
    expected = {
      "label": ["no", "yes"],
      "labels": [LABELS] * 2,
      "probabilities": [[0.8, 0.2], [0.4, 0.6]],
    }
    for inputs in ({"text": ["ab", "abcdef"]}, ["ab", "abcdef"]):
      found = client.request("/v1/models/moods:predict", {"inputs": inputs})[1]
      assert found == {"outputs": expected}

  def test_strings_in_base64(self, client):
    ab = {"b64": "YWI="}
    for body in ({"instances": [ab]}, {"instances": [{"text": ab}]}):
      found = client.request("/v1/models/moods:predict", body)[1]
      assert found == {"predictions": scored(0.2)}
    for inputs in ([ab], {"text": [ab]}):
      found = client.request("/v1/models/moods:predict", {"inputs": inputs})[1]
      assert found["outputs"]["probabilities"] == [[0.8, 0.2]]
    assert client.request("/answer", {"text": ab})[1] == scored(0.2)[0]
    model = Fake((Field("choices", is_list=True),), {}, classify)
    call = rest.read_answer(model, [{"choices": [{"b64": "w6k="}, "b"]}])
    assert call.items == [(["é", "b"],)]

  def test_one_output_has_no_name(self, regression):
    rows = [{"text_a": "abc", "text_b": "ab"}]
    columns = {"text_a": ["abc"], "text_b": ["ab"]}
    for body, expected in (
      ({"instances": rows}, {"predictions": [4.0]}),
      ({"inputs": columns}, {"outputs": [4.0]}),
    ):
      status, found, _ = regression.request("/v1/models/stars:predict", body)
      assert (status, found) == (200, expected)

  def test_classify(self, client):
    body = {"examples": [{"text": "ab"}, {"text": "abcde"}]}
    found = client.request("/v1/models/moods:classify", body)[1]
    assert found == {
      "result": [[["no", 0.8], ["yes", 0.2]], [["no", 0.5], ["yes", 0.5]]]
    }

  def test_regress_with_a_common_context(self, regression):
    body = {
      "context": {"text_a": "abc"},
      "examples": [{"text_b": ""}, {"text_b": "ab", "text_a": ""}],
    }
    found = regression.request("/v1/models/stars:regress", body)[1]
    assert found == {"result": [3.0, 1.0]}

  def test_features_may_be_lists_of_one(self, regression):
    body = {
      "context": {"text_a": ["abc"]},
      "examples": [{"text_b": [{"b64": "YWI="}]}],
    }
    found = regression.request("/v1/models/stars:regress", body)[1]
    assert found == {"result": [4.0]}

  def test_status_and_metadata(self, client):
    status, found, _ = client.request("/v1/models/moods")
    (version,) = found["model_version_status"]
    assert (status, version["version"]) == (200, "1")
    assert version["state"] == "AVAILABLE"
    _, found, _ = client.request("/v1/models/moods/versions/1/metadata")
    assert found["model_spec"]["name"] == "moods"
    signatures = found["metadata"]["signature_def"]["signature_def"]
    signature = signatures["serving_default"]
    assert signature["inputs"]["text"]["dtype"] == "DT_STRING"
    assert signature["outputs"].keys() == {"label", "labels", "probabilities"}
    assert signature["method_name"] == "tensorflow/serving/predict"
    tensors = signature["inputs"] | signature["outputs"]
    ranks = {n: len(t["tensor_shape"]["dim"]) for n, t in tensors.items()}
    assert ranks == {"text": 1, "label": 1, "labels": 2, "probabilities": 2}

  def test_ranks(self):
    model = Fake((Field("text"),), {"entities": "DT_VARIANT"}, list)
    signature = rest.metadata(model, "words")["metadata"]["signature_def"]
    (signature,) = signature["signature_def"].values()
    tensor = signature["outputs"]["entities"]
    assert tensor["dtype"] == "DT_VARIANT"
    assert len(tensor["tensor_shape"]["dim"]) == 2

  def test_plain(self, client):
    assert client.request("/answer", '"ab"')[1] == scored(0.2)[0]
    assert client.answer("ab") == (200, scored(0.2)[0])
    found = client.request("/answer", ["ab", {"text": "abcdef"}])[1]
    assert found == {"answers": scored(0.2, 0.6)}


# A request, and what its answer says: the status, and a part of its line.
BAD = [
  ("/answer", "{", 400, "not valid JSON"),
  ("/answer", '"\\ud800"', 400, "not valid JSON"),
  ("/answer", "[" * 900 + "]" * 900, 400, "not an object with"),
  ("/answer", "[" * 1999, 400, "not valid JSON"),
  ("/answer", "7", 400, "not an object with 'text'"),
  ("/answer", "[]", 400, "'input' is not a list with at least"),
  ("/answer", {}, 400, "text is missing; pass a string"),
  ("/answer", {"text": 7}, 400, "text is not a string"),
  ("/answer", {"txt": "a"}, 400, "not an object with 'text',"),
  ("/answer", {"text": "wrong"}, 400, "a text that the model cannot read"),
  ("/answer", {"text": "fault"}, 500, "the server failed"),
  ("/answer", {"text": "infinite"}, 500, "failed; its log has the reason"),
  ("/answer", {"text": "a" * 101}, 413, "--max_text_chars=100"),
  ("/answer", ["a"] * 7, 400, "7 texts, more than --max_texts=6"),
  (":predict", {"inputs": {"text": ["a"] * 7}}, 400, "7 texts, more than"),
  ("/answer", "[" * 40_000, 413, "--max_body_bytes=2000"),
  (":predict", {"instances": [], "inputs": []}, 400, "'instances'"),
  (":predict", {"instances": [{"b64": "a"}]}, 400, "instances[0] is not an"),
  ("/answer", {"text": {"b64": "/w=="}}, 400, "text is not a string"),
  (":predict", {"instances": ["a", 7]}, 400, "instances[1] is not"),
  (":predict", {"inputs": {"text": "ab"}}, 400, "with lists of one length"),
  (":classify", {}, 400, "must be an object with 'examples'"),
  (":classify", {"examples": [{"text": ["a", "b"]}]}, 400, "is not a string"),
  (":regress", {"examples": []}, 400, "use :predict"),
  (":train", {}, 404, "no method :train"),
  ("/v1/models/other:predict", {}, 404, "there is moods"),
  ("/v1/models/moods/versions/2:predict", {}, 404, "version 1"),
  ("/nowhere", {}, 404, "Not Found"),
  (":predict", None, 405, "Method Not Allowed"),
  ("/healthz", {}, 405, "Method Not Allowed"),
]


@pytest.mark.parametrize(("path", "body", "status", "part"), BAD)
def test_a_bad_request_gets_one_line(client, path, body, status, part):
  path = f"/v1/models/moods{path}" if path.startswith(":") else path
  found, answer, _ = client.request(path, body)
  assert found == status, answer
  assert answer.keys() == {"error"}
  assert part in answer["error"]
  assert "\n" not in answer["error"]
  assert client.answer("ab") == (200, scored(0.2)[0])  # It still answers.


@pytest.mark.parametrize("path", ["/nowhere", "/healthz", "/answer"])
def test_a_client_sees_why_its_body_is_refused(path):
  """Without reading the body, the connection may be reset."""
  limits = dataclasses.replace(LIMITS, max_body_bytes=100_000)
  with running(CLASSIFIER, "moods", limits) as client:
    for _ in range(20):
      status, found, _ = client.request(
        path, b" " * 900_000, headers={"Connection": "close"}
      )
      assert status in (404, 405, 413)
      assert "error" in found


def test_the_list_of_models(client):
  status, found, _ = client.request("/v1/models")
  assert (status, found["object"]) == (200, "list")
  (model,) = found["data"]
  assert (model["id"], model["object"]) == ("moods", "model")


def test_a_context_counts_once_for_each_choice():
  model = Fake(
    (Field("context"), Field("choices", is_list=True)),
    {"choice": "DT_INT64"},
    lambda items: [{"choice": 0} for _ in items],
  )
  with running(model, "choices") as client:
    body = {"context": "a" * 30, "choices": ["b"] * 3}
    assert client.request("/answer", body)[0] == 200
    status, found, _ = client.request("/answer", {**body, "choices": ["b"] * 4})
  assert status == 413
  assert "124 characters" in found["error"]
  assert found["error"].endswith("more than --max_text_chars=100")


def test_an_optional_input_may_be_null():
  fields = (Field("question", default=""), Field("context"))
  model = Fake(fields, {}, classify)
  assert model.parse({"question": None, "context": "a"}) == ("", "a")
  with pytest.raises(UserError, match="the input: context is missing; pass"):
    model.parse({"question": "a", "context": None})


def test_the_log_says_what_is_damaged(client, caplog):
  client.answer("infinite")
  assert "checkpoint /models/a gives NaN" in caplog.text


class TestLimits:
  def test_a_body_without_a_length(self, client):
    parts = (b"[" * 500 for _ in range(5))
    connection = http.client.HTTPConnection("127.0.0.1", client.port)
    with contextlib.closing(connection):
      connection.request("POST", "/answer", parts, encode_chunked=True)
      assert connection.getresponse().status == 413

  def test_a_slow_body(self, client):
    with socket.create_connection(("127.0.0.1", client.port)) as slow:
      slow.sendall(
        b"POST /answer HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
      )
      slow.settimeout(30)
      answer = slow.makefile().read()
    assert answer.startswith("HTTP/1.1 408")
    assert "did not arrive within --timeout_s=2" in answer

  def test_time_and_queue(self, client):
    """Texts that take long: some wait too long, others find no room."""
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
      found = list(
        pool.map(client.answer, [f"sleep {number}" for number in range(24)])
      )
    statuses = [status for status, _ in found]
    # On a busy machine, all texts that are accepted may wait too long.
    assert {429, 503} <= set(statuses) <= {200, 429, 503}
    for status, answer in found:
      if status != 200:
        message = {429: "the queue holds", 503: "no answer within"}[status]
        assert message in answer["error"]
    deadline = time.monotonic() + 30
    while client.answer("ab")[0] != 200:
      assert time.monotonic() < deadline

  def test_a_client_that_leaves(self, client):
    body = json.dumps({"text": "sleep"})
    head = (
      f"POST /answer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    )
    with socket.create_connection(("127.0.0.1", client.port)) as leaving:
      leaving.sendall(f"{head}\r\n{body}".encode())
    assert client.answer("ab")[0] == 200
    deadline = time.monotonic() + 30
    while 'status="499"' not in client.request("/metrics")[1]:
      assert time.monotonic() < deadline


def test_metrics_and_health(client):
  client.answer("abc")
  status, text, _ = client.request("/metrics")
  assert status == 200
  assert re.search(
    r'^bert_requests_total\{path="/answer",status="200"\} \d', text, re.M
  )
  assert "bert_batch_texts_bucket" in text
  assert re.search(r"^bert_waiting_texts 0.0$", text, re.M)
  assert client.request("/healthz")[:2] == (200, {"status": "ok"})


def test_a_server_that_answers_no_more_is_not_healthy(monkeypatch):
  def fail(size, seconds):
    raise RuntimeError("a fault of the server")

  monkeypatch.setattr(
    server, "Batcher", lambda *args: batching.Batcher(*args[:-1], fail)
  )
  with running(CLASSIFIER, "moods") as client:
    assert client.request("/healthz")[0] == 200
    for _ in range(2):  # Without waiting for the time limit.
      status, found = client.answer("ab")
      assert status == 503
      assert found == {"error": "the model does not answer"}
    deadline = time.monotonic() + 20
    while (health := client.request("/healthz"))[0] == 200:
      assert time.monotonic() < deadline
  status, found, headers = health
  assert (status, found) == (503, {"error": "the model does not answer"})
  assert headers["Retry-After"] == "1"


def test_page(client, regression):
  for server_client, names in (
    (client, ["text"]),
    (regression, ["text_a", "text_b"]),
  ):
    status, text, headers = server_client.request("/")
    assert (status, headers["X-Frame-Options"]) == (200, "DENY")
    page = web_page.Page(text)
    assert [area["name"] for area in page.named("textarea")] == names
    assert "connect-src 'self'" in text


def test_answers_are_sent_at_once():
  """Without this option, a client waits 40 ms between two segments."""
  with server.open_socket("127.0.0.1", 0) as listener:
    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_that_is_taken(client):
  with pytest.raises(UserError, match=f"--port={client.port}: Address already"):
    server.open_socket("127.0.0.1", client.port)


@pytest.fixture(scope="module")
def guarded():
  hosts = host_guard.allowed_hosts("127.0.0.1", ["Bert.example.org"])
  with running(CLASSIFIER, "moods", hosts=hosts) as client:
    yield client


class TestHosts:
  """A page of another site must not read answers (DNS rebinding)."""

  @pytest.mark.parametrize(
    "headers",
    [
      {},
      {"Host": "LOCALHOST"},
      {"Host": "127.0.0.1:8501", "Origin": "http://127.0.0.1:8501"},
      {"Host": "[::1]:8501", "Origin": "http://localhost:3000"},
      {"Host": "bert.example.org", "Origin": "https://BERT.example.org"},
    ],
  )
  def test_its_own(self, guarded, headers):
    body = {"text": "ab"}
    assert guarded.request("/answer", body, headers=headers)[0] == 200
    assert guarded.request("/healthz", headers=headers)[0] == 200

  @pytest.mark.parametrize(
    ("headers", "name"),
    [
      ({"Host": "evil.example:8501"}, "evil.example"),
      ({"Host": "localhost.evil.example"}, "localhost.evil.example"),
      ({"Host": "localhost@evil.example"}, "evil.example"),
      ({"Host": "["}, "NAME"),
      ({"Host": ""}, "NAME"),
      ({"Origin": "http://evil.example"}, "evil.example"),
      ({"Origin": "null"}, "NAME"),
    ],
  )
  def test_another_site(self, guarded, headers, name):
    for path, body in (("/answer", {"text": "ab"}), ("/", None)):
      status, found, _ = guarded.request(path, body, headers=headers)
      assert status == 403
      assert found["error"].endswith(
        f" is not allowed; start serve.py with --allowed_hosts={name}"
      )
      assert found["error"].startswith(next(iter(headers)))

  def test_a_page_of_another_port_reads_answers(self, guarded):
    """By the headers that browsers ask for (CORS)."""
    origin = {"Origin": "http://localhost:3000"}
    asked = {
      "Access-Control-Request-Method": "POST",
      "Access-Control-Request-Headers": "content-type,authorization",
    }
    for method, headers in (("OPTIONS", {**origin, **asked}), (None, origin)):
      body = None if method else {"text": "ab"}
      answer = guarded.request("/answer", body, method, headers)
      assert answer[0] == 200
      assert answer[2]["access-control-allow-origin"] == "*"
      if method:
        allowed = answer[2]["access-control-allow-headers"].lower()
        assert {"content-type", "authorization"} <= {
          *re.split(r",\s*", allowed)
        }
    evil = {**asked, "Origin": "http://evil.example"}
    answer = guarded.request("/answer", None, "OPTIONS", evil)
    assert answer[0] == 403
    assert "access-control-allow-origin" not in answer[2]

  def test_a_network(self):
    """Who opens a server to others knows its names, or lists them."""
    assert not host_guard.allowed_hosts("0.0.0.0", [])
    assert not host_guard.allowed_hosts("192.168.1.5", [])
    listed = host_guard.allowed_hosts("0.0.0.0", ["a.example"])
    assert {"a.example", "localhost"} <= listed
    assert "b.example" not in listed
    assert "127.0.0.2" in host_guard.allowed_hosts("127.0.0.2", [])
    assert "::1" in host_guard.allowed_hosts("::1", ["[fe80::1]"])


def test_a_length_in_two_ways(client):
  """A proxy that counts bytes would see another request in the body."""
  request = (
    b"POST /answer HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
  )
  with socket.create_connection(("127.0.0.1", client.port)) as connection:
    connection.settimeout(30)
    connection.sendall(request)
    answer = connection.makefile().read()  # It ends: the server has closed.
  assert answer.startswith("HTTP/1.1 400")
  assert answer.count("HTTP/1.1") == 1


def test_open_connections_are_answered_after_a_signal():
  """Those that wait for `accept` when it arrives, whenever they ask."""
  listener = server.open_socket("127.0.0.1", 0)
  address = listener.getsockname()
  request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
  clients = [socket.create_connection(address, 30) for _ in range(60)]
  for connection in clients[:30]:
    connection.sendall(request)
  app = server.make_app(CLASSIFIER, "moods", LIMITS)
  http_server = server.http_server(app, LIMITS.timeout_s)
  http_server.should_exit = True
  thread = threading.Thread(
    target=http_server.run, kwargs={"sockets": [listener]}
  )
  thread.start()
  for connection in clients[30:]:
    connection.sendall(request)
  for connection in clients:
    with connection:
      answer = connection.makefile().read()
    assert answer.startswith("HTTP/1.1 200")
    assert "connection: close" in answer.lower()
  thread.join(20)
  assert not thread.is_alive()


class TestModels:
  """The model in a folder of each task."""

  def test_an_empty_choice_is_padding(self, tmp_path, golden, goldens):
    folder = task_folders.write(tmp_path, "multiple choice", golden, goldens)
    model = loaded_model.load(folder)
    (whole,) = model.answer([("He", "", ["runs", "is the north"])])
    choices = ["", "runs", "", "is the north"]
    (padded,) = model.answer([("He", "", choices)])
    assert padded["choice"] == 1 + 2 * whole["choice"]
    assert padded["probabilities"][::2] == [0, 0]
    wanted = pytest.approx(whole["probabilities"], abs=1e-6)  # Of a batch.
    assert padded["probabilities"][1::2] == wanted
    with pytest.raises(UserError, match="pass two or more choices that are"):
      model.answer([("He", "", ["runs", ""])])

  def test_no_allowed_span_is_no_answer(self):
    """The original's placeholder is not a text of the context."""
    placeholder = squad_decoding.NOTHING_ALLOWED
    only = squad_decoding.Candidate(placeholder, 1.0, 0.0, 0.0)
    answer = squad_decoding.Answer(placeholder, [only], placeholder)
    paragraph = squad.Paragraph.of("It is empty.")
    example = squad.SquadExample("", "", [], paragraph=paragraph)
    found = SquadTask().public(Answered(example, answer))
    nowhere = {"start": -1, "end": -1, "probability": 0.0}
    assert found == {"answer": "", **nowhere}
    words = answer._replace(span=(6, 11))
    found = SquadTask().public(Answered(example, words))
    wanted = {"answer": "empty", "start": 6, "end": 11, "probability": 1.0}
    assert found == wanted

  def test_vectors_of_a_model_with_few_positions(
    self, tmp_path, golden, goldens, monkeypatch
  ):
    """The golden model has 128."""
    folder = task_folders.write(tmp_path, "", golden, goldens)
    monkeypatch.setattr(features.VectorSettings, "max_seq_length", 129)
    (answer,) = loaded_model.load(folder)(["the city " * 99])
    assert len(answer["vector"]) == 32


def test_choices_count_as_texts():
  """Each is read with the other texts."""
  texts = ("He opens", "", ["runs", "is"])
  assert loaded_model.count_of(texts) == 2
  assert loaded_model.length_of(texts) == 2 * 8 + 4 + 2
  assert loaded_model.count_of(("He opens", "", ["", "runs", "is", ""])) == 2
  assert loaded_model.count_of(("a", "bc")) == 1
  assert loaded_model.length_of(("a", "bc")) == 3
