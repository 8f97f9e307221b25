"""Signals that end a run: SIGTERM and Ctrl-C, which may be deferred."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from absl import logging


class Termination(BaseException):
  """Raised by SIGTERM, which a cluster sends before it takes a machine back."""


_raised = None  # The exception that a signal has raised.


def raise_on_signals() -> None:
  """Makes SIGTERM raise Termination, and notes what it and Ctrl-C raise.

  Python drops an exception that a signal raises in a callback of the garbage
  collector, and TensorFlow may turn it into another one.
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
  """Holds SIGTERM and Ctrl-C back, as a context manager, until a good moment.

  At its end, the handler from before gets the signal, if one has come. Without
  a handler this ends the process. A second Ctrl-C is not held back. Outside the
  main thread, which alone may handle signals, it does nothing.
  """

  def __init__(self):
    self.pending = None  # The signal that has come.
    self._handlers = {}
    self._is_active = threading.current_thread() is threading.main_thread()

  def __enter__(self) -> "DeferredTermination":
    for number in (signal.SIGTERM, signal.SIGINT) if self._is_active else ():
      if signal.getsignal(number) is not signal.SIG_IGN:
        self._handlers[number] = signal.signal(number, self._note)
    return self

  def __exit__(self, exception_type, *exc_info):
    for number in [*self._handlers]:
      self._restore(number)
    if self.pending and self._is_active and exception_type is None:
      signal.raise_signal(self.pending)

  def _restore(self, number):
    handler = self._handlers.pop(number)
    # Python does not know handlers of other libraries.
    signal.signal(number, signal.SIG_DFL if handler is None else handler)

  def _note(self, number, frame):
    del frame
    if number == signal.SIGINT:
      if self.pending:
        self._restore(number)
        signal.raise_signal(number)
      logging.info("Saving the current step; Ctrl-C again ends at once")
    self.pending = self.pending or number

  @contextlib.contextmanager
  def suspended(self) -> Iterator[None]:
    """Inside, the handler from before gets the signal at once."""
    self.__exit__(None)
    try:
      yield
    finally:
      self.__enter__()
