"""Training of vectors of texts, so that close meanings have close vectors.

Sentence-BERT (Reimers & Gurevych 2019). `bert.load` loads the trained model as
the kind "vectors".
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert import metrics
from bert.contract import ops
from bert.contract.distillation import IS_LABELED, PREFIX
from bert.contract.task import RowSet
from bert.data import files, records, sequences
from bert.errors import plural
from bert.flags.flag_table import wanted_splits
from bert.flags.values import Flags
from bert.models import task_file
from bert.models.resolve import Model
from bert.tasks.embeddings import (
  data,
  losses as embedding_losses,
  page,
  retrieval,
)
from bert.tasks.embeddings.data import Pair
from bert.tasks.embeddings.losses import Training
from bert.tasks.embeddings.retrieval import Ranked, Retrieval
from bert.tasks.embeddings.vectors import (
  DOCUMENT_PROMPTS,
  QUERY_PROMPTS,
  VectorSettings,
  VectorTask,
  comparable,
)

if TYPE_CHECKING:
  from bert.engine.loaded_model import LoadedModel

# Names of the rows' features: the ids of the texts [T], and the score.
_TEXT_IDS, _SCORE = "text_ids", "score"

_UNIT_VECTORS = "unit_vectors"  # key of the cached vectors among the outputs

TEXT = "text"  # The axis of the texts of a row.


class EmbeddingTask(VectorTask):
  """Trains and evaluates vectors.

  Args:
    settings: with a pooling. The prompts named in QUERY_PROMPTS and
      DOCUMENT_PROMPTS are prepended to the texts.
    pairs: the Pairs of each split.
    searched: the Retrieval to evaluate on, instead of the Pairs.
  """

  name = "embeddings"
  spans_batch = True
  has_eval_loss = False
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
    super().__init__(settings, tokenizer, paths)
    self.inputs = self.inputs[:2]  # The column determines the prompt.
    self.training = training or Training()
    self._prompts = [
      settings.prompt_text(settings.prompt_of(*names))
      for names in (QUERY_PROMPTS, DOCUMENT_PROMPTS)
    ]
    self._pairs = dict(pairs or {})
    train = self._pairs["train"] = list(self._pairs.get("train", ()))
    if self.training.loss == "ranking":
      train[:] = [pair for pair in train if pair.score != 0]
    dev = self._pairs.get("dev", ())
    scores = {pair.score for pair in dev}
    self._retrieval = searched
    if dev and scores <= {None, 0.0, 1.0}:
      self._retrieval = retrieval.of_pairs(dev)
    self._is_scored = len(scores) > 1 or bool(dev and not self._retrieval)
    self.metrics = retrieval.METRICS if self._retrieval or not dev else ()
    if self._is_scored:
      self.metrics += ("spearman",)
    counts = (len(pair.negatives) for pair in train)
    self._num_texts = 2 + max(counts, default=0)
    self._ids = {}  # text -> id, in training
    self._teacher_size = None

  @classmethod
  def from_flags(cls, flags: Flags, model: Model) -> EmbeddingTask:
    names = (field.name for field in dataclasses.fields(data.Columns))
    columns = data.Columns(**{name: flags[name] for name in names})
    splits = wanted_splits(flags)
    paths = {split: flags[f"{split}_file"] for split in splits}
    paths = {split: path for split, path in paths.items() if path}
    pairs = {
      split: data.read_pairs(path, columns, split)
      for split, path in paths.items()
    }
    training = Training(
      flags.loss or ("cosent" if flags.score_column else "ranking"),
      flags.scale,
      flags.both_directions,
      tuple(map(int, flags.dimensions)),
      flags.train_batch_size,
    )
    for split, part in pairs.items():
      if split == "dev" or training.loss == "ranking":  # Others read 0, too.
        data.check_has_right(part, paths[split])
    searched = None
    if "dev" in splits and "dev" not in pairs:
      searched = retrieval.read(*(flags[name] for name in retrieval.FILES))
      paths["dev"] = flags.qrels_file
    settings = _settings_of_run(flags, model)
    task = cls(settings, model.tokenizer, pairs, searched, training, paths)
    if "train" in pairs:
      (size,) = task.vector_shape(model.config)
      embedding_losses.check(training, pairs["train"], size)
    return task

  # Data.

  def examples(self, split: str) -> dict[str, Sequence]:
    """The Pairs to train on; for other splits, the distinct texts."""
    pairs = self._pairs.get(split, ())
    if split == "train":
      return {"": pairs}
    columns = [pair.text_a for pair in pairs], [pair.text_b for pair in pairs]
    if split == "dev" and self._retrieval:
      columns[0].extend(self._retrieval.queries)
      columns[1].extend(self._retrieval.corpus)
    prompts = zip(self._prompts, columns, strict=True)
    texts = (prompt + text for prompt, column in prompts for text in column)
    return {"": list(dict.fromkeys(texts))}

  def texts(self, rows: RowSet) -> Iterator[tuple[str, Sequence[str]]]:
    for pair in self._pairs.get(rows.split, ()):
      yield pair.where, (pair.text_a, pair.text_b)

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs the number of pairs, and a warning if they teach nothing."""
    if train := self._pairs["train"]:
      negatives = sum(len(pair.negatives) for pair in train)
      counts = plural(len(train), "pair"), plural(negatives, "hard negative")
      logging.info("Training on %s with %s", *counts)
      problem = embedding_losses.why_nothing_is_learnt(self.training, train)
      if problem and not self.distillation:
        logging.warning("Nothing can be learnt: %s", problem)

  def rows(self, example: Pair | str, is_training: bool) -> list[dict]:
    """The row of a pair, with sequences [T, S]; or of a text, with [S]."""
    if isinstance(example, str):
      return [self.text_row(example)]
    query, document = self._prompts
    others = [example.text_b, *example.negatives] if example.text_b else []
    texts = [query + example.text_a, *(document + text for text in others)]
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

  def example(self, text: str, text_b: str = "") -> Pair:
    """The pair of a line without a label; its second text may be empty."""
    return Pair("", text, text_b)

  def prepare(self, model: Model) -> None:
    (self._teacher_size,) = self.vector_shape(model.config)

  def reading_with(self, other: EmbeddingTask) -> EmbeddingTask:
    """A copy of this task with the tokenizer and prompts of another model."""
    reader = super().reading_with(other)
    fields = {n: getattr(other.settings, n) for n in ("prompts", "prompt")}
    reader.settings = dataclasses.replace(self.settings, **fields)
    reader._prompts, reader._ids = other._prompts, {}
    return reader

  def soft_targets(self) -> dict[str, Sequence[str | int | None]]:
    return {"vectors": (TEXT, self._teacher_size)}

  def soft_loss(
    self, outputs: dict, features: Mapping, temperature: float
  ) -> tf.Tensor:
    """The divergence in comparing the texts by unit vectors, float [B]."""
    targets = ops.TensorOps().unit_length(features[PREFIX + "vectors"])
    ids, scale = features[_TEXT_IDS], self.training.scale
    losses = [
      embedding_losses.similarity_divergence(
        vectors, targets, ids, scale, temperature
      )
      for vectors in self._unit_vectors(outputs)
    ]
    return tf.add_n(losses) / len(losses)

  def head(self, ops, bert, features: Mapping) -> dict:
    """The vectors of all texts; a training row has several texts."""
    texts = {
      name: modeling.reshape_to_matrix(features[name])
      for name in records.SEQUENCES
    }
    return super().head(ops, bert, texts)

  def loss(self, outputs: dict, features: Mapping) -> tf.Tensor:
    """The mean over the sizes of the loss of the whole batch, a scalar."""
    fields = [features.get(n) for n in (_TEXT_IDS, _SCORE, IS_LABELED)]
    losses = [
      embedding_losses.compute(self.training, vectors, *fields)
      for vectors in self._unit_vectors(outputs)
    ]
    return tf.add_n(losses) / len(losses)

  def _unit_vectors(self, outputs):
    """The vectors cut to each of the sizes, scaled to length 1."""
    if _UNIT_VECTORS not in outputs:  # Both losses share them.
      vectors, unit_length = outputs["vectors"], ops.TensorOps().unit_length
      sizes = self.training.dimensions or (vectors.shape[-1],)
      outputs[_UNIT_VECTORS] = [unit_length(vectors[..., :n]) for n in sizes]
    return outputs[_UNIT_VECTORS]

  # Evaluation and prediction.

  def answer(self, example: str, predictions: Sequence[Mapping]) -> np.ndarray:
    return predictions[0]["vectors"]

  def answers_of(
    self, model: LoadedModel, examples: Sequence[str]
  ) -> list[np.ndarray]:
    texts = list(map(model.task.example, examples))
    return [answer.vector for answer in model.answer_examples(texts)]

  def public(self, answer: np.ndarray) -> dict:
    return {"vector": answer}

  def score(self, rows: RowSet, answers: Iterable[np.ndarray]) -> Ranked:
    vectors = dict(zip(rows.examples, answers, strict=True))
    whole = self._score(vectors, None)
    for size in self.training.dimensions:
      cut = self._score(vectors, size)
      whole.results |= {f"{n}_dim_{size}": x for n, x in cut.results.items()}
    return whole

  def _score(self, vectors, size):
    results, hits, scored = {}, [], []
    if self._is_scored:
      pairs = self._pairs["dev"]
      cosines = self._cosines(vectors, pairs, size)
      scores = [pair.score for pair in pairs]
      results["spearman"] = metrics.spearman(scores, cosines)
      scored = list(map(page.Scored, pairs, cosines.tolist()))
    if self._retrieval:
      searched = self._retrieval
      columns = searched.queries, searched.corpus
      sides = self._comparable(vectors, columns, size)
      hits = retrieval.find(searched, *sides)
      results = retrieval.metrics_of(hits) | results
    results = {f"eval_{name}": value for name, value in results.items()}
    counts = {"queries": len(hits)} if hits else {"pairs": len(scored)}
    return Ranked(results, counts=counts, found=hits, scored=scored)

  def _comparable(self, vectors, columns, size=None):
    """Yields comparable vectors of queries and of documents, cut to a size."""
    for prompt, texts in zip(self._prompts, columns, strict=True):
      part = np.stack([vectors[prompt + text][:size] for text in texts])
      yield comparable(part, self.settings)

  def _cosines(self, vectors, pairs, size=None):
    """The similarity of the texts of each pair, [N]."""
    columns = zip(*((pair.text_a, pair.text_b) for pair in pairs), strict=True)
    first, second = self._comparable(vectors, columns, size)
    return np.sum(first * second, axis=1)

  def write(
    self, folder: str, rows: RowSet, answers: Iterable[np.ndarray]
  ) -> None:
    """Writes the cosine of each pair of the test set, a line of JSON each."""
    vectors = dict(zip(rows.examples, answers, strict=True))
    pairs = self._pairs["test"]
    path = os.path.join(folder, "test_predictions.jsonl")
    with files.open_atomic(path, "w") as writer:
      cosines = self._cosines(vectors, pairs)
      for pair, cosine in zip(pairs, cosines, strict=True):
        texts = {"text_a": pair.text_a, "text_b": pair.text_b}
        similarity = round(float(cosine), 6)
        fields = {"id": pair.id, **texts, "similarity": similarity}
        writer.write(json.dumps(fields, ensure_ascii=False) + "\n")
    logging.info("%s: %s", path, plural(len(pairs), "line"))


def _settings_of_run(flags, model):
  """The settings of the flags, or else of the model."""
  trained = model.settings(VectorTask, is_required=False)
  folder = model.folder
  if not folder or task_file.read(folder)[0] != VectorTask.kind:
    trained = dataclasses.replace(trained, pooling="mean", normalize=True)
  if flags.do_train and trained.similarity != "cosine":
    logging.warning("Training compares cosines, unlike %s", folder)
    trained = dataclasses.replace(trained, similarity="cosine")
  prompts = dict(trained.prompts)
  for name in ("query", "document"):
    if f"{name}_prompt" in flags.given:
      prompts[name] = flags[f"{name}_prompt"]
  return dataclasses.replace(
    trained,
    prompts=tuple(prompts.items()),
    **flags.given_of(("max_seq_length", "pooling", "normalize")),
  )
