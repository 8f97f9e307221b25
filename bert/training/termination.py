"""Signals that end a run: SIGTERM, which may be deferred, and Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Termination(BaseException):
  """Raised by SIGTERM, which a cluster sends before it takes a machine back."""


_raised = None  # The exception that a signal has raised.


def raise_on_signals() -> None:
  """Makes SIGTERM raise Termination, and notes what it and Ctrl-C raise.

  Python drops an exception that a signal raises in a callback of the garbage
  collector, and TensorFlow may turn it into another one: `raise_if_signaled`
  raises it again.
  """
  signal.signal(signal.SIGTERM, _terminate)
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupt)


def _terminate(number, frame):
  global _raised
  # A second signal must not interrupt the end.
  if not isinstance(_raised, Termination):
    _raised = Termination()
    raise _raised


def _interrupt(number, frame):
  global _raised
  _raised = KeyboardInterrupt()
  raise _raised


@contextlib.contextmanager
def default_handlers() -> Iterator[None]:
  """Lets the signals of `raise_on_signals` end the process at once.

  For long calls of other libraries, whose end a handler would have to await.
  Nothing is cleaned up or printed, so no file may be half-written meanwhile.
  """
  handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
  ours = {n: h for n, h in handlers.items() if h in (_terminate, _interrupt)}
  for number in ours:
    signal.signal(number, signal.SIG_DFL)
  try:
    yield
  finally:
    for number, handler in ours.items():
      signal.signal(number, handler)


def raise_if_signaled() -> None:
  """Raises again what a signal has raised, if anything."""
  if _raised is not None:
    raise _raised


class DeferredTermination:
  """Holds SIGTERM back, as a context manager, until a good moment.

  At its end, the handler from before gets the signal, if one has come. Without
  a handler this ends the process. Outside the main thread, which alone may
  handle signals, it does nothing.

  Attributes:
    is_pending: whether a signal has come.
  """

  def __init__(self):
    self.is_pending = False
    self._is_active = threading.current_thread() is threading.main_thread()

  def __enter__(self) -> "DeferredTermination":
    if self._is_active:
      self._handler = signal.signal(signal.SIGTERM, self._note)
    return self

  def __exit__(self, exception_type, *exc_info):
    if self._is_active:
      # Python does not know handlers of other libraries.
      known = signal.SIG_DFL if self._handler is None else self._handler
      signal.signal(signal.SIGTERM, known)
      if self.is_pending and exception_type is None:
        signal.raise_signal(signal.SIGTERM)

  def _note(self, number, frame):
    del number, frame
    self.is_pending = True

  @contextlib.contextmanager
  def suspended(self) -> Iterator[None]:
    """Inside, the handler from before gets the signal at once."""
    self.__exit__(None)
    try:
      yield
    finally:
      self.__enter__()
