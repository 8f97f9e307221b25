"""Tables of a user's own: what is read, and what is said of what is wrong."""

import collections
import csv
import gzip
import io
import itertools
import json
import logging
import re

import hypothesis
import hypothesis.strategies as st
import pytest
from sklearn.model_selection import train_test_split

from pipeline import tables
from tasks import tabular
from tasks.examples import InputExample

BOM = b"\xef\xbb\xbf"
EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json")


def write(folder, name, content):
  """A file of str or bytes, packed if its name says so."""
  path = folder / name
  content = content.encode() if isinstance(content, str) else content
  path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
  return str(path)


def write_rows(folder, name, names, rows):
  """A table in the format that its name says; cells hold nothing special."""
  if ".json" in name:
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
  else:
    separator = "\t" if ".tsv" in name else ","
    lines = [separator.join(row) for row in [names, *rows]]
  return write(folder, name, "".join(line + "\n" for line in lines))


def labelled(folder, labels, name="train.tsv"):
  """A file with rows "text 0", "text 1" ... of these labels."""
  rows = [(f"text {n}", label) for n, label in enumerate(labels)]
  return write_rows(folder, name, ("text", "label"), rows)


def as_tuples(examples):
  return [(e.guid, e.text_a, e.text_b, e.label) for e in examples]


def texts(examples):
  return [e.text_a for e in examples]


def values(table):
  """A Table's rows as lists."""
  columns = [table.column(place) for place in range(len(table.names))]
  return [list(row) for row in zip(*columns, strict=True)]


class TestReadTable:
  @pytest.mark.parametrize("packed", ["", ".gz"])
  @pytest.mark.parametrize("extension", EXTENSIONS)
  def test_formats(self, tmp_path, extension, packed):
    names, rows = ["text", "label"], [["good", "1"], ["größer", "0"]]
    path = write_rows(tmp_path, f"x{extension}{packed}", names, rows)
    table = tables.read_table(path)
    assert table.names == names
    assert values(table) == rows
    first = 1 if "json" in extension else 2
    assert table.lines == [first, first + 1]

  def test_extension_in_capitals(self, tmp_path):
    assert tables.read_table(write(tmp_path, "X.CSV", "a\n1\n")).rows == [["1"]]

  @pytest.mark.parametrize("mark", [b"", BOM])
  @pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
  @pytest.mark.parametrize("end", [b"", b"\n"])
  @pytest.mark.parametrize("extension", EXTENSIONS)
  def test_marks_and_newlines(self, tmp_path, mark, newline, end, extension):
    lines = {
      ".tsv": [b"text\tlabel", b"a\tb", b"c\td"],
      ".csv": [b"text,label", b"a,b", b"c,d"],
    }.get(extension, [b'{"text":"a","label":"b"}', b'{"text":"c","label":"d"}'])
    end = newline if end else b""
    content = mark + newline.join(lines) + end
    table = tables.read_table(write(tmp_path, "x" + extension, content))
    assert table.names == ["text", "label"]
    assert values(table) == [["a", "b"], ["c", "d"]]
    assert table.lines == [len(lines) - 1, len(lines)]

  @pytest.mark.parametrize("extension", [".tsv", ".csv"])
  @pytest.mark.parametrize("newline", ["\n", "\r\n"])
  def test_empty_lines_at_the_end(self, tmp_path, extension, newline, caplog):
    content = f"a{newline}1{newline}" + newline * 3
    with caplog.at_level(logging.INFO, "absl"):
      table = tables.read_table(write(tmp_path, "x" + extension, content))
    assert table.rows == [["1"]]
    assert "ignoring 3 empty lines at the end" in caplog.text

  def test_empty_lines_within(self, tmp_path):
    path = write(tmp_path, "x.jsonl", '\n{"a": 1}\n \t\n\r\n{"a": 2}\n\n')
    table = tables.read_table(path)
    assert (table.rows, table.lines) == ([{"a": 1}, {"a": 2}], [2, 5])
    path = write(tmp_path, "x.tsv", "a\n\nb\n")
    assert tables.read_table(path).rows == [[""], ["b"]]

  def test_quotes(self, tmp_path):
    quoted = 'a,b\n"one, ""two""\nthree",4\n5,6"7\n'
    table = tables.read_table(write(tmp_path, "x.csv", quoted))
    assert table.rows == [['one, "two"\nthree', "4"], ["5", '6"7']]
    assert table.lines == [2, 4]
    path = write(tmp_path, "x.tsv", 'a\tb\n"one\t"two""\n')
    assert tables.read_table(path).rows == [['"one', '"two""']]

  def test_long_field(self, tmp_path):
    text = "x" * 300_000  # Python's own limit is 131,072.
    path = write(tmp_path, "x.csv", f"a,b\n{text},1\n")
    assert tables.read_table(path).rows == [[text, "1"]]

  def test_keys_of_objects(self, tmp_path):
    path = write(tmp_path, "x.jsonl", '{"a": 1}\n{"b": null, "a": [2]}\n')
    table = tables.read_table(path, header=False)
    assert table.names == ["a", "b"]
    assert values(table) == [[1, None], [[2], None]]

  def test_without_header(self, tmp_path):
    table = tables.read_table(write(tmp_path, "x.csv", "a,b\nc,d\n"), False)
    assert table.names is None
    assert table.rows == [["a", "b"], ["c", "d"]]
    assert table.lines == [1, 2]

  def test_one_row_without_header(self, tmp_path):
    assert tables.read_table(write(tmp_path, "x.tsv", "a"), False).rows == [
      ["a"]
    ]


