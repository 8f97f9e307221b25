"""A trained model behind HTTP.

    app = make_app(model, "mrpc", Limits(...))

docs/serving.md describes the requests, which `rest` and `search_rest` read.
Errors are one line of JSON, {"error": "..."}. uvicorn answers requests that are
not valid HTTP, and those beyond the limit of connections, in plain text.
"""

import asyncio
import contextlib
import dataclasses
import signal
import socket
import time
from collections.abc import Collection

import orjson
import prometheus_client
import uvicorn
from absl import logging
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bert.engine.loaded_model import LoadedModel, count_of, length_of
from bert.engine.runner import InfiniteOutputError
from bert.errors import UserError, plural
from bert.search.search import Reranker, Searcher
from bert.serving import rest, search_rest, server_page
from bert.serving.batching import Batcher, QueueFullError, StoppedError
from bert.serving.host_guard import HostGuard

# Statuses of HTTP.
_BAD_REQUEST, _TIMEOUT, _TOO_LARGE, _TOO_MANY = 400, 408, 413, 429
_FAULT, _BUSY = 500, 503
_CLIENT_LEFT = 499  # Never sent.

_FAULT_REASON = "the server failed; its log has the reason"

# Seconds after SIGTERM in which open connections may still send a request.
_LAST_REQUESTS_S = 1.0

# A request that is refused is read up to this many times the limit.
_DISCARDED = 16


@dataclasses.dataclass(frozen=True)
class Limits:
  """What a server accepts; the flags of serve.py describe it."""

  max_batch: int
  max_wait_ms: float
  max_queue: int
  max_texts: int
  max_text_chars: int
  max_body_bytes: int
  timeout_s: float


class _Metrics:
  def __init__(self):
    self.registry = registry = prometheus_client.CollectorRegistry()
    self.requests = prometheus_client.Counter(
      "bert_requests",
      "Requests by path and status.",
      ["path", "status"],
      registry=registry,
    )
    self.seconds = prometheus_client.Histogram(
      "bert_request_seconds",
      "Seconds from a request to its answer.",
      ["path"],
      registry=registry,
    )
    self.texts = prometheus_client.Histogram(
      "bert_batch_texts",
      "Texts in a batch.",
      buckets=[1, 2, 4, 8, 16, 32, 64, 128],
      registry=registry,
    )
    self.batch_seconds = prometheus_client.Histogram(
      "bert_batch_seconds", "Seconds to compute a batch.", registry=registry
    )
    self.waiting = prometheus_client.Gauge(
      "bert_waiting_texts", "Texts that wait for a batch.", registry=registry
    )

  def count_batch(self, size, seconds):
    self.texts.observe(size)
    self.batch_seconds.observe(seconds)


