"""Files of predictions."""

import csv
import io
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.tasks import labels as label_types
from bert.tasks import prediction_files
from bert.tasks.examples import InputExample

ODD_TEXT = st.text(
  st.sampled_from(list("ab\"'\t\n |\\")) | st.characters(codec="utf-8"),
  min_size=1,
).filter(lambda text: "\r" not in text and "\0" not in text)


def read_table(text):
  return list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))


class TestRows:
  @pytest.mark.parametrize(
    ("label_type", "probabilities", "header", "row"),
    [
      (
        label_types.Classification(["no", "yes"]),
        [1 / 3, 2 / 3],
        ["id", "label", "no", "yes"],
        ["x", "yes", "0.333333", "0.666667"],
      ),
      (
        label_types.Multilabel(["a", "b", "c"]),
        [0.9, 0.5, 0.75],
        ["id", "label", "a", "b", "c"],
        ["x", "a|c", "0.900000", "0.500000", "0.750000"],
      ),
      (
        label_types.Multilabel(["a", "b"]),
        [0.25, 0.5],
        ["id", "label", "a", "b"],
        ["x", "", "0.250000", "0.500000"],
      ),
      (label_types.Regression(), [2.34567], ["id", "number"], ["x", "2.34567"]),
    ],
  )
  def test_header_and_row(self, label_type, probabilities, header, row):
    assert prediction_files.header(label_type) == header
    assert (
      prediction_files.table_row(label_type, "x", np.array(probabilities))
      == row
    )

  @given(st.lists(st.lists(ODD_TEXT, min_size=2, max_size=3), min_size=1))
  def test_any_table_reads_back(self, rows):
    file = io.StringIO(newline="")
    prediction_files.table_writer(file).writerows(rows)
    assert read_table(file.getvalue()) == rows

  def test_plain_text_stays_plain(self):
    file = io.StringIO()
    prediction_files.table_writer(file).writerow(["1", "so-so, it's", "0.5"])
    assert file.getvalue() == "1\tso-so, it's\t0.5\n"


class TestWritePredictions:
  label_type = label_types.Classification(["b\tad", 'g"ood', "l\nong"])
  names = ("one", "t\two", 'th"ree')
  examples = tuple(InputExample(name, "text") for name in names)
  # exp(logit): 1 2 1, 5 2 1 and 1 1 2.
  logits = tuple(np.log(np.array(row)) for row in ([1, 2, 1], [5, 2, 1]))
  logits = (*logits, np.log(np.array([1, 1, 2])))

  def write(self, folder, examples=None, logits=None, suffix=""):
    return prediction_files.write_predictions(
      str(folder),
      suffix,
      self.label_type,
      self.examples if examples is None else examples,
      self.logits if logits is None else logits,
    )

  def test_tables(self, tmp_path):
    assert self.write(tmp_path, suffix="_mm") == [1, 0, 2]
    paths = {name: tmp_path / name for name in os.listdir(tmp_path)}
    assert sorted(paths) == ["test_predictions_mm.tsv", "test_results_mm.tsv"]
    table = read_table(paths["test_predictions_mm.tsv"].read_bytes().decode())
    assert table[0] == ["id", "label", *self.label_type.labels]
    assert [row[:2] for row in table[1:]] == [
      ["one", 'g"ood'],
      ["t\two", "b\tad"],
      ['th"ree', "l\nong"],
    ]
    expected = [[1 / 4, 2 / 4, 1 / 4], [5 / 8, 2 / 8, 1 / 8]]
    expected.append([1 / 4, 1 / 4, 2 / 4])
    for rows in (
      np.array([row[2:] for row in table[1:]], np.float64),
      np.loadtxt(paths["test_results_mm.tsv"], delimiter="\t"),
    ):
      np.testing.assert_allclose(rows, expected, rtol=1e-6)

  def test_a_regression(self, tmp_path):
    numbers = [np.array([x], np.float32) for x in (1.25, -2.0, 0.5)]
    predictions = prediction_files.write_predictions(
      str(tmp_path), "", label_types.Regression(), self.examples, numbers
    )
    assert predictions == [1.25, -2.0, 0.5]
    text = (tmp_path / "test_results.tsv").read_text()
    assert text == "1.25\n-2.0\n0.5\n"
    table = read_table((tmp_path / "test_predictions.tsv").read_text())
    assert table[0] == ["id", "number"]
    assert [row[1] for row in table[1:]] == ["1.25", "-2", "0.5"]

  def test_several_labels(self, tmp_path):
    predictions = prediction_files.write_predictions(
      str(tmp_path),
      "",
      label_types.Multilabel(["a", "b"]),
      self.examples,
      [np.array(row) for row in ([1.0, 2.0], [-1.0, 1.0], [-1.0, -1.0])],
    )
    assert predictions == [[1, 1], [0, 1], [0, 0]]
    table = read_table((tmp_path / "test_predictions.tsv").read_text())
    assert [row[1] for row in table[1:]] == ["a|b", "b", ""]

  def test_no_examples(self, tmp_path):
    assert self.write(tmp_path, (), ()) == []
    assert (tmp_path / "test_results.tsv").read_bytes() == b""
    table = read_table((tmp_path / "test_predictions.tsv").read_text())
    assert table == [["id", "label", *self.label_type.labels]]

  def test_more_rows_than_are_written_at_a_time(self, tmp_path):
    places = np.arange(2100) % 3
    predictions = self.write(
      tmp_path,
      (InputExample(str(i), "text") for i in range(2100)),
      iter(np.eye(3)[places]),
    )
    assert predictions == places.tolist()
    table = read_table((tmp_path / "test_predictions.tsv").read_text())
    assert [row[0] for row in table[1:]] == [str(i) for i in range(2100)]
    lines = (tmp_path / "test_results.tsv").read_text().splitlines()
    assert len(lines) == 2100

  @pytest.mark.parametrize("had_files", [False, True])
  def test_whole_or_not_at_all(self, tmp_path, had_files):
    if had_files:
      self.write(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def broken():
      yield from [self.logits[0]] * 1500
      raise KeyboardInterrupt

    examples = [self.examples[0]] * 2000
    with pytest.raises(KeyboardInterrupt):
      self.write(tmp_path, examples, broken())
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before

  @pytest.mark.parametrize("count", [2, 4])
  def test_as_many_logits_as_examples(self, tmp_path, count):
    with pytest.raises(ValueError, match="argument 2 is"):
      self.write(tmp_path, logits=[self.logits[0]] * count)
    assert os.listdir(tmp_path) == []
