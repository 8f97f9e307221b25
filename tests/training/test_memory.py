"""bert/training/memory.py: compared with arithmetic."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert.training import memory


def test_an_array_is_seen_and_forgotten():
  memory.reset_peak()
  used, peak = memory.used_bytes(), memory.peak_bytes()
  array = np.ones(2**28, np.uint8)
  assert memory.used_bytes() > used + 2**27
  assert memory.peak_bytes() > peak + 2**27
  assert 2**26 < memory.available_bytes() < 2**45
  del array
  memory.reset_peak()
  assert memory.peak_bytes() < peak + 2**27


# Two GPUs of 1,000 and 900 MiB. Checks that it is asked for the visible ones.
NVIDIA_SMI = """#!/bin/sh
[ "$*" = "--query-gpu=memory.total --format=csv,noheader,nounits --id=0,1" ] \
  && printf '1000\\n900\\n'
"""


def test_the_smallest_gpu_counts(tmp_path, monkeypatch):
  script = tmp_path / "nvidia-smi"
  script.write_text(NVIDIA_SMI)
  script.chmod(0o755)
  monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
  monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["a GPU"])
  monkeypatch.setattr(
    tf.config.experimental, "get_memory_info", lambda name: {"current": 2**20}
  )
  # Of this, one mebibyte is in use.
  assert memory.available_bytes() == 899 * 2**20
  script.write_text("#!/bin/sh\nexit 9\n")
  assert memory.available_bytes() is None


def test_the_memory_of_a_tpu_is_unknown(monkeypatch):
  found = {"GPU": [], "TPU": ["a TPU"]}
  monkeypatch.setattr(tf.config, "list_logical_devices", found.get)
  memory.reset_peak()
  assert (memory.used_bytes(), memory.peak_bytes()) == (0, 0)
  assert memory.available_bytes() is None


@pytest.mark.parametrize(
  ("files", "expected"),
  [
    ({}, 3_000 * 1024),
    ({"memory.max": "max", "memory.current": "7"}, 3_000 * 1024),
    # A container, whose files in memory can be dropped.
    ({"memory.max": "900", "memory.current": "800"}, 100),
    (
      {
        "memory.max": "900\n",
        "memory.current": "800\n",
        "memory.stat": "anon 1\ninactive_file 500\nx 2\n",
      },
      600,
    ),
    # A job: the limit is that of its group, or of one above.
    ({"job/1/memory.max": "90", "job/1/memory.current": "20"}, 70),
    ({"job/memory.max": "90", "job/memory.current": "30"}, 60),
  ],
)
def test_a_control_group_limits_what_is_available(monkeypatch, files, expected):
  group = "/job/1" if any("job/" in name for name in files) else "/"
  texts = {f"/sys/fs/cgroup/{name}": text for name, text in files.items()}
  texts |= {
    "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   3000 kB\n",
    "/proc/self/cgroup": f"1:name=x:/y\n0::{group}\n",
  }
  monkeypatch.setattr(
    pathlib.Path, "read_text", lambda path: texts.get(str(path), "")
  )
  assert memory.available_bytes() == expected
