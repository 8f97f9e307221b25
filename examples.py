"""Labelled texts, and the features that a classifier reads of them.

`DataProcessor` is what users subclass for data of their own.
"""

import csv
import functools
import io
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf
from absl import logging

import inputs


class InputExample:
  """One labelled text or pair of texts.

  Args:
    guid: name of the example, unique in its set.
    text_a: the text.
    text_b: the second text of a pair, or None.
    label: its label; None in a set without labels.
  """

  def __init__(
    self,
    guid: str,
    text_a: str,
    text_b: str | None = None,
    label: str | None = None,
  ):
    self.guid = guid
    self.text_a = text_a
    self.text_b = text_b
    self.label = label


class PaddingInputExample:
  """Stands for a row that only fills up a batch and counts nowhere."""


class InputFeatures:
  """One example as the model reads it.

  Args:
    input_ids: word piece ids [S], 0 behind the end.
    input_mask: [S], 1 for a word piece and 0 for padding.
    segment_ids: [S], 0 for the first text and 1 for the second.
    label_id: place of the label in the label list.
    is_real_example: False for padding.
  """

  def __init__(
    self,
    input_ids: Sequence[int],
    input_mask: Sequence[int],
    segment_ids: Sequence[int],
    label_id: int,
    is_real_example: bool = True,
  ):
    self.input_ids = input_ids
    self.input_mask = input_mask
    self.segment_ids = segment_ids
    self.label_id = label_id
    self.is_real_example = is_real_example


def feature_spec(seq_length: int) -> dict[str, tf.io.FixedLenFeature]:
  """The spec of a classifier's rows."""
  return {
    "input_ids": inputs.int_feature(seq_length),
    "input_mask": inputs.int_feature(seq_length),
    "segment_ids": inputs.int_feature(seq_length),
    "label_ids": inputs.int_feature(),
    "is_real_example": inputs.int_feature(),
  }


class DataProcessor:
  """Reads the sets of one task; subclass it for your own."""

  def get_train_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to train on."""
    raise NotImplementedError(
      f"{type(self).__name__} has no get_train_examples, which --do_train needs"
    )

  def get_dev_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to evaluate on."""
    raise NotImplementedError(
      f"{type(self).__name__} has no get_dev_examples, which --do_eval needs"
    )

  def get_test_examples(self, data_dir: str) -> Sequence[InputExample]:
    """The InputExamples to predict."""
    raise NotImplementedError(
      f"{type(self).__name__} has no get_test_examples, which "
      f"--do_predict needs"
    )

  def get_labels(self) -> Sequence[str]:
    """The labels, in the order of the model's outputs."""
    raise NotImplementedError(
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
      content = reader.read()
    try:
      text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
      line = content.count(b"\n", 0, error.start) + 1
      raise ValueError(
        f"{input_file}:{line}: byte {error.start} of the file is not UTF-8; "
        f"convert the file to UTF-8"
      ) from error
    if quotechar is not None:
      csv.field_size_limit(2**31 - 1)
      rows = csv.reader(
        io.StringIO(text, newline=""), delimiter="\t", quotechar=quotechar
      )
      try:
        return list(rows)
      except csv.Error as error:
        raise ValueError(f"{input_file}:{rows.line_num}: {error}") from error
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r").split("\t") for line in lines]


def convert_single_example(
  ex_index: int,
  example: InputExample | PaddingInputExample,
  label_list: Sequence[str],
  max_seq_length: int,
  tokenizer,
) -> InputFeatures:
  """One example as InputFeatures: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

  Args:
    ex_index: its number; the first few are shown at --v=1.
    example: InputExample or PaddingInputExample.
    label_list: the labels, in the order of their ids.
    max_seq_length: S; longer texts are cut, the longer of a pair first.
    tokenizer: a FullTokenizer.

  A label of None, in a set to predict, counts as the first.

  Raises:
    ValueError: the label is not in the list.
  """
  if isinstance(example, PaddingInputExample):
    zeros = [0] * max_seq_length
    return InputFeatures(zeros, zeros, zeros, 0, is_real_example=False)

  tokens_a = tokenizer.tokenize(example.text_a)
  tokens_b = tokenizer.tokenize(example.text_b) if example.text_b else []
  specials = 3 if tokens_b else 2
  inputs.truncate_pair(tokens_a, tokens_b, max_seq_length - specials)

  tokens = ["[CLS]", *tokens_a, "[SEP]"]
  segment_ids = [0] * len(tokens)
  if tokens_b:
    tokens += [*tokens_b, "[SEP]"]
    segment_ids += [1] * (len(tokens_b) + 1)
  if ex_index < 5:
    logging.debug("%s: %s -> %s", example.guid, " ".join(tokens), example.label)
  return InputFeatures(
    inputs.padded(tokenizer.convert_tokens_to_ids(tokens), max_seq_length),
    inputs.padded([1] * len(tokens), max_seq_length),
    inputs.padded(segment_ids, max_seq_length),
    0 if example.label is None else label_id(example, label_list),
  )


def label_id(example: InputExample, label_list: Sequence[str]) -> int:
  """The place of an example's label in the label list.

  Raises:
    ValueError: it is not there.
  """
  if example.label not in label_list:
    raise ValueError(
      f"example {example.guid}: label {example.label!r} is none "
      f"of {', '.join(map(str, label_list))}"
    )
  return label_list.index(example.label)


def convert_examples_to_features(
  examples: Iterable[InputExample | PaddingInputExample],
  label_list: Sequence[str],
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
  label_list: Sequence[str],
  max_seq_length: int,
  tokenizer,
  output_file: str,
) -> None:
  """Writes examples to a TFRecord file; see `convert_single_example`."""
  inputs.write_records(
    output_file,
    (
      _row(
        convert_single_example(
          index, example, label_list, max_seq_length, tokenizer
        )
      )
      for index, example in enumerate(examples)
    ),
    feature_spec(max_seq_length),
  )


def _row(features):
  return {
    "input_ids": features.input_ids,
    "input_mask": features.input_mask,
    "segment_ids": features.segment_ids,
    "label_ids": features.label_id,
    "is_real_example": int(features.is_real_example),
  }


def file_based_input_fn_builder(
  input_file: str, seq_length: int, is_training: bool, drop_remainder: bool
) -> Callable[[Mapping], tf.data.Dataset]:
  """An `input_fn(params)` over a file of features.

  Args:
    input_file: TFRecord file that
      `file_based_convert_examples_to_features` wrote.
    seq_length: S of the file.
    is_training: shuffled and without end, or each row once.
    drop_remainder: leave out rows that fill no batch.

  Returns:
    A function from a dict with `batch_size` to a `tf.data.Dataset` of feature
    dicts; see `inputs.input_fn_from_rows`.
  """
  return inputs.input_fn_from_rows(
    functools.partial(
      inputs.Rows.from_file, input_file, feature_spec(seq_length)
    ),
    is_training,
    drop_remainder,
  )


def input_fn_builder(
  features: Iterable[InputFeatures],
  seq_length: int,
  is_training: bool,
  drop_remainder: bool,
) -> Callable[[Mapping], tf.data.Dataset]:
  """As `file_based_input_fn_builder`, over a list of InputFeatures."""
  return inputs.input_fn_from_rows(
    inputs.Rows.from_features(
      [_row(f) for f in features], feature_spec(seq_length)
    ),
    is_training,
    drop_remainder,
  )
