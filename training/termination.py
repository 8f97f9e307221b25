"""Defers SIGTERM, which a cluster sends before it reclaims a machine."""

import contextlib
import signal
import threading
from collections.abc import Iterator


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
