"""A label for each word: a linear layer on BERT's vectors of the words.

Devlin et al. (2019), section 5.3. The vector of a word is that of its first
word piece. The labels mark entities (see `entities`), or are any others,
such as parts of speech.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert import layers
import modeling
import tokenization
from bert.errors import UserError, plural
from bert.data import files, records
from bert.reports import tagging as tagging_report
from bert.reports import training_page
from bert.tasks import entities, tagged_rows, text_words
from bert.tasks import labels as label_types
from bert.tasks.tagged_rows import Reading
from bert.tasks.tagged_scores import TaggedSentence, TaggedSet
from bert.tasks.tagged_text import Sentence
from bert.training import estimator, huggingface_config, model_folder
from bert.training.task import Outputs, RowSet, Task, weighted_mean

# The files of a tagger in a model folder, beside bert_config.json.
LABELS_NAME = "labels.json"
SETTINGS_NAME = "tagger.json"

# Its name in Hugging Face's format.
ARCHITECTURE = "BertForTokenClassification"


def compute_logits(
  bert: modeling.BertModel, num_labels: int, is_training: bool
) -> tf.Tensor:
  """Logits [B, S, C] of BERT's sequence output."""
  return layers.task_logits(bert.get_sequence_output(), num_labels, is_training)


def word_predictions(logits: tf.Tensor) -> dict[str, tf.Tensor]:
  """The likeliest label at each position, int32 [B, S], and its probability."""
  probabilities = tf.nn.softmax(logits)
  return {
    "labels": tf.argmax(logits, axis=-1, output_type=tf.int32),
    "probabilities": tf.reduce_max(probabilities, axis=-1),
  }


