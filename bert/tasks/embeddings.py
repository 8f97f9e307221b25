"""Training of vectors of texts, so that close meanings have close vectors.

Sentence-BERT (Reimers & Gurevych 2019). The result is a model of `features`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert import metrics
import tokenization
from bert.errors import plural
from bert.data import files, records, sequences
from bert.reports import embeddings as page
from bert.tasks import embedding_losses, retrieval
from bert.tasks.features import (
  DOCUMENT_PROMPTS,
  QUERY_PROMPTS,
  VectorSettings,
  VectorTask,
)
from bert.tasks.embedding_losses import Training
from bert.tasks.retrieval import Retrieval
from bert.tasks.text_pairs import Pair
from bert.training import ops
from bert.training.task import Evaluation, Outputs, RowSet

# Names of the rows' features: the ids of the texts [T], and the score.
_TEXT_IDS, _SCORE = "text_ids", "score"

TEXT = "text"  # The axis of the texts of a row.


@dataclasses.dataclass
class Ranked(Evaluation):
  """The Evaluation of vectors, with queries and scored pairs for the report."""

  found: Sequence[page.Query] = ()
  scored: Sequence[page.Scored] = ()


class EmbeddingTask(VectorTask):
  """Trains and evaluates vectors.

  Args:
    settings: VectorSettings, with a pooling. Its prompts of the names
      QUERY_PROMPTS and DOCUMENT_PROMPTS are put before the texts.
    tokenizer, paths: see Task.
    pairs: dict from split to its Pairs.
    searched: a Retrieval to evaluate on, instead of that of the Pairs.
    training: a Training.
  """

  name = "embeddings"
  spans_batch = True
  has_eval_loss = False
  finds_duplicates = True
  style = page.STYLE
  section = staticmethod(page.section)

  def __init__(
    self,
    settings: VectorSettings,
    tokenizer: tokenization.FullTokenizer | None = None,
    pairs: Mapping[str, Sequence[Pair]] | None = None,
    searched: Retrieval | None = None,
    training: Training | None = None,
    paths: Mapping[str, str] | None = None,
  ):
    super().__init__(settings, tokenizer)
    self.paths = paths or {}
    self._training = training or Training()
    prompts = [
      settings.prompt_text(settings.prompt_of(*names))
      for names in (QUERY_PROMPTS, DOCUMENT_PROMPTS)
    ]
    self._pairs = {
      split: [pair.after(*prompts) for pair in of_split]
      for split, of_split in (pairs or {}).items()
    }
    if self._training.loss == "ranking":
      train = self._pairs.get("train", ())
      self._pairs["train"] = [pair for pair in train if pair.score != 0]
    dev = self._pairs.get("dev", ())
    self._is_scored = not {pair.score for pair in dev} <= {None, 0.0, 1.0}
    self._retrieval = searched and searched.after(*prompts)
    if dev and not self._is_scored:
      self._retrieval = retrieval.of_pairs(dev)
    self.metrics = ("spearman",) if self._is_scored else retrieval.METRICS
    self._num_texts = 2 + max(
      (len(pair.negatives) for pair in self._pairs.get("train", ())), default=0
    )
    self._ids = {}  # Of the texts in training.

  # Data.

  def examples(self, split: str) -> dict[str, Sequence]:
    """The Pairs to train on; for other splits their different texts."""
    pairs = self._pairs.get(split, ())
    if split == "train":
      return {"": pairs}
    texts = [text for pair in pairs for text in (pair.text_a, pair.text_b)]
    if split == "dev" and self._retrieval:
      texts += [*self._retrieval.queries, *self._retrieval.corpus]
    return {"": list(dict.fromkeys(texts))}

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs the number of pairs, and warns of those that are in both sets."""
    train, dev = (self._pairs.get(split, ()) for split in ("train", "dev"))
    if train:
      negatives = sum(len(pair.negatives) for pair in train)
      counts = plural(len(train), "pair"), plural(negatives, "hard negative")
      logging.info("Training on %s with %s", *counts)
    seen = {(pair.text_a, pair.text_b) for pair in train}
    both = [pair for pair in dev if (pair.text_a, pair.text_b) in seen]
    if both:
      logging.warning(
        "%d of the %s are also in the training set, starting with %s; the "
        "metrics are too optimistic",
        len(both),
        plural(len(dev), "development pair"),
        both[0].where,
      )

  def rows(self, example: Pair | str, is_training: bool) -> list[dict]:
    """The row of a pair, with the sequences [T, S]; or that of a text, [S]."""
    if not is_training:
      return [self.text_row(example)]
    texts = (example.text_a, example.text_b, *example.negatives)
    length = self.settings.max_seq_length
    row = {name: [] for name in records.SEQUENCES}
    for text in texts:
      for name, values in self.text_row(text).items():
        row[name].append(sequences.padded(values, length))
    for values in row.values():
      values += [[0] * length] * (self._num_texts - len(texts))
    ids = [self._ids.setdefault(text, len(self._ids) + 1) for text in texts]
    row[_TEXT_IDS] = sequences.padded(ids, self._num_texts)
    row[_SCORE] = 1.0 if example.score is None else example.score
    return [row]

  def feature_spec(self, is_training: bool) -> records.Spec:
    if not is_training:
      return super().feature_spec(is_training)
    count, length = self._num_texts, self.settings.max_seq_length
    axes = (TEXT, records.POSITION)
    sequence = records.Feature((count, length), cut_axes=axes)
    return {
      **dict.fromkeys(records.SEQUENCES, sequence),
      _TEXT_IDS: records.Feature((count,), cut_axes=(TEXT,)),
      _SCORE: records.Feature((), "float32"),
    }

  # Training.

  def encode(self, ops, bert, features: Mapping) -> tf.Tensor:
    return self.head(ops, bert, features)["vectors"]

  def batch_loss(self, vectors: tf.Tensor, features: Mapping) -> tf.Tensor:
    """The mean of the loss over `dimensions`."""
    sizes = self._training.dimensions or (vectors.shape[-1],)
    losses = [
      embedding_losses.compute(
        self._training,
        ops.TensorOps().unit_length(vectors[..., :size]),
        features[_TEXT_IDS],
        features[_SCORE],
      )
      for size in sizes
    ]
    return tf.add_n(losses) / len(losses)

  # Evaluation and prediction.

  def outputs(self, bert, features: Mapping, mode: str) -> Outputs:
    """The vectors of all sequences, which a row of training has several of."""
    mask = features["input_mask"]
    rows = {"input_mask": tf.reshape(mask, [-1, tf.shape(mask)[-1]])}
    return Outputs(predictions=self.head(ops.TensorOps(), bert, rows))

  def answer(self, example: str, predictions: Sequence[Mapping]) -> np.ndarray:
    """The vector of a text."""
    (row,) = predictions
    return row["vectors"]

  def score(self, rows: RowSet, answers: Iterable[np.ndarray]) -> Ranked:
    """The metrics of whole vectors, and of those cut to each dimension."""
    vectors = dict(zip(rows.examples, answers, strict=True))
    whole = self._score(vectors, None)
    for size in self._training.dimensions:
      cut = self._score(vectors, size)
      whole.results |= {f"{n}_dim_{size}": x for n, x in cut.results.items()}
    return whole

  def _score(self, vectors, size):
    """The Ranked of vectors, cut to a size."""
    results, found, scored = {}, [], []
    if self._is_scored:
      pairs = self._pairs["dev"]
      cosines = _cosines(vectors, pairs, size)
      results = {
        "spearman": metrics.spearman([p.score for p in pairs], cosines)
      }
      scored = list(map(page.Scored, pairs, cosines.tolist()))
    if self._retrieval:
      queries, corpus = (
        _unit_vectors(vectors, texts, size)
        for texts in (self._retrieval.queries, self._retrieval.corpus)
      )
      hits = retrieval.top_k(queries, corpus, max(retrieval.RECALLS))
      found = [
        page.Query(text, self._retrieval.corpus, relevant, *hits_of_query)
        for text, relevant, hits_of_query in zip(
          self._retrieval.queries, self._retrieval.relevant, hits, strict=True
        )
      ]
      results |= retrieval.metrics_of(found)
    results = {f"eval_{name}": value for name, value in results.items()}
    return Ranked(results, found=found, scored=scored)

  def write(
    self, folder: str, rows: RowSet, answers: Iterable[np.ndarray]
  ) -> None:
    """Writes the cosine of each pair of the test set, a line of JSON each."""
    vectors = dict(zip(rows.examples, answers, strict=True))
    pairs = self._pairs["test"]
    path = os.path.join(folder, "test_predictions.jsonl")
    with files.open_atomic(path, "w") as writer:
      for pair, cosine in zip(pairs, _cosines(vectors, pairs), strict=True):
        fields = {"text_a": pair.text_a, "text_b": pair.text_b}
        fields["similarity"] = round(float(cosine), 6)
        writer.write(json.dumps(fields, ensure_ascii=False) + "\n")
    logging.info("%s: %s", path, plural(len(pairs), "line"))


def _unit_vectors(vectors, texts, size=None):
  """The vectors of texts [N, D], cut to a size and scaled to length 1."""
  found = np.stack([vectors[text][:size] for text in texts])
  norms = np.linalg.norm(found, axis=1, keepdims=True)
  return found / np.maximum(norms, ops.SMALLEST_NORM)


def _cosines(vectors, pairs, size=None):
  """The cosine of the texts of each pair, [N]."""
  columns = zip(*((pair.text_a, pair.text_b) for pair in pairs), strict=True)
  first, second = (_unit_vectors(vectors, texts, size) for texts in columns)
  return np.sum(first * second, axis=1)
