"""Refuses requests that a web page sends without its reader's knowledge.

    Middleware(HostGuard, hosts=allowed_hosts("127.0.0.1", []))

A page of any site can send requests to a server on the reader's own machine.
If its name in the DNS is changed to 127.0.0.1 after it was loaded ("DNS
rebinding"), the browser lets it read the answers, too. Such requests name the
site in their `Host`, and requests across sites name it in their `Origin`.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bert.errors import shortened

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BAD_REQUEST, _FORBIDDEN = 400, 403


def allowed_hosts(address: str, names: Collection[str]) -> frozenset[str]:
  """The hosts that requests to an IP address may name; empty for any."""
  if not (names or ipaddress.ip_address(address).is_loopback):
    return frozenset()
  hosts = (*_LOOPBACK, address, *names)
  return frozenset(host.strip("[]").lower() for host in hosts)


class HostGuard:
  """An ASGI application in front of another, which refuses some requests.

  A request that announces its length in two ways is refused, too: a proxy may
  find its end elsewhere, and take the rest for another client's request.
  """

  def __init__(self, app: ASGIApp, hosts: Collection[str] = ()):
    self._app = app
    self._hosts = hosts

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    app = self._app
    if scope["type"] == "http":
      app = self._refusal(Headers(scope=scope)) or app
    await app(scope, receive, send)

  def _refusal(self, headers):
    if "content-length" in headers and "transfer-encoding" in headers:
      reason = "the request has both Content-Length and Transfer-Encoding"
      close = {"Connection": "close"}
      return JSONResponse({"error": reason}, _BAD_REQUEST, close)
    for name, prefix in (("Host", "//"), ("Origin", "")):
      for value in headers.getlist(name):
        host = _host_of(prefix + value)
        if self._hosts and host not in self._hosts:
          reason = (
            f"{name} {shortened(value)} is not allowed; start serve.py with "
            f"--allowed_hosts={shortened(host or 'NAME')}"
          )
          return JSONResponse({"error": reason}, _FORBIDDEN)
    return None


def _host_of(url):
  """The host in a URL in lower case; "" if there is none."""
  try:
    return urlsplit(url).hostname or ""
  except ValueError:  # Such as "//[".
    return ""
