"""Tables of a user's own: what is read, and what is said of what is wrong."""

import contextlib
import csv
import decimal
import gzip
import io
import itertools
import logging
import pathlib
import re
import zipfile

import hypothesis
import hypothesis.strategies as st
import pyarrow
import pytest
from pyarrow import parquet
from table_files import write, write_rows

from bert.data import tables

CASES = pathlib.Path(__file__).parent.parent / "cases"
BOM = b"\xef\xbb\xbf"
EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json")


class TestReadTable:
  @pytest.mark.parametrize("packed", ["", ".gz"])
  @pytest.mark.parametrize("extension", EXTENSIONS)
  def test_formats(self, tmp_path, extension, packed):
    names, rows = ["text", "label"], [["good", "1"], ["größer", "0"]]
    path = write_rows(tmp_path, f"x{extension}{packed}", names, rows)
    table = tables.read_table(path)
    assert table.names == names
    assert table.rows == rows
    first = 1 if "json" in extension else 2
    assert table.lines == [first, first + 1]

  @pytest.mark.parametrize("extension", EXTENSIONS)
  def test_marks_and_newlines(self, tmp_path, extension):
    lines = {
      ".tsv": [b"text\tlabel", b"a\tb", b"c\td"],
      ".csv": [b"text,label", b"a,b", b"c,d"],
    }.get(extension, [b'{"text":"a","label":"b"}', b'{"text":"c","label":"d"}'])
    for mark, newline, has_end in itertools.product(
      (b"", BOM), (b"\n", b"\r\n", b"\r"), (False, True)
    ):
      content = mark + newline.join(lines) + newline * has_end
      table = tables.read_table(write(tmp_path, "x" + extension, content))
      assert table.names == ["text", "label"]
      assert table.rows == [["a", "b"], ["c", "d"]]
      assert table.lines == [len(lines) - 1, len(lines)]

  def test_empty_lines_within(self, tmp_path):
    path = write(tmp_path, "x.jsonl", '\n{"a": 1}\n \t\n\r\n{"a": 2}\n\n')
    table = tables.read_table(path)
    assert (table.rows, table.lines) == ([[1], [2]], [2, 5])
    path = table.path
    assert list(table.named_rows()) == [
      (f"{path}:2", {"a": 1}),
      (f"{path}:5", {"a": 2}),
    ]
    path = write(tmp_path, "x.tsv", "a\n\nb\n")
    assert tables.read_table(path).rows == [[""], ["b"]]

  def test_long_field(self, tmp_path):
    text = "x" * 300_000  # Python's own limit is 131,072.
    path = write(tmp_path, "x.csv", f"a,b\n{text},1\n")
    assert tables.read_table(path).rows == [[text, "1"]]

  def test_keys_of_objects(self, tmp_path):
    path = write(tmp_path, "x.jsonl", '{"a": 1}\n{"b": null, "a": [2]}\n')
    table = tables.read_table(path, header=False)
    assert table.names == ["a", "b"]
    assert table.rows == [[1, None], [[2], None]]

  def test_without_header(self, tmp_path):
    table = tables.read_table(write(tmp_path, "x.csv", "a,b\nc,d\n"), False)
    assert table.names is None
    assert table.rows == [["a", "b"], ["c", "d"]]
    assert table.lines == [1, 2]


def _zipped(name):
  """A zip archive with a file of that name."""
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as archive:
    # It has no time of today, which could contain a newline.
    member = zipfile.ZipInfo(name)
    archive.writestr(member, "ä" * 40, zipfile.ZIP_DEFLATED)
  return buffer.getvalue()


