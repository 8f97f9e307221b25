"""Labelled texts, and the features that a classifier reads of them.

`DataProcessor` is what users subclass for data of their own.
"""

import copy
import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from errors import UserError
from pipeline import records, sequences, text_files
from tasks import labels as label_types
from training import inputs

# What becomes of a text that is too long (Sun et al. 2019, How to Fine-Tune
# BERT for Text Classification?, section 5.3.1): its head is kept; its head and
# its tail are; or it is read in several windows, and their logits averaged.
LONG_TEXT = ("head", "head_tail", "mean_windows")

# The part of a text's room that its head takes in "head_tail", as there.
HEAD_PART = 128 / 510


class InputExample:
  """One labelled text or pair of texts.

  Args:
    guid: name of the example, unique in its set.
    text_a: the text.
    text_b: the second text of a pair, or None.
    label: its label; None in a set without labels.
    where: the place that it was read from, "path:line", or None.

  As a str it is what messages call it: its place, or else its name.
  """

  def __init__(
    self,
    guid: str,
    text_a: str,
    text_b: str | None = None,
    label: str | None = None,
    where: str | None = None,
  ):
    self.guid = guid
    self.text_a = text_a
    self.text_b = text_b
    self.label = label
    self.where = where

  def __str__(self) -> str:
    return self.where or f"example {self.guid}"


class PaddingInputExample:
  """Stands for a row that only fills up a batch and counts nowhere."""


class InputFeatures:
  """One example as the model reads it.

  Args:
    input_ids: word piece ids [S], 0 behind the end.
    input_mask: [S], 1 for a word piece and 0 for padding.
    segment_ids: [S], 0 for the first text and 1 for the second.
    label_id: the label as its head encodes it: of a list of labels, the place.
    is_real_example: False for padding.
    was_cut: whether the example has words that are not among them.
  """

  def __init__(
    self,
    input_ids: Sequence[int],
    input_mask: Sequence[int],
    segment_ids: Sequence[int],
    label_id: int | list[int] | float,
    is_real_example: bool = True,
    was_cut: bool = False,
  ):
    self.input_ids = input_ids
    self.input_mask = input_mask
    self.segment_ids = segment_ids
    self.label_id = label_id
    self.is_real_example = is_real_example
    self.was_cut = was_cut


def feature_spec(
  seq_length: int, head: label_types.Head | None = None
) -> records.Spec:
  """The spec of a classifier's rows; without a head, of one label each."""
  return {
    "input_ids": records.sequence_feature(seq_length),
    "input_mask": records.sequence_feature(seq_length),
    "segment_ids": records.sequence_feature(seq_length),
    "label_ids": head.label_feature() if head else records.Feature(),
    "is_real_example": records.Feature(),
  }


class DataProcessor:
  """Reads the sets of one task; subclass it for your own."""

  def get_train_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to train on."""
    raise UserError(
      f"{type(self).__name__} has no get_train_examples, which --do_train needs"
    )

  def get_dev_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to evaluate on."""
    raise UserError(
      f"{type(self).__name__} has no get_dev_examples, which --do_eval needs"
    )

  def get_test_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to predict."""
    raise UserError(
      f"{type(self).__name__} has no get_test_examples, which "
      f"--do_predict needs"
    )

  def get_labels(self) -> Sequence[str]:
    """The labels, in the order of the model's outputs."""
    raise UserError(
      f"{type(self).__name__} has no get_labels, which every task needs"
    )

  def get_example_sets(
    self, data_dir: str, set_type: str
  ) -> Mapping[str, Sequence[InputExample]]:
    """All sets of one type.

    Args:
      data_dir: the task's directory.
      set_type: "train", "dev" or "test".

    Returns:
      Dict from the suffix of a set's result files to its InputExamples.
    """
    getter = getattr(self, f"get_{set_type}_examples")
    return {"": getter(data_dir)}

  @classmethod
  def _read_tsv(cls, input_file, quotechar=None):
    """The lines of a tab-separated file, each a list of str.

    Args:
      input_file: path of a UTF-8 file; a byte order mark is dropped.
      quotechar: character that quotes a field; by default none does, and a
        quotation mark is text like any other.
    """
    with tf.io.gfile.GFile(input_file, "rb") as reader:
      text = text_files.decode_utf8(input_file, reader.read())
    if quotechar is not None:
      csv.field_size_limit(2**31 - 1)
      rows = csv.reader(
        io.StringIO(text, newline=""), delimiter="\t", quotechar=quotechar
      )
      try:
        return list(rows)
      except csv.Error as error:
        raise UserError(f"{input_file}:{rows.line_num}: {error}") from error
    return [line.split("\t") for line in text_files.split_lines(text)]


