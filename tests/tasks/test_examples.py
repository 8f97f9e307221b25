"""Labeled texts, and the features that a classifier reads of them."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tiny_task import write_tsv

import tokenization
from run_classifier import file_based_input_fn_builder, input_fn_builder
from bert.data import records, sequences
from bert.engine import inputs
from bert.errors import UserError
from bert.tasks.classification import label_types
from bert.tasks.classification.examples import (
  LONG_TEXT,
  DataProcessor,
  InputExample,
  PaddingInputExample,
  content_hash,
  convert_example,
  convert_examples_to_features,
  convert_single_example,
  feature_spec,
  file_based_convert_examples_to_features,
)
from bert.training import estimator

SEQ_LENGTH = 48


class TestReadTsv:
  @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
  def test_newlines(self, tmp_path, newline):
    path = tmp_path / "a.tsv"
    path.write_bytes(newline.join(["a\tb", "", "c", ""]).encode())
    assert DataProcessor._read_tsv(str(path)) == [["a", "b"], [], ["c"]]

  def test_quotation_marks_on_demand(self, tmp_path):
    path = write_tsv(
      tmp_path / "a.tsv", ('"a\tb"', "c"), ('"d ""e"""', 'f"'), newline="\r\n"
    )
    lines = DataProcessor._read_tsv(str(path), quotechar='"')
    assert lines == [["a\tb", "c"], ['d "e"', 'f"']]


class TestDataProcessor:
  def test_missing_methods_raise_as_in_the_original(self):
    processor = DataProcessor()
    for set_type in ("train", "dev", "test"):
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

  @pytest.mark.parametrize("text_b", [None, "", " \u200b"])
  def test_one_text(self, tokenizer, text_b):
    """Also beside a second one without words."""
    tokens, segments, label = self.convert(tokenizer, "the , .", text_b)
    assert tokens == "[CLS] the , . [SEP]"
    assert (segments, label) == ([0] * 5, 1)

  def test_a_missing_label_is_no_label(self, tokenizer):
    example = InputExample("dev-3", "the", None, None)
    with pytest.raises(UserError, match="dev-3 has no label"):
      convert_single_example(0, example, ["a", "b"], 8, tokenizer)

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


class WordTokenizer:
  """Any words between blanks; their ids are the numbers that they are."""

  special = tokenization.SpecialPieces()

  def tokenize(self, text):
    return text.split()

  def convert_tokens_to_ids(self, tokens):
    special = {"[CLS]": 1001, "[SEP]": 1002}
    return [special.get(token) or int(token) for token in tokens]

  def convert_ids_to_tokens(self, ids):
    return [str(number) for number in ids]


class TestEvaluationInput:
  """Rows come as in the original: user code zips them with its examples."""

  # The rows [CLS] ... [SEP] have 9, 3 and 5 positions.
  TEXTS = ("11 12 13 14 15 16 17", "21", "31 32 33")
  WIDTH = 12

  @pytest.fixture(params=["file", "files", "memory"])
  def builder(self, request, tmp_path):
    """A function from `drop_remainder` to the input_fn of the texts."""
    examples = [InputExample(text, text, None, "a") for text in self.TEXTS]
    arguments = (examples, ["a"], self.WIDTH, WordTokenizer())
    if request.param == "memory":
      features = convert_examples_to_features(*arguments)
      return lambda drops: input_fn_builder(features, self.WIDTH, False, drops)
    parts = [examples]
    if request.param == "files":
      parts = [examples[:1], examples[1:]]
    paths = [str(tmp_path / f"{i}.tf_record") for i in range(len(parts))]
    for part, path in zip(parts, paths, strict=True):
      file_based_convert_examples_to_features(part, *arguments[1:], path)
    return lambda drops: file_based_input_fn_builder(
      paths[0] if request.param == "file" else paths, self.WIDTH, False, drops
    )

  def row(self, text):
    """The ids of a text, padded."""
    return sequences.padded([1001, *map(int, text.split()), 1002], self.WIDTH)

  def test_rows_keep_order_and_width(self, builder):
    dataset = builder(False)({"batch_size": 2})
    ids = [batch["input_ids"].numpy().tolist() for batch in dataset]
    rows = [self.row(text) for text in self.TEXTS]
    assert ids == [rows[:2], rows[2:]]
    masks = [batch["input_mask"].numpy().sum(axis=1) for batch in dataset]
    assert [mask.tolist() for mask in masks] == [[9, 3], [5]]
    assert dataset.element_spec["input_ids"].shape == [None, self.WIDTH]

  def test_predictions_can_be_zipped(self, builder, tmp_path):
    def model_fn(features, labels, mode, params):
      del labels, params
      ids = features["input_ids"]
      size = tf.fill(tf.shape(ids)[:1], tf.shape(ids)[0])
      return estimator.EstimatorSpec(
        mode, predictions={"ids": ids, "batch_size": size}
      )

    config = estimator.RunConfig(str(tmp_path / "model"))
    model = estimator.Estimator(model_fn, config)
    rows = list(model.predict(builder(False), 2))
    for row, text in zip(rows, self.TEXTS, strict=True):
      assert row["ids"].tolist() == self.row(text)
    assert [row["batch_size"] for row in rows] == [2, 2, 1]


def numbers(first, count):
  return " ".join(str(first + i) for i in range(count))


