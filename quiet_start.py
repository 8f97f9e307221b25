"""Loads TensorFlow quickly and quietly, and with oneDNN where it pays.

Import this before anything else that imports TensorFlow. TensorFlow writes some
notes to stderr whatever TF_CPP_MIN_LOG_LEVEL says, so stderr is redirected
while it loads. It would also load Keras, which nothing here uses and which
takes almost half of the time; TensorFlow still loads it when it is first used.
oneDNN is enabled on every processor with AVX-512; TensorFlow itself requires
VNNI as well, although float32 training is a fifth faster with oneDNN on
processors without it.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading


def _load_tensorflow():
  is_blocked = sys.modules.setdefault("keras", None) is None
  try:
    importlib.import_module("tensorflow")
  finally:
    if is_blocked:
      del sys.modules["keras"]


def _load_tensorflow_quietly():
  os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
  # Ctrl-C while TensorFlow loads ends the program without a traceback.
  is_main = threading.current_thread() is threading.main_thread()
  handler = signal.signal(signal.SIGINT, signal.SIG_DFL) if is_main else None
  stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
  os.dup2(devnull, 2)
  try:
    _load_tensorflow()
  finally:
    # A handler that was not installed from Python is returned as None.
    if handler is not None:
      signal.signal(signal.SIGINT, handler)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.close(devnull)


def _has_avx512():
  with (
    contextlib.suppress(OSError),
    open("/proc/cpuinfo", encoding="utf-8") as reader,
  ):
    return " avx512f " in reader.read()
  return False


if "TF_ENABLE_ONEDNN_OPTS" not in os.environ and _has_avx512():
  os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
# Respect a setting that asks for notes, and a closed stderr.
if (
  os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3") == "3" and sys.stderr is not None
):
  _load_tensorflow_quietly()
else:
  _load_tensorflow()
