"""Files of predictions."""

import csv
import functools
import io
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.contract.task import RowSet
from bert.tasks.classification import label_types, prediction_files
from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
  Prediction,
)

ODD_TEXT = st.text(
  st.sampled_from(list("ab\"'\t\n |\\")) | st.characters(codec="utf-8"),
  min_size=1,
).filter(lambda text: "\r" not in text and "\0" not in text)


def read_table(text):
  return list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))


class TestRows:
  @given(st.lists(st.lists(ODD_TEXT, min_size=2, max_size=3), min_size=1))
  def test_any_table_reads_back(self, rows):
    file = io.StringIO(newline="")
    prediction_files.table_writer(file).writerows(rows)
    assert read_table(file.getvalue()) == rows


class TestWritePredictions:
  label_type = label_types.Classification(["b\tad", 'g"ood', "l\nong"])
  names = ("one", "t\two", 'th"ree')
  examples = tuple(InputExample(name, "text") for name in names)
  # exp(logit): 1 2 1, 5 2 1 and 1 1 2.
  logits = tuple(np.log(np.array(row)) for row in ([1, 2, 1], [5, 2, 1]))
  logits = (*logits, np.log(np.array([1, 1, 2])))

  def write(self, folder, examples, logits, suffix=""):
    settings = ClassifierSettings().with_label_type(self.label_type)
    rows = RowSet("test", suffix, examples, len(examples))
    answers = (Prediction(row, 0) for row in logits)
    ClassificationTask(settings).write(str(folder), rows, answers)

  def test_tables(self, tmp_path):
    self.write(tmp_path, self.examples, self.logits, "_mm")
    paths = {name: tmp_path / name for name in os.listdir(tmp_path)}
    assert sorted(paths) == ["test_predictions_mm.tsv", "test_results_mm.tsv"]
    table = read_table(paths["test_predictions_mm.tsv"].read_bytes().decode())
    assert table[0] == ["id", "label", *self.label_type.labels, "text"]
    assert [row[-1] for row in table[1:]] == ["text"] * 3
    assert [row[:2] for row in table[1:]] == [
      ["one", 'g"ood'],
      ["t\two", "b\tad"],
      ['th"ree', "l\nong"],
    ]
    expected = [[1 / 4, 2 / 4, 1 / 4], [5 / 8, 2 / 8, 1 / 8]]
    expected.append([1 / 4, 1 / 4, 2 / 4])
    for rows in (
      np.array([row[2:-1] for row in table[1:]], np.float64),
      np.loadtxt(paths["test_results_mm.tsv"], delimiter="\t"),
    ):
      np.testing.assert_allclose(rows, expected, rtol=1e-6)

  def test_given_labels(self):
    label_type = label_types.Classification(["no", "yes"])
    examples = [
      InputExample("7", "a", "b\tc", "yes"),
      InputExample("8", "d", "", "no"),
    ]
    rows = np.array([[0.75, 0.25], [0.5, 0.5]])
    text = prediction_files.predictions_table(label_type, examples, rows, True)
    assert read_table(text) == [
      ["id", "label", "given", "no", "yes", "text_a", "text_b"],
      ["7", "no", "yes", "0.750000", "0.250000", "a", "b\tc"],
      ["8", "no", "no", "0.500000", "0.500000", "d", ""],
    ]

  def test_labels_with_the_names_of_columns(self):
    label_type = label_types.Classification(["given", "id", "ids", "text"])
    example = InputExample("7", "a", None, "id")
    rows = np.array([[0.25, 0.5, 0.125, 0.125]])
    text = prediction_files.predictions_table(label_type, [example], rows, True)
    names, row = read_table(text)
    labels = ["probability_given", "probability_id", "ids", "probability_text"]
    assert names == ["id", "label", "given", *labels, "text"]
    assert row[:3] == ["7", "id", "id"]
    assert prediction_files.header(label_type) == ["id", "label", *labels]

  def test_more_rows_than_are_written_at_a_time(self, tmp_path):
    places = np.arange(2100) % 3
    examples = [InputExample(str(i), "text") for i in range(2100)]
    self.write(tmp_path, examples, np.eye(3)[places])
    table = read_table((tmp_path / "test_predictions.tsv").read_text())
    names = np.array(self.label_type.labels)[places]
    expected = [[str(i), name] for i, name in enumerate(names)]
    assert [row[:2] for row in table[1:]] == expected
    lines = (tmp_path / "test_results.tsv").read_text().splitlines()
    assert len(lines) == 2100


