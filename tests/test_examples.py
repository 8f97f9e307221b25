"""Labelled texts, and the features that a classifier reads of them."""

import json

import numpy as np
import pytest
import tensorflow as tf

import inputs
import tokenization
from examples import (
  DataProcessor,
  InputExample,
  PaddingInputExample,
  convert_examples_to_features,
  convert_single_example,
  feature_spec,
  file_based_convert_examples_to_features,
  file_based_input_fn_builder,
  input_fn_builder,
)

SEQ_LENGTH = 48
BOM = "\ufeff"


@pytest.fixture(scope="module")
def tokenizer(goldens):
  return tokenization.FullTokenizer(str(goldens / "vocab.txt"))


@pytest.fixture(scope="module")
def mrpc(goldens):
  """The original's features of the first 60 lines of each MRPC set."""
  lines = (goldens / "mrpc_features.jsonl").read_text("utf-8").splitlines()
  assert len(lines) == 180
  return [json.loads(line) for line in lines]


def write_lines(path, *lines, newline="\n"):
  """Writes lines, each a list of columns."""
  path.parent.mkdir(exist_ok=True)
  text = "".join("\t".join(line) + newline for line in lines)
  path.write_bytes(text.encode())
  return path


def as_tuples(examples):
  return [(e.guid, e.text_a, e.text_b, e.label) for e in examples]


