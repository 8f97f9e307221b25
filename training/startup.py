"""Importing this loads TensorFlow without the notes that it starts with.

They help nobody here, and an error is to be one line. TensorFlow heeds a
variable of the environment, but writes some notes all the same.

It also has TensorFlow use oneDNN on all processors with AVX-512. By itself it
does so only where these have VNNI, too; on the others a training step in
float32 is a fifth faster with it.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading


def _load_tensorflow_quietly():
  os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
  # Ctrl-C ends a program that has not begun without a traceback.
  is_main = threading.current_thread() is threading.main_thread()
  handler = is_main and signal.signal(signal.SIGINT, signal.SIG_DFL)
  stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
  os.dup2(nowhere, 2)
  try:
    importlib.import_module("tensorflow")
  finally:
    if is_main:
      signal.signal(signal.SIGINT, handler)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.close(nowhere)


def _has_avx512():
  with (
    contextlib.suppress(OSError),
    open("/proc/cpuinfo", encoding="utf-8") as reader,
  ):
    return " avx512f " in reader.read()
  return False


if "TF_ENABLE_ONEDNN_OPTS" not in os.environ and _has_avx512():
  os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
# Who has set the variable, or closed the stream, has an opinion of their own.
if "TF_CPP_MIN_LOG_LEVEL" not in os.environ and sys.stderr is not None:
  _load_tensorflow_quietly()
