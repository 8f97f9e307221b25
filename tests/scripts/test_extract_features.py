"""extract_features.py as a command: what it writes, and how it fails."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess

import mistakes
import numpy as np
import pytest
import scripts
import tiny_task

import bert
from bert.data.files import atomic_write
from bert.models import checkpoints

SCRIPT = "extract_features.py"

# Those of model and checkpoint are in test_bad_input.py.
MISTAKES = """
--input_file=
  --input_file is required
--output_file=
  --output_file is required
--init_checkpoint=
  --init_checkpoint is required
--vocab_file=
  --vocab_file is required
--input_file=nowhere
  --input_file=nowhere
--input_file=FILES
  it is a folder; pass the path
--input_file=FILES/empty
  empty has no lines; pass one text per line
--input_file=FILES/latin1
  FILES/latin1:2: byte 5 ... UTF-8
--output_file=FILES
  --output_file ... is not a file
--output_file=nowhere/out.jsonl
  --output_file=nowhere/out.jsonl ... no such folder nowhere ... create it
--output_file=FILES/input.txt
  --output_file=FILES/input.txt ... is an input
--output_file=FILES/model/DATA --init_checkpoint=FILES/model
  --output_file=FILES/model/bert_model.ckpt.data ... is an input
--layers=-1,-3
  --layers=-1,-3 must be different layers ... -2 (lowest)
--runtime=onnxruntime --precision=bfloat16
  --precision=bfloat16 ... float32, int8, those of --runtime=onnxruntime
--init_checkpoint=FILES/no_pooler.ckpt --pooling=pooled --layers=
  no_pooler.ckpt lacks bert/pooler/dense/kernel and 1 more
--init_checkpoint=FILES/nan.ckpt
  nan.ckpt gives vectors ... not a number
--output_file=/proc/x.jsonl
  /proc/x.jsonl cannot be written:  ... ; pass another
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """What the rows name."""
  folder = tmp_path_factory.mktemp("files")
  shutil.copytree(goldens / "model", folder / "model")
  shutil.copy(goldens / "vocab.txt", folder / "model")
  shutil.copy(goldens / "extract_input.txt", folder / "input.txt")
  (folder / "empty").touch()
  (folder / "latin1").write_bytes(b"a\ncaf\xe9\n")
  whole = checkpoints.Checkpoint(str(folder / "model" / "bert_model.ckpt"))
  checkpoints.write_checkpoint(
    str(folder / "no_pooler.ckpt"),
    {n: whole[n] for n in whole.shapes if "pooler" not in n},
  )
  bias = "bert/encoder/layer_1/output/dense/bias"
  checkpoints.write_checkpoint(
    str(folder / "nan.ckpt"),
    {n: whole[n] * (np.nan if n == bias else 1) for n in whole.shapes},
  )
  return folder


def command(files, output, **changes):
  """The flags of the golden file, as changed; None leaves one out."""
  values = {
    "input_file": files / "input.txt",
    "output_file": output,
    "vocab_file": files / "model" / "vocab.txt",
    "bert_config_file": files / "model" / "bert_config.json",
    "init_checkpoint": files / "model" / "bert_model.ckpt",
    "layers": "-1,-2",
    "max_seq_length": 32,
    "batch_size": 3,
    **changes,
  }
  return [f"--{k}={v}" for k, v in values.items() if v is not None]


def assert_golden(text, goldens):
  expected = (goldens / "extract_output.jsonl").read_text("utf-8").splitlines()
  for found, wanted in zip(text.splitlines(), expected, strict=True):
    found, wanted = json.loads(found), json.loads(wanted)
    assert found["linex_index"] == wanted["linex_index"]
    sides = found["features"], wanted["features"]
    for a, b in zip(*sides, strict=True):
      assert a["token"] == b["token"]
      assert [x["index"] for x in a["layers"]] == [-1, -2]
      np.testing.assert_allclose(
        [x["values"] for x in a["layers"]],
        [x["values"] for x in b["layers"]],
        rtol=0,
        atol=1e-5,
      )


def test_the_whole_script(tmp_path, files, goldens):
  output = tmp_path / "output.jsonl"
  _, log = scripts.fork(
    SCRIPT,
    *command(
      files,
      output,
      do_lower_case=True,
      use_tpu=False,
      master="",
      num_tpu_cores=8,
      use_one_hot_embeddings=False,
    ),
  )
  assert_golden(output.read_text("utf-8"), goldens)
  assert os.listdir(tmp_path) == ["output.jsonl"]
  line = log.splitlines()[-1]
  assert f"Wrote the features of 4 lines to {output} in " in line
  assert line.endswith("1 truncated to --max_seq_length=32")


def test_a_model_of_few_positions(tmp_path, files):
  """They are the default length."""
  name = "bert/embeddings/position_embeddings"
  known = checkpoints.Checkpoint(str(files / "model" / "bert_model.ckpt"))
  weights = {key: known[key] for key in known.shapes}
  weights[name] = weights[name][:12]
  config = json.loads((files / "model" / "bert_config.json").read_text())
  config["max_position_embeddings"] = 12
  contents = {
    "bert_config.json": json.dumps(config),
    "vocab.txt": (files / "model" / "vocab.txt").read_bytes(),
  }
  checkpoints.write_release(str(tmp_path), weights, contents)
  names = ("vocab_file", "bert_config_file", "max_seq_length")
  small = {**dict.fromkeys(names), "init_checkpoint": tmp_path}
  flags = {"pooling": "mean", "long_text": "mean_windows", "layers": -1}
  vectors = []
  for changes in ({"max_seq_length": 12}, small):
    output = tmp_path / "out.jsonl"
    _, log = scripts.fork(SCRIPT, *command(files, output, **flags, **changes))
    ending = "3 read in windows of --max_seq_length=12"
    assert log.splitlines()[-1].endswith(ending)
    rows = map(json.loads, output.read_text("utf-8").splitlines())
    vectors.append([row["vector"] for row in rows])
  np.testing.assert_allclose(*vectors, atol=1e-6)
  assert bert.load(tmp_path).task.settings.max_seq_length == 12