class TaggingTask(Task):
  """Named-entity recognition, or another label for each word.

  Args:
    sentences: dict from split to its Sentences.
    labels: the labels, in the order of the model's outputs.
    scheme: how they mark entities, see `entities.find_scheme`, or None.
    tokenizer: a FullTokenizer.
    reading: a Reading.
  """

  name = "NER"
  can_pack = True
  truncates = False
  usual_label = entities.OUTSIDE  # Few words are in entities.

  def __init__(
    self,
    sentences: Mapping[str, Sequence[Sentence]],
    labels: Sequence[str],
    scheme: str | None,
    tokenizer: tokenization.FullTokenizer,
    reading: Reading,
  ):
    self._sentences = sentences
    self.labels = list(labels)
    self._scheme = scheme
    self._tokenizer = tokenizer
    self.reading = reading
    self.metrics = ("accuracy",)
    if scheme:
      self.metrics = ("f1", "precision", "recall", "accuracy")

  def examples(self, split: str) -> dict[str, Sequence[Sentence]]:
    """The Sentences of a split."""
    return {"": self._sentences[split]}

  def features(
    self, examples: Iterable[Sentence], is_training: bool
  ) -> Iterator[list[dict]]:
    """Yields the rows of each sentence."""
    ids = {label: index for index, label in enumerate(self.labels)}
    return tagged_rows.make_rows(
      examples, ids, self._tokenizer, self.reading, is_training
    )

  def feature_spec(self, is_training: bool) -> records.Spec:
    """The three sequences [S], and the labels of the words [S]."""
    return tagged_rows.feature_spec(self.reading.max_seq_length)

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Logs the number of labels, and how they mark entities."""
    entities.log_scheme(self.labels, self._scheme)

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of the words and labels of each split."""
    return {
      split: hashlib.sha256(
        json.dumps([(s.words, s.labels, s.document) for s in found]).encode()
      ).hexdigest()
      for split, found in self._sentences.items()
    }

  def variable_shapes(
    self, config: modeling.BertConfig
  ) -> dict[str, list[int]]:
    """The output layer's weights [C, H] and bias [C]."""
    return layers.output_shapes(config.hidden_size, len(self.labels))

  def outputs(
    self, bert: modeling.BertModel, features: Mapping, mode: str
  ) -> Outputs:
    """The mean loss of the words; their labels, probabilities and losses."""
    is_training = mode == estimator.ModeKeys.TRAIN
    logits = compute_logits(bert, len(self.labels), is_training)
    marks = features["label_ids"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=tf.maximum(marks - 1, 0), logits=logits
    )
    if is_training:
      weights = tf.cast(marks > 0, tf.float32)
      return Outputs(loss=weighted_mean(losses, weights))
    predictions = {"losses": losses, "marks": marks, **word_predictions(logits)}
    return Outputs(predictions=predictions)

  def score(self, rows: RowSet, predictions: Iterable[list[dict]]) -> TaggedSet:
    """Precision, recall and F1 of the entities, and accuracy of the labels."""
    tagged = []
    for sentence, group in zip(rows.examples, predictions, strict=True):
      words = tagged_rows.join_windows(group)
      predicted = [self.labels[index] for index in words["labels"]]
      loss = float(np.sum(words["losses"]))
      tagged.append(TaggedSentence(*sentence[:3], predicted, loss))
    return TaggedSet(rows.name, tagged, self.labels, self._scheme)

  def write_predictions(
    self, folder: str, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> None:
    """Writes test_predictions.txt and entities.jsonl."""
    paths = [f"{folder}/test_predictions.txt", f"{folder}/entities.jsonl"]
    with contextlib.ExitStack() as stack:
      enter = stack.enter_context
      partial = enter(files.atomic_writes(paths))
      columns, found = (enter(files.open_file(p, "w")) for p in partial)
      for sentence, group in zip(rows.examples, predictions, strict=True):
        words = tagged_rows.join_windows(group)
        labels = [self.labels[index] for index in words["labels"]]
        separator = sentence.separator
        for line in sentence.document_lines:
          columns.write(f"{line}{separator}{entities.OUTSIDE}\n\n")
        for line, label in zip(sentence.lines, labels, strict=True):
          between = "\t" if "\t" in line else separator
          columns.write(f"{line}{between}{label}\n")
        columns.write("\n")
        text, spans = text_words.join_words(sentence.words)
        found_here = entities.found_entities(
          text, spans, labels, words["probabilities"], self._scheme
        )
        found.write(entities.to_json(text, found_here) + "\n")
    logging.info(
      "%s: %s", ", ".join(paths), plural(len(rows.examples), "sentence")
    )

  def report(
    self, folder: str, evaluations: Sequence[TaggedSet], record: Mapping
  ) -> None:
    """Writes report.html."""
    training_page.write_run(
      folder,
      self.name,
      evaluations,
      tagging_report.section,
      record,
      tagging_report.STYLE,
    )

  def assets(self) -> dict[str, str]:
    """labels.json and tagger.json."""
    return assets(self.labels, self._scheme, self.reading)


def assets(
  labels: Sequence[str], scheme: str | None, reading: Reading
) -> dict[str, str]:
  """The tagger's files in a model folder: dict from name to content."""
  settings = {"scheme": scheme, **dataclasses.asdict(reading)}
  return {
    LABELS_NAME: json.dumps(list(labels), ensure_ascii=False) + "\n",
    SETTINGS_NAME: json.dumps(settings, indent=2) + "\n",
  }


def read_assets(folder: str) -> tuple[list[str], str | None, Reading]:
  """The labels, their scheme and the Reading that a model folder holds.

  Raises:
    UserError: the folder holds no tagger, or its files are damaged.
  """
  path = os.path.join(folder, SETTINGS_NAME)
  settings = files.read_json(path, dict)
  # Without our tagger.json, labels.json is not ours, either.
  labels_path = os.path.join(folder, LABELS_NAME)
  labels = settings and label_types.read_labels(labels_path)
  head = huggingface_config.read_head(folder)
  if head.architecture == ARCHITECTURE:  # It needs no files of ours.
    labels = labels or head.labels
    length = model_folder.default_length(folder, Reading().max_seq_length)
    # Some also label positions that begin no word: [PAD], [CLS], [SEP], X.
    of_words = [x for x in labels if x != "X" and x[:1] + x[-1:] != "[]"]
    scheme = entities.find_scheme([of_words])
    known = {"scheme": scheme, "max_seq_length": length}
    settings = known | (settings or {})
  if labels is None or settings is None:
    raise UserError(
      f"{folder} does not hold a trained tagger; pass the --output_dir of a "
      f"finished training"
    )
  try:
    scheme, reading = settings.pop("scheme"), Reading(**settings)
  except (KeyError, TypeError) as error:
    raise UserError(files.damaged(path, str(error))) from error
  fields = dataclasses.asdict(Reading())
  files.check_settings(path, dataclasses.asdict(reading), fields)
  files.check_least(path, "max_seq_length", reading.max_seq_length, 3)
  return labels, scheme, reading
