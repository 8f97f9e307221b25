"""A web server on loopback that can be told to fail."""

import contextlib
import http.server
import threading


class Answer:
  """What the server sends for a path.

  Args:
    body: the whole content.
    status: of the answer.
    headers: further headers.
    cut: number of bytes after which the connection ends; None for never.
    length: the Content-Length to claim; None for the true one.
    ignores_range: whether the whole content is sent whatever is asked for.
  """

  def __init__(
    self,
    body=b"",
    status=200,
    headers=(),
    cut=None,
    length=None,
    ignores_range=False,
  ):
    self.body = body
    self.status = status
    self.headers = dict(headers)
    self.cut = cut
    self.length = length
    self.ignores_range = ignores_range


class _Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    path = self.path.partition("?")[0]
    wanted = self.headers.get("Range")
    self.server.requests.append((self.command, path, wanted))
    answers = self.server.answers.get(path, [Answer(status=404)])
    # The last answer stays.
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    body, status, headers = answer.body, answer.status, dict(answer.headers)
    if wanted and not answer.ignores_range and status == 200:
      start = int(wanted.removeprefix("bytes=").removesuffix("-"))
      status = 206 if start < len(body) else 416
      shown = f"{start}-{len(body) - 1}" if status == 206 else "*"
      headers.setdefault("Content-Range", f"bytes {shown}/{len(body)}")
      body = body[start:]
    self.send_response(status)
    for name, value in headers.items():
      self.send_header(name, value)
    length = len(body) if answer.length is None else answer.length
    self.send_header("Content-Length", str(length))
    self.end_headers()
    if self.command == "GET":
      self.wfile.write(body[: answer.cut])
    self.close_connection = True

  do_HEAD = do_GET

  def log_message(self, *args):
    pass


class _Server(http.server.ThreadingHTTPServer):
  def handle_error(self, request, client_address):
    pass  # The client has gone.


@contextlib.contextmanager
def serve(answers):
  """Serves answers, lists of Answers by path; yields the server.

  Its attribute `requests` lists (method, path, range); `url` is its address.
  """
  with _Server(("127.0.0.1", 0), _Handler) as server:
    server.answers, server.requests = answers, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
      yield server
    finally:
      server.shutdown()
      thread.join()
