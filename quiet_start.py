"""Importing this loads TensorFlow without the notes that it starts with.

They help nobody here, and an error is to be one line. TensorFlow heeds a
variable of the environment, but writes some notes all the same.
"""

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


# Who has set the variable, or closed the stream, has an opinion of their own.
if "TF_CPP_MIN_LOG_LEVEL" not in os.environ and sys.stderr is not None:
  _load_tensorflow_quietly()