class Stub:
  """Answers with the length of a text; of a pair, with both lengths."""

  def __init__(self, is_pair=False):
    self.calls = []
    self.task = ClassificationTask(
      ClassifierSettings(kind="regression", is_pair=is_pair)
    )

  def answers(self, inputs):
    self.calls.append(inputs)
    return [Prediction(self._number(*texts), 0) for texts in inputs]

  def _number(self, text_a, text_b=None):
    number = len(text_a)
    if text_b is not None:
      number = 1000 * number + len(text_b)
    return np.array([number], np.float32)


PairStub = functools.partial(Stub, is_pair=True)


def answered(content, stub=None):
  """What `answer_lines` writes to bytes, as rows under the header."""
  writer = io.StringIO()
  stub = stub or Stub()
  prediction_files.answer_lines(stub, io.BytesIO(content), "f.txt", writer)
  header, *rows = read_table(writer.getvalue())
  assert header == prediction_files.header(stub.task.label_type)
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

  @given(st.lists(st.integers(0, 5)), st.integers(1, 7), st.booleans())
  def test_however_the_bytes_come(self, lengths, size, ends):
    content = b"\n".join(b"x" * n for n in lengths) + b"\n" * ends
    stub, writer = Stub(), io.StringIO()

    class Dripping(io.BytesIO):
      def read1(self, limit=-1):
        return super().read1(min(size, limit))

    prediction_files.answer_lines(stub, Dripping(content), "f.txt", writer)
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

  @pytest.mark.parametrize(
    ("stub", "content", "message"),
    [
      (Stub, b"x\n\xff\n", r"f.txt:2: byte 2 is not UTF-8; convert the file"),
      (Stub, b"\xff\xfea\0\n\0", r"f.txt:1: the file is in UTF-16; convert"),
      (Stub, b"x\n" * 1500 + b"y\xe9", r"f.txt:1501: byte 3001 is not UTF-8"),
      (Stub, b"a\tb\n", r"f.txt:1: 2 texts, .*; the model needs one text, per"),
      (Stub, b"\na\tb\tc\n", r"f.txt:2: 3 texts, "),
      (
        PairStub,
        b"a\tb\nab\n",
        r"f.txt:2: 1 text, .*; the model needs two texts",
      ),
      (PairStub, b"\n" * 1500 + b"a\tb", r"f.txt:1: 1 text, "),
      (PairStub, b"a\tb\n \n", r"f.txt:2: 1 text, "),
    ],
  )
  def test_errors_name_the_line(self, stub, content, message):
    writer, stub = io.StringIO(), stub()
    reader = io.BytesIO(content)
    with pytest.raises(ValueError, match=message) as error:
      prediction_files.answer_lines(stub, reader, "f.txt", writer)
    assert "\n" not in str(error.value)
    assert not writer.getvalue()
    assert not stub.calls

  def test_a_file_is_read_from_where_it_stands(self):
    """As after a shell's `read`."""
    reader, writer = io.BytesIO(b"no\tno\nabc\n"), io.StringIO()
    reader.readline()
    prediction_files.answer_lines(Stub(), reader, "f.txt", writer)
    assert writer.getvalue().splitlines()[1:] == ["0\t3"]


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
          prediction_files.answer_lines(Stub(), reader, "pipe", writer)
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
