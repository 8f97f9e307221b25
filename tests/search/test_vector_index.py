"""Folders of vectors: search by arithmetic, updates, kills, damage."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scripts

from bert.data import files
from bert.errors import UserError
from bert.search import vector_index
from bert.search.vector_index import Header, Row, VectorIndex

WIDTH = 16


def unit_vectors(count, seed=0):
  vectors = np.random.default_rng(seed).normal(size=[count, WIDTH])
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors.astype(np.float32)


def rows_of(names):
  return [Row(name, f"text\n{name}", {"n": [name]}) for name in names]


def change(folder, removed, names, vectors, dtype="float32"):
  """Removes rows by number and adds others; returns the index."""
  with vector_index.locked(str(folder)):
    path = folder / vector_index.NAME
    index = VectorIndex(str(folder)) if path.exists() else None
    header = Header("model", "hash", WIDTH, dtype)
    added = [(rows_of(names), vectors)] if names else []
    vector_index.update(str(folder), header, index, removed, added)
  return VectorIndex(str(folder))


def contents(index):
  """The vector of each row by its id, in order."""
  numbers = list(range(len(index)))
  ids = [row.id for row in index.rows(numbers)]
  return dict(zip(ids, index.vectors(numbers).tolist(), strict=True))


def block_names(index):
  return {os.path.basename(block.path) for block in index.blocks}


def files_in(folder):
  return {name.split(".")[0] for name in os.listdir(folder)}


@pytest.fixture
def small_blocks(monkeypatch):
  """Blocks of 8 rows of float32."""
  monkeypatch.setattr(vector_index, "BLOCK_BYTES", 8 * 4 * WIDTH)


class TestSearch:
  @pytest.mark.parametrize("dtype", vector_index.DTYPES)
  def test_scores_and_order_are_those_of_numpy(self, tmp_path, dtype):
    vectors = unit_vectors(2500)
    vectors[7] = vectors[2400]  # Equal scores.
    vectors[9] = 0
    vectors[10, :8] = [1e-7, -1e-7, 6e-5, -6e-5, 0.5, -0.5, -1, 1]
    index = change(
      tmp_path / "i", [], [str(i) for i in range(2500)], vectors, dtype
    )
    queries = np.concatenate([unit_vectors(40, seed=1), vectors[7:8]])
    stored = vectors.astype(dtype).astype(np.float32)
    expected = queries @ stored.T
    for scores, (found, numbers) in zip(
      expected, index.top_k(queries, 30), strict=True
    ):
      order = np.argsort(-scores, kind="stable")[:30]
      np.testing.assert_array_equal(numbers, order)
      np.testing.assert_allclose(found, scores[order], atol=1e-6)

  def test_over_blocks(self, tmp_path, small_blocks):
    vectors = unit_vectors(50)
    index = change(tmp_path, [], [str(i) for i in range(50)], vectors)
    assert [len(block) for block in index.blocks] == [8] * 6 + [2]
    (scores, numbers), _ = index.top_k(vectors[[17, 3]], 60)
    assert scores[0] == pytest.approx(1)
    assert numbers[0] == 17
    assert sorted(numbers.tolist()) == list(range(50))
    found = index.rows([49, 0, 17, 8])
    assert found == rows_of(["49", "0", "17", "8"])
    np.testing.assert_array_equal(index.vectors([49, 0]), vectors[[49, 0]])
    assert index.numbers() == {str(i): i for i in range(50)}


class TestUpdates:
  def test_add_and_remove(self, tmp_path, small_blocks):
    vectors = dict(zip(map(str, range(30)), unit_vectors(30), strict=True))
    values = np.stack(list(vectors.values()))
    index = change(tmp_path, [], list(vectors)[:20], values[:20])
    kept = {b.path: os.stat(f"{b.path}.npy").st_ino for b in index.blocks}
    old = block_names(index)
    index = change(tmp_path, [1, 2], list(vectors)[20:], values[20:])
    expected = {
      k: v.tolist() for k, v in vectors.items() if k not in ("1", "2")
    }
    assert contents(index) == expected
    # The second block was full and has kept all of its rows.
    same = {b.path: os.stat(f"{b.path}.npy").st_ino for b in index.blocks}
    assert len(kept.items() & same.items()) == 1
    # The next update deletes the replaced blocks.
    names = block_names(index)
    assert files_in(tmp_path) == {"index", *old, *names}
    index = change(tmp_path, [], [], None)
    assert files_in(tmp_path) == {"index", *names, *block_names(index)}

  def test_remove_all(self, tmp_path):
    change(tmp_path, [], ["a", "b"], unit_vectors(2))
    index = change(tmp_path, [0, 1], [], None)
    assert len(index) == 0
    ((scores, numbers),) = index.top_k(unit_vectors(1), 3)
    assert len(scores) == len(numbers) == 0
    index = change(tmp_path, [], ["c"], unit_vectors(1))
    assert index.rows([0]) == rows_of("c")

  def test_readers_keep_what_they_opened(self, tmp_path):
    before = change(tmp_path, [], ["a", "b"], unit_vectors(2))
    change(tmp_path, [0], [], None)
    assert before.rows([0, 1]) == rows_of("ab")

  def test_a_reader_opens_what_an_update_replaces(self, tmp_path, monkeypatch):
    """The old index: it has read index.json, but no block."""
    change(tmp_path, [], ["a", "b"], unit_vectors(2))
    read_json = files.read_json

    def read_and_update(*args):
      content = read_json(*args)
      monkeypatch.setattr(files, "read_json", read_json)
      change(tmp_path, [0], [], None)
      return content

    monkeypatch.setattr(files, "read_json", read_and_update)
    before = VectorIndex(str(tmp_path))
    assert before.rows([0, 1]) == rows_of("ab")
    assert VectorIndex(str(tmp_path)).rows([0]) == rows_of("b")

  def test_killed_at_any_write(self, tmp_path, small_blocks, monkeypatch):
    """It is whole or as before, whichever file was being written."""

    class Killed(BaseException):
      pass

    rename, left = files.rename, None

    def rename_until_killed(source, target):
      nonlocal left
      if left == 0:
        raise Killed
      left -= 1
      rename(source, target)

    monkeypatch.setattr(files, "rename", rename_until_killed)
    vectors = unit_vectors(30)
    for kill_at in range(100):
      folder = tmp_path / str(kill_at)
      left = 100
      before = contents(change(folder, [], list("abcdefghijkl"), vectors[:12]))
      left = kill_at
      try:
        after = change(folder, [3], list("ABCDEFGHI"), vectors[12:21])
        break
      except Killed:
        assert contents(VectorIndex(str(folder))) == before
      left = 100
      again = change(folder, [3], list("ABCDEFGHI"), vectors[12:21])
      assert list(contents(again)) == list("abcefghijklABCDEFGHI")
      last = change(folder, [], [], None)
      names = {"index", *block_names(again), *block_names(last)}
      assert files_in(folder) == names
    assert kill_at > 8
    assert contents(after) == contents(again)

  def test_two_at_once(self, tmp_path):
    folder = str(tmp_path / "i")
    code = f"from bert.search import vector_index as v; v.locked({folder!r})"
    code += ".__enter__()"
    command = [sys.executable, "-c", code]
    with vector_index.locked(folder):
      other = subprocess.run(
        command, cwd=scripts.ROOT, capture_output=True, text=True
      )
    assert f"{folder} is in use by process {os.getpid()}" in other.stderr
    assert not os.path.exists(folder)


def replace(path, old, new):
  path.write_bytes(path.read_bytes().replace(old, new, 1))


def cut(path):
  path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
  ("name", "harm", "message"),
  [
    ("index.json", pathlib.Path.unlink, "holds no index; write one with --inp"),
    ("index.json", lambda path: path.write_text("{}"), "is damaged"),
    ("000001.npy", lambda path: path.write_bytes(b"no"), "is damaged"),
    ("000001.npy", lambda path: replace(path, b"{'", b"{ "), "npy is damaged"),
    ("000001.npy", lambda path: replace(path, b"(", b"["), "npy is damaged"),
    ("000001.npy", pathlib.Path.unlink, "npy is damaged"),
    ("000001.offsets.npy", cut, "is damaged"),
    ("000001.jsonl", cut, "is damaged"),
  ],
)
def test_damage(tmp_path, name, harm, message):
  change(tmp_path, [], ["a", "b"], unit_vectors(2))
  harm(tmp_path / name)
  with pytest.raises(UserError, match=message) as problem:
    VectorIndex(str(tmp_path))
  assert str(problem.value).count("UserError") == 0


@pytest.mark.parametrize("fortran", [False, True])
def test_damaged_vectors_are_named_before_they_are_used(tmp_path, fortran):
  """By search, by rows' vectors, and by an update; texts can be read."""
  change(tmp_path, [], ["a", "b"], unit_vectors(2))
  path = tmp_path / "000001.npy"
  if fortran:
    replace(path, b"'fortran_order': False", b"'fortran_order': True ")
  else:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
  index = VectorIndex(str(tmp_path))
  assert index.rows([1]) == rows_of("b")
  for use in (
    lambda: index.top_k(unit_vectors(1), 1),
    lambda: index.vectors([0]),
    lambda: change(tmp_path, [0], [], None),
  ):
    with pytest.raises(UserError, match=f"{path} is damaged .*checksum"):
      use()
