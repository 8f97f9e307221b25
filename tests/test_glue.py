"""The tasks: their files, labels and readers."""

import json

import pytest

import glue

BOM = "\ufeff"


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


def row(width, columns):
  """`width` columns, filled up around those that matter."""
  return [columns.get(place, f"c{place}") for place in range(width)]


def as_tuples(examples):
  return [(e.guid, e.text_a, e.text_b, e.label) for e in examples]


def read(processor, set_type, data_dir):
  getter = getattr(processor, f"get_{set_type}_examples")
  return as_tuples(getter(str(data_dir)))


class TestMrpc:
  HEADER = (BOM + "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")

  @pytest.mark.parametrize("set_type", ["train", "dev", "test"])
  @pytest.mark.parametrize("newline", ["\n", "\r\n"])
  def test_examples(self, mrpc, tmp_path, set_type, newline):
    rows = [r for r in mrpc if r["split"] == set_type]
    assert len(rows) == 60
    # The test set has a row number where the others have the label.
    lines = [
      (
        str(number) if set_type == "test" else r["label"],
        "1",
        "2",
        r["text_a"],
        r["text_b"],
      )
      for number, r in enumerate(rows)
    ]
    path = tmp_path / f"{set_type}.tsv"
    write_lines(path, self.HEADER, *lines, newline=newline)
    assert read(glue.MrpcProcessor(), set_type, tmp_path) == [
      (r["guid"], r["text_a"], r["text_b"], r["label"]) for r in rows
    ]

  def test_labels(self):
    assert glue.MrpcProcessor().get_labels() == ["0", "1"]

  def test_example_sets(self, tmp_path):
    lines = [self.HEADER, ("1", "2", "3", "One.", "Two.")]
    write_lines(tmp_path / "dev.tsv", *lines)
    sets = glue.MrpcProcessor().get_example_sets(str(tmp_path), "dev")
    assert {
      suffix: as_tuples(examples) for suffix, examples in sets.items()
    } == {"": [("dev-1", "One.", "Two.", "1")]}


class TestCola:
  @pytest.mark.parametrize("set_type", ["train", "dev"])
  def test_without_header(self, tmp_path, set_type):
    write_lines(
      tmp_path / f"{set_type}.tsv",
      ("gj04", "1", "", "They sang."),
      ("gj04", "0", "*", "Sang they a."),
    )
    assert read(glue.ColaProcessor(), set_type, tmp_path) == [
      (f"{set_type}-0", "They sang.", None, "1"),
      (f"{set_type}-1", "Sang they a.", None, "0"),
    ]

  def test_test_set(self, tmp_path):
    write_lines(
      tmp_path / "test.tsv", ("index", "sentence"), ("0", "They sang.")
    )
    assert read(glue.ColaProcessor(), "test", tmp_path) == [
      ("test-1", "They sang.", None, "0")
    ]

  def test_labels(self):
    assert glue.ColaProcessor().get_labels() == ["0", "1"]


class TestMnli:
  def write(self, path, width, name, label=None):
    """A header and one row: texts in columns 8 and 9, the label last."""
    values = {0: name, 8: f"Premise {name}.", 9: f"Hypothesis {name}."}
    if label:
      values[width - 1] = label
    write_lines(path, row(width, {0: "index"}), row(width, values))

  def test_train(self, tmp_path):
    self.write(tmp_path / "train.tsv", 12, "31", "neutral")
    assert read(glue.MnliProcessor(), "train", tmp_path) == [
      ("train-31", "Premise 31.", "Hypothesis 31.", "neutral")
    ]

  @pytest.mark.parametrize(
    ("set_type", "width", "label"),
    [("dev", 16, "entailment"), ("test", 10, "")],
  )
  def test_matched_and_mismatched(self, tmp_path, set_type, width, label):
    self.write(tmp_path / f"{set_type}_matched.tsv", width, "1", label)
    self.write(tmp_path / f"{set_type}_mismatched.tsv", width, "2", label)
    processor = glue.MnliProcessor()
    sets = processor.get_example_sets(str(tmp_path), set_type)
    assert list(sets) == ["", "_mismatched"]
    # Rows without label get the first of the labels, as the original does.
    label = label or "contradiction"
    for suffix, name in (("", "1"), ("_mismatched", "2")):
      (example,) = sets[suffix]
      assert example.guid.endswith(f"-{name}")
      assert example.text_a == f"Premise {name}."
      assert example.text_b == f"Hypothesis {name}."
      assert example.label == label
    (example,) = getattr(processor, f"get_{set_type}_examples")(str(tmp_path))
    assert example.text_a == "Premise 1."

  def test_labels(self):
    labels = ["contradiction", "entailment", "neutral"]
    assert glue.MnliProcessor().get_labels() == labels
    assert glue.XnliProcessor().get_labels() == labels