HALF = r"\ud83d"
BROKEN = {
  "empty TSV": ("x.tsv", "", "{path} is empty"),
  "empty CSV": ("x.csv", "", "{path} is empty"),
  "empty JSON": ("x.jsonl", BOM, "{path} is empty"),
  "empty, packed": ("x.tsv.gz", "", "{path} is empty"),
  "empty lines": ("x.tsv", "\n\n", "{path} is empty"),
  "blank JSON": ("x.json", "\n \n", "{path} is empty"),
  "header alone": ("x.tsv", "text\tlabel\n", "{path} has a header and no rows"),
  "header and empty": ("x.csv", "a,b\n\n\n", "has a header and no rows"),
  "empty header": ("x.tsv", "\na\n", "{path}:1: the header is empty"),
  "empty CSV header": ("x.csv", "\na\n", "{path}:1: the header is empty"),
  "twice": ("x.csv", "a,b,a\n1,2,3\n", "{path}:1: .* 2 columns 'a'; rename"),
  "few columns": (
    "x.tsv",
    "a\tb\n1\t2\n1\n",
    "{path}:3: 1 column where the first line has 2; a tab",
  ),
  "many columns": (
    "x.csv",
    'a,b\n"1\n1",2\n1,2,3\n',
    "{path}:4: 3 columns where the first line has 2; .*quotation marks",
  ),
  "empty row": ("x.csv", "a\n\n1\n", "{path}:2: 0 columns where .*; remove"),
  "empty line": ("x.tsv", "a\tb\n\n1\t2", "{path}:2: 1 column .*; remove the"),
  "open quote": (
    "x.csv",
    'a,b\n"1\n1",2\n3,"4\n5,6\n',
    "{path}:4: .* in the row that starts here; close",
  ),
  "text behind quote": ("x.csv", 'a\n"1" 2\n', "{path}:2: .* starts here"),
  "JSON cut off": (
    "x.jsonl",
    '{"a": 1}\n\n{"a": 2, "b',
    "{path}:3: .* \\(column 10\\); write one whole JSON object a line",
  ),
  "list": ("x.json", '[{"a": 1}]', "{path}:1: .* is no object; write one"),
  "number": ("x.json", '{"a": 1}\n 12 \n', "{path}:2: 12 is no object"),
  "written over lines": (
    "x.json",
    '{\n"a": 1\n}',
    "{path}:1: .*column 2.; write",
  ),
  "two objects": ("x.json", '{"a": 1} {"a": 2}', "{path}:1: Extra data"),
  "key twice": ("x.json", '{"b": 0, "a": 1, "a": 2}', "{path}:1: the key 'a'"),
  "too deep": ("x.json", "[" * 200_000, "{path}:1: .*; write one"),
  "half a character": (
    "x.json",
    f'{{"a": "{HALF}"}}',
    r"{path}:1: a \\u escape is half of a surrogate pair",
  ),
  "Latin-1": (
    "x.csv",
    b"a,b\n1,2\nJos\xe9,3\n",
    "{path}:3: byte 11 is not UTF-8; convert",
  ),
  "Latin-1 behind a mark": (
    "x.tsv",
    BOM + b"a\n\xe9\n",
    "{path}:2: byte 5 is not UTF-8",
  ),
  "Latin-1, old Mac": ("x.tsv", b"a\rb\r\xe9\r", "{path}:3: byte 4 is"),
  "Latin-1, packed": ("x.json.gz", b'{"a":"\xff"}', "{path}:1: byte 6 is"),
  "UTF-16": ("x.tsv", "a\n1\n".encode("utf-16"), "{path}:1: byte 0 is"),
  "other extension": (
    "x.xlsx",
    "a\n1\n",
    "{path} has none of the known extensions .tsv, .csv, .jsonl, .json, each",
  ),
  "no extension": ("tsv", "a\n1\n", "{path} has none of the known"),
  "other packing": ("x.zip.gz", "a\n1\n", "{path} has none of the known"),
}


def raises(path, message):
  """Expects a ValueError of one line that starts like that or holds it."""
  if message.startswith("{path}"):
    message = "^" + message
  return pytest.raises(ValueError, match=message.replace("{path}", path))


