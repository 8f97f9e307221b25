"""create_pretraining_data.py from the shell, on small texts."""

import gzip
import importlib.util
import os
import pathlib
import re
import signal
import time

import mistakes
import pytest
import scripts
import sentencepiece
import tensorflow as tf

from bert.data import instances

SCRIPT = "create_pretraining_data.py"

# The settings of the goldens, see their README.
GOLDENS = {
  "default": {"dupe_factor": 2, "random_seed": 12345},
  "whole_word": {
    "dupe_factor": 2,
    "random_seed": 7,
    "do_whole_word_mask": True,
  },
  "two": {"dupe_factor": 1},
}


@pytest.fixture(scope="module")
def command(goldens):
  """From what differs to a whole command; None leaves a flag out."""

  def make(output, **changes):
    values = {
      "input_file": goldens / "corpus.txt",
      "output_file": output,
      "vocab_file": goldens / "vocab.txt",
      "max_seq_length": 64,
      "max_predictions_per_seq": 10,
      **changes,
    }
    return [f"--{k}={v}" for k, v in values.items() if v is not None]

  return make


def _rows(*paths):
  """The records' features as lists."""
  rows = []
  for record in tf.data.TFRecordDataset([str(p) for p in paths]):
    features = tf.train.Example.FromString(record.numpy()).features.feature
    rows.append(
      {
        name: list(getattr(value, value.WhichOneof("kind")).value)
        for name, value in features.items()
      }
    )
  return rows


def _sorted(rows):
  return sorted(rows, key=lambda row: sorted(row.items()))


def _quiet():
  """The environment of a user, who leaves TensorFlow's notes to the script."""
  return {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}


# Those of the others are in tests/data/test_instances.py.
@pytest.mark.parametrize("name", ["whole_word", "two"])
def test_records_are_the_originals(command, goldens, tmp_path, name):
  names = ["two-0", "two-1"] if name == "two" else [name]
  written = [tmp_path / f"{n}.tfrecord" for n in names]
  flags = command(",".join(map(str, written)), **GOLDENS[name])
  scripts.fork(SCRIPT, *flags)
  for path in written:
    golden = goldens / "pretraining_data" / path.name
    assert _rows(path) == _rows(golden)
  assert sorted(os.listdir(tmp_path)) == [path.name for path in written]


def test_the_famous_command(goldens, tmp_path):
  output = tmp_path / "tf_examples.tfrecord"
  log = scripts.run(
    SCRIPT,
    "--input_file=./sample_text.txt",
    f"--output_file={output}",
    f"--vocab_file={goldens / 'vocab.txt'}",
    "--do_lower_case=True",
    "--max_seq_length=128",
    "--max_predictions_per_seq=20",
    "--masked_lm_prob=0.15",
    "--random_seed=12345",
    "--dupe_factor=5",
    cwd=scripts.ROOT,
    env=_quiet(),
  )
  rows = _rows(output)
  spec = instances.feature_spec(128, 20)
  assert all(
    {name: [len(values)] for name, values in row.items()}
    == {name: list(feature.shape) for name, feature in spec.items()}
    for row in rows
  )
  found, made = log.splitlines()
  text = (scripts.ROOT / "sample_text.txt").read_text("utf-8")
  count = len(re.split(r"\n\n+", text.strip()))
  assert f"1 file, {len(text.encode()) / 1e6:.2f} MB: " in found
  assert f"{count} documents in 1 shard for 1 worker" in found
  tokens = sum(sum(row["input_mask"]) for row in rows)
  padding = 100 * (1 - tokens / 128 / len(rows))
  wanted = f"{len(rows):,} examples of {tokens:,} tokens, {padding:.1f}%"
  assert wanted in made
  assert made.endswith(str(output))


