"""The tasks: their files, labels and readers."""

import os

import pytest
from tiny_task import write_tsv

from bert.tasks.classification import glue
from bert.tasks.classification.examples import DataProcessor, InputExample

BOM = "\ufeff"


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
  def test_examples(self, mrpc, tmp_path, set_type):
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
    write_tsv(path, self.HEADER, *lines)
    assert read(glue.MrpcProcessor(), set_type, tmp_path) == [
      (r["guid"], r["text_a"], r["text_b"], r["label"]) for r in rows
    ]


class TestCola:
  @pytest.mark.parametrize("set_type", ["train", "dev"])
  def test_without_header(self, tmp_path, set_type):
    write_tsv(
      tmp_path / f"{set_type}.tsv",
      ("gj04", "1", "", "They sang."),
      ("gj04", "0", "*", "Sang they a."),
    )
    assert read(glue.ColaProcessor(), set_type, tmp_path) == [
      (f"{set_type}-0", "They sang.", None, "1"),
      (f"{set_type}-1", "Sang they a.", None, "0"),
    ]

  def test_test_set(self, tmp_path):
    write_tsv(tmp_path / "test.tsv", ("index", "sentence"), ("0", "They sang."))
    assert read(glue.ColaProcessor(), "test", tmp_path) == [
      ("test-1", "They sang.", None, "0")
    ]


class TestMnli:
  def write(self, path, width, name, label=None):
    """A header and one row: texts in columns 8 and 9, the label last."""
    values = {0: name, 8: f"Premise {name}.", 9: f"Hypothesis {name}."}
    if label:
      values[width - 1] = label
    write_tsv(path, row(width, {0: "index"}), row(width, values))

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
  @pytest.mark.parametrize(
    ("set_type", "label"), [("dev", "neutral"), ("test", "contradiction")]
  )
  def test_only_chinese_rows(self, tmp_path, set_type, label):
    lines = [
      row(19, {0: language, 1: "neutral", 6: f"{language} A", 7: "B"})
      for language in ("ar", "zh", "de", "zh")
    ]
    write_tsv(
      tmp_path / f"xnli.{set_type}.tsv", row(19, {0: "language"}), *lines
    )
    assert read(glue.XnliProcessor(), set_type, tmp_path) == [
      (f"{set_type}-2", "zh A", "B", label),
      (f"{set_type}-4", "zh A", "B", label),
    ]

  def test_other_languages(self, tmp_path):
    """By an argument, or by the attribute, as in the original."""

    class French(glue.XnliProcessor):
      def __init__(self):
        self.language = "fr"

    class German(glue.XnliProcessor):
      language = "de"

    assert German().language == "de"

    write_tsv(
      tmp_path / "multinli" / "multinli.train.fr.tsv",
      ("premise", "hypo", "label"),
      ("Il vient", "Il part", "contradictory"),
    )
    lines = [
      row(19, {0: name, 1: "neutral", 6: f"{name} A", 7: "B"})
      for name in ("zh", "fr")
    ]
    write_tsv(tmp_path / "xnli.dev.tsv", row(19, {0: "language"}), *lines)
    assert glue.XnliProcessor().language == "zh"
    for french in (French(), glue.XnliProcessor("fr"), German("fr")):
      assert read(french, "train", tmp_path) == [
        ("train-1", "Il vient", "Il part", "contradiction")
      ]
      assert read(french, "dev", tmp_path) == [
        ("dev-2", "fr A", "B", "neutral")
      ]

  def test_a_blank_line_has_no_language(self, tmp_path):
    line = row(19, {0: "zh", 1: "neutral", 6: "A", 7: "B"})
    write_tsv(tmp_path / "xnli.dev.tsv", row(19, {0: "language"}), [""], line)
    assert read(glue.XnliProcessor(), "dev", tmp_path) == [
      ("dev-2", "A", "B", "neutral")
    ]


def words(text):
  """The columns of a line whose columns are words."""
  return text.split()


