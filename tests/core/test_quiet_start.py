"""How TensorFlow is started by an import of the model."""

import os
import pathlib
import subprocess
import sys

import pytest
import scripts

HAS_AVX512 = "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()


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
  wish = "0" if HAS_AVX512 else "1"
  # TensorFlow, which reads it, need not load.
  assert _started("pass", TF_ENABLE_ONEDNN_OPTS=wish) == (wish, "")


def test_a_training_uses_onednn_unless_it_is_too_late():
  use = "from bert import quiet_start; quiet_start.use_onednn()"
  default = "1" if HAS_AVX512 else "None"
  has_avx2 = "avx2" in pathlib.Path("/proc/cpuinfo").read_text()
  assert _started(use) == ("1" if has_avx2 else "None", "")
  assert _started(use, TF_ENABLE_ONEDNN_OPTS="0") == ("0", "")
  assert _started(f"modeling.tf.constant(1); {use}") == (default, "")


@pytest.mark.parametrize(("wish", "expected"), [(None, "4"), ("16", "16")])
def test_files_in_buckets_are_read_in_small_blocks(wish, expected):
  name = "GCS_READ_CACHE_BLOCK_SIZE_MB"
  code = f"import os; from bert import quiet_start; print(os.environ[{name!r}])"
  kept = {k: v for k, v in os.environ.items() if k != name}
  result = subprocess.run(
    [sys.executable, "-c", code],
    env=kept | ({name: wish} if wish else {}),
    cwd=scripts.ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert result.stdout == f"{expected}\n"


def test_the_start():
  """Without a walk of the garbage collector through TensorFlow."""
  code = (
    "import gc, modeling; runs = [];"
    "gc.callbacks.append(lambda *call: runs.append(call));"
    "modeling.tf.constant(1);"
    "is_tracked = any(x is modeling.tf for x in gc.get_objects());"
    "print(len(runs), is_tracked, gc.isenabled())"
  )
  found, written = _started(code)
  onednn = "1" if HAS_AVX512 else "None"
  assert found.splitlines() == ["0 False True", onednn]
  assert written == ""
