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
  """

  def __init__(self, body=b"", status=200, headers=(), cut=None):
    self.body = body
    self.status = status
    self.headers = dict(headers)
    self.cut = cut


class _Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    path = self.path.partition("?")[0]
    self.server.requests.append((self.command, path))
    answers = self.server.answers.get(path, [Answer(status=404)])
    # The last answer stays.
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    self.send_response(answer.status)
    for name, value in answer.headers.items():
      self.send_header(name, value)
    self.send_header("Content-Length", str(len(answer.body)))
    self.end_headers()
    if self.command == "GET":
      self.wfile.write(answer.body[: answer.cut])
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

  Its attribute `requests` lists (method, path); `url` is its address.
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
