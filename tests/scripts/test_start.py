"""Errors in flags and paths are reported before TensorFlow is loaded."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import scripts

MODEL = scripts.ROOT / "tests/goldens"
FILES = [
  f"--vocab_file={MODEL}/vocab.txt",
  f"--bert_config_file={MODEL}/bert_config.json",
]
CHECKPOINT = f"--init_checkpoint={MODEL}/model/bert_model.ckpt"
EXPORT = ["export_model.py", "--model_dir=RELEASE", "--output_dir=OUT"]
EXTRACT = [
  *("extract_features.py", *FILES, CHECKPOINT),
  *(f"--input_file={MODEL}/extract_input.txt", "--output_file=OUT"),
]
TRAIN = [*FILES, "--output_dir=OUT", "--do_train"]
SAMPLES = scripts.ROOT / "sample_data"
SENTENCES = f"--train_file={SAMPLES}/ner/train.txt"
CHOICES = f"--train_file={SAMPLES}/multiple_choice/train.jsonl"
RECORDS = MODEL / "pretraining_data/default.tfrecord"
QUESTIONS = f"--train_file={MODEL}/squad_v1.json"

COMMANDS = {
  "unknown flag": ["run_classifier.py", "--learning_rat=1"],
  "no flag": ["run_squad.py", "--output_dir=OUT"],
  "no data": ["run_classifier.py", *TRAIN, "--task_name=MRPC", "--data_dir=/-"],
  "no table": ["run_classifier.py", *TRAIN, "--task_name=custom"],
  "no questions": ["run_squad.py", *TRAIN, "--train_file=/-"],
  "no sentences": ["run_ner.py", *TRAIN, "--train_file=/-"],
  "no choices": ["run_multiple_choice.py", *TRAIN, "--train_file=/-"],
  "no pairs": ["run_embeddings.py", *TRAIN, "--train_file=/-"],
  "no records": ["run_pretraining.py", *TRAIN[1:], "--input_file=/-"],
  "no text": ["extract_features.py", *FILES, "--input_file=/-"],
  "no model": ["fill_mask.py", "--model_dir=/-", "--interactive"],
  "no export": ["export_model.py", "--model_dir=/-", "--output_dir=OUT"],
  "no ONNX": [*EXPORT, "--format=onnx"],
  "no command": ["visualize.py"],
  "no checkpoint": [
    *("run_multiple_choice.py", *TRAIN, CHOICES, "--init_checkpoint=/-")
  ],
  "only a wrong checkpoint": [
    *(
      "run_classifier.py",
      "--output_dir=OUT",
      "--do_train",
      "--task_name=MRPC",
    ),
    *(f"--data_dir={MODEL}", "--init_checkpoint=/-"),
  ],
  "only a wrong model": [
    *("run_multiple_choice.py", "--output_dir=OUT", "--do_eval"),
    *("--dev_file=/-", "--init_checkpoint=/-"),
  ],
  "no checkpoint for records": [
    *("run_pretraining.py", *TRAIN, f"--input_file={RECORDS}"),
    "--init_checkpoint=/-",
  ],
  "parts of a batch that differ": [
    *("run_ner.py", *TRAIN, SENTENCES, "--gradient_accumulation_steps=3")
  ],
  "no vocabulary": ["run_squad.py", *TRAIN, QUESTIONS, "--vocab_file=/-"],
  "no configuration": [
    *("run_ner.py", *TRAIN, SENTENCES, "--bert_config_file=/-")
  ],
  "no such precision": [
    *(*EXTRACT, "--runtime=onnxruntime", "--precision=bfloat16")
  ],
  "no such layer": [*EXTRACT, "--layers=-9"],
  "no runtime": [*EXTRACT, "--runtime=openvino"],
  "no such precision to serve": [
    *("serve.py", "--model_dir=RELEASE", "--port=0"),
    *("--runtime=onnxruntime", "--precision=bfloat16"),
  ],
  "no runtime to serve": [
    *("serve.py", "--model_dir=RELEASE", "--port=0", "--runtime=openvino")
  ],
  "no model to serve": ["serve.py", "--model_dir=/-", "--port=0"],
  "no name to serve": ["serve.py", "--model_dir=/-", "--model_name=a/b"],
  "no model to convert": [
    *("convert_checkpoint.py", "--to=huggingface", "--model_dir=/-"),
    "--output_dir=OUT",
  ],
  "no format": ["convert_checkpoint.py", "--to=pickle"],
  "no release": ["download.py", "model", "uncased_L-2_H-128_A-3"],
  "no data set": ["download.py", "glue"],
  "no text to learn from": [
    *("build_vocab.py", "--input_file=/-", "--output_file=OUT")
  ],
  "no size": ["build_vocab.py", "--vocab_size=0"],
  "no documents": [
    *("create_pretraining_data.py", FILES[0], "--input_file=/-"),
    "--output_file=OUT",
  ],
  "no passes": ["create_pretraining_data.py", "--dupe_factor=0"],
}

# A process imports the scripts, and forks for each command. Optional packages
# are as if they were not installed.
_CODE = """
import json, os, runpy, sys
sys.modules.update(dict.fromkeys(["onnx", "openvino"]))
import create_pretraining_data
from bert.commands import build_vocab, convert_checkpoint, download
import extract_features, run_classifier
from bert.commands import fill_mask, run_embeddings, run_multiple_choice
import run_pretraining, run_squad
from bert.commands import run_ner, serve, visualize
for name, argv in json.loads(sys.argv[1]).items():
  if not os.fork():
    sys.argv = argv
    os.dup2(1, 2)
    try:
      runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as stop:
      loaded = "tensorflow.python" in sys.modules
      print(name, "ended with", stop.code, loaded, flush=True)
    os._exit(0)
  os.wait()
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory):
  folder = tmp_path_factory.mktemp("start")
  out, release = folder / "out", folder / "release"
  shutil.copytree(MODEL / "model", release)
  shutil.copy(MODEL / "vocab.txt", release)
  commands = json.dumps(COMMANDS).replace("RELEASE", str(release))
  found = subprocess.run(
    [sys.executable, "-c", _CODE, commands.replace("OUT", str(out))],
    cwd=scripts.ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  assert not out.exists()
  return found


@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_is_reported_without_tensorflow(output, name):
  before, found, _ = output.partition(f"{name} ended with 2 False\n")
  assert found, output
  assert before.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("name", ["build_vocab", "tokenization"])
def test_an_import_leaves_tensorflow_unloaded(name):
  code = f"import sys, {name}; assert 'tensorflow.python' not in sys.modules"
  subprocess.run([sys.executable, "-c", code], cwd=scripts.ROOT, check=True)


def test_scripts_without_a_model_start_without_numpy():
  names = "build_vocab, create_pretraining_data, download, serve"
  code = f"import sys, {names}; assert 'numpy' not in sys.modules"
  subprocess.run([sys.executable, "-c", code], cwd=scripts.ROOT, check=True)


@pytest.mark.parametrize(
  ("command", "code"),
  [
    # Text is no path, so the error is another one.
    (
      ["visualize.py", "attention", "--text=~/a is here"],
      b"--output_file is required",
    ),
    # Without a model, a path is whatever the system takes.
    (
      [
        *("create_pretraining_data.py", FILES[0], "--output_file=/-/a"),
        b"--input_file=/caf\xe9",
      ],
      b"no file matches /caf",
    ),
  ],
)
def test_not_every_flag_is_a_path_of_a_model(command, code):
  done = subprocess.run(
    [sys.executable, *command], cwd=scripts.ROOT, stderr=subprocess.PIPE
  )
  assert done.returncode == 2
  assert code in done.stderr.splitlines()[-1]


def test_a_reader_of_the_help_may_leave():
  reader, writer = os.pipe()
  os.close(reader)
  done = subprocess.run(
    [sys.executable, "create_pretraining_data.py", "--help"],
    cwd=scripts.ROOT,
    stdout=writer,
    stderr=subprocess.PIPE,
  )
  os.close(writer)
  assert (done.returncode, done.stderr) == (141, b"")


def test_an_output_that_is_full(tmp_path):
  with open("/dev/full", "wb") as full:
    done = subprocess.run(
      [
        *(sys.executable, "build_vocab.py", "--input_file=sample_text.txt"),
        *(f"--output_file={tmp_path}/vocab.txt", "--vocab_size=400"),
      ],
      cwd=scripts.ROOT,
      env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
      stdout=full,
      stderr=subprocess.PIPE,
      text=True,
    )
  assert done.returncode == 2
  assert "No space left on device" in done.stderr.splitlines()[-1]
  assert "Exception ignored" not in done.stderr


def test_log_lines_have_a_time(tmp_path):
  script = tmp_path / "script.py"
  script.write_text(
    "from absl import logging\nfrom bert.training import startup\n"
    "def main(flags):\n  logging.info('a')\n  logging.warning('b')\n"
    "startup.script(main, {})[1]()\n"
  )
  found = subprocess.run(
    [sys.executable, script],
    env=os.environ | {"PYTHONPATH": str(scripts.ROOT)},
    capture_output=True,
    check=True,
    text=True,
  )
  time = r"\d\d:\d\d:\d\d"
  assert re.fullmatch(rf"{time} a\n{time} warning: b\n", found.stderr)


def test_an_error_of_a_remote_file_system_names_the_flag(tmp_path):
  """It may name a host, but no path."""
  script = tmp_path / "script.py"
  script.write_text(
    "from bert.training import flags, startup\n"
    "def main(flags):\n  raise OSError('could not resolve host')\n"
    "rows = {'data_dir': flags.Flag('data_dir', None, 'Folder.')}\n"
    "startup.script(main, rows)[1]()\n"
  )
  found = subprocess.run(
    [sys.executable, script, "--data_dir=gs://bucket/glue"],
    env=os.environ | {"PYTHONPATH": str(scripts.ROOT)},
    capture_output=True,
    check=False,
  )
  assert found.returncode == 2
  assert found.stderr.decode() == (
    "error: could not resolve host; check --data_dir=gs://bucket/glue\n"
  )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_piped_input_is_utf8_in_any_locale(tmp_path, encoding):
  script = tmp_path / "script.py"
  script.write_text(
    "from bert.tasks import terminal\nfrom bert.training import startup\n"
    "main = lambda flags: print(terminal.ask(''))\n"
    "startup.script(main, {})[1]()\n"
  )

  def run(text, status):
    variables = {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(scripts.ROOT)}
    found = subprocess.run(
      [sys.executable, script],
      env=os.environ | variables,
      input=text,
      capture_output=True,
      check=False,
    )
    assert found.returncode == status
    return found.stdout + found.stderr

  text = "caf\xe9 \u732b\n".encode()
  assert run(text, 0) == text
  error = b"error: standard input is not UTF-8; convert the input to UTF-8\n"
  assert run(b"caf\xe9\n", 2) == error


@pytest.fixture
def print_text(tmp_path):
  """Prints a text, and a path that is not UTF-8, in another encoding."""
  script = tmp_path / "script.py"
  script.write_text(
    "from bert.training import startup\n"
    "main = lambda flags: print('caf\\xe9 \\u732b \\udce9')\n"
    "startup.script(main, {})[1]()\n"
  )

  def run(encoding, stdout):
    variables = {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(scripts.ROOT)}
    return subprocess.run(
      [sys.executable, script],
      env=os.environ | variables,
      stdout=stdout,
      stderr=subprocess.PIPE,
      check=True,
    ).stdout

  return run


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_results_are_utf8_in_any_locale(print_text, encoding):
  found = print_text(encoding, subprocess.PIPE)
  assert found == "caf\xe9 \u732b ".encode() + b"\xe9\n"


@pytest.mark.parametrize(
  ("encoding", "shown"),
  [
    ("ascii", b"caf? ? ?"),
    ("latin-1", b"caf\xe9 ? ?"),
    ("utf-8", "caf\xe9 \u732b ?".encode()),
  ],
)
def test_a_terminal_keeps_its_encoding(print_text, encoding, shown):
  reader, terminal = os.openpty()
  print_text(encoding, terminal)
  os.close(terminal)
  with open(reader, "rb", buffering=0) as screen:
    assert screen.read(1000) == shown + b"\r\n"
