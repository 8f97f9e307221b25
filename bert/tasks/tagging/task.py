"""A label for each word: a linear layer on BERT's vectors of the words.

Devlin et al. (2019), section 5.3. The vector of a word is that of its first
word piece. The labels mark entities (see `entities`), or are others, such as
parts of speech.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert import layers
from bert.contract.batch_means import Term
from bert.contract.task import RowSet, Settings, Task
from bert.data import files, records, text_words
from bert.errors import UserError, plural
from bert.flags.flag_table import wanted_splits
from bert.flags.values import Flags
from bert.models import huggingface_config
from bert.models.resolve import Model
from bert.tasks.classification.examples import content_hash
from bert.tasks.tagging import data, entities, page, rows as tagged_rows
from bert.tasks.tagging.data import Sentence
from bert.tasks.tagging.scores import TaggedSentence, TaggedSet


@dataclasses.dataclass(frozen=True)
class TaggerSettings(Settings):
  """The settings that a tagger records."""

  labels: tuple[str, ...] = ()  # in the order of the outputs
  scheme: str | None = None  # of entities, see `entities.find_scheme`
  label_all_tokens: bool = False  # in training, not only the first piece
  max_context: bool = False  # fill rows with adjacent sentences
  fixed = ("labels", "scheme", "label_all_tokens")


class Tagged(NamedTuple):
  """The answer to a sentence: the predicted label of each word."""

  sentence: Sentence
  labels: list[str]
  probabilities: np.ndarray
  loss: float  # the sum over the words; 0 if unknown
  text: str
  entities: list[entities.FoundEntity]


class TaggingTask(Task):
  """Named-entity recognition, or another label for each word."""

  kind = "tagging"
  Settings = TaggerSettings
  output_types = (("entities", "DT_VARIANT"),)
  name = "NER"
  needs_pooler = False
  truncates = False
  style = page.STYLE
  section = staticmethod(page.section)

  def __init__(
    self,
    settings: TaggerSettings,
    tokenizer: tokenization.FullTokenizer | None = None,
    sentences: Mapping[str, Sequence[Sentence]] | None = None,
  ):
    super().__init__(settings, tokenizer)
    self._sentences = sentences or {}
    self._documents = itertools.count()
    self.metrics = ("accuracy",)
    if settings.scheme:
      self.metrics = ("f1", "precision", "recall", "accuracy")

  @classmethod
  def from_flags(cls, flags: Flags, model: Model) -> TaggingTask:
    sentences = {
      split: data.read_sentences(data.find_file(flags, split), split != "test")
      for split in wanted_splits(flags)
    }
    read = flags.given_of(field.name for field in cls.Settings.flag_fields())
    if flags.do_train:
      labels = data.find_labels(sentences["train"])
      if len(labels) < 2:
        raise UserError(
          f"{data.find_file(flags, 'train')}: all words have the label "
          f"{labels[0]!r}; pass a file with two labels or more (in CoNLL "
          f"format, in the last column)"
        )
      scheme = entities.find_scheme(s.labels for s in sentences["train"])
      settings = cls.Settings(labels=tuple(labels), scheme=scheme, **read)
    else:
      settings = dataclasses.replace(model.settings(cls), **read)
    for split in sentences.keys() - {"test"}:
      data.check_labels(sentences[split], settings.labels)
    data.warn_of_plain_text(sentences.get("test", ()))
    return cls(settings, model.tokenizer, sentences)

  # Inference.

  @classmethod
  def settings_of(cls, head: huggingface_config.Head) -> dict:
    # Some models also label positions that begin no word: [PAD], [CLS], X.
    of_words = [x for x in head.labels if x != "X" and x[:1] + x[-1:] != "[]"]
    scheme = entities.find_scheme([of_words])
    return {"labels": tuple(head.labels), "scheme": scheme}

  def example(self, text: str) -> Sentence:
    spans = text_words.split_text(text)
    words = [text[start:end] for start, end in spans]
    # A separate document, so no other text is its context.
    document = next(self._documents)
    return Sentence("", words, None, words, document, text=text)

  def features(
    self, examples: Iterable[Sentence], is_training: bool
  ) -> Iterator[list[dict]]:
    """Yields the rows of each sentence; they may show adjacent sentences."""
    ids = {label: index for index, label in enumerate(self.labels)}
    return tagged_rows.make_rows(
      examples, ids, self.tokenizer, self.settings, is_training
    )

  def feature_spec(self, is_training: bool) -> records.Spec:
    label_ids = records.sequence_feature(self.settings.max_seq_length)
    return {**super().feature_spec(is_training), "label_ids": label_ids}

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    """The output layer's weights [C, H] and bias [C]."""
    return layers.output_shapes(config.hidden_size, len(self.labels))

  def head(self, ops, bert, features: Mapping) -> dict:
    """Logits [B, S, C], the most probable label [B, S], and its probability."""
    del features
    logits = ops.output_layer(bert.get_sequence_output(), len(self.labels))
    return {
      "logits": logits,
      "labels": ops.index_of_largest(logits),
      "probabilities": ops.largest(ops.softmax(logits)),
    }

  def output_axes(self) -> dict[str, Sequence[str]]:
    return dict.fromkeys(("labels", "probabilities"), (records.POSITION,))

  def soft_targets(self) -> dict[str, Sequence[str | int]]:
    return {"logits": (records.POSITION, len(self.labels))}

  def answer(self, example: Sentence, predictions: Sequence[Mapping]) -> Tagged:
    words = tagged_rows.join_windows(predictions)
    labels = [self.labels[index] for index in words["labels"]]
    text = example.text
    if text is None:
      text, spans = text_words.join_words(example.words)
    else:
      spans = text_words.split_text(text)
    in_text = entities.found_entities(
      text, spans, labels, words["probabilities"], self.settings.scheme
    )
    loss = float(np.sum(words.get("losses", 0.0)))
    return Tagged(example, labels, words["probabilities"], loss, text, in_text)

  def public(self, answer: Tagged) -> dict:
    """The `entities`; without a scheme, each word with its label."""
    return {"entities": [entity.to_dict() for entity in answer.entities]}

  def describe(self, answer: Tagged) -> str:
    lines = (
      f"{e.type:8s} {e.probability:6.1%}  {e.text}" for e in answer.entities
    )
    return "\n".join(lines) or "no entity"

  # Training.

  def examples(self, split: str) -> dict[str, Sequence[Sentence]]:
    return {"": self._sentences[split]}

  def texts(self, rows: RowSet) -> Iterator[tuple[str, Sequence[str]]]:
    for sentence in rows.examples or ():
      yield sentence.where, (" ".join(sentence.words),)

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    entities.log_scheme(self.labels, self.settings.scheme)

  def data_hashes(self) -> dict[str, str]:
    return {
      split: content_hash((s.words, s.labels, s.document) for s in sentences)
      for split, sentences in self._sentences.items()
    }

  def loss(self, outputs: Mapping, features: Mapping) -> list[Term]:
    """The losses of all positions, with weight 0 where there is no word."""
    marks = features["label_ids"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=tf.maximum(marks - 1, 0), logits=outputs["logits"]
    )
    return [(losses, tf.cast(marks > 0, tf.float32))]

  # Evaluation and prediction.

  def score(self, rows: RowSet, answers: Iterable[Tagged]) -> TaggedSet:
    tagged = [
      TaggedSentence(*answer.sentence[:3], answer.labels, answer.loss)
      for answer in answers
    ]
    return TaggedSet(rows.name, tagged, self.labels, self.settings.scheme)

  def write(self, folder: str, rows: RowSet, answers: Iterable[Tagged]) -> None:
    paths = [f"{folder}/test_predictions.txt", f"{folder}/entities.jsonl"]
    with contextlib.ExitStack() as stack:
      enter = stack.enter_context
      partial = enter(files.atomic_writes(paths))
      columns, lines = (enter(files.open_file(p, "w")) for p in partial)
      for answer in answers:
        sentence = answer.sentence
        separator = sentence.separator
        for line in sentence.document_lines:
          columns.write(f"{line}{separator}{entities.OUTSIDE}\n\n")
        for line, label in zip(sentence.lines, answer.labels, strict=True):
          between = "\t" if "\t" in line else separator
          columns.write(f"{line}{between}{label}\n")
        columns.write("\n")
        lines.write(entities.to_json(answer.text, answer.entities) + "\n")
    logging.info(
      "%s: %s", ", ".join(paths), plural(len(rows.examples), "sentence")
    )