# Header of a task's labeled files, header of its test set, columns of a row
# of each, and the examples that they are.
LAYOUTS = {
  "sst-2": (
    words("sentence label"),
    ("a fine film ", "1"),
    words("index sentence"),
    ("0", "a dull film ."),
    ("a fine film ", None, "1"),
    ("a dull film .", None, "0"),
  ),
  "sts-b": (
    words(
      "index genre filename year old_index source1 source2 sentence1 "
      "sentence2 score"
    ),
    (
      *words("0 main-captions MSRvid 2012test 0004 none none"),
      "A man plays.",
      "A man sings.",
      "3.800",
    ),
    words(
      "index genre filename year old_index source1 source2 sentence1 sentence2"
    ),
    (
      *words("0 main-captions MSRvid 2012test 0024 none none"),
      "A girl runs.",
      "A girl sits.",
    ),
    ("A man plays.", "A man sings.", "3.800"),
    ("A girl runs.", "A girl sits.", None),
  ),
  "qqp": (
    words("id qid1 qid2 question1 question2 is_duplicate"),
    ("133273", "213221", "213222", "Why?", "How so?", "0"),
    words("id question1 question2"),
    ("0", "Who?", "Which?"),
    ("Why?", "How so?", "0"),
    ("Who?", "Which?", "0"),
  ),
  "qnli": (
    words("index question sentence label"),
    ("0", "Who won?", "She did.", "entailment"),
    words("index question sentence"),
    ("0", "Who lost?", "It rained.", "entailment"),
    ("Who won?", "She did.", "entailment"),
    ("Who lost?", "It rained.", "entailment"),
  ),
  "rte": (
    words("index sentence1 sentence2 label"),
    ("0", "It rained.", "It was dry.", "not_entailment"),
    words("index sentence1 sentence2"),
    ("0", "It snowed.", "It was cold."),
    ("It rained.", "It was dry.", "not_entailment"),
    ("It snowed.", "It was cold.", "entailment"),
  ),
  "wnli": (
    words("index sentence1 sentence2 label"),
    ("0", "It fell.", "The cup fell.", "1"),
    words("index sentence1 sentence2"),
    ("0", "It sank.", "The ship sank."),
    ("It fell.", "The cup fell.", "1"),
    ("It sank.", "The ship sank.", "0"),
  ),
  "snli": (
    words(
      "index captionID pairID sentence1_binary_parse sentence2_binary_parse "
      "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label"
    ),
    (*row(7, {0: "0"}), "A dog runs.", "A dog moves.", "x", "entailment"),
    words(
      "index captionID pairID sentence1_binary_parse sentence2_binary_parse "
      "sentence1_parse sentence2_parse sentence1 sentence2 label1 label2 "
      "label3 label4 label5 gold_label"
    ),
    (*row(7, {0: "0"}), "A cat sits.", "A cat runs.", *"abcde", "-"),
    ("A dog runs.", "A dog moves.", "entailment"),
    ("A cat sits.", "A cat runs.", "contradiction"),
  ),
}


class TestLayouts:
  @pytest.mark.parametrize("key", LAYOUTS)
  def test_sets(self, tmp_path, key):
    names, line, test_names, test_line, example, test_example = LAYOUTS[key]
    write_tsv(tmp_path / "train.tsv", names, line, line)
    write_tsv(tmp_path / "dev.tsv", names, line)
    write_tsv(tmp_path / "test.tsv", test_names, test_line)
    processor = glue.PROCESSORS[key]()
    assert read(processor, "train", tmp_path) == [
      ("train-1", *example),
      ("train-2", *example),
    ]
    assert read(processor, "dev", tmp_path) == [("dev-1", *example)]
    assert read(processor, "test", tmp_path) == [("test-1", *test_example)]

  def test_diagnostic_set(self, tmp_path):
    write_tsv(
      tmp_path / "diagnostic.tsv",
      words("index sentence1 sentence2"),
      ("0", "The cat sat.", "The cat did not sit."),
    )
    processor = glue.PROCESSORS["ax"]()
    assert processor.get_labels() == glue.MnliProcessor().get_labels()
    assert read(processor, "test", tmp_path) == [
      ("test-1", "The cat sat.", "The cat did not sit.", "contradiction")
    ]