class TestXnli:
  def test_train(self, tmp_path):
    write_lines(
      tmp_path / "multinli" / "multinli.train.zh.tsv",
      ("premise", "hypo", "label"),
      ("他 来 了", "他 走 了", "contradictory"),
      ("他 来 了", "有 人 来", "entailment"),
    )
    assert read(glue.XnliProcessor(), "train", tmp_path) == [
      ("train-1", "他 来 了", "他 走 了", "contradiction"),
      ("train-2", "他 来 了", "有 人 来", "entailment"),
    ]

  @pytest.mark.parametrize(
    ("set_type", "label"), [("dev", "neutral"), ("test", "contradiction")]
  )
  def test_only_chinese_rows(self, tmp_path, set_type, label):
    lines = [
      row(19, {0: language, 1: "neutral", 6: f"{language} A", 7: "B"})
      for language in ("ar", "zh", "de", "zh")
    ]
    write_lines(
      tmp_path / f"xnli.{set_type}.tsv", row(19, {0: "language"}), *lines
    )
    assert read(glue.XnliProcessor(), set_type, tmp_path) == [
      (f"{set_type}-2", "zh A", "B", label),
      (f"{set_type}-4", "zh A", "B", label),
    ]


class TestFilesAsTheyAre:
  def texts(self, tmp_path, content):
    (tmp_path / "train.tsv").write_bytes(content)
    examples = glue.ColaProcessor().get_train_examples(str(tmp_path))
    return [example.text_a for example in examples]

  @pytest.mark.parametrize("newline", ["\n", "\r\n"])
  @pytest.mark.parametrize("last", [True, False])
  def test_newlines(self, tmp_path, newline, last):
    content = newline.join(["a\t1\t\tOne.", "b\t0\t\tTwo."]) + newline * last
    assert self.texts(tmp_path, content.encode()) == ["One.", "Two."]

  @pytest.mark.parametrize(
    "text",
    ['"So" she said', '"Open only', 'a "" b', "it's", "tail\u2028piece", " x "],
  )
  def test_text_is_kept(self, tmp_path, text):
    content = f"a\t1\t\t{text}\nb\t1\t\tNext.\n".encode()
    assert self.texts(tmp_path, content) == [text, "Next."]

  def test_a_field_has_no_limit(self, tmp_path):
    text = "word " * 50_000
    assert self.texts(tmp_path, f"a\t1\t\t{text}\n".encode()) == [text]


class TestErrors:
  LINES = (("a", "1", "", "One."), ("b", "0", "", "Two."))

  def message(self, data_dir, processor=None):
    with pytest.raises(ValueError, match=r"train\.tsv") as error:
      (processor or glue.ColaProcessor()).get_train_examples(str(data_dir))
    message = str(error.value)
    assert "\n" not in message
    return message

  def test_unknown_label(self, tmp_path):
    path = write_lines(
      tmp_path / "train.tsv", *self.LINES, ("c", "maybe", "", "Three.")
    )
    message = self.message(tmp_path)
    assert f"{path}:3" in message
    assert "'maybe'" in message
    assert "0, 1" in message

  def test_lines_are_counted_from_the_header(self, tmp_path):
    path = write_lines(
      tmp_path / "train.tsv",
      TestMrpc.HEADER,
      ("1", "x", "y", "One.", "Two."),
      ("2", "x", "y", "One.", "Two."),
    )
    assert f"{path}:3" in self.message(tmp_path, glue.MrpcProcessor())

  @pytest.mark.parametrize("line", [("b", "0", "Two."), ("b",), ("",)])
  def test_too_few_columns(self, tmp_path, line):
    path = write_lines(tmp_path / "train.tsv", self.LINES[0], line)
    message = self.message(tmp_path)
    assert f"{path}:2" in message
    assert f"{len(line)} columns" in message
    assert "4" in message

  def test_commas_for_tabs(self, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("a,1,,One.\n")
    message = self.message(tmp_path)
    assert f"{path}:1" in message
    assert "tab" in message

  def test_missing_file(self, tmp_path):
    message = self.message(tmp_path)
    assert f"--data_dir={tmp_path}" in message
    assert "train.tsv" in message

  def test_missing_mismatched_set(self, tmp_path):
    TestMnli().write(tmp_path / "dev_matched.tsv", 16, "1", "neutral")
    with pytest.raises(ValueError, match=r"dev_mismatched\.tsv"):
      glue.MnliProcessor().get_example_sets(str(tmp_path), "dev")

  @pytest.mark.parametrize("content", ["", BOM])
  def test_empty_file(self, tmp_path, content):
    path = tmp_path / "train.tsv"
    path.write_text(content, "utf-8")
    assert str(path) in self.message(tmp_path)

  def test_header_alone(self, tmp_path):
    path = write_lines(tmp_path / "train.tsv", TestMrpc.HEADER)
    assert str(path) in self.message(tmp_path, glue.MrpcProcessor())

  def test_not_utf8(self, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_bytes(b"a\t1\t\tOne.\nb\t1\t\tCaf\xe9.\nc\t1\t\tThree.\n")
    message = self.message(tmp_path)
    assert "UTF-8" in message
    assert f"{path}:2" in message