class _Server:
  def __init__(self, model, name, limits, vectors):
    self.model = model
    self.name = name
    self.limits = limits
    self.vectors = vectors
    self.metrics = _Metrics()
    self.batcher = None

  @contextlib.asynccontextmanager
  async def lifespan(self, app):
    self.batcher = Batcher(
      self.model.answer,
      length_of,
      self.limits.max_batch,
      self.limits.max_text_chars,
      self.limits.max_wait_ms / 1000,
      # The queue must have room for the largest request.
      max(self.limits.max_queue, self.limits.max_texts),
      self.metrics.count_batch,
    )
    self.metrics.waiting.set_function(lambda: len(self.batcher))
    self.batcher.start()
    yield
    await self.batcher.stop()

  async def page(self, request: Request) -> Response:
    page = server_page.page(self.name, self.vectors.form)
    return HTMLResponse(page, headers={"X-Frame-Options": "DENY"})

  async def health(self, request: Request) -> Response:
    if self.batcher.is_alive():
      return _json({"status": "ok"})
    return _error(_BUSY, "the model does not answer")

  async def show_metrics(self, request: Request) -> Response:
    content = prometheus_client.generate_latest(self.metrics.registry)
    return Response(content, media_type=prometheus_client.CONTENT_TYPE_LATEST)

  async def models(self, request: Request) -> Response:
    model = {"id": self.name, "object": "model", "created": 0}  # OpenAI's form.
    return _json({"object": "list", "data": [{**model, "owned_by": "local"}]})

  async def status(self, request: Request) -> Response:
    self.check_name(request)
    return _json(rest.status())

  async def metadata(self, request: Request) -> Response:
    self.check_name(request)
    return _json(rest.metadata(self.model, self.name))

  async def model_request(self, request: Request) -> Response:
    self.check_name(request)
    method = request.path_params["method"]
    if method not in rest.READERS:
      raise HTTPException(404, f"no method :{method}; there is :predict")
    if request.method != "POST":
      raise HTTPException(405, headers={"Allow": "POST"})
    return await self.respond(request, f":{method}", *rest.READERS[method])

  def post(self, path, read, output=None):
    """The Route of POST; the arguments are those of `respond`."""

    async def endpoint(request: Request) -> Response:
      return await self.respond(request, path, read, output)

    return Route(path, endpoint, methods=["POST"])

  def check_name(self, request):
    """Raises HTTPException unless the request names the model."""
    name = request.path_params["name"]
    version = request.path_params.get("version", rest.VERSION)
    if name != self.name or version != rest.VERSION:
      raise HTTPException(
        404, f"no such model; there is {self.name}, version {rest.VERSION}"
      )

  async def respond(self, request, path, read, output=None):
    """Answers a request that needs an output of the model, and counts it."""
    start = time.monotonic()
    try:
      if output and output not in self.model.outputs:
        raise UserError(f"the model has no {output}; use :predict or /answer")
      status, content = 200, await self.answer(request, read)
    except HTTPException as error:
      status, content = error.status_code, error.detail
    except InfiniteOutputError as error:
      # The model is at fault. The message has its path, so only log it.
      logging.error("A request failed: %s", error)
      status, content = _FAULT, _FAULT_REASON
    except UserError as error:
      status, content = _BAD_REQUEST, str(error)
    except QueueFullError as error:
      status, content = _TOO_MANY, str(error)
    except StoppedError as error:
      status, content = _BUSY, str(error)
    except asyncio.CancelledError:
      status, content = _BUSY, "the server was stopped"
    except ClientDisconnect:
      status, content = _CLIENT_LEFT, "the client has left"
    except Exception:
      logging.exception("A request failed")
      status, content = _FAULT, _FAULT_REASON
    self.metrics.requests.labels(path, str(status)).inc()
    self.metrics.seconds.labels(path).observe(time.monotonic() - start)
    return _json(content) if status == 200 else _error(status, content, path)

  async def answer(self, request, read):
    """The JSON of the answer to a request, within the time limit."""
    loop = asyncio.get_running_loop()
    end = loop.time() + self.limits.timeout_s
    limit = f"--timeout_s={self.limits.timeout_s:g}"
    try:
      content = await asyncio.wait_for(
        self.read_body(request), self.limits.timeout_s
      )
    except asyncio.TimeoutError as error:
      reason = f"the request did not arrive within {limit}"
      raise HTTPException(_TIMEOUT, reason) from error
    call = self.read_call(content, read)
    answers = asyncio.ensure_future(self.compute(call))
    client_leaves = asyncio.ensure_future(request.receive())
    try:
      await asyncio.wait(
        [answers, client_leaves],
        timeout=end - loop.time(),
        return_when=asyncio.FIRST_COMPLETED,
      )
      if answers.done():
        return answers.result()
      if client_leaves.done():
        raise ClientDisconnect
      raise HTTPException(_BUSY, f"no answer within {limit}")
    finally:
      answers.cancel()
      client_leaves.cancel()

  async def compute(self, call):
    if call.model:
      answers = await asyncio.to_thread(call.model.answer, call.items)
    else:
      answers = await self.batcher.submit(call.items)
    # A search, or the JSON of many vectors, takes a while.
    return await asyncio.to_thread(call.finish, answers)

  async def read_body(self, request):
    """The bytes of a request; no more than the limit are held in memory."""
    limit, content = self.limits.max_body_bytes, bytearray()
    async for part in request.stream():
      content += part
      if len(content) > limit:
        raise HTTPException(
          _TOO_LARGE, f"the request has more than --max_body_bytes={limit}"
        )
    return bytes(content)

  def read_call(self, content, read):
    """The Call in the bytes of a request, within the limits."""
    try:
      body = orjson.loads(content)
    except orjson.JSONDecodeError as error:
      raise UserError(f"the body is not valid JSON: {error}") from error
    limits = self.limits
    call = read(self.model, body)
    count = sum(map(count_of, call.items))
    if count > limits.max_texts:
      raise UserError(
        f"{plural(count, 'text')}, more than --max_texts={limits.max_texts}"
      )
    longest = max(call.items, key=length_of)
    if length_of(longest) > limits.max_text_chars:
      has_choices = any(isinstance(text, list) for text in longest)
      counted = " (context and question count once for each choice)"
      raise HTTPException(
        _TOO_LARGE,
        f"an input of {length_of(longest)} characters"
        f"{counted if has_choices else ''}, more than "
        f"--max_text_chars={limits.max_text_chars}",
      )
    return call


