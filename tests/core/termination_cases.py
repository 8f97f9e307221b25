"""SIGTERM and Ctrl-C wait for the end of an update; nothing is lost."""

import signal
import threading
from unittest import mock

import pytest
import scripts
import toy_model

from bert import termination as signals
from bert.models import checkpoints
from bert.termination import DeferredTermination


class _Terminated(BaseException):
  pass


@pytest.fixture(autouse=True)
def handler():
  """SIGTERM raises _Terminated."""

  def terminate(number, frame):
    raise _Terminated

  numbers = (signal.SIGTERM, signal.SIGINT)
  before = {number: signal.getsignal(number) for number in numbers}
  signal.signal(signal.SIGTERM, terminate)
  yield terminate
  for number in numbers:
    signal.signal(number, before[number])


def _run(finished, error=None):
  with DeferredTermination() as termination:
    assert termination.pending is None
    signal.raise_signal(signal.SIGTERM)
    assert termination.pending
    if error:
      raise error
    finished.append(True)


def test_the_handler_gets_the_signal_at_the_end(handler):
  finished = []
  with pytest.raises(_Terminated):
    _run(finished)
  assert finished == [True]
  assert signal.getsignal(signal.SIGTERM) is handler


def test_a_handler_that_python_does_not_know(monkeypatch):
  set_handler = signal.signal

  def signal_of_a_library(number, handler):
    set_handler(number, handler)  # Returns None if a library had set one.

  monkeypatch.setattr(signal, "signal", signal_of_a_library)
  with DeferredTermination():
    pass
  assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_suspended_one_delivers_at_once():
  with DeferredTermination() as termination:
    with pytest.raises(_Terminated), termination.suspended():
      signal.raise_signal(signal.SIGTERM)
    assert termination.pending is None


def test_a_second_ctrl_c_is_not_held_back():
  termination = DeferredTermination()
  termination.__enter__()
  signal.raise_signal(signal.SIGINT)
  with pytest.raises(KeyboardInterrupt):
    signal.raise_signal(signal.SIGINT)
  with pytest.raises(KeyboardInterrupt):  # The one that was held back.
    termination.__exit__(None)


def test_an_error_is_not_replaced(handler):
  with pytest.raises(ZeroDivisionError):
    _run([], ZeroDivisionError())
  assert signal.getsignal(signal.SIGTERM) is handler


def test_other_threads_leave_signals_alone(handler):
  found = []

  def run():
    with DeferredTermination():
      found.append(signal.getsignal(signal.SIGTERM))

  thread = threading.Thread(target=run)
  thread.start()
  thread.join()
  assert found == [handler]


def _steps(folder):
  paths = checkpoints.training_checkpoints(str(folder))
  return [int(path.rsplit("-")[-1]) for path in paths]


# tests/scripts/test_run_pretraining.py sends Ctrl-C.
def test_the_current_update_is_saved(tmp_path, monkeypatch):
  # Called after the first update.
  monkeypatch.setattr(
    checkpoints,
    "log_initialization",
    lambda store: signal.raise_signal(signal.SIGTERM),
  )
  model, _ = toy_model.toy(tmp_path)
  with pytest.raises(_Terminated):
    model.train(toy_model.TRAIN, 2, 4)
  assert _steps(tmp_path) == [1]


def test_an_evaluation_is_not_waited_for(tmp_path):
  def evaluate(step):
    assert step == 2
    signal.raise_signal(signal.SIGTERM)
    raise AssertionError("the evaluation goes on")

  model, _ = toy_model.toy(tmp_path)
  with pytest.raises(_Terminated):
    model.train(toy_model.TRAIN, 2, 4, evaluate, 2)
  assert _steps(tmp_path) == [2]


# Handlers of a script.


@pytest.fixture
def script():
  """The handlers of a script, whose flags are known."""
  before = signal.getsignal(signal.SIGINT)
  with mock.patch.dict(vars(signals)):  # Which note what a signal raised.
    signals.raise_on_signals()
    yield
  signal.signal(signal.SIGINT, before)


RAISED = [
  (signal.SIGTERM, signals.Termination),
  (signal.SIGINT, KeyboardInterrupt),
]


def _lose(number, error):
  """Drops what a signal raises, as Python does in a callback of `weakref`."""
  with pytest.raises(error):
    signal.raise_signal(number)


@pytest.mark.parametrize(("number", "error"), RAISED)
def test_a_lost_signal_ends_a_prediction(script, tmp_path, number, error):
  model, _ = toy_model.toy(tmp_path)
  rows = model.predict(toy_model.input_fn_of([1.0]), 1)
  _lose(number, error)
  with pytest.raises(error):
    next(rows)


SCRIPT = """
import contextlib, signal
from bert.scripts import startup

def main(flags):
  with contextlib.suppress(BaseException):
    signal.raise_signal({number})
  raise RuntimeError("MISMATCH")

startup.script(main, {{}})[1]()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_became_an_error(tmp_path, number):
  path = tmp_path / "script.py"
  path.write_text(SCRIPT.format(number=int(number)))
  scripts.fork(path, status=128 + number)


def test_a_second_sigterm_does_not_interrupt_the_end(script):
  _lose(signal.SIGTERM, signals.Termination)
  signal.raise_signal(signal.SIGTERM)
  with pytest.raises(signals.Termination):
    signals.raise_if_signaled()


def test_a_second_ctrl_c_does(script):
  for _ in range(2):
    _lose(signal.SIGINT, KeyboardInterrupt)


def test_default_handlers_are_for_a_while(script):
  numbers = (signal.SIGTERM, signal.SIGINT)
  before = list(map(signal.getsignal, numbers))
  with signals.default_handlers():
    found = set(map(signal.getsignal, numbers))
    assert found == {signal.SIG_DFL}
  assert list(map(signal.getsignal, numbers)) == before


def test_default_handlers_leave_those_of_others():
  handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
  given = signal.getsignal(signal.SIGTERM)
  try:
    with signals.default_handlers():
      assert signal.getsignal(signal.SIGTERM) is given
  finally:
    signal.signal(signal.SIGTERM, handler)