def convert_single_example(
  ex_index: int,
  example: InputExample | PaddingInputExample,
  label_list: label_types.Head | Sequence[str],
  max_seq_length: int,
  tokenizer,
) -> InputFeatures:
  """One example as InputFeatures: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

  Args:
    ex_index: its number; the first few are shown at --v=1.
    example: InputExample or PaddingInputExample.
    label_list: the labels, in the order of their ids, or another head.
    max_seq_length: S; longer texts are cut, the longer of a pair first.
    tokenizer: a FullTokenizer.

  A label of None, in a set to predict, counts as the first.

  Raises:
    ValueError: the label is not in the list.
  """
  features = convert_example(
    example, label_types.as_head(label_list), max_seq_length, tokenizer
  )
  _show(ex_index, example, features, tokenizer)
  return features[0]


def convert_example(
  example: InputExample | PaddingInputExample,
  head: label_types.Head,
  max_seq_length: int,
  tokenizer,
  long_text: str = "head",
) -> list[InputFeatures]:
  """One example as InputFeatures: one, or its windows.

  The texts of a pair share the room as in `sequences.truncate_pair`: each has
  half of it, and what the other leaves of its half. What is longer than its
  share keeps, of it,

  - "head": the beginning;
  - "head_tail": the beginning, HEAD_PART of the share, and the end;
  - "mean_windows": everything, in as few pieces as hold it, which are equally
    long and do not overlap. The example has as many windows as the text of
    more pieces; the other's pieces, often a single one, last over several.
    Each window has the label of the whole; the mean of their logits is the
    example's (see `mean_by_example`).

  Args:
    example: InputExample or PaddingInputExample.
    head: what encodes its label; one of None becomes `head.no_label`.
    max_seq_length: S.
    tokenizer: a FullTokenizer.
    long_text: one of LONG_TEXT.

  Raises:
    ValueError: the label does not suit the head, S leaves no room for
      windows, or there is no such `long_text`.
  """
  if isinstance(example, PaddingInputExample):
    zeros = [0] * max_seq_length
    return [InputFeatures(zeros, zeros, zeros, head.no_label, False)]
  label = head.no_label
  if example.label is not None:
    label = label_id(example, head)
  texts = [tokenizer.tokenize(example.text_a)]
  texts.append(tokenizer.tokenize(example.text_b) if example.text_b else [])
  room = max_seq_length - (3 if texts[1] else 2)
  shares = sequences.share_room(*map(len, texts), room)
  windows = _side_by_side(*map(_pieces_of(long_text, room), texts, shares))
  was_cut = long_text != "mean_windows" and sum(map(len, texts)) > room
  return [
    _features(*window, label, max_seq_length, tokenizer, was_cut)
    for window in windows
  ]


def _pieces_of(long_text, room):
  """The function of a text and its share that gives a list of its pieces."""
  functions = dict(zip(LONG_TEXT, (_head, _head_tail, _fractions), strict=True))
  if long_text not in functions:
    raise UserError(
      f"long_text={long_text!r} is not one of {', '.join(LONG_TEXT)}"
    )
  if long_text == "mean_windows" and room < 2:
    raise UserError(
      f"room for {room} word pieces of text is too little for "
      f"long_text={long_text}; pass a max_seq_length of 5 or more"
    )
  return functions[long_text]


def _head(tokens, room):
  return [tokens[:room]]


def _head_tail(tokens, room):
  if len(tokens) <= room:
    return [tokens]
  head = round(room * HEAD_PART)
  return [tokens[:head] + tokens[len(tokens) - (room - head) :]]