HALF = r"\ud83d"
BROKEN = [
  ("x.tsv", "", " has no rows; pass a file with rows"),
  ("x.tsv", "\n\n", " has no rows"),
  ("x.json", "\n \n", " has no rows"),
  ("x.tsv", "text\tlabel\n", " has no rows"),
  ("x.csv", "a,b,a\n1,2,3\n", ":1: .* 2 columns 'a'; rename"),
  (
    "x.tsv",
    "a\tb\n1\t2\n1\n",
    ":3: 1 column where .* line has 2; complete the row",
  ),
  ("x.tsv", "a\tb\n\n1\t2", ":2: 1 column .*; remove the"),
  ("x.csv", 'a,b\n"1\n1",2\n1,2,3\n', ":4: 3 columns .* 2; .*quotation marks"),
  ("x.csv", 'a,b\n"1\n1",2\n3,"4\n5,6\n', ":4: .* row that starts here; close"),
  ("x.csv", "a;b\n1;2\n1;2;3\n", ":3: 3 .* 2; .* contain a semicolon between"),
  (
    "x.jsonl",
    '{"a": 1}\n\n{"a": 2, "b',
    ":3: .*: column 10 .*; write one JSON",
  ),
  ("x.json", '{"a": 1}\n 12 \n', ":2: 12 is not a JSON object"),
  ("x.json", "[" * 200_000, ":1: .*; write one"),
  (
    "x.json",
    f'{{"a": "{HALF}"}}',
    ":1: .*ud83d.*surrogates not allowed; write",
  ),
  ("x.csv", b"a,b\n1,2\nJos\xe9,3\n", ":3: byte 11 is not UTF-8; convert"),
  (
    "x.tsv",
    "a\n1\n".encode("utf-16")[:-1],
    ":2: .* in UTF-16; convert it to UTF-8",
  ),
  (
    "x.csv",
    "a,b\n“caf\xe9”,1\n".encode("cp1252"),
    ":2: byte 4 is not UTF-8; .* from Windows-1252 .*CSV UTF-8.*cp1252",
  ),
  (
    "x.csv",
    "a,b\nテスト,1\n".encode("shift-jis") + b"\x81\x8d",
    ":2: byte 4 is not UTF-8; convert the file to UTF-8$",
  ),
  ("x.xlsx", "a\n1\n", ' has none of .* save the workbook as "CSV UTF-8" in'),
  ("x.csv", _zipped("[Content_Types].xml"), ":1: .* Excel workbook; in Exc"),
  ("x.csv", gzip.compress(b"a", mtime=0), ":1: .* is compressed"),
  ("x.csv", b"PAR1\xff", ":1: .*Parquet .*.parquet"),
  ("x.parquet", b"a,b\n1,2\n", " is not a Parquet file"),
  ("x.docx", "a\n1\n", " has none of .* .tsv, .csv, .jsonl, .json, .par"),
  ("x.zip.gz", "a\n1\n", " has none of the known"),
]


@contextlib.contextmanager
def refused(path, message):
  """Expects a ValueError of one line that begins with a path."""
  wanted = f"^{re.escape(str(path))}{message}"
  with pytest.raises(ValueError, match=wanted) as error:
    yield
  assert "\n" not in str(error.value)
  assert len(str(error.value)) < 400


TEXTS = [
  "good; really",
  "größer, ja",
  '"so" she said',
  "two\nlines",
  "tab\there",
]