@pytest.mark.parametrize(
  ("line", "warning"),
  [
    ("天地玄黄宇宙洪荒", "--do_whole_word_mask has no effect: nearly all "),
    ("ab" * 40, "examples have only words with more pieces than predictions"),
    ("aba baba aaa bb", None),
  ],
)
def test_whole_words_that_are_none(tmp_path, line, warning):
  letters = sorted(set("天地玄黄宇宙洪荒ab"))
  marked = [f"##{letter}" for letter in letters]
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  vocabulary = [*special, *letters, *marked]
  (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
  (tmp_path / "text").write_text(f"{line}\n" * 20)
  flags = {
    "input_file": "text",
    "output_file": "out",
    "vocab_file": "vocab.txt",
  }
  flags |= {"next_sentence_prediction": False, "do_whole_word_mask": True}
  flags |= {"dupe_factor": 2, "masked_lm_prob": 0.15, "max_seq_length": 128}
  command = [f"--{name}={value}" for name, value in flags.items()]
  _, log = scripts.fork(SCRIPT, *command, cwd=tmp_path)
  if warning:
    assert warning in log
  else:
    assert "has no effect" not in log
    assert "in part" not in log
  rows = _rows(tmp_path / "out")
  assert all(sum(row["masked_lm_weights"]) for row in rows)


@pytest.mark.parametrize(
  ("piece", "do_lower_case", "kind"),
  [
    ("Word", True, "capitals"),
    ("word", False, "no capitals"),
    ("<S>", True, None),  # As in the Chinese release.
  ],
)
def test_casing_that_the_vocabulary_contradicts(
  command, tmp_path, piece, do_lower_case, kind
):
  vocabulary = tmp_path / "vocab.txt"
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  vocabulary.write_text("\n".join([*special, piece]) + "\n")
  _, log = scripts.fork(
    SCRIPT,
    *command(
      tmp_path / "out", vocab_file=vocabulary, do_lower_case=do_lower_case
    ),
  )
  wanted = (
    f"{vocabulary} has {kind}, but --do_lower_case is {do_lower_case}; pass "
    f"--do_lower_case={not do_lower_case}"
  )
  assert (wanted in log) == (kind is not None)
  assert ("capitals" in log) == (kind is not None)


def test_no_process_loads_tensorflow(command, tmp_path):
  """Python lists what the script and its workers import."""
  log = scripts.run(
    SCRIPT,
    *command(tmp_path / "out", num_workers=2, shard_mb=0.003, dupe_factor=1),
    env={**_quiet(), "PYTHONPROFILEIMPORTTIME": "1"},
  )
  modules = re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE)
  assert (
    modules.count("bert.data.instances") >= 3
  )  # The script and two workers.
  loaded = {module.split(".")[0] for module in modules}
  assert not loaded & {"tensorflow", "keras", "sklearn", "matplotlib", "scipy"}


def test_patterns_and_gzip(command, goldens, tmp_path):
  lines = (goldens / "corpus.txt").read_bytes().splitlines(keepends=True)
  (tmp_path / "a.txt").write_bytes(b"".join(lines[:40]))
  zipped = gzip.compress(b"".join(lines[40:99]))
  (tmp_path / "b.txt.gz").write_bytes(zipped)
  (tmp_path / "last.txt").write_bytes(b"".join(lines[99:]))
  # What a killed run leaves is no text of the corpus.
  for name in ("a.txt.partial", "a.txt.partial.tmp-00000"):
    (tmp_path / name).write_bytes(lines[0])
  inputs = f"{tmp_path}/?.txt*,{tmp_path}/last.txt"
  output = tmp_path / "out"
  scripts.fork(
    SCRIPT, *command(output, **GOLDENS["default"], input_file=inputs)
  )
  golden = goldens / "pretraining_data" / "default.tfrecord"
  assert _rows(output) == _rows(golden)


@pytest.fixture(scope="module")
def sharded(command, tmp_path_factory):
  """What one worker makes of many shards: the flags, and the files."""
  folder = tmp_path_factory.mktemp("sharded")
  changes = {"shard_mb": 0.003, "dupe_factor": 30}
  paths = [folder / "0", folder / "1"]
  output = ",".join(map(str, paths))
  scripts.fork(SCRIPT, *command(output, num_workers=1, **changes))
  return changes, paths


def _is_equal(folder, paths):
  names = [path.name for path in paths]
  assert sorted(os.listdir(folder)) == names
  return all((folder / p.name).read_bytes() == p.read_bytes() for p in paths)


def test_workers_write_the_same_bytes(command, goldens, sharded, tmp_path):
  """Of a compressed file, too."""
  changes, paths = sharded
  text = tmp_path / "text.txt.gz"
  text.write_bytes(gzip.compress((goldens / "corpus.txt").read_bytes()))
  output = ",".join(str(tmp_path / path.name) for path in paths)
  flags = command(output, num_workers=2, **changes, input_file=text)
  _, log = scripts.fork(SCRIPT, *flags)
  text.unlink()
  assert re.search(r"12 documents in \d shards for 2 workers", log)
  assert len(log.splitlines()) == 2
  assert _is_equal(tmp_path, paths)


