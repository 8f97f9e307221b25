"""Checkpoints are found, read, compared, and written whole."""

import gc
import os
import resource
import tempfile
import textwrap

import numpy as np
import pytest
import scripts
import tensorflow as tf

from bert import variables
from bert.data import files
from bert.errors import UserError
from bert.models import checkpoints

DATA = ".data-00000-of-00001"

TENSORS = {
  "bert/pooler/dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
  "bert/pooler/dense/bias": np.array([0.5, -0.5, 1e-20], np.float32),
  "bert/pooler/dense/bias/adam_m": np.ones(3, np.float32),
  "bert/pooler/dense/bias/adam_v": np.ones(3, np.float32),
  "output_bias": np.zeros(2, np.float32),
  "global_step": np.int64(2**40),
}
WEIGHTS = {"bert/pooler/dense/kernel": [2, 3], "bert/pooler/dense/bias": [3]}
HEADS = {"output_bias": [3], "output_weights": [3, 2]}


@pytest.fixture
def prefix(tmp_path):
  """A written checkpoint."""
  prefix = str(tmp_path / "bert_model.ckpt")
  checkpoints.write_checkpoint(prefix, TENSORS)
  return prefix


def save(folder, *steps, keep_max=99):
  for step in steps:
    tensors = {"w": tf.fill([3], float(step))}
    checkpoints.write_checkpoint(f"{folder}/model.ckpt-{step}", tensors)
    checkpoints.record_checkpoints(str(folder), keep_max, step)


def steps_in(folder):
  return [
    int(prefix.rpartition("-")[2])
    for prefix in checkpoints.training_checkpoints(str(folder))
  ]


def edit(path, change):
  with open(path, "rb") as reader:
    content = reader.read()
  with open(path, "wb") as writer:
    writer.write(change(content))


class TestReadAndWrite:
  def test_round_trip(self, prefix):
    checkpoint = checkpoints.Checkpoint(prefix)
    assert checkpoint.shapes.keys() == TENSORS.keys()
    for name, expected in TENSORS.items():
      assert name in checkpoint
      assert checkpoint.shapes[name] == list(np.shape(expected))
      assert checkpoint[name].dtype == expected.dtype
      np.testing.assert_array_equal(checkpoint[name], expected)

  def test_two_files_and_no_more(self, prefix, tmp_path):
    names = [f"bert_model.ckpt{DATA}", "bert_model.ckpt.index"]
    assert sorted(os.listdir(tmp_path)) == names
    paths = [str(tmp_path / name) for name in names]
    assert sorted(checkpoints.checkpoint_files(prefix)) == paths
    assert sorted(checkpoints.checkpoint_files(str(tmp_path))) == paths

  def test_tensorflow_reads_it(self, prefix):
    listed = dict(tf.train.list_variables(prefix))
    assert listed == {n: list(np.shape(v)) for n, v in TENSORS.items()}
    value = tf.train.load_variable(prefix, "output_bias")
    assert value.tolist() == [0, 0]

  def test_whole_or_missing_at_every_instant(self, prefix, monkeypatch):
    seen = []

    def watch(operation):
      def watched(*args, **kwargs):
        operation(*args, **kwargs)
        if os.path.exists(prefix + ".index"):
          seen.append(checkpoints.Checkpoint(prefix).verify()["w"].tolist())

      return watched

    checkpoints.write_checkpoint(prefix, {"w": [1.0]})
    for name in ("rename", "remove"):
      operation = getattr(tf.io.gfile, name)
      monkeypatch.setattr(tf.io.gfile, name, watch(operation))
    checkpoints.write_checkpoint(prefix, {"w": [2.0] * 9})
    assert seen == [[2.0] * 9]

  def test_weights_only(self, prefix):
    checkpoint = checkpoints.Checkpoint(prefix, weights_only=True)
    assert checkpoint.shapes == {**WEIGHTS, "output_bias": [2]}
    assert "global_step" not in checkpoint
    assert "bert/pooler/dense/bias/adam_m" not in checkpoint


def test_a_checkpoint_of_another_user_is_not_damaged(goldens, monkeypatch):
  def load(path):
    text = f"Unable to open table file {path}: PERMISSION_DENIED: {path}; "
    raise tf.errors.DataLossError(None, None, text + "Permission denied")

  monkeypatch.setattr(tf.train, "load_checkpoint", load)
  with pytest.raises(PermissionError, match="cannot be read: permission den"):
    checkpoints.Checkpoint(checkpoints.find_checkpoint(str(goldens / "model")))


