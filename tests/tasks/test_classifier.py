"""A trained classifier, in Python and on the terminal."""

import csv
import io
import json
import os
import re
import threading

import numpy as np
import pytest
import tensorflow as tf
from golden_classifier import LABEL_TYPES, LABELS, golden_values, logits_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

import tokenization
from bert.errors import UserError
from bert.tasks import classification, classifier, prediction_files
from bert.tasks import labels as label_types
from bert.tasks.classifier import Classifier
from bert.training import checkpoints

# Words of the golden vocabulary, each a single piece.
WORDS = re.findall(
  r"\w+",
  "that with from were which this their also first after they been have during"
  " into time when city would more north other three over",
)


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory, golden, goldens):
  """Makes the folder that a training leaves; returns it and its weights."""

  def make(kind="classification", seed=5, long_text="head", is_pair=False):
    label_type = LABEL_TYPES[kind]
    folder = tmp_path_factory.mktemp(kind)
    values = golden_values(golden, label_type.num_outputs, seed)
    reading = classification.Reading(12, long_text, is_pair)
    checkpoints.write_release(
      str(folder),
      values,
      {
        "bert_config.json": golden.config.to_json_string(),
        "vocab.txt": (goldens / "vocab.txt").read_bytes(),
        **classification.assets(label_type, reading),
      },
    )
    return folder, values

  return make


@pytest.fixture(scope="module")
def trained(make_folder):
  """A folder, its weights and its Classifier."""
  folder, values = make_folder()
  return folder, values, Classifier(str(folder))


@pytest.fixture(scope="module")
def ids_of(goldens):
  """The function of words that gives their pieces' ids, [CLS] and all."""
  vocab = tokenization.load_vocab(str(goldens / "vocab.txt"))

  def ids(*texts):
    pieces = [
      ["[CLS]", *texts[0], "[SEP]"],
      *([*t, "[SEP]"] for t in texts[1:]),
    ]
    flat = [vocab[piece] for text in pieces for piece in text]
    segments = [i for i, text in enumerate(pieces) for _ in text]
    return [np.array([row]) for row in (flat, [1] * len(flat), segments)]

  return ids


def texts_of_all_lengths(seed=0):
  draw = np.random.default_rng(seed)
  return [" ".join(draw.choice(WORDS, size)) for size in draw.permutation(12)]


