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
FILES = (
  f"--vocab_file={MODEL}/vocab.txt --bert_config_file={MODEL}/bert_config.json"
)
NAMES = {
  "TRAIN": f"{FILES} --output_dir=OUT --do_train",
  "EXTRACT": f"extract_features.py {FILES} --output_file=OUT CHECKPOINT TEXT",
  "SERVE": "serve.py --model_dir=RELEASE --port=0",
  "CHECKPOINT": f"--init_checkpoint={MODEL}/model/bert_model.ckpt",
  "TEXT": f"--input_file={MODEL}/extract_input.txt",
  "FILES": FILES,
  "MODEL": str(MODEL),
  "SAMPLES": str(scripts.ROOT / "sample_data"),
}

COMMANDS = """
run_classifier.py --learning_rat=1
run_squad.py --output_dir=OUT
run_classifier.py TRAIN --task_name=MRPC --data_dir=/-
run_classifier.py TRAIN --task_name=custom
run_squad.py TRAIN --train_file=/-
run_ner.py TRAIN --train_file=/-
run_multiple_choice.py TRAIN --train_file=/-
run_embeddings.py TRAIN --train_file=/-
run_pretraining.py TRAIN --input_file=/-
extract_features.py FILES --input_file=/-
fill_mask.py --model_dir=/- --interactive
export_model.py --model_dir=/- --output_dir=OUT
export_model.py --model_dir=RELEASE --output_dir=OUT --format=onnx
visualize.py
run_classifier.py TRAIN --task_name=MRPC --data_dir=MODEL --init_checkpoint=/-
run_multiple_choice.py --output_dir=OUT --do_eval --init_checkpoint=/-
run_ner.py TRAIN --train_file=SAMPLES/ner/train.txt --bert_config_file=/-
run_squad.py TRAIN --train_file=MODEL/squad_v1.json --vocab_file=/-
EXTRACT --runtime=onnxruntime --precision=bfloat16
EXTRACT --layers=-9
EXTRACT --runtime=openvino
SERVE --runtime=onnxruntime --precision=bfloat16
SERVE --runtime=openvino
serve.py --model_dir=/- --port=0
serve.py --model_dir=/- --model_name=a/b
convert_checkpoint.py --to=huggingface --model_dir=/- --output_dir=OUT
convert_checkpoint.py --to=pickle
download.py model uncased_L-2_H-128_A-3
download.py glue
build_vocab.py --input_file=/- --output_file=OUT
build_vocab.py --vocab_size=0
create_pretraining_data.py FILES --input_file=/- --output_file=OUT
create_pretraining_data.py --dupe_factor=0
""".strip().splitlines()

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
for line in json.loads(sys.argv[1]):
  if not os.fork():
    sys.argv = line.split()
    os.dup2(1, 2)
    try:
      runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
      loaded = "tensorflow.python" in sys.modules
      print("ended with", stop.code, loaded, flush=True)
    os._exit(0)
  os.wait()
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
  """What each command prints."""
  folder = tmp_path_factory.mktemp("start")
  out, release = folder / "out", folder / "release"
  shutil.copytree(MODEL / "model", release)
  shutil.copy(MODEL / "vocab.txt", release)
  commands = json.dumps(COMMANDS)
  for name, text in {**NAMES, "RELEASE": str(release), "OUT": str(out)}.items():
    commands = commands.replace(name, text)
  found = subprocess.run(
    [sys.executable, "-c", _CODE, commands],
    cwd=scripts.ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  assert not out.exists()
  printed = re.findall(r"(.*?^ended with .*?\n)", found, re.S | re.M)
  return dict(zip(COMMANDS, printed, strict=True))


def test_an_error_is_reported_without_tensorflow(outputs):
  for command, printed in outputs.items():
    *_, line, end = printed.splitlines()
    assert line.startswith("error: "), command
    assert end == "ended with 2 False", command


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
        *("create_pretraining_data.py", FILES.split()[0], "--output_file=/-/a"),
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


@pytest.fixture
def run_main(tmp_path):
  """Runs a script with this `main`, as the shell does."""

  def run(code, *flags, encoding="utf-8", **kwargs):
    script = tmp_path / "script.py"
    script.write_text(
      f"from bert.scripts import startup\n{code}\n"
      "startup.script(main, {})[1]()\n"
    )
    variables = {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(scripts.ROOT)}
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
    return subprocess.run(
      [sys.executable, script, *flags], env=os.environ | variables, **kwargs
    )

  return run


def test_log_lines_have_a_time(run_main):
  found = run_main(
    "from absl import logging\n"
    "def main(flags):\n  logging.info('a')\n  logging.warning('b')"
  )
  time = rb"\d\d:\d\d:\d\d"
  assert re.fullmatch(rb"%s a\n%s warning: b\n" % (time, time), found.stderr)


def test_an_error_of_a_remote_file_system_names_the_flag(tmp_path):
  """It may name a host, but no path."""
  script = tmp_path / "script.py"
  script.write_text(
    "from bert.flags import values\nfrom bert.scripts import startup\n"
    "def main(flags):\n  raise OSError('could not resolve host')\n"
    "rows = {'data_dir': values.Flag('data_dir', None, 'Folder.')}\n"
    "startup.script(main, rows)[1]()\n"
  )
  _, log = scripts.fork(script, "--data_dir=gs://bucket/glue", status=2)
  assert log == (
    "error: could not resolve host; check --data_dir=gs://bucket/glue\n"
  )


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_piped_input_is_utf8_in_any_locale(run_main, encoding):
  def run(text):
    code = "from bert.scripts import terminal\n"
    code += "main = lambda flags: print(terminal.ask(''))"
    found = run_main(code, input=text, encoding=encoding)
    return found.returncode, found.stdout + found.stderr

  text = "caf\xe9 \u732b\n".encode()
  assert run(text) == (0, text)
  error = b"error: standard input is not UTF-8; convert the input to UTF-8\n"
  assert run(b"caf\xe9\n") == (2, error)


# A text, and a path that is not UTF-8.
PRINT = r"main = lambda flags: print('caf\xe9 \u732b \udce9')"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_results_are_utf8_in_any_locale(run_main, encoding):
  found = run_main(PRINT, encoding=encoding).stdout
  assert found == "caf\xe9 \u732b ".encode() + b"\xe9\n"


@pytest.mark.parametrize(
  ("encoding", "shown"),
  [
    ("ascii", b"caf? ? ?"),
    ("latin-1", b"caf\xe9 ? ?"),
    ("utf-8", "caf\xe9 \u732b ?".encode()),
  ],
)
def test_a_terminal_keeps_its_encoding(run_main, encoding, shown):
  reader, terminal = os.openpty()
  run_main(PRINT, encoding=encoding, stdout=terminal)
  os.close(terminal)
  with open(reader, "rb", buffering=0) as screen:
    assert screen.read(1000) == shown + b"\r\n"