class TestDamage:
  def assert_refused(self, prefix):
    with pytest.raises(ValueError, match="damaged or incomplete") as error:
      checkpoints.Checkpoint(prefix).verify()
    assert prefix in str(error.value)

  @pytest.mark.parametrize("suffix", [DATA, ".index"])
  @pytest.mark.parametrize("size", [0, 1, -1])
  def test_a_truncated_file(self, prefix, suffix, size):
    edit(prefix + suffix, lambda content: content[:size])
    self.assert_refused(prefix)

  @pytest.mark.parametrize("place", [0, 20, -1])
  def test_changed_data(self, prefix, place):
    def change(content):
      content = bytearray(content)
      content[place] ^= 1
      return bytes(content)

    edit(prefix + DATA, change)
    self.assert_refused(prefix)

  @pytest.mark.parametrize("suffix", [DATA, ".index"])
  def test_a_missing_file(self, prefix, suffix):
    os.remove(prefix + suffix)
    self.assert_refused(prefix)


# Forks writers from a process that has loaded TensorFlow once, and kills each
# after its first checkpoint has appeared, at ever later moments.
KILL_WRITERS = """
  import itertools, os, signal, sys, time
  import tensorflow as tf
  from bert.models import checkpoints

  def write_for_ever(folder):
    for step in itertools.count(1):
      tensors = {"w": tf.fill([300, 1000], float(step)), "step": step}
      checkpoints.write_checkpoint(os.path.join(folder, "same"), tensors)
      prefix = os.path.join(folder, f"model.ckpt-{step}")
      checkpoints.write_checkpoint(prefix, tensors)
      checkpoints.record_checkpoints(folder, 2, step)

  for number, folder in enumerate(sys.argv[1:]):
    writer = os.fork()
    if writer == 0:
      write_for_ever(folder)
    while not os.path.exists(os.path.join(folder, "checkpoint")):
      time.sleep(0.001)
    time.sleep(0.02 + 0.0073 * number)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
"""


def test_a_killed_writer_leaves_whole_checkpoints(tmp_path):
  folders = [tmp_path / str(number) for number in range(5)]
  for folder in folders:
    folder.mkdir()
  script = tmp_path / "kill_writers.py"
  script.write_text(textwrap.dedent(KILL_WRITERS))
  scripts.fork(script, *folders)

  def step_of(prefix):
    checkpoint = checkpoints.Checkpoint(prefix).verify()
    assert set(np.unique(checkpoint["w"])) == {float(checkpoint["step"])}
    return int(checkpoint["step"])

  for folder in map(str, folders):
    prefixes = checkpoints.training_checkpoints(folder)
    # Two are kept, a third is new or about to go.
    assert 1 <= len(prefixes) <= 3
    assert list(map(step_of, prefixes)) == steps_in(folder)
    step_of(checkpoints.find_checkpoint(folder))
    # The one that is rewritten is whole or missing.
    if os.path.exists(os.path.join(folder, "same.index")):
      step_of(os.path.join(folder, "same"))
    checkpoints.remove_partial_files(folder)
    assert not [name for name in os.listdir(folder) if "partial" in name]
    save(folder, 10**6, keep_max=1)
    assert steps_in(folder) == [10**6]