class TestRowsLeftOut:
  @pytest.mark.parametrize("set_type", ["train", "dev"])
  def test_broken_rows_of_qqp(self, tmp_path, set_type, caplog):
    names, line, *_ = LAYOUTS["qqp"]
    # As when a question has a newline in it.
    path = write_tsv(
      tmp_path / f"{set_type}.tsv", names, line[:4], line[3:], line
    )
    caplog.set_level("INFO", "absl")
    assert read(glue.PROCESSORS["qqp"](), set_type, tmp_path) == [
      (f"{set_type}-3", "Why?", "How so?", "0")
    ]
    assert caplog.messages == [f"{path}: skipped 2 unusable rows"]

  def test_a_test_set_lacks_no_row(self, tmp_path):
    _, _, names, line, *_ = LAYOUTS["qqp"]
    path = write_tsv(tmp_path / "test.tsv", names, line, line[:2])
    with pytest.raises(ValueError, match="2 columns") as error:
      read(glue.PROCESSORS["qqp"](), "test", tmp_path)
    assert str(error.value).startswith(f"{path}:3: ")

  def test_snli_without_gold_label(self, tmp_path, caplog):
    names, line, *_ = LAYOUTS["snli"]
    path = write_tsv(tmp_path / "dev.tsv", names, [*line[:-1], "-"], line)
    caplog.set_level("INFO", "absl")
    assert read(glue.PROCESSORS["snli"](), "dev", tmp_path) == [
      ("dev-2", "A dog runs.", "A dog moves.", "entailment")
    ]
    assert caplog.messages == [f"{path}: skipped 1 unusable row"]


class TestImdb:
  def write(self, folder, **texts):
    for name, text in texts.items():
      label, number = name.split("_", 1)
      path = folder / label / f"{number}.txt"
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text, "utf-8")

  def test_sets(self, tmp_path):
    self.write(tmp_path / "train", pos_0_9="Good.", neg_0_3="Bad.<br />Very.")
    self.write(
      tmp_path / "test", pos_1_10="A", pos_0_8="B", neg_10_1="C", neg_9_4="Dé"
    )
    (tmp_path / "test" / "urls_pos.txt").write_text("no review")
    (tmp_path / "test" / "pos" / "labels.bow").write_text("no review")
    processor = glue.PROCESSORS["imdb"]()
    assert processor.get_labels() == ["neg", "pos"]
    assert read(processor, "train", tmp_path) == [
      ("train-neg/0_3", "Bad.<br />Very.", None, "neg"),
      ("train-pos/0_9", "Good.", None, "pos"),
    ]
    assert read(processor, "test", tmp_path) == [
      ("test-neg/10_1", "C", None, "neg"),
      ("test-neg/9_4", "Dé", None, "neg"),
      ("test-pos/0_8", "B", None, "pos"),
      ("test-pos/1_10", "A", None, "pos"),
    ]
    # There is no other set to evaluate on.
    dev = processor.get_dev_examples(str(tmp_path))
    assert [e.text_a for e in dev] == ["C", "Dé", "B", "A"]
    assert dev[0].where == str(tmp_path / "test" / "neg" / "10_1.txt")

  def test_missing_folder(self, tmp_path):
    self.write(tmp_path / "train", neg_1="Bad.")
    with pytest.raises(ValueError, match="has no train/pos") as error:
      read(glue.PROCESSORS["imdb"](), "train", tmp_path)
    assert f"--data_dir={tmp_path}" in str(error.value)