def test_another_runtime(tmp_path, files, goldens):
  output = tmp_path / "output.jsonl"
  flags = command(files, output, runtime="openvino", precision="float32")
  _, log = scripts.fork(SCRIPT, *flags)
  assert_golden(output.read_text("utf-8"), goldens)
  # With absl's prefix: the package removes the handlers of logs.
  assert re.search(r"^\d\d:\d\d:\d\d .*OpenVINO computes in float32", log, re.M)


def test_standard_streams(files, goldens):
  text = (files / "input.txt").read_text("utf-8")
  out, err = scripts.fork(
    SCRIPT, *command(files, "-", input_file="-"), stdin=text
  )
  assert_golden(out, goldens)
  assert "4 lines" in err


def test_a_slow_pipe_is_answered_as_it_comes(tmp_path, files):
  pipes = [tmp_path / "texts", tmp_path / "vectors"]
  for path in pipes:
    os.mkfifo(path)
  flags = command(files, "-", input_file="-", pooling="mean")
  process = scripts.Fork(SCRIPT, *flags, pipes=pipes)
  with pipes[0].open("w") as texts:
    with pipes[1].open() as vectors:
      for number in range(2):
        print("the game", file=texts, flush=True)
        assert json.loads(vectors.readline())["linex_index"] == number
    # Whoever reads has enough, which is no error.
    print("the game", file=texts)
  assert process.wait()[0] == 141


def test_gzip_in_and_out(tmp_path, files, goldens):
  source, output = tmp_path / "in.txt.gz", tmp_path / "out.jsonl.gz"
  source.write_bytes(gzip.compress((files / "input.txt").read_bytes()))
  scripts.fork(SCRIPT, *command(files, output, input_file=source))
  assert_golden(gzip.decompress(output.read_bytes()).decode(), goldens)


def test_vectors(tmp_path, files):
  output = tmp_path / "out.npz"
  flags = {
    "pooling": "mean",
    "layer_combination": "concat",
    "normalize": True,
    "exclude_special": True,
    "precision": "bfloat16",
    "dtype": "float16",
  }
  scripts.fork(SCRIPT, *command(files, output, **flags))
  with np.load(output) as found:
    lengths = np.linalg.norm(found["vectors"], axis=1)
    assert found["vectors"].shape == (4, 64)
    assert found["vectors"].dtype == np.float16
  np.testing.assert_allclose(lengths, [1, 1, 0, 1], atol=1e-3)


def test_many_lines_in_windows(tmp_path, files):
  """More lines than a window has are in order, and as short ones alone."""
  texts = [f"{n} the game" + " was" * (n % 5) for n in range(5000)]
  source = tmp_path / "in.txt"
  tiny_task.write_lines(source, texts)
  output = tmp_path / "out.npz"
  flags = {"input_file": source, "batch_size": 256, "layers": "-1"}
  scripts.fork(SCRIPT, *command(files, output, **flags))
  with np.load(output) as found:
    offsets, words = found["offsets"], found["word_offsets"]
    tokens = found["tokens"]
  assert len(offsets) == len(words) == 5001
  for n in (0, 4095, 4096, 4999):
    spelled = "".join(tokens[offsets[n] : offsets[n + 1]]).replace("##", "")
    assert spelled.startswith(f"[CLS]{n}thegame")
    assert words[n + 1] - words[n] == 3 + n % 5


def test_two_runs_do_not_write_one_file(tmp_path, files):
  output = tmp_path / "out.jsonl"
  with atomic_write(str(output)) as partial:
    _, err = scripts.fork(SCRIPT, *command(files, output), status=2)
    pathlib.Path(partial).write_text("first")
  assert err.startswith(f"error: another process is writing {output}; wait")
  assert output.read_text() == "first"


def test_a_shells_pipe(tmp_path, files, goldens):
  pipe, output = tmp_path / "pipe", tmp_path / "out.jsonl"
  os.mkfifo(pipe)
  writer = subprocess.Popen(["cp", files / "input.txt", pipe])
  scripts.fork(SCRIPT, *command(files, output, input_file=pipe))
  assert writer.wait() == 0
  assert_golden(output.read_text("utf-8"), goldens)


def test_a_killed_run_leaves_no_output(tmp_path, files):
  source = tmp_path / "in.txt"
  tiny_task.write_lines(source, ["the game was played"] * 40_000)
  output = tmp_path / "out.jsonl"
  scripts.kill_when(
    pathlib.Path(f"{output}.partial"),
    SCRIPT,
    *command(files, output, input_file=source),
  )
  assert not output.exists()
  # Given again, the same command writes what it should.
  tiny_task.write_lines(source, ["the game was played"] * 3)
  scripts.fork(SCRIPT, *command(files, output, input_file=source))
  assert sorted(os.listdir(tmp_path)) == ["in.txt", "out.jsonl"]
  assert len(output.read_text().splitlines()) == 3


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(files, mistake):
  good = command(files, files / "out.jsonl")
  names = {"DATA": "bert_model.ckpt.data-00000-of-00001", "FILES": files}
  mistakes.check(mistake, SCRIPT, files, good, **names)
