"""A training gives the same bytes on any number of cores."""

import json
import os
import pathlib
import re

import pytest
import scripts
import task_runs
import tensorflow as tf
from task_runs import RUNS

from bert.engine import devices
from bert.errors import UserError
from bert.models import run_record

# With such instructions, runs in bfloat16 may differ; see docs/scaling.md.
HAS_BFLOAT16 = re.search(
  "avx512_bf16|amx_bf16", pathlib.Path("/proc/cpuinfo").read_text()
)
BFLOAT16 = "float32" if HAS_BFLOAT16 else "bfloat16"

# Each script, each number of threads with each precision.
CASES = [
  ("classification", 2, "float32"),
  ("squad", 4, "float32"),
  ("tagging", 1, "float32"),
  ("multiple choice", 1, BFLOAT16),
  ("vectors", 4, BFLOAT16),
  ("fill_mask", 2, BFLOAT16),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  folder = task_runs.make_files(tmp_path_factory.mktemp("files"), goldens)
  path = folder / "model" / "bert_config.json"
  # So wide that matrix products depend on the number of threads.
  sizes = {"hidden_size": 128, "intermediate_size": 1536}
  wide = {**json.loads(path.read_text()), **sizes}
  (folder / "wide.json").write_text(json.dumps(wide))
  return folder


@pytest.fixture
def command(files):
  """A function from a kind and a folder to the command of its training."""

  def make(name, out, *more, **changes):
    flags = {
      **RUNS[name].write(files),
      "freeze_layers": None,
      "init_checkpoint": None,
      "bert_config_file": files / "wide.json",
    }
    made = task_runs.command(name, files, out, **flags, **changes)
    return [*made, "--do_train", *more]

  return make


def weights(folder):
  return (folder / "bert_model.ckpt.data-00000-of-00001").read_bytes()


@pytest.mark.parametrize(("name", "threads", "precision"), CASES)
def test_killed_and_continued_on_other_cores_ends_in_the_same_bytes(
  command, tmp_path, name, threads, precision
):
  cores = sorted(os.sched_getaffinity(0))
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  number = f"--threads={threads}"
  scripts.fork(*command(name, whole, number, precision=precision))
  arguments = command(name, killed, precision=precision)
  scripts.kill_when(
    killed / "model.ckpt-2.index", *arguments, number, cores=cores[:1]
  )
  _, log = scripts.fork(*arguments)
  if threads != len(cores):
    assert f"{number} by default, as the training in {killed} began" in log
  assert weights(killed) == weights(whole)
  assert run_record.recorded_flags(killed)["threads"] == threads


def test_a_process_that_has_started_keeps_its_number():
  tf.constant(0) + 0  # Starts TensorFlow.
  started = devices.num_threads()
  devices.use_threads(started)
  message = f"--threads={started + 1}: TensorFlow already uses {started}"
  with pytest.raises(UserError, match=message):
    devices.use_threads(started + 1)


def test_a_repeated_training_tells_whether_its_weights_are_the_same(
  command, tmp_path
):
  first, same, other = (tmp_path / name for name in ("first", "same", "other"))
  name = "multiple choice"
  scripts.fork(*command(name, first, "--threads=2"))
  script, repeat = RUNS[name].script, f"--repeat={first}"
  core = sorted(os.sched_getaffinity(0))[:1]
  _, log = scripts.fork(script, repeat, f"--output_dir={same}", cores=core)
  assert f"The weights are those of {first}, byte for byte" in log
  assert weights(same) == weights(first)
  changes = f"--output_dir={other}", "--threads=1", "--learning_rate=0.1"
  _, log = scripts.fork(script, repeat, *changes)
  assert (
    f"warning: The weights are not those of {first}; what differs in "
    f"flags.json: learning_rate, threads" in log
  )
  assert weights(other) != weights(first)


def test_only_a_finished_training_is_repeated(tmp_path):
  _, log = scripts.fork("run_ner.py", f"--repeat={tmp_path}", status=2)
  assert log.splitlines()[-1] == (
    f"error: --repeat={tmp_path} has no flags.json of a finished training; "
    f"pass the --output_dir of one"
  )