def is_one_line(error):
  return "\n" not in str(error.value) and len(str(error.value)) < 400


class TestErrorsOfFiles:
  @pytest.mark.parametrize("case", BROKEN)
  def test_content(self, tmp_path, case):
    name, content, message = BROKEN[case]
    path = write(tmp_path, name, content)
    with raises(re.escape(path), message) as error:
      tables.read_table(path)
    assert is_one_line(error)

  @pytest.mark.parametrize("cut", [1, 12, -9, -1])
  def test_truncated_gzip(self, tmp_path, cut):
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(gzip.compress(b"text\tlabel\na\tb\n")[:cut])
    with raises(re.escape(str(path)), "{path} is not a whole gzip") as error:
      tables.read_table(path)
    assert is_one_line(error)

  @pytest.mark.parametrize("place", [0, 14, -6])
  def test_broken_gzip(self, tmp_path, place):
    content = bytearray(gzip.compress(b"text\tlabel\na\tb\n"))
    content[place] ^= 0xFF
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(content)
    with raises(re.escape(str(path)), "{path} is not a whole gzip") as error:
      tables.read_table(path)
    assert is_one_line(error)

  def test_missing(self, tmp_path):
    with pytest.raises(ValueError, match=r"/x\.tsv: no such file"):
      tables.read_table(tmp_path / "x.tsv")

  def test_missing_and_of_another_format(self, tmp_path):
    path = str(tmp_path / "x.xlsx")
    with raises(re.escape(path), "{path} has none of the known extensions"):
      tables.read_table(path)

  def test_folder(self, tmp_path):
    with raises(re.escape(str(tmp_path)), "{path} is a folder"):
      tables.read_table(tmp_path)

  def test_without_header(self, tmp_path):
    path = write(tmp_path, "x.tsv", "1\t2\n3\n")
    with raises(re.escape(path), "{path}:2: 1 column where the first line"):
      tables.read_table(path, header=False)


class TestPlace:
  @pytest.fixture
  def table(self, tmp_path):
    return tables.read_table(write(tmp_path, "x.csv", "id,1,Text,-1\n,,,\n"))

  @pytest.mark.parametrize(
    ("column", "place"),
    [
      ("id", 0),
      ("1", 1),
      ("-1", 3),  # By name, as is "1".
      ("0", 0),
      (2, 2),
      ("3", 3),
      ("-2", 2),
      ("-4", 0),
    ],
  )
  def test_names_and_numbers(self, table, column, place):
    assert table.column_index(column, "label_column") == place

  @pytest.mark.parametrize(
    ("column", "message"),
    [
      ("4", "--label_column=4: .*/x.csv has 4 columns; its columns are 'id'"),
      (-5, "--label_column=-5: .*/x.csv has 4 columns"),
      (
        "text",
        "--label_column=text: .*/x.csv has no such column; its columns are "
        "'id', '1', 'Text', '-1'; did you mean 'Text'[?]$",
      ),
      ("lable", "no such column; its columns are 'id', '1', 'Text', '-1'$"),
      ("", "--label_column=: .* no such column"),
      ("²", "no such column"),
    ],
  )
  def test_no_such_column(self, table, column, message):
    with pytest.raises(ValueError, match=message) as error:
      table.column_index(column, "label_column")
    assert is_one_line(error)

  def test_without_header(self, tmp_path):
    table = tables.read_table(write(tmp_path, "x.csv", "a,1\nb,2\n"), False)
    assert table.column_index("-1", "text_a_column") == 1
    for column, message in (
      ("a", "--text_a_column=a: .*without a header, so pass an index, 0 to 1"),
      ("2", "--text_a_column=2: .* has 2 columns; .* 0 to 1"),
    ):
      with pytest.raises(ValueError, match=message):
        table.column_index(column, "text_a_column")

  def test_other_separator(self, tmp_path):
    table = tables.read_table(write(tmp_path, "x.csv", "text;label\na;b\n"))
    with pytest.raises(
      ValueError, match=r"are 'text;label'; .*\.csv files by commas"
    ):
      table.column_index("label", "label_column")

  def test_long_header(self, tmp_path):
    names = ["x" * 1000, *(f"c{n}" for n in range(1000))]
    path = write_rows(tmp_path, "x.tsv", names, [names])
    with pytest.raises(ValueError, match="'c18' and 981 more") as error:
      tables.read_table(path).column_index("label", "label_column")
    assert is_one_line(error)


# Text with everything that a format might trip over.
TRICKY = st.text(
  st.one_of(
    st.sampled_from("\t\n\r\",'\\|\u2028\u2029\x85\x0b\x0c\ufeff \0😀é"),
    st.characters(exclude_categories=["Cs"]),
  ),
  max_size=8,
)


def tricky_tables(cell):
  """Strategy: a header of different names, and rows."""
  return st.integers(1, 4).flatmap(
    lambda width: st.tuples(
      st.lists(cell, min_size=width, max_size=width, unique=True),
      st.lists(
        st.lists(cell, min_size=width, max_size=width), min_size=1, max_size=5
      ),
    )
  )