class TestClassifier:
  def test_probabilities_by_definition(self, golden, trained, ids_of):
    _, values, model = trained
    texts = texts_of_all_lengths()
    # A text of more than 10 pieces loses its end.
    logits = [
      logits_of(golden, values, *ids_of(text.split()[:10]))[0] for text in texts
    ]
    expected = special.softmax(logits, axis=1)
    assert np.ptp(expected, axis=0).min() > 0.01
    found = model.probabilities(texts)
    assert (found.shape, found.dtype) == ((12, 3), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-4)

  def test_answers(self, trained):
    _, _, model = trained
    texts = texts_of_all_lengths()
    predictions = model(texts)
    found = model.probabilities(texts)
    for row, prediction in zip(found, predictions, strict=True):
      assert list(prediction.probabilities) == LABELS
      assert list(prediction.probabilities.values()) == row.tolist()
      assert prediction.label == LABELS[np.argmax(row)]

  @pytest.mark.parametrize("batch_size", [1, 5])
  def test_whatever_the_batch_and_the_neighbors(self, trained, batch_size):
    folder, _, model = trained
    texts = texts_of_all_lengths()
    other = Classifier(str(folder), batch_size)
    expected = model.probabilities(texts)
    np.testing.assert_allclose(other.probabilities(texts), expected, rtol=1e-5)
    np.testing.assert_allclose(
      other.probabilities(texts[::-1] + texts[3:5]),
      np.concatenate([expected[::-1], expected[3:5]]),
      rtol=1e-5,
    )
    alone = model.probabilities(texts[4:5])
    np.testing.assert_allclose(alone, expected[4:5], rtol=1e-5)

  def test_nothing(self, trained):
    _, _, model = trained
    assert model([]) == []
    assert model.probabilities([]).shape == (0, 3)

  @pytest.mark.parametrize("text", [None, float("nan"), 5, (None,), [b"a"]])
  def test_what_is_no_text_is_refused(self, trained, text):
    _, _, model = trained
    with pytest.raises(UserError, match="pass texts as str"):
      model(["a", text])

  def test_rows_of_an_array(self, trained):
    _, _, model = trained
    rows = np.array([["the"], ["of the"]])
    found = model.probabilities(rows)
    assert found.tolist() == model.probabilities(["the", "of the"]).tolist()

  def test_a_text_without_words(self, golden, trained, ids_of):
    _, values, model = trained
    logits = logits_of(golden, values, *ids_of([]))
    np.testing.assert_allclose(
      model.probabilities(["", " \t"]),
      special.softmax(np.repeat(logits, 2, axis=0), axis=1),
      rtol=1e-4,
    )

  def test_one_trace_serves_all(self, trained, monkeypatch):
    folder, _, _ = trained
    traces = []
    compute_logits = classification.compute_logits

    def counted(*args):
      traces.append(args)
      return compute_logits(*args)

    monkeypatch.setattr(classification, "compute_logits", counted)
    model = Classifier(str(folder), batch_size=3)
    for text in texts_of_all_lengths():
      model([text])
    model(texts_of_all_lengths())
    assert len(traces) == 1

  def test_pairs(self, golden, make_folder, ids_of):
    folder, values = make_folder(is_pair=True)
    model = Classifier(str(folder))
    assert model.is_pair
    pairs = [(WORDS[:2], WORDS[2:7]), (WORDS[:1], WORDS[1:2])]
    # Of 9 pieces, each text has its half, and what the other leaves of its.
    cut = [*pairs, (WORDS[:2], WORDS[2:9])]
    pairs.append((WORDS[:2], WORDS[2:20]))
    logits = [logits_of(golden, values, *ids_of(*pair))[0] for pair in cut]
    found = model.probabilities([tuple(map(" ".join, pair)) for pair in pairs])
    np.testing.assert_allclose(
      found, special.softmax(logits, axis=1), rtol=1e-4
    )

  def test_long_texts_in_windows(self, golden, make_folder, ids_of):
    folder, values = make_folder(long_text="mean_windows")
    model = Classifier(str(folder), batch_size=2)
    # 24 pieces, where 10 find room: three windows of 8.
    windows = [WORDS[:8], WORDS[8:16], WORDS[16:24]]
    rows = [logits_of(golden, values, *ids_of(words)) for words in windows]
    short = logits_of(golden, values, *ids_of(WORDS[:3]))
    logits = np.concatenate([short, np.mean(rows, axis=0), short])
    texts = [" ".join(words) for words in (WORDS[:3], WORDS[:24], WORDS[:3])]
    np.testing.assert_allclose(
      model.probabilities(texts), special.softmax(logits, axis=1), rtol=1e-4
    )

  def test_several_labels(self, golden, make_folder, ids_of):
    folder, values = make_folder("multilabel")
    model = Classifier(str(folder))
    (prediction,) = model([" ".join(WORDS[:4])])
    expected = special.expit(logits_of(golden, values, *ids_of(WORDS[:4]))[0])
    found = list(prediction.probabilities.values())
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    likely = [name for name, p in zip(LABELS, expected, strict=True) if p > 0.5]
    assert prediction.label == "|".join(likely)

  def test_a_number(self, golden, make_folder, ids_of):
    folder, values = make_folder("regression")
    model = Classifier(str(folder))
    (prediction,) = model([" ".join(WORDS[:4])])
    expected = logits_of(golden, values, *ids_of(WORDS[:4]))[0, 0]
    assert prediction.label == pytest.approx(expected, rel=1e-4)
    assert prediction.probabilities == {}

  def test_bfloat16_is_near(self, trained):
    folder, _, model = trained
    rough = Classifier(str(folder), precision="bfloat16")
    texts = texts_of_all_lengths()
    found, expected = rough.probabilities(texts), model.probabilities(texts)
    assert found.dtype == np.float32
    assert np.any(found != expected)
    np.testing.assert_allclose(found, expected, atol=0.1)

  def test_two_side_by_side(self, trained, make_folder):
    _, _, first = trained
    folder, _ = make_folder(seed=6)
    texts = texts_of_all_lengths()
    before = first.probabilities(texts)
    second = Classifier(str(folder))
    found = second.probabilities(texts)
    assert np.abs(found - before).max() > 0.01
    np.testing.assert_array_equal(first.probabilities(texts), before)
    np.testing.assert_array_equal(second.probabilities(texts), found)

  @pytest.mark.parametrize("shared", [True, False])
  def test_two_threads(self, trained, shared):
    folder, _, model = trained
    fresh = [Classifier(str(folder)) for _ in range(1 + (not shared))]
    texts = [texts_of_all_lengths(seed) for seed in range(2)]
    start = threading.Barrier(2)
    found = [None, None]

    def ask(i):
      start.wait(20)
      found[i] = [fresh[-i].probabilities(texts[i]) for _ in range(3)]

    threads = [threading.Thread(target=ask, args=[i]) for i in range(2)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(60)
    for rows, own in zip(found, texts, strict=True):
      for again in rows:
        np.testing.assert_allclose(again, model.probabilities(own), rtol=1e-5)


class TestFolder:
  @pytest.mark.parametrize(
    "name", ["labels.json", "bert_config.json", "bert_model.ckpt.index"]
  )
  def test_no_classifier_there(self, make_folder, name):
    folder, _ = make_folder()
    (folder / name).unlink()
    with pytest.raises(ValueError, match="does not hold a trained classifier"):
      Classifier(str(folder))

  def test_a_folder_of_seeds(self, make_folder, tmp_path):
    folder, _ = make_folder()
    other, _ = make_folder()
    (other / "classifier.json").unlink()
    (other / "labels.json").unlink()
    (tmp_path / "another").symlink_to(other)
    (tmp_path / "seed-1").symlink_to(folder)
    with pytest.raises(ValueError, match=f"such as {tmp_path}/seed-1$"):
      Classifier(str(tmp_path))

  @pytest.mark.parametrize("name", ["", "nowhere"])
  def test_no_folder(self, tmp_path, name):
    with pytest.raises(ValueError, match="does not hold a trained classifier"):
      Classifier(str(tmp_path / name))

  def test_no_vocabulary(self, make_folder):
    folder, _ = make_folder()
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"neither vocab.txt nor one Sentence"):
      Classifier(str(folder))

  def test_labels_of_another_model(self, make_folder):
    folder, _ = make_folder()
    (folder / "labels.json").write_text('["a", "b"]')
    with pytest.raises(ValueError, match=r"output_weights has shape \[3, 32\]"):
      Classifier(str(folder))

  def test_the_length_fits_the_positions(self, golden, make_folder, ids_of):
    folder, values = make_folder()
    name = "bert/embeddings/position_embeddings"
    config = golden.config.to_dict() | {"max_position_embeddings": 16}
    contents = {"bert_config.json": json.dumps(config)}
    short = {**values, name: values[name][:16]}
    checkpoints.write_release(str(folder), short, contents)
    (folder / "classifier.json").unlink()
    found = Classifier(str(folder)).probabilities([" ".join(WORDS)])
    logits = logits_of(golden, values, *ids_of(WORDS[:14]))
    np.testing.assert_allclose(
      found, special.softmax(logits, axis=1), rtol=1e-4
    )
    (folder / "classifier.json").write_text('{"max_seq_length": 17}')
    with pytest.raises(
      ValueError, match=r"\.json: max_seq_length=17 is more than the 16 pos"
    ):
      Classifier(str(folder))

  def test_case_counts_where_it_did_in_training(self, make_folder, trained):
    folder, _ = make_folder()
    config = json.loads((folder / "bert_config.json").read_text())
    config["do_lower_case"] = False
    (folder / "bert_config.json").write_text(json.dumps(config))
    cased = Classifier(str(folder))
    _, _, uncased = trained
    lower, upper = uncased.probabilities(["river year", "River YEAR"])
    np.testing.assert_allclose(lower, upper, rtol=1e-6)
    same, other = cased.probabilities(["river year", "River YEAR"])
    np.testing.assert_allclose(same, lower, rtol=1e-5)
    assert np.abs(same - other).max() > 1e-3


