"""A model that a server on loopback answers with."""

import contextlib
import dataclasses
import http.client
import json
import threading

from bert.serving import server

LIMITS = server.Limits(
  max_batch=4,
  max_wait_ms=1,
  max_queue=8,
  max_texts=6,
  max_text_chars=100,
  max_body_bytes=2000,
  timeout_s=2.0,
)


class Client:
  """Requests to a server on loopback."""

  def __init__(self, port):
    self.port = port

  def request(self, path, body=None, method=None, headers=None):
    """(status, JSON or text, headers) of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
    with contextlib.closing(connection):
      if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
      method = method or ("GET" if body is None else "POST")
      connection.request(method, path, body, headers or {})
      response = connection.getresponse()
      content = response.read().decode()
    is_json = "json" in response.headers.get("content-type", "")
    found = json.loads(content) if is_json else content
    return response.status, found, response.headers

  def answer(self, text):
    return self.request("/answer", {"text": text})[:2]


@contextlib.contextmanager
def running(model, name, limits=LIMITS, hosts=(), **options):
  listener = server.open_socket("127.0.0.1", 0)
  app = server.make_app(model, name, limits, hosts, **options)
  http_server = server.http_server(app, limits.timeout_s)
  thread = threading.Thread(
    target=http_server.run, kwargs={"sockets": [listener]}
  )
  thread.start()
  try:
    yield Client(listener.getsockname()[1])
  finally:
    http_server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def ask(model, value):
  """What a server answers to one input of a model."""
  names = [field.name for field in model.fields]
  body = dict(zip(names, model.parse(value), strict=True))
  limits = dataclasses.replace(
    LIMITS, max_texts=8, max_text_chars=10_000, timeout_s=60.0
  )
  with running(model, "a_model", limits) as client:
    status, found, _ = client.request("/answer", body)
  assert status == 200, found
  return found
