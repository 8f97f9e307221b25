"""How TensorFlow is started by an import of the model."""

import os
import subprocess
import sys

import scripts

import quiet_start as startup


def _started(first_use, **environment):
  """oneDNN's variable after a first use, and what that has written."""
  code = (
    f"import os, sys, modeling; {first_use};"
    "assert 'keras' not in sys.modules;"
    "print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
  )
  kept = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
  result = subprocess.run(
    [sys.executable, "-c", code],
    env={**kept, "PYTHONPATH": str(scripts.ROOT), **environment},
    capture_output=True,
    text=True,
    check=True,
  )
  return result.stdout.strip(), result.stderr


def test_the_users_wish_counts():
  wish = "0" if startup._has_avx512() else "1"
  # TensorFlow, which reads it, need not load.
  assert _started("pass", TF_ENABLE_ONEDNN_OPTS=wish) == (wish, "")


def test_onednn_where_there_is_avx512():
  found, written = _started("modeling.tf.constant(1)")
  assert found == ("1" if startup._has_avx512() else "None")
  assert written == ""