def _json(value, status=200):
  content = orjson.dumps(value)
  return Response(content, status, media_type="application/json")


def _error(status, reason, path=""):
  reason = " ".join(str(reason).split())
  # Clients of OpenAI's service look for the message there.
  error = {"message": reason} if path.startswith("/v1/") else reason
  response = _json({"error": error}, status)
  if status in (_TOO_MANY, _BUSY):
    response.headers["Retry-After"] = "1"
  if status in (_TIMEOUT, _TOO_LARGE):
    # The rest of the request may not be read.
    response.headers["Connection"] = "close"
  return response


def _reading_all(app, most, timeout_s):
  """The application, which reads all of a request before it answers.

  Otherwise the connection may be reset before the client has read the answer.
  At most `most` bytes are read.
  """

  async def read_and_run(scope, receive, send):
    is_read, size = scope["type"] != "http", 0

    async def receive_part():
      nonlocal is_read, size
      message = await receive()
      size += len(message.get("body", b""))
      is_read = not message.get("more_body")
      return message

    async def read_rest():
      while not is_read and size <= most:
        await receive_part()

    async def send_after_reading(message):
      if not is_read and message.get("status", _TIMEOUT) != _TIMEOUT:
        with contextlib.suppress(asyncio.TimeoutError):
          await asyncio.wait_for(read_rest(), timeout_s)
      await send(message)

    await app(scope, receive_part, send_after_reading)

  return read_and_run


async def _http_error(request, error):
  response = _error(error.status_code, error.detail)
  response.headers.update(error.headers or {})
  return response


def make_app(
  model: LoadedModel,
  name: str,
  limits: Limits,
  hosts: Collection[str] = (),
  searcher: Searcher | None = None,
  relevant_label: str | None = None,
  reranker: Reranker | None = None,
) -> Starlette:
  """The server as an ASGI application.

  Args:
    model, name: the model, and its name in /v1/models/NAME.
    limits: what it accepts.
    hosts: the hosts that requests may name, from `allowed_hosts`; () for any.
    searcher: searches an index by the vectors of the model.
    relevant_label: see `search.Reranker`; of a classifier of pairs.
    reranker: scores the texts of /v1/rerank instead of the model.
  """
  vectors = search_rest.Reader(model, name, searcher, relevant_label, reranker)
  server = _Server(model, name, limits, vectors)
  models = "/v1/models/{name:str}"
  routes = [
    Route("/", server.page),
    Route("/healthz", server.health),
    Route("/metrics", server.show_metrics),
    Route("/v1/models", server.models),
    server.post("/answer", vectors.read_answer),
    server.post("/v1/embeddings", vectors.read_embeddings, "vector"),
    server.post("/v1/rerank", vectors.read_rerank),
  ]
  for prefix in (models, models + "/versions/{version:str}"):
    routes += [
      Route(prefix + "/metadata", server.metadata),
      # A GET of NAME:predict would match the last path.
      Route(
        prefix + ":{method:str}", server.model_request, methods=["GET", "POST"]
      ),
      Route(prefix, server.status),
    ]
  most = _DISCARDED * limits.max_body_bytes
  middleware = [
    Middleware(_reading_all, most=most, timeout_s=limits.timeout_s),
    Middleware(HostGuard, hosts=hosts),
  ]
  if hosts:  # HostGuard refuses other origins.
    allowed = {f"allow_{name}": ["*"] for name in ("origins", "headers")}
    methods = ["GET", "POST"]
    cors = Middleware(CORSMiddleware, allow_methods=methods, **allowed)
    middleware.append(cors)
  return Starlette(
    routes=routes,
    middleware=middleware,
    lifespan=server.lifespan,
    exception_handlers={HTTPException: _http_error},
  )


