"""What all tests share: quiet logs, repeatable properties, the goldens."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The tests run in several processes. Threads of OpenMP that wait for each other
# on the same cores took scikit-learn ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The tests are written for CPUs.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import gc
import json
import pathlib
import shutil
import signal
import tempfile

import hypothesis
import pytest

gc.disable()  # Until all tests are collected.

# The updates of many models are compiled to the same few programs. Processes
# that start from this one, the workers of pytest-xdist too, share them.
if "TF_XLA_FLAGS" not in os.environ:
  _programs = tempfile.TemporaryDirectory(prefix="xla-")
  os.environ["TF_XLA_FLAGS"] = (
    f"--tf_xla_persistent_cache_directory={_programs.name}"
  )
# A program that runs a few times need not be fast. This halves the time of
# compiling a whole step.
os.environ.setdefault(
  "XLA_FLAGS",
  "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

# Commands that a shell runs in the background, and their child processes,
# ignore Ctrl-C, which tests send to programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling a first trace is slow and says nothing about the example drawn.
hypothesis.settings.register_profile(
  "repeatable",
  deadline=None,
  max_examples=60,
  derandomize=True,
  suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_finish():
  """Keeps the garbage collector from ever walking through TensorFlow."""
  gc.freeze()
  gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _garbage_of_a_module():
  """Keeps it from walking through graphs that earlier modules have left."""
  yield
  gc.collect()
  gc.freeze()


@pytest.fixture(scope="session")
def goldens():
  """The folder of what the original computes."""
  return pathlib.Path(__file__).parent / "goldens"


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A folder with data/, a small MRPC, and model/, as a release has it."""
  import tiny_task

  return tiny_task.make_files(tmp_path_factory.mktemp("files"), goldens)


@pytest.fixture(scope="session")
def golden(goldens):
  """The golden model."""
  from golden_model import GoldenModel

  return GoldenModel(goldens)


@pytest.fixture(scope="session")
def mrpc(goldens):
  """The original's features of the first 60 lines of each MRPC set."""
  lines = (goldens / "mrpc_features.jsonl").read_text("utf-8").splitlines()
  assert len(lines) == 180
  return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def tokenizer(goldens):
  """The tokenizer of the goldens, which lower-cases."""
  import tokenization

  return tokenization.FullTokenizer(str(goldens / "vocab.txt"))


@pytest.fixture(scope="session")
def release(tmp_path_factory, goldens):
  """The golden model, as an unzipped release has it."""
  folder = tmp_path_factory.mktemp("release") / "model"
  shutil.copytree(goldens / "model", folder)
  shutil.copy(goldens / "vocab.txt", folder)
  return folder