class TestSubclasses:
  """A user's own classes, as one writes them for the original."""

  LINES = (TestMrpc.HEADER, *((str(n), "1", "2", "A", "B") for n in (0, 1, 1)))

  @pytest.mark.parametrize("set_type", ["train", "dev", "test"])
  def test_getters_decide(self, tmp_path, set_type):
    name = f"get_{set_type}_examples"

    def get_two(self, data_dir):
      return getattr(glue.MrpcProcessor, name)(self, data_dir)[:2]

    small = type("Small", (glue.MrpcProcessor,), {name: get_two})()
    write_tsv(tmp_path / f"{set_type}.tsv", *self.LINES)
    (examples,) = small.get_example_sets(str(tmp_path), set_type).values()
    assert [e.guid for e in examples] == [f"{set_type}-1", f"{set_type}-2"]

  def test_what_a_getter_returns_is_the_only_set(self, tmp_path):
    class Own(glue.MnliProcessor):
      def get_dev_examples(self, data_dir):
        lines = self._read_tsv(os.path.join(data_dir, "own.tsv"))
        return self._create_examples(lines, "dev_matched")

    TestMnli().write(tmp_path / "own.tsv", 16, "1", "neutral")
    sets = Own().get_example_sets(str(tmp_path), "dev")
    assert {suffix: as_tuples(found) for suffix, found in sets.items()} == {
      "": [("dev_matched-1", "Premise 1.", "Hypothesis 1.", "neutral")]
    }

  @pytest.mark.parametrize(
    ("processor", "set_type", "line", "example"),
    [
      (glue.MrpcProcessor, "train", "1 1 2 A B", ("A", "B", "1")),
      (glue.MrpcProcessor, "test", "9 1 2 A B", ("A", "B", "0")),
      (glue.ColaProcessor, "dev", "x 1 y A", ("A", None, "1")),
      (glue.ColaProcessor, "test", "9 A", ("A", None, "0")),
    ],
  )
  def test_lines_of_another_file(self, processor, set_type, line, example):
    has_header = (processor, set_type) != (glue.ColaProcessor, "dev")
    lines = [["header"]] * has_header + [line.split(" ")]
    found = processor()._create_examples(lines, set_type)
    assert as_tuples(found) == [(f"{set_type}-{int(has_header)}", *example)]

  def test_other_columns(self, tmp_path):
    class Swapped(glue.MrpcProcessor):
      def _create_examples(self, lines, set_type):
        return [
          InputExample(f"{set_type}-{i}", line[4], line[3], line[0])
          for i, line in enumerate(lines[1:])
        ]

    write_tsv(tmp_path / "train.tsv", *self.LINES[:2])
    found = Swapped().get_train_examples(str(tmp_path))
    assert as_tuples(found) == [("train-0", "B", "A", "0")]


class TestTable:
  def test_glue_in_its_order(self):
    names = [glue.TASKS[key].name for key in glue.GLUE_TASKS]
    assert names == words("CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI AX")

  def test_metrics_of_the_paper(self):
    # GLUE's table 1.
    assert glue.TASKS["cola"].metrics == ("accuracy", "matthews")
    assert glue.TASKS["sts-b"].metrics == ("pearson", "spearman", "mse")
    for key in ("mrpc", "qqp"):
      assert set(glue.TASKS[key].metrics) == {"accuracy", "f1"}

  @pytest.mark.parametrize(
    ("names", "key"),
    [
      ("SST-2 sst2 SST_2", "sst-2"),
      ("sts-b STSB", "sts-b"),
      ("MNLI", "mnli"),
      ("My_Task my-task MYTASK", "My_Task"),  # A user's own.
    ],
  )
  def test_find_task(self, names, key):
    processors = {**glue.PROCESSORS, "My_Task": DataProcessor}
    assert {glue.find_key(n, processors) for n in names.split()} == {key}

  @pytest.mark.parametrize(
    ("key", "predictions", "answers"),
    [
      ("cola", [1, 0, 1], ["1", "0", "1"]),
      ("wnli", [0, 1], ["0", "1"]),
      ("mnli", [0, 1, 2], ["contradiction", "entailment", "neutral"]),
      ("ax", [2], ["neutral"]),
      ("rte", [1, 0], ["not_entailment", "entailment"]),
      ("qnli", [1], ["not_entailment"]),
      ("sts-b", [-0.2, 3.14159, 5.7, 4], ["0.000", "3.142", "5.000", "4.000"]),
    ],
  )
  def test_submission(self, key, predictions, answers):
    lines = [f"{index}\t{answer}\n" for index, answer in enumerate(answers)]
    text = glue.submission_lines(glue.TASKS[key], predictions)
    assert text == "index\tprediction\n" + "".join(lines)