class TestFindCheckpoint:
  @pytest.mark.parametrize("end", ["", "/"])
  def test_a_folder_with_a_release(self, prefix, tmp_path, end):
    assert checkpoints.find_checkpoint(f"{tmp_path}{end}") == prefix

  def test_the_newest_of_a_run(self, tmp_path):
    save(tmp_path, 9, 10)
    newest = str(tmp_path / "model.ckpt-10")
    assert checkpoints.find_checkpoint(str(tmp_path)) == newest
    os.remove(tmp_path / "checkpoint")
    assert checkpoints.find_checkpoint(str(tmp_path)) == newest

  @pytest.mark.parametrize("name", ["run", "run[1]", "run\\1"])
  def test_the_newest_of_another_program(self, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "checkpoint").write_text('model_checkpoint_path: "theirs-7"')
    with pytest.raises(UserError, match="no checkpoint"):
      checkpoints.find_checkpoint(str(folder))
    checkpoints.write_checkpoint(f"{folder}/theirs-7", TENSORS)
    found = checkpoints.find_checkpoint(str(folder))
    assert found == f"{folder}/theirs-7"
    assert checkpoints.Checkpoint(found).verify().step == 2**40

  def test_a_record_of_what_is_gone(self, tmp_path):
    save(tmp_path, 9, 10)
    os.remove(tmp_path / "model.ckpt-10.index")
    found = checkpoints.find_checkpoint(str(tmp_path))
    assert found == str(tmp_path / "model.ckpt-9")

  def test_a_folder_that_has_moved(self, tmp_path):
    (tmp_path / "old").mkdir()
    save(tmp_path / "old", 3)
    (tmp_path / "old").rename(tmp_path / "new")
    found = checkpoints.find_checkpoint(str(tmp_path / "new"))
    assert found == str(tmp_path / "new" / "model.ckpt-3")

  @pytest.mark.parametrize("suffix", [".index", DATA, ".meta"])
  def test_one_file_of_it(self, prefix, suffix):
    assert checkpoints.find_checkpoint(prefix + suffix) == prefix

  def test_a_folder_of_seeds(self, tmp_path):
    (tmp_path / "seed-1").mkdir()
    prefix = str(tmp_path / "seed-1" / "bert_model.ckpt")
    checkpoints.write_checkpoint(prefix, {"w": [1.0]})
    wanted = rf"ckpt\.index; .* or their folder, such as {tmp_path}/seed-1$"
    with pytest.raises(UserError, match=wanted):
      checkpoints.find_checkpoint(str(tmp_path))

  def test_a_finished_model_comes_before_its_training(self, prefix, tmp_path):
    folder = str(tmp_path)
    save(tmp_path, 3)
    best = str(tmp_path / "best_model.ckpt")
    checkpoints.write_checkpoint(best, TENSORS)
    assert checkpoints.find_checkpoint(folder) == prefix
    os.remove(prefix + ".index")
    # Without its history nothing tells which run the best belongs to.
    newest = str(tmp_path / "model.ckpt-3")
    assert checkpoints.find_checkpoint(folder) == newest
    (tmp_path / "best.json").write_text("{}")
    assert checkpoints.find_checkpoint(folder) == best


def test_training_checkpoints_are_listed_oldest_first(tmp_path):
  assert steps_in(tmp_path / "none") == []
  save(tmp_path, 100, 9, 0, 20)
  for name in (
    # Half-written ones, and other files.
    f"model.ckpt-6{DATA}",
    "model.ckpt-7.partial.index",
    "model.ckpt-9.index.partial",
    "model.ckpt-best.index",
    "model.ckpt.index",
    "a-1.index",
  ):
    (tmp_path / name).write_bytes(b"")
  assert steps_in(tmp_path) == [0, 9, 20, 100]