class Stub:
  """Answers with the length of a text; of a pair, with both lengths."""

  is_pair = False
  label_type = label_types.Regression()

  def __init__(self):
    self.calls = []

  def probabilities(self, texts):
    self.calls.append(texts)
    return np.array([[self._number(*text)] for text in texts], np.float32)

  def _number(self, text):
    return len(text)


class PairStub(Stub):
  is_pair = True

  def _number(self, text_a, text_b):
    return 1000 * len(text_a) + len(text_b)


def read_table(text):
  return list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))


def answered(content, stub=None):
  """What `answer_lines` writes to bytes, as rows under the header."""
  writer = io.StringIO()
  stub = stub or Stub()
  classifier.answer_lines(stub, io.BytesIO(content), writer, "f.txt")
  header, *rows = read_table(writer.getvalue())
  assert header == prediction_files.header(stub.label_type)
  return rows


class TestAnswerLines:
  @pytest.mark.parametrize(
    ("content", "lengths"),
    [
      (b"", []),
      (b"one\n", [3]),
      (b"one", [3]),
      (b"one\nseven..", [3, 7]),
      (b"\n", [0]),
      (b"\n\n\nx\n", [0, 0, 0, 1]),
      (b"one\r\n\r\nseven..\r\n", [3, 0, 7]),
      (" é€\n".encode(), [3]),
      # No line ends here but at newlines.
      ("a\x0bb\x0cc\x85d\u2028e\n".encode(), [9]),
    ],
  )
  def test_one_row_for_each_line(self, content, lengths):
    expected = [[str(i), str(n)] for i, n in enumerate(lengths)]
    assert answered(content) == expected

  def test_numbers_run_on(self):
    lines = [b"x" * (i % 7) for i in range(3000)]
    stub = Stub()
    rows = answered(b"\n".join(lines) + b"\n", stub)
    assert len(stub.calls) > 1
    assert rows == [[str(i), str(i % 7)] for i in range(3000)]

  def test_a_line_longer_than_what_is_read_at_once(self):
    rows = answered(b"a\n" + b"x" * (3 * 2**20 + 1) + b"\nbc")
    assert [float(row[1]) for row in rows] == [1, 3 * 2**20 + 1, 2]

  @given(st.lists(st.integers(0, 5)), st.integers(1, 7), st.booleans())
  def test_however_the_bytes_come(self, lengths, size, ends):
    content = b"\n".join(b"x" * n for n in lengths) + b"\n" * ends
    stub, writer = Stub(), io.StringIO()

    class Dripping(io.BytesIO):
      def read1(self, limit=-1):
        return super().read1(min(size, limit))

    classifier.answer_lines(stub, Dripping(content), writer, "f.txt")
    _, *rows = read_table(writer.getvalue())
    expected = content.decode().split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    assert [float(row[1]) for row in rows] == [len(line) for line in expected]
    assert [row[0] for row in rows] == [str(i) for i in range(len(rows))]

  def test_pairs(self):
    rows = answered(b"ab\tc\n\tx\ny\t\n", PairStub())
    assert [float(row[1]) for row in rows] == [2001, 1, 1000]

  @pytest.mark.parametrize("end", [b"\n", b"\r\n\n", b"\n" * 1500])
  def test_empty_lines_after_the_last_pair(self, end):
    assert answered(b"ab\tc\n" + end, PairStub()) == [["0", "2001"]]
    assert answered(end, PairStub()) == []

  @pytest.mark.parametrize("name", ["a.csv", "A.CSV.GZ", "a.JsonL"])
  def test_a_table_is_no_file_of_lines(self, name):
    with pytest.raises(UserError, match=f"{name} would be read as lines of te"):
      classifier.answer_file(Stub(), name, io.StringIO())

  def test_a_file_of_tensorflows(self, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"a\nabc")
    writer = io.StringIO()
    with tf.io.gfile.GFile(str(path), "rb") as reader:
      classifier.answer_lines(Stub(), reader, writer, str(path))
    assert writer.getvalue() == "id\tnumber\n0\t1\n1\t3\n"

  @pytest.mark.parametrize(
    ("stub", "content", "message"),
    [
      (Stub, b"x\n\xff\n", r"f.txt:2: byte 0 of the line is not UTF-8; conv"),
      (Stub, b"x\n" * 1500 + b"y\xe9", r"f.txt:1501: byte 1 of the line is no"),
      (Stub, b"a\tb\n", r"f.txt:1: 2 texts, .*; the model needs one text, per"),
      (Stub, b"\na\tb\tc\n", r"f.txt:2: 3 texts, "),
      (
        PairStub,
        b"a\tb\nab\n",
        r"f.txt:2: 1 text, .*; the model needs two texts",
      ),
      (PairStub, b"a\tb\n\nc\td", r"f.txt:2: 1 text, .*; the model needs two"),
      (PairStub, b"\n" * 1500 + b"a\tb", r"f.txt:1: 1 text, "),
      (PairStub, b"a\tb\n \n", r"f.txt:2: 1 text, "),
    ],
  )
  def test_errors_name_the_line(self, stub, content, message):
    with pytest.raises(ValueError, match=message) as error:
      answered(content, stub())
    assert "\n" not in str(error.value)

  def test_an_error_of_the_reader_is_shown(self):
    class Broken(io.BytesIO):
      def read1(self, limit=-1):
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
      classifier.answer_lines(Stub(), Broken(), io.StringIO(), "f.txt")