def _descendants(pid):
  """The processes that a process has started, and those that these have."""
  parents = {}
  for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
      state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
      continue  # It has ended meanwhile.
    if state != "Z":
      parents[int(path.parent.name)] = int(parent)
  found = {pid}
  while more := {p for p in parents if parents[p] in found} - found:
    found |= more
  return found - {pid}


def _wait_until(is_so):
  deadline = time.monotonic() + 60
  while not is_so() and time.monotonic() < deadline:
    time.sleep(0.005)
  assert is_so()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")
def test_a_killed_run_starts_anew(command, sharded, tmp_path):
  changes, paths = sharded
  output = ",".join(str(tmp_path / path.name) for path in paths)
  flags = command(output, num_workers=2, **changes)
  process = scripts.Fork(SCRIPT, *flags)
  _wait_until((tmp_path / "0.partial.tmp-shard-00002-1").exists)
  started = _descendants(process.pid)
  os.kill(process.pid, signal.SIGKILL)
  assert process.wait()[0] == -signal.SIGKILL
  assert len(started) > 2
  _wait_until(
    lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in started)
  )
  left = set(os.listdir(tmp_path))
  assert left
  assert not left & {path.name for path in paths}
  scripts.fork(SCRIPT, *flags)
  assert _is_equal(tmp_path, paths)