def convert(size_a, size_b, length, long_text):
  """What is left of texts 1, 2, ... and 501, 502, ...: pairs of lists."""
  example = InputExample("g", numbers(1, size_a), numbers(501, size_b), "no")
  windows = convert_example(
    example,
    label_types.as_label_type(["yes", "no"]),
    length,
    WordTokenizer(),
    long_text,
  )
  pairs = []
  for f in windows:
    size = sum(f.input_mask)
    assert f.input_mask == [1] * size + [0] * (length - size)
    assert len(f.input_ids) == len(f.segment_ids) == length
    ids = f.input_ids[:size]
    assert ids[0] == 1001
    assert ids[-1] == 1002
    a = ids[1 : ids.index(1002)]
    b = ids[len(a) + 2 : -1]
    assert f.segment_ids[:size] == [0] * (len(a) + 2) + [1] * (
      size - len(a) - 2
    )
    assert f.label_id == 1
    pairs.append((a, b))
  return pairs, windows[0].was_cut


SIZES = st.integers(0, 60)


class TestLongText:
  def test_head_tail_as_in_the_paper(self):
    ((kept, _),), _ = convert(700, 0, 512, "head_tail")
    assert kept == [*range(1, 129), *range(700 - 382 + 1, 701)]

  def test_head_tail_of_a_pair(self):
    # Of 10, the first text has 8 that the second leaves.
    ((a, b),), _ = convert(100, 2, 13, "head_tail")
    assert a == [1, 2, *range(95, 101)]
    assert b == [501, 502]

  def test_windows_are_equally_long(self):
    pairs, was_cut = convert(9, 0, 6, "mean_windows")
    assert pairs == [([1, 2, 3], []), ([4, 5, 6], []), ([7, 8, 9], [])]
    assert not was_cut

  @pytest.mark.parametrize("question_first", [True, False])
  def test_windows_repeat_a_short_question(self, question_first):
    sizes = (2, 20) if question_first else (20, 2)
    pairs, _ = convert(*sizes, 13, "mean_windows")
    questions, texts = zip(
      *(pair if question_first else pair[::-1] for pair in pairs), strict=True
    )
    assert [len(question) for question in questions] == [2, 2, 2]
    assert [len(text) for text in texts] == [6, 7, 7]

  def test_windows_of_two_long_texts(self):
    # Each has 2 of 4; three pieces of one go with five of the other.
    pairs, _ = convert(6, 10, 7, "mean_windows")
    assert pairs == [
      ([1, 2], [501, 502]),
      ([1, 2], [503, 504]),
      ([3, 4], [505, 506]),
      ([3, 4], [507, 508]),
      ([5, 6], [509, 510]),
    ]

  @given(SIZES, SIZES, st.integers(5, 40), st.sampled_from(LONG_TEXT))
  def test_properties(self, size_a, size_b, length, long_text):
    pairs, was_cut = convert(size_a, size_b, length, long_text)
    is_long = size_a + size_b > length - (3 if size_b else 2)
    seen_a, seen_b = (
      list(dict.fromkeys(word for pair in pairs for word in pair[i]))
      for i in (0, 1)
    )
    everything = (list(range(1, size_a + 1)), list(range(501, 501 + size_b)))
    if long_text == "mean_windows" or not is_long:
      assert (seen_a, seen_b) == everything
      assert not was_cut
      assert (len(pairs) > 1) == is_long
    else:
      assert was_cut
      assert len(pairs) == 1
      room = length - (3 if size_b else 2)
      kept = sequences.share_room(size_a, size_b, room)
      assert (len(seen_a), len(seen_b)) == kept
      assert seen_a == sorted(seen_a)
      assert seen_b == sorted(seen_b)
    for a, b in pairs:
      assert bool(a) == bool(size_a)
      assert bool(b) == bool(size_b)


class TestLabelTypes:
  def encode(self, label_type, label):
    example = InputExample("dev-5", "1", None, label)
    (features,) = convert_example(example, label_type, 8, WordTokenizer())
    row = {
      "input_ids": features.input_ids,
      "input_mask": features.input_mask,
      "segment_ids": features.segment_ids,
      "label_ids": features.label_id,
      "is_real_example": 1,
    }
    spec = feature_spec(8, label_type)
    record = records.encode_row(row, spec)
    batch = inputs.read_batch([record], [0], [True], spec)
    label_ids = batch["label_ids"]
    return label_ids.dtype, label_ids.numpy()[0].tolist()

  @pytest.mark.parametrize(
    ("label_type", "dtype", "values"),
    [
      (label_types.Classification("ab"), tf.int32, {"b": 1, None: 0}),
      (
        label_types.Multilabel("abc"),
        tf.int32,
        {"c|a": [1, 0, 1], None: [0, 0, 0]},
      ),
      (label_types.Regression(), tf.float32, {"-2.5": -2.5, None: 0.0}),
    ],
  )
  def test_what_a_batch_has(self, label_type, dtype, values):
    for label, value in values.items():
      assert self.encode(label_type, label) == (dtype, value)
    with pytest.raises(ValueError, match=r"^example dev-5: label 'x' is not "):
      self.encode(label_type, "x")


class TestContentHash:
  def test_by_hand(self):
    rows = [["a text", "another", "yes"], ["é", None, None]]
    content = '["a text", "another", "yes"]["\\u00e9", null, null]'
    expected = hashlib.sha256(content.encode()).hexdigest()
    assert content_hash(iter(rows)) == expected
    assert content_hash([]) == hashlib.sha256(b"").hexdigest()