class TestReadTsv:
  def test_byte_order_mark(self, tmp_path):
    # Only at the very start does the character mark anything.
    path = tmp_path / "a.tsv"
    path.write_bytes(f"{BOM}a\tb{BOM}\n".encode())
    assert DataProcessor._read_tsv(str(path)) == [["a", f"b{BOM}"]]

  def test_quotation_marks_on_demand(self, tmp_path):
    path = write_lines(
      tmp_path / "a.tsv", ('"a\tb"', "c"), ('"d ""e"""', 'f"'), newline="\r\n"
    )
    lines = DataProcessor._read_tsv(str(path), quotechar='"')
    assert lines == [["a\tb", "c"], ['d "e"', 'f"']]

  def test_a_quoted_field_keeps_its_newline(self, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('1\t"two\nlines"\t3\n4\t5\t6\n')
    lines = DataProcessor._read_tsv(str(path), quotechar='"')
    assert lines == [["1", "two\nlines", "3"], ["4", "5", "6"]]


class ReviewProcessor(DataProcessor):
  """A task of a user's own, written against the original's interface."""

  def get_train_examples(self, data_dir):
    path = f"{data_dir}/train.tsv"
    return self._create_examples(self._read_tsv(path), "train")

  def get_labels(self):
    return ["bad", "good"]

  def _create_examples(self, lines, set_type):
    examples = []
    for i, line in enumerate(lines):
      if i == 0:
        continue
      examples.append(
        InputExample(
          guid=f"{set_type}-{i}",
          text_a=tokenization.convert_to_unicode(line[1]),
          text_b=None,
          label=tokenization.convert_to_unicode(line[0]),
        )
      )
    return examples


class TestDataProcessor:
  def test_a_users_own(self, tmp_path, tokenizer):
    write_lines(
      tmp_path / "train.tsv", ("label", "text"), ("good", "The game.")
    )
    processor = ReviewProcessor()
    (examples,) = processor.get_example_sets(str(tmp_path), "train").values()
    assert as_tuples(examples) == [("train-1", "The game.", None, "good")]
    (features,) = convert_examples_to_features(
      examples, processor.get_labels(), 8, tokenizer
    )
    assert features.label_id == 1

  @pytest.mark.parametrize("set_type", ["train", "dev", "test"])
  def test_sets_are_the_subclass_affair(self, set_type):
    processor = DataProcessor()
    with pytest.raises(NotImplementedError):
      getattr(processor, f"get_{set_type}_examples")("data")
    with pytest.raises(NotImplementedError):
      processor.get_labels()


class TestConvertSingleExample:
  def convert(self, tokenizer, text_a, text_b=None, label="no", length=10):
    example = InputExample("g-1", text_a, text_b, label)
    features = convert_single_example(
      9, example, ["yes", "no"], length, tokenizer
    )
    size = sum(features.input_mask)
    assert features.input_mask == [1] * size + [0] * (length - size)
    assert len(features.input_ids) == len(features.segment_ids) == length
    tokens = tokenizer.convert_ids_to_tokens(features.input_ids[:size])
    return " ".join(tokens), features.segment_ids[:size], features.label_id

  def test_the_originals_features(self, mrpc, tokenizer):
    labels = ["0", "1"]
    for number, r in enumerate(mrpc):
      example = InputExample(r["guid"], r["text_a"], r["text_b"], r["label"])
      features = convert_single_example(
        number, example, labels, SEQ_LENGTH, tokenizer
      )
      size = len(r["input_ids"])
      rest = [0] * (SEQ_LENGTH - size)
      assert features.input_ids == r["input_ids"] + rest, r["guid"]
      assert features.segment_ids == r["segment_ids"] + rest, r["guid"]
      assert features.input_mask == [1] * size + rest, r["guid"]
      assert features.label_id == r["label_id"], r["guid"]
      assert features.is_real_example

  def test_one_text(self, tokenizer):
    tokens, segments, label = self.convert(tokenizer, "the , .")
    assert tokens == "[CLS] the , . [SEP]"
    assert segments == [0] * 5
    assert label == 1

  def test_two_texts(self, tokenizer):
    tokens, segments, _ = self.convert(tokenizer, "the ,", "of")
    assert tokens == "[CLS] the , [SEP] of [SEP]"
    assert segments == [0, 0, 0, 0, 1, 1]

  def test_one_text_is_cut(self, tokenizer):
    tokens, _, _ = self.convert(tokenizer, "the of " * 9, length=6)
    assert tokens == "[CLS] the of the of [SEP]"

  def test_two_texts_are_cut(self, tokenizer):
    tokens, segments, _ = self.convert(
      tokenizer, ", " * 9, "the of and", length=8
    )
    assert tokens == "[CLS] , , , [SEP] the of [SEP]"
    assert segments == [0] * 5 + [1] * 3

  @pytest.mark.parametrize("text_b", [None, "", " \u200b"])
  def test_a_second_text_without_words_is_none(self, tokenizer, text_b):
    tokens, _, _ = self.convert(tokenizer, "the", text_b)
    assert tokens == "[CLS] the [SEP]"

  def test_no_words(self, tokenizer):
    assert self.convert(tokenizer, "")[0] == "[CLS] [SEP]"

  def test_no_label(self, tokenizer):
    assert self.convert(tokenizer, "the", label=None)[2] == 0

  def test_unknown_label(self, tokenizer):
    with pytest.raises(ValueError, match="g-1: label 'so' is none of yes, no"):
      self.convert(tokenizer, "the", label="so")

  def test_padding(self, tokenizer):
    features = convert_single_example(
      0, PaddingInputExample(), ["yes"], 4, tokenizer
    )
    assert list(features.input_ids) == [0] * 4
    assert list(features.input_mask) == [0] * 4
    assert list(features.segment_ids) == [0] * 4
    assert features.label_id == 0
    assert features.is_real_example is False


@pytest.fixture(scope="module")
def examples(mrpc):
  rows = [
    InputExample(r["guid"], r["text_a"], r["text_b"], r["label"])
    for r in mrpc[:11]
  ]
  return [*rows, PaddingInputExample()]


@pytest.fixture
def record_file(tmp_path, examples, tokenizer):
  path = str(tmp_path / "train.tf_record")
  file_based_convert_examples_to_features(
    examples, ["0", "1"], SEQ_LENGTH, tokenizer, path
  )
  return path


class TestRecordsAndBatches:
  def test_what_parse_example_reads(self, record_file, mrpc):
    ids = tf.io.FixedLenFeature([SEQ_LENGTH], tf.int64)
    number = tf.io.FixedLenFeature([], tf.int64)
    spec = {
      "input_ids": ids,
      "input_mask": ids,
      "segment_ids": ids,
      "label_ids": number,
      "is_real_example": number,
    }
    (records,) = tf.data.TFRecordDataset(record_file).batch(99)
    features = {
      n: v.numpy() for n, v in tf.io.parse_example(records, spec).items()
    }
    for number, r in enumerate(mrpc[:11]):
      size = len(r["input_ids"])
      assert features["input_ids"][number, :size].tolist() == r["input_ids"]
      assert features["input_mask"][number].sum() == size
    labels = [r["label_id"] for r in mrpc[:11]]
    assert features["label_ids"].tolist() == [*labels, 0]
    assert features["is_real_example"].tolist() == [1] * 11 + [0]

  @pytest.mark.parametrize("is_training", [True, False])
  @pytest.mark.parametrize("drop_remainder", [True, False])
  def test_both_input_fns_give_equal_batches(
    self, record_file, examples, tokenizer, is_training, drop_remainder
  ):
    features = convert_examples_to_features(
      examples, ["0", "1"], SEQ_LENGTH, tokenizer
    )
    of_memory = input_fn_builder(
      features, SEQ_LENGTH, is_training, drop_remainder
    )
    of_file = file_based_input_fn_builder(
      record_file, SEQ_LENGTH, is_training, drop_remainder
    )
    params = {"batch_size": 5}
    some, others = (
      list(input_fn(params).take(6)) for input_fn in (of_memory, of_file)
    )
    assert len(some) == len(others)
    assert len(some) == (6 if is_training else 2 if drop_remainder else 3)
    for one, other in zip(some, others, strict=True):
      assert one.keys() == other.keys() >= feature_spec(1).keys()
      for name in one:
        np.testing.assert_array_equal(one[name], other[name])

  def test_padding_is_not_real(self, record_file):
    input_fn = file_based_input_fn_builder(
      record_file, SEQ_LENGTH, is_training=False, drop_remainder=False
    )
    batches = list(input_fn({"batch_size": 5}))
    real = np.concatenate([b["is_real_example"].numpy() for b in batches])
    assert real.sum() == 11

  def test_a_file_of_another_length(self, record_file):
    input_fn = file_based_input_fn_builder(
      record_file, SEQ_LENGTH + 8, is_training=False, drop_remainder=False
    )
    with pytest.raises(ValueError, match=r"train\.tf_record"):
      input_fn({"batch_size": 5})

  def test_spec(self):
    assert feature_spec(7)["input_ids"] == inputs.int_feature(7)