@pytest.mark.parametrize(
  ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_leaves_nothing(command, tmp_path, number, status):
  process = scripts.start(
    SCRIPT,
    *command(tmp_path / "out", num_workers=2, shard_mb=0.003, dupe_factor=1000),
    env=_quiet(),
    start_new_session=True,  # As a terminal's, whose Ctrl-C goes to all of it.
  )
  part = re.compile(r"out\.partial\.tmp-shard-\d+-0")
  _wait_until(lambda: any(map(part.match, os.listdir(tmp_path))))
  os.killpg(process.pid, number)
  log, _ = process.communicate()
  assert process.returncode == status, log
  assert len(log.splitlines()) == 2
  assert log.splitlines()[1].endswith("start again; no file is half-written.")
  assert os.listdir(tmp_path) == []


def test_no_masking(command, goldens, tmp_path):
  once, often = tmp_path / "once", tmp_path / "often"
  flags = command(once, dupe_factor=5, do_whole_word_mask=True)
  _, log = scripts.fork(SCRIPT, *flags, "--no_masking")
  assert "--do_whole_word_mask=True, --dupe_factor=5 are not used; omit" in log
  scripts.fork(SCRIPT, *command(often, dupe_factor=5))
  rows = _rows(once)
  spec = instances.feature_spec(64, 0)
  assert all(row.keys() == spec.keys() for row in rows)
  vocabulary = (goldens / "vocab.txt").read_text("utf-8").splitlines()
  mask = vocabulary.index("[MASK]")
  assert not any(mask in row["input_ids"] for row in rows)
  assert once.stat().st_size <= often.stat().st_size / 5


def test_a_sentencepiece_model(command, goldens, tmp_path):
  sentencepiece.SentencePieceTrainer.train(
    input=str(goldens / "corpus.txt"),
    model_prefix=str(tmp_path / "pieces"),
    vocab_size=500,
    user_defined_symbols="[CLS],[SEP],[MASK]",
    minloglevel=2,
  )
  model = tmp_path / "pieces.model"
  flags = command(tmp_path / "out", vocab_file=None, spm_model_file=model)
  scripts.fork(SCRIPT, *flags, "--dupe_factor=1", "--do_whole_word_mask")
  pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
  rows = _rows(tmp_path / "out")
  for row in rows:
    ends = [pieces.piece_to_id(p) for p in ("[CLS]", "[SEP]")]
    assert row["input_ids"][0] == ends[0]
    assert row["input_ids"][sum(row["input_mask"]) - 1] == ends[1]
  mask = pieces.piece_to_id("[MASK]")
  assert sum(row["input_ids"].count(mask) for row in rows) > len(rows)


@pytest.mark.parametrize(
  ("changes", "has_hint"),
  [
    ({"num_workers": 2}, True),
    ({"num_workers": 1}, False),
    ({"num_workers": 2, "shard_mb": 1}, False),
  ],
)
def test_one_shard_for_many_workers_is_noted(
  command, tmp_path, changes, has_hint
):
  flags = command(tmp_path / "out", dupe_factor=1, **changes)
  _, log = scripts.fork(SCRIPT, *flags)
  assert ("--shard_mb=8" in log) == has_hint


needs_beam = pytest.mark.skipif(
  not importlib.util.find_spec("apache_beam"), reason="Beam is not installed"
)


@needs_beam
def test_beam_writes_the_same_records(command, sharded, tmp_path):
  changes, paths = sharded
  output = ",".join(str(tmp_path / path.name) for path in paths)
  flags = command(output, runner="FnApiRunner", **changes)
  _, log = scripts.fork(SCRIPT, *flags)
  assert sorted(os.listdir(tmp_path)) == [path.name for path in paths]
  for path in paths:
    rows, wanted = _rows(tmp_path / path.name), _rows(path)
    assert _sorted(rows) == _sorted(wanted)
  count = sum(len(_rows(path)) for path in paths)
  assert f"{count:,} examples of " in log


MISTAKES = """
--input_file=
  --input_file is required
--input_file=FILES/good.txt,FILES/*.text
  no file matches FILES/*.text ... pass paths
--input_file=FILES/folder
  no file matches FILES/folder ... pass paths
--input_file=FILES/good.txt,/dev/null
  --input_file= ... : /dev/null is a pipe or a device ... save its content
--output_file=FILES/nowhere/out
  no such folder FILES/nowhere ... create it
--output_file=FILES/folder
  'FILES/folder' is not a file ... pass the path of a file
--output_file=FILES/out,
  --output_file=FILES/out,: '' is not a file
--output_file=FILES/out,FILES/folder/../good.txt
  good.txt is an input ... pass another path
--output_file=FILES/out,FILES/folder/../out
  out is given twice ... pass another path
--output_file=FILES/vocab.txt
  vocab.txt is an input ... pass another path
--output_file=/dev/null
  /dev/null is a pipe or a device ... pass the path of a file
--input_file=FILES/good.txt,FILES/latin1.txt
  FILES/latin1.txt:2: byte 5 is not UTF-8 ... convert
--input_file=FILES/control.txt
  FILES/control.txt has no text that the tokenizer keeps; pass other text
--input_file=FILES/one.txt
  FILES/one.txt ... empty lines ... --next_sentence_prediction=false
--vocab_file=
  --vocab_file is required
--vocab_file=FILES/no_mask.txt
  the vocabulary has no piece [MASK] ... or that of a released
--max_seq_length=4
  --max_seq_length=4 ... pass 5 or more
--masked_lm_prob=0
  --masked_lm_prob=0.0 ... between 0 and 1 ... 0.15 ... --no_masking
"""

BEAM_MISTAKES = """
--runner=FnApiRunner --input_file=FILES/dropped.txt --shard_mb=1e-6
  dropped.txt has no text that the tokenizer keeps ... raise --shard_mb
--runner=apache_beam.runners.FnApiRuner
  --runner=apache_beam.runners.FnApiRuner:
--runner=FnApiRuner
  FnApiRuner. ... FnApiRunner,
--runner=FnApiRunner --direct_num_workers=1 --max_seq_lenght=64
  --max_seq_lenght is neither a flag
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """What the rows name."""
  folder = tmp_path_factory.mktemp("files")
  (folder / "folder").mkdir()
  for name, content in {
    "good.txt": b"the of\n\nand to\n",
    "latin1.txt": b"the\nc\xe9\n",
    "control.txt": b"\x01\n\n\x02\n",
    "a.partial": b"the of\n\nand to\n",
    "one.txt": b"the of\nand to\n",
    "dropped.txt": b"the of\n\nand to\n\n\x01\n\n\x02\n",
  }.items():
    (folder / name).write_bytes(content)
  vocabulary = (goldens / "vocab.txt").read_text("utf-8")
  (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
  without = vocabulary.replace("[MASK]\n", "[NONE]\n")
  (folder / "no_mask.txt").write_text(without, encoding="utf-8")
  return folder


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(command, files, mistake):
  _check(command, files, mistake)


@needs_beam
@mistakes.each_of(BEAM_MISTAKES)
def test_a_mistake_with_beam_is_one_line(command, files, mistake):
  _check(command, files, mistake)


def _check(command, files, mistake):
  names = {"input_file": "good.txt", "vocab_file": "vocab.txt"}
  paths = {flag: files / name for flag, name in names.items()}
  good = command(files / "out", **paths)
  mistakes.check(mistake, SCRIPT, files, good, FILES=files)
