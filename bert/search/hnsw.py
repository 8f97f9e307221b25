"""Approximate search in an index by graphs (Malkov & Yashunin 2020).

    graphs = Graphs(VectorIndex("faq_index"))
    scores, numbers = graphs.top_k(queries, 10)[0]

Each block of the index has a graph, built once, in a file beside it.
"""

import logging as python_logging

import numpy as np
from absl import logging

from bert.data import files
from bert.data.top_k import Best, Hits
from bert.errors import import_optional, plural
from bert.search.vector_index import Block, VectorIndex

# Neighbors of a vector in the graph; candidates in building, and in a search.
_NEIGHBORS, _BUILD_CANDIDATES, _LEAST_CANDIDATES = 32, 128, 128

# Queries and hits to measure the recall of new graphs.
_SAMPLE, _SAMPLE_HITS = 100, 10


class Graphs:
  """The graphs of an index."""

  def __init__(self, index: VectorIndex):
    # faiss logs which instructions the processor lacks.
    python_logging.getLogger("faiss.loader").setLevel(python_logging.WARNING)
    self._faiss = import_optional(
      "faiss", "--ann=hnsw", "requirements-search.txt"
    )
    self._index = index
    paths = [f"{block.path}.hnsw" for block in index.blocks]
    self._graphs = list(map(self._load, paths, index.blocks))
    missing = [n for n, graph in enumerate(self._graphs) if graph is None]
    for number in missing:
      self._graphs[number] = self._build(paths[number], index.blocks[number])
    if missing:
      self._log_recall()

  def top_k(self, queries: np.ndarray, k: int) -> list[Hits]:
    """Like `VectorIndex.top_k`, but may miss some rows. Scores are exact."""
    best = Best(len(queries), k)
    parameters = self._faiss.SearchParametersHNSW(
      efSearch=max(_LEAST_CANDIDATES, 2 * k)
    )
    for (first, block), graph in zip(
      self._index.numbered_blocks(), self._graphs, strict=True
    ):
      _, nearest = graph.search(queries, min(k, len(block)), params=parameters)
      for query, numbers in enumerate(nearest):
        # A graph that is not connected may give fewer than k.
        numbers = first + np.sort(numbers[numbers >= 0])
        scores = self._index.vectors(numbers) @ queries[query]
        best.add_rows(query, numbers, scores)
    return best.hits

  def _load(self, path, block):
    if not files.exists(path):
      return None
    try:
      graph = self._faiss.read_index(path)
    except RuntimeError as error:
      logging.warning("%s is damaged (%s); building it again", path, error)
      return None
    return graph if graph.ntotal == len(block) else None

  def _build(self, path, block: Block):
    logging.info("Building a graph of %s: %s", plural(len(block), "row"), path)
    width = block.vectors.shape[1]
    graph = self._faiss.IndexHNSWSQ(
      width,
      self._faiss.ScalarQuantizer.QT_fp16,
      _NEIGHBORS,
      self._faiss.METRIC_INNER_PRODUCT,
    )
    graph.hnsw.efConstruction = _BUILD_CANDIDATES
    vectors = block.vectors.astype(np.float32)
    graph.train(vectors)
    graph.add(vectors)
    with files.atomic_write(path) as partial:
      self._faiss.write_index(graph, partial)
    return graph

  def _log_recall(self):
    """Logs the share of the exact results that the graphs find."""
    count = min(_SAMPLE, len(self._index))
    draw = np.random.default_rng(0)
    numbers = draw.choice(len(self._index), count, replace=False)
    queries = self._index.vectors(numbers)
    near = self.top_k(queries, _SAMPLE_HITS)
    exact = self._index.top_k(queries, _SAMPLE_HITS)
    is_found = [np.isin(e[1], n[1]) for e, n in zip(exact, near, strict=True)]
    recall = np.concatenate(is_found).mean()
    logging.info(
      "--ann=hnsw: recall@%d against exact search is %.3f (vectors of %s)",
      _SAMPLE_HITS,
      recall,
      plural(count, "row"),
    )
