"""Labeled texts, and their features for a classifier.

Subclass `DataProcessor` to read a task of your own.
"""

import copy
import csv
import dataclasses
import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

import tokenization
from bert.data import files, records, sequences, text_files
from bert.errors import UserError
from bert.tasks.classification import label_types

# How long texts are read (Sun et al. 2019, How to Fine-Tune BERT for Text
# Classification?, section 5.3.1); see `convert_example`.
LONG_TEXT = ("head", "head_tail", "mean_windows")

# The fraction of the beginning in "head_tail", as in that paper.
HEAD_PART = 128 / 510


@dataclasses.dataclass(eq=False)
class InputExample:
  """A labeled text or pair of texts."""

  guid: str  # its id, unique in its data set
  text_a: str
  text_b: str | None = None  # the second text of a pair
  label: str | None = None
  where: str | None = None  # its source, "path:line"

  @property
  def texts(self) -> tuple[str, str]:
    """Both texts; the second is empty if there is only one."""
    return self.text_a, self.text_b or ""

  def __str__(self) -> str:
    """Its name in messages."""
    return self.where or f"example {self.guid}"


class PaddingInputExample:
  """A row that fills up a batch and is not evaluated."""


@dataclasses.dataclass(eq=False)
class InputFeatures:
  """The features of an example."""

  input_ids: Sequence[int]  # of word pieces [S], padded with 0
  input_mask: Sequence[int]  # [S], 1 for word pieces and 0 for padding
  segment_ids: Sequence[int]  # [S], 0 for the first text and 1 for the second
  label_id: int | list[int] | float
  is_real_example: bool = True  # False for padding
  was_cut: bool = False  # whether the text was truncated


def feature_spec(
  seq_length: int, label_type: label_types.LabelType | None = None
) -> records.Spec:
  """The spec of a classifier's rows; the default is one label per row."""
  label = label_type.label_feature if label_type else records.Feature()
  return {
    **records.sequence_spec(seq_length),
    "label_ids": label,
    "is_real_example": records.Feature(),
  }


class DataProcessor:
  """Reads the data sets of a task; subclass it for a task of your own."""

  def get_train_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to train on."""
    raise NotImplementedError()

  def get_dev_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to evaluate on."""
    raise NotImplementedError()

  def get_test_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to predict."""
    raise NotImplementedError()

  def held_out_examples(self) -> Sequence[InputExample]:
    """The rows of the training file that are held out for evaluation."""
    return ()

  def log_data(self) -> None:
    """Logs warnings about the data sets that were read."""

  def get_labels(self) -> Sequence[str]:
    """The labels, in the order of the model's outputs."""
    raise NotImplementedError()

  def get_example_sets(
    self, data_dir: str, set_type: str
  ) -> Mapping[str, Sequence[InputExample]]:
    """The "train", "dev" or "test" sets by suffix of their result files."""
    getter = getattr(self, f"get_{set_type}_examples")
    return {"": getter(data_dir)}

  @classmethod
  def _read_tsv(cls, input_file, quotechar=None):
    """The lines of a tab-separated UTF-8 file, each a list of str."""
    text = text_files.decode_text(input_file, files.read_bytes(input_file))
    if quotechar is None:
      lines = text_files.split_lines(text)
      # As in csv.reader, a blank line has no fields.
      return [line.split("\t") if line else [] for line in lines]
    csv.field_size_limit(2**31 - 1)
    reader = io.StringIO(text, newline="")
    return list(csv.reader(reader, delimiter="\t", quotechar=quotechar))


def convert_single_example(
  ex_index: int,
  example: InputExample | PaddingInputExample,
  label_list: label_types.LabelType | Sequence[str],
  max_seq_length: int,
  tokenizer: tokenization.FullTokenizer,
) -> InputFeatures:
  """Converts an example to [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

  Texts longer than S are truncated, the longer of a pair first. `ex_index` is
  the index of the example; --v=1 logs the first five. Raises UserError for an
  unknown label, and for none.
  """
  label_type = label_types.as_label_type(label_list)
  if isinstance(example, InputExample) and example.label is None:
    raise UserError(f"{example} has no label; to predict it, give it any label")
  (features,) = convert_example(example, label_type, max_seq_length, tokenizer)
  if ex_index < 5 and features.is_real_example and logging.level_debug():
    ids = features.input_ids[: sum(features.input_mask)]
    tokens = " ".join(tokenizer.convert_ids_to_tokens(ids))
    logging.debug("%s: %s -> %s", example.guid, tokens, example.label)
  return features