def without(*characters):
  return TRICKY.filter(lambda text: not set(characters) & set(text))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("tables")


class TestRoundTrips:
  @hypothesis.given(tricky_tables(without("\0")), st.sampled_from(["", ".gz"]))
  def test_csv(self, folder, table, packed):
    names, rows = table
    hypothesis.assume(names != [""] and not names[0].startswith("\ufeff"))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(rows)
    read = tables.read_table(write(folder, "x.csv" + packed, text.getvalue()))
    assert read.names == names
    # The writer quotes an empty text that is alone in its row, so it is read.
    assert read.rows == rows

  @hypothesis.given(
    tricky_tables(without("\t", "\n", "\r")),
    st.sampled_from(["\n", "\r\n", "\r"]),
  )
  def test_tsv(self, folder, table, newline):
    names, rows = table
    hypothesis.assume(names != [""] and not names[0].startswith("\ufeff"))
    hypothesis.assume(rows[-1] != [""])
    text = "".join("\t".join(row) + newline for row in [names, *rows])
    read = tables.read_table(write(folder, "x.tsv", text))
    assert read.names == names
    assert read.rows == rows
    assert read.lines == list(range(2, len(rows) + 2))

  @hypothesis.given(
    st.lists(
      st.dictionaries(
        TRICKY,
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TRICKY
        | st.lists(TRICKY),
        max_size=4,
      ),
      min_size=1,
      max_size=5,
    ),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
  )
  def test_json_lines(self, folder, rows, ensure_ascii, newline):
    lines = [json.dumps(row, ensure_ascii=ensure_ascii) for row in rows]
    read = tables.read_table(write(folder, "x.jsonl", newline.join(lines)))
    assert read.rows == rows
    assert sorted(read.names) == sorted(set(itertools.chain(*rows)))
    for place, name in enumerate(read.names):
      assert read.column(place) == [row.get(name) for row in rows]

  @hypothesis.given(st.binary(max_size=60), st.sampled_from(EXTENSIONS))
  def test_anything_else_is_a_value_error(self, folder, content, extension):
    path = write(folder, "any" + extension, content)
    try:
      table = tables.read_table(path)
    except ValueError as error:
      is_ours = str(error).startswith(path)
    else:
      is_ours = len(table.rows) == len(table.lines) > 0
    assert is_ours


class TestExamples:
  @pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl", "x.csv.gz"])
  def test_pairs_with_names(self, tmp_path, name):
    rows = [("e1", "yes", "One.", "Two."), ("e2", "no", "Three.", "")]
    path = write_rows(tmp_path, name, ("id", "answer", "q", "s"), rows)
    processor = tabular.TableProcessor(
      train_file=path,
      dev_file=path,
      test_file=path,
      text_a_column="q",
      text_b_column="-1",
      label_column="answer",
      id_column="id",
    )
    examples = processor.get_train_examples()
    assert as_tuples(examples) == [
      ("e1", "One.", "Two.", "yes"),
      ("e2", "Three.", "", "no"),
    ]
    first = 1 if "json" in name else 2
    assert [e.where for e in examples] == [
      f"{path}:{first}",
      f"{path}:{first + 1}",
    ]
    assert as_tuples(processor.get_dev_examples()) == as_tuples(examples)
    assert as_tuples(processor.get_test_examples()) == [
      ("e1", "One.", "Two.", None),
      ("e2", "Three.", "", None),
    ]
    assert processor.get_labels() == ["no", "yes"]

  def test_numbers_for_names(self, tmp_path):
    path = write(tmp_path, "test.csv", 'text\n"a\nb"\nc\n')
    processor = tabular.TableProcessor(test_file=path)
    examples = processor.get_test_examples()
    assert as_tuples(examples) == [
      ("0", "a\nb", None, None),
      ("1", "c", None, None),
    ]
    assert [e.where for e in examples] == [f"{path}:2", f"{path}:4"]

  def test_without_header(self, tmp_path):
    path = write(tmp_path, "x.tsv", "a\tone\nb\ttwo\n")
    processor = tabular.TableProcessor(
      train_file=path,
      dev_file=path,
      text_a_column="1",
      label_column="0",
      header=False,
    )
    assert as_tuples(processor.get_train_examples()) == [
      ("0", "one", None, "a"),
      ("1", "two", None, "b"),
    ]

  def test_spaces_around_labels(self, tmp_path):
    path = write(tmp_path, "x.csv", "text,label\n a ,x \nb, y\nc,x\n")
    processor = tabular.TableProcessor(train_file=path, dev_file=path)
    assert processor.get_labels() == ["x", "y"]
    assert as_tuples(processor.get_train_examples())[0] == (
      "0",
      " a ",
      None,
      "x",
    )

  def test_data_dir(self, tmp_path):
    path = labelled(tmp_path, "ab")
    for processor, data_dir in (
      (tabular.TableProcessor(train_file="train.tsv"), tmp_path),
      (tabular.TableProcessor(train_file=path), "/nowhere"),
      (tabular.TableProcessor(train_file=path), None),
      (tabular.TableProcessor(train_file=path), ""),
      (tabular.TableProcessor(train_file="train.tsv", data_dir=tmp_path), None),
    ):
      assert processor.get_labels(data_dir) == ["a", "b"]
      assert len(processor.get_train_examples(data_dir)) == 1
      (examples,) = processor.get_example_sets(data_dir, "dev").values()
      assert len(examples) == 1

  def test_files_are_read_once(self, tmp_path):
    path = tmp_path / "train.tsv"
    processor = tabular.TableProcessor(train_file=labelled(tmp_path, "aabb"))
    train = processor.get_train_examples()
    path.unlink()
    assert processor.get_labels() == ["a", "b"]
    assert texts(processor.get_train_examples()) == texts(train)
    assert len(processor.get_dev_examples()) == 1
    train.clear()
    assert len(processor.get_train_examples()) == 3

  def test_empty_texts(self, tmp_path, caplog):
    path = write(tmp_path, "test.tsv", "id\ttext\n1\ta\n2\t\n3\t \n")
    tabular.TableProcessor(test_file=path).get_test_examples()
    (record,) = caplog.records
    assert f"2 of 3 rows have an empty text, the first of them {path}:3" in (
      record.getMessage()
    )

  def test_many_rows(self, tmp_path):
    path = labelled(tmp_path, ["a", "b", "c", "d"] * 25_000)
    processor = tabular.TableProcessor(train_file=path, dev_fraction=0.25)
    assert len(processor.get_train_examples()) == 75_000
    assert len(processor.get_dev_examples()) == 25_000


