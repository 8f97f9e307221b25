"""Loads TensorFlow late, quickly and quietly, and with oneDNN where it pays.

Import this before anything else that imports TensorFlow. `import tensorflow`
then takes no time: TensorFlow loads when the first of its names is used. So a
script can report a wrong flag or a missing file at once. Therefore modules use
TensorFlow only inside functions. Where it is not installed, they import all the
same, and its first use is a UserError.

TensorFlow writes some notes to stderr whatever TF_CPP_MIN_LOG_LEVEL says, so
stderr is redirected while it loads. It would also load Keras, which nothing
here uses and which takes almost half of the time; TensorFlow still loads it
when it is first used. The garbage collector leaves TensorFlow's objects alone,
since they live as long as the process. oneDNN is enabled on every processor
with AVX-512; TensorFlow itself requires VNNI as well, although float32 training
is a fifth faster with oneDNN on processors without it. `use_onednn` does so on
processors with AVX2 alone.
"""

import contextlib
import gc
import importlib.util
import os
import signal
import sys
import threading
import types

from bert.errors import missing_package


class _Deferred(types.ModuleType):
  """A module that loads when a name is used that it does not have yet."""

  def __getattr__(self, name):
    with _lock:  # Other threads wait. This one asks for names as it loads.
      if "__path__" not in vars(self):
        self.__path__ = self.__spec__.submodule_search_locations
        _load(self)
        self.__class__ = types.ModuleType
        return getattr(self, name)
    return super().__getattribute__(name)


class _Missing(types.ModuleType):
  """Stands for TensorFlow where it is not installed."""

  def __getattr__(self, name):
    if name.startswith("__"):  # What Python itself asks a module for.
      raise AttributeError(name)
    raise missing_package(
      "tensorflow", "this step", f"for tf.{name}", "requirements.txt"
    )


_lock = threading.RLock()


def _load(module):
  with contextlib.ExitStack() as stack:
    # Respect a setting that asks for notes, and a closed stderr.
    asks = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "3"
    if not asks and sys.stderr is not None:
      stack.enter_context(_quiet())
    stack.enter_context(_without_keras())
    stack.enter_context(_without_garbage_collection())
    module.__spec__.loader.exec_module(module)


@contextlib.contextmanager
def _without_keras():
  is_blocked = sys.modules.setdefault("keras", None) is None
  try:
    yield
  finally:
    if is_blocked:
      del sys.modules["keras"]


@contextlib.contextmanager
def _without_garbage_collection():
  # It would walk through the new objects several times, and through all of
  # them again and again while a model is built and when the process ends.
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    gc.freeze()
    if was_enabled:
      gc.enable()


@contextlib.contextmanager
def _quiet():
  # Ctrl-C while TensorFlow loads ends the program without a traceback.
  is_main = threading.current_thread() is threading.main_thread()
  handler = signal.signal(signal.SIGINT, signal.SIG_DFL) if is_main else None
  stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
  os.dup2(devnull, 2)
  try:
    yield
  finally:
    # A handler that was not installed from Python is returned as None.
    if handler is not None:
      signal.signal(signal.SIGINT, handler)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.close(devnull)


def use_onednn() -> None:
  """Enables oneDNN in a process that trains, unless the environment decides.

  With AVX2 alone, a step in float32 takes 0.7 to 0.8 of the time, because
  oneDNN has products of many small matrices, as in attention. But the answer to
  a single text takes 1.5 times as long. Once TensorFlow has loaded, it has no
  effect.
  """
  is_loaded = not isinstance(sys.modules.get("tensorflow"), _Deferred)
  if not is_loaded and _has("avx2"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def _has(feature):
  """Whether the processor has a feature, by its name in Linux."""
  with (
    contextlib.suppress(OSError),
    open("/proc/cpuinfo", encoding="utf-8") as reader,
  ):
    return f" {feature} " in reader.read()
  return False


def _defer_tensorflow():
  spec = importlib.util.find_spec("tensorflow")
  if spec is None:
    sys.modules["tensorflow"] = _Missing("tensorflow")
    return
  module = _Deferred("tensorflow", "Loads TensorFlow when it is used.")
  module.__spec__ = spec
  module.__file__ = spec.origin
  sys.modules["tensorflow"] = module


if "TF_ENABLE_ONEDNN_OPTS" not in os.environ and _has("avx512f"):
  os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
# TensorFlow fetches 64 MiB whenever it opens a file in gs://, unless this says
# otherwise. Training opens a file for each block of 1,024 rows, and these are
# seldom larger than 4 MB. What is larger, such as most tensors of a checkpoint,
# is read in one request whatever this says.
os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")
if "tensorflow" not in sys.modules:
  _defer_tensorflow()