class TestPipe:
  """The reader is a pipe whose other end stays open."""

  @pytest.fixture
  def pipe(self):
    """Asks for lines and gives the rows that come for them, with a deadline."""
    read_end, asked = os.pipe()
    answered, write_end = os.pipe()
    errors = []

    def answer():
      try:
        with open(read_end, "rb") as reader, open(write_end, "w") as writer:
          classifier.answer_lines(Stub(), reader, writer, "pipe")
      except ValueError as error:
        errors.append(error)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with open(asked, "wb", buffering=0) as ask, open(answered) as rows:
      yield ask, _until(rows, 20), thread, errors
    thread.join(20)
    assert not thread.is_alive()

  def test_answers_come_before_the_reader_ends(self, pipe):
    ask, rows, _, _ = pipe
    assert rows() == "id\tnumber\n"
    ask.write(b"abc\n")
    assert rows() == "0\t3\n"
    ask.write(b"a\nab\nsplit")
    assert [rows(), rows()] == ["1\t1\n", "2\t2\n"]
    ask.write(b" line\r\nrest")
    assert rows() == "3\t10\n"
    ask.close()
    assert [rows(), rows()] == ["4\t4\n", ""]

  def test_an_error_ends_it_though_the_pipe_stays_open(self, pipe):
    ask, _, thread, errors = pipe
    # Nothing may stay behind that reads on: it would hold a lock that the
    # interpreter needs to shut down.
    before = threading.active_count()
    ask.write(b"a\tb\n")
    thread.join(20)
    assert not thread.is_alive()
    assert threading.active_count() == before - 1
    assert "pipe:1: 2 texts, " in str(errors[0])


