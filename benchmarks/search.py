"""Search among vectors on one core: seconds of a query, and of a thousand.

    python benchmarks/search.py [ROWS WIDTH ROUNDS HNSW]

Writes an index of ROWS (1,000,000) vectors of width WIDTH (384) in float16, and
one in float32, and searches them ROUNDS (5) times, with all pages in memory.
The vectors are random, around 1,000 centers; queries are noisy copies of rows.
If HNSW is 1, it also makes graphs, on all cores, and prints their recall and
time.
"""

import os
import sys
import tempfile

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import machine
import numpy as np

from bert.search import hnsw, vector_index
from bert.search.vector_index import Header, Row, VectorIndex

TOP_K = 10
PART = 10_000


def unit(vectors):
  """The vectors scaled to length 1."""
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_vectors(count, width, seed):
  """Vectors of length 1 around the centers."""
  centers = np.random.default_rng(0).standard_normal([1000, width], np.float32)
  rng = np.random.default_rng(seed)
  noise = rng.standard_normal([count, width], np.float32)
  return unit(centers[rng.integers(0, len(centers), count)] + noise)


def write_index(folder, rows, width, dtype):
  """Writes an index, whose texts are numbers."""

  def added():
    for start in range(0, rows, PART):
      count = min(PART, rows - start)
      texts = [Row(str(n), str(n), {}) for n in range(start, start + count)]
      yield texts, make_vectors(count, width, start + 1)

  with vector_index.locked(folder):
    header = Header("random", "", width, dtype)
    vector_index.update(folder, header, None, [], added())
  return VectorIndex(folder)


def measure(index, rounds, use_graphs):
  """Prints the seconds of one query, and of a thousand together."""
  rows = index.vectors(np.linspace(0, len(index) - 1, 1000, dtype=np.int64))
  rng = np.random.default_rng(1)
  noise = rng.standard_normal(rows.shape, np.float32) / rows.shape[1] ** 0.5
  queries = unit(rows + 0.3 * noise)
  sides = {
    f"{index.header.dtype}, {name}": lambda asked=asked: machine.timed(
      lambda: index.top_k(asked, TOP_K)
    )
    for name, asked in (("1 query", queries[:1]), ("1,000 queries", queries))
  }
  cores = os.sched_getaffinity(0)
  os.sched_setaffinity(0, {min(cores)})
  machine.in_turns(sides, rounds, warmups=1)
  os.sched_setaffinity(0, cores)
  if not use_graphs:
    return
  graphs = []
  seconds = machine.timed(lambda: graphs.append(hnsw.Graphs(index)))
  found = []
  per_query = machine.median_seconds(
    lambda: found.append(graphs[0].top_k(queries[:1], TOP_K)), rounds, 1
  )
  pairs = zip(
    graphs[0].top_k(queries, TOP_K), index.top_k(queries, TOP_K), strict=True
  )
  recall = np.mean([np.isin(b[1], a[1]).mean() for a, b in pairs])
  print(
    f"hnsw: made in {seconds:.0f} s; 1 query {per_query * 1000:.2f} ms; "
    f"recall@{TOP_K} {recall:.3f}",
    flush=True,
  )


def main(rows=1_000_000, width=384, rounds=5, use_graphs=0):
  print(machine.describe(), flush=True)
  for dtype in vector_index.DTYPES[::-1]:
    with tempfile.TemporaryDirectory() as folder:
      index = write_index(folder, rows, width, dtype)
      measure(index, rounds, use_graphs and dtype == "float16")


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