class TestJsonLabels:
  def read(self, tmp_path, kind, *labels):
    rows = [{"text": "a", "label": label} for label in labels]
    path = write(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    processor = tabular.TableProcessor(
      train_file=path, dev_file=path, kind=kind, labels=None
    )
    examples = processor.get_train_examples()
    return [e.label for e in examples], processor.get_labels()

  def test_classification(self, tmp_path):
    found, labels = self.read(
      tmp_path, "classification", "x", 1, 2.5, True, False, " y"
    )
    assert found == ["x", "1", "2.5", "true", "false", "y"]
    assert labels == ["1", "2.5", "false", "true", "x", "y"]

  def test_regression(self, tmp_path):
    found, labels = self.read(tmp_path, "regression", 1, -2.5, "3e2")
    assert [float(label) for label in found] == [1.0, -2.5, 300.0]
    assert labels == []

  def test_multilabel(self, tmp_path):
    found, labels = self.read(
      tmp_path, "multilabel", ["x", 1], [], "y | x", "", True, ["x", "x"]
    )
    assert found == ["x|1", "", "y|x", "", "true", "x"]
    assert labels == ["1", "true", "x", "y"]

  @pytest.mark.parametrize(
    ("kind", "label", "message"),
    [
      ("classification", None, "label of --label_column=label is null or"),
      ("classification", ["x"], r'label \["x"\] of .* is not text, a number'),
      ("classification", {"x": 1}, r'label \{"x": 1\} of .* is not text'),
      ("classification", float("nan"), "label NaN of .* is not text"),
      ("classification", " ", "label of --label_column=label is empty"),
      ("regression", None, "null or missing"),
      ("regression", True, "label 'true' of .* is no number"),
      ("regression", "", "label of .* is empty"),
      ("regression", "nan", "label 'nan' of .* is no number"),
      ("regression", "x", "label 'x' of --label_column=label is no number"),
      ("multilabel", None, "null or missing"),
      ("multilabel", ["x", None], "is not text, .* or a list of them"),
      ("multilabel", [["x"]], "is not text"),
      ("multilabel", ["x|y"], r"holds a \|, which parts labels; rename"),
    ],
  )
  def test_errors(self, tmp_path, kind, label, message):
    with pytest.raises(ValueError, match=r"/x.jsonl:2: .*" + message) as error:
      self.read(tmp_path, kind, 1, label)
    assert is_one_line(error)


class TestErrorsOfSets:
  def check(self, message, getter, **arguments):
    with pytest.raises(ValueError, match=message) as error:
      getattr(tabular.TableProcessor(**arguments), getter)(None)
    assert is_one_line(error)

  @pytest.mark.parametrize(
    ("getter", "message"),
    [
      ("get_train_examples", "--train_file and --dev_file are missing; pass"),
      ("get_dev_examples", "--train_file and --dev_file are missing; pass"),
      ("get_test_examples", "--test_file is missing; pass the file to predict"),
      ("get_labels", "--train_file is missing, and there is no labels.json in"),
    ],
  )
  def test_missing_flags(self, getter, message):
    self.check(message, getter)

  def test_missing_train_file(self, tmp_path):
    path = labelled(tmp_path, "ab")
    message = "--train_file is missing; pass the file to train on"
    self.check(message, "get_train_examples", dev_file=path)
    message = (
      "--train_file is missing, and there is no labels.json in --output_dir or "
      "the folder of --init_checkpoint; finish the training there, or pass"
    )
    self.check(message, "get_dev_examples", dev_file=path)

  @pytest.mark.parametrize(
    ("line", "arguments", "message"),
    [
      ('{"label": "x"}', {}, "text of --text_a_column=text is null or"),
      ('{"text": null, "label": "x"}', {}, "text_a_column=text is null or"),
      ('{"text": 5, "label": "x"}', {}, "5 of --text_a_column=text is no text"),
      (
        '{"text": "a", "label": "x"}',
        {"text_b_column": "b"},
        "text of --text_b_column=b is null or missing",
      ),
      ('{"text": "a"}', {}, "label of --label_column=label is null or"),
      (
        '{"text": "a", "label": "x"}',
        {"id_column": "id"},
        "name of --id_column=id is missing, or no text or number",
      ),
    ],
  )
  def test_values(self, tmp_path, line, arguments, message):
    whole = '{"text": "a", "b": "c", "label": "x", "id": 7}'
    path = write(tmp_path, "x.jsonl", f"{whole}\n\n{line}\n")
    self.check(
      f"x.jsonl:3: .*{message}",
      "get_train_examples",
      train_file=path,
      **arguments,
    )

  @pytest.mark.parametrize("extension", [".csv", ".tsv"])
  @pytest.mark.parametrize("kind", ["classification", "regression"])
  def test_empty_label(self, tmp_path, extension, kind):
    path = labelled(tmp_path, ["1", "", "2"], f"x{extension}")
    self.check(
      f"x{extension}:3: the label of --label_column=label is empty",
      "get_train_examples",
      train_file=path,
      kind=kind,
    )

  def test_unknown_label(self, tmp_path):
    train = labelled(tmp_path, ["positive", "negative"])
    dev = labelled(tmp_path, ["negative", "Postive"], "dev.tsv")
    message = (
      "dev.tsv:3: label 'Postive' is none of 'negative', 'positive'; did you "
      "mean 'positive'[?]"
    )
    self.check(message, "get_dev_examples", train_file=train, dev_file=dev)
    self.check(
      message, "get_dev_examples", dev_file=dev, labels=["negative", "positive"]
    )
    self.check(
      message.replace("dev", "train"),
      "get_train_examples",
      train_file=labelled(tmp_path, ["negative", "Postive"], "train.tsv"),
      dev_file=dev,
      labels=["negative", "positive"],
    )

  def test_unknown_label_of_several(self, tmp_path):
    self.check(
      "train.tsv:3: label 'c' is none of 'a', 'b'$",
      "get_dev_examples",
      train_file=labelled(tmp_path, ["a", "b|c"]),
      kind="multilabel",
      labels=["a", "b"],
    )

  @pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
      ("classification", "aa", "just the label 'a', and .* needs 2 or more"),
      ("multilabel", ["", " | "], "no label, and multilabel needs 1"),
    ],
  )
  def test_too_few_labels(self, tmp_path, kind, labels, message):
    path = labelled(tmp_path, labels)
    for getter in ("get_labels", "get_train_examples", "get_dev_examples"):
      self.check(
        f"^--label_column=label of {re.escape(path)} has {message}",
        getter,
        train_file=path,
        kind=kind,
      )

  def test_no_such_column(self, tmp_path):
    path = labelled(tmp_path, "ab")
    self.check(
      "--label_column=lable: .*train.tsv has no such column; its columns are "
      "'text', 'label'; did you mean 'label'[?]",
      "get_train_examples",
      train_file=path,
      label_column="lable",
    )
    for flag in ("text_a_column", "text_b_column", "id_column"):
      self.check(
        f"--{flag}=7: .* has 2 columns",
        "get_test_examples",
        test_file=path,
        **{flag: "7"},
      )

  def test_one_column_twice(self, tmp_path):
    path = labelled(tmp_path, "ab")
    self.check(
      "--text_a_column=text and --label_column=0 are one column of",
      "get_train_examples",
      train_file=path,
      label_column="0",
    )
    processor = tabular.TableProcessor(test_file=path, id_column="text")
    assert processor.get_test_examples()[0].guid == "text 0"

  def test_test_set_needs_no_label(self, tmp_path):
    path = write(tmp_path, "x.jsonl", '{"text": "a"}\n{"text": "b"}')
    examples = tabular.TableProcessor(test_file=path).get_test_examples()
    assert as_tuples(examples) == [
      ("0", "a", None, None),
      ("1", "b", None, None),
    ]

  @pytest.mark.parametrize("fraction", [0, 1, -0.1, 2, float("nan")])
  def test_dev_fraction(self, fraction):
    with pytest.raises(ValueError, match=r"--dev_fraction=.* between 0 and"):
      tabular.TableProcessor(dev_fraction=fraction)

  def test_kind(self):
    with pytest.raises(ValueError, match="kind 'x' is none of classification"):
      tabular.TableProcessor(kind="x")

  def test_one_row(self, tmp_path):
    self.check(
      "train.tsv has one row, too few",
      "get_dev_examples",
      train_file=labelled(tmp_path, "1"),
      kind="regression",
    )