def _until(lines, seconds):
  """A function that gives the next line, and fails if none comes in time."""

  def next_line():
    found = []
    thread = threading.Thread(
      target=lambda: found.append(lines.readline()), daemon=True
    )
    thread.start()
    thread.join(seconds)
    assert found, "no line came"
    return found[0]

  return next_line


class TestConverse:
  def talk(self, stub, *lines):
    """The prompts and answers of a dialogue."""
    prompts, said, lines = [], [], iter(lines)

    def read(prompt):
      prompts.append(prompt)
      try:
        return next(lines)
      except StopIteration:
        raise EOFError from None

    classifier.converse(stub, read, said.append)
    assert said.pop() == ""  # The shell's prompt starts on a new line.
    return prompts, said

  def test_until_the_end(self):
    prompts, said = self.talk(Stub(), "abc", "", "  ", "a")
    assert prompts == ["> "] * 5
    assert said == ["3", "1"]

  def test_pairs(self):
    prompts, said = self.talk(PairStub(), "ab", "c", "", "x", "", " ", "half")
    assert prompts == ["first text> ", "second text> "] * 4
    assert said == ["2001", "1"]

  @pytest.mark.parametrize(
    ("label_type", "probabilities", "words"),
    [
      (
        label_types.Classification(["no", "yes", "so"]),
        [0.2, 0.7, 0.1],
        "yes   (yes 70.0%, no 20.0%, so 10.0%)",
      ),
      (
        label_types.Multilabel(["a", "b", "c"]),
        [0.6, 0.2, 0.9],
        "a|c   (c 90.0%, a 60.0%, b 20.0%)",
      ),
      (
        label_types.Multilabel(["a", "b"]),
        [0.25, 0.125],
        "no label   (a 25.0%, b 12.5%)",
      ),
      (label_types.Regression(), [2.5], "2.5"),
    ],
  )
  def test_words(self, label_type, probabilities, words):
    stub = Stub()
    stub.label_type = label_type
    stub.probabilities = lambda texts: np.array([probabilities])
    assert self.talk(stub, "text")[1] == [words]