class TestOfPrograms:
  """Files as Excel and other programs export them."""

  @pytest.mark.parametrize(
    ("name", "delimiter", "encoding"),
    [
      ("x.csv", ",", "utf-8-sig"),
      ("x.csv", ";", "utf-16"),
      ("x.csv.gz", "\t", "utf-8"),
      ("x.tsv", ",", "utf-16"),
      ("x.tsv", ";", "utf-8"),
    ],
  )
  def test_separators_and_encodings(
    self, tmp_path, name, delimiter, encoding, caplog
  ):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter)
    rows = [[text, str(index)] for index, text in enumerate(TEXTS * 9)]
    writer.writerows([["text", "label"], *rows])
    content = buffer.getvalue().encode(encoding)
    with caplog.at_level(logging.INFO, "absl"):
      table = tables.read_table(write(tmp_path, name, content))
    assert (table.names, table.rows) == (["text", "label"], rows)
    usual = {"x.csv": ",", "x.tsv": "\t"}[name.removesuffix(".gz")]
    assert ("are separated by" in caplog.text) == (delimiter != usual)

  @pytest.mark.parametrize(
    ("name", "line"),
    [("sep_line.csv", 3), ("trailing_cols.csv", 2), ("utf16_nobom.csv", 2)],
  )
  def test_files_of_excel(self, name, line):
    table = tables.read_table(CASES / name)
    assert table.names == ["text", "label"]
    labels = ["good", "bad"] * 4
    rows = [[f"Text number {n}, fine ü", v] for n, v in enumerate(labels)]
    assert table.rows == rows
    assert table.lines == list(range(line, line + 8))

  @pytest.mark.parametrize(
    ("name", "content", "rows", "lines"),
    [
      ("x.csv", "sep=|\na|b\n", [["a", "b"]], [2]),
      ("x.tsv", '"SEP=;"\r\na\tb;c\r\n', [["a\tb", "c"]], [2]),
      ("x.csv", "sep=,\n", None, None),
      ("x.csv", "sep=ab\nc\n", [["sep=ab"], ["c"]], [1, 2]),
      (
        "x.csv",
        "a,b,\n,,\nc,,\n,,\n",
        [["a", "b"], ["", ""], ["c", ""]],
        [1, 2, 3],
      ),
      ("x.tsv", "a\t\nb\t\n\t\n\n", [["a"], ["b"]], [1, 2]),
      ("x.csv", "a,b,,d\n", [["a", "b", "", "d"]], [1]),
    ],
  )
  def test_hints_and_empty_cells(self, tmp_path, name, content, rows, lines):
    for encoding in ("utf-8", "utf-16-be", "utf-16-le"):
      path = write(tmp_path, name, content.encode(encoding))
      if rows is None:
        with pytest.raises(ValueError, match="has no rows"):
          tables.read_table(path, header=False)
        continue
      table = tables.read_table(path, header=False)
      assert (table.rows, table.lines) == (rows, lines)

  @pytest.mark.parametrize(
    ("content", "names"),
    [
      ("id;text, original;label\n1;a, b;x\n2;c;y\n", 3),
      ("text,rating;scale\na;b,1\nc,2\n", 2),
      ("text\na; b\nc\n", 1),
      ("text\na, b\nc; d, e\n", 1),
      ('"one; two","three"\na,b\n', 2),
    ],
  )
  def test_the_header_tells_the_separator(self, tmp_path, content, names):
    path = write(tmp_path, "x.csv", content)
    if names == 1:
      path = write(tmp_path, "x.tsv", content)
    assert len(tables.read_table(path).names) == names

  @pytest.mark.parametrize(
    ("delimiter", "character"), [("|", "|"), ("tab", "\t"), (r"\t", "\t")]
  )
  def test_a_given_separator(self, tmp_path, delimiter, character):
    lines = ["text;,label", "a,1", "b;,2"]
    content = "\n".join(line.replace(",", character) for line in lines)
    path = write(tmp_path, "x.csv", content)
    table = tables.read_table(path, delimiter=delimiter)
    assert table.names == ["text;", "label"]
    assert table.rows == [["a", "1"], ["b;", "2"]]
    table = tables.read_table(path, False, delimiter)
    assert len(table.rows) == 3

  @pytest.mark.parametrize(
    ("written", "given"),
    [
      *(("cp1252", "cp1252"), ("shift-jis", "shift_jis")),
      *(("utf-8-sig", "cp1252"), ("utf-16", "cp1252")),  # Marks come first.
    ],
  )
  def test_a_given_encoding(self, tmp_path, written, given):
    text = "テスト" if "jis" in written else "größer"
    for name, rows in (
      ("x.csv.gz", f"text,label\n{text},1\n"),
      ("x.jsonl", f'{{"text": "{text}", "label": "1"}}'),
    ):
      path = write(tmp_path, name, rows.encode(written))
      assert tables.read_table(path, encoding=given).rows == [[text, "1"]]

  def test_utf8_in_a_given_encoding(self, tmp_path, caplog):
    for text in ("größer", "grosser"):
      path = write(tmp_path, "x.csv", f"text\n{text}\n".encode())
      tables.read_table(path, encoding="CP1252")
      path_2 = write(tmp_path, "y.csv", f"text\n{text}\n".encode("cp1252"))
      tables.read_table(path_2, encoding="cp1252")
    (message,) = caplog.messages
    assert message.startswith(f"{path} is UTF-8")
    assert message.endswith("--encoding=utf-8")

  @pytest.mark.parametrize(
    ("content", "given", "message"),
    [
      (b"a\n\xe9\n", "utf-8", "is not UTF-8; .*or pass --encoding=cp1252$"),
      (b"a\n\x81\n", "utf-8", "is not UTF-8; .*, or pass its --encoding$"),
      (b"a\n\x81\n", "cp1252", "is not CP1252; .*, or pass its --encoding$"),
      (b"\xef\xbb\xbf\xe9\n", "cp1252", "is not UTF-8; convert"),
    ],
  )
  def test_a_wrong_encoding(self, tmp_path, content, given, message):
    path = write(tmp_path, "x.csv", content)
    with refused(path, rf":\d: byte \d {message}"):
      tables.read_table(path, encoding=given)

  @pytest.mark.parametrize("delimiter", ["", ";;", '"'])
  def test_a_wrong_separator(self, tmp_path, delimiter):
    path = write(tmp_path, "x.csv", "a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"--delimiter=.* is not one char"):
      tables.read_table(path, delimiter=delimiter)

  @pytest.mark.parametrize(
    ("separator", "given", "named"), [(";", ",", "';'"), ("\t", ";", "tab")]
  )
  def test_a_separator_of_other_columns(
    self, tmp_path, separator, given, named
  ):
    path = write(tmp_path, "x.csv", f"a{separator}b\n1{given}5{separator}2\n")
    message = f"x.csv:2: 2 columns .* has 1; .*, pass --delimiter={named}$"
    with pytest.raises(ValueError, match=message):
      tables.read_table(path, delimiter=given)

  def test_one_column_names_the_flag(self, tmp_path):
    path = write(tmp_path, "x.csv", "text:label\na:b\n")
    with pytest.raises(
      ValueError, match=r"are 'text:label'; pass .* columns as --delimiter$"
    ):
      tables.read_table(path).column_index("text", "text_a_column")

  def test_parquet(self):
    # The package `datasets` has written these files.
    table = tables.read_table(CASES / "class_labels.parquet")
    assert table.names == ["text", "label", "tags", "n"]
    assert table.rows == [
      ["a", "pos", ["a", "b"], 0.5],
      ["b\nc", None, [], 2.0],
    ]
    assert table.lines == [1, 2]

  def test_parquet_of_other_programs(self, tmp_path):
    columns = {"text": ["a", None], "label": [1, 0]}
    path = str(tmp_path / "X.PARQUET")
    parquet.write_table(pyarrow.table(columns), path)
    assert tables.read_table(path).rows == [["a", 1], [None, 0]]
    parquet.write_table(
      pyarrow.table(
        {
          "price": pyarrow.array([decimal.Decimal("2.50")]),
          "id": pyarrow.array([7], pyarrow.decimal128(38, 0)),
        }
      ),
      path,
    )
    assert repr(tables.read_table(path).rows) == "[[2.5, 7]]"
    parquet.write_table(pyarrow.table({"text": []}), path)
    with pytest.raises(ValueError, match="has no rows; pass a file with rows"):
      tables.read_table(path)

  def test_damaged_parquet(self, tmp_path):
    path = tmp_path / "x.parquet"
    column = {"text": ["one text", "another text"] * 99}
    parquet.write_table(pyarrow.table(column), path, use_dictionary=False)
    content, problems = path.read_bytes(), []
    for start in range(4, len(content), 40):
      damaged = content[:start] + b"\xff" * 8 + content[start + 8 :]
      path.write_bytes(damaged)
      try:
        tables.read_table(str(path))
      except ValueError as error:
        problems.append(str(error))
    wanted = f"{path} is not a Parquet file that can be read: "
    assert all(problem.startswith(wanted) for problem in problems)
    assert any("snappy" in problem for problem in problems)


class TestErrorsOfFiles:
  @pytest.mark.parametrize(("name", "content", "message"), BROKEN)
  def test_content(self, tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with refused(path, message):
      tables.read_table(path)

  @pytest.mark.parametrize(
    "damage",
    [
      lambda content: content[:12],
      lambda content: content[:-1],
      lambda content: b"x" + content[1:],
      lambda content: content[:14] + b"\xff" + content[15:],
    ],
  )
  def test_broken_gzip(self, tmp_path, damage):
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(damage(gzip.compress(b"text\tlabel\na\tb\n")))
    with refused(path, " is not a complete gzip"):
      tables.read_table(path)


class TestPlace:
  @pytest.fixture
  def table(self, tmp_path):
    return tables.read_table(write(tmp_path, "x.csv", "id,1,Text,-1\na,,,\n"))

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

  def test_without_header(self, tmp_path):
    table = tables.read_table(write(tmp_path, "x.csv", "a,1\nb,2\n"), False)
    assert table.column_index("-1", "text_a_column") == 1
    message = "--text_a_column=2: .* no such column; .* -2 to 1"
    with pytest.raises(ValueError, match=message):
      table.column_index("2", "text_a_column")

  def test_long_header(self, tmp_path):
    names = ["x" * 1000, *(f"c{n}" for n in range(1000))]
    path = write_rows(tmp_path, "x.tsv", names, [names])
    with pytest.raises(ValueError, match="'c18' and 981 more") as error:
      tables.read_table(path).column_index("label", "label_column")
    assert len(str(error.value)) < 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("tables")


class TestAnyBytes:
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