def _fractions(tokens, room):
  size = len(tokens)
  count = -(-size // room) if size else 1
  return [
    tokens[size * i // count : size * (i + 1) // count] for i in range(count)
  ]


def _side_by_side(pieces_a, pieces_b):
  """Pairs of pieces, as many as the longer list has."""
  count = max(len(pieces_a), len(pieces_b))
  return [
    [pieces[i * len(pieces) // count] for pieces in (pieces_a, pieces_b)]
    for i in range(count)
  ]


def _features(tokens_a, tokens_b, label, max_seq_length, tokenizer, was_cut):
  tokens = ["[CLS]", *tokens_a, "[SEP]"]
  segment_ids = [0] * len(tokens)
  if tokens_b:
    tokens += [*tokens_b, "[SEP]"]
    segment_ids += [1] * (len(tokens_b) + 1)
  return InputFeatures(
    sequences.padded(tokenizer.convert_tokens_to_ids(tokens), max_seq_length),
    sequences.padded([1] * len(tokens), max_seq_length),
    sequences.padded(segment_ids, max_seq_length),
    label,
    was_cut=was_cut,
  )


def _show(index, example, features, tokenizer):
  is_shown = index < 5 and logging.level_debug()
  if not is_shown or isinstance(example, PaddingInputExample):
    return
  for f in features:
    ids = f.input_ids[: sum(f.input_mask)]
    tokens = " ".join(tokenizer.convert_ids_to_tokens(ids))
    logging.debug("%s: %s -> %s", example.guid, tokens, example.label)


def label_id(
  example: InputExample, label_list: label_types.Head | Sequence[str]
) -> int | list[int] | float:
  """An example's label as the head encodes it: of a list, the place in it.

  Raises:
    ValueError: there is none, or it does not suit the head.
  """
  if example.label is None:
    raise UserError(f"{example} has no label; give it one")
  try:
    return label_types.as_head(label_list).encode(example.label)
  except ValueError as error:
    raise UserError(f"{example}: {error}") from error


def convert_examples_to_features(
  examples: Iterable[InputExample | PaddingInputExample],
  label_list: label_types.Head | Sequence[str],
  max_seq_length: int,
  tokenizer,
) -> list[InputFeatures]:
  """A list of InputFeatures; see `convert_single_example`."""
  return [
    convert_single_example(
      index, example, label_list, max_seq_length, tokenizer
    )
    for index, example in enumerate(examples)
  ]


def file_based_convert_examples_to_features(
  examples: Iterable[InputExample | PaddingInputExample],
  label_list: label_types.Head | Sequence[str],
  max_seq_length: int,
  tokenizer,
  output_file: str,
) -> None:
  """Writes examples to a TFRecord file, which appears whole or not at all.

  Args:
    examples: InputExamples.
    label_list: the labels, in the order of their ids, or another head.
    max_seq_length: S.
    tokenizer: a FullTokenizer.
    output_file: path of the file.

  Raises:
    UserError: a label does not suit the head.
  """
  head = label_types.as_head(label_list)
  rows = (
    feature_row(
      convert_single_example(i, example, head, max_seq_length, tokenizer)
    )
    for i, example in enumerate(examples)
  )
  records.write_records(output_file, rows, feature_spec(max_seq_length, head))


def feature_row(features: InputFeatures) -> dict[str, object]:
  """InputFeatures as a row of `feature_spec`."""
  return {
    "input_ids": features.input_ids,
    "input_mask": features.input_mask,
    "segment_ids": features.segment_ids,
    "label_ids": features.label_id,
    "is_real_example": int(features.is_real_example),
  }


def file_based_input_fn_builder(
  input_file: str,
  seq_length: int,
  is_training: bool,
  drop_remainder: bool,
  head: label_types.Head | None = None,
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` over a file of features.

  Args:
    input_file: TFRecord file that
      `file_based_convert_examples_to_features` wrote.
    seq_length: S of the file.
    is_training: shuffled and without end, or each row once.
    drop_remainder: leave out rows that fill no batch.
    head: what the labels are of; None for one label of a list.

  Returns:
    A function from a dict with `batch_size` to a `tf.data.Dataset` of feature
    dicts; see `inputs.input_fn_from_file`.
  """
  return inputs.input_fn_from_file(
    input_file, feature_spec(seq_length, head), is_training, drop_remainder
  )


def input_fn_builder(
  features: Iterable[InputFeatures],
  seq_length: int,
  is_training: bool,
  drop_remainder: bool,
  head: label_types.Head | None = None,
) -> Callable[[Mapping], tf.data.Dataset]:
  """As `file_based_input_fn_builder`, over a list of InputFeatures."""
  rows = inputs.Rows.from_features(
    map(feature_row, features), feature_spec(seq_length, head)
  )
  return inputs.input_fn_from_rows(rows, is_training, drop_remainder)


def unlabelled(example: InputExample) -> InputExample:
  """A copy of an example to predict, whatever its label says."""
  example = copy.copy(example)
  example.label = None
  return example


def content_hash(examples: Iterable[InputExample]) -> str:
  """SHA-256 of names, texts and labels, to tell one set from another."""
  digest = hashlib.sha256()
  for e in examples:
    row = json.dumps([e.guid, e.text_a, e.text_b, e.label])
    digest.update(row.encode())
  return digest.hexdigest()