class TestTaskFolder:
  def test_diagnostic_set(self, tmp_path):
    ax = glue.TASKS["ax"]
    # From the last place that is looked at to the first.
    for name in ("MNLI", "diagnostic", "AX"):
      write_tsv(tmp_path / name / "diagnostic.tsv", ("index",))
      assert glue.task_folder(str(tmp_path), ax) == str(tmp_path / name)


@pytest.mark.parametrize(
  "text",
  ['"So" she said', '"Open only', 'a "" b', "it's", "tail\u2028piece", " x "],
)
def test_text_is_kept(tmp_path, text):
  content = f"a\t1\t\t{text}\nb\t1\t\tNext.\n".encode()
  (tmp_path / "train.tsv").write_bytes(content)
  examples = glue.ColaProcessor().get_train_examples(str(tmp_path))
  assert [example.text_a for example in examples] == [text, "Next."]


class TestErrors:
  LINES = (("a", "1", "", "One."), ("b", "0", "", "Two."))

  def message(self, data_dir, processor=None):
    with pytest.raises(ValueError, match=r"train\.tsv") as error:
      (processor or glue.ColaProcessor()).get_train_examples(str(data_dir))
    message = str(error.value)
    assert "\n" not in message
    return message

  def test_examples_know_their_place(self, tmp_path):
    row = ("1", "x", "y", "One.", "Two.")
    for processor, lines, first in (
      (glue.MrpcProcessor(), (TestMrpc.HEADER, row, row), 2),
      (glue.ColaProcessor(), self.LINES, 1),
    ):
      path = write_tsv(tmp_path / "train.tsv", *lines)
      examples = processor.get_train_examples(str(tmp_path))
      places = [f"{path}:{number}" for number in (first, first + 1)]
      assert [e.where for e in examples] == places

  @pytest.mark.parametrize(
    ("processor", "line", "label"),
    [
      (glue.MrpcProcessor, ("1", "x", "y", "One.", "Two."), "1"),
      (glue.PROCESSORS["sts-b"], (*"0123456", "One.", "Two.", "4.5"), "4.5"),
    ],
  )
  def test_a_first_line_that_is_no_header(
    self, tmp_path, caplog, processor, line, label
  ):
    path = write_tsv(tmp_path / "train.tsv", line, line)
    assert len(processor().get_train_examples(str(tmp_path))) == 1
    (warning,) = caplog.messages
    assert warning.startswith(
      f"{path}:1: the first line is skipped as a header"
    )
    assert warning.endswith("; if it is an example, add a header before it")
    assert f"has the label {label!r}" in warning

  def test_the_form_of_a_file(self, tmp_path):
    write_tsv(tmp_path / "train.tsv", ("label", "text"), ("1", "a text"))
    message = self.message(tmp_path, glue.MrpcProcessor())
    assert "train.tsv:2: 2 columns, expected 5 or more" in message
    assert "text in 3, second text in 4, label in 0; for files of" in message
    assert message.endswith("your own, pass --task_name=custom")

  def test_missing_mismatched_set(self, tmp_path, caplog):
    """The original reads the matched set alone."""
    processor = glue.MnliProcessor()
    TestMnli().write(tmp_path / "dev_matched.tsv", 16, "1", "neutral")
    for _ in range(2):
      sets = processor.get_example_sets(str(tmp_path), "dev")
      assert list(sets) == [""]
    (warning,) = caplog.messages
    assert f"{tmp_path}/dev_mismatched.tsv does not exist" in warning
    TestMnli().write(tmp_path / "test_mismatched.tsv", 10, "1")
    with pytest.raises(ValueError, match=r"has no test_matched\.tsv"):
      processor.get_example_sets(str(tmp_path), "test")