class TestUnwritable:
  @pytest.fixture
  def full_disk(self):
    """Files of this process cannot grow beyond 100 kB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)

  def test_a_full_disk(self, tmp_path, full_disk):
    save(tmp_path, 3)
    tensors = {"w": np.zeros(10**6, np.float32)}
    with pytest.raises(UserError) as error:
      checkpoints.write_checkpoint(f"{tmp_path}/model.ckpt-4", tensors)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{tmp_path}/model.ckpt-4 cannot be written: ")
    assert line.endswith(
      "; free some space, or pass another folder, and run the same command "
      "again"
    )
    # What is there is whole, and nothing else is left.
    assert checkpoints.latest_valid(str(tmp_path)).prefix.endswith("-3")
    assert len(os.listdir(tmp_path)) == 3

  def test_a_signal_leaves_nothing(self, tmp_path, monkeypatch):
    write = tf.raw_ops.SaveV2

    def write_and_interrupt(**arguments):
      write(**arguments)
      raise KeyboardInterrupt

    monkeypatch.setattr(tf.raw_ops, "SaveV2", write_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
      checkpoints.write_checkpoint(str(tmp_path / "x"), TENSORS)
    assert not os.listdir(tmp_path)


class TestSaveTrainingCheckpoint:
  @pytest.mark.parametrize(
    ("keep_max", "kept"), [(1, [30]), (2, [20, 30]), (0, [5, 9, 20, 30])]
  )
  def test_keeps_the_newest(self, tmp_path, keep_max, kept):
    save(tmp_path, 5, 9, 20, 30, keep_max=keep_max)
    assert steps_in(tmp_path) == kept
    files = {f"model.ckpt-{s}{end}" for s in kept for end in (".index", DATA)}
    assert set(os.listdir(tmp_path)) == {"checkpoint", *files}

  def test_one_that_cannot_be_deleted_stays(
    self, tmp_path, monkeypatch, caplog
  ):
    """As in a folder where the file of another user is protected."""
    save(tmp_path, 5)

    def refuse(path):
      raise tf.errors.PermissionDeniedError(None, None, f"{path}; not yours")

    monkeypatch.setattr(tf.io.gfile, "remove", refuse)
    save(tmp_path, 9, keep_max=1)
    assert steps_in(tmp_path) == [5, 9]
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/model.ckpt-5 cannot be deleted: ")

  @pytest.mark.parametrize(
    ("keep_max", "kept"), [(0, [3, 5, 20]), (2, [5, 20]), (9, [3, 5, 20])]
  )
  def test_a_record_made_anew(self, tmp_path, keep_max, kept):
    # As where a run was killed before it had recorded its last.
    save(tmp_path, 3, 5)
    checkpoints.write_checkpoint(f"{tmp_path}/model.ckpt-20", TENSORS)
    newest = tf.train.latest_checkpoint(str(tmp_path))
    assert newest == f"{tmp_path}/model.ckpt-5"
    checkpoints.record_checkpoints(str(tmp_path), keep_max)
    assert steps_in(tmp_path) == kept
    state = tf.train.get_checkpoint_state(str(tmp_path))
    paths = [f"{tmp_path}/model.ckpt-{step}" for step in kept]
    assert list(state.all_model_checkpoint_paths) == paths
    assert state.model_checkpoint_path == paths[-1]

  def test_a_damaged_one_of_a_later_step_does_not_count(self, tmp_path):
    """A training that continues before it keeps what it saves."""
    save(tmp_path, 100, 900)
    os.truncate(f"{tmp_path}/model.ckpt-900{DATA}", 1)
    save(tmp_path, 200, keep_max=1)
    newest = f"{tmp_path}/model.ckpt-200"
    assert checkpoints.latest_valid(str(tmp_path)).prefix == newest
    assert steps_in(tmp_path) == [200, 900]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert list(state.all_model_checkpoint_paths) == [newest]
    assert state.model_checkpoint_path == newest

  def test_all_are_damaged(self, tmp_path):
    """They may be whole elsewhere, so nothing starts over in their place."""
    assert checkpoints.latest_valid(str(tmp_path)) is None
    save(tmp_path, 100, 200)
    for step in (100, 200):
      os.truncate(f"{tmp_path}/model.ckpt-{step}{DATA}", 1)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match=r"model.ckpt-\* \(2\) are damaged"):
      checkpoints.latest_valid(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == before

  @pytest.mark.parametrize("name", ["run [1]*?", "run \\1", "run [1"])
  def test_a_folder_with_a_pattern_for_a_name(
    self, tmp_path, monkeypatch, name
  ):
    folder, links = tmp_path / name, tmp_path / "links"
    for path in (folder, tmp_path / "run 1", links):
      path.mkdir()
    save(tmp_path / "run 1", 1)
    save(folder, 1, 2, keep_max=1)
    assert steps_in(folder) == [2]
    assert steps_in(tmp_path / "run 1") == [1]
    assert len(os.listdir(folder)) == 3
    monkeypatch.setattr(tempfile, "tempdir", str(links))
    monkeypatch.chdir(tmp_path)
    for path in (str(folder), name):
      newest = checkpoints.latest_valid(path)
      assert newest.prefix == os.path.join(path, "model.ckpt-2")
      assert newest["w"].tolist() == [2, 2, 2]
    del newest
    gc.collect()
    assert os.listdir(links) == []


class TestCompare:
  def compare(self, prefix, wanted, **kwargs):
    return checkpoints.compare(checkpoints.Checkpoint(prefix), wanted, **kwargs)

  def test_heads_are_loaded_where_they_fit(self, prefix):
    for heads, fits in (({}, []), (HEADS, []), ({"output_bias": [2]}, HEADS)):
      loaded, initialized, unused = self.compare(
        prefix, WEIGHTS | heads, optional=list(heads)
      )
      fitting = [name for name in heads if name in fits]
      assert loaded == sorted([*WEIGHTS, *fitting])
      assert initialized == sorted(heads.keys() - fitting)
      assert unused == sorted(TENSORS.keys() - WEIGHTS.keys() - set(fitting))

  def test_variables_below_a_prefix_are_named(self, tmp_path):
    prefix = str(tmp_path / "student.ckpt")
    below = {f"student/{name}": value for name, value in TENSORS.items()}
    checkpoints.write_checkpoint(prefix, below)
    with pytest.raises(UserError, match=r"rename .* without student/; pass a"):
      self.compare(prefix, WEIGHTS)


class TestInitializeFrom:
  def get(self, *names):
    shapes = {**WEIGHTS, **HEADS}
    return [variables.get_variable(n, shapes[n]).numpy() for n in names]

  @pytest.mark.parametrize("of", ["folder", "prefix"])
  def test_weights_come_from_the_checkpoint(self, prefix, of):
    path = prefix if of == "prefix" else os.path.dirname(prefix)
    with variables.VariableStore() as store:
      checkpoints.initialize_from(path, WEIGHTS | HEADS, HEADS)
      bias, head = self.get("bert/pooler/dense/bias", "output_bias")
      assert variables.global_step().numpy() == 0
    assert bias.tolist() == TENSORS["bert/pooler/dense/bias"].tolist()
    assert head.tolist() == [0, 0, 0]
    assert "output_bias" not in store.initial_values

  def test_variables_that_have_started_are_an_error(self, prefix):
    with variables.VariableStore() as store:
      self.get("output_bias")
      with pytest.raises(ValueError, match="too late"):
        checkpoints.initialize_from(prefix, WEIGHTS | HEADS, HEADS)
      assert store.initial_values == {}

  def test_a_v1_graph_is_an_error(self, prefix):
    with tf.Graph().as_default(), variables.VariableStore() as store:
      with pytest.raises(ValueError, match="init_from_checkpoint"):
        checkpoints.initialize_from(prefix, WEIGHTS | HEADS, HEADS)
      assert store.initial_values == {}

  def test_values_to_resume_from_win(self, prefix):
    values = {"output_bias": np.ones(3)}
    with variables.VariableStore(initial_values=values) as store:
      checkpoints.initialize_from(prefix, WEIGHTS | HEADS, HEADS)
      assert store.initial_values is values

  @pytest.mark.parametrize(
    ("heads", "counts"),
    [((), "0 initialized"), (HEADS, "2 initialized (new in this task)")],
  )
  def test_the_log_counts(self, prefix, caplog, heads, counts):
    with variables.VariableStore() as store:
      checkpoints.initialize_from(prefix, WEIGHTS | HEADS, HEADS)
      self.get(*WEIGHTS, *heads)
    with caplog.at_level("INFO", logger="absl"):
      checkpoints.log_initialization(store)
    expected = f"loaded 2 variables; {counts}, 1 in the checkpoint unused"
    assert f"{prefix}: {expected}\n" in caplog.text


class TestOtherFiles:
  def test_a_release(self, tmp_path):
    files = {"vocab.txt": "[PAD]\né\n".encode(), "bert_config.json": "{}\n"}
    checkpoints.write_release(str(tmp_path), {"w": [1.0]}, files)
    assert (tmp_path / "vocab.txt").read_bytes() == files["vocab.txt"]
    assert (tmp_path / "bert_config.json").read_bytes() == b"{}\n"
    found = checkpoints.find_checkpoint(str(tmp_path))
    assert found == str(tmp_path / "bert_model.ckpt")
    assert len(os.listdir(tmp_path)) == 4

  def test_data_without_an_index_goes(self, tmp_path):
    for step in (3, 5):
      checkpoints.write_checkpoint(f"{tmp_path}/model.ckpt-{step}", TENSORS)
    (tmp_path / "model.ckpt-3.index").unlink()
    (tmp_path / "notes.partially").write_text("mine")
    (tmp_path / f"model.ckpt-4.partial{DATA}").write_bytes(b"")
    (tmp_path / "eval_results.txt.partial").write_bytes(b"")
    checkpoints.remove_partial_files(str(tmp_path))
    names = {f"model.ckpt-5{DATA}", "model.ckpt-5.index", "notes.partially"}
    assert set(os.listdir(tmp_path)) == names

  def test_what_another_process_writes_stays(self, tmp_path):
    with files.atomic_write(str(tmp_path / "train.tf_record")) as partial:
      with open(partial, "w") as file:
        file.write("half")
      checkpoints.remove_partial_files(str(tmp_path))
      assert os.listdir(tmp_path) == ["train.tf_record.partial"]
    assert (tmp_path / "train.tf_record").read_text() == "half"

  def test_weights_come_last(self, tmp_path, monkeypatch):
    # What has weights has all that tells how to read them.
    seen = []
    monkeypatch.setattr(
      checkpoints,
      "write_checkpoint",
      lambda prefix, weights: seen.append(sorted(os.listdir(tmp_path))),
    )
    checkpoints.write_release(str(tmp_path), {}, {"b": "", "a": b""})
    assert seen == [["a", "b"]]