class TestLabels:
  @pytest.mark.parametrize(
    ("found", "labels"),
    [
      (["b", "a", "b"], ["a", "b"]),
      (["10", "9", "-1", "2.5"], ["-1", "2.5", "9", "10"]),
      (["10", "9", "x"], ["10", "9", "x"]),
      (["1.0", "1", "0"], ["0", "1", "1.0"]),
      (["nan", "2", "10"], ["10", "2", "nan"]),
      (["Z", "é", "a"], ["Z", "a", "é"]),
    ],
  )
  def test_order(self, tmp_path, found, labels):
    path = labelled(tmp_path, found)
    assert tabular.TableProcessor(train_file=path).get_labels() == labels

  def test_multilabel(self, tmp_path):
    path = labelled(tmp_path, ["b|a", "", "10", "a | 9"])
    processor = tabular.TableProcessor(train_file=path, kind="multilabel")
    assert processor.get_labels() == ["10", "9", "a", "b"]

  def test_regression_reads_nothing(self):
    assert tabular.TableProcessor(kind="regression").get_labels() == []

  def test_given(self, tmp_path):
    processor = tabular.TableProcessor(
      train_file=labelled(tmp_path, "aaa"), labels=["b", "a"]
    )
    assert processor.get_labels() == ["b", "a"]
    assert len(processor.get_train_examples()) == 2