def open_socket(host: str, port: int) -> socket.socket:
  """A listening socket; port 0 takes a free one."""
  family = socket.AF_INET6 if ":" in host else socket.AF_INET
  try:
    listener = socket.create_server((host, port), family=family, backlog=1024)
  except OSError as error:
    raise UserError(
      f"--host={host} --port={port}: {error.strerror or error}; pass another"
    ) from error
  # Otherwise the body of an answer waits 40 ms until its head is acknowledged.
  listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
  return listener


def serve(app: Starlette, listener: socket.socket, timeout_s: float) -> bool:
  """Answers requests until SIGTERM or Ctrl-C, and then those that have arrived.

  A second Ctrl-C drops these. Returns whether all requests were answered.
  """
  runner = http_server(app, timeout_s)

  # Handles signals before uvicorn starts. At its end, uvicorn sends the signal
  # to this handler again, which then has no effect.
  def end(number, frame):
    runner.should_exit = True

  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end)
  runner.run(sockets=[listener])
  return not runner.force_exit


class _HttpServer(uvicorn.Server):
  async def shutdown(self, sockets=None):
    # uvicorn closes connections whose request it has not read, and those that
    # wait for `accept`: their clients would see a reset.
    close = (b"connection", b"close")
    self.server_state.default_headers.append(close)
    await self.accept_waiting(sockets or [])
    await self.await_last_requests()
    # From Python 3.12 on, this lasts until all requests are answered, even
    # after a second Ctrl-C.
    ending = asyncio.create_task(super().shutdown(sockets))
    while not (ending.done() or self.force_exit):
      await asyncio.sleep(0.05)
    if self.force_exit:  # `run` ends with the cancellation of all tasks.
      await self.lifespan.shutdown()
    else:
      await ending

  async def await_last_requests(self):
    """Waits a moment while there are connections; each may send a request."""
    end = time.monotonic() + _LAST_REQUESTS_S
    await asyncio.sleep(0.05)
    while self.server_state.connections and time.monotonic() < end:
      if self.force_exit:
        break
      await asyncio.sleep(0.05)

  async def accept_waiting(self, sockets):
    """Accepts the connections that the kernel holds, and no more."""
    accepted = []
    for listener in sockets:
      with contextlib.suppress(BlockingIOError):
        while True:
          accepted.append(listener.accept()[0])
    for server in self.servers:  # No other task runs between `accept` and this.
      server.close()
    loop, config = asyncio.get_running_loop(), self.config
    for connection in accepted:
      connection.setblocking(False)
      await loop.connect_accepted_socket(
        lambda: config.http_protocol_class(
          config=config,
          server_state=self.server_state,
          app_state=self.lifespan.state,
        ),
        connection,
      )


def http_server(app: Starlette, timeout_s: float) -> uvicorn.Server:
  """The HTTP server of an app; see `serve`."""
  config = uvicorn.Config(
    app,
    log_config=None,
    log_level="warning",
    access_log=False,
    server_header=False,
    limit_concurrency=1000,
    timeout_graceful_shutdown=int(timeout_s) + 5,
  )
  return _HttpServer(config)