def convert_example(
  example: InputExample | PaddingInputExample,
  label_type: label_types.LabelType,
  max_seq_length: int,
  tokenizer: tokenization.FullTokenizer,
  long_text: str = "head",
) -> list[InputFeatures]:
  """Converts an example to one InputFeatures, or to one for each window.

  `long_text` applies to a text longer than its share of the sequence
  (`sequences.share_room`). "head" keeps the beginning. "head_tail" fills
  HEAD_PART of the share with the beginning, and the rest with the end.
  "mean_windows" splits the text into as few equal windows as possible, without
  overlap; in a pair, the windows of the text with fewer are repeated.
  """
  if isinstance(example, PaddingInputExample):
    zeros = [0] * max_seq_length
    return [InputFeatures(zeros, zeros, zeros, label_type.no_label, False)]
  label = label_type.no_label
  if example.label is not None:
    label = label_id(example, label_type)
  texts = [tokenizer.tokenize(example.text_a)]
  texts.append(tokenizer.tokenize(example.text_b) if example.text_b else [])
  room = max_seq_length - tokenizer.special.count(2 if texts[1] else 1)
  shares = sequences.share_room(*map(len, texts), room)
  parts = list(map(_parts, texts, shares, [long_text] * 2))
  was_cut = long_text != "mean_windows" and sum(map(len, texts)) > room
  count = max(map(len, parts))
  windows = []
  for i in range(count):
    shown = [own[i * len(own) // count] for own in parts]
    row = sequences.input_row(tokenizer, *(shown if shown[1] else shown[:1]))
    padded = (sequences.padded(v, max_seq_length) for v in row.values())
    windows.append(InputFeatures(*padded, label, was_cut=was_cut))
  return windows


def _parts(tokens, room, long_text):
  """The windows of a text, each at most `room` long."""
  size = len(tokens)
  if size <= room or long_text == "head":
    return [tokens[:room]]
  if long_text == "head_tail":
    head = round(room * HEAD_PART)
    return [tokens[:head] + tokens[size - (room - head) :]]
  count = -(-size // room)
  ends = [size * i // count for i in range(count + 1)]
  return [tokens[i:j] for i, j in itertools.pairwise(ends)]


def label_id(
  example: InputExample, label_type: label_types.LabelType
) -> int | list[int] | float:
  """The encoded label of an example."""
  try:
    return label_type.encode(example.label)
  except ValueError as error:
    raise UserError(f"{example}: {error}") from error


def convert_examples_to_features(
  examples: Iterable[InputExample | PaddingInputExample],
  label_list: label_types.LabelType | Sequence[str],
  max_seq_length: int,
  tokenizer: tokenization.FullTokenizer,
) -> list[InputFeatures]:
  """A list of InputFeatures; see `convert_single_example`."""
  label_type = label_types.as_label_type(label_list)
  return [
    convert_single_example(i, example, label_type, max_seq_length, tokenizer)
    for i, example in enumerate(examples)
  ]


def file_based_convert_examples_to_features(
  examples: Iterable[InputExample | PaddingInputExample],
  label_list: label_types.LabelType | Sequence[str],
  max_seq_length: int,
  tokenizer: tokenization.FullTokenizer,
  output_file: str,
) -> None:
  """Writes features to a TFRecord file; see `convert_single_example`."""
  label_type = label_types.as_label_type(label_list)
  rows = (
    feature_row(
      convert_single_example(i, example, label_type, max_seq_length, tokenizer)
    )
    for i, example in enumerate(examples)
  )
  spec = feature_spec(max_seq_length, label_type)
  records.write_records(output_file, rows, spec)


def feature_row(features: InputFeatures) -> dict[str, object]:
  """InputFeatures as a row of `feature_spec`."""
  return {
    **{name: getattr(features, name) for name in records.SEQUENCES},
    "label_ids": features.label_id,
    "is_real_example": int(features.is_real_example),
  }


def without_label(example: InputExample) -> InputExample:
  """A copy of an example without its label."""
  example = copy.copy(example)
  example.label = None
  return example


def content_hash(rows: Iterable[Sequence]) -> str:
  """SHA-256 of rows of JSON values, such as texts and labels."""
  digest = hashlib.sha256()
  for row in rows:
    digest.update(json.dumps(row).encode())
  return digest.hexdigest()