def made(labels):
  return [
    InputExample(str(n), f"text {n}", None, label)
    for n, label in enumerate(labels)
  ]


KINDS = st.sampled_from(["classification", "regression", "multilabel"])
FRACTIONS = st.floats(0.01, 0.99)


class TestSplit:
  @hypothesis.given(
    st.lists(st.sampled_from(["1", "2", "1|2"]), min_size=2, max_size=60),
    KINDS,
    FRACTIONS,
    st.integers(0, 2**31 - 1),
  )
  def test_parts(self, labels, kind, fraction, seed):
    examples = made(labels)
    train, dev = tabular.split_examples(examples, kind, fraction, seed)
    places = [[int(e.guid) for e in part] for part in (train, dev)]
    assert all(part == sorted(part) for part in places)
    assert sorted(places[0] + places[1]) == list(range(len(labels)))
    assert train
    assert abs(len(dev) - fraction * len(labels)) <= 1
    assert dev
    again = tabular.split_examples(examples, kind, fraction, seed)
    assert again == (train, dev)

  @hypothesis.given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12), FRACTIONS
  )
  def test_shares(self, counts, fraction):
    labels = [str(n) for n, count in enumerate(counts) for _ in range(count)]
    hypothesis.assume(len(labels) > 1)
    _, dev = tabular.split_examples(made(labels), "classification", fraction, 1)
    found = collections.Counter(e.label for e in dev)
    rest = sum(count for count in counts if count > 1)
    if len(dev) <= rest:
      counts = [count if count > 1 else 0 for count in counts]
    else:
      rest = len(labels)
    for n, count in enumerate(counts):
      assert abs(found[str(n)] - count * len(dev) / rest) < 1

  @hypothesis.given(
    st.lists(
      st.sets(st.sampled_from("abcdefgh"), max_size=3).map("|".join),
      min_size=2,
      max_size=60,
    ),
    FRACTIONS,
    st.integers(0, 9),
  )
  def test_rare_labels_of_several(self, labels, fraction, seed):
    examples = made(labels)
    _, dev = tabular.split_examples(examples, "multilabel", fraction, seed)
    sets = [frozenset(filter(None, label.split("|"))) for label in labels]
    times = collections.Counter(name for names in sets for name in names)
    in_dev = {int(e.guid) for e in dev}
    alone = {
      n for n, names in enumerate(sets) if any(times[m] == 1 for m in names)
    }
    alone |= {sets.index(set())} if sets.count(set()) == 1 else set()
    if len(dev) <= len(labels) - len(alone):
      assert not in_dev & alone

  def test_shares_are_sklearns(self):
    labels = ["a"] * 30 + ["b"] * 20
    _, dev = tabular.split_examples(made(labels), "classification", 0.1, 7)
    _, expected = train_test_split(labels, test_size=0.1, stratify=labels)
    assert [e.label for e in dev] == sorted(expected)

  def test_a_label_of_one_row(self):
    labels = ["a"] * 60 + ["b"] * 40 + ["c", "d"]
    for seed in range(20):
      _, dev = tabular.split_examples(made(labels), "classification", 0.1, seed)
      found = collections.Counter(e.label for e in dev)
      # A tenth of 102 rows, rounded up.
      assert found.total() == 11
      assert found["a"] in (6, 7)
      assert found["b"] in (4, 5)

  def test_more_labels_than_rows_to_evaluate_on(self):
    labels = [str(n % 77) for n in range(231)]
    _, dev = tabular.split_examples(made(labels), "classification", 0.1, 1)
    found = collections.Counter(e.label for e in dev)
    assert (len(found), found.total()) == (24, 24)

  def test_sets_of_labels(self):
    examples = made(["a|b", "b|a"] * 10 + ["a", ""] * 10)
    _, dev = tabular.split_examples(examples, "multilabel", 0.2, 1)
    found = sorted("".join(sorted(e.label.split("|"))) for e in dev)
    assert found == ["", "", "a", "a", "ab", "ab", "ab", "ab"]

  def test_a_rare_label_beside_frequent_ones(self):
    examples = made(["a|b", "a", "b", "a|c"] * 24 + ["a|rare", "b|c|rare"] * 5)
    for seed in range(20):
      train, dev = tabular.split_examples(examples, "multilabel", 0.1, seed)
      assert [
        sum("rare" in e.label for e in part) for part in (train, dev)
      ] in ([9, 1], [8, 2])

  def test_seeds(self, tmp_path):
    path = labelled(tmp_path, "ab" * 50)

    def dev_texts(seed):
      processor = tabular.TableProcessor(train_file=path, split_seed=seed)
      dev = texts(processor.get_dev_examples())
      train = texts(processor.get_train_examples())
      assert not set(dev) & set(train)
      assert {*dev, *train} == {f"text {n}" for n in range(100)}
      return dev

    assert dev_texts(1) == dev_texts(1)
    assert len({tuple(dev_texts(seed)) for seed in range(5)}) == 5

  def test_is_logged(self, tmp_path, caplog):
    path = labelled(tmp_path, "ab" * 10)
    processor = tabular.TableProcessor(train_file=path)
    with caplog.at_level(logging.INFO, "absl"):
      processor.get_train_examples()
      processor.get_dev_examples()
    (record,) = caplog.records
    assert record.getMessage() == (
      f"{path}: 18 rows to train on and, as there is no --dev_file, 2 to "
      f"evaluate on"
    )


