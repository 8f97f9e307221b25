"""Graphs of an index: what they find, when they are made, damage."""

import os
import time

import numpy as np
import pytest
from absl import logging

from bert.search import hnsw, vector_index
from bert.search.vector_index import Header, Row, VectorIndex

WIDTH = 32


@pytest.fixture
def index(tmp_path, monkeypatch):
  """1,100 vectors in blocks of 500."""
  monkeypatch.setattr(vector_index, "BLOCK_BYTES", 500 * 4 * WIDTH)
  vectors = np.random.default_rng(0).normal(size=[1100, WIDTH])
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  rows = [Row(str(i), "text", {}) for i in range(1100)]
  with vector_index.locked(str(tmp_path)):
    header = Header("model", "hash", WIDTH, "float32")
    added = [(rows, vectors.astype(np.float32))]
    vector_index.update(str(tmp_path), header, None, [], added)
  return VectorIndex(str(tmp_path))


def test_finds_what_exact_search_finds(index, caplog):
  logging.set_verbosity(logging.INFO)
  graphs = hnsw.Graphs(index)
  queries = index.vectors(range(0, 1100, 11))
  pairs = zip(graphs.top_k(queries, 10), index.top_k(queries, 10), strict=True)
  found = []
  for query, ((scores, numbers), (_, exact)) in zip(
    queries, pairs, strict=True
  ):
    found.append(np.isin(exact, numbers).mean())
    np.testing.assert_allclose(
      scores, index.vectors(numbers) @ query, atol=1e-6
    )
    assert (np.diff(scores) <= 0).all()
  assert np.mean(found) > 0.97
  assert "recall@10 against exact search is 0.9" in caplog.text.replace(
    "is 1.000", "is 0.9"
  )
  (scores, numbers), *_ = graphs.top_k(queries[:1], 2000)
  assert len(set(numbers.tolist())) == len(numbers) > 1000


def test_a_graph_is_made_once_and_made_anew_if_damaged(index, caplog):
  hnsw.Graphs(index)
  paths = [f"{block.path}.hnsw" for block in index.blocks]
  times = list(map(os.path.getmtime, paths))
  time.sleep(0.01)
  hnsw.Graphs(index)
  assert list(map(os.path.getmtime, paths)) == times
  with open(paths[1], "rb+") as file:
    file.truncate(1000)
  graphs = hnsw.Graphs(index)
  assert f"{paths[1]} is damaged" in caplog.text
  assert [
    os.path.getmtime(p) == t for p, t in zip(paths, times, strict=True)
  ] == [True, False, True]
  assert graphs.top_k(index.vectors([700]), 1)[0][1].tolist() == [700]