class TestWarnings:
  def test_labels_seen_once(self, caplog):
    for labels, kind in (
      (["a", "a", "c", "b"], "classification"),
      (["1", "2"], "regression"),
      (["a|b", "b", ""], "multilabel"),
      (["a", "a"], "classification"),
      ([str(n) for n in range(30)], "classification"),
    ):
      tabular.log_labels_seen_once(made(labels), kind)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    first, second, third = (record.getMessage() for record in caplog.records)
    place = "with a single example in the training set:"
    assert first == f"2 labels {place} 'b', 'c'"
    assert second == f"1 label {place} 'a'"
    assert third.startswith(f"30 labels {place} '0', '1', '10',")
    assert third.endswith(" and 10 more")

  def test_duplicates(self, tmp_path, caplog):
    train = [InputExample("0", "a", "b"), InputExample("1", "a")]
    dev = [
      InputExample("0", "a", "c"),
      InputExample("1", "a", "b"),
      InputExample("2", "a"),
      InputExample("3", "b", "a"),
    ]
    with caplog.at_level(logging.INFO, "absl"):
      tabular.log_duplicates(train, dev)
      tabular.log_duplicates(train, [InputExample("1", "a", where="dev.tsv:3")])
      tabular.log_duplicates(train, dev[:1])
      tabular.log_duplicates(train, [])
    first, second, *none = (record.getMessage() for record in caplog.records)
    assert "2 of the 4 development examples (50.0 %)" in first
    assert "the first of them example 1;" in first
    assert "the first of them dev.tsv:3;" in second
    assert none == [
      f"0 of the {n} development examples are in the training set, too"
      for n in (1, 0)
    ]
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "WARNING", "INFO", "INFO"]


class TestParseLine:
  @pytest.mark.parametrize(
    ("line", "parsed"),
    [
      ("a b", ("a b", None)),
      ("a b\n", ("a b", None)),
      ("a\r\n", ("a", None)),
      ("a\tb", ("a", "b")),
      ("a\t\n", ("a", "")),
      ('"a, \u2028', ('"a, \u2028', None)),
      ("", ("", None)),
    ],
  )
  def test_texts(self, line, parsed):
    assert tables.parse_line(line) == parsed

  def test_too_many(self):
    with pytest.raises(ValueError, match=r"^3 columns in 'a.*c.*'; give"):
      tables.parse_line("a\tb\tc\n")
